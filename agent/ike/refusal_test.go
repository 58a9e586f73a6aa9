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
	event := func(what, detail string) {
		s.event(Event{Connection: "peer", What: what, Detail: detail})
	}
	event("child-failed", "other: the peer answers TS_UNACCEPTABLE")
	if p := s.problems["peer"]; p.Reason != "ChildFailed" || !strings.Contains(p.Message, "TS_UNACCEPTABLE") {
		t.Errorf("%+v", p)
	}
	// Another child is up.
	event("child-up", "net: 00000001 in, 00000002 out")
	if p := s.problems["peer"]; p.Reason != "ChildFailed" {
		t.Errorf("%+v", p)
	}
	p.a.only(t).children[0].Conf = &Child{Name: "other"}
	event("child-up", "other: 00000001 in, 00000002 out")
	if p, is := s.problems["peer"]; is {
		t.Errorf("%+v", p)
	}
	// A rekey fails, and the child of before serves.
	event("child-failed", "other: the peer answers TEMPORARY_FAILURE")
	if p, is := s.problems["peer"]; is {
		t.Errorf("%+v", p)
	}
}
