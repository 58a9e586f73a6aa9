// SPDX-License-Identifier: Apache-2.0

// Package radius authenticates and accounts subscribers at RADIUS servers (RFC 2865, 2866, 2869, 3162, 4679, 4818, 5997, 6911), and takes
// changes of authorization (RFC 5176). client has requests and servers, spool the accounting records, dynamic the server for changes: each
// without I/O. The service around them has sockets, objects, the durable log and the clock.
package radius

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	tick = 50 * time.Millisecond
	// How often a disk that refuses records is tried again. The host of the services names it.
	diskAgain = 500 * time.Millisecond
	// How often the same line is logged, and how many different lines are remembered.
	warnAgain  = time.Minute
	mostWarned = 1024
	// Receive buffer of a socket.
	socketBuffer = 1 << 20
	// RFC 2869 section 5.16.
	leastInterim = time.Minute
)

// backEnd is the service's name among the back ends of a profile.
const backEnd = "radius"

// Definition is the RADIUS client and server for changes.
var Definition = service.Definition{
	Name:  "radius",
	Kinds: append([]string{"RadiusServer", "RadiusPolicy"}, namedKinds...),
	New:   newRadius,
}

// radius is the service.
type radius struct {
	service.Environment
	service.NotReadyReasons
	*measurements
	host string

	mu      sync.Mutex
	servers service.View[*api.RadiusServer]
	specs   service.View[*api.RadiusPolicy]
	// Objects that attributes may name.
	named map[object.Key]bool
	// SubscriberProfiles, which may need a policy.
	profiles service.View[*api.SubscriberProfile]
	synced   bool
	first    chan struct{}
	client   *client
	spool    *spool
	// Records that the disk does not have yet, in order. wake signals new ones.
	unwritten []unwritten
	wake      chan struct{}
	sessions  *sessions
	// By server and purpose.
	endpoints map[endpointKey]*endpoint
	policies  []*policy
	// Policies that accounted last, and those of them that account no more but have servers, records and sessions.
	accounted map[string]*api.RadiusPolicy
	retired   []*policy
	// Sockets of an endpoint, by number; nil where it could not be opened.
	sockets map[*endpoint][]*net.UDPConn
	// Endpoints whose sockets cannot be opened, and which the log has named.
	closed map[*endpoint]bool
	// When lines that each request may bring about were logged last.
	warned  map[string]time.Time
	readers sync.WaitGroup
	// For CoA-Request and Disconnect-Request.
	dynamic   *dynamic
	listeners map[listenAt]*listener
	// Policies whose sockets for requests cannot be opened, and those that serve no profile.
	deafPolicies, idlePolicies map[string]bool
	indexOf                    func(device string) int
	ended                      bool
	manager                    subscriber.Manager
	// Policies whose records have no server, and when they are looked at next.
	stuck   map[string]bool
	stuckAt time.Time
	// Records that the full spool has refused, by policy, until it takes some again.
	full map[string]uint64
	// A packet is being received, and what is to be called after it.
	receiving bool
	answers   []func()
	// For operators, of servers and policies that exist.
	counters       map[endpointKey]*counters
	policyCounters map[string]*policyCounters
	// The second of the last panic.
	panicked atomic.Int64
}

// unwritten is an accounting record on its way to the disk, or what is called once the disk has all records up to it.
type unwritten struct {
	record  *record
	pending durable.Pending
	then    func()
}

type endpointKey struct {
	server     string
	accounting bool
}

func newRadius(e service.Environment) (service.Service, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "sluice"
	}
	var t table = memory{}
	if e.Records != nil {
		t = e.Records
	}
	s := &radius{Environment: e, measurements: newMeasurements(), host: host, servers: map[string]*api.RadiusServer{}, specs: map[string]*api.RadiusPolicy{}, named: map[object.Key]bool{}, profiles: map[string]*api.SubscriberProfile{},
		first: make(chan struct{}), wake: make(chan struct{}, 1), endpoints: map[endpointKey]*endpoint{}, sockets: map[*endpoint][]*net.UDPConn{}, closed: map[*endpoint]bool{}, warned: map[string]time.Time{},
		dynamic: newDynamic(time.Now()), listeners: map[listenAt]*listener{}, deafPolicies: map[string]bool{}, idlePolicies: map[string]bool{}, indexOf: indexOf, stuck: map[string]bool{}, full: map[string]uint64{}, counters: map[endpointKey]*counters{}, policyCounters: map[string]*policyCounters{}, client: newClient(host, func(b []byte) { _, _ = rand.Read(b) })}
	var errs []error
	s.spool, errs = newSpool(t)
	for _, err := range errs {
		e.Log.Error("an accounting record is lost", "error", err)
	}
	s.spool.await = func(r *record, pending durable.Pending) { s.await(unwritten{record: r, pending: pending}) }
	s.sessions, s.accounted = newSessions(t), accountedOf(t)
	locked := func() *spool {
		s.mu.Lock()
		defer s.mu.Unlock()
		of := *s.spool
		return &of
	}
	waiting := func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.client.deadlines.Len())
	}
	if err := s.register(e.Metrics, locked, waiting); err != nil {
		return nil, err
	}
	return s, nil
}

// Follow implements service.Follower.
func (s *radius) Follow(c service.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Key.Kind {
	case "RadiusServer":
		s.servers.Follow(c)
	case "RadiusPolicy":
		s.specs.Follow(c)
	default:
		delete(s.named, c.Key)
		if c.Object != nil {
			s.named[c.Key] = true
		}
		if c.Key.Kind == "SubscriberProfile" {
			s.followProfile(c)
		}
		return
	}
	if s.synced {
		s.configure(time.Now())
	}
}

// followProfile is Follow of a SubscriberProfile. s.mu is held.
func (s *radius) followProfile(c service.Change) {
	s.profiles.Follow(c)
	if s.synced {
		s.reportProfile(c.Key.Name)
	}
}

// Synced implements service.Follower.
func (s *radius) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configure(time.Now())
	if !s.synced {
		s.synced = true
		close(s.first)
	}
}

// Run implements service.Service.
func (s *radius) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer service.Offer[eap.Relay](s.Environment, s)()
	defer service.Provide(s.Environment, s.serverCounters)()
	defer service.Provide(s.Environment, s.countersOfPolicies)()
	group.Add(1)
	go func() {
		defer group.Done()
		s.serveManager(ctx)
	}()
	return s.run(ctx)
}

// run carries out timers.
func (s *radius) run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer s.end()
	select {
	case <-ctx.Done():
		return nil
	case <-s.first:
	}
	group.Add(1)
	go func() {
		defer group.Done()
		s.sendWritten(ctx)
	}()
	service.Every(ctx, tick, func(now time.Time) { s.guarded(func() { s.tick(now) }) })
	return nil
}

// tick carries out what is due.
func (s *radius) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(append(s.client.tick(now), s.pump(now)...))
	s.openListeners(now)
	s.reportStuck(now)
}

// serveManager registers the service as back end of the current Manager.
func (s *radius) serveManager(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-s.first:
	}
	for {
		m, gone, err := service.Find[subscriber.Manager](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.manager = m
		s.mu.Unlock()
		m.Use(backEnd, s, s)
		select {
		case <-gone:
		case <-ctx.Done():
			m.Use(backEnd, nil, nil)
			return
		}
	}
}

// longestEnd is how long the end waits for the answers of records at most.
const longestEnd = 3 * time.Second

// end sends nothing new, waits for the answers of records on their way, and closes all sockets.
func (s *radius) end() {
	s.mu.Lock()
	s.ended = true
	s.carryOut(s.client.end())
	for _, l := range s.listeners {
		if l.conn != nil {
			l.conn.Close()
		}
	}
	s.mu.Unlock()
	s.awaitAnswers(time.Now().Add(longestEnd))
	s.mu.Lock()
	for _, all := range s.sockets {
		for _, conn := range all {
			if conn != nil {
				conn.Close()
			}
		}
	}
	s.mu.Unlock()
	s.readers.Wait()
}

// awaitAnswers returns when no record waits for the answer of a server, or when the servers' timeouts are over, at the latest at the given time.
func (s *radius) awaitAnswers(latest time.Time) {
	look := time.NewTicker(tick / 5)
	defer look.Stop()
	for {
		s.mu.Lock()
		until, waits := s.client.answersUntil()
		s.mu.Unlock()
		if now := time.Now(); !waits || now.After(until) || now.After(latest) {
			return
		}
		<-look.C
	}
}
