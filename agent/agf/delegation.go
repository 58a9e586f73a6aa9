// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/dhcp6"
)

// Prefix delegation in the tunnel of a PDU session with IPv6 (TS 23.501 section 5.8.2.2.4, RFC 8415): the gateway is the core's DHCPv6 client, and gives the
// prefix to the home (TS 23.316 section 4.6.2). It does not ask for the exclusion of the link's prefix (RFC 6603): the core's prefix is another one.

const (
	maxDelegationRequests = 3
	delegationInterval    = 2 * time.Second
	// Renew and Rebind (REN_MAX_RT).
	renewalInterval = 10 * time.Minute
	firstRenewal    = 10 * time.Second

	protocolUDP = 17
	clientPort  = 546
	serverPort  = 547
	udpHeader   = 8
)

var allServers = netip.MustParseAddr("ff02::1:2")

// delegation is a prefix for the home of a PDU session.
type delegation struct {
	// The last request and its time; 0: no request waits for an answer.
	kind        uint8
	transaction [3]byte
	since       time.Time
	sent        int
	server      []byte
	prefix      netip.Prefix
	// The zero time: never.
	renew, rebind, until time.Time
	// The core gives none.
	without bool
}

// delegating: the subscriber waits for the prefix of its home.
func (s *Session) delegating() bool {
	return s.demand.Delegated != 0 && s.prefix.IsValid() && !s.delegation.prefix.IsValid() && !s.delegation.without
}

// delegate asks for a prefix, or after the PDU session was set up anew for the same one.
func (s *Session) delegate() {
	switch d := &s.delegation; {
	case s.demand.Delegated == 0 || !s.prefix.IsValid() || d.without:
	case d.prefix.IsValid():
		s.askPrefix(dhcp6.Rebind)
	default:
		s.askPrefix(dhcp6.Solicit)
	}
}

func (s *Session) askPrefix(kind uint8) {
	d := &s.delegation
	d.kind, d.sent, d.since = kind, 0, s.line.world.Now()
	_, _ = rand.Read(d.transaction[:])
	s.sendAsk()
}

func (s *Session) sendAsk() {
	d := &s.delegation
	d.sent++
	var server []byte
	if d.kind == dhcp6.Request || d.kind == dhcp6.Renew {
		server = d.server
	}
	desired := d.prefix
	if !desired.IsValid() {
		desired = netip.PrefixFrom(netip.IPv6Unspecified(), int(s.demand.Delegated))
	}
	now := s.line.world.Now()
	message := dhcp6.AskPrefix(d.kind, d.transaction, now.Sub(d.since), s.duid(), server, uint32(s.ID), desired)
	s.line.world.Uplink(s, dhcp.Datagram(netip.AddrPortFrom(linkLocal(s.iid), clientPort), netip.AddrPortFrom(allServers, serverPort), message))
	after := delegationInterval
	if d.prefix.IsValid() {
		after = min(firstRenewal<<min(d.sent-1, 10), renewalInterval)
		if !d.until.IsZero() {
			after = min(after, max(d.until.Sub(now), 0))
		}
	}
	s.setTimer(after)
}

// duid is a DUID-LL of the home's gateway.
func (s *Session) duid() []byte { return append([]byte{0, 3, 0, 1}, s.line.settings.MAC[:]...) }

// linkLocal is the address with the core's interface identifier.
func linkLocal(iid [8]byte) netip.Addr {
	address := [16]byte{0xfe, 0x80}
	copy(address[8:], iid[:])
	return netip.AddrFrom16(address)
}

// delegateAgain: there is no answer yet, or the prefix is to be renewed.
func (s *Session) delegateAgain() {
	d, now := &s.delegation, s.line.world.Now()
	switch {
	case !d.prefix.IsValid() && d.kind == 0:
	case !d.prefix.IsValid() && d.sent < maxDelegationRequests:
		s.sendAsk()
	case !d.prefix.IsValid():
		s.withoutDelegated()
	case !d.until.IsZero() && !now.Before(d.until):
		s.remove(errors.New("the core does not renew the delegated prefix"))
		s.line.unused()
	case d.kind == dhcp6.Rebind, d.kind == dhcp6.Renew && (d.rebind.IsZero() || now.Before(d.rebind)):
		s.sendAsk()
	case !d.rebind.IsZero() && !now.Before(d.rebind):
		s.askPrefix(dhcp6.Rebind)
	default:
		s.askPrefix(dhcp6.Renew)
	}
}

// withoutDelegated: the session goes on without a prefix for the home.
func (s *Session) withoutDelegated() {
	s.delegation = delegation{without: true}
	s.report()
	s.line.world.Save(s.line)
}

// delegated takes an answer of the core's DHCPv6 server.
func (s *Session) delegated(message []byte) {
	d := &s.delegation
	if s.state != active || d.kind == 0 || s.demand.Delegated == 0 {
		return
	}
	answer, err := dhcp6.ParseDelegation(message, uint32(s.ID))
	if err != nil || answer.Transaction != d.transaction || !bytes.Equal(answer.ClientID, s.duid()) {
		return
	}
	given := answer.Prefix
	if given.IsValid() && (given.Bits() > 64 || !given.Addr().IsGlobalUnicast() || given.Overlaps(s.prefix)) {
		given = netip.Prefix{}
	}
	switch {
	case answer.Type == dhcp6.Advertise && d.kind == dhcp6.Solicit:
		if given.IsValid() {
			d.server = bytes.Clone(answer.ServerID)
			s.askPrefix(dhcp6.Request)
		}
	case answer.Type != dhcp6.Reply || d.kind == dhcp6.Solicit && !answer.RapidCommit:
	case d.prefix.IsValid() && given != d.prefix:
		s.remove(errors.New("the core takes the delegated prefix away"))
		s.line.unused()
	case !given.IsValid():
		s.stopTimer()
		s.withoutDelegated()
	default:
		s.bind(answer)
	}
}

// bind keeps the prefix for as long as the core says.
func (s *Session) bind(answer *dhcp6.Delegation) {
	now := s.line.world.Now()
	in := func(after time.Duration) time.Time {
		if after == 0 {
			return time.Time{}
		}
		return now.Add(after)
	}
	s.delegation = delegation{prefix: answer.Prefix, server: bytes.Clone(answer.ServerID), renew: in(answer.Renew), rebind: in(answer.Rebind), until: in(answer.Valid)}
	s.stopTimer()
	s.dueRenewal()
	s.report()
	s.line.world.Save(s.line)
}

func (s *Session) dueRenewal() {
	if at := s.delegation.renew; !at.IsZero() {
		s.timer = at
		s.line.alarm()
	}
}

// answerOf is the DHCPv6 message of an IPv6 packet for a client; nil: it is none.
func answerOf(packet []byte) []byte {
	if len(packet) < header6+udpHeader || packet[0]>>4 != 6 || packet[6] != protocolUDP {
		return nil
	}
	udp := packet[header6:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != clientPort || length < udpHeader || length > len(udp) {
		return nil
	}
	return udp[udpHeader:length]
}

// delegationRecord is what outlives the agent.
type delegationRecord struct {
	Server  []byte       `json:"server,omitempty"`
	Prefix  netip.Prefix `json:"prefix,omitzero"`
	Renew   time.Time    `json:"renew,omitzero"`
	Rebind  time.Time    `json:"rebind,omitzero"`
	Until   time.Time    `json:"until,omitzero"`
	Without bool         `json:"without,omitempty"`
}

func (d *delegation) record() delegationRecord {
	return delegationRecord{d.server, d.prefix, d.renew, d.rebind, d.until, d.without}
}

func (r *delegationRecord) delegation() delegation {
	return delegation{server: r.Server, prefix: r.Prefix, renew: r.Renew, rebind: r.Rebind, until: r.Until, without: r.Without}
}
