// SPDX-License-Identifier: Apache-2.0
// A client from its first message until its session ends: authenticated, connected, extended.

package ipoe

import (
	"cmp"
	"container/list"
	"errors"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

// client returns the client that sent a message; nil: a limit is reached, or ("") the client waits for a place on its line.
func (m *Machine) client(s *server, key clientKey, kind int, msg *message) (c *client, limit string) {
	line := lineKey{key.circuit, msg.line()}
	c = m.clients[key]
	if c != nil && c.phase == up && msg.renews() && m.moves != nil && m.moves(c.id, s.spec.Profile) {
		// The answer is that of the other service: DHCPNAK, unless the client keeps its address.
		m.end(c, subscriber.AdminReset)
		c = nil
	}
	if c != nil && c.isElsewhere(kind, msg) {
		if c.phase != refused {
			return nil, m.challenge(s, line, key, kind, msg)
		}
		m.forget(c)
		c = nil
	}
	if c != nil && (c.phase != refused || m.now.Before(c.Deadline()) && !(c.strange && kind != kindFirst)) {
		return c, ""
	}
	if m.pending[line] >= s.offers {
		return nil, "too-many-offers"
	}
	if old := c; old != nil && old.line != line && line.id != "" && old.line.id == "" {
		// A client that was refused is known by its line now.
		m.forget(old)
		c = nil
	}
	if c == nil {
		crowded := func() bool { return len(m.ofLine[line]) >= s.most }
		full := func() bool { return crowded() || len(m.clients) >= clientsInAll }
		// A host with many MACs that are refused does not shut its neighbours out.
		if old := m.refused[line]; old != nil && full() {
			m.forget(old.Front().Value.(*client))
		}
		switch {
		case crowded():
			return nil, m.challenge(s, line, key, kind, msg)
		case full():
			return nil, "too-many-clients"
		}
		c = &client{key: key, line: line, circuitID: slices.Clone(msg.circuitID), remoteID: slices.Clone(msg.remoteID), server: s.name, phase: refused}
		m.enter(c)
	}
	return c, ""
}

// renews: the client asks for a lease, or for more time with its lease.
func (msg *message) renews() bool {
	return msg.six != nil || msg.four != nil && msg.four.kind != dhcpv4.MessageTypeInform
}

// enter makes a client known.
func (m *Machine) enter(c *client) {
	m.clients[c.key] = c
	c.order = c.key.order()
	m.ordered.ReplaceOrInsert(c)
	all := m.ofLine[c.line]
	c.place = len(all)
	m.ofLine[c.line] = append(all, c)
}

// leave is the opposite of enter.
func (m *Machine) leave(c *client) {
	delete(m.clients, c.key)
	m.ordered.Delete(c)
	all := m.ofLine[c.line]
	last := len(all) - 1
	all[c.place], all[last].place = all[last], c.place
	all[last] = nil
	if last == 0 {
		delete(m.ofLine, c.line)
	} else {
		m.ofLine[c.line] = all[:last]
	}
}

// settle counts a client among those that have no lease yet, or not, and among those that were refused, or not.
func (m *Machine) settle(c *client) {
	m.settleRefusal(c)
	leased := c.bound4 || c.bound6 || c.static && c.phase == up
	pending := m.clients[c.key] == c && c.phase != refused && !leased
	if pending == c.pending {
		return
	}
	if c.pending = pending; pending {
		m.pending[c.line]++
	} else if m.pending[c.line]--; m.pending[c.line] == 0 {
		delete(m.pending, c.line)
	}
}

func (m *Machine) settleRefusal(c *client) {
	old := m.refused[c.line]
	switch is := m.clients[c.key] == c && c.phase == refused; {
	case is == (c.refused != nil):
	case is:
		if old == nil {
			old = list.New()
			m.refused[c.line] = old
		}
		c.refused = old.PushBack(c)
	default:
		old.Remove(c.refused)
		if c.refused = nil; old.Len() == 0 {
			delete(m.refused, c.line)
		}
	}
}

// forget removes a client without a session.
func (m *Machine) forget(c *client) {
	if m.clients[c.key] != c {
		return
	}
	m.leave(c)
	if m.byID[c.id] == c {
		delete(m.byID, c.id)
	}
	m.timers.Remove(c)
	m.settle(c)
}

// end ends a client's session.
func (m *Machine) end(c *client, cause subscriber.Cause) {
	if m.byID[c.id] == c {
		m.do(Disconnect{c.id, cause})
	}
	m.forget(c)
}

// has reports whether the session can answer messages of the kind.
func (c *client) has(kind int) bool {
	switch kind {
	case kind4:
		return c.has4
	case kind6:
		return c.has6
	}
	return c.phase == up
}

// serve answers a message at once, or after the session has got the family that the message needs.
func (m *Machine) serve(s *server, c *client, kind int, msg *message) {
	c.tags, c.heard = msg.back.Tags(), m.now
	if kind != kindFirst && c.ids[kind] == "" {
		c.ids[kind] = msg.line()
	}
	switch {
	case c.phase == refused && m.now.Before(c.Deadline()) && !(c.strange && kind != kindFirst):
		m.do(Count{names[kind], "", "refused"})
		m.deny(s, c, msg)
	case c.phase == refused:
		c.waiting[kind] = msg
		m.begin(s, c, kind, msg)
	case c.phase == up && c.has(kind):
		m.answer(s, c, kind, msg)
	default:
		c.waiting[kind] = msg
		if c.phase == up {
			m.extend(c, c.has4 || kind == kind4, c.has6 || kind == kind6)
		}
	}
}

var names = [kinds]string{"dhcp4", "dhcp6", "first-packet"}

// begin authenticates a client.
func (m *Machine) begin(s *server, c *client, kind int, msg *message) {
	c.phase, c.id, c.protocol, c.static = authenticating, m.newID(), names[kind], kind == kindFirst
	c.denial, c.reason = "", ""
	m.timers.Set(c, m.now.Add(patience))
	m.byID[c.id] = c
	m.settle(c)
	m.do(Authenticate{c.request(s, msg)})
}

func (c *client) request(s *server, msg *message) subscriber.Request {
	k := c.key
	r := subscriber.Request{Protocol: c.protocol, Profile: s.spec.Profile, ID: c.id,
		Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: k.dataplane, Port: k.port, OuterVLAN: k.outer, InnerVLAN: k.inner}, MAC: subscriber.MAC(k.mac)}}
	if msg != nil {
		r.Line.CircuitID, r.Line.RemoteID, r.Service = msg.circuitID, msg.remoteID, msg.service
		r.Line.Attributes = msg.attributes
	}
	return r
}

func (c *client) access() *api.Access {
	return &api.Access{Port: c.key.port, OuterVlan: uint32(c.key.outer), InnerVlan: uint32(c.key.inner), Mac: c.key.mac.String(), ProxyArp: true}
}

// refuse remembers a refusal for a while, so that the client's next packets do not load the back ends.
func (m *Machine) refuse(c *client, why string) {
	kind := kindOf(c.protocol)
	c.reason = cmp.Or(c.reason, why)
	m.do(Count{names[kind], "", why})
	delete(m.byID, c.id)
	c.phase, c.waiting, c.has4, c.has6, c.bound4, c.bound6, c.strange = refused, [kinds]*message{}, false, false, false, false, false
	c.slaac, c.gaveBack = false, [2]subscriber.Cause{}
	m.timers.Set(c, m.now.Add(refusalTime))
	m.settle(c)
}

func kindOf(protocol string) int { return max(slices.Index(names[:], protocol), 0) }

// Authenticated takes the answer about a client.
func (m *Machine) Authenticated(id string, a subscriber.Answer, now time.Time) []Action {
	m.now = now
	c := m.byID[id]
	if c == nil || c.phase != authenticating {
		return nil
	}
	s := m.serverOf(c.key.circuit)
	switch {
	case s == nil:
		m.forget(c)
		return m.done()
	case a.Reject != nil:
		// A client that asks for the address of before hears that it has it no more, unless the back ends are away.
		if !errors.Is(a.Reject, subscriber.ErrUnavailable) {
			c.denial = cmp.Or(a.Message, "rejected")
			m.deny(s, c, c.waiting[kind4])
		}
		c.reason = cmp.Or(a.Message, a.Reject.Error())
		m.refuse(c, "rejected")
		return m.done()
	}
	c.grant = a.Grant
	if first := c.waiting[kindFirst]; first != nil && c.static && first.slaac && !first.isStatic(s, &a.Grant) {
		c.static, c.slaac = false, true
	} else if first != nil && c.static && !grants(&a.Grant, first.address) && !first.slaac {
		const why = "not-the-address-of-the-line"
		kind := slices.IndexFunc(c.waiting[:kindFirst], func(msg *message) bool { return msg != nil })
		if kind < 0 {
			m.refuse(c, why)
			c.strange = true
			return m.done()
		}
		// It speaks DHCP, too.
		m.do(Count{names[kindFirst], "", why})
		c.waiting[kindFirst], c.static, c.protocol = nil, false, names[kind]
	}
	c.phase = connecting
	m.timers.Set(c, m.now.Add(patience))
	four := c.waiting[kind4] != nil || c.static4()
	six := c.waiting[kind6] != nil || c.static6() || c.slaac
	if four && !c.static4() {
		c.ends4 = m.now.Add(offerTime)
	}
	if six && !c.static6() {
		c.ends6 = m.now.Add(offerTime)
	}
	var line *message
	for _, msg := range c.waiting {
		if msg != nil && (line == nil || line.line() == "") {
			line = msg
		}
	}
	m.do(Connect{subscriber.Connection{Request: c.request(s, line), Grant: a.Grant, IPv4: four, IPv6: six, Access: c.access(), State: c.state(),
		// A core gives addresses in its own time.
		Needs: subscriber.Needs{Address: a.Grant.Core == nil, Gateway: a.Grant.Core == nil && c.waiting[kind4] != nil && !six && !s.address.IsValid()}}})
	return m.done()
}

// Connected takes the result of Connect.
func (m *Machine) Connected(id string, l subscriber.Lease, err error, now time.Time) []Action {
	m.now = now
	c := m.byID[id]
	if c == nil || c.phase != connecting {
		if err == nil && c == nil {
			m.do(Disconnect{id, subscriber.NASRequest})
		}
		return m.done()
	}
	if err != nil {
		m.refuse(c, reasonOf(err))
		return m.done()
	}
	c.phase, c.began = up, m.now
	m.has(c, l)
	m.proceed(c)
	return m.done()
}

// refusedSession: the data plane refuses the session, or another object is in its way. An operator has to look.
const refusedSession = "session-refused"

func reasonOf(err error) string {
	for _, of := range []struct {
		err    error
		reason string
	}{{subscriber.ErrExhausted, "pool-exhausted"}, {subscriber.ErrAddressInUse, "address-in-use"}, {subscriber.ErrLimit, "too-many-sessions"},
		{subscriber.ErrNoAddress, "no-address"}, {subscriber.ErrNoGateway, "no-server-address"}, {subscriber.ErrNoProfile, "no-profile"}, {subscriber.ErrMoved, "moved"}, {subscriber.ErrNotForwarding, "not-forwarding"}} {
		if errors.Is(err, of.err) {
			return of.reason
		}
	}
	return refusedSession
}

// gatewaysMost bounds the memory for gateways of pools.
const gatewaysMost = 4096

func (m *Machine) has(c *client, l subscriber.Lease) {
	had6, before := c.has6, c.lease
	c.lease = l
	if l.Gateway.Is4() && len(m.gateways) < gatewaysMost {
		m.gateways[l.Gateway] = true
	}
	if s := m.serverOf(c.key.circuit); s != nil && l.Gateway.Is4() {
		s.gateway = l.Gateway
	}
	c.has4, c.has6 = l.IPv4.IsValid(), l.IPv6.IsValid() || l.IPv6Prefix.IsValid() || l.Delegated.IsValid()
	// A family that the session still has, although its client gave it back, ends later: giving it back is tried again.
	switch {
	case !c.has4:
		c.ends4, c.bound4 = time.Time{}, false
	case c.ends4.IsZero() && !c.static4():
		c.ends4 = m.now.Add(offerTime)
	}
	switch {
	case !c.has6:
		c.ends6, c.bound6 = time.Time{}, false
	case c.ends6.IsZero() && !c.static6():
		c.ends6 = m.now.Add(offerTime)
	}
	switch {
	case !c.has6:
		c.advertise = time.Time{}
	case !had6 || l.IPv6Prefix != before.IPv6Prefix || l.MTU != before.MTU:
		c.advertise = m.now.Add(advertiseSoon)
	}
	m.schedule(c)
}

// proceed answers waiting messages, as far as the session has their families.
func (m *Machine) proceed(c *client) {
	s := m.serverOf(c.key.circuit)
	if s == nil {
		m.end(c, subscriber.NASRequest)
		return
	}
	later := false
	for kind, msg := range c.waiting {
		switch {
		case msg == nil:
		case c.has(kind):
			c.waiting[kind] = nil
			m.answer(s, c, kind, msg)
			if m.clients[c.key] != c || c.phase != up {
				return
			}
		default:
			later = true
		}
	}
	if later {
		m.extend(c, c.has4 || c.waiting[kind4] != nil, c.has6 || c.waiting[kind6] != nil)
		return
	}
	m.schedule(c)
}

func (m *Machine) extend(c *client, four, six bool) {
	m.extendWithout(c, four, six, subscriber.Declined{})
}

// extendWithout changes the families of a session whose client declined addresses.
func (m *Machine) extendWithout(c *client, four, six bool, declined subscriber.Declined) {
	c.phase = extending
	if four && !c.has4 {
		c.ends4 = m.now.Add(offerTime)
	}
	if six && !c.has6 {
		c.ends6 = m.now.Add(offerTime)
	}
	m.timers.Set(c, m.now.Add(patience))
	m.settle(c)
	m.do(Extend{c.id, four, six, c.state(), declined})
}

// Extended takes the result of Extend.
func (m *Machine) Extended(id string, l subscriber.Lease, err error, now time.Time) []Action {
	m.now = now
	c := m.byID[id]
	if c == nil || c.phase != extending {
		return nil
	}
	c.phase = up
	switch {
	case errors.Is(err, subscriber.ErrNoSession):
		m.forget(c)
		return m.done()
	case err != nil && l.Session == "":
		// The Manager changed nothing. Otherwise the lease is without the addresses that the data plane refuses.
		l = c.lease
	}
	m.has(c, l)
	// A client without an answer asks again.
	for kind, msg := range c.waiting {
		if msg != nil && !c.has(kind) {
			c.waiting[kind] = nil
			why := "no-address"
			if err != nil {
				why = reasonOf(err)
			}
			m.do(Count{names[kind], "", why})
			if kind == kind6 {
				m.without6(c, msg)
			}
		}
	}
	if !c.has4 && !c.has6 {
		// No message can begin with a session without addresses.
		m.do(Disconnect{c.id, subscriber.NASRequest})
		m.refuse(c, "no-address")
		return m.done()
	}
	for kind, cause := range c.gaveBack {
		if c.gaveBack[kind] = 0; cause != 0 && c.has(kind) {
			c.waiting[kind] = nil
			m.releaseLeases(c, kind == kind4, cause)
			return m.done()
		}
	}
	m.proceed(c)
	return m.done()
}

// Terminated notifies the machine that the Manager has ended a session.
func (m *Machine) Terminated(id string, now time.Time) []Action {
	m.now = now
	if c := m.byID[id]; c != nil {
		delete(m.byID, id)
		m.forget(c)
	}
	return m.done()
}

// answer answers a message with the addresses of the session, and with what its profile and pools say now.
func (m *Machine) answer(s *server, c *client, kind int, msg *message) {
	if m.present != nil {
		if l, up := m.present(c.id); up {
			m.has(c, l)
		}
		if !c.has(kind) {
			return
		}
	}
	switch kind {
	case kind4:
		m.answer4(s, c, msg)
	case kind6:
		m.answer6(s, c, msg)
	case kindFirst:
		m.answerSLAAC(c)
	}
}

// send sends an IP packet to a client.
func (m *Machine) send(key clientKey, back *dhcp.Circuit, to dhcp.MAC, packet func(port dhcp.MAC) []byte) (a Send, ok bool) {
	port, known := m.macs[portKey{key.dataplane, key.port}]
	if !known {
		m.do(Count{"", "", "port-without-mac"})
		return a, false
	}
	return Send{key.dataplane, key.port, back.Frame(port, to, packet(port))}, true
}
