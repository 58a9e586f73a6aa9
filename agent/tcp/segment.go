// SPDX-License-Identifier: Apache-2.0

// Package tcp is TCP (RFC 9293) for services that talk to hosts behind the data plane: segments, and connections that hosts open, without a
// kernel. A Conn has no I/O and no clock.
package tcp

import (
	"encoding/binary"
	"net/netip"
)

const (
	ip4Header, ip6Header, tcpHeader = 20, 40, 20
	protocol                        = 6
	hopLimit                        = 64
	optionEnd                       = 0
	optionNone                      = 1
	optionMSS                       = 2
	optionMSSLength                 = 4
)

// Flags of a segment.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Segment is a TCP segment.
type Segment struct {
	Source, Destination netip.AddrPort
	Sequence, Ack       uint32
	Flags               uint8
	Window              uint16
	// Maximum segment size of a SYN; 0: the option is absent.
	MSS     uint16
	Payload []byte
}

// Parse reads a segment in an IP packet. It does not verify TCP's checksum: forwarding does not either, tunnels check integrity, and a kernel
// with checksum offload sends none over veth. Payload is a part of b.
func Parse(b []byte) (s Segment, ok bool) {
	var source, destination netip.Addr
	switch {
	case len(b) >= ip4Header && b[0]>>4 == 4:
		header, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < ip4Header || total > len(b) || total < header || b[9] != protocol || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return s, false
		}
		source, destination = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[header:total]
	case len(b) >= ip6Header && b[0]>>4 == 6:
		end := ip6Header + int(binary.BigEndian.Uint16(b[4:]))
		if end > len(b) || b[6] != protocol {
			return s, false
		}
		source, destination = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[ip6Header:end]
	default:
		return s, false
	}
	if len(b) < tcpHeader {
		return s, false
	}
	header := int(b[12]>>4) * 4
	if header < tcpHeader || header > len(b) {
		return s, false
	}
	s.Source = netip.AddrPortFrom(source, binary.BigEndian.Uint16(b))
	s.Destination = netip.AddrPortFrom(destination, binary.BigEndian.Uint16(b[2:]))
	s.Sequence, s.Ack, s.Flags = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13]
	s.Window, s.MSS, s.Payload = binary.BigEndian.Uint16(b[14:]), mssOf(b[tcpHeader:header]), b[header:]
	return s, true
}

func mssOf(options []byte) uint16 {
	for len(options) > 0 {
		switch {
		case options[0] == optionEnd:
			return 0
		case options[0] == optionNone:
			options = options[1:]
			continue
		case len(options) < 2 || options[1] < 2 || int(options[1]) > len(options):
			return 0
		case options[0] == optionMSS && options[1] == optionMSSLength:
			return binary.BigEndian.Uint16(options[2:])
		}
		options = options[options[1]:]
	}
	return 0
}

// Packet is the IP packet with the segment.
func (s *Segment) Packet() []byte {
	options := 0
	if s.MSS != 0 {
		options = optionMSSLength
	}
	length := tcpHeader + options + len(s.Payload)
	source, destination := s.Source.Addr(), s.Destination.Addr()
	var b []byte
	if source.Is4() {
		b = make([]byte, ip4Header, ip4Header+length)
		b[0], b[6], b[8], b[9] = 0x45, 0x40, hopLimit, protocol
		binary.BigEndian.PutUint16(b[2:], uint16(ip4Header+length))
		copy(b[12:], source.AsSlice())
		copy(b[16:], destination.AsSlice())
		binary.BigEndian.PutUint16(b[10:], ^fold(sum(0, b)))
	} else {
		b = make([]byte, ip6Header, ip6Header+length)
		b[0], b[6], b[7] = 0x60, protocol, hopLimit
		binary.BigEndian.PutUint16(b[4:], uint16(length))
		copy(b[8:], source.AsSlice())
		copy(b[24:], destination.AsSlice())
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, s.Source.Port())
	b = binary.BigEndian.AppendUint16(b, s.Destination.Port())
	b = binary.BigEndian.AppendUint32(b, s.Sequence)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = append(b, byte((tcpHeader+options)/4)<<4, s.Flags)
	b = binary.BigEndian.AppendUint16(b, s.Window)
	b = append(b, 0, 0, 0, 0)
	if options > 0 {
		b = append(b, optionMSS, optionMSSLength)
		b = binary.BigEndian.AppendUint16(b, s.MSS)
	}
	b = append(b, s.Payload...)
	total := sum(sum(protocol+uint32(length), source.AsSlice()), destination.AsSlice())
	binary.BigEndian.PutUint16(b[at+16:], ^fold(sum(total, b[at:])))
	return b
}

// sum is the sum of the Internet checksum (RFC 1071), not folded yet.
func sum(total uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		total += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	return total
}

func fold(total uint32) uint16 {
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
