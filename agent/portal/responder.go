// SPDX-License-Identifier: Apache-2.0
// A TCP that answers one request and keeps nothing of a connection.
//
// The initial sequence number of a connection (RFC 9293 section 3.4.1) is a digest of its addresses and ports, plus a
// mark: a digest of the client's initial sequence number, and whether the client takes large segments. So every later
// segment shows whether its connection was accepted here, whether it is the first one behind the SYN, and whether the
// answer was sent already. The answer is one segment with a FIN. If it is lost, the client sends its request again,
// and gets the answer again.

package portal

import (
	"encoding/binary"
	"hash/maphash"

	"sluice.dev/sluice/agent/tcp"
)

const (
	window   = 8192
	ourMSS   = 1400
	smallMSS = 536  // RFC 9293 section 3.7.1: every host accepts it
	largeMSS = 1200 // less than an IPv6 link's 1280 with headers

	// Lowest bits of the distance from the digest: how far into our bytes the client is. The answer is shorter than that.
	offsetBits = 11
	// Above them the mark. The bits above the mark are 0 in connections that were accepted here.
	markBits  = 11
	markLarge = 1 << (markBits - 1)
)

// responder answers segments. It may be used by several goroutines.
type responder struct {
	seed maphash.Seed
}

func newResponder() *responder { return &responder{seed: maphash.MakeSeed()} }

// base is the initial sequence number of a connection without its mark.
func (r *responder) base(s *tcp.Segment) uint32 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	write(&h, s)
	return uint32(h.Sum64())
}

// mark is the digest of the client's initial sequence number, without markLarge.
func (r *responder) mark(s *tcp.Segment, sequence uint32) uint32 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	write(&h, s)
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], sequence)
	h.Write(b[:])
	return uint32(h.Sum64()) & (markLarge - 1)
}

func write(h *maphash.Hash, s *tcp.Segment) {
	source, destination := s.Source.Addr().As16(), s.Destination.Addr().As16()
	h.Write(source[:])
	h.Write(destination[:])
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[:], s.Source.Port())
	binary.BigEndian.PutUint16(ports[2:], s.Destination.Port())
	h.Write(ports[:])
}

// outcome is the kind of answer to a segment.
type outcome string

const (
	accepted   outcome = "accepted"
	redirected outcome = "redirected"
	closed     outcome = "closed"
	reset      outcome = "reset"
	silent     outcome = "silent"
)

// respond answers a segment; page makes the answer to a request, of most bytes at most, or nil if it is no request.
func (r *responder) respond(s *tcp.Segment, page func(request []byte, most int) []byte) (answer []byte, o outcome) {
	reply := tcp.Segment{Source: s.Destination, Destination: s.Source, Sequence: s.Ack, Ack: s.Sequence + uint32(len(s.Payload)), Flags: tcp.ACK, Window: window}
	if s.Flags&tcp.FIN != 0 {
		reply.Ack++
	}
	switch {
	case s.Flags&tcp.RST != 0:
		return nil, silent
	case s.Flags&(tcp.SYN|tcp.ACK) == tcp.SYN:
		mark := r.mark(s, s.Sequence)
		if s.MSS >= largeMSS {
			mark |= markLarge
		}
		reply.Sequence, reply.Ack, reply.Flags, reply.MSS = r.base(s)+mark<<offsetBits, s.Sequence+1, tcp.SYN|tcp.ACK, ourMSS
		return reply.Packet(), accepted
	case s.Flags&tcp.ACK == 0 || s.Flags&tcp.SYN != 0:
		return nil, silent
	}
	at := s.Ack - 1 - r.base(s)
	offset, mark := at&(1<<offsetBits-1), at>>offsetBits
	switch {
	case mark >= 1<<markBits:
		// Of a connection that was there before the garden, or before the agent started.
		reply.Flags = tcp.RST
		return reply.Packet(), reset
	case len(s.Payload) == 0 && s.Flags&tcp.FIN == 0:
		return nil, silent
	case offset > 0:
		// The client has the answer. Further data is acknowledged and ignored.
		return reply.Packet(), closed
	case mark&(markLarge-1) != r.mark(s, s.Sequence-1):
		// Behind a segment that did not arrive: the client sends both again.
		return nil, silent
	case len(s.Payload) == 0:
		reply.Flags |= tcp.FIN
		return reply.Packet(), closed
	}
	most := smallMSS
	if mark&markLarge != 0 {
		most = largeMSS
	}
	reply.Payload = page(s.Payload, most)
	if reply.Payload == nil {
		reply.Flags |= tcp.RST
		return reply.Packet(), reset
	}
	reply.Flags |= tcp.PSH | tcp.FIN
	return reply.Packet(), redirected
}
