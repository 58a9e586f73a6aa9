// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"fmt"
	"net/netip"
	"testing"
)

// BenchmarkSetUp is IKE_SA_INIT and IKE_AUTH with a shared key and X25519: initiator and responder on one core, without I/O.
func BenchmarkSetUp(b *testing.B) {
	p := newPair(&testing.T{})
	p.b.m.CookieThreshold = 1 << 30
	responder := p.connection(p.b, p.a, ikeSuite, espSuite)
	responder.Remote, responder.RemoteID = netip.Addr{}, Identity{}
	p.do(p.b, p.b.m.SetConnection("peer", responder, p.now))
	for i := range b.N {
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		c.Name = fmt.Sprintf("peer-%d", i)
		p.do(p.a, p.a.m.SetConnection(c.Name, c, p.now))
		actions, err := p.a.m.Initiate(c.Name, "", p.now)
		if err != nil {
			b.Fatal(err)
		}
		p.seen = nil
		p.do(p.a, actions)
		p.run()
		p.do(p.a, p.a.m.SetConnection(c.Name, nil, p.now))
		p.run()
	}
	if len(p.b.in) != 0 {
		b.Fatalf("%d children are left", len(p.b.in))
	}
}
