// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// userPair is a user at end a, and at end b a connection whose users are subscribers.
func userPair(t *testing.T, asks bool) *pair {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		a.AskAddress, a.Children[0].Local = asks, nil
		b.Profile, b.Remote, b.Children[0].Remote = "vpn", netip.Addr{}, nil
	})
	p.b.answer = func(q any) any {
		l, is := q.(LeaseAddress)
		if !is || !l.IPv4 || l.Remote != p.a.address || l.Username != "a.example" {
			t.Errorf("asked %+v", q)
		}
		return Leased{Addresses: []netip.Addr{given}, Tunnel: userTunnelName(l.Connection, l.Lease)}
	}
	return p
}

// tunnelOf is the tunnel of each SA of the gateway.
func tunnelOf(t *testing.T, e *end) (tunnel string) {
	t.Helper()
	for _, c := range e.in {
		for _, outbound := range []bool{false, true} {
			spec, _ := association(c, outbound, false).Spec.(*api.SecurityAssociation)
			if tunnel != "" && spec.GetTunnel() != tunnel || spec.GetPolicy() != "" {
				t.Errorf("the SAs have the tunnels %q and %q", tunnel, spec.GetTunnel())
			}
			tunnel = spec.GetTunnel()
		}
	}
	return tunnel
}

func TestAUserKeepsItsTunnelThroughRekeysAndRestarts(t *testing.T) {
	p := userPair(t, true)
	p.initiate()
	p.check(1)
	tunnel := tunnelOf(t, p.b)
	if tunnel == "" {
		t.Fatal("the user has no tunnel")
	}
	for _, child := range []string{"*", ""} {
		x, _ := p.b.m.Rekey("peer", child, p.now)
		p.do(p.b, x)
		p.run()
		p.check(1)
		if now := tunnelOf(t, p.b); now != tunnel {
			t.Errorf("after a rekey the tunnel is %q, not %q", now, tunnel)
		}
	}
	conn := p.b.m.connections["peer"]
	p.restart(p.b, func(m *Machine) { m.SetConnection("peer", conn, p.now) })
	taken := toldOf[TakeAddress](p.b)
	if len(taken) != 1 || taken[0].Tunnel != tunnel || !slices.Equal(taken[0].Addresses, []netip.Addr{given}) || tunnelOf(t, p.b) != tunnel {
		t.Errorf("the new agent takes %+v", taken)
	}
	x, _ := p.a.m.Terminate("peer", "", p.now)
	p.do(p.a, x)
	p.run()
	released := toldOf[ReleaseAddress](p.b)
	if len(released) != 1 || released[0].Lease != taken[0].Lease || released[0].Cause != subscriber.UserRequest {
		t.Errorf("released %+v", released)
	}
}

// RFC 7296 section 3.15.4: a session needs an address.
func TestAUserOfAProfileThatAsksForNoAddressGetsNoChild(t *testing.T) {
	p := userPair(t, false)
	p.initiate()
	p.check(0)
	if !slices.ContainsFunc(p.a.events, func(e string) bool { return e == "child-failed: net: the peer answers FAILED_CP_REQUIRED" }) {
		t.Errorf("events %q", p.a.events)
	}
}

// With INITIAL_CONTACT the session of before ends first, so that the user gets its address again.
func TestAUserThatBeginsAnewGivesItsAddressBackFirst(t *testing.T) {
	p := userPair(t, true)
	p.initiate()
	conn, answer := p.a.m.connections["peer"], p.b.answer
	p.b.answer = func(q any) any {
		if released := toldOf[ReleaseAddress](p.b); len(released) != 1 || released[0].Cause != subscriber.UserRequest {
			t.Errorf("before the second lease %+v is released", released)
		}
		return answer(q)
	}
	p.a.m = New(p.now)
	clear(p.a.in)
	clear(p.a.out)
	p.do(p.a, p.a.m.SetConnection("peer", conn, p.now))
	p.initiate()
	p.check(1)
}

func TestTheCauseOfTheEndOfASessionIsThatOfTheIKESA(t *testing.T) {
	p := userPair(t, true)
	p.initiate()
	x, _ := p.b.m.Terminate("peer", "", p.now)
	p.do(p.b, x)
	p.run()
	if released := toldOf[ReleaseAddress](p.b); len(released) != 1 || released[0].Cause != subscriber.AdminReset {
		t.Errorf("an operator releases %+v", released)
	}
	p = userPair(t, true)
	p.initiate()
	p.filter = func(*Datagram) bool { return false }
	p.pass(10 * 60e9)
	if released := toldOf[ReleaseAddress](p.b); len(released) != 1 || released[0].Cause != subscriber.LostCarrier {
		t.Errorf("a dead peer releases %+v", released)
	}
}

// A user of EAP proves its username, not the identity of IKE: with the identity of another user, INITIAL_CONTACT ends nothing of that user.
func TestAUserDoesNotEndTheIKESAOfAnotherUserByItsIdentity(t *testing.T) {
	for second, living := range map[string]int{"mallory": 2, "alice": 1} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			a.LocalMethod = EAP
			b.RemoteMethod, b.Remote = EAP, netip.Addr{}
		})
		success, msk, user := []byte{3, 2, 0, 4}, random(64), "alice"
		p.b.answer = func(q any) any {
			if step, is := q.(EAPStep); is && step.Packet == nil {
				return EAPAnswer{Packet: []byte{1, 1, 0, 5, 200}}
			}
			return EAPAnswer{Packet: success, Success: true, MSK: msk, Username: user}
		}
		begin := func() {
			conn := p.connection(p.a, p.b, ikeSuite, espSuite)
			conn.LocalMethod = EAP
			p.a = newEnd(t, "a", "192.0.2.1", p.now)
			p.a.answer = func(q any) any {
				if bytes.Equal(q.(EAPResponse).Packet, success) {
					return EAPReply{MSK: msk}
				}
				return EAPReply{Packet: []byte{2, 1, 0, 5, 200}}
			}
			p.do(p.a, p.a.m.SetConnection("peer", conn, p.now))
			p.initiate()
		}
		begin()
		user = second
		begin()
		if n := len(p.b.m.of("peer")); n != living {
			t.Errorf("after %s comes with the identity and INITIAL_CONTACT of alice, there are %d IKE SAs, not %d; events %q", second, n, living, p.b.events)
		}
	}
}

// EAP has a bound of packets and of time, whatever the method does.
func TestAUserWhoseEAPDoesNotEndIsRemoved(t *testing.T) {
	for _, c := range []struct {
		name string
		wait time.Duration
		want string
	}{
		{"quick", 0, "EAP of a.example is not over after 64 packets"},
		{"slow", 20 * time.Second, "no answer in time"},
	} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			a.LocalMethod = EAP
			b.RemoteMethod, b.Remote = EAP, netip.Addr{}
		})
		steps := 0
		p.b.answer = func(any) any {
			steps++
			return EAPAnswer{Packet: []byte{1, 1, 0, 5, 200}}
		}
		began, answered := p.now, 0
		p.a.answer = func(any) any {
			answered++
			return EAPReply{Packet: []byte{2, 1, 0, 5, 200}}
		}
		if c.wait == 0 {
			// The peer has no bound of its own.
			p.filter = func(*Datagram) bool {
				if s := p.a.m.of("peer"); len(s) == 1 && s[0].auth != nil {
					s[0].auth.rounds = 0
				}
				return true
			}
		} else {
			p.filter = func(d *Datagram) bool {
				if d.Remote.Addr() == p.a.address && answered > 0 {
					p.now = p.now.Add(c.wait)
					p.do(p.b, p.b.m.Tick(p.now))
				}
				return true
			}
		}
		p.initiate()
		for range 200 {
			p.pass(time.Second)
		}
		if len(p.b.m.sas) != 0 || steps > 1+maxEAPRounds || !slices.ContainsFunc(p.b.events, func(e string) bool { return e == "failed: "+c.want }) {
			t.Errorf("%s: %d IKE SAs after %v and %d steps; events %q", c.name, len(p.b.m.sas), p.now.Sub(began), steps, p.b.events)
		}
		if c.wait > 0 && time.Duration(steps)*c.wait > maxEAPTime+2*c.wait {
			t.Errorf("%s: %d steps", c.name, steps)
		}
	}
}
