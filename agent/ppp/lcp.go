// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"encoding/binary"

	"sluice.dev/sluice/agent/subscriber"
)

// Options of LCP (RFC 1661 section 6).
const (
	optionMRU   = 1
	optionAuth  = 3
	optionMagic = 5
)

// Algorithms of CHAP's option.
const (
	algorithmMD5      = 5
	algorithmMSCHAPv2 = 0x81
)

type lcpLayer struct{}

func (lcpLayer) protocol() Protocol { return LCP }

func (l *Link) currentMethod() Method {
	if int(l.method) < len(l.config.Methods) {
		return l.config.Methods[l.method]
	}
	return 0
}

func (lcpLayer) request(l *Link, b []byte) []byte {
	if !l.noMRU && l.mru != defaultMRU {
		b = append(b, optionMRU, 4, byte(l.mru>>8), byte(l.mru))
	}
	switch l.currentMethod() {
	case MethodPAP:
		b = append(b, optionAuth, 4, byte(PAP>>8), byte(PAP&0xff))
	case MethodCHAP:
		b = append(b, optionAuth, 5, byte(CHAP>>8), byte(CHAP&0xff), algorithmMD5)
	case MethodMSCHAPv2:
		b = append(b, optionAuth, 5, byte(CHAP>>8), byte(CHAP&0xff), algorithmMSCHAPv2)
	case MethodEAP:
		b = append(b, optionAuth, 4, byte(EAP>>8), byte(EAP&0xff))
	}
	if !l.noMagic {
		b = binary.BigEndian.AppendUint32(append(b, optionMagic, 6), l.magic)
	}
	return b
}

func (lcpLayer) reporter(l *Link, options []byte, lastTry bool) (uint8, []byte) {
	var nak, reject []byte
	mru, magic := uint16(defaultMRU), uint32(0)
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		option := rest[:rest[1]]
		switch {
		case option[0] == optionMRU && len(option) == 4:
			mru = binary.BigEndian.Uint16(option[2:])
			// A larger MRU than fits into PPPoE would lose packets (RFC 2516 section 7, RFC 4638 section 6).
			if mru < leastMRU || mru > l.maxPayload {
				nak = append(nak, optionMRU, 4, byte(l.maxPayload>>8), byte(l.maxPayload))
			}
		case option[0] == optionMagic && len(option) == 6:
			magic = binary.BigEndian.Uint32(option[2:])
			if magic == l.magic && !l.noMagic {
				// RFC 1661 section 6.4: a loop, or chance.
				if l.loops++; l.loops > maxLoops {
					return 0, nil
				}
				// Before anything else: a packet that returns from a loop is not from a peer.
				return configureNak, binary.BigEndian.AppendUint32([]byte{optionMagic, 6}, l.newMagic())
			}
			if magic == 0 {
				nak = binary.BigEndian.AppendUint32(append(nak, optionMagic, 6), l.newMagic())
			}
		default:
			// PPPoE has no field compression (RFC 2516 section 7), and we do not authenticate to the peer.
			reject = append(reject, option...)
		}
	}
	code, answer := answerOf(options, nak, reject, lastTry)
	if code == configureAck {
		l.peerMRU, l.peerMagic = mru, magic
	}
	return code, answer
}

func (lcpLayer) refused(l *Link, code uint8, options []byte) string {
	for rest := options; len(rest) > 0; rest = rest[rest[1]:] {
		option := rest[:rest[1]]
		switch option[0] {
		case optionMRU:
			wish := uint16(0)
			if len(option) == 4 {
				wish = binary.BigEndian.Uint16(option[2:])
			}
			if code == configureReject || wish < leastMRU || wish > l.maxPayload {
				l.noMRU = true
			} else {
				l.mru = wish
			}
		case optionMagic:
			if code == configureReject {
				l.noMagic = true
			} else {
				if len(option) == 6 && binary.BigEndian.Uint32(option[2:]) == l.magic {
					l.loops++
				}
				l.magic = l.newMagic()
			}
		case optionAuth:
			if !l.chooseMethod(code, option) {
				return "the peer refuses to authenticate by any method that is offered"
			}
		}
	}
	return ""
}

// chooseMethod takes the peer's wish if we offer it, or else the next method that the peer did not refuse.
func (l *Link) chooseMethod(code uint8, option []byte) bool {
	l.refused |= 1 << l.method
	if code == configureReject {
		return false
	}
	wish := Method(0)
	switch {
	case len(option) >= 4 && Protocol(binary.BigEndian.Uint16(option[2:])) == PAP:
		wish = MethodPAP
	case len(option) >= 5 && Protocol(binary.BigEndian.Uint16(option[2:])) == CHAP && option[4] == algorithmMD5:
		wish = MethodCHAP
	case len(option) >= 5 && Protocol(binary.BigEndian.Uint16(option[2:])) == CHAP && option[4] == algorithmMSCHAPv2:
		wish = MethodMSCHAPv2
	case len(option) >= 4 && Protocol(binary.BigEndian.Uint16(option[2:])) == EAP:
		wish = MethodEAP
	}
	next := -1
	for i, m := range l.config.Methods {
		if l.refused>>i&1 != 0 {
			continue
		}
		if m == wish {
			next = i
			break
		}
		if next < 0 {
			next = i
		}
	}
	if next < 0 {
		return false
	}
	l.method = uint8(next)
	return true
}

func (lcpLayer) up(l *Link, now int64, out []Action) []Action {
	l.lcp.tries, l.refused = 0, 0
	if l.was {
		out = append(out, Action{Kind: Renegotiated})
	}
	l.phase = authenticate
	l.scheduleEcho(now)
	return l.beginAuthentication(now, out)
}

// down: the peer negotiates anew. The network protocols wait until it is authenticated again.
func (lcpLayer) down(l *Link, now int64, out []Action) []Action {
	if now-l.againSince > int64(againTime) {
		l.againSince, l.again = now, 0
	}
	if l.again++; l.again > maxAgain {
		return l.Close(now, subscriber.UserError, "the peer negotiates LCP again and again", out)
	}
	l.phase, l.auth = establish, nil
	l.ipcp = automaton{id: l.ipcp.id}
	l.ip6cp = automaton{id: l.ip6cp.id}
	l.echoDue, l.advertiseDue, l.echoes = 0, 0, 0
	l.phaseEnds = now + int64(establishTime)
	l.noMRU, l.noMagic, l.loops = false, false, 0
	return out
}

func (lcpLayer) failed(l *Link, now int64, out []Action) []Action {
	switch {
	case l.loops > maxLoops:
		return l.Close(now, subscriber.PortError, "the line is looped back", out)
	case l.refused != 0:
		return l.Close(now, subscriber.UserError, "the peer refuses to authenticate", out)
	}
	return l.Close(now, subscriber.LostCarrier, "the peer does not negotiate LCP", out)
}

func (l *Link) receiveLCP(b []byte, now int64, out []Action) []Action {
	code, id, data, ok := parse(b)
	if !ok {
		return drop(out, "malformed")
	}
	switch code {
	case configureRequest, configureAck, configureNak, configureReject, terminateAck:
		return l.lcp.receive(l, lcpLayer{}, code, id, data, now, out)
	case terminateRequest:
		return l.finish(subscriber.UserRequest, "the peer ended the link", send(out, LCP, terminateAck, id, nil))
	case codeReject:
		// RFC 1661 section 5.6: without these there is no link.
		if len(data) > 0 && data[0] >= configureRequest && data[0] <= terminateAck {
			return l.Close(now, subscriber.UserError, "the peer rejects a code that LCP needs", out)
		}
		return drop(out, "code-rejected")
	case protocolReject:
		return l.protocolRejected(data, now, out)
	case echoRequest:
		return l.answerEcho(id, data, out)
	case echoReply:
		// Its magic number is not looked at, but for a loop: some peers send 0.
		if len(data) >= 4 && l.magic != 0 && binary.BigEndian.Uint32(data) == l.magic && !l.noMagic {
			return drop(out, "looped-back")
		}
		l.echoes = 0
		return out
	case discardRequest, identification, timeRemaining:
		return out
	}
	l.echoID++
	return send(drop(out, "unknown-code"), LCP, codeReject, l.echoID, cut(b[:4+len(data)], 256))
}

func (l *Link) answerEcho(id uint8, data []byte, out []Action) []Action {
	if l.lcp.state != opened {
		return drop(out, "too-early")
	}
	if len(data) >= 4 && !l.noMagic && binary.BigEndian.Uint32(data) == l.magic {
		return drop(out, "looped-back")
	}
	answer := binary.BigEndian.AppendUint32(nil, l.Magic())
	if len(data) > 4 {
		answer = append(answer, cut(data[4:], int(l.MTU())-8)...)
	}
	return send(out, LCP, echoReply, id, answer)
}

// scheduleEcho spreads the first questions over the interval: many links come up at once.
func (l *Link) scheduleEcho(now int64) {
	l.echoDue = 0
	if l.config.EchoInterval > 0 && !(l.watched && l.Magic() != 0) {
		interval := int64(l.config.EchoInterval)
		l.echoDue = now + interval/2 + int64(l.config.Random()%uint64(max(interval/2, 1)))
	}
}

func (l *Link) askEcho(now int64, out []Action) []Action {
	l.echoDue = now + int64(l.config.EchoInterval)
	if l.lcp.state != opened {
		return out
	}
	if l.config.EchoFailures > 0 && l.echoes >= l.config.EchoFailures {
		return l.Lost(now, out)
	}
	l.echoes++
	l.echoID++
	return send(out, LCP, echoRequest, l.echoID, binary.BigEndian.AppendUint32(nil, l.Magic()))
}

// Watched hands the LCP echoes over to the data plane, as long as there is a magic number. The data plane's loss of the peer is Lost.
func (l *Link) Watched(now int64) {
	l.watched, l.echoes = true, 0
	l.scheduleEcho(now)
}

// Lost reports that the peer does not answer the data plane.
func (l *Link) Lost(now int64, out []Action) []Action {
	return l.Close(now, subscriber.LostCarrier, "the peer does not answer LCP Echo-Requests", out)
}

func (l *Link) rejectProtocol(p Protocol, b []byte, out []Action) []Action {
	l.echoID++
	return send(out, LCP, protocolReject, l.echoID, append(binary.BigEndian.AppendUint16(nil, uint16(p)), cut(b, 256)...))
}

func (l *Link) protocolRejected(data []byte, now int64, out []Action) []Action {
	if len(data) < 2 || l.lcp.state != opened {
		return drop(out, "malformed")
	}
	switch Protocol(binary.BigEndian.Uint16(data)) {
	case IPCP, IPv4:
		out = l.off(&l.ipcp, &l.off4, 4, out)
	case IPv6CP, IPv6:
		out = l.off(&l.ip6cp, &l.off6, 6, out)
	case LCP, PAP, CHAP, EAP, VSNCP, VSNP:
		return l.Close(now, subscriber.UserError, "the peer rejects a protocol that the link needs", out)
	default:
		return drop(out, "protocol-rejected")
	}
	l.networkChanged(now)
	return out
}

func (l *Link) off(a *automaton, off *bool, family uint8, out []Action) []Action {
	if *off || a.state == starting {
		return out
	}
	*off = true
	*a = automaton{id: a.id, state: stopped}
	if family == 6 {
		l.advertiseDue = 0
	}
	return append(out, Action{Kind: Refused, Family: family})
}
