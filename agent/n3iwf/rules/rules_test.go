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
		{"pools that overlap", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16, 10.202.0.0/16, 10.201.3.0/24], userPlaneAddresses: [10.200.0.2]}", "innerPools[2]: it overlaps innerPools[0]"},
		{"a pool without an address for a UE", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/32], userPlaneAddresses: [10.200.0.2]}", "innerPools[0]: it has no address for a UE"},
		{"a NAS address that no UE reaches", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: '2001:db8::1', innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2]}", "nasAddress: no UE has an address of its family"},
		{"NAS and user planes at one address", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.1]}", "userPlaneAddresses[0]: it is nasAddress"},
		{"proposals", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], proposals: [aes128-sha256-modp2048], espProposals: [aes256gcm16-esn]}", ""},
		{"a proposal without a key length", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], proposals: [aes128gcm16-prfsha256-ecp256, aes]}", "proposals[1]: "},
		{"a proposal for ESP that is none", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], espProposals: [aes]}", "espProposals[0]: "},
		{"a 5QI that is marked twice", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], markings: [{fiveQi: 1}, {fiveQi: 1}]}", "markings[1].fiveQi: duplicate 5QI"},
		{"a child SA for mission-critical voice", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], childFiveQis: [65]}", ""},
		{"more child SAs than there can be", "N3iwf", "{node: n, localAddress: 192.0.2.1, credential: c, coreAddress: 198.51.100.1, nasAddress: 10.200.0.1, innerPools: [10.201.0.0/16], userPlaneAddresses: [10.200.0.2], childFiveQis: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]}", "childFiveQis[16]: too many"},
	})
}
