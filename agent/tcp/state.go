// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"net/netip"
	"slices"
	"time"
)

// State is a connection that another process can go on with. A caller that keeps the State after each Receive and Send, before the segments that
// these return are sent, loses no data and repeats none: the peer sends again what was not acknowledged.
type State struct {
	Local, Peer netip.AddrPort
	Established bool
	MSS         int
	// The next sequence number of the peer, and its window.
	Next, Window uint32
	// The sequence number of the first byte that the peer has not acknowledged, and the data from there on.
	First uint32
	Out   []byte
}

// State of the connection. It returns false if no process can continue it: it is over, or being closed.
func (c *Conn) State() (State, bool) {
	if c.Over() {
		return State{}, false
	}
	return State{Local: c.local.Source, Peer: c.local.Destination, Established: c.state == established, MSS: c.mss, Next: c.next, Window: c.taken, First: c.first, Out: slices.Clone(c.out)}, true
}

// Over reports whether the connection is over, or being closed.
func (c *Conn) Over() bool { return c.state == closing || c.state == over }

// Progress is how far data went in each direction. The State is worth keeping again when it has changed.
func (c *Conn) Progress() (received, queued uint32) {
	return c.next, c.first + uint32(len(c.out))
}

// Restore goes on with a connection of another process. Tick sends again what the peer may not have.
func Restore(s State, now time.Time) *Conn {
	c := &Conn{local: Segment{Source: s.Local, Destination: s.Peer}, state: synReceived, mss: min(max(s.MSS, minMSS), ourMSS), next: s.Next, taken: s.Window,
		first: s.First, sent: s.First + 1, rto: firstRTO, due: now}
	if s.Established {
		// All of it may have been sent.
		c.state, c.out = established, slices.Clone(s.Out)
		c.sent = c.first + uint32(len(c.out))
		if len(c.out) == 0 {
			c.due = time.Time{}
		}
	}
	return c
}
