// SPDX-License-Identifier: Apache-2.0

// The outcome of a request: whether it left, and whether the agent answered.
package cli

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// unreached is the error of a request that no agent answered.
type unreached struct{ error }

func (u unreached) Unwrap() error { return u.error }

// outcome records how far one request got.
type outcome struct {
	sent, answered atomic.Bool
}

type outcomeKey struct{}

// of marks an error that is not the agent's own.
func (o *outcome) of(err error) error {
	if status.Code(err) == codes.Unavailable && !o.answered.Load() {
		return unreached{err}
	}
	return err
}

// outcomes is a gRPC stats handler that fills in the outcome of each request.
type outcomes struct{}

func (outcomes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (outcomes) HandleRPC(ctx context.Context, event stats.RPCStats) {
	o, ok := ctx.Value(outcomeKey{}).(*outcome)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutHeader:
		o.sent.Store(true)
	case *stats.InTrailer:
		o.answered.Store(true)
	}
}

func (outcomes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (outcomes) HandleConn(context.Context, stats.ConnStats) {}

// watchedStream is a stream whose errors say whether they are the agent's own.
type watchedStream struct {
	grpc.ClientStream
	outcome *outcome
}

func (w watchedStream) Header() (metadata.MD, error) {
	m, err := w.ClientStream.Header()
	return m, w.outcome.of(err)
}

func (w watchedStream) RecvMsg(m any) error { return w.outcome.of(w.ClientStream.RecvMsg(m)) }

// attempts stores the error of the last attempt to connect.
type attempts struct {
	mu              sync.Mutex
	dial, handshake error
}

// last returns the error of the dial or, after a dial that succeeded, of the TLS handshake; at most one is not nil.
func (a *attempts) last() (dial, handshake error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dial, a.handshake
}

// dialed makes a dialer remember its errors.
func (a *attempts) dialed(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := dial(ctx, address)
		a.mu.Lock()
		a.dial, a.handshake = err, nil
		a.mu.Unlock()
		return c, err
	}
}

// observedTLS are credentials that remember the error of their handshake.
type observedTLS struct {
	credentials.TransportCredentials
	attempts *attempts
}

func (s observedTLS) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := s.TransportCredentials.ClientHandshake(ctx, authority, c)
	s.attempts.mu.Lock()
	s.attempts.handshake = err
	s.attempts.mu.Unlock()
	return secure, info, err
}

func (s observedTLS) Clone() credentials.TransportCredentials {
	return observedTLS{s.TransportCredentials.Clone(), s.attempts}
}

// wrongWith is the agent's error about a field of a request; empty: none.
func wrongWith(s *status.Status, field string) string {
	for _, detail := range s.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				if v.GetField() == field {
					return v.GetDescription()
				}
			}
		}
	}
	return ""
}
