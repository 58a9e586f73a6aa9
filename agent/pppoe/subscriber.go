// SPDX-License-Identifier: Apache-2.0
// Answers of the Manager of subscribers, and sessions that it restores or ends.

package pppoe

import (
	"cmp"
	"errors"
	"time"

	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

// longestText is of a text for a subscriber, as that of RADIUS's Reply-Message and of PAP.
const longestText = 253

// Authenticated takes the answer to an Authenticate.
func (m *Machine) Authenticated(id string, attempt uint8, username string, a subscriber.Answer, now time.Time) []Action {
	m.now = now.UnixNano()
	s := m.byID[id]
	switch {
	case s == nil:
	case a.Reject != nil:
		m.rejected.add(hostKey{s.key.circuitKey, s.mac}, m.now)
		m.reject(s, cmp.Or(a.Message, "not authenticated"))
	case attempt != s.attempt:
	case s.state == up && username != s.username:
		m.end(s, subscriber.UserError, "its host authenticates as another user", true)
	case s.state == up:
		m.actions = s.link.Resume(a.Message, m.now, m.actions[:0])
		m.carryOut(s)
	case s.state == asking:
		s.state, s.username = connecting, username
		c := subscriber.Connection{Request: *s.request, Grant: a.Grant, IPv4: true, IPv6: true, Access: m.access(s), MTU: m.mtuOf(s), State: m.stateOf(s)}
		m.do(Connect{c, a.Message})
	}
	return m.done()
}

// Connected takes the answer to Connect.
func (m *Machine) Connected(id string, l subscriber.Lease, interfaceID [8]byte, message string, err error, now time.Time) []Action {
	m.now = now.UnixNano()
	s := m.byID[id]
	if s == nil || s.state != connecting {
		return m.done()
	}
	if err != nil {
		m.dropped("not-connected")
		m.rejected.add(hostKey{s.key.circuitKey, s.mac}, m.now)
		s.disconnected = true
		m.reject(s, refusalText(err))
		return m.done()
	}
	m.connected(s)
	s.link.Watched(m.now)
	if s.pending == nil {
		m.actions = s.link.Accept(networkOf(l, interfaceID), message, m.now, m.actions[:0])
		m.carryOut(s)
		return m.done()
	}
	// The answer was to credentials before these.
	s.link.Change(networkOf(l, interfaceID), m.now)
	c := s.pending
	s.pending = nil
	m.authenticate(s, c)
	m.settle(s)
	return m.done()
}

// reject ends a session. A host that is about to negotiate LCP again gets no answer to its credentials.
func (m *Machine) reject(s *session, message string) {
	m.actions = s.link.Reject(message, m.now, m.actions[:0])
	m.carryOut(s)
	m.end(s, subscriber.UserError, "not authenticated", true)
}

// refusalText is the text for a host whose session the Manager refuses. The error itself may name other subscribers' sessions and addresses: it is
// for the log.
func refusalText(err error) string {
	switch {
	case errors.Is(err, subscriber.ErrExhausted):
		return "no address is free"
	case errors.Is(err, subscriber.ErrAddressInUse):
		return "the address is in use"
	case errors.Is(err, subscriber.ErrLimit):
		return "too many sessions"
	}
	return "the gateway cannot connect the session"
}

// Updated takes the answer to Update.
func (m *Machine) Updated(id string, l subscriber.Lease, now time.Time) []Action {
	m.now = now.UnixNano()
	if s := m.byID[id]; s != nil && s.state == up {
		s.link.Change(networkOf(l, [8]byte{}), m.now)
		m.settle(s)
	}
	return m.done()
}

// Restore takes up a session from before a restart. It returns false if no server covers its circuit.
func (m *Machine) Restore(c subscriber.Connection, l subscriber.Lease, now time.Time) ([]Action, bool) {
	m.now = now.UnixNano()
	if m.byID[c.ID] != nil {
		return nil, true
	}
	tags, mac, state, ok := restoreState(c.State)
	id := c.PPPoESessionID
	at := place{c.Line.Dataplane, c.Line.Port}
	key := sessionKey{circuitKey{m.numberOf(at), c.Line.OuterVLAN, c.Line.InnerVLAN}, id}
	server := m.serverOf(key.circuitKey)
	if !ok || id == 0 || server == nil || m.sessions[key] != nil {
		return nil, false
	}
	if _, known := m.macs[key.place]; !known {
		// The data plane was not asked yet.
		m.macs[key.place] = mac
	}
	config := m.configOf(server, key.place)
	link, ok := ppp.Restore(config, state, networkOf(l, c.Grant.InterfaceID), m.now)
	if !ok {
		return nil, false
	}
	s := &session{key: key, mac: c.Line.MAC, tags: tags, server: server, link: link, id: c.ID, username: cmp.Or(c.Grant.Username, c.Username)}
	// A session of an agent that asked itself has no interval.
	if c.Access.GetLcpEchoInterval() != 0 {
		s.link.Watched(m.now)
	}
	request := c.Request
	s.keepRequest(&request)
	m.enter(s, true)
	m.settle(s)
	if server.spec.Profile != c.Profile {
		m.do(Serve{s.id, server.spec.Profile})
	}
	return m.done(), true
}

// Lost takes an Echo-Request that the peer of a session did not answer, as the data plane sent it.
func (m *Machine) Lost(p Packet, now time.Time) []Action {
	m.now = now.UnixNano()
	f, ok := parseFrame(p.Frame)
	if !ok || f.etherType != typeSession {
		m.dropped("malformed")
		return m.done()
	}
	_, id, _, ok := parsePPPoE(f.payload)
	s := m.sessions[sessionKey{circuitKey{m.numberOf(place{p.Dataplane, p.Port}), f.outer, f.inner}, id}]
	switch {
	case !ok:
		m.dropped("malformed")
	case s == nil || s.mac != f.destination || s.state != up:
		m.dropped("unknown-session")
	default:
		m.actions = s.link.Lost(m.now, m.actions[:0])
		m.carryOut(s)
	}
	return m.done()
}

// Restored sets whether all sessions from before a restart are known and the Manager is there. Until then, no host gets an answer.
func (m *Machine) Restored(yes bool) { m.restored = yes }

// Terminate ends a session that the Manager has ended. The host gets the text, or its beginning, in the Terminate-Request (RFC 1661 section 5.5).
func (m *Machine) Terminate(id string, cause subscriber.Cause, text string, now time.Time) []Action {
	m.now = now.UnixNano()
	if s := m.byID[id]; s != nil {
		s.disconnected = true
		m.end(s, cause, cmp.Or(text[:min(len(text), longestText)], "the gateway ends it"), true)
	}
	return m.done()
}
