// SPDX-License-Identifier: Apache-2.0
// Relays with a SubscriberProfile: back ends authenticate a client before its messages reach a server, and the Manager of subscribers has the
// sessions. The server gives the addresses.

package dhcp

import (
	"container/list"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	// Of the Manager: sessions of relays.
	protocolName = "dhcp-relay"
	// A client that was refused is not asked for again for so long.
	refusalTime = 10 * time.Second
	// A client that is authenticated may take so long to get a lease, and so long may a back end take to answer.
	unboundTime = time.Minute
	// Clients of all relays that have no lease.
	maxUnbound = 1 << 18
)

// Actions on the Manager, in the order in which they are given.
type (
	// Authenticate asks for a client. The answer goes to Authenticated.
	Authenticate struct{ Request subscriber.Request }
	// Connect asks for a session. The result goes to Connected.
	Connect struct{ Connection subscriber.Connection }
	// Extend changes the addresses of a session. The result goes to Connected.
	Extend struct {
		ID     string
		Change func(*subscriber.Connection)
	}
	// Disconnect ends a session.
	Disconnect struct {
		ID    string
		Cause subscriber.Cause
	}
)

func (Authenticate) action() {}
func (Connect) action()      {}
func (Extend) action()       {}
func (Disconnect) action()   {}

// line is what a trusted access node says of a client's line, and option 60.
type line struct {
	circuitID, remoteID []byte
	attributes          map[uint8][]byte
	service             string
}

// unboundClient is a client without a lease, of a relay with a profile.
type unboundClient struct {
	client  clientKey
	request subscriber.Request
	grant   subscriber.Grant
	// The back ends have answered. Otherwise waiting has the latest message of each family.
	admitted, refused bool
	waiting           [2]*Packet
	// Its places in Machine.refused and Machine.refusedOf; nil: it was not refused.
	place, placeOf *list.Element
	deadline.Timer
}

// session of a lease at the Manager.
type session struct {
	request subscriber.Request
	grant   subscriber.Grant
	// The Manager has it.
	up bool
	// A Connect or Extend is on its way, for these addresses. Then is done after it, waiting after the next one.
	busy          bool
	then, waiting []Action
	// The addresses changed meanwhile.
	changed bool
	// Of the last change that was asked for, and of the last one that the data plane has.
	asked, has []netip.Prefix
	cause      subscriber.Cause
}

// admits reports whether a message of a client may reach a server. Otherwise it waits for the back ends, or is dropped.
func (m *Machine) admits(p Packet, r *relay, client clientKey, four bool, of line) bool {
	family, waiting := "ipv6", 1
	if four {
		family, waiting = "ipv4", 0
	}
	switch l := m.leases[client]; {
	case r.spec.Profile == "":
		return true
	case !m.managed:
		m.do(Count{family, "", "not-ready"})
		return false
	case l != nil && l.session != nil:
		return true
	}
	v := m.unbound[client]
	switch {
	case v != nil && v.refused:
		m.do(Count{family, "", "rejected"})
		return false
	case v != nil && v.admitted:
		m.unboundEnds.Set(v, m.now.Add(unboundTime))
		return true
	}
	p.Frame = slices.Clone(p.Frame)
	if v != nil {
		v.waiting[waiting] = &p
		return false
	}
	// Clients that were refused make room: a host with many MACs does not shut its neighbours out.
	if old := m.refusedOf[client.circuit]; old != nil && m.unboundOf[client.circuit] >= r.leasesOfCircuit {
		m.leave(old.Front().Value.(*unboundClient))
	}
	if old := m.refused.Front(); old != nil && len(m.unbound) >= maxUnbound {
		m.leave(old.Value.(*unboundClient))
	}
	if m.unboundOf[client.circuit] >= r.leasesOfCircuit || len(m.unbound) >= maxUnbound {
		m.do(Count{family, "", "too-many-leases"})
		return false
	}
	v = &unboundClient{client: client, request: subscriber.Request{Protocol: protocolName, Profile: r.spec.Profile, ID: m.newID(), Service: of.service,
		Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: p.Dataplane, Port: p.Port, OuterVLAN: client.outer, InnerVLAN: client.inner},
			MAC: subscriber.MAC(client.mac), CircuitID: slices.Clone(of.circuitID), RemoteID: slices.Clone(of.remoteID), Attributes: of.attributes}}}
	v.waiting[waiting] = &p
	m.unbound[client], m.byID[v.request.ID] = v, v
	m.unboundOf[client.circuit]++
	m.unboundEnds.Set(v, m.now.Add(unboundTime))
	m.do(Authenticate{v.request})
	return false
}

// refuse keeps a client whose session is refused away from back ends and servers for a while.
func (m *Machine) refuse(v *unboundClient) {
	if m.unbound[v.client] != nil || len(m.unbound) >= maxUnbound {
		return
	}
	m.markRefused(v)
	m.unbound[v.client], m.byID[v.request.ID] = v, v
	m.unboundOf[v.client.circuit]++
	m.unboundEnds.Set(v, m.now.Add(refusalTime))
}

func (m *Machine) markRefused(v *unboundClient) {
	v.refused = true
	v.place, v.placeOf = m.refused.PushBack(v), push(m.refusedOf, v.client.circuit, v)
}

func (m *Machine) leave(v *unboundClient) {
	if m.unbound[v.client] != v {
		return
	}
	delete(m.unbound, v.client)
	delete(m.byID, v.request.ID)
	m.unboundEnds.Remove(v)
	if v.place != nil {
		m.refused.Remove(v.place)
		remove(m.refusedOf, v.client.circuit, v.placeOf)
	}
	if m.unboundOf[v.client.circuit]--; m.unboundOf[v.client.circuit] == 0 {
		delete(m.unboundOf, v.client.circuit)
	}
}

// Authenticated takes the back ends' answer about a client. Its messages that wait go to the servers.
func (m *Machine) Authenticated(id string, a subscriber.Answer, now time.Time) []Action {
	m.now = now
	v := m.byID[id]
	if v == nil || v.admitted || v.refused {
		return nil
	}
	waiting := v.waiting
	v.waiting = [2]*Packet{}
	if a.Reject != nil {
		m.markRefused(v)
		m.unboundEnds.Set(v, now.Add(refusalTime))
		return m.drop("", "", "rejected")
	}
	v.admitted, v.grant = true, a.Grant
	m.unboundEnds.Set(v, now.Add(unboundTime))
	var all []Action
	for _, p := range waiting {
		if p != nil {
			all = append(all, m.Receive(*p, now)...)
		}
	}
	return all
}

// sessionFor is the session of a new lease; nil: the client is not authenticated any more.
func (m *Machine) sessionFor(client clientKey) *session {
	v := m.unbound[client]
	if v == nil || !v.admitted {
		return nil
	}
	return &session{request: v.request, grant: v.grant}
}

// addressed is a connection with the addresses of a lease. The Session has one address of each kind, and further ones as routes.
func (l *lease) addressed(r *relay) func(*subscriber.Connection) {
	g := subscriber.Grant{VRF: vrfOf(r.spec.Vrf)}
	for _, b := range l.bindings {
		switch single := b.prefix.IsSingleIP(); {
		case b.prefix.Addr().Is4() && !g.IPv4.IsValid():
			g.IPv4 = b.prefix.Addr()
		case b.prefix.Addr().Is6() && single && !g.IPv6.IsValid():
			g.IPv6 = b.prefix.Addr()
		case b.prefix.Addr().Is6() && !single && !g.Delegated.IsValid():
			g.Delegated = b.prefix
		default:
			g.Routes = append(g.Routes, b.prefix)
		}
	}
	routes := l.session.grant.Routes
	return func(c *subscriber.Connection) {
		c.IPv4, c.IPv6, c.AssignedElsewhere = g.IPv4.IsValid(), g.IPv6.IsValid() || g.Delegated.IsValid(), true
		to := &c.Grant
		to.VRF, to.IPv4, to.IPv6, to.Delegated, to.IPv6Prefix = g.VRF, g.IPv4, g.IPv6, g.Delegated, netip.Prefix{}
		to.Routes = slices.Concat(routes, g.Routes)
	}
}

func (l *lease) prefixes() (all []netip.Prefix) {
	for _, b := range l.bindings {
		all = append(all, b.prefix)
	}
	return all
}

// form is the VRF and the addresses of a lease's session.
func (l *lease) form(r *relay) string {
	all := []string{vrfOf(r.spec.Vrf)}
	for _, b := range l.bindings {
		all = append(all, b.prefix.String())
	}
	slices.Sort(all[1:])
	return strings.Join(all, " ")
}

// tell gives the Manager the addresses of a lease that changed, one change after the other. `then` is done when the data plane has the session.
func (m *Machine) tell(r *relay, l *lease, then []Action) {
	s, written := l.session, l.form(r)
	switch {
	case l.written == written:
		s.then = append(s.then, then...)
		return
	case s.busy:
		s.changed = true
		s.waiting = append(s.waiting, then...)
		return
	}
	l.written = written
	s.busy, s.then = true, append(s.then, then...)
	s.asked = l.prefixes()
	change := l.addressed(r)
	if s.up {
		m.do(Extend{s.request.ID, change})
		return
	}
	if v := m.unbound[l.client]; v != nil {
		m.leave(v)
	}
	m.bySession[s.request.ID] = l
	k := l.client
	c := subscriber.Connection{Request: s.request, Grant: s.grant, Access: &api.Access{Port: k.port, OuterVlan: uint32(k.outer), InnerVlan: uint32(k.inner), Mac: k.mac.String()}}
	change(&c)
	m.do(Connect{c})
}

// Connected takes the result of Connect or Extend.
func (m *Machine) Connected(id string, err error, now time.Time) []Action {
	m.now = now
	l := m.bySession[id]
	if l == nil {
		if err == nil {
			m.do(Disconnect{id, subscriber.NASRequest})
		}
		return m.done()
	}
	s := l.session
	then := s.then
	s.busy, s.then = false, nil
	if err != nil && s.up && !errors.Is(err, subscriber.ErrNoSession) {
		// The session keeps the addresses that it had. The client gets no answer, and shall not use the new ones.
		m.do(Count{"", "", "session-refused"})
		l.drop(func(b binding) bool { return slices.Contains(s.asked, b.prefix) && !slices.Contains(s.has, b.prefix) })
		waiting := s.waiting
		l.written, s.changed, s.waiting, s.cause = "", false, nil, subscriber.NASError
		m.settle(l, waiting...)
		s.cause = 0
		return m.done()
	}
	if err != nil {
		// The client shall not use addresses that do not work.
		m.do(Count{"", "", "session-refused"})
		l.bindings, s.cause = nil, subscriber.NASError
		m.settle(l)
		m.refuse(&unboundClient{client: l.client, request: s.request})
		return m.done()
	}
	s.up, s.has = true, s.asked
	// A client that has its ACK outlives the agent: without the record of its lease, the next one would end the session.
	if len(then) > 0 {
		m.do(AfterSaved{then})
	}
	if s.changed {
		waiting := s.waiting
		s.changed, s.waiting = false, nil
		m.settle(l, waiting...)
	}
	return m.done()
}

// Terminated: the Manager has ended a session.
func (m *Machine) Terminated(id string, now time.Time) []Action {
	m.now = now
	if l := m.bySession[id]; l != nil {
		delete(m.bySession, id)
		l.bindings = nil
		m.settle(l)
	}
	return m.done()
}

// Managed sets whether there is a Manager whose sessions from before a restart are known.
func (m *Machine) Managed(yes bool, now time.Time) []Action {
	m.now, m.managed = now, yes
	for _, l := range m.leasesWithSession() {
		switch {
		case !yes:
			l.session.up, l.session.busy = false, false
		case !l.session.up:
			// The agent ended before the Manager had it, or the Manager ended it.
			l.bindings = nil
			m.settle(l)
		default:
			m.settle(l)
		}
	}
	return m.done()
}

func (m *Machine) leasesWithSession() (all []*lease) {
	for _, l := range m.leases {
		if l.session != nil {
			all = append(all, l)
		}
	}
	return all
}

// RestoreSession takes up a session of the Manager. One without a lease ends.
func (m *Machine) RestoreSession(c subscriber.Connection, now time.Time) []Action {
	m.now = now
	l := m.bySession[c.ID]
	if l == nil {
		m.do(Disconnect{c.ID, subscriber.NASRequest})
		return m.done()
	}
	l.session.up, l.session.request, l.session.grant, l.session.has = true, c.Request, c.Grant, l.prefixes()
	// Those that were granted, without those of the lease.
	l.session.grant.Routes = slices.DeleteFunc(slices.Clone(c.Grant.Routes), func(p netip.Prefix) bool {
		return slices.ContainsFunc(l.bindings, func(b binding) bool { return b.prefix == p })
	})
	if r := m.relayOf(l.client.port, l.client.outer, l.client.inner); r != nil {
		// Nothing changes, unless the agent ended between the record of the lease and that of the session.
		restored := subscriber.Connection{Grant: subscriber.Grant{Routes: l.session.grant.Routes}}
		l.addressed(r)(&restored)
		if g, was := &restored.Grant, &c.Grant; g.IPv4 == was.IPv4 && g.IPv6 == was.IPv6 && g.Delegated == was.Delegated && g.VRF == was.VRF && len(g.Routes) == len(was.Routes) {
			l.written = l.form(r)
		}
	}
	return m.done()
}
