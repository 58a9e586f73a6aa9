// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"encoding/binary"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// INVALID_SPI (RFC 7296 section 1.5), in an IKE SA alone: one end informs the other that it does not have a child SA.
// Unprotected messages are neither sent nor accepted.

const (
	// The shortest time between two INVALID_SPI to one peer, and between two searches through all IKE SAs.
	invalidSPIAgain = 10 * time.Second
	invalidSPILook  = 100 * time.Millisecond
)

// UnknownSPI is an ESP packet whose SPI the data plane does not have. The peer gets INVALID_SPI if it has an IKE SA.
func (m *Machine) UnknownSPI(dataplane, vrf string, local, remote netip.Addr, spi uint32, now time.Time) []Action {
	if m.children[spi] != nil || now.Before(m.lookAgain) {
		return nil // the data plane has it in a moment
	}
	m.lookAgain = now.Add(invalidSPILook)
	for _, s := range m.sas {
		if s.state != established || s.remote.Addr() != remote || s.local.Addr() != local || s.dataplane != dataplane || s.vrf != vrf {
			continue
		}
		if now.Before(s.tellAgain) {
			break
		}
		s.tellAgain = now.Add(invalidSPIAgain)
		m.count("packet", "invalid-spi")
		s.enqueue(now, func(s *ikeSA, now time.Time) bool {
			s.request(message.Informational, now, func([]message.Payload, time.Time) {}, &message.Notify{Kind: message.InvalidSPI, Data: spiBytes(spi)})
			return true
		})
		break
	}
	return m.done()
}

// unknownToPeer replaces a child that the peer does not have.
func (s *ikeSA) unknownToPeer(n *message.Notify, now time.Time) {
	if len(n.Data) != 4 {
		return
	}
	c := s.byOutbound(n.Data)
	// A packet of a child that is replaced may be on its way.
	if c == nil || c.deleting || c.replaced || c.half || now.Sub(c.since) < invalidSPIAgain {
		return
	}
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "child-failed", Child: c.Conf.Name, Detail: c.Conf.Name + ": the peer does not have " + c.String()})
	s.deleteChild(c, now)
	if s.conn.child(c.Conf.Name) != nil {
		s.ensureChild(c.Conf.Name, now)
	}
}

// espOf returns the addresses and the SPI of an ESP packet in an Ethernet frame, also of one in UDP.
func espOf(frame []byte) (from, to netip.Addr, spi uint32, ok bool) {
	kind, p, ok := networkOf(frame)
	if !ok {
		return from, to, 0, false
	}
	protocol, rest := byte(0), p
	switch {
	case kind == etherIP4 && len(p) >= ip4Length && p[0]>>4 == 4 && int(p[0]&15)*4 >= ip4Length && int(p[0]&15)*4 <= len(p):
		from, to = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
		protocol, rest = p[9], p[int(p[0]&15)*4:]
	case kind == etherIP6 && len(p) >= ip6Length && p[0]>>4 == 6:
		from, to = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
		protocol, rest = p[6], p[ip6Length:]
	}
	if protocol == protocolUDP && len(rest) >= udpLength {
		protocol, rest = protocolESP, rest[udpLength:]
	}
	if protocol != protocolESP || len(rest) < 4 {
		return from, to, 0, false
	}
	spi = binary.BigEndian.Uint32(rest)
	return from, to, spi, spi > 255
}
