// SPDX-License-Identifier: Apache-2.0
// The links of sessions: PPP packets, and actions of the automata.

package pppoe

import (
	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

func (m *Machine) receiveSession(key sessionKey, f *frame, payload []byte) {
	protocol, packet, ok := protocolOf(payload)
	if !ok || key.id == 0 {
		m.dropped("malformed")
		return
	}
	m.do(Count{Type: "ppp"})
	s := m.sessions[key]
	switch {
	case s == nil:
		m.dropped("unknown-session")
		// The host has a session that ended here, say while the agent was away. Packets that end one are not
		// answered.
		if _, known := m.macs[key.place]; known && m.serverOf(key.circuitKey) != nil && (protocol != ppp.LCP || len(packet) == 0 || packet[0] != 5 && packet[0] != 6) {
			m.sendPADT(key, f.source, &f.tags)
		}
		return
	case s.mac != f.source:
		m.dropped("mac")
		return
	}
	s.tags = f.tags
	m.actions = s.link.Receive(protocol, packet, m.now, m.actions[:0])
	m.carryOut(s)
}

// sendPackets sends the packets in m.actions.
func (m *Machine) sendPackets(s *session) {
	at, mac := m.places[s.key.place], m.macs[s.key.place]
	for _, a := range m.actions {
		if a.Kind == ppp.Send {
			m.do(SendFrame{at.dataplane, at.port, build(s.mac, mac, &s.tags, typeSession, codeSession, s.key.id, a.Packet)})
		}
	}
}

// carryOut carries out the actions of a link: m.actions.
func (m *Machine) carryOut(s *session) {
	m.sendPackets(s)
	for _, a := range m.actions {
		switch a.Kind {
		case ppp.Authenticate:
			if !m.authenticate(s, a.Credentials) {
				return
			}
		case ppp.Delegated:
			if !m.delegate(s) {
				return
			}
		case ppp.Carried:
			m.carry(s, &a)
		case ppp.Refused:
			if s.state >= connecting && !s.delegated {
				state, family := m.stateOf(s), a.Family
				m.do(Update{s.id, func(c *subscriber.Connection) {
					c.IPv4, c.IPv6, c.State = c.IPv4 && family != 4, c.IPv6 && family != 6, state
				}})
			}
		case ppp.Renegotiated:
			if s.state == up && !s.delegated {
				state, mtu, access := m.stateOf(s), m.mtuOf(s), m.access(s)
				m.do(Update{s.id, func(c *subscriber.Connection) {
					c.State, c.Access, c.MTU = state, access, mtu
				}})
			}
		case ppp.Dropped:
			m.dropped("ppp-" + a.Reason)
		case ppp.Finished:
			m.sendPADT(s.key, s.mac, &s.tags)
			m.end(s, a.Cause, a.Reason, false)
			return
		}
	}
	m.settle(s)
}

// mtuOf is the MTU of a link; 0: the port has room for no more.
func (m *Machine) mtuOf(s *session) uint32 {
	if mtu := uint32(max(s.link.MTU(), 1280)); mtu < m.room(m.places[s.key.place].port) {
		return mtu
	}
	return 0
}

// authenticate asks the Manager. A host that negotiated LCP again authenticates again, and keeps its addresses. False: the session is over.
func (m *Machine) authenticate(s *session, c *subscriber.Credentials) bool {
	s.pads = nil
	switch {
	case s.delegated:
		m.end(s, subscriber.UserRequest, "the 5G residential gateway negotiates LCP again", true)
		return false
	case s.state == connecting:
		s.pending = c
		return true
	case s.state == negotiating:
		s.state = asking
	}
	s.attempt++
	request := m.requestOf(s)
	request.Credentials = *c
	if s.state == asking {
		*s.request = request
	}
	m.do(Authenticate{request, s.attempt})
	return true
}

// requestOf is a session's request, without credentials if it is connected.
func (m *Machine) requestOf(s *session) subscriber.Request {
	if s.request != nil {
		return *s.request
	}
	return subscriber.Request{Protocol: protocolName, Profile: s.server.spec.Profile, ID: s.id, Line: m.lineOf(s), PPPoESessionID: s.key.id}
}

// keepRequest keeps what requestOf cannot make: most hosts have nothing of that.
func (s *session) keepRequest(r *subscriber.Request) {
	s.request = nil
	if r.Service != "" || len(r.Line.CircuitID) > 0 || len(r.Line.RemoteID) > 0 || len(r.Line.Attributes) > 0 {
		r.Credentials = subscriber.Credentials{}
		s.request = r
	}
}

func (m *Machine) lineOf(s *session) subscriber.Line {
	at := m.places[s.key.place]
	return subscriber.Line{Circuit: subscriber.Circuit{Dataplane: at.dataplane, Port: at.port, OuterVLAN: s.key.outer, InnerVLAN: s.key.inner}, MAC: s.mac}
}
