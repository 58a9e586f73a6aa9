// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/md5"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// RFC 2516, and RFC 1661, 1332, 1334, 1994, 5072: the subscriber's side.
const (
	padi = 0x09
	pado = 0x07
	padr = 0x19
	pads = 0x65
	padt = 0xa7

	tagServiceName = 0x0101
	tagHostUniq    = 0x0103
	tagCookie      = 0x0104

	pppIP4    = 0x0021
	pppIP6    = 0x0057
	pppLCP    = 0xc021
	pppPAP    = 0xc023
	pppCHAP   = 0xc223
	pppIPCP   = 0x8021
	pppIPv6CP = 0x8057

	confRequest   = 1
	confAck       = 2
	confNak       = 3
	confReject    = 4
	termRequest   = 5
	termAck       = 6
	echoRequest   = 9
	echoReply     = 10
	pppoeHeader   = 6
	pppoeMRU      = 1492
	optionMRU     = 1
	optionAuth    = 3
	optionMagic   = 5
	optionAddress = 3
	optionDNS1    = 129
	optionDNS2    = 131
)

func appendTag(b []byte, kind uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// discovery sends a discovery packet. Host-Uniq is the line's number.
func (l *line) discovery(d *dialer, code byte) {
	b := l.ethernet(d.wire.room(), l.server, typeDiscovery)
	at := len(b)
	b = append(b, 0x11, code, 0, 0, 0, 0)
	if code == padt {
		binary.BigEndian.PutUint16(b[at+2:], l.session)
	} else {
		b = appendTag(b, tagServiceName, nil)
		b = binary.BigEndian.AppendUint32(append(b, tagHostUniq>>8, tagHostUniq&0xff, 0, 4), l.number)
	}
	if code == padr {
		b = appendTag(b, tagCookie, l.cookie[:l.cookieLength])
	}
	binary.BigEndian.PutUint16(b[at+4:], uint16(len(b)-at-pppoeHeader))
	d.wire.queue(b)
}

// beginPPP begins a packet of the session; endPPP sets its length. `at` is where the PPP protocol is.
func (l *line) beginPPP(b []byte, protocol uint16) []byte {
	b = l.ethernet(b, l.server, typeSession)
	b = append(b, 0x11, 0, byte(l.session>>8), byte(l.session), 0, 0)
	return binary.BigEndian.AppendUint16(b, protocol)
}

func endPPP(b []byte, at int) { binary.BigEndian.PutUint16(b[at-2:], uint16(len(b)-at)) }

// control sends a packet of a PPP control protocol; f appends its data.
func (l *line) control(d *dialer, protocol uint16, code, id byte, f func([]byte) []byte) {
	b := l.beginPPP(d.wire.room(), protocol)
	at := len(b)
	b = append(b, code, id, 0, 0)
	if f != nil {
		b = f(b)
	}
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	endPPP(b, at-2)
	d.wire.queue(b)
}

func (l *line) nextID() byte {
	l.id++
	return l.id
}

func (l *line) requestLCP(d *dialer) {
	l.lcpID = l.nextID()
	l.control(d, pppLCP, confRequest, l.lcpID, func(b []byte) []byte {
		b = append(b, optionMRU, 4, pppoeMRU>>8, pppoeMRU&0xff, optionMagic, 6)
		return binary.BigEndian.AppendUint32(b, l.magic)
	})
}

func (l *line) requestIPCP(d *dialer) {
	l.ipcpID = l.nextID()
	l.control(d, pppIPCP, confRequest, l.ipcpID, func(b []byte) []byte {
		b = append(append(b, optionAddress, 6), l.ip4[:]...)
		if !l.withoutDNS {
			b = append(append(b, optionDNS1, 6), l.dns[0][:]...)
			b = append(append(b, optionDNS2, 6), l.dns[1][:]...)
		}
		return b
	})
}

func (l *line) requestIPv6CP(d *dialer) {
	l.ip6cpID = l.nextID()
	l.control(d, pppIPv6CP, confRequest, l.ip6cpID, func(b []byte) []byte {
		return append(append(b, 1, 10), l.identifier[:]...)
	})
}

// resendPPPoE repeats unanswered messages.
func (l *line) resendPPPoE(d *dialer) {
	switch l.phase {
	case discovering:
		l.server = broadcast
		l.discovery(d, padi)
	case requesting:
		l.discovery(d, padr)
	case linking:
		switch {
		case !l.has(lcpAcked):
			l.requestLCP(d)
		case !l.has(lcpPeer):
		case l.chapLength > 0:
			l.respond(d)
		case d.method == pppPAP:
			l.requestPAP(d)
		}
	case network:
		if !l.has(ipcpAcked) {
			l.requestIPCP(d)
		}
		if d.without6 {
			break
		}
		if !l.has(ip6cpAcked) {
			l.requestIPv6CP(d)
		}
		if l.has(ip6cpAcked | ip6cpPeer) {
			if !l.has(advertised) {
				l.solicitRouter(d)
			}
			l.askAgain6(d)
		}
	}
}

func (l *line) askAgain6(d *dialer) {
	if !l.has(bound6) {
		if l.six.asking == 0 {
			l.ask6(d, dhcp6Solicit)
		} else {
			l.send6(d, l.six.asking)
		}
	}
}

func (l *line) requestPAP(d *dialer) {
	l.control(d, pppPAP, 1, l.nextID(), func(b []byte) []byte {
		name, password := d.credentials(l)
		b = append(append(b, byte(len(name))), name...)
		return append(append(b, byte(len(password))), password...)
	})
}

// respond answers the server's challenge (RFC 1994 section 4.1).
func (l *line) respond(d *dialer) {
	name, password := d.credentials(l)
	text := append(append(append(d.scratch[:0], l.chapID), password...), l.chap[:l.chapLength]...)
	digest := md5.Sum(text)
	l.control(d, pppCHAP, 2, l.chapID, func(b []byte) []byte {
		return append(append(append(b, 16), digest[:]...), name...)
	})
}

// receivePPPoE takes a frame of the line.
func (l *line) receivePPPoE(d *dialer, f *frame) {
	b := f.payload
	if len(b) < pppoeHeader || b[0] != 0x11 {
		return
	}
	code, session, length := b[1], binary.BigEndian.Uint16(b[2:]), int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-pppoeHeader {
		return
	}
	b = b[pppoeHeader : pppoeHeader+length]
	if f.etherType == typeSession {
		if code == 0 && session == l.session && l.phase >= linking && f.source == l.server && len(b) >= 2 {
			l.receivePPP(d, binary.BigEndian.Uint16(b), b[2:])
		}
		return
	}
	switch {
	case code == pado && l.phase == discovering:
		l.cookieLength = 0
		for t := b; len(t) >= 4; {
			kind, size := binary.BigEndian.Uint16(t), int(binary.BigEndian.Uint16(t[2:]))
			if size > len(t)-4 {
				return
			}
			if kind == tagCookie && size <= mostCookie {
				l.cookieLength = uint8(copy(l.cookie[:], t[4:4+size]))
			}
			t = t[4+size:]
		}
		l.server, l.phase = f.source, requesting
		l.discovery(d, padr)
		l.progress(d)
	case code == pads && l.phase == requesting && f.source == l.server:
		if session == 0 {
			d.count.refused++
			d.fail(l)
			return
		}
		l.session, l.phase = session, linking
		l.requestLCP(d)
		l.progress(d)
	case code == padt && session == l.session && l.phase >= linking:
		d.ended(l)
	}
}

// options calls f for each whole option of a PPP control packet.
func options(b []byte, f func(kind byte, value []byte)) {
	for len(b) >= 2 && b[1] >= 2 && int(b[1]) <= len(b) {
		f(b[0], b[2:b[1]])
		b = b[b[1]:]
	}
}

func (l *line) receivePPP(d *dialer, protocol uint16, b []byte) {
	switch protocol {
	case pppIP4:
		l.receiveIP4(d, b)
		return
	case pppIP6:
		if l.receiveIP6(d, b) && l.phase == network {
			l.progress(d)
			l.check(d)
		}
		return
	}
	if len(b) < 4 || int(binary.BigEndian.Uint16(b[2:])) < 4 || int(binary.BigEndian.Uint16(b[2:])) > len(b) {
		return
	}
	code, id, data := b[0], b[1], b[4:binary.BigEndian.Uint16(b[2:])]
	switch {
	case protocol == pppLCP:
		l.receiveLCP(d, code, id, data)
	case protocol == pppPAP && l.phase == linking && code == 2, protocol == pppCHAP && l.phase == linking && code == 3:
		l.accepted(d)
	case protocol == pppPAP && l.phase == linking && code == 3, protocol == pppCHAP && l.phase == linking && code == 4:
		d.count.rejected++
		d.fail(l)
	case protocol == pppCHAP && code == 1 && len(data) > 0 && int(data[0]) < len(data) && int(data[0]) <= len(l.chap):
		l.chapID, l.chapLength = id, uint8(copy(l.chap[:], data[1:1+data[0]]))
		l.respond(d)
		l.progress(d)
	case protocol == pppIPCP && l.phase >= network:
		l.receiveIPCP(d, code, id, data)
	case protocol == pppIPv6CP && l.phase >= network:
		l.receiveIPv6CP(d, code, id, data)
	}
}

func (l *line) receiveLCP(d *dialer, code, id byte, data []byte) {
	again := func(code byte, d2 []byte) {
		l.control(d, pppLCP, code, id, func(b []byte) []byte { return append(b, d2...) })
	}
	switch code {
	case confRequest:
		method := uint16(0)
		options(data, func(kind byte, value []byte) {
			if kind == optionAuth && len(value) >= 2 {
				method = binary.BigEndian.Uint16(value)
			}
		})
		if method != 0 && method != d.method {
			nak := []byte{optionAuth, 5, pppCHAP >> 8, pppCHAP & 0xff, 5}
			if d.method == pppPAP {
				nak = []byte{optionAuth, 4, pppPAP >> 8, pppPAP & 0xff}
			}
			again(confNak, nak)
			return
		}
		again(confAck, data)
		l.done |= lcpPeer
		l.linked(d)
	case confAck:
		if id == l.lcpID {
			l.done |= lcpAcked
			l.linked(d)
		}
	case confNak, confReject:
		// The server accepts the usual options; any other case ends by timeout.
	case termRequest:
		l.control(d, pppLCP, termAck, id, nil)
		d.ended(l)
	case echoRequest:
		l.control(d, pppLCP, echoReply, id, func(b []byte) []byte { return binary.BigEndian.AppendUint32(b, l.magic) })
	case echoReply:
		l.echoes = 0
	}
}

// linked authenticates once LCP is open.
func (l *line) linked(d *dialer) {
	if l.phase != linking || !l.has(lcpAcked|lcpPeer) {
		return
	}
	if d.method == pppPAP {
		l.requestPAP(d)
	}
	l.progress(d)
}

func (l *line) accepted(d *dialer) {
	l.phase = network
	l.done |= authenticated
	l.requestIPCP(d)
	if !d.without6 {
		l.requestIPv6CP(d)
	}
	l.progress(d)
}

func (l *line) receiveIPCP(d *dialer, code, id byte, data []byte) {
	switch {
	case code == confRequest:
		options(data, func(kind byte, value []byte) {
			if kind == optionAddress && len(value) == 4 {
				l.gateway4 = [4]byte(value)
			}
		})
		l.control(d, pppIPCP, confAck, id, func(b []byte) []byte { return append(b, data...) })
		l.done |= ipcpPeer
	case id != l.ipcpID:
		return
	case code == confAck:
		l.done |= ipcpAcked
	case code == confNak, code == confReject:
		options(data, func(kind byte, value []byte) {
			switch {
			case code == confReject:
				l.withoutDNS = l.withoutDNS || kind != optionAddress
			case len(value) != 4:
			case kind == optionAddress:
				l.ip4 = [4]byte(value)
			case kind == optionDNS1, kind == optionDNS2:
				l.dns[(kind-optionDNS1)/2] = [4]byte(value)
			}
		})
		l.requestIPCP(d)
	}
	l.progressUnlessUp(d)
	l.check(d)
}

func (l *line) receiveIPv6CP(d *dialer, code, id byte, data []byte) {
	before := l.has(ip6cpAcked | ip6cpPeer)
	switch {
	case code == confRequest:
		l.control(d, pppIPv6CP, confAck, id, func(b []byte) []byte { return append(b, data...) })
		l.done |= ip6cpPeer
	case id != l.ip6cpID:
		return
	case code == confAck:
		l.done |= ip6cpAcked
	case code == confNak:
		options(data, func(kind byte, value []byte) {
			if kind == 1 && len(value) == 8 {
				l.identifier = [8]byte(value)
			}
		})
		l.requestIPv6CP(d)
	}
	if !before && l.has(ip6cpAcked|ip6cpPeer) && !d.without6 {
		l.ask6(d, dhcp6Solicit)
	}
	l.progressUnlessUp(d)
	l.check(d)
}

func (l *line) progressUnlessUp(d *dialer) {
	if l.phase == network {
		l.progress(d)
	}
}

// check marks the line as up when all of its protocols are open.
func (l *line) check(d *dialer) {
	if l.phase != network || !l.has(ipcpAcked|ipcpPeer) || !d.without6 && !l.has(ip6cpAcked|ip6cpPeer|advertised|bound6) {
		return
	}
	d.isUp(l)
}

// echo asks the server whether the session is there still.
func (l *line) echo(d *dialer) {
	if l.echoes++; l.echoes > echoFails {
		d.count.lost++
		d.ended(l)
		return
	}
	l.control(d, pppLCP, echoRequest, l.nextID(), func(b []byte) []byte { return binary.BigEndian.AppendUint32(b, l.magic) })
	d.at(l, d.now+d.echoInterval-int64(rand.Uint32()%256)*int64(time.Millisecond))
}

// hangUp ends the session as a home gateway does that is switched off in order.
func (l *line) hangUpPPPoE(d *dialer) {
	if l.phase >= linking {
		l.discovery(d, padt)
	}
}
