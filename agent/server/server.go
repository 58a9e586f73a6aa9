// SPDX-License-Identifier: Apache-2.0

// Package server is the agent as a process: the store, the reconciler, the connections to data planes, and
// api/agent.proto on a Unix socket.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/affinity"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/heap"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/lease"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/parallel"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/service"
)

// MessageLimit is the longest message, in bytes, between agent and client: some 100,000 sessions at once.
const MessageLimit = 256 << 20

// workers serve requests one after the other, with stacks that have grown. Requests are served without them while all
// are busy.
const workers = 4

// Error details (google.rpc.ErrorInfo) for programs: reasons in this domain.
const (
	Domain = "sluice.dev"
	// NoDataplane: the request needs a data plane, and the agent is not connected to it.
	NoDataplane = "NO_DATAPLANE"
	// WhichDataplane: the request does not say which of several data planes it is about.
	WhichDataplane = "WHICH_DATAPLANE"
	// NoService: the service of the request does not run.
	NoService = "NO_SERVICE"
)

// DataplaneGone is the message of NoDataplane.
const DataplaneGone = "the agent has no data plane"

// because is an error with a reason for programs.
func because(code codes.Code, reason, format string, arguments ...any) error {
	s := status.Newf(code, format, arguments...)
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: Domain}); err == nil {
		s = detailed
	}
	return s.Err()
}

// Reason is the reason that the agent gives with an error; empty: none.
func Reason(s *status.Status) string {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason()
		}
	}
	return ""
}

// Owner of objects that clients of this API apply.
const Owner = "api"

// Config of the agent.
type Config struct {
	// Path of the Unix socket.
	Listen     string
	Dataplanes []Dataplane
	Registry   *object.Registry
	// The store of the configuration.
	Store   intent.Store
	Release string
	Log     *slog.Logger
	// Where changes are written down; nil: nowhere.
	Audit *audit.Log
	// Priorities of owners.
	Priorities map[string]int
	// By name.
	Northbounds map[string]northbound.Northbound
	// Of reconnecting and of trying again; zero for the usual.
	MinBackoff, MaxBackoff time.Duration
	// Services that run in the agent, and where they keep records (nowhere).
	Services []service.Definition
	Records  *durable.Log
	// In a data plane that the store does not know, objects that are not in the configuration may be deleted.
	BeginAnew bool
	// If not nil, which of several agents drives the data planes.
	Lease *lease.Section
	// Keeps the process off the processors of workers; nil: it runs anywhere.
	Affinity *affinity.Affinity
	// If not nil, it is told while very many objects are on their way.
	Parallel *parallel.Parallel
	// The longest time that a read waits for a data plane (10 s).
	Patience time.Duration
	// The time limit for reading a request (ReadTime).
	ReadTime time.Duration
}

// Dataplane is a data plane of the agent.
type Dataplane struct {
	intent.Dataplane
	Endpoint dataplane.Endpoint
}

// link is the connection to one.
type link struct {
	name   string
	labels map[string]string
	client *dataplane.Client
}

type server struct {
	api.UnimplementedAgentServer
	config   Config
	registry *object.Registry
	desired  intent.Interface
	host     *service.Host
	links    []link
	heap     *heap.Heap
	// Limits the calls that assemble a page of objects.
	pages chan struct{}
	// Ends with the process: streams, which would hold it up, end with it.
	ending context.Context
}

// Run is the agent, until the context ends. Ready is called when clients can connect.
func Run(ctx context.Context, config Config, ready func()) error {
	listener, err := listen(config.Listen)
	if err != nil {
		return err
	}
	// Closing removes the socket.
	defer listener.Close()
	owners := map[string]intent.Owner{}
	for name, priority := range config.Priorities {
		owners[name] = intent.Owner{Priority: priority}
	}
	if config.Patience == 0 {
		config.Patience = 10 * time.Second
	}
	if config.ReadTime == 0 {
		config.ReadTime = ReadTime
	}
	if len(config.Dataplanes) == 0 {
		return errors.New("no data plane is configured")
	}
	var planes []intent.Dataplane
	for _, p := range config.Dataplanes {
		planes = append(planes, p.Dataplane)
	}
	memory := heap.New()
	defer memory.End()
	if config.Parallel != nil {
		memory.Many(config.Parallel.Objects)
	}
	// The store, the data planes and the services may have very many objects.
	memory.Start()
	if err := service.Check(config.Registry, config.Services); err != nil {
		return err
	}
	for _, d := range config.Services {
		if _, taken := config.Northbounds[d.Name]; taken {
			return fmt.Errorf("northbound %s: a service has that name; call the northbound otherwise", d.Name)
		}
	}
	host := service.New(config.Services)
	desired, err := intent.New(intent.Config{Dataplanes: planes, Registry: config.Registry, Store: config.Store, Log: config.Log, Owners: owners,
		NotReady: host.NotReady, MadeFor: host.MadeFor, Undone: config.Audit.Undone,
		Reconciler: reconcile.Options{MinBackoff: config.MinBackoff, MaxBackoff: config.MaxBackoff}})
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	served := &serving{host: host}
	var term atomic.Uint64
	s := &server{config: config, registry: config.Registry, host: host, heap: memory, pages: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		desired: &audit.Intent{Interface: growing{desired, memory}, Log: config.Audit}, links: linksOf(config, desired, served, &term), ending: running}
	reading := Reading{Time: config.ReadTime, Log: config.Log}
	g := grpc.NewServer(append(append(append(NoPanic(config.Log), s.choices()...), reading.Options()...), grpc.Creds(peerCredentials{}), Bounded(), grpc.InTapHandle(reading.Enter),
		grpc.MaxRecvMsgSize(MessageLimit), grpc.MaxSendMsgSize(MessageLimit), grpc.NumStreamWorkers(workers),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second}))...)
	api.RegisterAgentServer(g, s)
	rpcs := host.RPCs(s.audit)
	for _, r := range rpcs {
		g.RegisterService(r.Desc, nil)
	}
	module.ServeKinds(g, config.Registry)

	var group sync.WaitGroup
	start := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	start(func() { desired.Run(running) })
	measured := prometheus.NewRegistry()
	packets := packetClients(config, served, &term)
	start(func() {
		host.Run(running, service.Config{Registry: config.Registry, Intent: desired, Log: config.Log, Metrics: measured, Records: config.Records, Packets: packets})
	})
	drivers := slices.Collect(maps.Values(packets))
	for _, l := range s.links {
		drivers = append(drivers, l.client)
	}
	start(func() { drive(running, config, drivers, &term) })
	failed := make(chan error, 1+len(config.Northbounds))
	start(func() {
		if err := g.Serve(listener); err != nil {
			failed <- fmt.Errorf("serving %s: %w", config.Listen, err)
		}
	})
	clients := map[string]*dataplane.Client{}
	for _, l := range s.links {
		clients[l.name] = l.client
	}
	agent := northbound.Agent{Release: config.Release, Dataplanes: clients, Services: measured, RPCs: rpcs,
		Northbounds: map[string]*northbound.Counters{}}
	for name := range config.Northbounds {
		agent.Northbounds[name] = &northbound.Counters{}
	}
	for name, n := range config.Northbounds {
		start(func() {
			counters := agent.Northbounds[name]
			own, counted := *s, agent
			own.desired = northbound.Counting(s.desired, counters)
			counted.Service = &own
			e := northbound.Environment{Name: name, Intent: own.desired, Registry: config.Registry,
				Log: config.Log.With("northbound", name), Audit: config.Audit, Counters: counters, Agent: counted}
			if err := n.Run(running, e); err != nil && running.Err() == nil {
				failed <- fmt.Errorf("northbound %s: %w", name, err)
			}
		})
	}
	config.Log.Info("listening", "address", config.Listen)
	if ready != nil {
		ready()
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	// Requests in progress are finished, but a client must not delay the end for long.
	hurry := time.AfterFunc(5*time.Second, g.Stop)
	g.GracefulStop()
	hurry.Stop()
	group.Wait()
	served.group.Wait()
	config.Log.Info("ended")
	return err
}

// drive keeps the clients connected: with a lease, while the agent holds it.
func drive(ctx context.Context, config Config, clients []*dataplane.Client, term *atomic.Uint64) {
	all := func(ctx context.Context) {
		var group sync.WaitGroup
		for _, c := range clients {
			group.Add(1)
			go func() {
				defer group.Done()
				c.Run(ctx)
			}()
		}
		group.Wait()
	}
	if config.Lease == nil {
		all(ctx)
		return
	}
	config.Lease.Run(ctx, lease.Agent{
		Name: clientName(), Log: config.Log,
		Waits: func(why error) {
			for _, c := range clients {
				c.Wait(why)
			}
		},
		Drive: func(ctx context.Context, now uint64) {
			term.Store(now)
			all(ctx)
		},
	})
}

// NoPanic keeps a mistake in serving one request from ending the agent.
func NoPanic(log *slog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unaryNoPanic(log)), grpc.ChainStreamInterceptor(streamNoPanic(log))}
}

// clientName is our name in messages of other clients of a data plane.
func clientName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("sluice agent, process %d on %s", os.Getpid(), host)
}

// serving runs the services' part of connections.
type serving struct {
	host  *service.Host
	group sync.WaitGroup
}

// connected runs the services' part of a connection, after that of the previous connection has ended: it holds `one`.
func (s *serving) connected(ctx context.Context, one *sync.Mutex, plane service.Plane, packets bool) {
	s.group.Add(1)
	go func() {
		defer s.group.Done()
		one.Lock()
		defer one.Unlock()
		s.host.Connected(ctx, plane, packets)
	}()
}

func linksOf(config Config, desired *intent.Desired, served *serving, term *atomic.Uint64) []link {
	var all []link
	for _, p := range config.Dataplanes {
		log := config.Log.With("dataplane", p.Name)
		var one sync.Mutex
		all = append(all, link{p.Name, p.Labels, dataplane.New(dataplane.Config{
			Endpoint: p.Endpoint, Log: log, Name: clientName(), Term: term.Load, MinBackoff: config.MinBackoff, MaxBackoff: config.MaxBackoff,
			Accept: func(ctx context.Context, c *dataplane.Client) error {
				return desired.AddKnown(ctx, p.Name, config.BeginAnew, (&plane{c}).List(ctx))
			},
			Connected: func(ctx context.Context, c *dataplane.Client, g *api.Greeting) {
				avoidWorkers(config.Affinity, p, g.GetWorkerCores(), log)
				served.connected(ctx, &one, service.Plane{Name: p.Name, Client: c}, false)
				if err := desired.AttachTo(ctx, p.Name, &plane{c}); err != nil {
					log.Error("unknown data plane", "error", err)
				}
			},
			Disconnected: func(error) { desired.DetachFrom(p.Name) },
		})})
	}
	return all
}

// avoidWorkers moves the agent to processors that workers of a data plane on this host do not have.
func avoidWorkers(a *affinity.Affinity, p Dataplane, cores []uint32, log *slog.Logger) {
	if a == nil || !p.Endpoint.Local() {
		return
	}
	if left, err := a.Avoid(p.Name, cores); err != nil {
		log.Warn("the agent shares processors with workers", "error", err)
	} else if len(cores) > 0 {
		log.Info("the agent keeps off the processors of workers", "workers", fmt.Sprint(cores), "left", fmt.Sprint(left))
	}
}

// packetClients makes connections of their own for the packets of services, so that objects do not wait behind packets.
func packetClients(config Config, served *serving, term *atomic.Uint64) map[string]*dataplane.Client {
	all := map[string]*dataplane.Client{}
	if len(served.host.Punts()) == 0 {
		return all
	}
	for _, p := range config.Dataplanes {
		var one sync.Mutex
		all[p.Name] = dataplane.New(dataplane.Config{
			Endpoint: p.Endpoint, Log: config.Log.With("dataplane", p.Name, "connection", "packets"), Name: clientName() + ", packets",
			Term:       term.Load,
			MinBackoff: config.MinBackoff, MaxBackoff: config.MaxBackoff,
			Connected: func(ctx context.Context, c *dataplane.Client, _ *api.Greeting) {
				served.connected(ctx, &one, service.Plane{Name: p.Name, Client: c}, true)
			},
		})
	}
	return all
}

func unaryNoPanic(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		defer noPanic(log, info.FullMethod, &err)
		return handler(ctx, request)
	}
}

func streamNoPanic(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer noPanic(log, info.FullMethod, &err)
		return handler(server, stream)
	}
}

// noPanic: a mistake in serving one request must not end the protocols that the agent runs.
func noPanic(log *slog.Logger, method string, err *error) {
	if p := recover(); p != nil {
		log.Error("a request panicked", "method", method, "error", p, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s: internal error; the agent's log has the details", method)
	}
}

// contested is a refusal because of others.
func contested(conflicts *intent.Conflicts) error {
	details := &api.Problems{}
	for _, c := range conflicts.All[:min(len(conflicts.All), intent.MaxConflicts)] {
		details.Problems = append(details.Problems, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: c.Field, Problem: c.Problem(),
			Found: c.Requested, Accepted: c.Mend(), Holder: c.Holder})
	}
	s, err := status.New(codes.FailedPrecondition, conflicts.Error()).WithDetails(details)
	if err != nil {
		return status.Error(codes.FailedPrecondition, conflicts.Error())
	}
	return s.Err()
}

// refusal returns the gRPC error for an error.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if mistakes := object.AllErrors(err); mistakes != nil {
		// Details travel in a header, which has its limits.
		mistakes = mistakes[:min(len(mistakes), 500)]
		details := &api.Problems{}
		for _, m := range mistakes {
			details.Problems = append(details.Problems, &api.Problem{Kind: m.Object.Kind, Name: m.Object.Name, Field: m.Field,
				Problem: m.Problem, Found: m.Found, Accepted: m.Accepted})
		}
		s, e := status.New(codes.InvalidArgument, mistakes[0].Error()).WithDetails(details)
		if e != nil {
			return status.Error(codes.InvalidArgument, mistakes[0].Error())
		}
		return s.Err()
	}
	if _, details := status.FromError(err); details {
		return err
	}
	var refused *dataplane.Error
	var conflicts *intent.Conflicts
	var moved *intent.Moved
	var left *intent.NotUndone
	var waiting *intent.Waiting
	var bad *intent.BadQuery
	switch {
	case errors.Is(err, intent.ErrNoRevision):
		return status.Error(codes.NotFound, err.Error())
	case errors.As(err, &moved):
		return status.Error(codes.Aborted, err.Error())
	case errors.As(err, &conflicts):
		return contested(conflicts)
	case errors.As(err, &waiting), errors.Is(err, intent.ErrNothingToConfirm):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, intent.ErrUnconfirmed):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.As(err, &left):
		return status.Error(codes.Internal, err.Error())
	case errors.As(err, &bad):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, syscall.ENOENT) && errors.As(err, &refused):
		return status.Error(codes.NotFound, err.Error())
	case errors.As(err, &refused):
		return wrongField(refused)
	case errors.Is(err, dataplane.ErrDisconnected):
		return because(codes.Unavailable, NoDataplane, "%s: %s", DataplaneGone, dataplane.Cause(err))
	case errors.Is(err, intent.ErrDisconnected):
		return because(codes.Unavailable, NoDataplane, "%s, and all or nothing was asked for", DataplaneGone)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, err.Error())
}

// wrongField is a refusal of a request, with the wrong field as google.rpc.BadRequest.
func wrongField(refused *dataplane.Error) error {
	s := status.New(codes.InvalidArgument, refused.Error())
	if refused.Field != "" {
		violation := &errdetails.BadRequest_FieldViolation{Field: refused.Field, Description: strings.TrimPrefix(refused.Message, refused.Field+": ")}
		if detailed, err := s.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}
