// SPDX-License-Identifier: Apache-2.0

// Package module is services that run in other processes: network functions in containers of their own, in any language. They speak
// api/module.proto. Each has a name, a token and rights in the agent's configuration; inside the agent it is a service.Definition, so that
// it follows, produces and receives as a service in the agent does, and its objects stay for the grace time when it dies.
//
// A module may add kinds. Their descriptors are checked, and kept in the durable log: the agent reads objects of them
// after a restart, before the module is back. A kind stays known for ever; a changed descriptor of it applies from
// the agent's next start on.
package module

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

const (
	// table is the modules' table of the durable log: the descriptors by the names of modules.
	table = "modules"
	// Of one message of a module.
	longestMessage = 8 << 20
	helloTime      = 10 * time.Second
	// Calls of a module at once, with those before their ModuleHello; and how long an answer to a refused one takes.
	callLimit      = 4
	refusedPause   = 250 * time.Millisecond
	conditionLimit = 65536
)

// Server is where modules attach.
type Server struct {
	section  Section
	registry *object.Registry
	stored   *durable.Table
	release  string
	log      *slog.Logger
	certs    *tls.Config
	modules  map[string]*module

	// Serializes registrations.
	mu sync.Mutex
	// For tests: called with where it listens.
	ready func(net.Addr)
}

// module is a configured module. It is the service.Process of its service.
type module struct {
	server *Server
	name   string
	rights Rights
	hash   [sha256.Size]byte
	calls  atomic.Int32
	// A session that waits for its life.
	arrivals chan *session

	mu sync.RWMutex
	// Attached; or nil.
	session *session
	// Of the life that is lived or is about to be.
	next *session
	// Since when there is none.
	away       time.Time
	intent     service.Intent
	conditions map[object.Key]condition
}

type condition struct{ reason, message string }

// Open makes the kinds known that modules added in earlier lives of the agent. It must be called before objects are read.
func Open(section *Section, registry *object.Registry, records *durable.Log, release string, log *slog.Logger) (*Server, error) {
	s := &Server{registry: registry, release: release, log: log, modules: map[string]*module{}}
	var err error
	if s.stored, err = records.Table(table); err != nil {
		return nil, err
	}
	if section != nil {
		s.section = *section
		if err := s.load(); err != nil {
			return nil, err
		}
	}
	for name, err := range add(registry, s.sets(nil)) {
		// Objects of these kinds cannot be read; if there are any, the store reports an error.
		log.Error("the kinds of a module cannot be used", "module", name, "error", err)
	}
	if section == nil {
		return s, nil
	}
	for name, rights := range section.Rights {
		m := &module{server: s, name: name, rights: rights, arrivals: make(chan *session), away: time.Now(), conditions: map[object.Key]condition{}}
		if m.hash, err = rights.hash(); err != nil {
			return nil, err
		}
		s.modules[name] = m
	}
	if section.TLS.Certificate != "" {
		guard, err := access.Section{Listen: section.Listen, TLS: section.TLS}.Open(table, log)
		if err != nil {
			return nil, fmt.Errorf("modules: %w", err)
		}
		s.certs = guard.TLS("h2")
	}
	return s, nil
}

// load keeps the kinds that the configuration has in files.
func (s *Server) load() error {
	changed := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(s.section.Rights)) {
		rights := s.section.Rights[name]
		if rights.Descriptors == "" {
			continue
		}
		field := "modules.rights." + name + ".descriptors: " + rights.Descriptors
		packed, err := readDescriptors(rights.Descriptors)
		if err != nil {
			return fmt.Errorf("modules.rights.%s.descriptors: %w", name, err)
		}
		k, err := Parse(name, packed)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		for _, kind := range k.Names {
			if !slices.Contains(rights.Kinds, kind) {
				return fmt.Errorf("%s: it has the kind %s; accepted: %s in modules.rights.%s.kinds", field, kind, listed(rights.Kinds), name)
			}
		}
		before := s.stored.Get(name)
		if bytes.Equal(before, packed) {
			continue
		}
		if before != nil {
			if now, err := Parse(name, before); err == nil {
				if err := k.Continues(now); err != nil {
					return fmt.Errorf("%s: objects of the kinds as they are known would not be acceptable any more: %w", field, err)
				}
			}
		}
		changed[name] = packed
	}
	if module, err := s.fit(changed); err != nil {
		return fmt.Errorf("modules.rights.%s.descriptors: %w", module, err)
	}
	for name, packed := range changed {
		if err := s.keep(name, packed); err != nil {
			return fmt.Errorf("modules.rights.%s.descriptors: %w", name, err)
		}
	}
	return nil
}

func readDescriptors(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than the limit, so that Parse reports the excess.
	return io.ReadAll(io.LimitReader(f, bytesLimit+1))
}

// Definitions returns the modules as services.
func (s *Server) Definitions() []service.Definition {
	var all []service.Definition
	for _, name := range slices.Sorted(maps.Keys(s.modules)) {
		m := s.modules[name]
		all = append(all, service.Definition{Name: name, Punts: m.rights.Punts, New: m.live, Process: m})
	}
	return all
}

// Run serves modules until the context ends.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen()
	if err != nil {
		return fmt.Errorf("modules: listening at %s: %w", s.section.Listen, err)
	}
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(longestMessage), grpc.MaxConcurrentStreams(4), grpc.ConnectionTimeout(helloTime),
		grpc.MaxHeaderListSize(16 << 10), grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}), grpc.StreamInterceptor(s.noPanic)}
	if s.certs != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.certs)))
	}
	g := grpc.NewServer(options...)
	api.RegisterModulesServer(g, &modulesServer{server: s, ending: ctx})
	stop := context.AfterFunc(ctx, g.Stop)
	defer stop()
	s.log.Info("listening for modules", "address", s.section.Listen)
	if s.ready != nil {
		s.ready(listener.Addr())
	}
	if err := g.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("modules: serving %s: %w", s.section.Listen, err)
	}
	return nil
}

// While serves modules while f runs.
func (s *Server) While(ctx context.Context, f func(context.Context) error) error {
	if len(s.modules) == 0 {
		return f(ctx)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		err := s.Run(running)
		if err != nil {
			stop()
		}
		failed <- err
	}()
	err := f(running)
	stop()
	return errors.Join(err, <-failed)
}

func (s *Server) listen() (net.Listener, error) {
	path, unix := strings.CutPrefix(s.section.Listen, "unix://")
	if !unix {
		return net.Listen("tcp", s.section.Listen)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, errors.New("another process listens there")
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

func (s *Server) noPanic(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a request panicked", "method", info.FullMethod, "error", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error; the agent's log has the details")
		}
	}()
	return handler(server, stream)
}

// modulesServer is a Server while it runs.
type modulesServer struct {
	api.UnimplementedModulesServer
	server *Server
	ending context.Context
}

// Attach implements api.ModulesServer.
func (r *modulesServer) Attach(stream grpc.BidiStreamingServer[api.FromModule, api.ToModule]) error {
	s := r.server
	m, err := s.authenticate(stream.Context())
	if err != nil {
		s.log.Debug("a module was refused", "error", err)
		return err
	}
	if m.calls.Add(1) > callLimit {
		m.calls.Add(-1)
		return refuse(codes.ResourceExhausted, "module %s has %d calls already", m.name, callLimit)
	}
	defer m.calls.Add(-1)
	received := make(chan *api.FromModule)
	ended := make(chan struct{})
	defer close(ended)
	failed := make(chan error, 1)
	receive := func() bool {
		one, err := stream.Recv()
		if err != nil {
			failed <- err
			return false
		}
		select {
		case received <- one:
			return true
		case <-ended:
			return false
		}
	}
	go receive()
	patience := time.NewTimer(helloTime)
	defer patience.Stop()
	var hello *api.ModuleHello
	select {
	case one := <-received:
		if hello = one.GetHello(); hello == nil {
			return status.Error(codes.InvalidArgument, "the first message is not a ModuleHello")
		}
	case err := <-failed:
		return err
	case <-patience.C:
		return status.Errorf(codes.DeadlineExceeded, "no ModuleHello within %s", helloTime)
	case <-r.ending.Done():
		return ending()
	}
	a, err := m.attach(hello, stream)
	if err != nil {
		s.log.Warn("a module was refused", "module", m.name, "error", err)
		// A module that tries again at once would keep the agent busy.
		select {
		case <-time.After(refusedPause):
		case <-stream.Context().Done():
		case <-r.ending.Done():
		}
		return err
	}
	defer m.detach(a)
	select {
	case m.arrivals <- a:
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-r.ending.Done():
		return ending()
	}
	select {
	case <-a.began:
	case <-a.over:
		return a.err
	}
	// From now on the life decides when the call ends.
	go func() {
		for receive() {
		}
	}()
	for {
		var err error
		select {
		case one := <-received:
			err = a.receive(one)
		case err = <-failed:
			if errors.Is(err, io.EOF) {
				// The module has no more to say.
				a.leave()
				<-a.over
				return nil
			}
		case <-a.over:
			if a.err == nil && r.ending.Err() != nil {
				return ending()
			}
			return a.err
		}
		if err != nil {
			a.leave()
			<-a.over
			return err
		}
	}
}

func ending() error { return status.Error(codes.Unavailable, "the agent ends") }

// authenticate finds out which module calls.
func (s *Server) authenticate(ctx context.Context) (*module, error) {
	fields, _ := metadata.FromIncomingContext(ctx)
	headers := fields.Get("authorization")
	if len(headers) != 1 {
		return nil, status.Error(codes.Unauthenticated, "authorization: accepted: Bearer and the module's token")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	var found *module
	for _, m := range s.modules {
		if subtle.ConstantTimeCompare(hash[:], m.hash[:]) == 1 {
			found = m
		}
	}
	if found == nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, status.Error(codes.Unauthenticated, "authorization: the token is not known; accepted: Bearer and the module's token")
	}
	return found, nil
}

func refuse(code codes.Code, format string, values ...any) error {
	return status.Errorf(code, format, values...)
}

var versionWord = regexp.MustCompile(`^[ -~]{0,128}$`)

// attach checks a ModuleHello against the rights, and adds the kinds.
func (m *module) attach(hello *api.ModuleHello, stream grpc.BidiStreamingServer[api.FromModule, api.ToModule]) (*session, error) {
	where := "modules.rights." + m.name
	switch {
	case hello.GetName() != m.name:
		return nil, refuse(codes.PermissionDenied, "name: found %q; accepted: %s, whose token this is", clipped(hello.GetName()), m.name)
	case !versionWord.MatchString(hello.GetVersion()):
		return nil, refuse(codes.InvalidArgument, "version: accepted: at most 128 printable characters of ASCII")
	}
	for _, reason := range hello.GetPunts() {
		if !slices.Contains(m.rights.Punts, reason) {
			return nil, refuse(codes.PermissionDenied, "punts: module %s may not have %q; accepted: %s in %s.punts", m.name, clipped(reason), listed(m.rights.Punts), where)
		}
	}
	for i, kind := range hello.GetFollow() {
		switch {
		case !m.rights.mayFollow(kind):
			return nil, refuse(codes.PermissionDenied, "follow: module %s may not follow %q; accepted: %s in %s.follow", m.name, clipped(kind),
				listed(append(slices.Clone(m.rights.Kinds), m.rights.Follow...)), where)
		case slices.Contains(hello.GetFollow()[:i], kind):
			return nil, refuse(codes.InvalidArgument, "follow: duplicate kind %s", kind)
		}
	}
	if len(hello.GetKinds()) > 0 {
		if err := m.server.register(m, hello.GetKinds()); err != nil {
			return nil, err
		}
	}
	for _, kind := range hello.GetFollow() {
		if m.server.registry.Kind(kind) == nil {
			return nil, refuse(codes.FailedPrecondition, "follow: there is no kind %s; a module adds its own kinds in its ModuleHello", kind)
		}
	}
	a := newSession(m, hello, stream)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session != nil {
		return nil, refuse(codes.AlreadyExists, "module %s is attached already; it can attach again when that call has ended", m.name)
	}
	m.session = a
	return a, nil
}

func listed(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// detach lets the module attach again.
func (m *module) detach(a *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == a {
		m.session = nil
	}
}

// register checks a module's kinds, keeps them and makes them known.
func (s *Server) register(m *module, packed []byte) error {
	k, err := Parse(m.name, packed)
	if err != nil {
		return refuse(codes.InvalidArgument, "%v", err)
	}
	for _, kind := range k.Names {
		if !slices.Contains(m.rights.Kinds, kind) {
			return refuse(codes.PermissionDenied, "kinds: module %s may not add %s; accepted: %s in modules.rights.%s.kinds", m.name, kind, listed(m.rights.Kinds), m.name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := map[string][]byte{m.name: packed}
	known := slices.IndexFunc(s.registry.Modules(), func(known object.Module) bool { return known.Name == m.name })
	if known < 0 {
		// Store the kind first: an object can only follow its kind, also on disk. The registry reports errors in it.
		if err := s.registry.CheckKinds(k.Messages); err != nil {
			return refuse(codes.InvalidArgument, "kinds: %v", err)
		}
		if _, err := s.fit(changed); err != nil {
			return refuse(codes.InvalidArgument, "%v", err)
		}
		if err := s.keep(m.name, packed); err != nil {
			return err
		}
		if err := s.registry.Add(object.Module{Name: m.name, Descriptors: packed}, k.Messages); err != nil {
			return refuse(codes.InvalidArgument, "kinds: %v", err)
		}
		s.log.Info("a module added kinds", "module", m.name, "kinds", strings.Join(k.Names, ","))
		return nil
	}
	now, err := Parse(m.name, s.registry.Modules()[known].Descriptors)
	if err != nil {
		return refuse(codes.Internal, "the kinds that are known: %v", err)
	}
	if k.Same(now) {
		if stored := s.stored.Get(m.name); !bytes.Equal(stored, packed) {
			// Another shape was kept and not used yet, or only comments differ. Kinds of other modules may need that shape.
			if _, err := s.fit(changed); err != nil {
				return refuse(codes.InvalidArgument, "%v", err)
			}
			return s.keep(m.name, packed)
		}
		return nil
	}
	if err := k.Continues(now); err != nil {
		return refuse(codes.FailedPrecondition, "kinds: objects of the kinds as they are known would not be acceptable any more: %v", err)
	}
	if _, err := s.fit(changed); err != nil {
		return refuse(codes.InvalidArgument, "%v", err)
	}
	if err := s.keep(m.name, packed); err != nil {
		return err
	}
	return refuse(codes.FailedPrecondition, "kinds: the new shape is stored and takes effect when the agent starts next; restart the agent (packets are forwarded meanwhile)")
}

// sets returns the stored kinds of all modules, and then those of changed modules.
func (s *Server) sets(changed map[string][]byte) []object.Module {
	var all []object.Module
	for _, r := range s.stored.All() {
		if changed[r.Key] == nil {
			all = append(all, object.Module{Name: r.Key, Descriptors: r.Value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		all = append(all, object.Module{Name: name, Descriptors: changed[name]})
	}
	return all
}

// fit returns why kinds of modules cannot be known together with those that are stored, as from the agent's next start on, and of which
// changed module.
func (s *Server) fit(changed map[string][]byte) (module string, err error) {
	before, after := add(s.registry.Contract(), s.sets(nil)), add(s.registry.Contract(), s.sets(changed))
	for _, module := range slices.Sorted(maps.Keys(changed)) {
		if err := after[module]; err != nil {
			return module, err
		}
	}
	for _, other := range slices.Sorted(maps.Keys(after)) {
		if before[other] == nil {
			return slices.Sorted(maps.Keys(changed))[0], fmt.Errorf("kinds: with them, those of module %s cannot be used: %w", other, after[other])
		}
	}
	return "", nil
}

func (s *Server) keep(name string, packed []byte) error {
	if err := s.stored.Put(durable.Record{Key: name, Value: packed}).Wait(); err != nil {
		return refuse(codes.Unavailable, "kinds: they cannot be stored: %v", err)
	}
	return nil
}

// Await implements service.Process.
func (m *module) Await(ctx context.Context) error {
	select {
	case a := <-m.arrivals:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.next = a
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// live is the New of the service.
func (m *module) live(e service.Environment) (service.Service, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intent = e.Intent
	m.next.e = e
	return m.next, nil
}

// Ended implements service.Process.
func (m *module) Ended(err error) {
	m.mu.Lock()
	a := m.next
	m.next, m.away = nil, time.Now()
	if m.session == a {
		// Its call may need a moment to end, or long if the module does not read.
		m.session = nil
	}
	conditions := m.conditions
	m.conditions = map[object.Key]condition{}
	m.mu.Unlock()
	a.end(err)
	m.touch(slices.Collect(maps.Keys(conditions))...)
}

// touch reports that conditions of objects may have changed: these objects, and all of the module's own kinds.
func (m *module) touch(keys ...object.Key) {
	m.mu.RLock()
	in := m.intent
	m.mu.RUnlock()
	if in == nil {
		return
	}
	for _, k := range keys {
		in.Touched(k)
	}
	for _, kind := range m.rights.Kinds {
		for q := (intent.Query{Kinds: []string{kind}, Limit: intent.LargestPage}); ; {
			page, err := in.List(q)
			if err != nil {
				break
			}
			for _, st := range page.Objects {
				in.Touched(st.Key)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
}

// NotReady implements service.ReadinessReporter.
func (m *module) NotReady(_ string, stored *object.StoredObject) intent.NotReady {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.next == nil && slices.Contains(m.rights.Kinds, stored.KindName()) {
		return intent.NotReady{Reason: "ModuleAway", Message: "module " + m.name + " is not attached", Since: m.away, External: true}
	}
	if len(m.conditions) == 0 {
		return intent.NotReady{}
	}
	c := m.conditions[stored.Key()]
	// Peers of a module are its own matter.
	return intent.NotReady{Reason: c.reason, Message: c.message, External: true}
}
