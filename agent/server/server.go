// Package server is the agent as a process: what is kept, the reconciler, the connection to the data plane, and
// api/agent.proto on a Unix socket.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/heap"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// MessageLimit is the longest message, in bytes, between agent and client: some 100,000 sessions at once.
const MessageLimit = 256 << 20

// workers serve requests one after the other, with stacks that have grown; what comes while none is free is served all the same.
const workers = 4

// DataplaneGone begins the message of a request that needed the data plane and could not have it.
const DataplaneGone = "the agent has no data plane"

// Owner of what is put in through this API.
const Owner = "api"

// Config of the agent.
type Config struct {
	// Path of the Unix socket.
	Listen     string
	Dataplanes []Dataplane
	Registry   *object.Registry
	// Where what is wanted is kept.
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
	// What a data plane has that the store does not know may be deleted if nobody wants it.
	BeginAnew bool
	// How long somebody who looks waits for a data plane (10 s).
	Patience time.Duration
}

// Dataplane is one that the agent drives.
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
	links    []link
	heap     *heap.Heap
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
	if len(config.Dataplanes) == 0 {
		return errors.New("no data plane is configured")
	}
	var planes []intent.Dataplane
	for _, p := range config.Dataplanes {
		planes = append(planes, p.Dataplane)
	}
	memory := heap.New()
	defer memory.End()
	// What is kept may be much.
	loaded := memory.Grow(heap.Unknown)
	paths := gtpu.New()
	desired, err := intent.New(intent.Config{Dataplanes: planes, Registry: config.Registry, Store: config.Store, Log: config.Log, Owners: owners,
		Hindrance: paths.Hindrance, Undone: config.Audit.Undone,
		Reconciler: reconcile.Options{MinBackoff: config.MinBackoff, MaxBackoff: config.MaxBackoff}})
	loaded()
	if err != nil {
		return fmt.Errorf("reading what is wanted: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	followed := &following{paths: paths}
	s := &server{config: config, registry: config.Registry, heap: memory,
		desired: &audit.Intent{Interface: growing{desired, memory}, Log: config.Audit}, links: linksOf(config, desired, followed), ending: running}
	g := grpc.NewServer(append(NoPanic(config.Log), grpc.Creds(peerCredentials{}), Bounded(),
		grpc.MaxRecvMsgSize(MessageLimit), grpc.MaxSendMsgSize(MessageLimit), grpc.NumStreamWorkers(workers),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second}))...)
	api.RegisterAgentServer(g, s)

	var group sync.WaitGroup
	start := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	start(func() { desired.Run(running) })
	for _, l := range s.links {
		start(func() { l.client.Run(running) })
	}
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
	agent := northbound.Agent{Release: config.Release, Dataplanes: clients,
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
	// What was asked for is finished, but nobody may hold up the end for long.
	hurry := time.AfterFunc(5*time.Second, g.Stop)
	g.GracefulStop()
	hurry.Stop()
	group.Wait()
	followed.group.Wait()
	config.Log.Info("ended")
	return err
}

// NoPanic keeps a mistake in serving one request from ending the agent.
func NoPanic(log *slog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unaryNoPanic(log)), grpc.ChainStreamInterceptor(streamNoPanic(log))}
}

// clientName is how another client of a data plane knows us.
func clientName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return fmt.Sprintf("sluice agent, process %d on %s", os.Getpid(), host)
}

// following is what is known of paths, and who is about to learn more.
type following struct {
	paths *gtpu.Paths
	group sync.WaitGroup
}

func linksOf(config Config, desired *intent.Desired, f *following) []link {
	var all []link
	for _, p := range config.Dataplanes {
		log := config.Log.With("dataplane", p.Name)
		// Held by whoever follows the paths on one connection; the next one waits.
		var one sync.Mutex
		all = append(all, link{p.Name, p.Labels, dataplane.New(dataplane.Config{
			Endpoint: p.Endpoint, Log: log, Name: clientName(), MinBackoff: config.MinBackoff, MaxBackoff: config.MaxBackoff,
			Accept: func(ctx context.Context, c *dataplane.Client) error {
				return desired.Meet(ctx, p.Name, config.BeginAnew, (&plane{c}).List(ctx))
			},
			Connected: func(ctx context.Context, c *dataplane.Client, _ *api.Greeting) {
				f.group.Add(1)
				go func() {
					defer f.group.Done()
					one.Lock()
					defer one.Unlock()
					f.paths.Follow(ctx, gtpu.Link{Name: p.Name, Client: c, Intent: desired, Log: log})
				}()
				if err := desired.AttachTo(ctx, p.Name, &plane{c}); err != nil {
					log.Error("a data plane that nobody expects", "error", err)
				}
			},
			Disconnected: func(error) { desired.DetachFrom(p.Name) },
		})})
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
		log.Error("a request failed in a way it never should", "method", method, "error", p, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s failed in a way it never should; the agent's log says more", method)
	}
}

// contested is a refusal because of others.
func contested(conflicts *intent.Conflicts) error {
	told := &api.Problems{}
	for _, c := range conflicts.All[:min(len(conflicts.All), intent.MostConflicts)] {
		told.Problems = append(told.Problems, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: c.Field, Problem: c.Problem(),
			Found: c.Wanted, Accepted: c.Mend(), Holder: c.Holder})
	}
	s, err := status.New(codes.FailedPrecondition, conflicts.Error()).WithDetails(told)
	if err != nil {
		return status.Error(codes.FailedPrecondition, conflicts.Error())
	}
	return s.Err()
}

// refusal turns an error into what a client is told.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if mistakes := object.AllErrors(err); mistakes != nil {
		// Details travel in a header, which has its limits.
		mistakes = mistakes[:min(len(mistakes), 500)]
		told := &api.Problems{}
		for _, m := range mistakes {
			told.Problems = append(told.Problems, &api.Problem{Kind: m.Object.Kind, Name: m.Object.Name, Field: m.Field,
				Problem: m.Problem, Found: m.Found, Accepted: m.Accepted})
		}
		s, e := status.New(codes.InvalidArgument, mistakes[0].Error()).WithDetails(told)
		if e != nil {
			return status.Error(codes.InvalidArgument, mistakes[0].Error())
		}
		return s.Err()
	}
	if _, told := status.FromError(err); told {
		return err
	}
	var refused *dataplane.Error
	var conflicts *intent.Conflicts
	var moved *intent.Moved
	var left *intent.NotUndone
	var bad *intent.BadQuery
	switch {
	case errors.Is(err, intent.ErrNoRevision):
		return status.Error(codes.NotFound, err.Error())
	case errors.As(err, &moved):
		return status.Error(codes.Aborted, err.Error())
	case errors.As(err, &conflicts):
		return contested(conflicts)
	case errors.Is(err, intent.ErrNothingToConfirm):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, intent.ErrUnconfirmed):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.As(err, &left):
		return status.Error(codes.Internal, err.Error())
	case errors.As(err, &bad):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.As(err, &refused):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, dataplane.ErrDisconnected):
		return status.Errorf(codes.Unavailable, "%s: %s", DataplaneGone, dataplane.Cause(err))
	case errors.Is(err, intent.ErrDisconnected):
		return status.Errorf(codes.Unavailable, "%s, and all or nothing was asked for", DataplaneGone)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, err.Error())
}
