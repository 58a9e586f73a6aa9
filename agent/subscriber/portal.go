// SPDX-License-Identifier: Apache-2.0
// Walled gardens: which Portal a session's redirection means.

package subscriber

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/api"
)

func (m *manager) setPortal(name string, p *api.Portal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p == nil {
		delete(m.portals, name)
	} else {
		m.portals[name] = p
	}
	if !m.ready {
		return
	}
	// A URL may mean another Portal now.
	for _, s := range m.sessions {
		if s.state == up && strings.Contains(s.connection.Grant.Redirect, "://") {
			m.apply(s, nil)
		}
	}
}

func hostOf(written string) string {
	u, err := url.Parse(written)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// portalOf returns the Portal that a redirection means: by its name, or by the host of a URL; empty: none.
func (m *manager) portalOf(redirect string) string {
	if redirect == "" || m.portals[redirect] != nil {
		return redirect
	}
	host := hostOf(redirect)
	if host == "" {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(m.portals)) {
		if hostOf(m.portals[name].GetUrl()) == host {
			return name
		}
	}
	return ""
}

// Garden implements Gardens.
func (m *manager) Garden(session string) Garden {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.bySession[session]
	if s == nil || s.lease.Portal == "" {
		return Garden{}
	}
	g := Garden{Portal: s.lease.Portal, MAC: s.connection.Line.MAC.String(), Username: readable(s.connection.Username)}
	if redirect := s.connection.Grant.Redirect; strings.Contains(redirect, "://") {
		g.URL = redirect
	}
	return g
}
