// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/subscriber"
)

// Codes of PAP (RFC 1334 section 2.2) and CHAP (RFC 1994 section 4).
const (
	papRequest = 1
	papAck     = 2
	papNak     = 3

	chapChallenge = 1
	chapResponse  = 2
	chapSuccess   = 3
	chapFailure   = 4
)

const (
	challengeTime = 3 * time.Second
	maxChallenges = 8
	mostMessage   = 200
)

// authentication exists while the peer authenticates, and until it has shown that it got the result.
type authentication struct {
	deadline  int64
	challenge [16]byte
	method    Method
	// Of the challenge; of the peer's request that is under way or was answered.
	id, askedID uint8
	left        uint8
	asked       bool
	// The answer, with the PPP protocol field.
	answer []byte
}

func (a *authentication) due() int64 {
	if a == nil {
		return 0
	}
	return a.deadline
}

func (l *Link) beginAuthentication(now int64, out []Action) []Action {
	l.auth = &authentication{method: l.currentMethod(), id: uint8(l.config.Random()), left: maxChallenges}
	switch l.auth.method {
	case MethodPAP:
	case MethodCHAP, MethodMSCHAPv2:
		binary.BigEndian.PutUint64(l.auth.challenge[:], l.config.Random())
		binary.BigEndian.PutUint64(l.auth.challenge[8:], l.config.Random())
		return l.challengeAgain(now, out)
	case MethodEAP:
		return append(out, Action{Kind: Delegated})
	default:
		l.auth.asked = true
		return append(out, Action{Kind: Authenticate, Credentials: &subscriber.Credentials{}})
	}
	return out
}

func (l *Link) challengeAgain(now int64, out []Action) []Action {
	a := l.auth
	a.deadline = 0
	if a.asked || l.phase != authenticate {
		return out
	}
	if a.left == 0 {
		return l.Close(now, subscriber.UserError, "the peer does not authenticate", out)
	}
	a.left--
	a.deadline = now + int64(challengeTime)
	b := append([]byte{byte(len(a.challenge))}, a.challenge[:]...)
	return send(out, CHAP, chapChallenge, a.id, append(b, l.config.Name...))
}

// repeated answers a peer that did not get the result, or drops a packet without news.
func (l *Link) repeated(id uint8, out []Action) []Action {
	a := l.auth
	switch {
	case a == nil:
		return drop(out, "too-late")
	case len(a.answer) > 0 && id == a.askedID:
		return append(out, Action{Kind: Send, Packet: a.answer})
	}
	return drop(out, "repeated")
}

// authenticateAgain reports whether the peer did not get the answer to its credentials, which an agent before this one found right. It
// authenticates again.
func (l *Link) authenticateAgain(now int64, methods ...Method) bool {
	if !l.restored || l.phase != network || !slices.Contains(methods, l.currentMethod()) {
		return false
	}
	l.restored, l.phase, l.phaseEnds, l.advertiseDue = false, authenticate, now+int64(establishTime), 0
	l.ipcp, l.ip6cp = automaton{id: l.ipcp.id}, automaton{id: l.ip6cp.id}
	return true
}

func (l *Link) receivePAP(b []byte, now int64, out []Action) []Action {
	code, id, data, ok := parse(b)
	if ok && code == papRequest && l.authenticateAgain(now, MethodPAP) {
		out = l.beginAuthentication(now, out)
	}
	switch {
	case !ok:
		return drop(out, "malformed")
	case l.auth == nil || l.auth.method != MethodPAP || code != papRequest:
		return drop(out, "unexpected")
	case l.auth.asked:
		return l.repeated(id, out)
	}
	name, rest, ok1 := counted(data)
	password, _, ok2 := counted(rest)
	if !ok1 || !ok2 {
		return drop(out, "malformed")
	}
	l.auth.asked, l.auth.askedID = true, id
	c := &subscriber.Credentials{Username: string(name), Password: append([]byte{}, password...)}
	return append(out, Action{Kind: Authenticate, Credentials: c})
}

// counted cuts off a value that its length goes before.
func counted(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 1 || int(b[0]) > len(b)-1 {
		return nil, nil, false
	}
	return b[1 : 1+int(b[0])], b[1+int(b[0]):], true
}

func (l *Link) receiveCHAP(b []byte, now int64, out []Action) []Action {
	code, id, data, ok := parse(b)
	if ok && code == chapResponse && l.authenticateAgain(now, MethodCHAP, MethodMSCHAPv2) {
		// Its challenge is not known any more.
		return l.beginAuthentication(now, out)
	}
	a := l.auth
	switch {
	case !ok:
		return drop(out, "malformed")
	case a == nil || a.method != MethodCHAP && a.method != MethodMSCHAPv2 || code != chapResponse:
		return drop(out, "unexpected")
	case id != a.id:
		return drop(out, "not-our-challenge")
	case a.asked:
		return l.repeated(id, out)
	}
	value, name, ok := counted(data)
	if !ok {
		return drop(out, "malformed")
	}
	c := &subscriber.Credentials{Username: string(name)}
	switch {
	case a.method == MethodCHAP && len(value) == 16:
		c.CHAP = &subscriber.CHAP{Identifier: id, Challenge: append([]byte{}, a.challenge[:]...), Response: [16]byte(value)}
	case a.method == MethodMSCHAPv2 && len(value) == 49:
		// RFC 2759 section 4: challenge of the peer, 8 bytes reserved, response, flags.
		c.MSCHAPv2 = &subscriber.MSCHAPv2{Identifier: id, AuthenticatorChallenge: a.challenge, PeerChallenge: [16]byte(value[:16]),
			Response: [24]byte(value[24:48])}
	default:
		return drop(out, "malformed")
	}
	a.asked, a.askedID, a.deadline = true, id, 0
	return append(out, Action{Kind: Authenticate, Credentials: c})
}

// sendAuthResult sends the peer the result of its authentication.
func (l *Link) sendAuthResult(right bool, message string, out []Action) []Action {
	a := l.auth
	if a == nil || !a.asked || a.method == 0 {
		return out
	}
	if len(message) > mostMessage {
		message = message[:mostMessage]
	}
	var made []Action
	switch {
	case a.method == MethodPAP:
		code := uint8(papAck)
		if !right {
			code = papNak
		}
		made = send(nil, PAP, code, a.askedID, append([]byte{byte(len(message))}, message...))
	case right:
		made = send(nil, CHAP, chapSuccess, a.askedID, []byte(message))
	default:
		if a.method == MethodMSCHAPv2 && !strings.HasPrefix(message, "E=") {
			// RFC 2759 section 6.
			message = fmt.Sprintf("E=691 R=0 C=%X V=3 M=%s", a.challenge, message)
		}
		made = send(nil, CHAP, chapFailure, a.askedID, []byte(message))
	}
	a.answer = made[0].Packet
	return append(out, made[0])
}
