// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Each end takes the messages of the other one at any time: while an IKE SA is authenticated again, and while both ends have opened one.

// other adds another child to a connection.
func other(c *Connection) *Connection {
	one := *c.Children[0]
	one.Name = "other"
	one.Local, one.Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.20.0.0/16"))}, []message.Selector{SelectorOf(netip.MustParsePrefix("10.20.0.0/16"))}
	c.Children = append(c.Children, &one)
	return c
}

// carriesAll counts the children that an end sends with and the other one does not have.
func (n *network) carriesAll(names ...string) (unknown int) {
	for _, way := range [][2]*end{{n.a, n.b}, {n.b, n.a}} {
		for _, name := range names {
			one := plane{out: maps.Clone(n.planes[way[0]].out)}
			maps.DeleteFunc(one.out, func(_ uint32, c *ChildSA) bool { return c.Conf.Name != name })
			if c := one.sends(); c == nil || n.planes[way[1]].in[c.SPIOut] == nil {
				unknown++
				n.note("%s sends %s with %v, and %s does not receive it", way[0].name, name, c, way[1].name)
			}
		}
	}
	return unknown
}

// random delivers packets and installs SAs in any order, a number of steps, and lets time go by.
func (n *network) random(steps int, each func()) {
	for range steps {
		e := n.a
		if n.numbers.Intn(2) == 0 {
			e = n.b
		}
		switch n.numbers.Intn(8) {
		case 0:
			n.wait(time.Duration(n.numbers.Intn(300)) * time.Millisecond)
		case 1, 2:
			n.install(e)
		default:
			n.next()
		}
		each()
	}
}

func (n *network) failed(seed int64) {
	n.t.Helper()
	if n.t.Failed() {
		for _, line := range n.log {
			n.t.Log(line)
		}
		n.t.Fatalf("seed %d", seed)
	}
}

func TestReauthenticationLosesNoPacket(t *testing.T) {
	for _, bad := range []bool{false, true} {
		for seed := range *seeds {
			n := newNetwork(t, seed, bad, func(a, b *Connection) {
				other(a)
				other(b)
				a.DPDDelay, b.DPDDelay = time.Hour, time.Hour
			})
			n.patient = true
			n.a.slow, n.b.slow = false, false
			n.pass(time.Second)
			for _, e := range []*end{n.a, n.b} {
				n.planes[e] = &plane{maps.Clone(e.in), maps.Clone(e.out), map[uint32][]uint32{}}
				e.slow = true
			}
			old := n.a.only(t)
			before := slices.Collect(maps.Keys(n.a.in))
			unknown := n.carriesAll("net", "other")
			old.reauthAt = n.now
			old.schedule()
			n.random(200, func() { unknown += n.carriesAll("net", "other") })
			n.bad = false
			n.random(1000, func() { unknown += n.carriesAll("net", "other") })
			n.settle(2 * time.Minute)
			n.check(2)
			if unknown > 0 {
				t.Errorf("%d times an end sends with a child that the other one does not have", unknown)
			}
			if n.a.only(t).id == old.id || slices.ContainsFunc(before, func(spi uint32) bool { return n.a.in[spi] != nil }) {
				t.Error("the IKE SA is not authenticated again")
			}
			n.failed(seed)
		}
	}
}

// A peer whose IKE SA does not end when another one is there, as one that has lost it: the responder asks whether it has the new one.
func TestAResponderAsksWhetherThePeerHasTheNewIKESA(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.ReauthTime = time.Hour })
	p.initiate()
	old := p.a.only(t)
	p.pass(50 * time.Minute)
	for range 60 * 12 {
		if p.pass(time.Second); len(p.a.m.sas) == 2 {
			break
		}
	}
	// The old one stays.
	old.twin = nil
	old.schedule()
	p.pass(3 * time.Second)
	if len(p.b.out) != 2 || len(p.b.m.sas) != 2 {
		t.Errorf("%d children send, of %d IKE SAs", len(p.b.out), len(p.b.m.sas))
	}
	plane := plane{out: p.b.out}
	if c := plane.sends(); c.sa.id == old.theirSPI {
		t.Error("the child of the old IKE SA sends")
	}
}

func TestTwoIKESAsThatOpenAtOnceLoseNoPacket(t *testing.T) {
	crossed := 0
	for _, bad := range []bool{false, true} {
		for seed := range *seeds {
			n := newNetwork(t, seed, bad)
			n.patient = true
			actions, _ := n.a.m.Terminate("peer", "", n.now)
			n.do(n.a, actions)
			n.run()
			for _, e := range []*end{n.a, n.b} {
				e.installed = nil
				n.planes[e] = &plane{map[uint32]*ChildSA{}, map[uint32]*ChildSA{}, map[uint32][]uint32{}}
				e.counts = map[string]int{}
			}
			for _, e := range []*end{n.a, n.b} {
				actions, err := e.m.Initiate("peer", "", n.now)
				if err != nil {
					t.Fatal(err)
				}
				n.do(e, actions)
			}
			// From when both IKE SAs are up.
			both, unknown := false, 0
			up := func(e *end) bool {
				return len(e.m.sas) == 2 && len(n.planes[e].in) == 2 && !slices.ContainsFunc(slices.Collect(maps.Values(e.m.sas)), func(s *ikeSA) bool { return s.state != established })
			}
			each := func() {
				if both = both || up(n.a) && up(n.b); both {
					unknown += n.carriesAll("net")
				}
			}
			n.random(500, each)
			n.bad = false
			n.random(500, each)
			n.settle(2 * time.Minute)
			n.check(1)
			if unknown > 0 {
				t.Errorf("%d times an end sends with a child that the other one does not have", unknown)
			}
			if both {
				crossed++
			}
			n.failed(seed)
		}
	}
	if crossed < int(*seeds)*3/2 {
		t.Errorf("two IKE SAs come up in %d runs only", crossed)
	}
}

// The agent of the end that ends one of the IKE SAs is killed before it has, or the other one is. The new one goes on.
func TestANewAgentEndsTheIKESAThatHasATwin(t *testing.T) {
	for _, what := range []string{"reauthentication", "crossing"} {
		for _, which := range []int{0, 1} {
			for at := range 24 {
				p := newPair(t)
				p.configure(func(a, b *Connection) { a.ReauthTime = time.Hour })
				configure := func(e *end) {
					from, to := p.a, p.b
					if e == p.b {
						from, to = p.b, p.a
					}
					p.restart(e, func(m *Machine) { m.SetConnection("peer", p.connection(from, to, ikeSuite, espSuite), p.now) })
				}
				e := []*end{p.a, p.b}[which]
				begun := 2
				if what == "crossing" {
					for _, one := range []*end{p.a, p.b} {
						actions, _ := one.m.Initiate("peer", "", p.now)
						p.do(one, actions)
					}
					p.run()
				} else {
					p.initiate()
					s := p.a.only(t)
					s.reauthAt = p.now
					s.schedule()
					p.do(p.a, p.a.m.Tick(p.now))
					p.run()
				}
				if len(p.a.m.sas) != begun || len(p.b.m.sas) != begun {
					t.Fatalf("%s: %d and %d IKE SAs", what, len(p.a.m.sas), len(p.b.m.sas))
				}
				// Each tick of the agent is one step, and so is each packet.
				steps := 0
				step := func() {
					if steps++; steps == at {
						configure(e)
					}
				}
				p.filter = func(*Datagram) bool {
					step()
					return true
				}
				for range 30 {
					step()
					p.pass(250 * time.Millisecond)
				}
				p.filter = nil
				p.pass(30 * time.Second)
				t.Logf("%s, end %s, step %d: %q %q", what, e.name, at, p.a.events, p.b.events)
				p.check(1)
				if t.Failed() {
					return
				}
			}
		}
	}
}

// A child of an IKE SA that ends is not rekeyed.
func TestAnIKESAThatEndsForItsTwinIsNotRekeyed(t *testing.T) {
	for _, child := range []string{"", "*"} {
		p := newPair(t)
		p.configure()
		p.initiate()
		s := p.a.only(t)
		s.reauthAt = p.now
		s.schedule()
		p.do(p.a, p.a.m.Tick(p.now))
		p.run()
		p.do(p.a, p.a.m.Tick(p.now))
		if !s.yields() {
			t.Fatal("the IKE SA does not end")
		}
		for _, e := range []*end{p.a, p.b} {
			actions, _ := e.m.Rekey("peer", child, p.now)
			p.do(e, actions)
			p.run()
		}
		p.pass(time.Minute)
		p.check(1)
		if strings.Contains(strings.Join(p.a.events, ","), "failed") {
			t.Errorf("events %q", p.a.events)
		}
	}
}

// RFC 7296 section 2.4: INITIAL_CONTACT says that there is no other IKE SA between the identities, also of another connection.
func TestASecondConnectionToAPeerDoesNotEndTheFirst(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	second := p.connection(p.a, p.b, ikeSuite, espSuite)
	second.Name = "second"
	p.do(p.a, p.a.m.SetConnection(second.Name, second, p.now))
	actions, err := p.a.m.Initiate("second", "", p.now)
	if err != nil {
		t.Fatal(err)
	}
	p.do(p.a, actions)
	p.run()
	if len(p.a.m.sas) != 2 || len(p.b.m.sas) != 2 || len(p.b.in) != 2 {
		t.Errorf("%d and %d IKE SAs, %d children; events %q", len(p.a.m.sas), len(p.b.m.sas), len(p.b.in), p.b.events)
	}
}

// RFC 7296 section 2.4: INITIAL_CONTACT ends IKE SAs of before, not one that came up meanwhile.
func TestInitialContactOfAPeerThatOpensAtTheSameTimeEndsNothing(t *testing.T) {
	p := newPair(t)
	p.configure()
	for _, e := range []*end{p.a, p.b} {
		actions, _ := e.m.Initiate("peer", "", p.now)
		p.do(e, actions)
	}
	late := p.take(p.a)
	p.deliver(p.take(p.b))
	p.deliver(p.take(p.a))
	contact := p.take(p.b)
	p.deliver(late)
	for range 2 {
		p.deliver(p.take(p.b))
		if len(p.wire) > 0 {
			p.deliver(p.take(p.a))
		}
	}
	if !p.b.only2(t).initiator {
		t.Fatal("the IKE SA of b is not up")
	}
	p.deliver(contact)
	p.run()
	if len(p.a.m.sas) != 2 || len(p.b.m.sas) != 2 {
		t.Errorf("%d and %d IKE SAs", len(p.a.m.sas), len(p.b.m.sas))
	}
	p.pass(10 * time.Second)
	p.check(1)
	if slices.ContainsFunc(p.b.events, func(s string) bool { return strings.Contains(s, "began anew") }) {
		t.Errorf("events %q", p.b.events)
	}
}
