package dataplane

import (
	"context"
	"io"

	"sluice.dev/sluice/agent/api"
)

// How many replies of a stream wait for a slow reader before they are lost.
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

// Close tells the data plane to end the stream, if it has not ended. It may be called more than once.
func (s *Stream) Close() {
	s.conn.mu.Lock()
	running := s.conn.calls[s.id] == s.call && !s.call.abandoned
	s.call.abandoned = true
	s.conn.mu.Unlock()
	if !running {
		return
	}
	// Nobody waits for what comes back: if this fails, the connection is gone, and the stream with it.
	_ = s.conn.start(&api.Request{Operation: &api.Request_Cancel{Cancel: &api.Cancel{Id: s.id}}},
		&call{answered: func(*api.Reply, error) {}})
}

// stream returns when the data plane has begun with it: requests are carried out in order, so the answer to one that has
// nothing to do says that the request before it was.
func (c *conn) stream(ctx context.Context, request *api.Request) (*Stream, error) {
	w := &call{replies: make(chan *api.Reply, streamDepth)}
	if err := c.start(request, w); err != nil {
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
