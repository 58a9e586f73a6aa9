package server

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
)

func (s *server) GetNodeCounters(ctx context.Context, q *api.NodeCountersQuery) (*api.NodeCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).NodeCounters)
}

func (s *server) GetPortCounters(ctx context.Context, q *api.PortCountersQuery) (*api.PortCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).PortCounters)
}

func (s *server) GetInterfaceCounters(ctx context.Context, q *api.InterfaceCountersQuery) (*api.InterfaceCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).InterfaceCounters)
}

func (s *server) GetSessionCounters(ctx context.Context, q *api.SessionCountersQuery) (*api.SessionCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).SessionCounters, named("Session", q.GetSessions()...)...)
}

func (s *server) GetQueueCounters(ctx context.Context, q *api.QueueCountersQuery) (*api.QueueCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).QueueCounters, named("Session", q.GetSession())...)
}

func (s *server) GetSchedulerCounters(ctx context.Context, q *api.SchedulerCountersQuery) (*api.SchedulerCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).SchedulerCounters, named("QosGroup", q.GetGroup())...)
}

func (s *server) GetDropCounters(ctx context.Context, q *api.DropCountersQuery) (*api.DropCountersList, error) {
	return asked(ctx, s, q, (*dataplane.Client).DropCounters,
		append(named("Session", q.GetSession()), named("Interface", q.GetInterface())...)...)
}

func (s *server) GetNeighborStates(ctx context.Context, q *api.NeighborStatesQuery) (*api.NeighborStates, error) {
	return asked(ctx, s, q, (*dataplane.Client).NeighborStates)
}

func (s *server) GetGtpuPaths(ctx context.Context, q *api.GtpuPathsQuery) (*api.GtpuPaths, error) {
	return asked(ctx, s, q, (*dataplane.Client).GtpuPaths)
}

func (s *server) FollowPackets(q *api.Trace, stream api.Agent_FollowPacketsServer) error {
	plane, err := s.chosen(stream.Context())
	if err != nil {
		return err
	}
	packets, err := plane.client.Trace(stream.Context(), q)
	return s.pass(stream, packets, err, func(reply *api.Reply) error {
		if p := reply.GetTraced(); p != nil {
			return stream.Send(p)
		}
		return nil
	})
}

func (s *server) CapturePackets(q *api.Capture, stream api.Agent_CapturePacketsServer) error {
	plane, err := s.chosen(stream.Context(), named("Session", q.GetSession())...)
	if err != nil {
		return err
	}
	packets, err := plane.client.Capture(stream.Context(), q)
	return s.pass(stream, packets, err, func(reply *api.Reply) error {
		if p := reply.GetCaptured(); p != nil {
			return stream.Send(p)
		}
		return nil
	})
}

// DataplaneHeader is the metadata of a request that says which of several data planes is meant.
const DataplaneHeader = "sluice-dataplane"

// WhichDataplane begins the message of a request that does not say which of several it is about.
const WhichDataplane = "which data plane?"

// chosen returns the data plane that a request is about. If that is not said, it is the one that an object goes to which the request
// is about.
func (s *server) chosen(ctx context.Context, about ...object.Key) (*link, error) {
	said := metadata.ValueFromIncomingContext(ctx, DataplaneHeader)
	var places []string
	for _, k := range about {
		if places = s.desired.Places(k); len(said) == 0 && len(places) == 1 {
			said = places
		}
	}
	var names []string
	for i := range s.links {
		l := &s.links[i]
		if len(said) == 0 && len(s.links) == 1 || len(said) > 0 && said[0] == l.name {
			return l, nil
		}
		names = append(names, l.name)
	}
	if len(said) > 0 {
		return nil, status.Errorf(codes.NotFound, "there is no data plane %q; there are %s", said[0], strings.Join(names, ", "))
	}
	if len(places) > 1 {
		return nil, status.Errorf(codes.InvalidArgument, "%s %s is in %s", WhichDataplane, about[0], strings.Join(places, ", "))
	}
	return nil, status.Errorf(codes.InvalidArgument, "%s There are %s", WhichDataplane, strings.Join(names, ", "))
}

// asked asks the chosen data plane.
func asked[Q, R any](ctx context.Context, s *server, q Q, ask func(*dataplane.Client, context.Context, Q) (R, error), about ...object.Key) (R, error) {
	var none R
	plane, err := s.chosen(ctx, about...)
	if err != nil {
		return none, err
	}
	asking, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	reply, err := ask(plane.client, asking, q)
	which := ""
	if len(s.links) > 1 {
		which = " " + plane.name
	}
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return none, status.Errorf(codes.DeadlineExceeded, "the data plane%s is connected, and has not answered for %s: it is busy or stuck", which, s.config.Patience)
	}
	return reply, refusal(err)
}

// named is the one object of a kind that a question is about; none: it is about others, too.
func named(kind string, names ...string) []object.Key {
	if len(names) != 1 || names[0] == "" {
		return nil
	}
	return []object.Key{{Kind: kind, Name: names[0]}}
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
