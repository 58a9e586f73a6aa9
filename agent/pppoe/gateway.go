// SPDX-License-Identifier: Apache-2.0
// Links of 5G residential gateways: the peer chose EAP, and a wcp.Server serves it.

package pppoe

import (
	"context"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/wcp"
)

// Actions on the wcp.Server, in the order in which they are given.
type (
	// Delegate opens a connection for a link.
	Delegate struct{ Peer wcp.Peer }
	// Carry has a packet of the peer.
	Carry struct {
		ID       string
		Protocol wcp.Protocol
		Packet   []byte
	}
	// Down: the link is gone.
	Down struct{ ID, Reason string }
)

func (Delegate) action() {}
func (Carry) action()    {}
func (Down) action()     {}

// delegate gives a session to the wcp.Server. A peer that negotiates LCP anew begins anew, with discovery: the session is over.
func (m *Machine) delegate(s *session) bool {
	switch {
	case s.delegated:
		m.end(s, subscriber.UserRequest, "the 5G residential gateway negotiates LCP again", true)
		return false
	case s.state != negotiating:
		m.end(s, subscriber.UserRequest, "its host chose EAP after another method", true)
		return false
	}
	s.pads = nil
	// The Manager does not know it.
	s.delegated, s.disconnected = true, true
	line := m.lineOf(s)
	line.CircuitID, line.RemoteID = s.request.Line.CircuitID, s.request.Line.RemoteID
	m.do(Delegate{wcp.Peer{ID: s.id, Line: line, Profile: s.server.spec.Profile}})
	return true
}

// delegated is a session that the wcp.Server has; nil: it is gone.
func (m *Machine) delegated(id string) *session {
	if s := m.byID[id]; s != nil && s.delegated {
		return s
	}
	return nil
}

// Transmit sends a packet to a 5G residential gateway.
func (m *Machine) Transmit(id string, p wcp.Protocol, packet []byte, now time.Time) []Action {
	m.now = now.UnixNano()
	if s := m.delegated(id); s != nil {
		m.actions = s.link.Transmit(ppp.Protocol(p), packet, m.actions[:0])
		m.carryOut(s)
	}
	return m.done()
}

// Vouch: the core has authenticated a 5G residential gateway.
func (m *Machine) Vouch(id string, now time.Time) []Action {
	m.now = now.UnixNano()
	if s := m.delegated(id); s != nil && s.state != up {
		s.link.Authenticated()
		m.connected(s)
		m.settle(s)
	}
	return m.done()
}

// HangUp ends the link of a 5G residential gateway. One that the core has not authenticated pauses as a rejected host does.
func (m *Machine) HangUp(id, reason string, now time.Time) []Action {
	m.now = now.UnixNano()
	if s := m.delegated(id); s != nil {
		if s.state != up {
			m.rejected.add(hostKey{s.key.circuitKey, s.mac}, m.now)
		}
		m.end(s, subscriber.UserError, reason, true)
	}
	return m.done()
}

// HangUpAll ends the links of all 5G residential gateways: the wcp.Server is gone.
func (m *Machine) HangUpAll(reason string, now time.Time) []Action {
	m.now = now.UnixNano()
	for _, s := range m.all() {
		if s.delegated {
			m.end(s, subscriber.AdminReset, reason, true)
		}
	}
	return m.done()
}

// ---- The service's part

// gatewayLink is a wcp.Link.
type gatewayLink struct {
	s  *serving
	id string
}

// Send implements wcp.Link.
func (l gatewayLink) Send(p wcp.Protocol, packet []byte) {
	l.s.locked(func() []Action { return l.s.machine.Transmit(l.id, p, packet, time.Now()) })
}

// Authenticated implements wcp.Link.
func (l gatewayLink) Authenticated() {
	l.s.locked(func() []Action { return l.s.machine.Vouch(l.id, time.Now()) })
}

// Close implements wcp.Link.
func (l gatewayLink) Close(reason string) {
	l.s.locked(func() []Action { return l.s.machine.HangUp(l.id, reason, time.Now()) })
}

// attachGateways follows the wcp.Server that there is.
func (s *serving) attachGateways(ctx context.Context) {
	for ctx.Err() == nil {
		server, changed, err := service.Find[wcp.Server](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		before := s.gateways
		s.gateways = server
		s.mu.Unlock()
		if before != nil && before != server {
			s.locked(func() []Action {
				return s.machine.HangUpAll("the service for 5G residential gateways started anew", time.Now())
			})
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// askGateways hands over to the wcp.Server. It is called by askManager, without a lock.
func (s *serving) askGateways(a Action) {
	switch a := a.(type) {
	case Delegate:
		s.mu.Lock()
		server := s.gateways
		s.mu.Unlock()
		link := gatewayLink{s, a.Peer.ID}
		if server == nil {
			link.Close("no AccessNode serves 5G residential gateways")
			return
		}
		s.connections[a.Peer.ID] = server.Open(a.Peer, link)
	case Carry:
		if c := s.connections[a.ID]; c != nil {
			c.Receive(a.Protocol, a.Packet)
		}
	case Down:
		if c := s.connections[a.ID]; c != nil {
			delete(s.connections, a.ID)
			c.Down(a.Reason)
		}
	}
}

// carry is a packet of a 5G residential gateway. The link's packet is the data plane's.
func (m *Machine) carry(s *session, a *ppp.Action) {
	if s.delegated {
		m.do(Carry{s.id, wcp.Protocol(a.Protocol), slices.Clone(a.Packet)})
	}
}
