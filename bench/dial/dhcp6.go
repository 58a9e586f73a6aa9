// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
)

// RFC 8415: a client of IA_NA and IA_PD.
const (
	dhcp6Solicit   = 1
	dhcp6Advertise = 2
	dhcp6Request   = 3
	dhcp6Renew     = 5
	dhcp6Reply     = 7
	dhcp6Release   = 8

	clientPort6, serverPort6 = 546, 547
)

var allServers6 = [16]byte{0: 0xff, 1: 0x02, 13: 1, 15: 2}

// client6 is a line's DHCPv6 state: its server and its lease.
type client6 struct {
	transaction        uint32
	asking             byte
	duid               [mostDUID]byte
	duidLength         uint8
	bits               uint8
	address, delegated [16]byte
	// T1 of the latest answer, in seconds.
	renew uint32
}

// append6 appends a message of the client.
func (l *line) append6(b []byte, kind byte) []byte {
	c := &l.six
	b = append(b, kind, byte(c.transaction>>16), byte(c.transaction>>8), byte(c.transaction))
	b = append(append(b, 0, 1, 0, 10, 0, 3, 0, 1), l.mac[:]...) // DUID-LL
	if kind != dhcp6Solicit {
		b = append(append(b, 0, 2, 0, c.duidLength), c.duid[:c.duidLength]...)
	}
	b = append(b, 0, 8, 0, 2, 0, 0)         // elapsed time
	b = append(b, 0, 6, 0, 4, 0, 23, 0, 24) // name servers, domains
	with := kind != dhcp6Solicit && c.address != [16]byte{}
	b = append(b, 0, 3, 0, 12)
	if with {
		b[len(b)-1] += 28
	}
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	if with {
		b = append(append(append(b, 0, 5, 0, 24), c.address[:]...), 0, 0, 0, 0, 0, 0, 0, 0)
	}
	with = kind != dhcp6Solicit && c.delegated != [16]byte{}
	b = append(b, 0, 25, 0, 12)
	if with {
		b[len(b)-1] += 29
	}
	b = append(b, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	if with {
		b = append(b, 0, 26, 0, 25, 0, 0, 0, 0, 0, 0, 0, 0, c.bits)
		b = append(b, c.delegated[:]...)
	}
	return b
}

// send6 sends a message of the client.
func (l *line) send6(d *dialer, kind byte) {
	b, at := l.begin6(d)
	b = beginIP6(b, protocolUDP, 1, linkLocal(l.identifier), allServers6)
	udp := len(b)
	b = l.append6(beginUDP(b, clientPort6, serverPort6), kind)
	endUDP(b, udp)
	endIP6(b, at, 6)
	l.endIP(b, at)
	d.wire.queue(b)
}

// begin6 begins an IPv6 packet for the routers and servers of the link.
func (l *line) begin6(d *dialer) ([]byte, int) {
	if l.ipoe {
		b := l.ethernet(d.wire.room(), mac{0x33, 0x33, 0, 1, 0, 2}, typeIP6)
		return b, len(b)
	}
	return l.beginIP(d.wire.room(), typeIP6)
}

// ask6 begins a transaction.
func (l *line) ask6(d *dialer, kind byte) {
	l.six.transaction, l.six.asking = d.random.Uint32()&0xffffff, kind
	l.send6(d, kind)
}

// receive6 takes an answer of a server, and reports whether the line's state changed.
func (l *line) receive6(d *dialer, b []byte) bool {
	c := &l.six
	if len(b) < 4 || uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]) != c.transaction || c.asking == 0 {
		return false
	}
	kind := b[0]
	if kind == dhcp6Advertise && c.asking != dhcp6Solicit || kind == dhcp6Reply && c.asking == dhcp6Solicit || kind != dhcp6Advertise && kind != dhcp6Reply {
		return false
	}
	var address, delegated [16]byte
	var bits uint8
	mine := false
	options6(b[4:], func(code uint16, value []byte) {
		switch code {
		case 1:
			mine = len(value) == 10 && bytes.Equal(value[4:], l.mac[:])
		case 2:
			c.duidLength = uint8(copy(c.duid[:], value))
		case 3, 25:
			if len(value) < 12 {
				return
			}
			c.renew = binary.BigEndian.Uint32(value[4:])
			options6(value[12:], func(code uint16, value []byte) {
				switch {
				case code == 5 && len(value) >= 24:
					address = [16]byte(value[:16])
				case code == 26 && len(value) >= 25:
					bits, delegated = value[8], [16]byte(value[9:25])
				}
			})
		}
	})
	if !mine || address == [16]byte{} && delegated == [16]byte{} {
		return false
	}
	c.address, c.delegated, c.bits = address, delegated, bits
	if kind == dhcp6Advertise {
		l.ask6(d, dhcp6Request)
		return true
	}
	c.asking = 0
	l.done |= bound6
	return true
}

// options6 calls f for each whole option.
func options6(b []byte, f func(code uint16, value []byte)) {
	for len(b) >= 4 {
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length > len(b)-4 {
			return
		}
		f(binary.BigEndian.Uint16(b), b[4:4+length])
		b = b[4+length:]
	}
}

// solicitRouter sends a router solicitation (RFC 4861 section 4.1).
func (l *line) solicitRouter(d *dialer) {
	b, at := l.begin6(d)
	if l.ipoe {
		copy(b[:6], []byte{0x33, 0x33, 0, 0, 0, 2})
	}
	b = beginIP6(b, protocolICMP6, 255, linkLocal(l.identifier), [16]byte{0: 0xff, 1: 0x02, 15: 2})
	b = append(b, 133, 0, 0, 0, 0, 0, 0, 0)
	endIP6(b, at, 2)
	l.endIP(b, at)
	d.wire.queue(b)
}

// receiveIP6 takes an IPv6 packet for the line, and reports whether the line's state changed.
func (l *line) receiveIP6(d *dialer, packet []byte) bool {
	next, _, destination, payload, ok := ip6Payload(packet)
	if !ok || len(payload) < 8 {
		return false
	}
	switch {
	case next == protocolUDP && binary.BigEndian.Uint16(payload[2:]) == clientPort6:
		return l.receive6(d, payload[8:])
	case next == protocolICMP6 && payload[0] == 134 && len(payload) >= 16:
		l.done |= advertised
		for b := payload[16:]; len(b) >= 8 && b[1] != 0 && len(b) >= int(b[1])*8; b = b[int(b[1])*8:] {
			if b[0] == 3 && b[1] == 4 && b[2] == 64 && b[3]&0x40 != 0 {
				l.prefix = [8]byte(b[16:24])
			}
		}
		return true
	case next == protocolICMP6:
		l.receivePing(d, 1, payload, destination)
	}
	return false
}
