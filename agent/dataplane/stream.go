// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"io"

	"sluice.dev/sluice/agent/api"
)

// How many replies or packets of a stream wait for a slow reader before they are lost.
const streamDepth = 8192

// A Stream is the replies to a watch, trace or capture.
type Stream struct {
	conn *conn
	call *call
	id   uint64
}

// Next waits for a reply that has an answer. io.EOF: the data plane was done. The context ends the wait, not the stream.
func (s *Stream) Next(ctx context.Context) (*api.Reply, error) {
	select {
	case reply, more := <-s.call.replies:
		if more {
			return reply, nil
		}
		if s.call.end != nil {
			return nil, s.call.end
		}
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Lost counts replies that this end dropped because Next was not called often enough.
func (s *Stream) Lost() uint64 {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.call.lost
}

// Close asks the data plane to end the stream, if it has not ended. It may be called more than once.
func (s *Stream) Close() {
	s.conn.mu.Lock()
	running := s.conn.calls[s.id] == s.call && !s.call.abandoned
	s.call.abandoned = true
	s.conn.mu.Unlock()
	if !running {
		return
	}
	// The reply does not matter: if this fails, the connection is gone, and the stream with it.
	_ = s.conn.start(framing(&api.Request{Operation: &api.Request_Cancel{Cancel: &api.Cancel{Id: s.id}}}),
		&call{answered: func(*api.Reply, error) {}})
}

// stream returns when the data plane has begun with it: requests are carried out in order, so the answer to an empty
// one shows that the request before it was.
func (c *conn) stream(ctx context.Context, request *api.Request, w *call) (*Stream, error) {
	if err := c.start(framing(request), w); err != nil {
		return nil, err
	}
	s := &Stream{conn: c, call: w, id: request.Id}
	if _, err := c.call(ctx, &api.Request{Operation: &api.Request_Cancel{Cancel: &api.Cancel{}}}); err != nil {
		s.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[s.id] != w && w.end != nil {
		return nil, w.end
	}
	return s, nil
}

// Changes calls report with each event about objects of other clients, in one order with the answers of Put; and, without an object, with the
// generation after each answer. It returns when the data plane has begun with it, with its boot number and the generation then.
func (c *Client) Changes(ctx context.Context, report func(*api.Event)) (boot, generation uint64, err error) {
	conn, err := c.current()
	if err != nil {
		return 0, 0, err
	}
	conn.mu.Lock()
	conn.changes = report
	conn.mu.Unlock()
	first := make(chan uint64, 1)
	refused := make(chan error, 1)
	w := &call{
		each: func(e *api.Event) {
			if changed := e.GetChanged(); changed != nil && changed.GetObject() == nil && changed.GetDeleted() == nil {
				select {
				case first <- changed.GetGeneration():
				default:
				}
			}
			report(e)
		},
		answered: func(reply *api.Reply, err error) {
			if err == nil {
				err = Refused(reply.GetResult())
			}
			refused <- err
		},
	}
	if err := conn.start(framing(&api.Request{Operation: &api.Request_Watch{Watch: &api.Watch{Changes: true}}}), w); err != nil {
		return 0, 0, err
	}
	// As with a stream: when this is answered, the watch was, too.
	if _, err := conn.call(ctx, &api.Request{Operation: &api.Request_Cancel{Cancel: &api.Cancel{}}}); err != nil {
		return 0, 0, err
	}
	select {
	case generation := <-first:
		return conn.greeting.GetBoot(), generation, nil
	case err := <-refused:
		return 0, 0, fmt.Errorf("watching what others change: %w", err)
	default:
		return 0, 0, garbled(conn, "a watch of changes does not say with which generation it begins")
	}
}
