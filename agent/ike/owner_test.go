// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/ike/message"
)

const (
	notifyAddress message.NotifyType = 55501
	notifyQoS     message.NotifyType = 55502
	notifyBackOff message.NotifyType = 41041
)

// aService is a service that owns the connection of end b. Its EAP method is of an expanded type, and asks three times.
type aService struct {
	t     *testing.T
	steps []EAPStep
	asked []any
	// Answers of Finish and Propose.
	finished Finished
	child    *Child
	fail     error
}

var given = netip.MustParseAddr("10.9.0.7")

func (o *aService) answer(question any) any {
	o.asked = append(o.asked, question)
	switch q := question.(type) {
	case EAPStep:
		o.steps = append(o.steps, q)
		n := byte(len(o.steps))
		if q.Packet != nil {
			p, err := eap.Parse(q.Packet)
			if err != nil || p.Type != eap.TypeExpanded || p.Identifier != n-1 || string(p.Data) != fmt.Sprintf("answer %d", n-1) {
				o.t.Errorf("the peer answers %+v (%v)", p, err)
			}
		}
		switch {
		case n == 4 && o.fail != nil:
			return EAPAnswer{Packet: eap.Packet{Code: eap.Failure, Identifier: n}.Append(nil), Err: o.fail, Notify: []*message.Notify{{Kind: notifyBackOff, Data: []byte{9}}}}
		case n == 4:
			return EAPAnswer{Packet: eap.Packet{Code: eap.Success, Identifier: n}.Append(nil), Success: true, MSK: []byte("the key of the method"), Username: "suci-1"}
		}
		return EAPAnswer{Packet: eap.Packet{Code: eap.Request, Identifier: n, Type: eap.TypeExpanded, Data: fmt.Appendf(nil, "question %d", n)}.Append(nil)}
	case FinishAuth:
		return o.finished
	case ProposeChild:
		return ChildAccepted{o.child, []*message.Notify{{Kind: notifyAddress, Data: []byte{1}}}}
	case Notified:
		return NotifiedAnswer{[]*message.Notify{{Kind: notifyQoS, Data: append([]byte("again "), q.Notify[0].Data...)}}}
	}
	return nil
}

// method is the peer's side of the EAP method.
func method(t *testing.T, packet []byte) EAPReply {
	p, err := eap.Parse(packet)
	switch {
	case err != nil:
		t.Error(err)
	case p.Code == eap.Success:
		return EAPReply{MSK: []byte("the key of the method")}
	case p.Code == eap.Failure:
		return EAPReply{Err: errors.New("the method fails")}
	}
	return EAPReply{Packet: eap.Packet{Code: eap.Response, Identifier: p.Identifier, Type: p.Type, Data: fmt.Appendf(nil, "answer %d", p.Identifier)}.Append(nil)}
}

// owned are a user at end a and a connection of another service at end b.
func owned(t *testing.T) (*pair, *aService) {
	p := newPair(t)
	o := &aService{t: t, finished: Finished{Addresses: []netip.Addr{given}, DNS: []netip.Addr{netip.MustParseAddr("10.1.0.53")},
		Attributes: []message.Attribute{{Type: 20, Value: []byte{10, 1, 0, 54}}}, Notify: []*message.Notify{{Kind: notifyAddress, Data: []byte{10, 1, 0, 1}}}}}
	p.configure(func(a, b *Connection) {
		a.LocalMethod, a.AskAddress, a.Children[0].Local, a.LocalID = EAP, true, nil, Identity{message.IDKey, "\xff\x01"}
		ownedBy(b)
	})
	o.finished.Children = []*Child{{Name: "signalling", Proposals: proposals(t, message.ProtocolESP, espSuite), Local: p.b.m.connections["peer"].Children[0].Local,
		RekeyTime: time.Hour, Serves: Serves{Tunnel: "ue-7"}}}
	p.a.answer = func(q any) any {
		r, is := q.(EAPResponse)
		if !is {
			t.Fatalf("the user is asked %+v", q)
		}
		return method(t, r.Packet)
	}
	p.b.answer = o.answer
	return p, o
}

// ownedBy makes a connection one of another service.
func ownedBy(c *Connection) {
	c.Owned, c.RemoteMethod, c.Remote, c.RemoteID, c.NoMOBIKE = true, EAP, netip.Addr{}, Identity{}, false
	c.Takes = func(id Identity) bool { return id.Kind == message.IDKey }
}

// toldOf are the actions of a type that the owner of an end's connection received.
func toldOf[T any](e *end) (all []T) {
	for _, one := range e.told {
		if one, is := one.(T); is {
			all = append(all, one)
		}
	}
	return all
}

func TestAServiceRunsItsOwnEAPMethodAndChildren(t *testing.T) {
	p, o := owned(t)
	p.initiate()
	p.check(1)
	up := toldOf[PeerUp](p.b)
	if len(o.steps) != 4 || len(up) != 1 || up[0].Peer.Username != "suci-1" || up[0].Peer.Identity.Data != "\xff\x01" || !slices.Equal(up[0].Peer.Addresses, []netip.Addr{given}) {
		t.Fatalf("%d steps, up %+v, events %q", len(o.steps), up, p.a.events)
	}
	finish, _ := o.asked[4].(FinishAuth)
	if len(finish.Attributes) != 1 || finish.Attributes[0].Type != message.InternalIP4Address || len(toldOf[EAPEnd](p.b)) != 1 {
		t.Errorf("finish %+v", finish)
	}
	for _, child := range p.b.in {
		if child.Conf.Name != "signalling" || !slices.Equal(child.Remote, []message.Selector{hostOf(given)}) {
			t.Errorf("the child %s is for %v", child.Conf.Name, child.Remote)
		}
	}
	id := up[0].Peer.ID

	// Another child SA with notifications, and the peer's in its response.
	pdu := &Child{Name: "pdu-5", Proposals: proposals(t, message.ProtocolESP, espSuite), Local: []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.9/32"))},
		RekeyTime: time.Hour, Serves: Serves{Tunnel: "ue-7-pdu-5"}}
	actions, err := p.b.m.OpenChild(id, pdu, []*message.Notify{{Kind: notifyQoS, Data: []byte{5}}}, 71, p.now)
	if err != nil {
		t.Fatal(err)
	}
	p.do(p.b, actions)
	p.run()
	opened := toldOf[ChildOpened](p.b)
	if len(opened) != 1 || opened[0].Token != 71 || opened[0].Err != nil || opened[0].Child.Name != "pdu-5" || len(p.b.in) != 2 || len(p.a.in) != 2 {
		t.Fatalf("opened %+v, %d and %d children, events %q", opened, len(p.a.in), len(p.b.in), p.a.events)
	}

	// The ID stays while both SAs are rekeyed.
	for _, child := range []string{"", "*"} {
		x, _ := p.a.m.Rekey("peer", child, p.now)
		p.do(p.a, x)
		p.run()
		y, _ := p.b.m.Rekey("peer", child, p.now)
		p.do(p.b, y)
		p.run()
	}
	if peers := p.b.m.Peers("peer"); len(peers) != 1 || peers[0].ID != id || len(peers[0].Children) != 2 || !slices.Equal(peers[0].Addresses, []netip.Addr{given}) {
		t.Fatalf("peers %+v", peers)
	}
	if n := len(toldOf[PeerDown](p.b)); n != 0 {
		t.Errorf("%d peers are down", n)
	}

	// INFORMATIONAL in both directions.
	if actions, err = p.b.m.Inform(id, "", []*message.Notify{{Kind: notifyQoS, Data: []byte{6}}}, 72, p.now); err != nil {
		t.Fatal(err)
	}
	p.do(p.b, actions)
	p.run()
	if informed := toldOf[NotifyAnswered](p.b); len(informed) != 1 || informed[0].Token != 72 || informed[0].Err != nil {
		t.Errorf("informed %+v", informed)
	}
	var answer []*message.Notify
	for _, s := range p.a.m.sas {
		s.enqueue(p.now, func(s *ikeSA, now time.Time) bool {
			s.request(message.Informational, now, func(all []message.Payload, _ time.Time) { answer = readAuth(all).notification }, &message.Notify{Kind: notifyQoS, Data: []byte{7}})
			return true
		})
	}
	p.do(p.a, p.a.m.done())
	p.run()
	if len(answer) != 1 || string(answer[0].Data) != "again \a" {
		t.Errorf("the service answers %v", answer)
	}

	// The peer opens a child SA: only if the service lets it.
	for _, child := range []*Child{nil, {Name: "peers-own", Proposals: pdu.Proposals, Local: []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.0/16"))}}} {
		o.child = child
		for _, s := range p.a.m.sas {
			s.enqueue(p.now, func(s *ikeSA, now time.Time) bool { return s.create(s.conn.Children[0], nil, 0, nil, now) })
		}
		p.do(p.a, p.a.m.done())
		p.run()
		if want := map[bool]int{true: 2, false: 3}[child == nil]; len(p.b.in) != want || len(p.a.in) != want {
			t.Errorf("%d and %d children, not %d", len(p.a.in), len(p.b.in), want)
		}
	}

	actions, n, err := p.b.m.CloseChild(id, "pdu-5", p.now)
	if err != nil || n != 1 {
		t.Errorf("%d children close: %v", n, err)
	}
	p.do(p.b, actions)
	p.run()
	if len(p.b.in) != 2 || len(p.a.in) != 2 {
		t.Errorf("%d and %d children", len(p.a.in), len(p.b.in))
	}
	if actions, err = p.b.m.ClosePeer(id, "deregistered", p.now); err != nil {
		t.Fatal(err)
	}
	p.do(p.b, actions)
	p.run()
	if down := toldOf[PeerDown](p.b); len(down) != 1 || down[0].Peer.ID != id || len(p.a.m.sas)+len(p.b.m.sas) != 0 || len(p.b.m.peers) != 0 {
		t.Errorf("down %+v, %d and %d IKE SAs", down, len(p.a.m.sas), len(p.b.m.sas))
	}
	if _, err := p.b.m.OpenChild(id, pdu, nil, 73, p.now); !errors.Is(err, ErrPeer) {
		t.Errorf("a peer that is gone: %v", err)
	}
}

func TestAServiceRefusesAPeerWithItsNotifications(t *testing.T) {
	for _, when := range []string{"eap", "finish", "identity"} {
		p, o := owned(t)
		switch when {
		case "eap":
			o.fail = errors.New("the core refuses the user")
		case "finish":
			o.finished = Finished{Err: errors.New("no resources"), Notify: []*message.Notify{{Kind: notifyBackOff}}}
		case "identity":
			p.a.m.connections["peer"].LocalID = mustIdentity(t, "a.example")
		}
		p.initiate()
		if len(p.a.in)+len(p.b.in)+len(p.a.m.sas)+len(p.b.m.sas) != 0 || len(toldOf[PeerUp](p.b)) != 0 {
			t.Errorf("%s: %d IKE SAs at the service, told %+v", when, len(p.b.m.sas), p.b.told)
		}
		if ended := len(toldOf[EAPEnd](p.b)); when != "identity" && ended != 1 || when == "identity" && len(o.asked) != 0 {
			t.Errorf("%s: %d conversations end, the service is asked %+v", when, ended, o.asked)
		}
	}
}

func TestAnOwnedIKESAGoesOnBeforeItsServiceIsBack(t *testing.T) {
	p, o := owned(t)
	p.initiate()
	id := toldOf[PeerUp](p.b)[0].Peer.ID
	connection := p.b.m.connections["peer"]
	p.restart(p.b, func(*Machine) {})
	p.check(1)
	for _, child := range []string{"", "*"} {
		x, _ := p.a.m.Rekey("peer", child, p.now)
		p.do(p.a, x)
		p.run()
		p.check(1)
	}
	// New peers are not decided on yet.
	asked := len(o.asked)
	x, _ := p.a.m.Terminate("peer", "", p.now)
	before := maps.Clone(p.b.records)
	p.do(p.a, x)
	p.wire = nil
	p.a.m = New(p.now)
	p.do(p.a, p.a.m.SetConnection("peer", func() *Connection {
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		c.LocalMethod, c.AskAddress, c.Children[0].Local, c.LocalID = EAP, true, nil, Identity{message.IDKey, "\xff\x01"}
		return c
	}(), p.now))
	p.initiate()
	if len(o.asked) != asked || !maps.EqualFunc(before, p.b.records, slices.Equal) {
		t.Errorf("the service is asked %+v", o.asked[asked:])
	}
	p.do(p.b, p.b.m.SetConnection("peer", connection, p.now))
	if peers := p.b.m.Peers("peer"); len(peers) != 1 || peers[0].ID != id || len(peers[0].Children) != 1 || peers[0].Children[0].Name != "signalling" {
		t.Fatalf("peers %+v", peers)
	}
	for _, child := range p.b.in {
		if child.Conf.Serves.Tunnel != "ue-7" {
			t.Errorf("the child serves %+v", child.Conf.Serves)
		}
	}
	o.steps = nil
	p.pass(5 * time.Second)
	// The peer sends INITIAL_CONTACT.
	if peers := p.b.m.Peers("peer"); len(peers) != 1 || peers[0].ID == id {
		t.Errorf("peers %+v", peers)
	}
	if down := toldOf[PeerDown](p.b); len(down) != 1 || down[0].Peer.ID != id {
		t.Errorf("down %+v", down)
	}
	p.do(p.b, p.b.m.SetConnection("peer", nil, p.now))
	p.run()
	if p.b.records[connectionRecord+"peer"] != nil {
		t.Error("the record of the connection stays")
	}
}
