// SPDX-License-Identifier: Apache-2.0
// Lines that move between BNG and AGF service: a session keeps its kind of service until it ends, so the change of its profile ends it.

package subscriber

import (
	"unique"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber/rules"
)

// Renewer is an Access of subscribers that renew their lease and hear of an end of their session by no other message. A session of theirs that moves goes on
// until then (Manager.Moves).
type Renewer interface {
	Renews(protocol string) bool
}

const moved = "the line moves to another service"

// misplaced reports whether a profile gives the line another kind of service than the session has.
func (s *session) misplaced(p *api.SubscriberProfile) bool {
	some, all := rules.ByCore(p)
	if s.connection.Grant.Core != nil {
		return !some
	}
	return all
}

// lineProfile is the name of the profile of the session's line, whose back ends are asked: that of its grant has no say.
func (s *session) lineProfile() string { return or(s.serves, s.connection.Profile) }

// moves is misplaced by the profile of the session's line. m.mu is held.
func (m *manager) moves(s *session) bool {
	p := m.profiles[s.lineProfile()]
	return p != nil && s.misplaced(p)
}

// Serve implements Manager.
func (m *manager) Serve(id, profile string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil || s.state != up && s.state != connecting {
		return
	}
	if s.serves = unique.Make(profile).Value(); m.moves(s) {
		m.move(s)
	}
}

// Moves implements Manager.
func (m *manager) Moves(id, profile string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil || s.state != up {
		return false
	}
	p := m.profiles[profile]
	return p != nil && s.misplaced(p)
}

// move ends a session that moves, so that its subscriber dials in anew. m.mu is held.
func (m *manager) move(s *session) {
	a := m.accesses[s.connection.Protocol]
	if a == nil {
		// It moves when its access protocol has it.
		return
	}
	if r, is := a.(Renewer); is && r.Renews(s.connection.Protocol) {
		return
	}
	m.terminate(s, AdminReset, moved)
}

// moveRestored moves sessions of before a restart whose profile changed meanwhile. Their access protocol has them.
func (m *manager) moveRestored(all []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range all {
		if s.state == up && m.moves(s) {
			m.move(s)
		}
	}
}

// ends returns the number of sessions that end when a SubscriberProfile becomes p.
func (m *manager) ends(name string, p *api.SubscriberProfile) (sessions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.profiles[name]
	if p == nil || before == nil || !rules.Moves(before, p) {
		return 0
	}
	for _, s := range m.sessions {
		if s.state == up && s.lineProfile() == name && s.misplaced(p) {
			sessions++
		}
	}
	return sessions
}
