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
		{"a peer whose certificate may be anybody's", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, authorities: [a], remoteAuthentication: certificate, children: [{name: net, tunnel: t}]}",
			"remoteIdentity: each certificate of the authorities would be accepted"},
		{"a peer with its name", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, authorities: [a], remoteAuthentication: certificate, remoteIdentity: gw-b.example.org, children: [{name: net, tunnel: t}]}", ""},
		{"peers of any name", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, authorities: [a], remoteAuthentication: certificate, remoteIdentity: \"%any\", children: [{name: net, tunnel: t}]}", ""},
		{"remote users with certificates", "IkeConnection",
			"{localAddress: 192.0.2.1, credential: c, authorities: [a], localAuthentication: certificate, remoteAuthentication: eap, eapMethod: eap_tls, pools: [p], children: [{name: net, tunnel: t}]}", ""},
		{"a site", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, credential: c, remoteNetworks: [10.2.0.0/16]}", ""},
		{"a site whose certificate may be anybody's", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, credential: c, authorities: [a], remoteNetworks: [10.2.0.0/16]}",
			"remoteIdentity: each certificate of the authorities would be accepted"},
		{"a site that calls, without a name", "IkePeer", "{localAddress: 192.0.2.1, credential: c, remoteNetworks: [10.2.0.0/16]}", "remoteIdentity: without remoteAddress, remoteIdentity identifies the peer"},
		{"a site of the other family", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: \"2001:db8::2\", credential: c, remoteNetworks: [10.2.0.0/16]}", "remoteAddress: "},
		{"a site at the gateway's own address", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.1, credential: c, remoteNetworks: [10.2.0.0/16]}", "remoteAddress: is localAddress"},
		{"networks of two families", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, credential: c, localNetworks: [\"2001:db8::/48\"], remoteNetworks: [10.2.0.0/16]}",
			"remoteNetworks: no network is of the family of a network in localNetworks"},
		{"networks of both families", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, credential: c, localNetworks: [10.1.0.0/16, \"2001:db8::/48\"], remoteNetworks: [10.2.0.0/16]}", ""},
		{"one network on both sides", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, children: [{name: net, tunnel: t, local: [10.1.0.0/16], remote: [10.2.0.0/16, 10.1.0.0/16]}]}",
			"children[0].remote[1]: is in children[0].local too"},
		{"all traffic", "IkeConnection", "{localAddress: 192.0.2.1, credential: c, children: [{name: net, tunnel: t, local: [0.0.0.0/0], remote: [0.0.0.0/0]}]}", ""},
		{"a network twice", "IkePeer", "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, credential: c, remoteNetworks: [10.2.0.0/16, 10.2.0.0/16]}", "remoteNetworks[1]: duplicate network"},
		{"algorithms that do not exist", "IpsecPolicy", "{espProposals: [aes256gcm16-x25519-rot13]}", "espProposals[0]: "},
	})
}
