// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// resumption has both ends use tickets; a calls b again.
func resumption(a, b *Connection) {
	a.Resumption, b.Resumption = true, true
	a.Children[0].StartAction, a.Children[0].DPDAction = Start, Start
}

// lose has both ends lose each other, and a finds b again.
func (p *pair) lose() {
	p.t.Helper()
	p.filter = func(*Datagram) bool { return false }
	p.pass(3 * time.Minute)
	if len(p.a.in)+len(p.b.in) != 0 {
		p.t.Fatal("the children live on")
	}
	p.filter, p.seen, p.a.events, p.b.events = nil, nil, nil, nil
	p.pass(2 * time.Minute)
}

// authenticatedBy says how an end authenticated the other one the last time.
func (e *end) authenticatedBy(how string) bool {
	last := ""
	for _, each := range e.events {
		if strings.HasPrefix(each, "up: ") {
			last = each
		}
	}
	return strings.Contains(last, " by "+how+",")
}

func (p *pair) resumed() {
	p.t.Helper()
	p.check(1)
	if n := p.exchanges(message.IKESAInit); n != 0 || !p.a.authenticatedBy("ticket") || !p.b.authenticatedBy("ticket") {
		p.t.Errorf("%d messages of IKE_SA_INIT; events %q and %q", n, p.a.events, p.b.events)
	}
	if len(p.b.m.tickets) != 1 || p.a.only(p.t).ticket == nil {
		p.t.Errorf("%d tickets", len(p.b.m.tickets))
	}
}

// nonces are those of the last exchange that had them in clear text.
func (p *pair) nonces(exchange message.Exchange) (ni, nr []byte) {
	for _, d := range p.seen {
		b := d.Data
		if d.Local.Port() == NATPort {
			b = b[markSize:]
		}
		all, err := message.Parse(b)
		if err != nil || all.Header.Exchange != exchange {
			continue
		}
		for _, one := range all.Payloads {
			if n, is := one.(*message.Nonce); is && all.Header.Response() {
				nr = n.Data
			} else if is {
				ni = n.Data
			}
		}
	}
	return ni, nr
}

func TestAPeerThatWasLostResumesItsIKESA(t *testing.T) {
	for name, more := range map[string]func(a, b *Connection){
		"plain": func(_, _ *Connection) {}, "additional key exchanges": additional(t), "port 4500": func(a, b *Connection) { a.NoMOBIKE, b.NoMOBIKE = false, false },
		"PPK": func(a, b *Connection) {
			for _, c := range []*Connection{a, b} {
				c.PPK, c.PPKID, c.PPKMandatory = []byte("quantum"), "ppk1", true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.configure(resumption, more)
			p.pass(time.Second)
			p.check(1)
			// Each time with the ticket of the time before, also after a rekey.
			for range 3 {
				d := p.b.only(t).ticket.D
				actions, _ := p.b.m.Rekey("peer", "", p.now)
				p.do(p.b, actions)
				p.run()
				p.lose()
				p.resumed()
				// RFC 5723 section 5.1.
				a, b := p.a.only(t), p.b.only(t)
				ni, nr := p.nonces(message.IKESessionResum)
				if seed := a.prf.Sum(d, []byte("Resumption"), ni, nr); !bytes.Equal(a.prf.Expand(seed, len(a.keys.D), ni, nr, a.spis()), a.keys.D) || !bytes.Equal(a.keys.D, b.keys.D) {
					t.Error("the keys are others")
				}
			}
		})
	}
}

func TestAnIKESAThatOneEndLostIsReplacedAtTheOther(t *testing.T) {
	p := newPair(t)
	p.configure(resumption, func(a, b *Connection) { b.DPDDelay, a.Children[0].RekeyTime, b.Children[0].RekeyTime = 0, 0, 0 })
	p.pass(time.Second)
	before := p.b.only(t)
	p.filter = func(*Datagram) bool { return false }
	p.pass(2 * time.Minute)
	if len(p.a.in) != 0 || p.b.only(t) != before {
		t.Fatal("the ends are not as they should be")
	}
	p.filter, p.seen = nil, nil
	p.pass(2 * time.Minute)
	p.resumed()
	if p.b.only(t) == before {
		t.Error("the IKE SA is the old one")
	}
}

func TestAnAgentThatRestartedResumesAndIsResumed(t *testing.T) {
	for which := range 2 {
		p := newPair(t)
		p.configure(resumption)
		p.pass(time.Second)
		p.check(1)
		e := []*end{p.a, p.b}[which]
		c := e.m.connections["peer"]
		p.restart(e, func(m *Machine) { m.SetConnection("peer", c, p.now) })
		p.lose()
		p.resumed()
	}
}

func TestALostMessageOfAResumptionIsSentAgain(t *testing.T) {
	for lost := range 4 {
		p := newPair(t)
		p.configure(resumption)
		p.pass(time.Second)
		p.filter = func(*Datagram) bool { return false }
		p.pass(3 * time.Minute)
		n := 0
		p.seen, p.filter = nil, func(d *Datagram) bool {
			n++
			p.deliver(*d)
			return n-1 != lost
		}
		if lost%2 == 0 {
			p.filter = func(*Datagram) bool {
				n++
				return n-1 != lost
			}
		}
		p.pass(2 * time.Minute)
		p.resumed()
	}
}

func TestCookiesAreNeededUnderLoadForAResumptionAsWell(t *testing.T) {
	p := newPair(t)
	p.configure(resumption)
	p.pass(time.Second)
	p.b.m.CookieThreshold = 0
	p.lose()
	p.resumed()
	if p.b.counts["packet cookie"] == 0 {
		t.Errorf("counts %v", p.b.counts)
	}
}

func TestARefusedTicketDoesNotStopTheConnection(t *testing.T) {
	for name, change := range map[string]func(p *pair){
		"unknown": func(p *pair) { clear(p.b.m.tickets) },
		"expired": func(p *pair) {
			for _, t := range p.b.m.tickets {
				t.Expires = p.now
			}
		},
		"another key": func(p *pair) {
			for _, t := range p.b.m.tickets {
				t.D = random(32)
			}
		},
		"another peer": func(p *pair) {
			for _, t := range p.b.m.tickets {
				t.Peer.Data = "mallory.example"
			}
		},
		"another secret": func(p *pair) {
			for _, e := range []*end{p.a, p.b} {
				c := *e.m.connections["peer"]
				c.Secret = []byte("another")
				p.do(e, e.m.SetConnection("peer", &c, p.now))
			}
		},
		"another certificate is revoked": func(p *pair) {
			c := *p.b.m.connections["peer"]
			c.Revocation = []byte("another list")
			p.do(p.b, p.b.m.SetConnection("peer", &c, p.now))
		},
		"another certificate is revoked while the agent is away": func(p *pair) {
			c := *p.b.m.connections["peer"]
			c.Revocation = []byte("another list")
			p.restart(p.b, func(m *Machine) { m.SetConnection("peer", &c, p.now) })
		},
		"no resumption any more": func(p *pair) {
			c := *p.b.m.connections["peer"]
			c.Resumption = false
			p.do(p.b, p.b.m.SetConnection("peer", &c, p.now))
		},
		"other algorithms": func(p *pair) {
			for _, e := range []*end{p.a, p.b} {
				c := *e.m.connections["peer"]
				c.Proposals = proposals(p.t, message.ProtocolIKE, "chacha20poly1305-prfsha256-x25519")
				p.do(e, e.m.SetConnection("peer", &c, p.now))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.configure(resumption)
			p.pass(time.Second)
			p.check(1)
			change(p)
			p.lose()
			p.pass(10 * time.Minute)
			p.check(1)
			if !p.a.authenticatedBy("psk") || !p.b.authenticatedBy("psk") {
				t.Errorf("events %q and %q", p.a.events, p.b.events)
			}
		})
	}
}

func TestATicketDoesNotBypassARedirect(t *testing.T) {
	p := newPair(t)
	p.configure(resumption)
	p.pass(time.Second)
	c := *p.b.m.connections["peer"]
	c.RedirectTo = "192.0.2.77"
	p.do(p.b, p.b.m.SetConnection("peer", &c, p.now))
	p.lose()
	if p.b.counts["packet redirected"] == 0 || len(p.b.in) != 0 {
		t.Errorf("%d children, counts %v", len(p.b.in), p.b.counts)
	}
}

// An attacker repeats the request of a resumption: the IKE SA stays, and the ticket opens nothing any more.
func TestATicketServesOnce(t *testing.T) {
	p := newPair(t)
	p.configure(resumption)
	p.pass(time.Second)
	p.lose()
	p.resumed()
	var request Datagram
	for _, d := range p.seen {
		if message.Exchange(d.Data[18]) == message.IKESessionResum && request.Data == nil {
			request = d
		}
	}
	before := p.b.only(t)
	p.pass(time.Minute)
	p.deliver(request)
	p.run()
	if p.b.only(t) != before || p.b.counts["failure ticket"] != 1 {
		t.Errorf("counts %v", p.b.counts)
	}
	p.check(1)
}

func TestATicketEndsWithAnIKESAThatIsDeleted(t *testing.T) {
	for which := range 2 {
		p := newPair(t)
		p.configure(resumption)
		p.pass(time.Second)
		p.check(1)
		e := []*end{p.a, p.b}[which]
		actions, _ := e.m.Terminate("peer", "", p.now)
		p.do(e, actions)
		p.run()
		if len(p.b.m.tickets)+len(p.a.m.resumable) != 0 {
			t.Errorf("end %d: %d tickets, %d to use", which, len(p.b.m.tickets), len(p.a.m.resumable))
		}
	}
	// And with the connection.
	p := newPair(t)
	p.configure(resumption)
	p.pass(time.Second)
	p.do(p.b, p.b.m.SetConnection("peer", nil, p.now))
	if len(p.b.m.tickets) != 0 {
		t.Errorf("%d tickets", len(p.b.m.tickets))
	}
}

func TestTicketsExpire(t *testing.T) {
	p := newPair(t)
	p.configure(resumption, func(a, _ *Connection) { a.Children[0].StartAction, a.Children[0].DPDAction = Clear, Clear })
	p.initiate()
	p.filter = func(*Datagram) bool { return false }
	p.pass(3 * time.Minute)
	if len(p.b.m.tickets) != 1 || len(p.a.m.resumable) != 1 {
		t.Errorf("%d tickets, %d to use", len(p.b.m.tickets), len(p.a.m.resumable))
	}
	p.pass(ticketTime)
	if len(p.b.m.tickets)+len(p.a.m.resumable) != 0 {
		t.Errorf("%d tickets, %d to use", len(p.b.m.tickets), len(p.a.m.resumable))
	}
}

// Each resumption gives a ticket, and none of them outlives the hour after the authentication.
func TestResumptionsDoNotProlongAnAuthentication(t *testing.T) {
	p := newPair(t)
	p.configure(resumption)
	p.pass(time.Second)
	p.check(1)
	began, resumed := p.now, 0
	for range 8 {
		p.pass(5 * time.Minute)
		p.lose()
		p.check(1)
		within := p.now.Sub(began) <= ticketTime+2*time.Minute
		if p.a.authenticatedBy("ticket") != p.b.authenticatedBy("ticket") || p.b.authenticatedBy("ticket") && !within {
			t.Errorf("%v after the authentication: events %q and %q", p.now.Sub(began), p.a.events, p.b.events)
		}
		if p.b.authenticatedBy("ticket") {
			resumed++
		} else {
			began = p.now
		}
		for _, s := range []*ikeSA{p.a.only(t), p.b.only(t)} {
			if s.ticket == nil || s.ticket.Expires.After(began.Add(ticketTime)) {
				t.Errorf("a ticket until %v", s.ticket)
			}
		}
	}
	if resumed < 5 || resumed == 8 {
		t.Errorf("%d of 8 are resumed", resumed)
	}
}

// A change of a LocalUser ends its tickets, also those in the records, and no others.
func TestAChangedLocalUserDoesNotResume(t *testing.T) {
	user := func(spec *api.LocalUser) *object.Object {
		return &object.Object{Kind: "LocalUser", Name: "a", Spec: spec}
	}
	for _, c := range []struct {
		name   string
		change *object.Object
		method EAPMethod
		stays  bool
	}{
		{"deleted", nil, MSCHAPv2, false},
		{"disabled", user(&api.LocalUser{Username: "alice", Password: "x", Disabled: true}), MSCHAPv2, false},
		{"disabled, with a certificate", user(&api.LocalUser{Username: "alice", Disabled: true}), TLS, false},
		{"another password", user(&api.LocalUser{Username: "alice", Password: "y"}), MSCHAPv2, false},
		{"of a RADIUS server", user(&api.LocalUser{Username: "alice", Disabled: true}), RADIUS, true},
	} {
		for _, away := range []bool{false, true} {
			if away && c.name == "another password" {
				continue // the records do not have it
			}
			p := newPair(t)
			p.configure(resumption, func(_, b *Connection) { b.RemoteMethod, b.EAPMethod = EAP, c.method })
			conn := *p.b.m.connections["peer"]
			s := p.b.m.newSA(&conn, false, p.now)
			s.state, s.username, s.chosen = established, "alice", proposals(t, message.ProtocolIKE, ikeSuite)[0].Transforms
			s.ticket = &ticket{ID: []byte("ticket"), Connection: "peer", Expires: p.now.Add(time.Hour), Credentials: conn.credentials(), Username: "alice"}
			p.b.m.tickets["ticket"] = s.ticket
			other := &ticket{ID: []byte("other"), Connection: "peer", Expires: p.now.Add(time.Hour), Credentials: conn.credentials(), Username: "bob"}
			p.b.m.tickets["other"] = other
			p.b.m.add(s)
			serving := emptyServing(t)
			serving.machine, serving.synced = p.b.m, true
			serving.users["a"], serving.users["b"] = &api.LocalUser{Username: "alice", Password: "x"}, &api.LocalUser{Username: "bob", Password: "x"}
			if away {
				delete(serving.users, "a")
				if c.change != nil {
					serving.users["a"], _ = c.change.Spec.(*api.LocalUser)
				}
				p.do(p.b, p.b.m.dropTicketsOf(serving.unknownUser))
			} else {
				serving.Follow(service.Change{Key: object.Key{Kind: "LocalUser", Name: "a"}, Object: c.change})
			}
			if (s.ticket != nil) != c.stays || (p.b.m.tickets["ticket"] != nil) != c.stays || p.b.m.tickets["other"] == nil {
				t.Errorf("%s, away %v: %v, %v", c.name, away, s.ticket, p.b.m.tickets)
			}
		}
	}
}

func TestATicketIsRefusedWithoutResumption(t *testing.T) {
	p := newPair(t)
	p.configure(resumption, func(_, b *Connection) { b.Resumption = false })
	p.pass(time.Second)
	p.check(1)
	if len(p.b.m.tickets) != 0 || p.a.only(t).ticket != nil {
		t.Errorf("%d tickets", len(p.b.m.tickets))
	}
}

// A remote user comes back without EAP, and gets its address again.
func TestARemoteUserResumesWithoutEAP(t *testing.T) {
	p := newPair(t)
	p.configure(resumption, func(a, b *Connection) {
		a.LocalMethod, a.AskAddress, a.Children[0].Local = EAP, true, nil
		b.RemoteMethod, b.Pools, b.Remote, b.Children[0].Remote = EAP, []string{"pool"}, netip.Addr{}, nil
	})
	success, msk, steps := []byte{3, 2, 0, 4}, random(64), 0
	p.a.answer = func(q any) any {
		if bytes.Equal(q.(EAPResponse).Packet, success) {
			return EAPReply{MSK: msk}
		}
		return EAPReply{Packet: []byte{2, 1, 0, 5, 200}}
	}
	p.b.answer = func(q any) any {
		switch q := q.(type) {
		case EAPStep:
			if steps++; q.Packet == nil {
				return EAPAnswer{Packet: []byte{1, 1, 0, 5, 200}}
			}
			return EAPAnswer{Packet: success, Success: true, MSK: msk, Username: "alice", Pools: []string{"hers"}}
		case LeaseAddress:
			if q.Username != "alice" || !slices.Equal(q.Pools, []string{"hers"}) {
				t.Errorf("asked %+v", q)
			}
			return Leased{Addresses: []netip.Addr{given}}
		}
		return nil
	}
	p.pass(time.Second)
	p.check(1)
	if steps != 2 || !p.b.authenticatedBy("eap") {
		t.Fatalf("%d steps, events %q", steps, p.b.events)
	}
	p.lose()
	p.resumed()
	if s := p.b.only(t); steps != 2 || s.username != "alice" || !slices.Equal(s.addresses, []netip.Addr{given}) {
		t.Errorf("%d steps, user %q, addresses %v", steps, s.username, s.addresses)
	}
	if released := toldOf[ReleaseAddress](p.b); len(released) != 1 {
		t.Errorf("released %+v", released)
	}
}

func TestResumptionAndASubscriberProfileExcludeEachOther(t *testing.T) {
	c := &Connection{Resumption: true, Profile: "vpn"}
	if c.resumable() {
		t.Error("users of a profile get tickets")
	}
}
