// SPDX-License-Identifier: Apache-2.0
// The Manager's configuration: pools, users and profiles.

package subscriber

import (
	"iter"
	"maps"
	"slices"

	"sluice.dev/sluice/agent/api"
)

func (m *manager) setPool(name string, spec *api.AddressPool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[name]
	switch {
	case spec == nil && p != nil:
		// Sessions that have an address of it keep it, with its gateway and its name servers.
		delete(m.pools, name)
		p.deleted, p.spans, p.remembered, p.queue = true, nil, nil, nil
		for _, other := range m.pools {
			// Another pool with the same ranges may have passed addresses that this pool had.
			other.again = other.again || other.vrf == p.vrf && other.four == p.four
		}
		if p.used > 0 {
			m.settleAll(maps.Values(m.pools))
		}
	case spec == nil:
	case p == nil:
		m.pools[name] = newPool(name, spec)
		m.pools[name].restore(m.stickyOf(name))
		m.settleAll(slices.Values([]*pool{m.pools[name]}))
	default:
		p.configure(spec)
		m.settleAll(slices.Values([]*pool{p}))
	}
}

// settleAll gives addresses without a pool to those of the pools that have them. m.mu is held.
func (m *manager) settleAll(pools iter.Seq[*pool]) {
	if !m.ready {
		return // begin does it
	}
	for _, s := range m.sessions {
		s.settle(pools)
	}
	for _, g := range m.guests {
		g.settle(pools)
	}
}

func (m *manager) setUser(name string, u *api.LocalUser) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, was := m.userOf[name]; was {
		delete(m.users, before)
		delete(m.userOf, name)
	}
	if u != nil {
		m.users[u.Username], m.userOf[name] = u, u.Username
	}
}

func (m *manager) setProfile(name string, p *api.SubscriberProfile) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == nil {
		delete(m.profiles, name)
		return
	}
	m.profiles[name] = p
	if !m.ready {
		return
	}
	// Sessions that are up follow the profile.
	for _, s := range m.sessions {
		if (s.state == up || s.state == connecting) && s.lineProfile() == name && s.misplaced(p) {
			m.move(s)
		}
		if s.state == up && m.profileName(&s.connection) == name {
			m.apply(s, nil)
			m.schedule(s)
		}
	}
}

func (m *manager) profileName(c *Connection) string { return or(c.Grant.Profile, c.Profile) }

func (m *manager) times(s *session) times {
	return timesBy(&s.connection.Grant, m.profiles[m.profileName(&s.connection)])
}

func (m *manager) allowed(s *session) allowed {
	a := allowedBy(&s.connection.Grant, m.profiles[m.profileName(&s.connection)])
	if mtu := s.connection.MTU; mtu != 0 && (a.policy.Mtu == 0 || mtu < a.policy.Mtu) {
		a.policy.Mtu = mtu
	}
	// Without its Portal, the session does not forward: a deleted Portal does not open the garden.
	a.policy.Portal = or(m.portalOf(a.redirect), a.redirect)
	return a
}
