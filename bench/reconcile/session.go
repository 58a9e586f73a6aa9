// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// base returns the objects that all sessions refer to. The port receives no packets: without no-rx, net_null receives without end, and
// its worker uses all of a processor.
func base() []*object.Object {
	return []*object.Object{
		{Kind: "Port", Name: "access", Spec: &api.Port{Device: "net_null0,no-rx=1"}},
		{Kind: "Acl", Name: "web", Spec: &api.Acl{Rules: []*api.AclRule{{Action: api.AclAction_PERMIT, Protocol: "tcp", DestinationPorts: "443"}},
			Otherwise: api.AclAction_PERMIT}},
		{Kind: "Meter", Name: "gold", Spec: &api.Meter{CommittedRate: 1e8, CommittedBurst: 1e6, ExcessBurst: 1e6}},
	}
}

func sessionName(i int) string { return fmt.Sprintf("subscriber-%d", i) }

// session is as a broadband gateway has them: QinQ, an address and a prefix, an access list, a meter each way, a label. None needs
// another.
func session(i int, mss uint32) *object.Object {
	return &object.Object{Kind: "Session", Name: sessionName(i), Labels: map[string]string{"city": "bonn"}, Spec: &api.Session{
		Access:    &api.Access{Port: "access", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)},
		Addresses: []string{fmt.Sprintf("100.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&65535)},
		Policy:    &api.Policy{AclUp: "web", MeterUp: "gold", MeterDown: "gold", Mss: mss},
	}}
}
