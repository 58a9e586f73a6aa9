// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func (e *end) reported(what string) (n int) {
	for _, each := range e.events {
		if each == what {
			n++
		}
	}
	return n
}

func TestAProposalThatIsNotAcceptedIsNamedBesideOurs(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		a.Proposals = proposals(t, message.ProtocolIKE, "aes128-sha1-modp2048", "aes256gcm16-prfsha384-ecp384")
		a.Children[0].StartAction = Start
	})
	p.pass(10 * time.Minute)
	if ours := "failed: the peer answers NO_PROPOSAL_CHOSEN to IKE_SA_INIT: it accepts none of aes128-sha1-modp2048-prfsha1, aes256gcm16-prfsha384-ecp384"; p.a.reported(ours) < 5 {
		t.Errorf("the initiator reports %q", p.a.events)
	}
	// Anybody can send proposals: the log has one line a minute.
	theirs := "failed: no proposal of the peer is accepted: peer offers aes128-sha1-modp2048-prfsha1, aes256gcm16-prfsha384-ecp384; accepted: aes256gcm16-prfsha256-x25519"
	if n, all := p.b.reported(theirs), p.b.counts["failure NO_PROPOSAL_CHOSEN"]; n < 2 || n > 10 || all < n {
		t.Errorf("the responder reports %q, of %d refusals", p.b.events, all)
	}
	before := len(p.b.events)
	for range 1000 {
		a, _ := p.a.m.Initiate("peer", "", p.now)
		p.do(p.a, a)
		p.run()
	}
	if n := len(p.b.events) - before; n > 1 {
		t.Errorf("1000 refusals are %d lines", n)
	}
}

// A child that the peer refuses is reported at both ends, and comes up as soon as the peer accepts it.
func TestAChildThatIsRefusedIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(b *Child)
		ours, theirs string
	}{
		{"algorithms", func(b *Child) { b.Proposals = proposals(t, message.ProtocolESP, "aes128-sha256") },
			"child-failed: net: the peer answers NO_PROPOSAL_CHOSEN: it accepts none of aes256gcm16-x25519-esn-noesn",
			"child-failed: net: no proposal of the peer is accepted: peer offers aes256gcm16-esn-noesn; accepted: aes128-sha256-esn-noesn"},
		{"networks", func(b *Child) { b.Local = []message.Selector{SelectorOf(netip.MustParsePrefix("10.3.0.0/16"))} },
			"child-failed: net: the peer answers TS_UNACCEPTABLE: it accepts nothing of 10.1.0.0/16 to 10.2.0.0/16",
			"child-failed: net: no selectors of the peer are accepted: peer offers 10.1.0.0/16 to 10.2.0.0/16; accepted: 10.1.0.0/16 to 10.3.0.0/16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t)
			p.configure(func(a, b *Connection) {
				a.Children[0].StartAction = Start
				c.change(b.Children[0])
			})
			p.pass(3 * time.Minute)
			p.check(0)
			if p.a.reported(c.ours) < 3 || p.b.reported(c.theirs) < 1 {
				t.Errorf("events %q and %q", p.a.events, p.b.events)
			}
			// The peer's operator corrects it. A change reaches new IKE SAs.
			p.do(p.b, p.b.m.SetConnection("peer", p.connection(p.b, p.a, ikeSuite, espSuite), p.now))
			p.b.only(t).conn = p.b.m.connections["peer"]
			p.pass(time.Minute + time.Second)
			p.check(1)
			if len(p.a.m.again) != 0 {
				t.Error("the child is tried again although it is up")
			}
		})
	}
}

// A child that must be up comes back after a dead peer, whatever onDeadPeer says, and after its rekeys have failed for its whole life.
func TestAChildThatMustBeUpComesBack(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) { a.Children[0].StartAction = Start })
	p.pass(time.Second)
	p.check(1)
	p.filter = func(*Datagram) bool { return false }
	p.pass(3 * time.Minute)
	p.filter = nil
	p.pass(2 * time.Minute)
	p.check(1)
	p.b.only(t).children[0].Conf.Proposals = proposals(t, message.ProtocolESP, "aes128-sha256")
	p.pass(80 * time.Minute)
	p.check(0)
	p.do(p.b, p.b.m.SetConnection("peer", p.connection(p.b, p.a, ikeSuite, espSuite), p.now))
	p.b.only(t).conn = p.b.m.connections["peer"]
	p.pass(time.Minute + time.Second)
	p.check(1)
}

func TestAConnectionWhoseChildFailsIsNotReady(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	s.machine = p.a.m
	s.specs["peer"] = &object.Object{Kind: "IkeConnection", Name: "peer", Spec: &api.IkeConnection{}}
	event := func(what, child, detail string) {
		s.event(Event{Connection: "peer", What: what, Child: child, Detail: detail})
	}
	event("child-failed", "other", "other: the peer answers TS_UNACCEPTABLE")
	if p := s.problems["peer"]; p.Reason != "ChildFailed" || !strings.Contains(p.Message, "TS_UNACCEPTABLE") {
		t.Errorf("%+v", p)
	}
	// Another child is up.
	event("child-up", "net", "net: 00000001 in, 00000002 out")
	if p := s.problems["peer"]; p.Reason != "ChildFailed" {
		t.Errorf("%+v", p)
	}
	p.a.only(t).children[0].Conf = &Child{Name: "other"}
	event("child-up", "other", "other: 00000001 in, 00000002 out")
	if p, is := s.problems["peer"]; is {
		t.Errorf("%+v", p)
	}
	// A rekey fails, and the child of before serves.
	event("child-failed", "other", "other: the peer answers TEMPORARY_FAILURE")
	if p, is := s.problems["peer"]; is {
		t.Errorf("%+v", p)
	}
}

// A peer whose child is refused again and again has one line in the log, and its connection is never ready meanwhile.
func TestARefusalThatIsNotLoggedAgainCounts(t *testing.T) {
	p := newPair(t)
	p.configure()
	again := 0
	p.b.trace = func(a Action) {
		if e, is := a.(Event); is && e.Again {
			again++
		}
	}
	for i, why := range []string{"one reason", "one reason", "another reason"} {
		p.b.m.refuse(Event{Connection: "peer", What: "child-failed", Detail: why}, p.now)
		p.do(p.b, p.b.m.done())
		if lines := len(p.b.events); lines+again != i+1 || lines != []int{1, 1, 2}[i] {
			t.Errorf("%d: %d lines, %d not logged", i, lines, again)
		}
	}
	p.now = p.now.Add(refusalsAgain)
	p.b.m.refuse(Event{Connection: "peer", What: "child-failed", Detail: "one reason"}, p.now)
	if p.do(p.b, p.b.m.done()); len(p.b.events) != 3 {
		t.Errorf("%q", p.b.events)
	}
}

// Messages of a connection's condition.
func TestWhyAConnectionIsNotReady(t *testing.T) {
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	registry, err := object.NewRegistry(nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := func(o *object.Object) *object.StoredObject {
		stored, err := registry.NewStored(o.Key(), nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	wan := &object.Object{Kind: "Interface", Name: "wan", Spec: &api.Interface{Vrf: "red", Addresses: []string{"2001:DB8::1/64"}}}
	connection := &object.Object{Kind: "IkeConnection", Name: "office", Spec: &api.IkeConnection{Vrf: "red", LocalAddress: "2001:db8::1", RemoteAddress: "2001:db8::2", Credential: "key",
		Children: []*api.IkeChild{{Name: "net", Tunnel: "office", Start: api.IkeAction_AT_ONCE}}}}
	peer := &object.Object{Kind: "IkePeer", Name: "office", Spec: &api.IkePeer{Vrf: "red", LocalAddress: "2001:db8::1", RemoteAddress: "2001:db8::3", Credential: "key", RemoteNetworks: []string{"10.2.0.0/16"}}}
	follow := func(o *object.Object, there bool) {
		c := service.Change{Key: object.Key{Kind: o.Kind, Name: o.Name}}
		if there {
			c.Object = o
		}
		s.Follow(c)
	}
	expect := func(o *object.Object, reason, words string) {
		t.Helper()
		if p := s.NotReady("", kept(o)); p.Reason != reason || !strings.Contains(p.Message, words) {
			t.Errorf("%s: %+v", o.Kind, p)
		}
	}
	follow(&object.Object{Kind: "IkeCredential", Name: "key", Spec: &api.IkeCredential{SharedKey: "secret"}}, true)
	s.synced = true
	follow(connection, true)
	expect(connection, "NotConfigured", "localAddress: no Interface of Vrf/red has 2001:db8::1")
	follow(wan, true)
	expect(connection, "Connecting", "not answered yet")
	// A peer that comes up does not hide that its new files cannot be read.
	s.problem("office", "NotConfigured", "a file")
	s.event(Event{Connection: "office", What: "up"})
	expect(connection, "NotConfigured", "a file")
	s.problem("office", "", "")
	s.event(Event{Connection: "office", What: "failed", Detail: "the peer does not answer"})
	expect(connection, "NotConnected", "does not answer")
	// A remote user that hangs up is not the connection's fault.
	s.specs["users"] = &object.Object{Kind: "IkeConnection", Name: "users", Spec: &api.IkeConnection{RemoteAuthentication: api.IkeAuthentication_EAP}}
	s.event(Event{Connection: "users", What: "down", Detail: "the peer deleted it"})
	if p, is := s.problems["users"]; is {
		t.Errorf("%+v", p)
	}
	// The reason was that of another configuration.
	follow(connection, true)
	expect(connection, "Connecting", "not answered yet")
	follow(wan, false)
	expect(connection, "NotConfigured", "no Interface")
	follow(wan, true)
	// The first one of a name keeps it.
	follow(connection, false)
	s.Objects = nil
	s.specs["office"] = &object.Object{Kind: "IkePeer", Name: "office", Spec: &api.IkeConnection{Vrf: "red", LocalAddress: "2001:db8::1"}}
	s.sites["office"] = &site{peer: peer}
	follow(connection, true)
	expect(connection, "NotConfigured", "an IkePeer has this name")
	expect(peer, "", "")
	if s.specs["office"].Kind != "IkePeer" {
		t.Error("the IkeConnection takes the name of the IkePeer")
	}
	follow(peer, false)
	expect(connection, "Connecting", "not answered yet")
}

func TestIkePeersWithLongNamesHaveTunnelsOfTheirOwn(t *testing.T) {
	long := strings.Repeat("a", 160)
	one, other := siteName(long+"1"), siteName(long+"2")
	if one == other || len(one) != len("peer-")+longestSite || siteName("office") != "peer-office" {
		t.Error(one, other)
	}
}
