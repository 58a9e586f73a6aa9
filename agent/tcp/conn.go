// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"errors"
	"time"
)

const (
	// Our window: received data is consumed at once.
	window = 32768
	// The MSS that we announce, and the default one of a peer that announces none (RFC 9293 section 3.7.1).
	ourMSS, defaultMSS4, defaultMSS6 = 1220, 536, 1220
	minMSS                           = 64
	// So much may be on the way, and may wait to be sent.
	flight, maxQueued = 16384, 256 << 10
	firstRTO, maxRTO  = time.Second, 16 * time.Second
	// Retransmissions until the peer counts as gone.
	maxTries = 6
)

// Reasons why a connection ends.
var (
	ErrReset   = errors.New("the peer resets the TCP connection")
	ErrClosed  = errors.New("the peer closes the TCP connection")
	ErrTimeout = errors.New("the peer does not acknowledge what it is sent by TCP")
	ErrFull    = errors.New("too much waits to be sent by TCP")
)

type state uint8

const (
	synReceived state = iota
	established
	closing // our FIN is queued or sent
	over
)

// Conn is a connection that a peer opened. Its methods are called one at a time. The caller sends the returned
// segments in order.
type Conn struct {
	local Segment // only its ends count
	state state
	mss   int
	// The peer's: the next expected sequence number, and the size of its window.
	next, taken uint32
	// Ours: the first byte that is not acknowledged, and the next to send. `out` begins with the first one.
	first, sent uint32
	out         []byte
	// How much of it was left when the connection ended.
	left  int
	fin   bool // behind out
	rto   time.Duration
	due   time.Time
	tries int
	err   error
}

// Accept answers a SYN. initial is our initial sequence number, which others cannot guess (RFC 6528).
func Accept(syn Segment, initial uint32, now time.Time) (*Conn, []Segment) {
	c := &Conn{local: Segment{Source: syn.Destination, Destination: syn.Source}, next: syn.Sequence + 1, taken: uint32(syn.Window), first: initial, sent: initial + 1,
		rto: firstRTO, due: now.Add(firstRTO), mss: defaultMSS4}
	if syn.Source.Addr().Is6() {
		c.mss = defaultMSS6
	}
	if syn.MSS != 0 {
		c.mss = min(max(int(syn.MSS), minMSS), ourMSS)
	}
	return c, []Segment{c.segment(c.first, SYN|ACK, nil)}
}

// IsOf reports whether a segment belongs to the connection.
func (c *Conn) IsOf(s Segment) bool {
	return s.Source == c.local.Destination && s.Destination == c.local.Source
}

// Established reports whether data may be sent.
func (c *Conn) Established() bool { return c.state == established }

// Err returns the error that ended the connection; nil: it is not over.
func (c *Conn) Err() error { return c.err }

// Unacknowledged is how many bytes of Send, the last ones, the peer has not acknowledged, also after the end.
func (c *Conn) Unacknowledged() int { return len(c.out) + c.left }

// Due is the time of the next Tick; the zero time: never.
func (c *Conn) Due() time.Time { return c.due }

func (c *Conn) segment(sequence uint32, flags uint8, payload []byte) Segment {
	s := Segment{Source: c.local.Source, Destination: c.local.Destination, Sequence: sequence, Ack: c.next, Flags: flags, Window: window, Payload: payload}
	if flags&SYN != 0 {
		s.MSS = ourMSS
	}
	return s
}

func (c *Conn) end(err error) {
	c.left += len(c.out)
	c.state, c.due, c.out = over, time.Time{}, nil
	if c.err == nil {
		c.err = err
	}
}

// before reports whether a sequence number is before another one.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// Receive processes a segment of the connection. data is the peer's data, in order.
func (c *Conn) Receive(s Segment, now time.Time) (data []byte, send []Segment) {
	if c.state == over {
		return nil, nil
	}
	if s.Flags&RST != 0 {
		// RFC 5961 section 3.2: only the exact number resets.
		if s.Sequence == c.next {
			c.end(ErrReset)
			return nil, nil
		}
		return nil, []Segment{c.segment(c.sent, ACK, nil)}
	}
	if s.Flags&SYN != 0 {
		if c.state == synReceived && s.Sequence+1 == c.next {
			return nil, []Segment{c.segment(c.first, SYN|ACK, nil)}
		}
		return nil, []Segment{c.segment(c.sent, ACK, nil)} // RFC 5961 section 4.2
	}
	if s.Flags&ACK == 0 {
		return nil, nil
	}
	if before(c.sent, s.Ack) {
		return nil, []Segment{c.segment(c.sent, ACK, nil)}
	}
	if before(c.first, s.Ack) {
		c.acknowledged(s.Ack, now)
	}
	c.taken = uint32(s.Window)
	if c.state == over {
		return nil, nil
	}
	data, answer := c.take(s)
	send = c.transmit(now)
	if answer && len(send) == 0 {
		send = []Segment{c.segment(c.sent, ACK, nil)}
	}
	return data, send
}

func (c *Conn) acknowledged(ack uint32, now time.Time) {
	n := int(ack - c.first)
	if c.state == synReceived {
		c.state = established
		n--
	}
	if n > len(c.out) {
		c.out = nil
		c.end(c.err) // our FIN
		return
	}
	c.out = c.out[n:]
	c.first, c.rto, c.tries = ack, firstRTO, 0
	c.due = time.Time{}
	if before(c.first, c.sent) {
		c.due = now.Add(c.rto)
	}
}

// take reads the payload and the FIN of a segment that has an acceptable acknowledgement. Data out of order is
// dropped, and the peer sends it again.
func (c *Conn) take(s Segment) (data []byte, answer bool) {
	if c.state == synReceived {
		return nil, false
	}
	length := uint32(len(s.Payload))
	answer = length > 0 || s.Flags&FIN != 0
	if before(c.next, s.Sequence) || before(s.Sequence+length, c.next) {
		return nil, answer
	}
	skip := c.next - s.Sequence
	if skip < length {
		data = s.Payload[skip:]
		c.next += uint32(len(data))
	}
	if s.Flags&FIN != 0 && s.Sequence+length == c.next && c.err == nil {
		c.next++
		c.err = ErrClosed
		c.Close()
	}
	return data, answer
}

// Send queues data.
func (c *Conn) Send(data []byte, now time.Time) []Segment {
	if c.state != established {
		return nil
	}
	if len(c.out)+len(data) > maxQueued {
		c.end(ErrFull)
		return []Segment{c.segment(c.sent, RST|ACK, nil)}
	}
	c.out = append(c.out, data...)
	return c.transmit(now)
}

// Close has the connection end when all is sent. Tick or Receive sends the FIN.
func (c *Conn) Close() {
	if c.state == established || c.state == synReceived {
		c.state, c.fin = closing, true
	}
}

// transmit sends as much data as the peer's window has room for.
func (c *Conn) transmit(now time.Time) (send []Segment) {
	if c.state == synReceived || c.state == over {
		return nil
	}
	for {
		at := int(c.sent - c.first)
		room := min(int(c.taken), flight) - at
		if at > len(c.out) {
			break // the FIN is on its way
		}
		n := min(len(c.out)-at, c.mss, room)
		if n > 0 {
			flags := uint8(ACK)
			if at+n == len(c.out) {
				flags |= PSH
			}
			send = append(send, c.segment(c.sent, flags, c.out[at:at+n:at+n]))
			c.sent += uint32(n)
			continue
		}
		if at == len(c.out) && c.fin {
			send = append(send, c.segment(c.sent, FIN|ACK, nil))
			c.sent++
		}
		break
	}
	if c.due.IsZero() && (before(c.first, c.sent) || len(c.out) > 0) {
		c.due = now.Add(c.rto)
	}
	return send
}

// Tick retransmits unacknowledged data (RFC 6298 section 5), and probes a closed window.
func (c *Conn) Tick(now time.Time) (send []Segment) {
	if c.state == over {
		return nil
	}
	if c.due.IsZero() || now.Before(c.due) {
		return c.transmit(now)
	}
	if c.tries++; c.tries > maxTries {
		c.end(ErrTimeout)
		return []Segment{c.segment(c.sent, RST|ACK, nil)}
	}
	c.rto = min(2*c.rto, maxRTO)
	c.due = now.Add(c.rto)
	switch {
	case c.state == synReceived:
		return []Segment{c.segment(c.first, SYN|ACK, nil)}
	case len(c.out) > 0:
		n := min(len(c.out), c.mss)
		if c.taken == 0 {
			n = 1
		}
		if int(c.sent-c.first) < n {
			c.sent = c.first + uint32(n)
		}
		return []Segment{c.segment(c.first, ACK|PSH, c.out[:n:n])}
	case c.fin && before(c.first, c.sent):
		return []Segment{c.segment(c.first, FIN|ACK, nil)}
	}
	c.due, c.tries = time.Time{}, 0
	return nil
}
