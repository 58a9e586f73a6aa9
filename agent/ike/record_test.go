// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// restart replaces the machine of an end by a new one that restores the records.
func (p *pair) restart(e *end, configure func(m *Machine)) {
	old := e.m
	e.m = New(p.now)
	configure(e.m)
	e.m.actions = nil
	before := len(e.in)
	actions, _ := e.m.Restore(maps.Clone(e.records), p.now)
	clear(e.in)
	clear(e.out)
	p.do(e, actions)
	if before != len(e.in) && len(old.children) == len(e.m.children) {
		p.t.Errorf("%d children, %d before", len(e.in), before)
	}
}

func TestANewAgentTakesOverIKESAs(t *testing.T) {
	for _, which := range []string{"initiator", "responder"} {
		p := newPair(t)
		p.configure()
		p.initiate()
		e, other := p.a, p.b
		if which == "responder" {
			e, other = p.b, p.a
		}
		p.pass(10 * time.Minute)
		seen := map[string]bool{}
		p.filter = func(d *Datagram) bool {
			// Each direction uses a message ID for one packet only. The header identifies the packet.
			id := d.Local.String() + string(d.Data[:24])
			if seen[id] {
				t.Errorf("the %s uses message ID %x twice", which, d.Data[20:24])
			}
			seen[id] = true
			return true
		}
		for range 3 {
			p.restart(e, func(m *Machine) { m.SetConnection("peer", p.connection(e, other, ikeSuite, espSuite), p.now) })
			p.check(1)
			p.pass(2 * time.Minute)
			p.check(1)
		}
		x, _ := other.m.Rekey("peer", "*", p.now)
		p.do(other, x)
		p.run()
		p.check(1)
		p.restart(e, func(m *Machine) { m.SetConnection("peer", p.connection(e, other, ikeSuite, espSuite), p.now) })
		y, _ := e.m.Rekey("peer", "", p.now)
		p.do(e, y)
		p.run()
		p.check(1)
	}
}

// The agent of one end restarts at each packet of each exchange, and nothing starts the connection again. Afterwards both ends have the same
// children: a new one after a rekey of the child, the one of before after a rekey of the IKE SA.
func TestAnAgentRestartsWithinAnExchange(t *testing.T) {
	for _, what := range []string{"rekey child", "rekey IKE", "delete child"} {
		for _, which := range []int{0, 1} {
			for at := range 4 {
				p := newPair(t)
				p.configure(func(a, b *Connection) { a.Children[0].StartAction = Start })
				p.pass(time.Second)
				p.check(1)
				e, other := p.a, p.b
				if which == 1 {
					e, other = p.b, p.a
				}
				before := p.a.only(t)
				child := before.children[0].SPIIn
				n := 0
				p.filter = func(*Datagram) bool {
					n++
					if n-1 == at {
						// The packet is lost with the old agent.
						p.restart(e, func(m *Machine) {
							m.SetConnection("peer", p.connection(e, other, ikeSuite, espSuite), p.now)
						})
						return false
					}
					return true
				}
				var actions []Action
				switch what {
				case "rekey child":
					actions, _ = p.a.m.Rekey("peer", "*", p.now)
				case "rekey IKE":
					actions, _ = p.a.m.Rekey("peer", "", p.now)
				case "delete child":
					actions, _ = p.a.m.Terminate("peer", "net", p.now)
				}
				p.do(p.a, actions)
				p.run()
				p.filter = nil
				p.pass(4 * time.Minute)
				left := 1
				if what == "delete child" {
					left = 0
				}
				t.Logf("%s, end %d, packet %d", what, which, at)
				p.check(left)
				if left == 0 {
					continue
				}
				after := p.a.only(t)
				if after.id != before.id {
					t.Errorf("the ends began anew: events %q and %q", p.a.events, p.b.events)
				}
				if same := after.children[0].SPIIn == child; same != (what == "rekey IKE") || (after.ourSPI == before.ourSPI) != (what == "rekey child") {
					t.Errorf("IKE SA %x, %x before; child %x, %x before", after.ourSPI, before.ourSPI, after.children[0].SPIIn, child)
				}
			}
		}
	}
}

func TestMalformedRecordsAreDeleted(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	for key := range p.a.records {
		p.a.records[key] = []byte("{")
	}
	p.a.records["window/0000000000000001"] = []byte("{}")
	m := New(p.now)
	if actions, n := m.Restore(p.a.records, p.now); n != 0 || len(actions) == 0 {
		t.Errorf("%d restored", n)
	}
}

func TestChildrenGetNewKeysWhenTheDataPlaneStartsAgain(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.do(p.a, p.a.m.Booted("", 7, p.now))
	p.initiate()
	children := func() (all []uint32) { return slices.Sorted(maps.Keys(p.a.in)) }
	before := children()
	// The same data plane, also for a new agent.
	p.do(p.a, p.a.m.Booted("", 7, p.now))
	p.restart(p.a, func(m *Machine) { m.SetConnection("peer", p.connection(p.a, p.b, ikeSuite, espSuite), p.now) })
	p.do(p.a, p.a.m.Booted("", 7, p.now))
	p.run()
	p.check(1)
	if !slices.Equal(children(), before) {
		t.Errorf("children %x, %x before", children(), before)
	}
	p.do(p.a, p.a.m.Booted("", 8, p.now))
	p.run()
	p.check(1)
	if slices.Equal(children(), before) {
		t.Errorf("children %x, as before", before)
	}
}

// The agent of one end restarts at each packet of the rekeys that follow a restart of its data plane. No child keeps its sequence numbers.
func TestAnAgentThatRestartsFinishesTheRekeysOfARestartedDataPlane(t *testing.T) {
	for at := range 8 {
		p := newPair(t)
		several := func(c *Connection) *Connection {
			one := *c.Children[0]
			one.Name = "other"
			one.Local, one.Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.20.0.0/16"))}, []message.Selector{SelectorOf(netip.MustParsePrefix("10.20.0.0/16"))}
			c.Children = append(c.Children, &one)
			return c
		}
		p.configure(func(a, b *Connection) { several(a); several(b) })
		p.do(p.a, p.a.m.Booted("", 7, p.now))
		p.initiate()
		p.pass(time.Minute)
		p.check(2)
		before := maps.Clone(p.a.in)
		n := 0
		p.filter = func(*Datagram) bool {
			n++
			if n-1 == at {
				// The packet is lost with the old agent.
				p.restart(p.a, func(m *Machine) { m.SetConnection("peer", several(p.connection(p.a, p.b, ikeSuite, espSuite)), p.now) })
				p.do(p.a, p.a.m.Booted("", 8, p.now))
				return false
			}
			return true
		}
		p.do(p.a, p.a.m.Booted("", 8, p.now))
		p.run()
		p.filter = nil
		p.pass(4 * time.Minute)
		p.check(2)
		for spi := range p.a.in {
			if before[spi] != nil {
				t.Errorf("restart at packet %d: the child %08x is not rekeyed", at, spi)
			}
		}
	}
}

// A soft lifetime is reported once: a restarted agent rekeys the child.
func TestAnAgentThatRestartsFinishesTheRekeyOfALifetime(t *testing.T) {
	for at := range 4 {
		p := newPair(t)
		p.configure()
		p.initiate()
		p.pass(time.Minute)
		before := maps.Clone(p.a.in)
		n := 0
		p.filter = func(*Datagram) bool {
			n++
			if n-1 == at {
				p.restart(p.a, func(m *Machine) { m.SetConnection("peer", p.connection(p.a, p.b, ikeSuite, espSuite), p.now) })
				return false
			}
			return true
		}
		for spi := range before {
			p.do(p.a, p.a.m.Expiring(spi, false, p.now))
		}
		p.run()
		p.filter = nil
		p.pass(4 * time.Minute)
		p.check(1)
		for spi := range p.a.in {
			if before[spi] != nil {
				t.Errorf("restart at packet %d: the child is not rekeyed", at)
			}
		}
	}
}
