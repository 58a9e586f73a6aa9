// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"encoding/binary"
	"net/netip"
)

// IKE in UDP (RFC 768), IPv4 and IPv6, as frames of the data plane bring it and as the data plane routes it.

const (
	protocolUDP = 17
	protocolESP = 50
	etherIP4    = 0x0800
	etherIP6    = 0x86dd
	hopLimit    = 64
	udpLength   = 8
	ip4Length   = 20
	ip6Length   = 40
)

// networkOf returns the type and the packet of an Ethernet frame with at most two VLAN tags.
func networkOf(b []byte) (kind uint16, packet []byte, ok bool) {
	at := 12
	for n := 0; ; n++ {
		if len(b) < at+2 || n > 2 {
			return 0, nil, false
		}
		if t := binary.BigEndian.Uint16(b[at:]); t != 0x8100 && t != 0x88a8 && t != 0x9100 {
			break
		}
		at += 4
	}
	return binary.BigEndian.Uint16(b[at:]), b[at+2:], true
}

// parseFrame reads a UDP datagram out of an Ethernet frame with VLAN tags. The data plane has put fragments together, and skips extension
// headers: a packet with extension headers is not for us.
func parseFrame(b []byte) (from, to netip.AddrPort, payload []byte, ok bool) {
	kind, p, ok := networkOf(b)
	if !ok {
		return from, to, nil, false
	}
	var source, destination netip.Addr
	switch {
	case kind == etherIP4 && len(p) >= ip4Length && p[0]>>4 == 4:
		header, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
		if header < ip4Length || total < header+udpLength || total > len(p) || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 || p[9] != protocolUDP {
			return from, to, nil, false
		}
		source, destination = netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
		p = p[header:total]
	case kind == etherIP6 && len(p) >= ip6Length+udpLength && p[0]>>4 == 6 && p[6] == protocolUDP:
		length := int(binary.BigEndian.Uint16(p[4:]))
		if length < udpLength || ip6Length+length > len(p) {
			return from, to, nil, false
		}
		source, destination = netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
		p = p[ip6Length : ip6Length+length]
	default:
		return from, to, nil, false
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	if length < udpLength || length > len(p) {
		return from, to, nil, false
	}
	p = p[:length]
	// RFC 3948 section 2.2: without a checksum on port 4500 of IPv4. IKE's integrity check detects damage.
	if sum := binary.BigEndian.Uint16(p[6:]); sum != 0 && checksum(source, destination, p) != 0 {
		return from, to, nil, false
	}
	return netip.AddrPortFrom(source, binary.BigEndian.Uint16(p)), netip.AddrPortFrom(destination, binary.BigEndian.Uint16(p[2:])), p[udpLength:], true
}

// checksum is the Internet checksum of a UDP datagram with its pseudo header.
func checksum(source, destination netip.Addr, datagram []byte) uint16 {
	sum := uint32(len(datagram)) + protocolUDP
	add := func(b []byte) {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(b[0])<<8 | uint32(b[1])
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(source.AsSlice())
	add(destination.AsSlice())
	add(datagram)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// ipPacket is an IP packet with a UDP datagram.
func ipPacket(from, to netip.AddrPort, payload []byte) []byte {
	length := udpLength + len(payload)
	var b []byte
	if from.Addr().Is4() {
		b = make([]byte, ip4Length, ip4Length+length)
		b[0], b[8], b[9] = 0x45, hopLimit, protocolUDP
		binary.BigEndian.PutUint16(b[2:], uint16(ip4Length+length))
		source, destination := from.Addr().As4(), to.Addr().As4()
		copy(b[12:], source[:])
		copy(b[16:], destination[:])
		sum := uint32(0)
		for i := 0; i < ip4Length; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	} else {
		b = make([]byte, ip6Length, ip6Length+length)
		b[0], b[6], b[7] = 0x60, protocolUDP, hopLimit
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		source, destination := from.Addr().As16(), to.Addr().As16()
		copy(b[8:], source[:])
		copy(b[24:], destination[:])
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(append(b, 0, 0), payload...)
	sum := checksum(from.Addr(), to.Addr(), b[at:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}
