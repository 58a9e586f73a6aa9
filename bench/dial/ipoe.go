// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"time"
)

// RFC 2131: the client's side of DHCPv4.
const (
	dhcpDiscover = 1
	dhcpOffer    = 2
	dhcpRequest  = 3
	dhcpAck      = 5
	dhcpNak      = 6
	dhcpRelease  = 7

	clientPort4, serverPort4 = 68, 67

	dhcpHeader = 240
)

// send4 sends a DHCPv4 message.
func (l *line) send4(d *dialer, kind byte) {
	to, source, destination := broadcast, [4]byte{}, [4]byte{255, 255, 255, 255}
	bound := l.phase == up || kind == dhcpRelease
	if bound {
		to, source = l.server, l.ip4
		binary.BigEndian.PutUint32(destination[:], l.serverID)
	}
	b := l.ethernet(d.wire.room(), to, typeIP4)
	at := len(b)
	b = beginIP4(b, protocolUDP, source, destination)
	udp := len(b)
	b = beginUDP(b, clientPort4, serverPort4)
	message := len(b)
	b = append(b, make([]byte, dhcpHeader)...)
	m := b[message:]
	m[0], m[1], m[2] = 1, 1, 6
	binary.BigEndian.PutUint32(m[4:], l.xid)
	if bound {
		copy(m[12:], l.ip4[:])
	}
	copy(m[28:], l.mac[:])
	copy(m[236:], []byte{99, 130, 83, 99})
	b = append(append(b, 53, 1, kind, 61, 7, 1), l.mac[:]...)
	if kind == dhcpRequest && !bound {
		b = append(append(b, 50, 4), l.ip4[:]...)
		b = binary.BigEndian.AppendUint32(append(b, 54, 4), l.serverID)
	}
	if kind == dhcpRelease {
		b = binary.BigEndian.AppendUint32(append(b, 54, 4), l.serverID)
	}
	b = append(b, 55, 4, 1, 3, 6, 121, 255)
	endUDP(b, udp)
	endIP4(b, at)
	d.wire.queue(b)
}

func (l *line) resendIPoE(d *dialer) {
	if l.only6 {
		l.phase = requesting
		l.askAgain6(d)
		return
	}
	if !l.has(bound4) {
		if l.phase == requesting {
			l.send4(d, dhcpRequest)
		} else {
			l.send4(d, dhcpDiscover)
		}
	}
	if !d.without6 && l.has(bound4) {
		l.askAgain6(d)
	}
}

// receiveDHCP takes a message of a server.
func (l *line) receiveDHCP(d *dialer, from mac, b []byte) {
	if len(b) < dhcpHeader || b[0] != 2 || binary.BigEndian.Uint32(b[4:]) != l.xid || mac(b[28:34]) != l.mac {
		return
	}
	var kind byte
	var server, lease uint32
	var router [4]byte
	for o := b[dhcpHeader:]; len(o) > 0 && o[0] != 255; {
		if o[0] == 0 {
			o = o[1:]
			continue
		}
		if len(o) < 2 || int(o[1]) > len(o)-2 {
			return
		}
		value := o[2 : 2+int(o[1])]
		switch {
		case o[0] == 53 && len(value) == 1:
			kind = value[0]
		case o[0] == 54 && len(value) == 4:
			server = binary.BigEndian.Uint32(value)
		case o[0] == 51 && len(value) == 4:
			lease = binary.BigEndian.Uint32(value)
		case o[0] == 3 && len(value) >= 4:
			router = [4]byte(value[:4])
		}
		o = o[2+len(value):]
	}
	switch {
	case kind == dhcpOffer && l.phase == discovering:
		l.ip4, l.serverID, l.phase = [4]byte(b[16:20]), server, requesting
		l.send4(d, dhcpRequest)
		l.progress(d)
	case kind == dhcpAck && (l.phase == requesting || l.phase == up):
		first := !l.has(bound4)
		l.ip4, l.gateway4, l.serverID, l.server = [4]byte(b[16:20]), router, server, from
		l.renew = d.now + int64(lease)*int64(time.Second)/2
		l.done |= bound4
		l.echoes = 0
		if l.phase == up {
			d.at(l, l.renew)
			return
		}
		if first && !d.without6 {
			l.ask6(d, dhcp6Solicit)
		}
		l.progress(d)
		l.checkIPoE(d)
	case kind == dhcpNak && l.phase == up:
		d.ended(l)
	case kind == dhcpNak && l.phase == requesting:
		d.count.rejected++
		d.fail(l)
	}
}

func (l *line) checkIPoE(d *dialer) {
	if l.only6 {
		if l.six.asking != 0 || !l.has(bound6) {
			return
		}
		renewed := l.phase == up && l.echoes > 0
		if l.phase == requesting || renewed {
			l.echoes, l.renew = 0, d.now+int64(l.six.renew)*int64(time.Second)
		}
		if l.phase == requesting {
			d.isUp(l)
		} else if renewed {
			d.at(l, l.renew)
		}
		return
	}
	if l.phase == requesting && l.has(bound4) && (d.without6 || l.has(bound6)) {
		d.isUp(l)
	}
}

// renewIPoE renews both leases; a line that gets no answer begins anew.
func (l *line) renewIPoE(d *dialer) {
	if l.echoes++; l.echoes > echoFails {
		d.count.lost++
		d.ended(l)
		return
	}
	if !l.only6 {
		l.send4(d, dhcpRequest)
	}
	if l.has(bound6) {
		l.ask6(d, dhcp6Renew)
	}
	d.at(l, d.now+int64(retryTime))
}

// receiveIPoE takes a frame of the line.
func (l *line) receiveIPoE(d *dialer, f *frame) {
	switch f.etherType {
	case typeIP4:
		protocol, _, _, payload, ok := ip4Payload(f.payload)
		if ok && protocol == protocolUDP && len(payload) >= 8 && binary.BigEndian.Uint16(payload[2:]) == clientPort4 {
			l.receiveDHCP(d, f.source, payload[8:])
			return
		}
		l.receiveIP4(d, f.payload)
	case typeIP6:
		if len(f.payload) > ip6Header && f.payload[6] == protocolICMP6 && f.payload[ip6Header] == 135 {
			l.advertise(d, f)
		} else if l.receiveIP6(d, f.payload) {
			if l.only6 {
				l.server = f.source
			}
			l.checkIPoE(d)
		}
	case typeARP:
		l.receiveARP(d, f)
	}
}

// receiveARP answers for the line's address (RFC 826).
func (l *line) receiveARP(d *dialer, f *frame) {
	b := f.payload
	if len(b) < 28 || binary.BigEndian.Uint16(b[6:]) != 1 || [4]byte(b[24:28]) != l.ip4 || l.ip4 == [4]byte{} {
		return
	}
	out := l.ethernet(d.wire.room(), f.source, typeARP)
	out = append(out, 0, 1, 8, 0, 6, 4, 0, 2)
	out = append(append(out, l.mac[:]...), l.ip4[:]...)
	d.wire.queue(append(out, b[8:18]...))
}

// advertise answers a neighbour solicitation for an address of the line (RFC 4861 section 7.2.4).
func (l *line) advertise(d *dialer, f *frame) {
	_, source, _, payload, ok := ip6Payload(f.payload)
	if !ok || len(payload) < 24 {
		return
	}
	target := [16]byte(payload[8:24])
	own, has := l.ip6()
	if target != linkLocal(l.identifier) && (!has || target != own) {
		return
	}
	b := l.ethernet(d.wire.room(), f.source, typeIP6)
	at := len(b)
	b = beginIP6(b, protocolICMP6, 255, target, source)
	b = append(append(b, 136, 0, 0, 0, 0x60, 0, 0, 0), target[:]...)
	b = append(append(b, 2, 1), l.mac[:]...)
	endIP6(b, at, 2)
	d.wire.queue(b)
}

// hangUpIPoE gives the leases back.
func (l *line) hangUpIPoE(d *dialer) {
	if l.has(bound4) {
		l.send4(d, dhcpRelease)
	}
	if l.has(bound6) {
		l.ask6(d, dhcp6Release)
		l.six.asking = 0
	}
}
