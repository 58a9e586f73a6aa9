// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"strconv"
	"time"
)

type phase uint8

const (
	idle phase = iota
	// PPPoE: PADI, PADR. IPoE: DHCPDISCOVER, DHCPREQUEST, and DHCPv6 beside it.
	discovering
	requesting
	// LCP and authentication; then IPCP, IPv6CP, router advertisement and DHCPv6.
	linking
	network
	up
)

const (
	retryTime  = 2 * time.Second
	retryMost  = 8 * time.Second
	mostTries  = 8
	mostCookie = 64
	mostDUID   = 32
	echoFails  = 3
)

// done are the parts of a set-up that a line has behind it.
type done uint16

const (
	lcpAcked done = 1 << iota
	lcpPeer
	authenticated
	ipcpAcked
	ipcpPeer
	ip6cpAcked
	ip6cpPeer
	advertised
	bound4
	bound6
)

// line is a subscriber: a home gateway on its circuit.
type line struct {
	number uint32
	mac    mac
	// Of another home gateway on the same line: part of the MAC.
	generation uint8
	ipoe       bool
	// IPv6 without IPv4.
	only6 bool
	phase phase
	tries uint8
	done  done
	vlans [2]uint16
	// Which user name it has.
	user uint8

	// In ticks of the wheel: when something is due, and the first place in the wheel.
	due, placed int64
	// Nanoseconds since the start: when the dial began, when the line is up, and when it ends in a churn.
	began, since, ends int64

	server mac
	// PPPoE and PPP.
	session                uint16
	magic                  uint32
	id                     uint8
	lcpID, ipcpID, ip6cpID uint8
	echoes                 uint8
	chapID, chapLength     uint8
	withoutDNS             bool
	chap                   [16]byte
	identifier             [8]byte
	cookie                 [mostCookie]byte
	cookieLength           uint8
	dns                    [2][4]byte

	// IPoE.
	xid, serverID uint32
	renew         int64

	ip4, gateway4 [4]byte
	prefix        [8]byte
	six           client6

	sent, received [2]uint32
}

func (l *line) has(d done) bool { return l.done&d == d }

func (l *line) name() string {
	if l.ipoe {
		return "ipoe-" + padded(l.number)
	}
	return "pppoe-" + padded(l.number)
}

func padded(n uint32) string {
	s := strconv.Itoa(int(n) + 1)
	for len(s) < 3 {
		s = "0" + s
	}
	return s
}

// macOf has the protocol, the generation and the number of a line in it.
func (l *line) setMAC() {
	kind := byte(0x10)
	if l.ipoe {
		kind = 0x20
	}
	l.mac = mac{2, kind, l.generation}
	l.mac[3], l.mac[4], l.mac[5] = byte(l.number>>16), byte(l.number>>8), byte(l.number)
	l.identifier = l.mac.identifier()
}

// ip6 is the subscriber's IPv6 address: of IA_NA, else of the link's prefix, else the first one of the delegated prefix.
func (l *line) ip6() (a [16]byte, ok bool) {
	switch {
	case l.six.address != [16]byte{}:
		return l.six.address, true
	case l.prefix != [8]byte{}:
		copy(a[:], l.prefix[:])
		copy(a[8:], l.identifier[:])
		return a, true
	case l.six.delegated != [16]byte{}:
		a = l.six.delegated
		a[15] = 1
		return a, true
	}
	return a, false
}

// begin dials.
func (l *line) begin(d *dialer) {
	l.phase, l.tries, l.done, l.session, l.server = discovering, 0, 0, 0, broadcast
	l.cookieLength, l.chapLength, l.echoes, l.withoutDNS = 0, 0, 0, false
	l.ip4, l.gateway4, l.prefix, l.dns, l.six = [4]byte{}, [4]byte{}, [8]byte{}, [2][4]byte{}, client6{}
	l.magic, l.xid, l.began, l.serverID = d.random.Uint32()|1, d.random.Uint32(), d.now, 0
	l.identifier = l.mac.identifier()
	d.active++
	l.resend(d)
}

// resend retransmits the request without an answer.
func (l *line) resend(d *dialer) {
	if l.tries++; l.tries > mostTries {
		d.count.failed++
		d.fail(l)
		return
	}
	if l.tries > 1 {
		d.count.retries++
	}
	if l.ipoe {
		l.resendIPoE(d)
	} else {
		l.resendPPPoE(d)
	}
	wait := min(retryTime<<(l.tries-1), retryMost)
	d.at(l, d.now+int64(wait)+int64(d.random.Uint32()%1000)*int64(time.Millisecond)/2)
}

// progress forgets how often the line tried.
func (l *line) progress(d *dialer) {
	l.tries = 1
	d.at(l, d.now+int64(retryTime))
}

// timeout carries out the timer that is due.
func (l *line) timeout(d *dialer) {
	switch {
	case l.phase == idle:
	case l.phase < up:
		l.resend(d)
	case l.ends != 0 && d.now >= l.ends:
		d.change(l)
	case l.ipoe:
		l.renewIPoE(d)
	default:
		l.echo(d)
	}
}

// ping sends an ICMP echo request of the line to a server; its number is in the identifier.
func (l *line) ping(d *dialer, family int) {
	server := d.server[family]
	if !server.IsValid() {
		return
	}
	b := d.wire.room()
	var at int
	if family == 0 {
		if l.ip4 == [4]byte{} {
			return
		}
		b, at = l.beginIP(b, typeIP4)
		b = beginIP4(b, protocolICMP, l.ip4, server.As4())
		icmp := len(b)
		b = append(b, 8, 0, 0, 0)
		b = l.mark(b)
		binary.BigEndian.PutUint16(b[icmp+2:], folded(sum(0, b[icmp:])))
		endIP4(b, at)
	} else {
		source, ok := l.ip6()
		if !ok {
			return
		}
		b, at = l.beginIP(b, typeIP6)
		b = beginIP6(b, protocolICMP6, 64, source, server.As16())
		b = l.mark(append(b, 128, 0, 0, 0))
		endIP6(b, at, 2)
	}
	l.endIP(b, at)
	d.wire.queue(b)
	l.sent[family]++
	d.count.sent[family]++
}

// mark identifies the line of a ping.
func (l *line) mark(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0x5c1e)
	b = binary.BigEndian.AppendUint16(b, 0)
	return append(binary.BigEndian.AppendUint32(b, l.number), make([]byte, 24)...)
}

// beginIP appends the headers before an IP packet; endIP sets its lengths.
func (l *line) beginIP(b []byte, etherType uint16) ([]byte, int) {
	if l.ipoe {
		b = l.ethernet(b, l.server, etherType)
		return b, len(b)
	}
	protocol := uint16(pppIP4)
	if etherType == typeIP6 {
		protocol = pppIP6
	}
	b = l.beginPPP(b, protocol)
	return b, len(b)
}

func (l *line) endIP(b []byte, at int) {
	if !l.ipoe {
		endPPP(b, at-2)
	}
}

// receivePing counts an echo reply for the line.
func (l *line) receivePing(d *dialer, family int, icmp []byte, to [16]byte) {
	reply := byte(0)
	if family == 1 {
		reply = 129
	}
	if len(icmp) < 12 || icmp[0] != reply || binary.BigEndian.Uint16(icmp[4:]) != 0x5c1e || l.phase != up {
		return
	}
	own := [16]byte{}
	if family == 0 {
		copy(own[:], l.ip4[:])
	} else {
		own, _ = l.ip6()
	}
	if binary.BigEndian.Uint32(icmp[8:]) != l.number || to != own {
		d.count.strangers++
		return
	}
	d.replied(l, family)
	l.received[family]++
	d.count.received[family]++
	d.arrived()
}

// receiveIP4 takes an IPv4 packet for the line that is not DHCP.
func (l *line) receiveIP4(d *dialer, packet []byte) {
	protocol, _, destination, payload, ok := ip4Payload(packet)
	if !ok || protocol != protocolICMP {
		return
	}
	var to [16]byte
	copy(to[:], destination[:])
	l.receivePing(d, 0, payload, to)
}
