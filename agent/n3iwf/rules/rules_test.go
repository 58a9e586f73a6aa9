// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"an N3IWF", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2, '2001:db8::2']}", ""},
		{"an N3IWF that gives UEs its own address", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.200.0.0/16], userPlaneAddresses: [10.200.0.2]}", "innerPools[0]: it contains nasAddress"},
		{"an N3IWF without a user plane of a family", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: ['2001:db8::/64'], userPlaneAddresses: [10.200.0.2]}", "innerPools[0]: no user-plane address of its family"},
		{"an N3IWF with two user planes of a family", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2, 10.200.0.3]}", "userPlaneAddresses[1]: a second address of its family"},
		{"a 5QI that is marked twice", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], markings: [{fiveQi: 1}, {fiveQi: 1}]}", "markings[1].fiveQi: there twice"},
	})
}
