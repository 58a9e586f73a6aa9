// SPDX-License-Identifier: Apache-2.0
// Hosts that take their IPv6 address from the prefix of a router advertisement (RFC 4862): without a lease, their session lasts while they send.

package ipoe

import (
	"encoding/binary"
	"net/netip"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

// beginSLAAC takes the router solicitation of a host without IPv6.
func (m *Machine) beginSLAAC(s *server, key clientKey, back dhcp.Circuit) []Action {
	const kind = "router-solicitation"
	msg := &message{back: back, slaac: true}
	c, limit := m.client(s, key, kindFirst, msg)
	if c == nil {
		return m.drop("nd", kind, limit)
	}
	m.do(Count{"nd", kind, ""})
	if c.phase == up {
		// Of DHCPv4 alone until now. The host repeats itself.
		c.slaac, c.tags = true, back.Tags()
		m.extend(c, c.has4, true)
		return m.done()
	}
	m.serve(s, c, kindFirst, msg)
	return m.done()
}

// isStatic reports whether the message is of a client whose IPv6 addresses a back end names.
func (msg *message) isStatic(s *server, g *subscriber.Grant) bool {
	if msg.address.IsValid() {
		return s.first && grants(g, msg.address)
	}
	return s.first && (g.IPv6.IsValid() || g.IPv6Prefix.IsValid())
}

// answerSLAAC advertises the prefix of a session that began without DHCPv6.
func (m *Machine) answerSLAAC(c *client) {
	switch {
	case !c.slaac:
	case c.lease.IPv6Prefix.IsValid() && c.lease.IPv6Prefix.Bits() == 64:
		m.advertise(c)
		m.schedule(c)
	default:
		m.do(Disconnect{c.id, subscriber.NASRequest})
		m.refuse(c, "no-prefix")
	}
}

// lookAt asks whether a client without a lease has sent anything.
func (m *Machine) lookAt(c *client) {
	// If there is no answer, it is asked again.
	c.ends6 = m.now.Add(patience)
	m.do(Listen{Dataplane: c.key.dataplane, Sessions: []string{c.lease.Session}, idle: c})
}

// lookedAt goes on with a client without a lease, or ends its IPv6 if it sent nothing since it was looked at last.
func (m *Machine) lookedAt(c *client, session string, packets map[string]uint64) {
	if m.clients[c.key] != c || c.phase != up || !c.slaac || !c.has6 || c.lease.Session != session {
		return
	}
	s := m.serverOf(c.key.circuit)
	now, known := packets[session]
	switch {
	case s == nil || !known:
		return
	case now == c.packets:
		m.releaseLeases(c, false, subscriber.IdleTimeout)
		return
	}
	c.packets, c.bound6, c.ends6 = now, true, m.now.Add(m.leaseTime(s, c))
	m.schedule(c)
	m.do(Save{ID: c.id, State: c.state()})
}

// appendNameServers appends the option of name servers (RFC 8106 section 5.1).
func appendNameServers(b []byte, all []netip.Addr) []byte {
	var six []byte
	for _, a := range all {
		if a.Is6() {
			six = append(six, a.AsSlice()...)
		}
	}
	if len(six) == 0 {
		return b
	}
	b = append(b, 25, byte(1+len(six)/8), 0, 0)
	return append(binary.BigEndian.AppendUint32(b, 2*routerLifetime), six...)
}
