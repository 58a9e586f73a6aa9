// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/nas"
)

// Router discovery (RFC 4861 section 6.3.7) in the tunnel of a PDU session with IPv6 (TS 23.501 section 5.8.2.2.3): the gateway solicits for
// the line, and gives the prefix that the UPF advertises on the line (TS 23.316 section 4.6.2).

const (
	maxSolicitations     = 3
	solicitationInterval = 4 * time.Second

	header6             = 40
	protocolICMP6       = 58
	routerSolicitation  = 133
	routerAdvertisement = 134
	optionPrefix        = 3
	flagAutonomous      = 0x40
)

var allRouters = netip.MustParseAddr("ff02::2")

// has6: the core gave the session an interface identifier.
func (s *Session) has6() bool { return s.kind == nas.PDUSessionIPv6 || s.kind == nas.PDUSessionIPv4v6 }

// soliciting: the subscriber waits for the prefix.
func (s *Session) soliciting() bool { return s.has6() && !s.prefix.IsValid() && !s.without6 }

// solicit begins router discovery. A session that has its prefix already asks whether it is still the same.
func (s *Session) solicit() {
	if !s.has6() || s.without6 {
		return
	}
	s.repeats = 0
	s.line.world.Uplink(s, solicitation(s.iid))
	if s.soliciting() {
		s.setTimer(solicitationInterval)
	}
}

// solicitAgain: there is no advertisement yet.
func (s *Session) solicitAgain() {
	switch {
	case !s.soliciting():
	case s.repeats < maxSolicitations:
		s.line.world.Uplink(s, solicitation(s.iid))
		s.setTimer(solicitationInterval)
	case s.ipv4.IsValid():
		s.without6 = true
		s.report()
		s.line.world.Save(s.line)
	default:
		s.remove(errors.New("the UPF sends no router advertisement with a prefix"))
		s.line.unused()
	}
}

// Advertised takes an IP packet that the UPF sent in the tunnel: a router advertisement, or an answer of DHCPv6.
func (s *Session) Advertised(packet []byte) {
	if answer := answerOf(packet); answer != nil {
		s.delegated(answer)
		return
	}
	prefix, ok := advertisedPrefix(packet)
	switch {
	case !ok || s.state != active || !s.has6() || s.without6 || prefix == s.prefix:
	case s.prefix.IsValid():
		s.remove(errors.New("the core gives the PDU session another prefix"))
		s.line.unused()
	default:
		s.prefix = prefix
		s.stopTimer()
		s.delegate()
		s.report()
		s.line.world.Save(s.line)
	}
}

// solicitation is a router solicitation from the link-local address that the core gave.
func solicitation(iid [8]byte) []byte {
	from, to := linkLocal(iid).As16(), allRouters.As16()
	message := []byte{routerSolicitation, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(message[2:], dhcp.Checksum6(netip.AddrFrom16(from), allRouters, message))
	packet := make([]byte, header6, header6+len(message))
	packet[0] = 0x60
	binary.BigEndian.PutUint16(packet[4:], uint16(len(message)))
	packet[6], packet[7] = protocolICMP6, 255
	copy(packet[8:], from[:])
	copy(packet[24:], to[:])
	return append(packet, message...)
}

// advertisedPrefix is the first prefix of 64 bits for autonomous configuration in a valid router advertisement (RFC 4861 section 6.1.2).
func advertisedPrefix(packet []byte) (netip.Prefix, bool) {
	if len(packet) < header6+16 || packet[0]>>4 != 6 || packet[6] != protocolICMP6 || packet[7] != 255 {
		return netip.Prefix{}, false
	}
	length := int(binary.BigEndian.Uint16(packet[4:]))
	from, to := netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
	if length < 16 || header6+length > len(packet) || !from.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	message := append([]byte{}, packet[header6:header6+length]...)
	given := binary.BigEndian.Uint16(message[2:])
	message[2], message[3] = 0, 0
	if message[0] != routerAdvertisement || message[1] != 0 || dhcp.Checksum6(from, to, message) != given {
		return netip.Prefix{}, false
	}
	var found netip.Prefix
	for options := message[16:]; len(options) > 0; {
		if len(options) < 8 || options[1] == 0 || len(options) < 8*int(options[1]) {
			return netip.Prefix{}, false
		}
		one := options[:8*int(options[1])]
		options = options[len(one):]
		if one[0] != optionPrefix || len(one) != 32 || one[2] != 64 || one[3]&flagAutonomous == 0 || binary.BigEndian.Uint32(one[4:]) == 0 {
			continue
		}
		if p := netip.PrefixFrom(netip.AddrFrom16([16]byte(one[16:])), 64).Masked(); !found.IsValid() && p.Addr().IsGlobalUnicast() {
			found = p
		}
	}
	return found, found.IsValid()
}

// ---- GTP-U (TS 29.281) with the PDU session container (TS 38.415), around signalling of a PDU session

const (
	gtpuPort         = 2152
	gtpuPDU          = 255
	containerType    = 0x85
	uplinkPDUSession = 0x10
)

// tunnelPacket is the outer IP packet of an uplink packet.
func (s *Session) tunnelPacket(packet []byte) []byte {
	b := []byte{gtpu.Version1 | 4, gtpuPDU}
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(packet)))
	b = binary.BigEndian.AppendUint32(b, s.teid)
	b = append(b, 0, 0, 0, containerType, 1, uplinkPDUSession, s.defaultQFI(), 0)
	return dhcp.Datagram(netip.AddrPortFrom(s.demand.Address, gtpuPort), netip.AddrPortFrom(s.remote, gtpuPort), append(b, packet...))
}

// tunnelled reads an outer IP packet of a G-PDU: our TEID, and the inner packet.
func tunnelled(packet []byte) (teid uint32, inner []byte, ok bool) {
	_, message, ok := gtpu.Message(packet)
	if !ok || len(message) < 8 || message[0]&0xf0 != gtpu.Version1 || message[1] != gtpuPDU {
		return 0, nil, false
	}
	inner, ok = gtpu.Content(message)
	if !ok {
		return 0, nil, false
	}
	return binary.BigEndian.Uint32(message[4:]), inner, true
}
