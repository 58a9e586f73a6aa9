// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// end is a machine with the state of its data plane and its operators' view.
type end struct {
	t       *testing.T
	name    string
	m       *Machine
	address netip.Addr
	// Inbound and outbound SAs that are installed, by inbound SPI.
	in, out map[uint32]*ChildSA
	events  []string
	counts  map[string]int
	records map[string][]byte
	answer  func(question any) any
	// The data plane is slow: Installed is called by hand.
	slow      bool
	installed []uint32
	// Called with each action.
	trace func(a Action)
	// Takes a packet that waits for the data plane; nil: none waits.
	held func(one Send) bool
	// Events for the owner of a connection.
	told []Action
	// Called after each action that changes the data plane.
	changed func()
}

// pair is two ends and the network between them.
type pair struct {
	t    *testing.T
	a, b *end
	now  time.Time
	wire []Datagram
	// Decides about a datagram: nil delivers it.
	filter func(d *Datagram) bool
	seen   []Datagram
}

func newEnd(t *testing.T, name, address string, now time.Time) *end {
	return &end{t: t, name: name, m: New(now), address: netip.MustParseAddr(address), in: map[uint32]*ChildSA{}, out: map[uint32]*ChildSA{},
		counts: map[string]int{}, records: map[string][]byte{}}
}

func newPair(t *testing.T) *pair {
	now := time.Unix(1700000000, 0)
	return &pair{t: t, a: newEnd(t, "a", "192.0.2.1", now), b: newEnd(t, "b", "192.0.2.2", now), now: now}
}

func mustIdentity(t *testing.T, text string) Identity {
	id, err := ParseIdentity(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func proposals(t *testing.T, protocol message.Protocol, texts ...string) (all []message.Proposal) {
	for _, text := range texts {
		p, err := suite.ParseProposal(protocol, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// connection is one with a shared key and one child, from this end to the other.
func (p *pair) connection(from, to *end, ike, esp string) *Connection {
	side := map[string]string{"a": "10.1.0.0/16", "b": "10.2.0.0/16"}
	return &Connection{Name: "peer", Local: from.address, Remote: to.address, LocalID: mustIdentity(p.t, from.name+".example"), RemoteID: mustIdentity(p.t, to.name+".example"),
		Proposals: proposals(p.t, message.ProtocolIKE, strings.Fields(ike)...), Secret: []byte("secret"), RekeyTime: 4 * time.Hour, DPDDelay: 30 * time.Second, NoMOBIKE: true,
		Children: []*Child{{Name: "net", Proposals: proposals(p.t, message.ProtocolESP, strings.Fields(esp)...), RekeyTime: time.Hour, LifeTime: 70 * time.Minute,
			Local: []message.Selector{SelectorOf(netip.MustParsePrefix(side[from.name]))}, Remote: []message.Selector{SelectorOf(netip.MustParsePrefix(side[to.name]))}}}}
}

const (
	ikeSuite = "aes256gcm16-prfsha256-x25519"
	espSuite = "aes256gcm16-x25519"
)

func (p *pair) configure(change ...func(a, b *Connection)) {
	a, b := p.connection(p.a, p.b, ikeSuite, espSuite), p.connection(p.b, p.a, ikeSuite, espSuite)
	for _, c := range change {
		c(a, b)
	}
	p.do(p.a, p.a.m.SetConnection(a.Name, a, p.now))
	p.do(p.b, p.b.m.SetConnection(b.Name, b, p.now))
}

// do carries out a machine's actions.
func (p *pair) do(e *end, actions []Action) {
	for len(actions) > 0 {
		one := actions[0]
		actions = actions[1:]
		if e.trace != nil {
			e.trace(one)
		}
		switch one := one.(type) {
		case Send:
			if e.held == nil || !e.held(one) {
				p.wire = append(p.wire, one.Datagram)
			}
		case Install:
			c := one.Child
			if one.Inbound {
				e.in[c.SPIIn] = c
			}
			if one.Outbound {
				e.out[c.SPIIn] = c
			}
			if e.slow {
				e.installed = append(e.installed, c.SPIIn)
			} else {
				actions = append(actions, e.m.Installed(c.SPIIn, nil, p.now)...)
			}
		case Remove:
			if !one.OutboundOnly {
				delete(e.in, one.Child.SPIIn)
			}
			delete(e.out, one.Child.SPIIn)
			if e.changed != nil {
				e.changed()
			}
		case Keep:
			if one.Value == nil {
				delete(e.records, one.Key)
			} else {
				e.records[one.Key] = bytes.Clone(one.Value)
			}
		case Ask:
			if e.answer == nil {
				p.t.Fatalf("%s asks %+v", e.name, one.Question)
			}
			actions = append(actions, e.m.Answered(one.Token, e.answer(one.Question), p.now)...)
		case Event:
			if !one.Again {
				e.events = append(e.events, one.What+": "+one.Detail)
			}
		case Count:
			e.counts[one.What+" "+one.Reason]++
		case PeerUp, PeerMoved, PeerDown, ChildUp, ChildDown, ChildOpened, NotifyAnswered, EAPEnd, TakeAddress, ReleaseAddress:
			e.told = append(e.told, one)
		}
	}
}

// run delivers datagrams until there are none.
func (p *pair) run() {
	for n := 0; len(p.wire) > 0; n++ {
		if n > 2000 {
			p.t.Fatal("the ends do not come to rest")
		}
		d := p.wire[0]
		p.wire = p.wire[1:]
		p.seen = append(p.seen, d)
		if p.filter != nil && !p.filter(&d) {
			continue
		}
		p.deliver(d)
	}
}

func (p *pair) deliver(d Datagram) {
	to := p.a
	if d.Remote.Addr() == p.b.address {
		to = p.b
	}
	d.Local, d.Remote = d.Remote, d.Local
	d.Data = bytes.Clone(d.Data)
	p.do(to, to.m.Receive(d, p.now))
}

// pass lets time go by.
func (p *pair) pass(d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(min(time.Second, end.Sub(p.now)))
		p.do(p.a, p.a.m.Tick(p.now))
		p.do(p.b, p.b.m.Tick(p.now))
		p.run()
	}
}

func (p *pair) initiate() {
	p.t.Helper()
	actions, err := p.a.m.Initiate("peer", "", p.now)
	if err != nil {
		p.t.Fatal(err)
	}
	p.do(p.a, actions)
	p.run()
}

// check finds n children at both ends, with the same keys, and one established IKE SA.
func (p *pair) check(n int) {
	p.t.Helper()
	for _, e := range []*end{p.a, p.b} {
		living := 0
		for _, s := range e.m.sas {
			if s.state == established {
				living++
			}
			if s.outstanding != nil {
				p.t.Errorf("%s: an IKE SA waits for a response", e.name)
			}
		}
		if living != 1 || len(e.m.sas) != 1 || len(e.in) != n || len(e.out) != n || len(e.m.children) != n {
			p.t.Errorf("%s: %d IKE SAs, %d established; children: %d in, %d out, %d known; events %q", e.name, len(e.m.sas), living, len(e.in), len(e.out), len(e.m.children), e.events)
		}
	}
	for _, c := range p.a.out {
		other := p.b.in[c.SPIOut]
		if other == nil || other.SPIOut != c.SPIIn || !bytes.Equal(c.EncryptionOut, other.EncryptionIn) || !bytes.Equal(c.EncryptionIn, other.EncryptionOut) ||
			!bytes.Equal(c.IntegrityOut, other.IntegrityIn) || !bytes.Equal(c.IntegrityIn, other.IntegrityOut) || len(c.EncryptionIn)+len(c.IntegrityIn) == 0 ||
			!slices.Equal(c.Local, other.Remote) || !slices.Equal(c.Remote, other.Local) || c.ESN() != other.ESN() {
			p.t.Errorf("the ends do not agree: %+v and %+v", c, other)
		}
	}
}

func TestAChildComesUpWithASharedKey(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.check(1)
	if len(p.seen) != 4 {
		t.Errorf("%d messages", len(p.seen))
	}
}

func TestEachSuiteServes(t *testing.T) {
	for _, c := range []struct{ ike, esp string }{
		{"aes128-sha1-modp2048", "aes128-sha1"}, {"aes192-sha256-modp3072", "aes128-sha256-esn"}, {"aes256-sha384-ecp256", "aes256-sha384-ecp256"},
		{"aes256-sha512-ecp384", "aes256-sha512"}, {"aes128ctr-sha256-ecp521", "aes128ctr-sha256"}, {"chacha20poly1305-prfsha256-x448", "chacha20poly1305"},
		{"aes128gcm8-prfsha256-x25519", "aes128gcm8"}, {"aes128gcm12-prfsha384-x25519", "aes256gcm12"}, {"sm4-sm3-sm2", "sm4-sm3-sm2"},
		{"sm4gcm16-prfsm3-sm2", "sm4ccm16"}, {"aes256gcm16-prfsha512-x25519-ke1_mlkem768", "null-sha256"}, {"aes256gcm16-prfsha256-ecp256-ke1_x25519-ke2_mlkem768", "aes128gmac"},
	} {
		t.Run(c.ike, func(t *testing.T) {
			p := newPair(t)
			p.configure(func(a, b *Connection) {
				for _, one := range []*Connection{a, b} {
					one.Proposals = proposals(t, message.ProtocolIKE, c.ike)
					one.Children[0].Proposals = proposals(t, message.ProtocolESP, c.esp)
				}
			})
			p.initiate()
			p.check(1)
			for _, child := range []string{"*", ""} {
				actions, n := p.b.m.Rekey("peer", child, p.now)
				if n != 1 {
					t.Fatalf("%d rekeyed", n)
				}
				p.do(p.b, actions)
				p.run()
				p.check(1)
			}
		})
	}
}

func TestALostMessageIsSentAgain(t *testing.T) {
	for lost := range 4 {
		p := newPair(t)
		p.configure()
		n := 0
		p.filter = func(*Datagram) bool {
			n++
			return n-1 != lost
		}
		p.initiate()
		p.pass(3 * time.Second)
		p.check(1)
	}
}

func TestARepeatedMessageChangesNothing(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.filter = func(d *Datagram) bool {
		p.deliver(*d)
		return true
	}
	p.initiate()
	p.check(1)
	seen := slices.Clone(p.seen)
	p.filter = nil
	for _, d := range seen {
		p.deliver(d)
	}
	p.run()
	// A repeated request to open an IKE SA that comes late opens one that is never finished.
	p.pass(40 * time.Second)
	p.check(1)
}

func TestAWrongKeyIsRefused(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { b.Secret = []byte("another") })
	p.initiate()
	for _, e := range []*end{p.a, p.b} {
		if len(e.m.sas) != 0 || len(e.in) != 0 || len(e.m.children) != 0 {
			t.Errorf("%s: %d IKE SAs, %d children", e.name, len(e.m.sas), len(e.m.children))
		}
	}
	if !slices.ContainsFunc(p.a.events, func(s string) bool { return strings.Contains(s, "AUTHENTICATION_FAILED") }) {
		t.Errorf("events %q", p.a.events)
	}
}

func TestAWrongGroupIsCorrected(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		a.Proposals = proposals(t, message.ProtocolIKE, "aes256gcm16-prfsha256-modp2048-x25519")
		a.Children[0].Proposals = proposals(t, message.ProtocolESP, "aes256gcm16-ecp256-x25519")
	})
	p.initiate()
	p.check(1)
	for _, child := range []string{"*", ""} {
		actions, _ := p.a.m.Rekey("peer", child, p.now)
		p.do(p.a, actions)
		p.run()
		p.check(1)
	}
}

func TestCookiesAreNeededUnderLoad(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.b.m.CookieThreshold = 0
	p.initiate()
	p.check(1)
	if p.b.counts["packet cookie"] != 1 {
		t.Errorf("counts %v", p.b.counts)
	}
}

func TestAFloodOfHalfOpenLeavesRoomForPeers(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { b.Remote = netip.Addr{} })
	actions, _ := p.a.m.Initiate("peer", "", p.now)
	p.do(p.a, actions)
	first := p.wire[0]
	first.Local, first.Remote = first.Remote, first.Local
	for i := range 5000 {
		d := first
		d.Data = bytes.Clone(d.Data)
		d.Data[7], d.Data[6] = byte(i), byte(i>>8)
		d.Remote = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), Port)
		p.do(p.b, p.b.m.Receive(d, p.now))
	}
	if _, halfOpen, _ := p.b.m.Size(); halfOpen > cookieThreshold {
		t.Errorf("%d half-open IKE SAs", halfOpen)
	}
	p.wire = p.wire[:1]
	p.run()
	p.pass(time.Second)
	if len(p.a.in) != 1 || len(p.b.in) != 1 {
		t.Errorf("the peer has %d children", len(p.a.in))
	}
	p.pass(40 * time.Second)
	p.check(1)
}

func TestRekeyingByTimeKeepsOneChild(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.pass(9 * time.Hour)
	p.check(1)
	has := func(e *end, words string) (n int) {
		for _, one := range e.events {
			if strings.HasPrefix(one, words) {
				n++
			}
		}
		return n
	}
	if n := has(p.a, "rekeyed"); n < 2 {
		t.Errorf("%d rekeyings of IKE", n)
	}
	if n := has(p.a, "child-rekeyed"); n < 8 {
		t.Errorf("%d rekeyings of the child", n)
	}
	if n := has(p.a, "child-failed"); n != 0 {
		t.Errorf("events %q", p.a.events)
	}
}

func TestBothEndsRekeyAtOnce(t *testing.T) {
	for _, child := range []string{"*", ""} {
		for i := range 12 {
			p := newPair(t)
			p.configure()
			p.initiate()
			x, _ := p.a.m.Rekey("peer", child, p.now)
			p.do(p.a, x)
			y, _ := p.b.m.Rekey("peer", child, p.now)
			p.do(p.b, y)
			if i%3 == 1 { // one request is late
				p.wire[0], p.wire[1] = p.wire[1], p.wire[0]
			}
			if i%3 == 2 { // one request is lost
				p.wire = p.wire[1:]
			}
			p.run()
			p.pass(5 * time.Second)
			p.check(1)
		}
	}
}

// A child receives with the keys of the other end's packets at any time.
func TestNoPacketIsLostWhileAChildIsRekeyed(t *testing.T) {
	for i := range 8 {
		p := newPair(t)
		p.configure()
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
		for _, e := range []*end{p.a, p.b} {
			e.changed = func() {
				if sends(e) == nil {
					t.Errorf("%s has no child that sends", e.name)
				}
			}
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

// Each refuses the other's for the moment. Both get their new keys long before the rekeys that fail otherwise begin again.
func TestOneEndRekeysTheIKESAWhileTheOtherRekeysAChild(t *testing.T) {
	for i := range 20 {
		first := []string{"*", ""}[i%2]
		second := map[string]string{"*": "", "": "*"}[first]
		p := newPair(t)
		p.configure()
		p.initiate()
		sa, children := p.a.only(t), maps.Clone(p.a.in)
		x, _ := p.a.m.Rekey("peer", first, p.now)
		p.do(p.a, x)
		y, _ := p.b.m.Rekey("peer", second, p.now)
		p.do(p.b, y)
		p.run()
		if p.a.only(t) != sa {
			t.Fatal("the rekey of the IKE SA is not refused")
		}
		p.pass(10 * time.Second)
		p.check(1)
		if p.a.only(t) == sa {
			t.Errorf("the IKE SA keeps its keys: %q, %q", p.a.events, p.b.events)
		}
		for spi := range children {
			if p.a.in[spi] != nil {
				t.Errorf("the child keeps its keys")
			}
		}
	}
}

// Both ends rekey a child, and one of them gives its rekey up before it hears of the other's.
func TestARekeyThatCollidedWithOneThatWasGivenUpGoesOn(t *testing.T) {
	for range 10 {
		p := newPair(t)
		p.configure()
		p.initiate()
		before := maps.Clone(p.a.in)
		x, _ := p.a.m.Rekey("peer", "*", p.now)
		p.do(p.a, x)
		p.wire = nil
		p.b.slow = true
		b := p.b.only(t)
		old := b.sortedChildren()[0]
		y, _ := p.b.m.Rekey("peer", "*", p.now)
		p.do(p.b, y)
		p.run()
		p.b.slow = false
		for _, c := range b.sortedChildren() {
			if c != old {
				b.deleteChild(c, p.now)
			}
		}
		old.replaced = false
		p.do(p.b, p.b.m.done())
		p.run()
		// The request that was lost comes again.
		p.pass(10 * time.Second)
		p.check(1)
		for spi := range before {
			if p.a.in[spi] != nil {
				t.Fatalf("the child keeps its keys: %q", p.a.events)
			}
		}
	}
}

func TestBothEndsDeleteAtOnce(t *testing.T) {
	for _, child := range []string{"net", ""} {
		p := newPair(t)
		p.configure()
		p.initiate()
		x, _ := p.a.m.Terminate("peer", child, p.now)
		p.do(p.a, x)
		y, _ := p.b.m.Terminate("peer", child, p.now)
		p.do(p.b, y)
		p.run()
		if child == "net" {
			p.check(0)
		} else if len(p.a.m.sas)+len(p.b.m.sas)+len(p.a.in)+len(p.b.in) != 0 {
			t.Errorf("%d and %d IKE SAs are left", len(p.a.m.sas), len(p.b.m.sas))
		}
	}
}

func TestADeadPeerIsNoticedAndCalledAgain(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.Children[0].StartAction, a.Children[0].DPDAction = Start, Start })
	p.pass(time.Second)
	p.check(1)
	p.filter = func(*Datagram) bool { return false }
	p.pass(3 * time.Minute)
	if len(p.a.in) != 0 || len(p.b.in) != 0 {
		t.Fatal("the children live on")
	}
	p.filter = nil
	p.pass(2 * time.Minute)
	p.check(1)
}

func TestAPeerThatBeginsAnewReplacesWhatItHad(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.a = newEnd(t, "a", "192.0.2.1", p.now)
	p.configure()
	p.initiate()
	p.check(1)
}

func TestSelectorsAreNarrowed(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		a.Children[0].Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.0.0.0/8"))}
		b.Children[0].Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.1.4.0/24")), SelectorOf(netip.MustParsePrefix("10.1.9.0/24"))}
	})
	p.initiate()
	p.check(1)
	for _, c := range p.a.in {
		var all []string
		for _, s := range append(slices.Clone(c.Local), c.Remote...) {
			all = append(all, selectorText(s))
		}
		if text := strings.Join(all, " "); text != "10.1.4.0/24 10.1.9.0/24 10.2.0.0/16" {
			t.Error(text)
		}
	}
}

// Selectors without one of the same family and protocol on the other side match no packet. Their SA must not be one of every packet.
func TestSelectorsThatNoPacketMatchesAreRefused(t *testing.T) {
	one := func(network string, protocol uint8) message.Selector {
		s := SelectorOf(netip.MustParsePrefix(network))
		s.Protocol = protocol
		return s
	}
	ours := []message.Selector{one("10.2.0.0/16", 0), one("2001:db8:2::/48", 0)}
	theirs := []message.Selector{one("10.1.0.0/16", 0), one("2001:db8:1::/48", 0)}
	for _, c := range []struct {
		local, remote []message.Selector
		accepted      string
	}{
		{[]message.Selector{one("2001:db8:1::/48", 0)}, []message.Selector{one("10.2.0.0/16", 0)}, ""},
		{[]message.Selector{one("10.1.0.0/16", 6)}, []message.Selector{one("10.2.0.0/16", 17)}, ""},
		{theirs, ours[:1], "10.2.0.0/16 10.1.0.0/16"},
		{[]message.Selector{one("10.1.1.0/24", 6), one("10.1.2.0/24", 17)}, []message.Selector{one("10.2.0.0/16", 6)}, "10.2.0.0/16[6/0-65535] 10.1.1.0/24[6/0-65535]"},
	} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			b.Children[0].Local, b.Children[0].Remote = ours, theirs
			a.Children[0].Local, a.Children[0].Remote = c.local, c.remote
		})
		p.initiate()
		if c.accepted == "" {
			if len(p.a.in)+len(p.b.in) > 0 || !slices.ContainsFunc(p.a.events, func(s string) bool { return strings.Contains(s, "TS_UNACCEPTABLE") }) {
				t.Errorf("%s to %s: %d children, events %q", selectorTexts(c.local), selectorTexts(c.remote), len(p.b.in), p.a.events)
			}
			continue
		}
		p.check(1)
		for _, child := range p.b.in {
			spec, _ := association(child, false, false).Spec.(*api.SecurityAssociation)
			if text := selectorTexts(child.Local) + " " + selectorTexts(child.Remote); text != c.accepted || len(spec.GetSelectors()) != 1 {
				t.Errorf("%s; %v", text, spec.GetSelectors())
			}
		}
	}
}

// The data plane gets each pair of networks, and a range as a range.
func TestEachPairOfNetworksIsProtected(t *testing.T) {
	p := newPair(t)
	var ours, theirs []message.Selector
	for i := range 16 {
		ours = append(ours, SelectorOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(2 * i), 0}), 24)))
		theirs = append(theirs, SelectorOf(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(2 * i), 0}), 24)))
	}
	ours[0].End = netip.MustParseAddr("10.1.0.200")
	p.configure(func(a, b *Connection) {
		a.Children[0].Local, a.Children[0].Remote, b.Children[0].Local, b.Children[0].Remote = ours, theirs, theirs, ours
	})
	p.initiate()
	p.check(1)
	for _, c := range p.a.out {
		o := association(c, true, false)
		spec, _ := o.Spec.(*api.SecurityAssociation)
		if all := spec.GetSelectors(); len(all) != 256 || all[0].GetLocal() != "10.1.0.0/32" || all[0].GetLocalLast() != "10.1.0.200" || all[0].GetRemote() != "10.2.0.0/24" {
			t.Errorf("%d selectors, the first %v", len(all), all[0])
		}
	}
}

func TestSeveralChildrenComeUp(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		for _, c := range []*Connection{a, b} {
			for _, net := range []string{"10.20.0.0/16", "10.30.0.0/16"} {
				one := *c.Children[0]
				one.Name = net
				one.Local, one.Remote = []message.Selector{SelectorOf(netip.MustParsePrefix(net))}, []message.Selector{SelectorOf(netip.MustParsePrefix(net))}
				c.Children = append(c.Children, &one)
			}
		}
	})
	p.initiate()
	p.check(3)
	x, n := p.a.m.Rekey("peer", "*", p.now)
	p.do(p.a, x)
	p.run()
	p.check(3)
	if n != 3 {
		t.Errorf("%d rekeyed", n)
	}
}

func TestAnAddressTranslatorIsDetected(t *testing.T) {
	p := newPair(t)
	outside := netip.MustParseAddrPort("203.0.113.9:40000")
	p.configure(func(a, b *Connection) { b.Remote = netip.Addr{} })
	port := map[uint16]uint16{}
	p.filter = func(d *Datagram) bool {
		// a is behind a translator that changes addresses and ports.
		if d.Local.Addr() == p.a.address {
			port[d.Local.Port()+1] = d.Local.Port()
			d.Local = netip.AddrPortFrom(outside.Addr(), d.Local.Port()+1)
		} else if d.Remote.Addr() == outside.Addr() {
			d.Remote = netip.AddrPortFrom(p.a.address, port[d.Remote.Port()])
		}
		return true
	}
	p.initiate()
	p.check(1)
	for _, c := range p.b.in {
		if _, _, local, remote, udp := c.Place(); !udp || local.Port() != NATPort || remote != netip.AddrPortFrom(outside.Addr(), NATPort+1) {
			t.Errorf("the child is at %v, udp %v", remote, udp)
		}
	}
}

func TestIKEGoesWhereESPPacketsComeFrom(t *testing.T) {
	p := newPair(t)
	outside, other := netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("203.0.113.10")
	p.configure(func(a, b *Connection) { b.Remote = netip.Addr{} })
	p.filter = func(d *Datagram) bool {
		switch {
		case d.Local.Addr() == p.a.address:
			d.Local = netip.AddrPortFrom(outside, d.Local.Port()+1)
		case d.Remote.Addr() == outside:
			d.Remote = netip.AddrPortFrom(p.a.address, d.Remote.Port()-1)
		default:
			return false
		}
		return true
	}
	p.initiate()
	p.check(1)
	// The translator forgets the peer, and only ESP packets come from its new address.
	outside, moved := other, netip.AddrPortFrom(other, NATPort+1)
	for spi := range p.b.in {
		p.do(p.b, p.b.m.PeerMoved(spi, moved, p.now))
		p.do(p.b, p.b.m.PeerMoved(spi+1, netip.AddrPortFrom(otherAddress, 1), p.now))
	}
	p.pass(3 * time.Minute)
	p.check(1)
	if s := p.b.only(t); s.remote != moved || slices.ContainsFunc(p.b.events, func(e string) bool { return strings.HasPrefix(e, "down") }) {
		t.Errorf("the peer is at %v, events %q", s.remote, p.b.events)
	}
	// Without a translator in front of the peer, MOBIKE tells where it is.
	q := newPair(t)
	q.configure(func(a, b *Connection) { a.NoMOBIKE, b.NoMOBIKE = false, false })
	q.initiate()
	before := q.b.only(t).remote
	for spi := range q.b.in {
		q.do(q.b, q.b.m.PeerMoved(spi, moved, q.now))
	}
	if s := q.b.only(t); s.remote != before {
		t.Errorf("the peer is at %v", s.remote)
	}
}

func TestLongMessagesAreFragmented(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		for _, c := range []*Connection{a, b} {
			c.Proposals = proposals(t, message.ProtocolIKE, "aes256gcm16-prfsha256-x25519-ke1_mlkem768")
			c.Credential = &Credential{Chain: [][]byte{make([]byte, 3000)}, Key: mustKey(ed25519.GenerateKey(rand.Reader))}
			c.LocalMethod, c.RemoteMethod = Certificate, Certificate
		}
		for _, e := range []struct {
			*end
			peer *Connection
		}{{p.a, b}, {p.b, a}} {
			e.answer = func(any) any { return Verified{Key: e.peer.Credential.Key.Public()} }
		}
	})
	// Fragments arrive in the wrong order, and twice.
	p.filter = func(*Datagram) bool {
		if len(p.wire) > 1 {
			slices.Reverse(p.wire)
		}
		return true
	}
	p.initiate()
	p.pass(10 * time.Second)
	p.check(1)
	for _, d := range p.seen {
		if len(d.Data) > fragmentSize+markSize {
			t.Errorf("a message of %d bytes", len(d.Data))
		}
	}
	if len(p.seen) < 10 {
		t.Errorf("%d packets", len(p.seen))
	}
}

func mustKey(_ ed25519.PublicKey, key ed25519.PrivateKey, err error) crypto.Signer {
	if err != nil {
		panic(err)
	}
	return key
}

func TestEachKindOfSignatureAuthenticates(t *testing.T) {
	signer := func(key crypto.Signer, err error) crypto.Signer {
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	for name, key := range map[string]crypto.Signer{
		"RSA": signer(rsa.GenerateKey(rand.Reader, 2048)), "P-256": signer(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)), "P-384": signer(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		"P-521": signer(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)), "Ed25519": mustKey(ed25519.GenerateKey(rand.Reader)), "SM2": signer(sm2.GenerateKey(rand.Reader)),
	} {
		for _, pss := range []bool{false, true} {
			for _, hashes := range [][]uint16{ourHashes, {hashSHA512}, nil} {
				c := Credential{Key: key, PSS: pss}
				auth, err := c.sign([]byte("octets"), hashes, true)
				if err != nil {
					if len(hashes) > 1 {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if err := verifySignature(key.Public(), auth, []byte("octets"), true); err != nil {
					t.Errorf("%s, hashes %v: %v", name, hashes, err)
				}
				if err := verifySignature(key.Public(), auth, []byte("other"), true); !errors.Is(err, errAuthentication) {
					t.Errorf("%s: other octets are taken", name)
				}
				auth.Data[len(auth.Data)-1] ^= 1
				if err := verifySignature(key.Public(), auth, []byte("octets"), true); err == nil {
					t.Errorf("%s: a flipped bit is taken", name)
				}
			}
		}
	}
}

func TestReauthenticationMakesBeforeItBreaks(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.ReauthTime = time.Hour })
	p.initiate()
	first := slices.Collect(func(yield func(uint64) bool) {
		for spi := range p.a.m.sas {
			yield(spi)
		}
	})
	p.filter = func(*Datagram) bool {
		if len(p.a.in) == 0 || len(p.b.in) == 0 {
			t.Error("there is no child for a while")
		}
		return true
	}
	p.pass(61 * time.Minute)
	p.check(1)
	if p.a.m.sas[first[0]] != nil {
		t.Error("the IKE SA is the old one")
	}
}

func TestOfTwoIKESAsThatOpenAtOnceOneStays(t *testing.T) {
	both := func(a, b *Connection) { a.Children[0].StartAction, b.Children[0].StartAction = Start, Start }
	for range 8 { // the SPIs are random
		p := newPair(t)
		p.configure(both, func(a, b *Connection) { a.Children[0].CloseAction, b.Children[0].CloseAction = Start, Start })
		for _, e := range []*end{p.a, p.b} {
			actions, err := e.m.Initiate("peer", "", p.now)
			if err != nil {
				t.Fatal(err)
			}
			p.do(e, actions)
		}
		p.run()
		if len(p.a.m.sas) != 2 || len(p.b.m.sas) != 2 {
			t.Fatalf("%d and %d IKE SAs", len(p.a.m.sas), len(p.b.m.sas))
		}
		// Each end takes a message of the other one at any time.
		takes := func() {
			for _, ends := range [][2]*end{{p.a, p.b}, {p.b, p.a}} {
				var sends *ChildSA
				for _, c := range ends[0].out {
					if sends == nil || c.Precedence > sends.Precedence {
						sends = c
					}
				}
				if sends == nil || ends[1].in[sends.SPIOut] == nil {
					t.Errorf("%s sends what the other end does not take", ends[0].name)
				}
			}
		}
		p.a.changed, p.b.changed = takes, takes
		p.pass(10 * time.Second)
		p.check(1)
	}
}

func TestAPPKIsMixedIn(t *testing.T) {
	for _, same := range []bool{true, false} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			a.PPK, a.PPKID, a.PPKMandatory = []byte("quantum"), "ppk1", true
			b.PPK, b.PPKID, b.PPKMandatory = []byte("quantum"), "ppk1", true
			if !same {
				b.PPK = []byte("other")
			}
		})
		p.initiate()
		if same {
			p.check(1)
		} else if len(p.a.in)+len(p.b.in) != 0 {
			t.Error("another PPK is taken")
		}
	}
}

func TestClientsAreRedirected(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { b.RedirectTo = "192.0.2.77" })
	var to []string
	p.filter = func(d *Datagram) bool {
		to = append(to, d.Remote.String())
		return d.Remote.Addr() != netip.MustParseAddr("192.0.2.77")
	}
	p.initiate()
	if want := []string{"192.0.2.2:500", "192.0.2.1:500", "192.0.2.77:500"}; !slices.Equal(to, want) {
		t.Errorf("%q", to)
	}
}

func TestAClosedChildDoesWhatItsCloseActionSays(t *testing.T) {
	for action, left := range map[ChildAction]int{Start: 1, Hold: 0} {
		p := newPair(t)
		p.configure(func(a, b *Connection) { a.Children[0].CloseAction = action })
		p.initiate()
		x, _ := p.b.m.Terminate("peer", "net", p.now)
		p.do(p.b, x)
		p.run()
		p.pass(5 * time.Second)
		p.check(left)
	}
}

func TestRemoteUsersGetAddresses(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { b.Pools = []string{"pool"} })
	p.b.answer = func(q any) any {
		if l, is := q.(LeaseAddress); !is || !l.IPv4 {
			t.Errorf("asked %+v", q)
		}
		return Leased{Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.7")}}
	}
	// Our initiator asks for no address: without a request there is none.
	p.initiate()
	p.check(1)
}

func TestAConnectionThatIsDeletedWhileItComesUpIsDeletedAtThePeer(t *testing.T) {
	for at := range 4 {
		p := newPair(t)
		p.configure()
		n := 0
		p.filter = func(*Datagram) bool {
			if n++; n-1 == at {
				p.do(p.a, p.a.m.SetConnection("peer", nil, p.now))
			}
			return true
		}
		p.initiate()
		p.pass(40 * time.Second)
		for _, e := range []*end{p.a, p.b} {
			if len(e.m.sas)+len(e.in)+len(e.out)+len(e.m.children) != 0 {
				t.Errorf("deleted at packet %d: %s has %d IKE SAs, %d children", at, e.name, len(e.m.sas), len(e.in))
			}
		}
	}
}

// Nothing protects the answers to IKE_SA_INIT: they must not have us begin anew for ever.
func TestAnswersThatOnlyAskForAnotherIKESAInitEnd(t *testing.T) {
	for name, answer := range map[string]func(n int) *message.Notify{
		"cookies": func(n int) *message.Notify { return &message.Notify{Kind: message.Cookie, Data: []byte{byte(n), 1}} },
		"groups": func(n int) *message.Notify {
			return &message.Notify{Kind: message.InvalidKEPayload, Data: []byte{0, byte([]uint16{suite.ECP256, suite.X25519}[n%2])}}
		},
	} {
		p := newPair(t)
		p.configure(func(a, _ *Connection) {
			a.Proposals = proposals(t, message.ProtocolIKE, "aes256gcm16-prfsha256-x25519-ecp256")
		})
		actions, _ := p.a.m.Initiate("peer", "", p.now)
		p.do(p.a, actions)
		n := 0
		for ; len(p.wire) > 0 && n < 100; n++ {
			d := p.wire[0]
			p.wire = p.wire[1:]
			h, err := message.ParseHeader(d.Data)
			if err != nil {
				t.Fatal(err)
			}
			one := message.Message{Header: message.Header{SPIi: h.SPIi, Exchange: h.Exchange, Flags: message.FlagResponse}, Payloads: []message.Payload{answer(n)}}
			d.Local, d.Remote, d.Data = d.Remote, d.Local, one.Append(nil)
			p.deliver(d)
		}
		if n > 10 || len(p.a.m.sas) != 0 || len(p.a.events) != 1 {
			t.Errorf("%s: %d messages, %d IKE SAs, events %q", name, n, len(p.a.m.sas), p.a.events)
		}
	}
}

// An attacker that sends a request of the peer again does not keep a dead peer alive.
func TestAReplayedRequestDoesNotKeepADeadPeerAlive(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.seen = nil
	p.pass(2 * time.Minute)
	i := slices.IndexFunc(p.seen, func(d Datagram) bool { return d.Local.Addr() == p.b.address && d.Data[19]&message.FlagResponse == 0 })
	if i < 0 {
		t.Fatal("the peer sends no request")
	}
	last := p.seen[i]
	for _, d := range p.seen[i:] {
		if d.Local.Addr() == p.b.address && d.Data[19]&message.FlagResponse == 0 {
			last = d
		}
	}
	p.filter = func(*Datagram) bool { return false }
	for range 200 {
		p.pass(time.Second)
		p.deliver(last)
	}
	if len(p.a.m.sas) != 0 {
		t.Error("the dead peer lives on")
	}
}

func TestAHostHasOneShareOfTheHalfOpenIKESAsForAllOfItsIPv6Addresses(t *testing.T) {
	p := newPair(t)
	p.a.address, p.b.address = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::1")
	p.configure(func(_, b *Connection) { b.Remote = netip.Addr{} })
	actions, _ := p.a.m.Initiate("peer", "", p.now)
	p.do(p.a, actions)
	first := p.wire[0]
	try := func(from string) {
		d := first
		d.Local = netip.AddrPortFrom(netip.MustParseAddr(from), Port)
		p.deliver(d)
		p.wire = nil
	}
	for _, from := range []string{"2001:db8::2", "2001:db8::3:4", "2001:db8::ffff:1:2:3"} {
		for n := range 20 {
			first.Data = slices.Clone(first.Data)
			first.Data[0] = byte(n)
			try(from)
		}
	}
	if _, half, _ := p.b.m.Size(); half != maxHalfOpenOfAddress/2 || p.b.counts["packet cookie"] != 60-half {
		t.Errorf("%d half-open, %v", half, p.b.counts)
	}
	try("2001:db8:0:1::2")
	if _, half, _ := p.b.m.Size(); half != maxHalfOpenOfAddress/2+1 {
		t.Errorf("%d half-open, after another network", half)
	}
}
