// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
)

// ReadState answers a question about operational state.
func (s *server) ReadState(ctx context.Context, packed *anypb.Any) (*anypb.Any, error) {
	st := s.registry.StateOf(packed.MessageName())
	if st == nil {
		return nil, status.Errorf(codes.InvalidArgument, "%q asks for no operational state", packed.MessageName())
	}
	query := st.Query.New()
	if err := packed.UnmarshalTo(query.Interface()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %v", packed.MessageName(), err)
	}
	reply, err := s.read(ctx, st, query.Interface())
	if err != nil {
		return nil, err
	}
	st.Filter(query, reply.ProtoReflect())
	return anypb.New(reply)
}

func (s *server) read(ctx context.Context, st *object.State, query proto.Message) (proto.Message, error) {
	if !dataplane.Answers(st.Query.Descriptor()) {
		return s.readService(ctx, st, query)
	}
	if !st.Notes.GetEverywhere() || len(s.links) == 1 || len(metadata.ValueFromIncomingContext(ctx, DataplaneHeader)) > 0 {
		plane, err := s.chosen(ctx, st.About(query.ProtoReflect())...)
		if err != nil {
			return nil, err
		}
		return s.readFrom(ctx, plane, st, query)
	}
	all := st.Reply.New().Interface()
	var missing error
	found := false
	for i := range s.links {
		some, err := s.readFrom(ctx, &s.links[i], st, query)
		switch {
		case status.Code(err) == codes.NotFound:
			// The VRF or the port is in others.
			missing = err
		case err != nil:
			return nil, err
		default:
			found = found || proto.Size(some) > 0
			proto.Merge(all, some)
		}
	}
	if !found && missing != nil {
		return nil, missing
	}
	return all, nil
}

// readService asks the service that provides the answer.
func (s *server) readService(ctx context.Context, st *object.State, query proto.Message) (proto.Message, error) {
	provider := s.host.Provided(query)
	if provider == nil {
		if of, is := strings.CutPrefix(st.Notes.GetPath(), "modules/"); is {
			name, _, _ := strings.Cut(of, "/")
			return nil, because(codes.Unavailable, NoService, "module %s is not attached", name)
		}
		return nil, because(codes.Unavailable, NoService, "no service answers %s; the agent's log has the reason", st.Query.Descriptor().Name())
	}
	header, m := metadata.ValueFromIncomingContext(ctx, DataplaneHeader), query.ProtoReflect()
	if f := m.Descriptor().Fields().ByName("dataplane"); f != nil && len(header) > 0 && !m.Has(f) {
		m.Set(f, protoreflect.ValueOfString(header[0]))
	}
	reply, err := provider(ctx, query)
	return reply, refusal(err)
}

// readFrom asks one data plane.
func (s *server) readFrom(ctx context.Context, plane *link, st *object.State, query proto.Message) (proto.Message, error) {
	asking, cancel := context.WithTimeout(ctx, s.config.Patience)
	defer cancel()
	reply, err := plane.client.Read(asking, query, st.Reply)
	which := ""
	if len(s.links) > 1 {
		which = " " + plane.name
	}
	if err != nil && asking.Err() != nil && ctx.Err() == nil {
		return nil, status.Errorf(codes.DeadlineExceeded, "the data plane%s is connected, and has not answered for %s: it is busy or stuck", which, s.config.Patience)
	}
	return reply, refusal(err)
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
	var about []object.Key
	if q.GetSession() != "" {
		about = []object.Key{{Kind: "Session", Name: q.GetSession()}}
	}
	plane, err := s.chosen(stream.Context(), about...)
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

// DataplaneHeader is the metadata of a request that selects one of several data planes.
const DataplaneHeader = "sluice-dataplane"

// checkChosen refuses the name of a data plane that the agent does not have.
func (s *server) checkChosen(header []string) error {
	names := s.linkNames()
	if len(header) == 0 || slices.Contains(names, header[0]) {
		return nil
	}
	return status.Errorf(codes.NotFound, "there is no data plane %q; there are %s", header[0], strings.Join(names, ", "))
}

func (s *server) linkNames() (names []string) {
	for i := range s.links {
		names = append(names, s.links[i].name)
	}
	return names
}

// choices checks the data plane header of every request, also where it makes no difference.
func (s *server) choices() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := s.checkChosen(metadata.ValueFromIncomingContext(ctx, DataplaneHeader)); err != nil {
				// Not NotFound: an object is not missing.
				return nil, status.Error(codes.InvalidArgument, status.Convert(err).Message())
			}
			return handler(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := s.checkChosen(metadata.ValueFromIncomingContext(stream.Context(), DataplaneHeader)); err != nil {
				return status.Error(codes.InvalidArgument, status.Convert(err).Message())
			}
			return handler(server, stream)
		}),
	}
}

// chosen returns the data plane of a request. Without the header, it is the one that has the object of the request.
func (s *server) chosen(ctx context.Context, about ...object.Key) (*link, error) {
	header := metadata.ValueFromIncomingContext(ctx, DataplaneHeader)
	var places []string
	for _, k := range about {
		if places = s.desired.Places(k); len(header) == 0 && len(places) == 1 {
			header = places
		}
	}
	for i := range s.links {
		l := &s.links[i]
		if len(header) == 0 && len(s.links) == 1 || len(header) > 0 && header[0] == l.name {
			return l, nil
		}
	}
	if err := s.checkChosen(header); err != nil {
		return nil, err
	}
	if len(places) > 1 {
		return nil, because(codes.InvalidArgument, WhichDataplane, "which data plane? %s is in %s", about[0], strings.Join(places, ", "))
	}
	return nil, because(codes.InvalidArgument, WhichDataplane, "which data plane? There are %s", strings.Join(s.linkNames(), ", "))
}

// LostTrailer is the trailer that counts packets that a stream's reader was too slow for.
const LostTrailer = "sluice-lost"

// pass forwards a data plane's stream. It sends the header after the data plane has begun.
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
