// SPDX-License-Identifier: Apache-2.0

// The time limit for reading a request. An unfinished request holds memory.
package server

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// ReadTime is the time limit for reading a request, as with REST.
const ReadTime = time.Minute

// Reading ends requests that are not read in time.
type Reading struct {
	Time time.Duration
	Log  *slog.Logger
}

type readingKey struct{}

// Enter begins the time of a request.
func (r Reading) Enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	limited, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(r.Time, func() {
		from := "unix"
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil && p.Addr.String() != "" {
			from = p.Addr.String()
		}
		r.Log.Warn("a request did not come in time, and is given up", "method", info.FullMethodName, "address", from)
		cancel()
	})
	context.AfterFunc(ctx, func() {
		timer.Stop()
		cancel()
	})
	return context.WithValue(limited, readingKey{}, timer), nil
}

// Options end the time of requests that were read.
func (r Reading) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unaryRead), grpc.ChainStreamInterceptor(streamRead)}
}

func hasRead(ctx context.Context) {
	if timer, ok := ctx.Value(readingKey{}).(*time.Timer); ok {
		timer.Stop()
	}
}

func unaryRead(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	hasRead(ctx)
	return handler(ctx, request)
}

func streamRead(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(server, reader{stream})
}

// reader is a stream whose first message comes in time.
type reader struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (r reader) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	if err == nil {
		hasRead(r.Context())
	}
	return err
}
