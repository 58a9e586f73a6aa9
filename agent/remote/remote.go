// SPDX-License-Identifier: Apache-2.0

// Package remote serves api/agent.proto over TCP: the same as on the Unix socket, to callers that package access knows.
package remote

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/service"
)

// Section is the configuration of a northbound of the type "grpc".
type Section struct {
	access.Section `yaml:",inline"`
}

// New returns an empty section.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.TLS.Certificate == "" {
		return object.Mistake("tls", "missing", "", "certificate and key")
	}
	return s.Section.Check()
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return &remote{section: *s} }

const (
	// Of a request, in bytes: some 200,000 sessions at once.
	longest = 64 << 20
	// Requests with changes in progress for one caller at a time: a caller cannot fill the memory, or take the turns of others.
	changesAtOnce = 4
)

type remote struct {
	section Section
	// For tests: called with where it listens.
	ready func(net.Addr)
}

// Run implements northbound.Northbound.
func (r *remote) Run(ctx context.Context, e northbound.Environment) error {
	guard, err := r.section.Section.Open(e.Name, e.Log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", r.section.Listen)
	if err != nil {
		return fmt.Errorf("listening at %s: %w", r.section.Listen, err)
	}
	d := &door{guard: guard, environment: e, methods: map[string]service.Method{}, reading: server.Reading{Time: server.ReadTime, Log: e.Log}}
	options := []grpc.ServerOption{grpc.ChainUnaryInterceptor(d.countUnary), grpc.ChainStreamInterceptor(d.countStream)}
	options = append(options, server.NoPanic(e.Log)...)
	options = append(options, d.reading.Options()...)
	options = append(options, grpc.Creds(credentials.NewTLS(guard.TLS())), grpc.InTapHandle(d.enter),
		grpc.ChainUnaryInterceptor(d.unary), server.Bounded(), grpc.MaxRecvMsgSize(longest), grpc.MaxSendMsgSize(server.MessageLimit),
		grpc.MaxConcurrentStreams(100), grpc.ConnectionTimeout(10*time.Second), grpc.MaxHeaderListSize(64<<10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second}))
	g := grpc.NewServer(options...)
	api.RegisterAgentServer(g, e.Agent.Service)
	for _, r := range e.Agent.RPCs {
		g.RegisterService(r.Desc, nil)
		for name, m := range r.Methods {
			d.methods[r.FullMethod(name)] = m
		}
	}
	module.ServeKinds(g, e.Registry)
	well := health.NewServer()
	well.SetServingStatus(api.Agent_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(g, well)
	reflection.Register(g)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		well.Shutdown()
		// Requests in progress are finished, but a client must not delay the end for long.
		hurry := time.AfterFunc(5*time.Second, g.Stop)
		g.GracefulStop()
		hurry.Stop()
	}()
	e.Log.Info("listening", "address", listener.Addr().String())
	if r.ready != nil {
		r.ready(listener.Addr())
	}
	if err := g.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving %s: %w", r.section.Listen, err)
	}
	<-stopped
	return nil
}

// needs is the role that each method needs, beside those of services (service.Method). Other methods need an admin.
var needs = map[string]access.Role{
	api.Agent_GetVersion_FullMethodName:     access.Read,
	api.Agent_Plan_FullMethodName:           access.Read,
	api.Agent_Apply_FullMethodName:          access.Operate,
	api.Agent_GetHistory_FullMethodName:     access.Read,
	api.Agent_Compare_FullMethodName:        access.Read,
	api.Agent_Rollback_FullMethodName:       access.Admin,
	api.Agent_Confirm_FullMethodName:        access.Operate,
	api.Agent_Get_FullMethodName:            access.Read,
	api.Agent_Describe_FullMethodName:       access.Read,
	api.Agent_Watch_FullMethodName:          access.Read,
	api.Agent_ReadState_FullMethodName:      access.Read,
	api.Agent_FollowPackets_FullMethodName:  access.Operate,
	api.Agent_CapturePackets_FullMethodName: access.Admin,
	api.Kinds_GetModuleKinds_FullMethodName: access.Read,

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      access.Read,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": access.Read,

	grpc_health_v1.Health_Check_FullMethodName: access.NoRole,
	grpc_health_v1.Health_List_FullMethodName:  access.NoRole,
	grpc_health_v1.Health_Watch_FullMethodName: access.NoRole,
}

// actions are the methods that change the configuration, with their names in the audit log.
var actions = map[string]string{
	api.Agent_Apply_FullMethodName: "apply", api.Agent_Rollback_FullMethodName: "rollback", api.Agent_Confirm_FullMethodName: "confirm",
}

type door struct {
	guard       *access.Guard
	environment northbound.Environment
	reading     server.Reading
	// Of services, by the full name.
	methods map[string]service.Method
	// How many requests with changes are under way, by caller.
	mu      sync.Mutex
	changes map[string]int
}

// begin counts one more request with changes of a caller. False: there are as many as may be.
func (d *door) begin(caller string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes[caller] == changesAtOnce {
		return false
	}
	if d.changes == nil {
		d.changes = map[string]int{}
	}
	d.changes[caller]++
	return true
}

func (d *door) end(caller string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changes[caller]--; d.changes[caller] == 0 {
		delete(d.changes, caller)
	}
}

// enter authenticates and authorizes the caller, before the request is read.
func (d *door) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	needed, known := needs[info.FullMethodName]
	if m, serves := d.methods[info.FullMethodName]; serves {
		needed = m.Role
	} else if !known {
		needed = access.Admin
	}
	if needed == access.NoRole {
		return d.reading.Enter(ctx, info)
	}
	d.environment.Counters.Received(1)
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the call has no peer")
	}
	var caller access.Caller
	tls, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, status.Error(codes.Internal, "the connection is not secured")
	}
	caller, err := d.guard.Caller(&tls.State, info.Header.Get("authorization"), p.Addr.String())
	if err != nil {
		d.refuse(info.FullMethodName, caller, err)
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	if err := caller.May(needed, info.FullMethodName); err != nil {
		d.refuse(info.FullMethodName, caller, err)
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if m := info.FullMethodName; m == api.Agent_Apply_FullMethodName || m == api.Agent_Plan_FullMethodName {
		if !d.begin(caller.Name) {
			return nil, status.Errorf(codes.ResourceExhausted, "%d requests with changes of %s are under way; try again when one of them has its answer", changesAtOnce, caller.Name)
		}
		// The context is the request's own, and ends with it.
		context.AfterFunc(ctx, func() { d.end(caller.Name) })
	}
	return d.reading.Enter(access.With(ctx, caller), info)
}

// refuse audits a refused change.
func (d *door) refuse(method string, c access.Caller, err error) {
	d.environment.Counters.Failed()
	action := actions[method]
	if m, serves := d.methods[method]; serves {
		action = m.Action
	}
	if action != "" {
		d.environment.Audit.Refuse(action, intent.Source{Owner: d.environment.Name, Who: c.Name, From: c.From}, nil, audit.Forbidden, err)
		return
	}
	d.environment.Log.Debug("a request was refused", "method", method, "who", c.Name, "address", c.From, "error", err)
}

// count counts errors that an operator must mend: not missing objects, conflicts of owners or revisions, and
// cancelled requests.
func (d *door) count(err error) {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.DataLoss:
		d.environment.Counters.Failed()
	}
}

func (d *door) countUnary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	d.count(err)
	return answer, err
}

func (d *door) countStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(service, stream)
	d.count(err)
	return err
}

// unary checks requests whose content decides the role that they need.
func (d *door) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	changes, ok := request.(*api.Changes)
	if !ok {
		return handler(ctx, request)
	}
	caller, ok := access.Of(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the call has no peer")
	}
	var what string
	switch {
	case changes.GetOwner() != "" && changes.GetOwner() != caller.Owner:
		what = "in the name of " + changes.GetOwner()
	case changes.GetForce():
		what = "to take over from another owner"
	default:
		return handler(ctx, request)
	}
	if err := caller.May(access.Admin, what); err != nil {
		d.refuse(info.FullMethod, caller, err)
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return handler(ctx, request)
}
