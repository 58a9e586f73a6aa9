package server

import (
	"context"
	"errors"
	"io"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

func (s *server) GetNodeCounters(ctx context.Context, q *api.NodeCountersQuery) (*api.NodeCountersList, error) {
	reply, err := s.dataplane.NodeCounters(ctx, q)
	return reply, refusal(err)
}

func (s *server) GetPortCounters(ctx context.Context, q *api.PortCountersQuery) (*api.PortCountersList, error) {
	reply, err := s.dataplane.PortCounters(ctx, q)
	return reply, refusal(err)
}

func (s *server) GetInterfaceCounters(ctx context.Context, q *api.InterfaceCountersQuery) (*api.InterfaceCountersList, error) {
	reply, err := s.dataplane.InterfaceCounters(ctx, q)
	return reply, refusal(err)
}

func (s *server) GetSessionCounters(ctx context.Context, q *api.SessionCountersQuery) (*api.SessionCountersList, error) {
	reply, err := s.dataplane.SessionCounters(ctx, q)
	return reply, refusal(err)
}

func (s *server) GetDropCounters(ctx context.Context, q *api.DropCountersQuery) (*api.DropCountersList, error) {
	reply, err := s.dataplane.DropCounters(ctx, q)
	return reply, refusal(err)
}

func (s *server) GetNeighborStates(ctx context.Context, q *api.NeighborStatesQuery) (*api.NeighborStates, error) {
	reply, err := s.dataplane.NeighborStates(ctx, q)
	return reply, refusal(err)
}

func (s *server) FollowPackets(q *api.Trace, stream api.Agent_FollowPacketsServer) error {
	packets, err := s.dataplane.Trace(stream.Context(), q)
	return s.pass(stream, packets, err, func(reply *api.Reply) error {
		if p := reply.GetTraced(); p != nil {
			return stream.Send(p)
		}
		return nil
	})
}

func (s *server) CapturePackets(q *api.Capture, stream api.Agent_CapturePacketsServer) error {
	packets, err := s.dataplane.Capture(stream.Context(), q)
	return s.pass(stream, packets, err, func(reply *api.Reply) error {
		if p := reply.GetCaptured(); p != nil {
			return stream.Send(p)
		}
		return nil
	})
}

// LostTrailer is the trailer that counts packets that a stream's reader was too slow for.
const LostTrailer = "sluice-lost"

// pass hands on what a data plane's stream brings. Its header is sent when the data plane has begun.
func (s *server) pass(stream grpc.ServerStream, from *dataplane.Stream, err error, send func(*api.Reply) error) error {
	if err != nil {
		return refusal(err)
	}
	defer from.Close()
	defer func() { stream.SetTrailer(metadata.Pairs(LostTrailer, strconv.FormatUint(from.Lost(), 10))) }()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, cancel := s.until(stream.Context())
	defer cancel()
	for {
		reply, err := from.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && s.ending.Err() != nil:
			return status.Error(codes.Unavailable, "the agent is ending")
		case err != nil:
			return refusal(err)
		}
		if err := send(reply); err != nil {
			return err
		}
	}
}
