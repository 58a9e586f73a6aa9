// SPDX-License-Identifier: Apache-2.0

// Package rest serves the configuration and its status as resources over HTTP (RFC 9110) in JSON.
//
// One table of operations (operations.go) defines the router, the checks of requests, the required roles and the
// OpenAPI document. Kinds and fields come from the registry. Package access identifies callers.
package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/reference"
)

const (
	// A request is read within readTime, carried out within workTime, and its answer taken within writeTime.
	readTime  = time.Minute
	workTime  = time.Minute
	writeTime = time.Minute
	// Some 100,000 sessions at once.
	largestBody = 64 << 20
	// Of longer ones, one at a time is worked on.
	longBody = 1 << 20
	// Of all that one caller sends at a time.
	largestTogether = 2 * largestBody
)

// Section is the configuration of a northbound of the type "rest".
type Section struct {
	access.Section `yaml:",inline"`
}

// New returns an empty section.
func New() northbound.Section { return &Section{} }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return &rest{section: *s} }

type rest struct {
	section Section
	// For tests: called with where it listens.
	ready func(net.Addr)
}

// Run implements northbound.Northbound.
func (r *rest) Run(ctx context.Context, e northbound.Environment) error {
	guard, err := r.section.Section.Open(e.Name, e.Log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", r.section.Listen)
	if err != nil {
		return fmt.Errorf("listening at %s: %w", r.section.Listen, err)
	}
	s, err := newServer(e, guard, ctx)
	if err != nil {
		return err
	}
	h := &http.Server{Handler: s, TLSConfig: guard.TLS("h2", "http/1.1"), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: readTime,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 20, ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug)}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// Requests in progress are finished, but a client must not delay the end for long.
		hurry, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if h.Shutdown(hurry) != nil {
			h.Close()
		}
	}()
	e.Log.Info("listening", "address", listener.Addr().String())
	if r.ready != nil {
		r.ready(listener.Addr())
	}
	if h.TLSConfig != nil {
		err = h.ServeTLS(listener, "", "")
	} else {
		err = h.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", r.section.Listen, err)
	}
	<-stopped
	return nil
}

// server answers requests.
type server struct {
	environment northbound.Environment
	guard       *access.Guard
	contract    atomic.Pointer[contract]
	// Held while the contract is built.
	making sync.Mutex
	// Ends with the agent: streams, which would hold it up, end with it.
	ending context.Context
	// Limits the requests with long bodies.
	long chan struct{}
	// Bytes of requests in progress, by caller.
	mu   sync.Mutex
	held map[string]int
}

func newServer(e northbound.Environment, guard *access.Guard, ending context.Context) (*server, error) {
	s := &server{environment: e, guard: guard, ending: ending, long: make(chan struct{}, 1), held: map[string]int{}}
	_, err := s.current()
	return s, err
}

// contract is the operations for the kinds of a moment, and the OpenAPI document of them.
type contract struct {
	kinds      int
	operations []*operation
	mux        *http.ServeMux
	document   []byte
}

// current returns the contract for the kinds that are known now: modules add kinds, and none goes.
func (s *server) current() (*contract, error) {
	if c := s.contract.Load(); c != nil && c.kinds == len(s.environment.Registry.Kinds()) {
		return c, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	c := &contract{kinds: len(s.environment.Registry.Kinds())}
	if now := s.contract.Load(); now != nil && now.kinds == c.kinds {
		return now, nil
	}
	examples, err := s.examples()
	if err != nil {
		return nil, err
	}
	comments, err := reference.New()
	if err != nil {
		return nil, err
	}
	for _, k := range s.environment.Registry.Kinds() {
		if err := comments.Add(k); err != nil {
			return nil, err
		}
	}
	state, err := s.stateOperations(comments)
	if err != nil {
		return nil, err
	}
	c.operations = append(s.table(examples), state...)
	c.mux = muxOf(c.operations)
	if c.document, err = s.openAPI(c.operations, comments); err != nil {
		return nil, err
	}
	s.contract.Store(c)
	return c, nil
}

// request is a request in progress.
type request struct {
	*server
	http   *http.Request
	out    http.ResponseWriter
	op     *operation
	caller access.Caller
	// Parameters of the path, the query and the header that are there.
	values map[string]string
	ctx    context.Context
	// It is in server.long.
	isLong bool
	// Of server.held.
	holds int
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{server: s, http: r, out: w}
	defer func() {
		if q.isLong {
			<-s.long
		}
		q.releaseBytes()
	}()
	defer func() {
		if p := recover(); p != nil {
			s.environment.Log.Error("a request panicked", "method", r.Method, "path", r.URL.Path, "error", p, "stack", string(debug.Stack()))
			q.problem(&problem{status: http.StatusInternalServerError, kind: "internal", detail: "internal error; the agent's log has the details"})
		}
	}()
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if err := q.serve(); err != nil {
		p := problemOf(err)
		if p.mistaken() {
			s.environment.Counters.Failed()
		}
		if p.status == http.StatusInternalServerError {
			s.environment.Log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		q.problem(p)
	}
}

func (q *request) serve() error {
	if err := q.route(); err != nil {
		return err
	}
	deadline := http.NewResponseController(q.out)
	// Some connections have no deadlines; ours have.
	_ = deadline.SetWriteDeadline(time.Now().Add(readTime + workTime + writeTime))
	if q.op.role != access.NoRole {
		q.environment.Counters.Received(1)
		if err := q.admit(q.op.role, q.op.id); err != nil {
			return err
		}
	}
	if err := q.parameters(); err != nil {
		return q.refused(err)
	}
	var cancel context.CancelFunc
	q.ctx, cancel = context.WithTimeout(q.http.Context(), workTime)
	defer cancel()
	if q.values["force"] == "true" {
		if err := q.admit(access.Admin, "to take over from another owner"); err != nil {
			return err
		}
	}
	return q.op.serve(q)
}

// admit authenticates and authorizes the caller.
func (q *request) admit(role access.Role, what string) error {
	caller, err := q.guard.Caller(q.http.TLS, q.http.Header.Values("Authorization"), q.http.RemoteAddr)
	q.caller = caller
	if err == nil {
		err = caller.May(role, what)
	}
	if err != nil && q.op.action != "" {
		q.environment.Audit.Refuse(q.op.action, q.source(), nil, audit.Forbidden, err)
	}
	return err
}

// refused writes down that a change was refused before it was one.
func (q *request) refused(err error) error {
	if q.op.action != "" {
		q.environment.Audit.Refuse(q.op.action, q.source(), nil, audit.Refused, err)
	}
	return err
}

func (q *request) source() intent.Source {
	return intent.Source{Owner: q.environment.Name, Who: q.caller.Name, From: q.caller.From, Why: q.values["why"]}
}
