// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Connections that belong to another service of the agent, such as an N3IWF (TS 24.502): the service decides which initiators are its own, runs
// the EAP method, adds notifications to IKE_AUTH, CREATE_CHILD_SA and INFORMATIONAL, gives addresses, and opens child SAs. The machine does the
// rest: keys, rekeys, MOBIKE, dead peer detection, restarts.

// Peer is an established IKE SA of such a connection, or one that authenticates.
type Peer struct {
	// ID does not change while the IKE SA is rekeyed, and a new agent takes it over.
	ID         uint64
	Connection string
	Identity   Identity
	Username   string
	// Where IKE and ESP packets go.
	Dataplane, VRF string
	Local, Remote  netip.AddrPort
	// ESP is in UDP.
	UDP bool
	// Inner addresses.
	Addresses []netip.Addr
	Children  []ChildState
}

// ChildState is an installed child SA.
type ChildState struct {
	// Name of the Child that it was made from. A rekeyed child SA keeps it.
	Name          string
	SPIIn, SPIOut uint32
	// On our side, and on the peer's.
	Local, Remote []message.Selector
	// Names of the SecurityAssociation objects.
	Inbound, Outbound string
}

// ErrPeer: there is no established IKE SA with the ID.
var ErrPeer = errors.New("unknown IKE peer")

// Questions to the service that owns a connection. Machine.Answered takes the answer. EAPStep is one as well.

// FinishAuth asks for the contents of the last IKE_AUTH response. The peer is authenticated. The answer is a Finished.
type FinishAuth struct {
	Peer Peer
	// Attributes of the peer's configuration request, and the notifications of its first IKE_AUTH request.
	Attributes []message.Attribute
	Notify     []*message.Notify
}

// Finished answers FinishAuth.
type Finished struct {
	// Inner addresses of the peer, and its name servers.
	Addresses, DNS []netip.Addr
	// Further attributes of the configuration reply, and notifications.
	Attributes []message.Attribute
	Notify     []*message.Notify
	// Candidates for the first child SA; nil: the children of the connection.
	Children []*Child
	// The peer is refused with AUTHENTICATION_FAILED and the notifications.
	Err error
}

// ProposeChild asks whether the peer may open another child SA. The answer is a ChildAccepted.
type ProposeChild struct {
	Peer   Peer
	Notify []*message.Notify
}

// ChildAccepted answers ProposeChild. No child: NO_ADDITIONAL_SAS.
type ChildAccepted struct {
	Child  *Child
	Notify []*message.Notify
}

// Notified asks for an answer to notifications of INFORMATIONAL whose types are for private use. The answer is a NotifiedAnswer.
type Notified struct {
	Peer   Peer
	Notify []*message.Notify
}

// NotifiedAnswer answers Notified.
type NotifiedAnswer struct{ Notify []*message.Notify }

// Actions for the service that owns a connection.

// PeerUp: an IKE SA is established.
type PeerUp struct{ Peer Peer }

// PeerMoved: the peer has another outer address or port.
type PeerMoved struct{ Peer Peer }

// PeerDown: an IKE SA and its children are gone.
type PeerDown struct {
	Peer Peer
	Why  string
}

// ChildUp: the data plane has a child SA. Replaces is the inbound SPI of the one that a rekey replaces; 0: none.
type ChildUp struct {
	Peer     Peer
	Child    ChildState
	Replaces uint32
}

// ChildDown: a child SA is gone. Replaced: a rekey has replaced it.
type ChildDown struct {
	Peer     Peer
	Child    ChildState
	Replaced bool
}

// ChildOpened is the outcome of OpenChild: the data plane has the child SA, or Err is the reason why there is none.
type ChildOpened struct {
	Connection string
	Token      uint64
	Child      ChildState
	// Notifications of the peer's response.
	Notify []*message.Notify
	Err    error
}

// NotifyAnswered is the outcome of Inform.
type NotifyAnswered struct {
	Connection string
	Token      uint64
	Notify     []*message.Notify
	Err        error
}

// childAsk is a child SA that the owner asked for.
type childAsk struct {
	token uint64
	// Notifications of the request, and those of the response.
	notify, answer []*message.Notify
}

func payloadsOf(all []*message.Notify) (payloads []message.Payload) {
	for _, one := range all {
		payloads = append(payloads, one)
	}
	return payloads
}

// child describes a child SA to the connection's owner.
func (c *ChildSA) state() ChildState {
	return ChildState{Name: c.Conf.Name, SPIIn: c.SPIIn, SPIOut: c.SPIOut, Local: c.Local, Remote: c.Remote, Inbound: associationName(c, false), Outbound: associationName(c, true)}
}

// described describes the IKE SA to the connection's owner.
func (s *ikeSA) described() Peer {
	p := Peer{ID: s.id, Connection: s.conn.Name, Identity: s.peer, Username: s.username, Dataplane: s.dataplane, VRF: s.vrf, Local: s.local, Remote: s.remote,
		UDP: s.natHere || s.natThere, Addresses: slices.Clone(s.addresses)}
	for _, c := range s.sortedChildren() {
		if !c.deleting && !c.replaced {
			p.Children = append(p.Children, c.state())
		}
	}
	return p
}

// settle reports the outcome of a child SA that the owner asked for. c: nil if there is none.
func (s *ikeSA) settle(a *childAsk, c *ChildSA, err error) {
	if a == nil || !s.asks[a.token] {
		return
	}
	delete(s.asks, a.token)
	one := ChildOpened{Connection: s.conn.Name, Token: a.token, Notify: a.answer, Err: err}
	if c != nil {
		one.Child = c.state()
	}
	s.m.act(one)
}

// settleAll reports an error for each open call of the owner: the IKE SA has ended.
func (s *ikeSA) settleAll(why string) {
	for token := range s.asks {
		s.m.act(ChildOpened{Connection: s.conn.Name, Token: token, Err: errors.New(why)})
	}
	for token := range s.informs {
		s.m.act(NotifyAnswered{Connection: s.conn.Name, Token: token, Err: errors.New(why)})
	}
	s.asks, s.informs = nil, nil
}

// finishOwned asks the owner for the last IKE_AUTH response.
func (s *ikeSA) finishOwned(a *authentication, payloads []message.Payload, now time.Time) {
	what := FinishAuth{Peer: s.described(), Notify: a.first.notification}
	if a.first.cp != nil && a.first.cp.Kind == message.ConfigurationRequest {
		what.Attributes = a.first.cp.Attributes
	}
	s.suspended = true
	s.ask(what, func(answer any, now time.Time) {
		s.suspended = false
		f, _ := answer.(Finished)
		if f.Err != nil {
			s.m.count("failure", message.AuthenticationFailed.String())
			s.respond(message.IKEAuth, nil, append(payloadsOf(f.Notify), &message.Notify{Kind: message.AuthenticationFailed, Data: []byte{}})...)
			s.close(now, f.Err.Error())
			return
		}
		s.addresses, s.confs = f.Addresses, f.Children
		if len(f.Addresses)+len(f.DNS)+len(f.Attributes) > 0 {
			payloads = append(payloads, configurationReply(f.Addresses, f.DNS, f.Attributes))
		}
		s.completeAuth(a, append(payloads, payloadsOf(f.Notify)...), now)
	})
}

// configurationReply is a Configuration payload with addresses (RFC 7296 section 2.19).
func configurationReply(addresses, dns []netip.Addr, more []message.Attribute) *message.Configuration {
	reply := &message.Configuration{Kind: message.ConfigurationReply}
	add := func(kind uint16, value []byte) {
		reply.Attributes = append(reply.Attributes, message.Attribute{Type: kind, Value: value})
	}
	for _, a := range addresses {
		if a.Is4() {
			add(message.InternalIP4Address, a.AsSlice())
		} else {
			add(message.InternalIP6Address, append(a.AsSlice(), 128))
		}
	}
	for _, a := range dns {
		if a.Is4() {
			add(message.InternalIP4DNS, a.AsSlice())
		} else {
			add(message.InternalIP6DNS, a.AsSlice())
		}
	}
	reply.Attributes = append(reply.Attributes, more...)
	return reply
}

// peerOf returns an established IKE SA of a connection that another service owns.
func (m *Machine) peerOf(id uint64) (*ikeSA, error) {
	s := m.peers[id]
	if s == nil || s.state != established {
		return nil, fmt.Errorf("%w %016x", ErrPeer, id)
	}
	return s, nil
}

// Peers returns the established IKE SAs of a connection, by their IDs.
func (m *Machine) Peers(connection string) (all []Peer) {
	for _, s := range m.of(connection) {
		if s.state == established {
			all = append(all, s.described())
		}
	}
	return all
}

// OpenChild opens a child SA by CREATE_CHILD_SA, with notifications. ChildOpened with the token is the outcome.
func (m *Machine) OpenChild(id uint64, child *Child, notify []*message.Notify, token uint64, now time.Time) ([]Action, error) {
	s, err := m.peerOf(id)
	if err != nil {
		return nil, err
	}
	if len(s.children) >= maxChildren || len(s.queue) >= maxQueue {
		return nil, fmt.Errorf("the IKE peer %016x has %d child SAs and %d requests that wait", id, len(s.children), len(s.queue))
	}
	a := &childAsk{token: token, notify: notify}
	if s.asks == nil {
		s.asks = map[uint64]bool{}
	}
	s.asks[token] = true
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		if s.state != established {
			s.settle(a, nil, errors.New("the IKE SA ends"))
			return false
		}
		if !s.create(child, nil, 0, a, now) {
			s.settle(a, nil, errors.New("the proposal has no usable key exchange"))
			return false
		}
		return true
	})
	return m.done(), nil
}

// CloseChild deletes the child SAs of a peer that have a name. It returns how many there were.
func (m *Machine) CloseChild(id uint64, name string, now time.Time) ([]Action, int, error) {
	s, err := m.peerOf(id)
	if err != nil {
		return nil, 0, err
	}
	n := 0
	for _, c := range s.sortedChildren() {
		if c.Conf.Name == name && !c.deleting {
			s.deleteChild(c, now)
			n++
		}
	}
	return m.done(), n, nil
}

// Inform sends notifications about a child SA by INFORMATIONAL: those with the protocol ESP get its SPI, of packets to us. child "": about none.
// NotifyAnswered with the token brings the peer's notifications, or an error if it refuses.
func (m *Machine) Inform(id uint64, child string, notify []*message.Notify, token uint64, now time.Time) ([]Action, error) {
	s, err := m.peerOf(id)
	if err != nil {
		return nil, err
	}
	if len(s.queue) >= maxQueue {
		return nil, fmt.Errorf("the IKE peer %016x has %d requests that wait", id, len(s.queue))
	}
	if s.informs == nil {
		s.informs = map[uint64]bool{}
	}
	s.informs[token] = true
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		answered := func(one NotifyAnswered) {
			if s.informs[token] {
				delete(s.informs, token)
				one.Connection, one.Token = s.conn.Name, token
				s.m.act(one)
			}
		}
		about := notify
		if child != "" {
			if about = s.about(child, notify); about == nil {
				answered(NotifyAnswered{Err: fmt.Errorf("the peer has no child SA %s", child)})
				return false
			}
		}
		s.request(message.Informational, now, func(all []message.Payload, _ time.Time) {
			p := readAuth(all)
			one := NotifyAnswered{Notify: p.notification}
			if p.err != nil {
				one.Err = fmt.Errorf("the peer refuses: %s", p.err.Kind)
			}
			answered(one)
		}, payloadsOf(about)...)
		return true
	})
	return m.done(), nil
}

// about returns notifications with the SPI of a child SA; nil: there is none of the name. While it is rekeyed, it is the newest.
func (s *ikeSA) about(child string, notify []*message.Notify) (all []*message.Notify) {
	for _, c := range s.sortedChildren() {
		if c.Conf.Name != child || c.deleting {
			continue
		}
		all = nil
		for _, one := range notify {
			copied := *one
			if one.Protocol == message.ProtocolESP {
				copied.SPI = spiBytes(c.SPIIn)
			}
			all = append(all, &copied)
		}
	}
	return all
}

// ClosePeer deletes an IKE SA with its children.
func (m *Machine) ClosePeer(id uint64, why string, now time.Time) ([]Action, error) {
	s, err := m.peerOf(id)
	if err != nil {
		return nil, err
	}
	s.terminate(now, why)
	return m.done(), nil
}

// owned informs the connection's owner, if another service owns it.
func (s *ikeSA) owned(what func() Action) {
	if s.conn.Owned {
		s.m.act(what())
	}
}

// Notification types from here on are for private use (RFC 7296 section 3.10.1): errors, and then status.
const (
	privateError  message.NotifyType = 8192
	privateStatus message.NotifyType = 40960
)

// privateOf returns the notifications whose types are for private use.
func privateOf(all []*message.Notify) (private []*message.Notify) {
	for _, n := range all {
		if n.Kind >= privateStatus || n.Kind >= privateError && n.Kind.Error() {
			private = append(private, n)
		}
	}
	return private
}
