// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// BenchmarkMemory is the heap of an established IKE SA with one child, at each end, with its records.
func BenchmarkMemory(b *testing.B) {
	p := newPair(&testing.T{})
	p.b.m.CookieThreshold = 1 << 30
	responder := p.connection(p.b, p.a, ikeSuite, espSuite)
	responder.Remote, responder.RemoteID = netip.Addr{}, Identity{}
	p.do(p.b, p.b.m.SetConnection("peer", responder, p.now))
	heap := func() uint64 {
		var m runtime.MemStats
		p.wire, p.seen, p.a.events, p.b.events = nil, nil, nil, nil
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range b.N {
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		c.Name, c.LocalID = fmt.Sprintf("peer-%06d", i), Identity{Kind: responder.LocalID.Kind, Data: fmt.Sprintf("peer-%06d.example", i)}
		p.do(p.a, p.a.m.SetConnection(c.Name, c, p.now))
		actions, err := p.a.m.Initiate(c.Name, "", p.now)
		if err != nil {
			b.Fatal(err)
		}
		p.do(p.a, actions)
		p.run()
		p.seen = nil
	}
	both := heap() - before
	p.a.m, p.a.in, p.a.out, p.a.records = nil, nil, nil, nil
	responders := heap() - before
	b.ReportMetric(float64(both-responders)/float64(b.N), "B/initiator")
	b.ReportMetric(float64(responders)/float64(b.N), "B/responder")
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(p)
}
