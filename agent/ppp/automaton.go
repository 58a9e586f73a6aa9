// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"bytes"
	"hash/fnv"
)

// Codes of RFC 1661 section 5.
const (
	configureRequest = 1 + iota
	configureAck
	configureNak
	configureReject
	terminateRequest
	terminateAck
	codeReject
	protocolReject
	echoRequest
	echoReply
	discardRequest
	identification // RFC 1570
	timeRemaining
)

type state uint8

// States of RFC 1661 section 4.2. We are always the side that opens, and the layer below is up as long as there is a link; a link that ends is
// forgotten at once, as PADT ends it for the peer, too. So Initial, Closed, Closing and Stopping do not occur.
const (
	starting state = iota
	stopped
	requestSent
	ackReceived
	ackSent
	opened
)

// automaton is the negotiation of one protocol (RFC 1661 section 4).
type automaton struct {
	deadline int64
	// Of the request that the peer got an Ack for: a repetition is no renegotiation.
	acked           uint32
	ackedID         uint8
	state           state
	id              uint8 // of our last Configure-Request
	left            uint8 // requests that may still be sent
	failures, tries uint8
	// The peer has sent a request since we began.
	heard bool
}

// layer is the part of a protocol that differs from the others.
type layer interface {
	protocol() Protocol
	// request adds the options of our Configure-Request.
	request(l *Link, b []byte) []byte
	// reporter looks at the peer's options: the code of the answer and its options. Of an Ack it takes them over.
	reporter(l *Link, options []byte, lastTry bool) (code uint8, answer []byte)
	// refused takes the peer's Nak or Reject of our request. An empty reason: go on.
	refused(l *Link, code uint8, options []byte) (reason string)
	up(l *Link, now int64, out []Action) []Action
	down(l *Link, now int64, out []Action) []Action
	// failed: the peer does not answer.
	failed(l *Link, now int64, out []Action) []Action
}

func (a *automaton) begin(l *Link, y layer, now int64, out []Action) []Action {
	if a.state != starting && a.state != stopped {
		return out
	}
	a.left, a.failures, a.heard = maxConfigure, 0, false
	a.state = requestSent
	a.id++
	return a.ask(l, y, now, out)
}

// ask sends a Configure-Request. If its options are those of the last one, it has the same identifier, so that an answer to either counts.
func (a *automaton) ask(l *Link, y layer, now int64, out []Action) []Action {
	a.deadline = now + int64(restartTime)
	if a.left > 0 {
		a.left--
	}
	return send(out, y.protocol(), configureRequest, a.id, y.request(l, nil))
}

func (a *automaton) timeout(l *Link, y layer, now int64, out []Action) []Action {
	a.deadline = 0
	switch a.state {
	case requestSent, ackReceived, ackSent:
	default:
		return out
	}
	if a.left == 0 {
		a.state = stopped
		return y.failed(l, now, out)
	}
	if a.state == ackReceived {
		a.state = requestSent
	}
	return a.ask(l, y, now, out)
}

func hashOf(b []byte) uint32 {
	h := fnv.New32a()
	h.Write(b)
	return h.Sum32()
}

// receive takes Configure and Terminate packets.
func (a *automaton) receive(l *Link, y layer, code, id uint8, data []byte, now int64, out []Action) []Action {
	switch code {
	case configureRequest:
		return a.receiveRequest(l, y, id, data, now, out)
	case configureAck:
		return a.receiveAck(l, y, id, data, now, out)
	case configureNak, configureReject:
		return a.receiveNak(l, y, code, id, data, now, out)
	case terminateAck:
		switch a.state {
		case ackReceived:
			a.state = requestSent
		case opened:
			out = y.down(l, now, out)
			if l.phase == finished {
				return out
			}
			a.state = requestSent
			a.id++
			a.left = maxConfigure
			return a.ask(l, y, now, out)
		}
	}
	return out
}

func (a *automaton) receiveRequest(l *Link, y layer, id uint8, data []byte, now int64, out []Action) []Action {
	if !wellFormed(data) {
		return drop(out, "malformed")
	}
	if a.state == opened && id == a.ackedID && hashOf(data) == a.acked {
		// Our Ack was lost, or the peer repeats itself.
		return send(out, y.protocol(), configureAck, id, data)
	}
	asks := false
	switch a.state {
	case starting:
		return drop(out, "too-early")
	case opened:
		out = y.down(l, now, out)
		if l.phase == finished {
			return out
		}
		a.state, asks = requestSent, true
	case stopped:
		a.state, asks = requestSent, true
	}
	switch {
	case asks:
		a.left, a.failures = maxConfigure, 0
		a.id++
		out = a.ask(l, y, now, out)
	case a.state == requestSent && !a.heard && y.protocol() == LCP:
		// Our request may have come before the peer listened: Linux does not listen for 65 ms after PADS.
		out = a.ask(l, y, now, out)
	}
	a.heard = true
	reply, answer := y.reporter(l, data, a.failures >= maxFailure)
	if reply == 0 {
		return y.failed(l, now, out)
	}
	out = send(out, y.protocol(), reply, id, answer)
	if reply != configureAck {
		if a.failures < 255 {
			a.failures++
		}
		if a.failures > 4*maxFailure {
			return y.failed(l, now, out)
		}
		if a.state == ackSent {
			a.state = requestSent
		}
		return out
	}
	a.failures, a.ackedID, a.acked = 0, id, hashOf(data)
	switch a.state {
	case requestSent:
		a.state = ackSent
	case ackReceived:
		a.state, a.deadline = opened, 0
		return y.up(l, now, out)
	}
	return out
}

// sameOptions compares options in any order: some peers sort those that they acknowledge.
func sameOptions(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) != len(b) || !wellFormed(a) {
		return false
	}
	for rest := a; len(rest) > 0; rest = rest[rest[1]:] {
		found := false
		for other := b; len(other) > 0 && !found; other = other[other[1]:] {
			found = bytes.Equal(rest[:rest[1]], other[:other[1]])
		}
		if !found {
			return false
		}
	}
	return true
}

func (a *automaton) receiveAck(l *Link, y layer, id uint8, data []byte, now int64, out []Action) []Action {
	if id != a.id || !sameOptions(data, y.request(l, nil)) {
		return drop(out, "not-our-request")
	}
	a.left = maxConfigure
	switch a.state {
	case requestSent:
		a.state = ackReceived
		a.deadline = now + int64(restartTime)
	case ackSent:
		a.state, a.deadline = opened, 0
		return y.up(l, now, out)
	}
	// A second Ack changes nothing.
	return out
}

func (a *automaton) receiveNak(l *Link, y layer, code, id uint8, data []byte, now int64, out []Action) []Action {
	if id != a.id || !wellFormed(data) {
		return drop(out, "not-our-request")
	}
	switch a.state {
	case requestSent, ackSent, ackReceived:
	default:
		return drop(out, "not-our-request")
	}
	if reason := y.refused(l, code, data); reason != "" {
		return y.failed(l, now, out)
	}
	if a.tries++; a.tries > 4*maxConfigure {
		return y.failed(l, now, out)
	}
	if a.state == ackReceived {
		a.state = requestSent
	}
	a.id++
	a.left = maxConfigure
	return a.ask(l, y, now, out)
}

// wellFormed reports whether options (RFC 1661 section 6) fill b exactly.
func wellFormed(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		b = b[b[1]:]
	}
	return true
}

// receiveNCP takes a packet of a network protocol.
func (l *Link) receiveNCP(a *automaton, y layer, b []byte, now int64, out []Action) []Action {
	code, id, data, ok := parse(b)
	if !ok {
		return drop(out, "malformed")
	}
	l.restored = false
	if l.phase != network || a.state == starting {
		// RFC 1661 section 3.5. Some peers begin before they are authenticated; they repeat themselves.
		if l.phase == network {
			return l.rejectProtocol(y.protocol(), b, drop(out, "no-addresses"))
		}
		return drop(out, "too-early")
	}
	switch code {
	case configureRequest, configureAck, configureNak, configureReject, terminateAck:
		return a.receive(l, y, code, id, data, now, out)
	case terminateRequest:
		switch a.state {
		case opened:
			out = y.down(l, now, out)
			a.state, a.deadline = stopped, 0
		case ackReceived, ackSent:
			a.state = requestSent
		}
		l.networkChanged(now)
		return send(out, y.protocol(), terminateAck, id, nil)
	case codeReject:
		return drop(out, "code-rejected")
	}
	l.echoID++
	return send(drop(out, "unknown-code"), y.protocol(), codeReject, l.echoID, cut(b[:4+len(data)], 256))
}

func cut(b []byte, most int) []byte { return b[:min(len(b), most)] }
