// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

const (
	additionalIKE = "aes256gcm16-prfsha256-x25519-ke1_mlkem768-ke3_ecp256"
	additionalESP = "aes256gcm16-x25519-ke1_mlkem768-ke2_ecp256"
)

// additional has both ends do two additional key exchanges.
func additional(t *testing.T) func(a, b *Connection) {
	return func(a, b *Connection) {
		for _, c := range []*Connection{a, b} {
			c.Proposals = proposals(t, message.ProtocolIKE, additionalIKE)
			c.Children[0].Proposals = proposals(t, message.ProtocolESP, additionalESP)
		}
	}
}

// exchanges counts the messages of an exchange, without retransmissions.
func (p *pair) exchanges(of message.Exchange) int {
	seen := map[string]bool{}
	for _, d := range p.seen {
		b := d.Data
		if d.Local.Port() == NATPort {
			b = b[markSize:]
		}
		if message.Exchange(b[18]) == of {
			seen[d.Local.String()+string(b[:24])] = true
		}
	}
	return len(seen)
}

func TestRekeysAndNewChildrenHaveAdditionalKeyExchanges(t *testing.T) {
	p := newPair(t)
	p.configure(additional(t), func(a, b *Connection) {
		for _, c := range []*Connection{a, b} {
			second := *c.Children[0]
			second.Name = "second"
			c.Children = append(c.Children, &second)
		}
	})
	p.initiate()
	p.check(2)
	// Two requests with their responses for the second child. The first child comes with IKE_AUTH.
	want := 4
	if n := p.exchanges(message.IKEFollowupKE); n != want {
		t.Errorf("%d messages of IKE_FOLLOWUP_KE, not %d", n, want)
	}
	for _, e := range []*end{p.a, p.b} {
		for child, each := range map[string]int{"*": 8, "": 4} {
			actions, _ := e.m.Rekey("peer", child, p.now)
			p.do(e, actions)
			p.run()
			p.check(2)
			if want += each; p.exchanges(message.IKEFollowupKE) != want {
				t.Errorf("%s rekeys %q: %d messages of IKE_FOLLOWUP_KE, not %d", e.name, child, p.exchanges(message.IKEFollowupKE), want)
			}
		}
	}
	if groups := additionalGroups(p.a.only(t).chosen); !slices.Equal(groups, []uint16{suite.MLKEM768, suite.ECP256}) {
		t.Errorf("groups %v", groups)
	}
	for _, c := range p.a.in {
		if groups := additionalGroups(c.Chosen); !slices.Equal(groups, []uint16{suite.MLKEM768, suite.ECP256}) {
			t.Errorf("groups %v of child %s", groups, c.Conf.Name)
		}
	}
}

// RFC 9370 section 2.2.4: SK(0) | Ni | Nr | SK(1) | ... SK(n) go into the keys.
func TestSecretsOfAdditionalKeyExchangesGoIntoTheKeys(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	s := p.a.only(t)
	c, ni, nr := &ChildSA{accepted: &accepted{shared: []byte("zero"), nonces: []byte("NiNr")}, Chosen: proposals(t, message.ProtocolESP, "aes256gcm16-x25519-noesn")[0].Transforms, Conf: &Child{Name: "net"}, SPIIn: 300, sa: s}, []byte("Ni"), []byte("Nr")
	if err := s.openAccepted(c, []byte("onetwo"), p.now); err != nil {
		t.Fatal(err)
	}
	if want := s.prf.Expand(s.keys.D, 72, []byte("zero"), ni, nr, []byte("one"), []byte("two")); !bytes.Equal(slices.Concat(c.EncryptionIn, c.EncryptionOut), want) {
		t.Error("the keys of the child are others")
	}
	n := p.a.m.newSA(s.conn, true, p.now)
	n.chosen, n.ni, n.nr, n.theirSPI = s.chosen, ni, nr, 7
	if err := s.inherit(n, []byte("zero"), []byte("onetwo"), p.now); err != nil {
		t.Fatal(err)
	}
	keys, err := suite.NewKeys(s.chosen, s.prf.Sum(s.keys.D, []byte("zeroNiNronetwo")), []byte("NiNr"), n.spis())
	if err != nil || !bytes.Equal(keys.D, n.keys.D) || !bytes.Equal(keys.Er, n.keys.Er) {
		t.Errorf("the keys of the IKE SA are others: %v", err)
	}
}

func TestALostMessageOfAnAdditionalKeyExchangeIsSentAgain(t *testing.T) {
	for _, child := range []string{"*", ""} {
		for lost := range 8 {
			p := newPair(t)
			p.configure(additional(t))
			p.initiate()
			n := 0
			p.filter = func(d *Datagram) bool {
				n++
				p.deliver(*d) // and one that is not lost comes twice
				return n-1 != lost
			}
			if lost%2 == 0 {
				p.filter = func(*Datagram) bool {
					n++
					return n-1 != lost
				}
			}
			actions, _ := p.b.m.Rekey("peer", child, p.now)
			p.do(p.b, actions)
			p.run()
			p.pass(5 * time.Second)
			p.check(1)
		}
	}
}

// Requests of both ends cross. Each of the first packets is late or lost in turn.
func TestBothEndsRekeyAtOnceWithAdditionalKeyExchanges(t *testing.T) {
	for _, child := range []string{"*", ""} {
		for _, how := range []string{"late", "lost"} {
			for at := range 14 {
				for turn := range 3 {
					p := newPair(t)
					p.configure(additional(t))
					p.initiate()
					x, _ := p.a.m.Rekey("peer", child, p.now)
					p.do(p.a, x)
					y, _ := p.b.m.Rekey("peer", child, p.now)
					p.do(p.b, y)
					n := 0
					var late []Datagram
					p.filter = func(d *Datagram) bool {
						if n++; n-1 != at {
							return true
						}
						if how == "late" {
							late = append(late, *d)
						}
						return false
					}
					p.run()
					p.wire = append(p.wire, late...)
					p.run()
					p.pass(redundantTime + 10*time.Second)
					p.check(1)
					if t.Failed() {
						t.Fatalf("child %q, packet %d is %s, turn %d: %q and %q", child, at, how, turn, p.a.events, p.b.events)
					}
				}
			}
		}
	}
}

func TestNoPacketIsLostWhileAChildIsRekeyedWithAdditionalKeyExchanges(t *testing.T) {
	for i := range 8 {
		p := newPair(t)
		p.configure(additional(t))
		p.initiate()
		sends := func(e *end) (best *ChildSA) {
			for _, c := range e.out {
				if best == nil || c.Precedence > best.Precedence {
					best = c
				}
			}
			return best
		}
		p.filter = func(*Datagram) bool {
			for _, way := range [][2]*end{{p.a, p.b}, {p.b, p.a}} {
				if c := sends(way[0]); c == nil || way[1].in[c.SPIOut] == nil {
					t.Errorf("%s sends what %s does not receive", way[0].name, way[1].name)
				}
			}
			return true
		}
		x, _ := p.a.m.Rekey("peer", "*", p.now)
		p.do(p.a, x)
		if i%2 == 0 {
			y, _ := p.b.m.Rekey("peer", "*", p.now)
			p.do(p.b, y)
		}
		p.run()
		p.filter(nil)
		p.check(1)
	}
}

func TestAnAgentRestartsWithinAdditionalKeyExchanges(t *testing.T) {
	for _, child := range []string{"*", ""} {
		for _, which := range []int{0, 1} {
			for at := range 7 {
				p := newPair(t)
				start := func(a, _ *Connection) { a.Children[0].StartAction = Start }
				p.configure(additional(t), start)
				p.pass(time.Second)
				p.check(1)
				e, other := p.a, p.b
				if which == 1 {
					e, other = p.b, p.a
				}
				n := 0
				p.filter = func(*Datagram) bool {
					if n++; n-1 != at {
						return true
					}
					p.restart(e, func(m *Machine) {
						c := p.connection(e, other, ikeSuite, espSuite)
						additional(t)(c, c)
						if which == 0 {
							start(c, nil)
						}
						m.SetConnection("peer", c, p.now)
					})
					return false
				}
				actions, _ := p.a.m.Rekey("peer", child, p.now)
				p.do(p.a, actions)
				p.run()
				p.filter = nil
				p.pass(4 * time.Minute)
				p.check(1)
				if t.Failed() {
					t.Fatalf("rekey %q, end %d, packet %d: %q and %q", child, which, at, p.a.events, p.b.events)
				}
			}
		}
	}
}

func TestAPeerThatLeavesOutKeyExchangesIsForgotten(t *testing.T) {
	for _, child := range []string{"*", ""} {
		p := newPair(t)
		p.configure(additional(t))
		p.initiate()
		before := len(p.b.m.sas) + len(p.b.m.children)
		// Only CREATE_CHILD_SA and its response pass.
		n := 0
		p.filter = func(*Datagram) bool {
			n++
			return n <= 2
		}
		actions, _ := p.a.m.Rekey("peer", child, p.now)
		p.do(p.a, actions)
		p.run()
		if now := len(p.b.m.sas) + len(p.b.m.children); now != before+1 || p.b.only2(t).following == nil {
			t.Errorf("%q: %d IKE SAs and children, %d before", child, now, before)
		}
		p.now = p.now.Add(followUpTime)
		p.do(p.b, p.b.m.Tick(p.now))
		if now := len(p.b.m.sas) + len(p.b.m.children); now != before {
			t.Errorf("%q: %d IKE SAs and children, %d before", child, now, before)
		}
		// The key exchange that comes too late is refused, and the rekey begins again.
		p.filter = nil
		p.pass(2 * time.Minute)
		p.check(1)
		if p.b.counts["failure STATE_NOT_FOUND"] != 1 {
			t.Errorf("%q: counts %v", child, p.b.counts)
		}
		if !slices.ContainsFunc(p.a.events, func(s string) bool { return strings.Contains(s, "STATE_NOT_FOUND") }) {
			t.Errorf("%q: events %q", child, p.a.events)
		}
	}
}

// only2 is the established IKE SA beside one that is not.
func (e *end) only2(t *testing.T) *ikeSA {
	t.Helper()
	for _, s := range e.m.sas {
		if s.state == established {
			return s
		}
	}
	t.Fatalf("%s has no IKE SA", e.name)
	return nil
}

// A peer of our own making sends IKE_FOLLOWUP_KE that nothing awaits, or that do not fit.
func TestKeyExchangesThatNothingAwaitsAreRefused(t *testing.T) {
	p := newPair(t)
	p.configure(additional(t))
	p.initiate()
	send := func(payloads ...message.Payload) (answer *message.Notify) {
		s := p.a.only(t)
		s.enqueue(p.now, func(s *ikeSA, now time.Time) bool {
			s.request(message.IKEFollowupKE, now, func(all []message.Payload, _ time.Time) { answer = readAuth(all).err }, payloads...)
			return true
		})
		p.do(p.a, p.a.m.done())
		p.run()
		return answer
	}
	e, err := suite.Begin(suite.X25519)
	if err != nil {
		t.Fatal(err)
	}
	ke := &message.KE{Group: e.Group, Data: e.Public}
	for i, payloads := range [][]message.Payload{nil, {ke}, {ke, &message.Notify{Kind: message.AdditionalKeyExchange}}, {ke, &message.Notify{Kind: message.AdditionalKeyExchange, Data: random(8)}}} {
		if n := send(payloads...); n == nil || n.Kind != message.StateNotFound {
			t.Errorf("%d: %v", i, n)
		}
	}
	b, link := p.b.only(t), ""
	abandoned := 0
	for _, payloads := range [][]message.Payload{nil, {ke}, {&message.KE{Group: suite.MLKEM768, Data: []byte("short")}}} {
		n := b.awaitFollowUp(&followUp{groups: []uint16{suite.MLKEM768}, abandon: func(time.Time) { abandoned++ }}, p.now)
		if string(n.Data) == link {
			t.Error("two links are the same")
		}
		link = string(n.Data)
		if answer := send(append(payloads, n)...); answer == nil || answer.Kind != message.InvalidSyntax || b.following != nil {
			t.Errorf("%v", answer)
		}
	}
	if abandoned != 3 {
		t.Errorf("%d are abandoned", abandoned)
	}
	p.check(1)
}

func TestAnAdditionalKeyExchangeNeedsAFirstOne(t *testing.T) {
	_, err := suite.ParseProposal(message.ProtocolESP, "aes256gcm16-ke1_mlkem768")
	if want := "no key exchange before it"; err == nil || !strings.Contains(err.Error(), want) {
		t.Error(fmt.Sprint(err))
	}
}
