// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

var broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	vlanBits  = 0x0fff
	udp       = 17
	hops      = 64
	port4     = 67
	client4   = 68
	client6   = 546
	port6     = 547
	mtu       = 1500
	udpHeader = 8
	ip4Header = 20
	ip6Header = 40
)

// frame is an Ethernet frame with up to two VLAN tags.
type frame struct {
	destination, source MAC
	// The received tags without priorities, for the answer's header.
	tags         []byte
	outer, inner uint16
	etherType    uint16
	payload      []byte
}

func isTag(etherType uint16) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100
}

// parseFrame reads a frame as the data plane does: a tag of VLAN 0 is a priority and no circuit.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	copy(f.destination[:], b)
	copy(f.source[:], b[6:])
	var vlans [2]uint16
	at, count := 12, 0
	for isTag(binary.BigEndian.Uint16(b[at:])) {
		if count == 2 || len(b) < at+6 {
			return f, false
		}
		vlans[count] = binary.BigEndian.Uint16(b[at+2:]) & vlanBits
		f.tags = append(f.tags, b[at], b[at+1], byte(vlans[count]>>8), byte(vlans[count]))
		at, count = at+4, count+1
	}
	f.outer, f.inner = vlans[0], vlans[1]
	if f.outer == 0 {
		f.outer, f.inner = f.inner, 0
	}
	f.etherType, f.payload = binary.BigEndian.Uint16(b[at:]), b[at+2:]
	return f, true
}

// answer is a frame back to where f came from.
func (f *frame) answer(source, destination MAC, etherType uint16, payload []byte) []byte {
	b := make([]byte, 0, 14+len(f.tags)+len(payload))
	b = append(append(append(b, destination[:]...), source[:]...), f.tags...)
	return append(binary.BigEndian.AppendUint16(b, etherType), payload...)
}

// datagram is a UDP datagram.
type datagram struct {
	source, destination netip.AddrPort
	payload             []byte
}

// parseDatagram reads an unfragmented IP packet with UDP. The rest of the frame is padding.
func parseDatagram(etherType uint16, b []byte) (d datagram, ok bool) {
	var source, destination netip.Addr
	var segment []byte
	switch etherType {
	case typeIPv4:
		if len(b) < ip4Header || b[0]>>4 != 4 {
			return d, false
		}
		header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
		fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0
		if header < ip4Header || total < header+udpHeader || total > len(b) || fragment || b[9] != udp {
			return d, false
		}
		source, destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		segment = b[header:total]
	case typeIPv6:
		if len(b) < ip6Header+udpHeader || b[0]>>4 != 6 || b[6] != udp {
			return d, false
		}
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < udpHeader || ip6Header+length > len(b) {
			return d, false
		}
		source, destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		segment = b[ip6Header : ip6Header+length]
	default:
		return d, false
	}
	length := int(binary.BigEndian.Uint16(segment[4:]))
	if length < udpHeader || length > len(segment) {
		return d, false
	}
	segment = segment[:length]
	if given := binary.BigEndian.Uint16(segment[6:]); given != 0 || etherType == typeIPv6 {
		if sum := pseudoSum(source, destination, length); given == 0 || fold(add(sum, segment)) != 0xffff {
			return d, false
		}
	}
	d.source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(segment))
	d.destination = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(segment[2:]))
	d.payload = segment[udpHeader:]
	return d, true
}

// etherType of an IP address's packets.
func etherType(a netip.Addr) uint16 {
	if a.Is4() {
		return typeIPv4
	}
	return typeIPv6
}

// packet returns the IP packet.
func (d *datagram) packet() []byte {
	length := udpHeader + len(d.payload)
	source, destination := d.source.Addr(), d.destination.Addr()
	var b []byte
	if source.Is4() {
		b = make([]byte, ip4Header, ip4Header+length)
		b[0] = 0x45
		binary.BigEndian.PutUint16(b[2:], uint16(ip4Header+length))
		b[8], b[9] = hops, udp
		from, to := source.As4(), destination.As4()
		copy(b[12:], from[:])
		copy(b[16:], to[:])
		binary.BigEndian.PutUint16(b[10:], ^fold(add(0, b)))
	} else {
		b = make([]byte, ip6Header, ip6Header+length)
		b[0] = 0x60
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		b[6], b[7] = udp, hops
		from, to := source.As16(), destination.As16()
		copy(b[8:], from[:])
		copy(b[24:], to[:])
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, d.source.Port())
	b = binary.BigEndian.AppendUint16(b, d.destination.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(append(b, 0, 0), d.payload...)
	sum := ^fold(add(pseudoSum(source, destination, length), b[at:]))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[at+6:], sum)
	return b
}

func pseudoSum(source, destination netip.Addr, length int) uint32 {
	sum := add(uint32(length)+udp, source.AsSlice())
	return add(sum, destination.AsSlice())
}

// add is the Internet checksum's sum (RFC 1071) before it is folded; of at most 64 KiB.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// linkLocal is a host's link-local address (RFC 4291 appendix A), as the data plane has it.
func linkLocal(m MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}
