// SPDX-License-Identifier: Apache-2.0

// Packets for services: by far most messages of a data plane while subscribers dial in. The library makes eleven allocations for one, and
// a channel and a read of the socket for each cost more than the packet.
package dataplane

import (
	"bytes"
	"context"
	"io"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice.dev/sluice/agent/api"
)

// Fields of api/dataplane.proto.
const (
	replyEvent    = 7
	eventPacketIn = 1

	packetReason    = 1
	packetPort      = 2
	packetInterface = 3
	packetSession   = 4
	packetFrame     = 5
)

const (
	// After so many packets between two reads of the socket, the reader waits for more: to read a packet alone costs as much as to read several.
	// After very many, it waits longer.
	muchAtOnce, gather         = 4, time.Millisecond
	veryMuchAtOnce, gatherMore = 16, 2 * time.Millisecond
)

// Punted is an api.PacketIn.
type Punted struct {
	Reason, Port, Interface, Session string
	Frame                            []byte
}

// punts are the packets of a stream that no reader has taken yet. conn.mu guards waiting.
type punts struct {
	waiting []Punted
	// There may be some.
	ready chan struct{}
}

func (p *punts) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Punts streams the packets that are punted for these reasons: see Stream.Packets.
func (c *Client) Punts(ctx context.Context, reasons []string) (*Stream, error) {
	return c.openAs(ctx, &api.Request{Operation: &api.Request_Watch{Watch: &api.Watch{Punts: reasons}}},
		&call{replies: make(chan *api.Reply), punts: &punts{ready: make(chan struct{}, 1)}})
}

// Packets waits for packets of a stream of Punts, and returns all that there are. io.EOF: the data plane was done. The context ends the wait, not
// the stream.
func (s *Stream) Packets(ctx context.Context) ([]Punted, error) {
	for {
		// Before the queue: packets before the end are in it.
		ended := false
		select {
		case <-s.call.replies:
			ended = true
		default:
		}
		s.conn.mu.Lock()
		all, end := s.call.punts.waiting, s.call.end
		s.call.punts.waiting = nil
		s.conn.mu.Unlock()
		switch {
		case len(all) > 0:
			return all, nil
		case ended && end != nil:
			return nil, end
		case ended:
			return nil, io.EOF
		}
		select {
		case <-s.call.punts.ready:
		case <-s.call.replies:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// punted queues a packet for its stream. False: the reply belongs to another call. asleep is to be woken before more is waited for; nil: it knows
// already.
func (c *conn) punted(id uint64, p Punted) (asleep *punts, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.calls[id]
	if w == nil || w.punts == nil {
		return nil, false
	}
	if w.punted(p) {
		asleep = w.punts
	}
	return asleep, true
}

// punted queues a packet, with a frame of its own, and reports whether it is the first that waits. conn.mu is held.
func (w *call) punted(p Punted) (first bool) {
	switch {
	case w.abandoned:
		return false
	case len(w.punts.waiting) == streamDepth:
		w.lost++
		return false
	}
	p.Frame = bytes.Clone(p.Frame)
	w.punts.waiting = append(w.punts.waiting, p)
	return len(w.punts.waiting) == 1
}

// words are texts that many packets have: each once.
type words map[string]string

// mostWords are kept.
const mostWords = 1024

func (w words) of(text []byte) string {
	if one, there := w[string(text)]; there {
		return one
	}
	if len(w) == mostWords {
		clear(w)
	}
	one := string(text)
	w[one] = one
	return one
}

// unpackPunted reads a reply that has an id and a packet and nothing else, in the order of their fields, as the data plane packs it. The frame is a
// part of the reply. False: it is another reply, and for the library.
func unpackPunted(reply []byte, known words) (id uint64, p Punted, is bool) {
	if len(reply) == 0 || reply[0] != replyID<<3|byte(protowire.VarintType) {
		return 0, p, false
	}
	id, n := protowire.ConsumeVarint(reply[1:])
	if n < 0 {
		return 0, p, false
	}
	event, whole := only(reply[1+n:], replyEvent)
	in, also := only(event, eventPacketIn)
	if !whole || !also {
		return 0, p, false
	}
	var before protowire.Number
	for len(in) > 0 {
		number, kind, n := protowire.ConsumeTag(in)
		if n < 0 || kind != protowire.BytesType || number <= before {
			return 0, p, false
		}
		value, m := protowire.ConsumeBytes(in[n:])
		if m < 0 || number != packetFrame && !utf8.Valid(value) {
			return 0, p, false
		}
		in, before = in[n+m:], number
		switch number {
		case packetReason:
			p.Reason = known.of(value)
		case packetPort:
			p.Port = known.of(value)
		case packetInterface:
			p.Interface = known.of(value)
		case packetSession:
			p.Session = string(value)
		case packetFrame:
			p.Frame = value
		default:
			return 0, p, false
		}
	}
	return id, p, true
}

// only returns the field of a message that has no other.
func only(text []byte, field protowire.Number) (value []byte, is bool) {
	number, kind, n := protowire.ConsumeTag(text)
	if n < 0 || number != field || kind != protowire.BytesType {
		return nil, false
	}
	value, m := protowire.ConsumeBytes(text[n:])
	return value, m >= 0 && n+m == len(text)
}
