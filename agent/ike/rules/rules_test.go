// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"remote users that are subscribers", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, subscriberProfile: p, children: [{name: net}]}", ""},
		{"subscribers that share a tunnel", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, subscriberProfile: p, children: [{name: net, tunnel: t}]}", "children[0].tunnel: each user of subscriberProfile has a tunnel of its own"},
		{"subscribers in transport mode", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, subscriberProfile: p, children: [{name: net, mode: transport_mode}]}", "children[0].mode: users of subscriberProfile have tunnels"},
		{"subscribers with pools of the connection", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, subscriberProfile: p, pools: [a], children: [{name: net}]}", "pools: subscriberProfile has pools and name servers"},
		{"a child without a tunnel", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, children: [{name: net}]}", "children[0].tunnel: neither or both of tunnel and policy"},
	})
}
