// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"encoding/binary"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/dhcp6"
)

// Router advertisements (RFC 4861 section 6.2, RFC 4862) and DHCPv6 for the peer, as IPv6 packets on the link.
const (
	icmp6, udp            = 58, 17
	routerSolicitation    = 133
	routerAdvertisement   = 134
	dhcp6Client           = 546
	dhcp6Server           = 547
	ip6Header, udpHeader  = 40, 8
	firstAdvertisements   = 3
	advertiseSoon         = 16 * time.Second
	advertiseTime         = 10 * time.Minute
	routerLifetime        = 30 * time.Minute
	preferredLifetime     = time.Hour
	validLifetime         = 2 * time.Hour
	solicitationsAnswered = 3 // between two unsolicited advertisements
)

var allNodes = netip.MustParseAddr("ff02::1")

func linkLocal(id [8]byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]})
}

// advertise sends an unsolicited router advertisement: soon at first, then seldom.
func (l *Link) advertise(now int64, out []Action) []Action {
	l.net.solicited = 0
	if l.advertised < firstAdvertisements {
		l.advertised++
		l.advertiseDue = now + int64(advertiseSoon)
	} else {
		// RFC 4861 section 6.2.4: not all at once.
		l.advertiseDue = now + int64(advertiseTime) - int64(l.config.Random()%uint64(advertiseTime/4))
	}
	return l.sendAdvertisement(out)
}

func (l *Link) sendAdvertisement(out []Action) []Action {
	n := l.net
	flags := byte(0)
	if n.address6.IsValid() {
		flags |= 0x80
	}
	if n.delegated.IsValid() || n.dns6Count > 0 || n.address6.IsValid() {
		flags |= 0x40
	}
	b := append(make([]byte, 0, 128), routerAdvertisement, 0, 0, 0, 64, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(routerLifetime/time.Second))
	b = append(b, make([]byte, 8)...)
	// RFC 4861 section 4.6.4. IPv6 needs 1,280 bytes, for any MRU of the peer.
	b = binary.BigEndian.AppendUint32(append(b, 5, 1, 0, 0), uint32(max(l.MTU(), 1280)))
	if n.prefix.IsValid() {
		address := n.prefix.Addr().As16()
		b = append(b, 3, 4, byte(n.prefix.Bits()), 0xc0)
		b = binary.BigEndian.AppendUint32(b, uint32(validLifetime/time.Second))
		b = binary.BigEndian.AppendUint32(b, uint32(preferredLifetime/time.Second))
		b = append(append(b, 0, 0, 0, 0), address[:]...)
	}
	if n.dns6Count > 0 {
		b = append(b, 25, 1+2*n.dns6Count, 0, 0) // RFC 8106 section 5.1
		b = binary.BigEndian.AppendUint32(b, uint32(routerLifetime/time.Second))
		for i := range n.dns6Count {
			b = append(b, n.dns6[i][:]...)
		}
	}
	b = append(b, n.routes...)
	return append(out, Action{Kind: Send, Packet: packet6(linkLocal(l.ourID), allNodes, icmp6, 255, b, 2)})
}

// packet6 is an IPv6 packet behind the PPP protocol field. The checksum goes to `at` in the payload.
func packet6(source, destination netip.Addr, next, hops byte, payload []byte, at int) []byte {
	from, to := source.As16(), destination.As16()
	b := make([]byte, 2+ip6Header, 2+ip6Header+len(payload))
	binary.BigEndian.PutUint16(b, uint16(IPv6))
	b[2] = 0x60
	binary.BigEndian.PutUint16(b[6:], uint16(len(payload)))
	b[8], b[9] = next, hops
	copy(b[10:], from[:])
	copy(b[26:], to[:])
	binary.BigEndian.PutUint16(payload[at:], 0)
	sum := ^checksum(from, to, next, payload)
	if sum == 0 && next == udp {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(payload[at:], sum)
	return append(b, payload...)
}

// checksum is the Internet checksum's sum (RFC 1071, RFC 8200 section 8.1).
func checksum(from, to [16]byte, next byte, payload []byte) uint16 {
	sum := uint32(len(payload)) + uint32(next)
	add := func(b []byte) {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(b[0])<<8 | uint32(b[1])
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(from[:])
	add(to[:])
	add(payload)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// receiveIPv6 takes router solicitations and DHCPv6 of the peer.
func (l *Link) receiveIPv6(b []byte, now int64, out []Action) []Action {
	if len(b) < ip6Header+udpHeader || b[0]>>4 != 6 {
		return drop(out, "malformed")
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < udpHeader || length > len(b)-ip6Header {
		return drop(out, "malformed")
	}
	from, to, next := [16]byte(b[8:24]), [16]byte(b[24:40]), b[6]
	payload := b[ip6Header : ip6Header+length]
	source := netip.AddrFrom16(from)
	if next != icmp6 && next != udp || checksum(from, to, next, payload) != 0xffff {
		return drop(out, "malformed")
	}
	if next == icmp6 {
		// RFC 4861 section 6.1.1.
		if payload[0] != routerSolicitation || payload[1] != 0 || b[7] != 255 || !source.IsLinkLocalUnicast() && !source.IsUnspecified() {
			return drop(out, "malformed")
		}
		if l.net.solicited >= solicitationsAnswered {
			return drop(out, "too-many-solicitations")
		}
		l.net.solicited++
		return l.sendAdvertisement(out)
	}
	size := int(binary.BigEndian.Uint16(payload[4:]))
	if size < udpHeader || size > len(payload) || binary.BigEndian.Uint16(payload[2:]) != dhcp6Server || !source.IsLinkLocalUnicast() {
		return drop(out, "malformed")
	}
	m, err := dhcp6.Parse(payload[udpHeader:size])
	if err != nil {
		return drop(out, "malformed")
	}
	lease := dhcp6.Lease{Address: l.net.address6, Delegated: l.net.delegated, Preferred: preferredLifetime, Valid: validLifetime}
	for i := range l.net.dns6Count {
		lease.DNS = append(lease.DNS, netip.AddrFrom16(l.net.dns6[i]))
	}
	answer, ignored := dhcp6.Answer(m, l.config.ServerID, lease)
	if answer == nil {
		return drop(out, "dhcp6-"+ignored)
	}
	datagram := binary.BigEndian.AppendUint16(nil, dhcp6Server)
	datagram = binary.BigEndian.AppendUint16(datagram, dhcp6Client)
	datagram = binary.BigEndian.AppendUint16(datagram, uint16(udpHeader+len(answer)))
	datagram = append(append(datagram, 0, 0), answer...)
	return append(out, Action{Kind: Send, Packet: packet6(linkLocal(l.ourID), source, udp, 64, datagram, 6)})
}
