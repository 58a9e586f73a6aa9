// SPDX-License-Identifier: Apache-2.0

package main

import "encoding/binary"

const (
	typeIP4       = 0x0800
	typeARP       = 0x0806
	typeIP6       = 0x86dd
	typeDiscovery = 0x8863
	typeSession   = 0x8864

	protocolICMP  = 1
	protocolUDP   = 17
	protocolICMP6 = 58

	ip4Header = 20
	ip6Header = 40
)

type mac [6]byte

var broadcast = mac{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame is a parsed frame; it refers to its bytes.
type frame struct {
	destination, source mac
	vlans               [2]uint16
	count               int
	etherType           uint16
	payload             []byte
}

func isTag(etherType uint16) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100
}

func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	f.destination, f.source = mac(b[:6]), mac(b[6:12])
	at := 12
	for isTag(binary.BigEndian.Uint16(b[at:])) {
		if f.count == 2 || len(b) < at+6 {
			return f, false
		}
		f.vlans[f.count] = binary.BigEndian.Uint16(b[at+2:]) & 0x0fff
		f.count++
		at += 4
	}
	f.etherType, f.payload = binary.BigEndian.Uint16(b[at:]), b[at+2:]
	return f, true
}

// ethernet appends the header of a frame of the line.
func (l *line) ethernet(b []byte, destination mac, etherType uint16) []byte {
	b = append(append(b, destination[:]...), l.mac[:]...)
	for _, vlan := range l.vlans {
		if vlan != 0 {
			b = append(b, 0x81, 0x00, byte(vlan>>8), byte(vlan))
		}
	}
	return binary.BigEndian.AppendUint16(b, etherType)
}

// sum adds up 16-bit words (RFC 1071).
func sum(of uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		of += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		of += uint32(b[0]) << 8
	}
	return of
}

func folded(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// beginIP4 appends a header whose length and checksum endIP4 sets.
func beginIP4(b []byte, protocol byte, source, destination [4]byte) []byte {
	b = append(b, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0)
	return append(append(b, source[:]...), destination[:]...)
}

func endIP4(b []byte, at int) {
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	binary.BigEndian.PutUint16(b[at+10:], folded(sum(0, b[at:at+ip4Header])))
}

func beginIP6(b []byte, next, hops byte, source, destination [16]byte) []byte {
	b = append(b, 0x60, 0, 0, 0, 0, 0, next, hops)
	return append(append(b, source[:]...), destination[:]...)
}

// endIP6 sets the length, and the checksum that is `checksum` bytes behind the header.
func endIP6(b []byte, at, checksum int) {
	length := len(b) - at - ip6Header
	binary.BigEndian.PutUint16(b[at+4:], uint16(length))
	field := b[at+ip6Header+checksum:]
	field[0], field[1] = 0, 0
	c := folded(sum(uint32(length)+uint32(b[at+6]), b[at+8:]))
	if c == 0 && b[at+6] == protocolUDP {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(field, c)
}

// beginUDP appends a header whose length endUDP sets, without a checksum.
func beginUDP(b []byte, source, destination uint16) []byte {
	b = binary.BigEndian.AppendUint16(b, source)
	b = binary.BigEndian.AppendUint16(b, destination)
	return append(b, 0, 0, 0, 0)
}

func endUDP(b []byte, at int) { binary.BigEndian.PutUint16(b[at+4:], uint16(len(b)-at)) }

// ip4Payload returns protocol, addresses and payload of an IPv4 packet.
func ip4Payload(b []byte) (protocol byte, source, destination [4]byte, payload []byte, ok bool) {
	if len(b) < ip4Header || b[0]>>4 != 4 {
		return
	}
	header, length := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < ip4Header || length < header || length > len(b) {
		return
	}
	return b[9], [4]byte(b[12:16]), [4]byte(b[16:20]), b[header:length], true
}

func ip6Payload(b []byte) (next byte, source, destination [16]byte, payload []byte, ok bool) {
	if len(b) < ip6Header || b[0]>>4 != 6 {
		return
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-ip6Header {
		return
	}
	return b[6], [16]byte(b[8:24]), [16]byte(b[24:40]), b[ip6Header : ip6Header+length], true
}

// linkLocal is the address of an interface identifier.
func linkLocal(id [8]byte) (a [16]byte) {
	a[0], a[1] = 0xfe, 0x80
	copy(a[8:], id[:])
	return a
}

// identifier is the modified EUI-64 of a MAC (RFC 4291 appendix A).
func (m mac) identifier() [8]byte {
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}
