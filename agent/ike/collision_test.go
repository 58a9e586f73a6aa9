// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Collisions of exchanges (RFC 7296 sections 2.8.1, 2.8.2 and 2.25), one by one. random_test.go has them all.

// rekey begins a rekey.
func (p *pair) rekey(e *end, child string) {
	actions, _ := e.m.Rekey("peer", child, p.now)
	p.do(e, actions)
}

// take takes the first datagram to an end off the wire.
func (p *pair) take(to *end) Datagram {
	p.t.Helper()
	i := slices.IndexFunc(p.wire, func(d Datagram) bool { return d.Remote.Addr() == to.address })
	if i < 0 {
		p.t.Fatalf("nothing is on the way to %s", to.name)
	}
	d := p.wire[i]
	p.wire = slices.Delete(p.wire, i, i+1)
	return d
}

// RFC 7296 section 2.25.1: another IKE SA would have the child before the peer answers.
func TestTheIKESAIsNotRekeyedWhileAChildIsDeleted(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.Children[0].CloseAction, b.Children[0].CloseAction = Hold, Hold })
	p.initiate()
	sa := p.a.only(t)
	actions, _ := p.a.m.Terminate("peer", "net", p.now)
	p.do(p.a, actions)
	late := p.take(p.b)
	p.rekey(p.b, "")
	p.run()
	if p.a.only(t) != sa {
		t.Fatal("the rekey of the IKE SA is not refused")
	}
	p.deliver(late)
	p.run()
	p.check(0)
	p.pass(10 * time.Second)
	p.check(0)
	if p.a.only(t) == sa {
		t.Error("the IKE SA is not rekeyed later")
	}
}

func TestTheNewChildSendsWhenItsResponderDeletesTheOldOne(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.rekey(p.a, "*")
	p.deliver(p.take(p.b))
	created := p.take(p.a)
	old := p.b.only(t).sortedChildren()
	old = slices.DeleteFunc(old, func(c *ChildSA) bool { return c.half })
	p.do(p.b, p.b.m.Expiring(old[0].SPIIn, true, p.now))
	p.deliver(p.take(p.a))
	p.deliver(created)
	p.run()
	p.check(1)
}

func TestAChildThatThePeerDeletesBeforeItsResponseArrivesIsNotMade(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.Children[0].CloseAction = Hold })
	p.initiate()
	actions, _ := p.a.m.Terminate("peer", "net", p.now)
	p.do(p.a, actions)
	p.run()
	actions, err := p.a.m.Initiate("peer", "net", p.now)
	if err != nil {
		t.Fatal(err)
	}
	p.do(p.a, actions)
	p.deliver(p.take(p.b))
	created := p.take(p.a)
	actions, _ = p.b.m.Terminate("peer", "net", p.now)
	p.do(p.b, actions)
	p.run()
	p.deliver(created)
	p.run()
	p.check(0)
}

// RFC 7296 section 2.25: a peer that does not know a child yet refuses its rekey for the moment, and both ends keep it.
func TestARekeyThatOvertakesTheResponseThatMakesTheChildBeginsAgain(t *testing.T) {
	for _, child := range []string{"made", "rekeyed"} {
		p := newPair(t)
		p.configure(func(a, b *Connection) { a.Children[0].CloseAction = Hold })
		p.initiate()
		if child == "made" {
			actions, _ := p.a.m.Terminate("peer", "net", p.now)
			p.do(p.a, actions)
			p.run()
			actions, _ = p.a.m.Initiate("peer", "net", p.now)
			p.do(p.a, actions)
		} else {
			p.rekey(p.a, "*")
		}
		p.deliver(p.take(p.b))
		created := p.take(p.a)
		if actions, n := p.b.m.Rekey("peer", "*", p.now); n != 1 {
			t.Errorf("%s: %d children are rekeyed", child, n)
		} else {
			p.do(p.b, actions)
		}
		p.run()
		p.deliver(created)
		p.run()
		p.check(1)
		p.pass(10 * time.Second)
		p.check(1)
		if slices.ContainsFunc(p.b.events, func(s string) bool { return strings.Contains(s, message.ChildSANotFound.String()) }) {
			t.Errorf("%s: events %q", child, p.b.events)
		}
	}
}

// The peer has our response to its rekey, and we have no response to ours. The next message on the new IKE SA says which one the peer has.
func TestARequestOnTheNewIKESADecidesACollision(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.rekey(p.b, "")
	lost := p.take(p.a)
	p.rekey(p.a, "")
	p.deliver(p.take(p.b))
	p.deliver(p.take(p.a))
	p.take(p.b) // the Delete of the old one
	actions, _ := p.a.m.Terminate("peer", "net", p.now)
	p.do(p.a, actions)
	p.run()
	if len(p.b.in)+len(p.a.in) != 0 {
		t.Errorf("%d and %d children are left", len(p.a.in), len(p.b.in))
	}
	p.deliver(lost)
	p.pass(2 * time.Minute)
	if len(p.a.m.sas) != len(p.b.m.sas) {
		t.Errorf("%d and %d IKE SAs", len(p.a.m.sas), len(p.b.m.sas))
	}
}

// The response waits for the data plane. Sent again, it waits as well.
func TestAResponseThatIsSentAgainWaitsForTheDataPlaneToo(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	waiting := 0
	p.b.slow = true
	p.b.held = func(one Send) bool {
		if len(one.After) > 0 {
			waiting++
		}
		return len(one.After) > 0
	}
	p.rekey(p.a, "*")
	request := p.take(p.b)
	p.deliver(request)
	p.deliver(request)
	if waiting != 2 || len(p.wire) != 0 {
		t.Errorf("%d responses wait, %d are on the way", waiting, len(p.wire))
	}
}

// The redundant child of a collision sends nothing, also when the end that won deletes the old one.
func TestTheRedundantChildOfACollisionNeverSends(t *testing.T) {
	for range 20 {
		p := newPair(t)
		p.configure()
		p.initiate()
		p.rekey(p.a, "*")
		p.rekey(p.b, "*")
		toB, toA := p.take(p.b), p.take(p.a)
		p.deliver(toB)
		p.deliver(toA)
		late := p.take(p.b)
		p.run()
		plane := plane{out: p.a.out}
		if c := plane.sends(); p.b.in[c.SPIOut] == nil {
			t.Errorf("a sends with %v, which b does not have yet", c)
		}
		p.deliver(late)
		p.run()
		p.check(1)
	}
}

// The answer to the Delete is lost, and the same Delete comes again. Anything else for an IKE SA that is gone has no answer.
func TestADeleteThatComesAgainIsAnsweredAgain(t *testing.T) {
	for _, nat := range []bool{false, true} {
		p := newPair(t)
		p.configure()
		p.initiate()
		if nat {
			for _, e := range []*end{p.a, p.b} {
				s := e.only(t)
				s.local = netip.AddrPortFrom(s.local.Addr(), NATPort)
				s.remote = netip.AddrPortFrom(s.remote.Addr(), NATPort)
			}
		}
		actions, _ := p.a.m.Terminate("peer", "", p.now)
		p.do(p.a, actions)
		first := p.take(p.b)
		p.deliver(first)
		p.take(p.a)
		if len(p.b.m.sas) != 0 {
			t.Fatal("the IKE SA is not gone")
		}
		other := first
		other.Data = bytes.Clone(first.Data)
		other.Data[len(other.Data)-1] ^= 1
		p.deliver(other)
		if len(p.wire) != 0 {
			t.Error("another packet is answered")
		}
		p.pass(5 * time.Second)
		if len(p.a.m.sas) != 0 {
			t.Error("the Delete has no answer")
		}
		if p.pass(2 * cookieTime); len(p.b.m.ended[0])+len(p.b.m.ended[1]) != 0 {
			t.Error("the answer is kept for ever")
		}
	}
}
