// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Grace is how long the objects of a service stay that ended, or that an earlier agent ran and this one does not.
const Grace = 2 * time.Minute

const (
	restartFirst = time.Second
	maxRestart   = time.Minute
)

// Config of a Host.
type Config struct {
	Registry *object.Registry
	Intent   *intent.Desired
	Log      *slog.Logger
	Metrics  prometheus.Registerer
	Records  *durable.Log
	// Connections for packets alone, by the names of data planes.
	Packets map[string]*dataplane.Client
	// Zero: Grace.
	Grace time.Duration
}

// Host runs services.
type Host struct {
	services []*running
	exchange *Exchange
	// Written by Run, which then closes ready.
	config Config
	ready  chan struct{}

	mu sync.Mutex
	// Closed, and made anew, when a life of a service begins or ends.
	changed chan struct{}
}

// running is a registered service and its state. Each run of the service has an Environment of its own.
type running struct {
	Definition
	host *Host
	log  *slog.Logger

	mu      sync.Mutex
	service Service
	// Ends with the service's life.
	life    context.Context
	dropped atomic.Uint64
}

// New returns a Host of checked services.
func New(all []Definition) *Host {
	h := &Host{exchange: newExchange(), ready: make(chan struct{}), changed: make(chan struct{})}
	for _, d := range all {
		h.services = append(h.services, &running{Definition: d, host: h})
	}
	return h
}

// Punts returns the reasons for which services receive packets.
func (h *Host) Punts() []string { return reasonsOf(h.services) }

// MadeFor returns the configured object for which a service made a volatile one.
func (h *Host) MadeFor(k object.Key) (object.Key, bool) {
	for _, s := range h.services {
		if maker, is := s.current().(Maker); is {
			if of, known := maker.MadeFor(k); known {
				return of, true
			}
		}
	}
	return object.Key{}, false
}

// NotReady returns the reason of a service why an object does not serve although a data plane has it.
func (h *Host) NotReady(plane string, stored *object.StoredObject) intent.NotReady {
	for _, s := range h.services {
		reporter, is := s.current().(ReadinessReporter)
		if s.Process != nil {
			reporter, is = s.Process, true
		}
		if is {
			if why := reporter.NotReady(plane, stored); why.Reason != "" {
				return why
			}
		}
	}
	return intent.NotReady{}
}

// Ends returns the number of sessions of services that a change of an object would end.
func (h *Host) Ends(c object.Change) (sessions int) {
	for _, s := range h.services {
		if predictor, is := s.current().(Predictor); is && slices.Contains(s.Kinds, c.Key.Kind) {
			sessions += predictor.Ends(c.Key, c.Object)
		}
	}
	return sessions
}

// Warnings returns the warnings of services about a change of an object.
func (h *Host) Warnings(c object.Change) (all []string) {
	for _, s := range h.services {
		if warner, is := s.current().(Warner); is && slices.Contains(s.Kinds, c.Key.Kind) {
			all = append(all, warner.Warnings(c.Key, c.Object)...)
		}
	}
	return all
}

// Run runs the services until the context ends.
func (h *Host) Run(ctx context.Context, config Config) {
	if config.Grace == 0 {
		config.Grace = Grace
	}
	h.config = config
	var group sync.WaitGroup
	start := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	for _, s := range h.services {
		s.log = config.Log.With("service", s.Name)
	}
	close(h.ready)
	for _, s := range h.services {
		start(func() { s.run(ctx) })
	}
	start(func() { h.releaseUnclaimed(ctx) })
	if config.Records != nil {
		start(func() { watchRecords(ctx, config, config.Intent.Report) })
	}
	group.Wait()
}

// releaseUnclaimed deletes objects in data planes whose services do not run here.
func (h *Host) releaseUnclaimed(ctx context.Context) {
	since := map[string]time.Time{}
	tick := time.NewTicker(max(h.config.Grace/8, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		left := h.config.Intent.Unclaimed()
		for name := range since {
			if left[name] == 0 {
				delete(since, name)
			}
		}
		for name, count := range left {
			first, known := since[name]
			switch {
			case !known:
				since[name] = time.Now()
				h.config.Log.Warn("a data plane has objects of a service that does not run", "service", name, "objects", count, "grace", h.config.Grace.String())
			case time.Since(first) > h.config.Grace:
				h.config.Log.Warn("the objects of a service that does not run are deleted", "service", name, "objects", count)
				h.config.Intent.Release(name)
			}
		}
	}
}

// Connected runs the services' Connector for a connection to a data plane, until the context ends. packets: the
// connection carries packets.
func (h *Host) Connected(ctx context.Context, plane Plane, packets bool) {
	select {
	case <-h.ready:
	case <-ctx.Done():
		return
	}
	var group sync.WaitGroup
	defer group.Wait()
	start := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	if packets {
		var boxes []*inbox
		for _, s := range h.services {
			if len(s.Punts) == 0 {
				continue
			}
			box := newInbox(s)
			start(func() { box.deliver(ctx) })
			boxes = append(boxes, box)
		}
		if len(boxes) > 0 {
			r := &receiver{plane: plane.Name, client: plane.Client, log: h.config.Log, unknown: map[string]bool{}}
			start(func() { r.receive(ctx, h, boxes) })
		}
		return
	}
	for _, s := range h.services {
		if s.Process == nil {
			start(func() { s.connected(ctx, plane) })
		}
	}
}

// connected calls the service for a connection, also in its later lives.
func (s *running) connected(ctx context.Context, plane Plane) {
	for ctx.Err() == nil {
		service, life := s.living()
		if service == nil {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		connector, is := service.(Connector)
		if !is {
			return
		}
		both, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(life, cancel)
		s.guarded(func() { connector.Connected(both, plane) })
		if both.Err() == nil {
			// It has nothing more to do with this connection.
			<-both.Done()
		}
		stop()
		cancel()
	}
}

// reasons returns the reasons for which the service gets packets now. One in a Process gets none while it is not attached: the data plane
// handles packets without a receiver itself.
func (s *running) reasons() []string {
	if s.Process == nil {
		return s.Punts
	}
	if chooser, is := s.current().(Chooser); is {
		return chooser.Punts()
	}
	return nil
}

func (s *running) current() Service {
	service, _ := s.living()
	return service
}

// is sets the service of the life that begins; nil: it ends.
func (s *running) is(service Service, life context.Context) {
	s.mu.Lock()
	s.service, s.life = service, life
	s.mu.Unlock()
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	close(s.host.changed)
	s.host.changed = make(chan struct{})
}

// lives returns a channel that is closed when a life of a service begins or ends.
func (h *Host) lives() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

func (s *running) living() (Service, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service, s.life
}

func (s *running) receive(batch []Packet) {
	r, is := s.current().(Receiver)
	if !is {
		s.dropped.Add(uint64(len(batch)))
		return
	}
	s.guarded(func() { r.Receive(batch) })
}

// guarded keeps a mistake in a service from ending the agent.
func (s *running) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("the service panicked", "error", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// run runs the service's lives.
func (s *running) run(ctx context.Context) {
	wait := restartFirst
	for ctx.Err() == nil {
		if s.Process != nil {
			if s.Process.Await(ctx) != nil {
				return
			}
			err := s.live(ctx)
			s.Process.Ended(err)
			if ctx.Err() == nil {
				s.log.Warn("the module detached; its objects stay for the grace time", "grace", s.host.config.Grace.String(), "error", err)
			}
			continue
		}
		began := time.Now()
		err := s.live(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it returned")
		}
		if time.Since(began) > maxRestart {
			wait = restartFirst
		}
		s.log.Error("the service ended; it is started again", "error", err, "after", wait.String())
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, maxRestart)
	}
}

// live is one life.
func (s *running) live(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v\n%s", p, debug.Stack())
		}
	}()
	config := &s.host.config
	producer, err := config.Intent.Producer(s.Name)
	if err != nil {
		return err
	}
	defer producer.Close(config.Grace)
	var records *durable.Table
	if config.Records != nil {
		if records, err = config.Records.Table(s.Name); err != nil {
			return err
		}
	}
	metrics := newMeasurements(config.Metrics)
	defer metrics.end()
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_service_packets_dropped_total", Help: "Packets for a service that it did not take fast enough.",
		ConstLabels: prometheus.Labels{"service": s.Name}}, func() float64 { return float64(s.dropped.Load()) }))
	objects := newObjects(producer)
	defer objects.close()
	sender := newSender(config.Packets)
	defer sender.end()
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_service_packets_not_sent_total", Help: "Packets of a service that a data plane did not get: it was away, or did not read.",
		ConstLabels: prometheus.Labels{"service": s.Name}}, func() float64 { return float64(sender.lost.Load()) }))
	e := Environment{Name: s.Name, Exchange: s.host.exchange, Registry: config.Registry, Log: s.log, Metrics: metrics, Objects: objects, Records: records,
		Packets: sender, Intent: config.Intent, Dropped: func(packets int) { s.dropped.Add(uint64(packets)) }}
	for name := range config.Packets {
		e.Dataplanes = append(e.Dataplanes, name)
	}
	service, err := s.New(e)
	if err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	defer end()
	s.is(service, life)
	defer s.is(nil, life)
	var following sync.WaitGroup
	defer following.Wait()
	defer end()
	kinds := s.Kinds
	if chooser, is := service.(Chooser); is {
		kinds = chooser.Follows()
	}
	if to, is := service.(Follower); is && len(kinds) > 0 {
		following.Add(1)
		go func() {
			defer following.Done()
			s.guarded(func() {
				follow(life, config.Intent, kinds, to, func(err error) { s.log.Warn("objects cannot be followed; trying again", "error", err) })
			})
			end()
		}()
	}
	return service.Run(life)
}

// measurements registers a service's metrics for one run of it.
type measurements struct {
	prometheus.Registerer
	mu  sync.Mutex
	all []prometheus.Collector
}

func newMeasurements(r prometheus.Registerer) *measurements {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	return &measurements{Registerer: r}
}

func (m *measurements) Register(c prometheus.Collector) error {
	err := m.Registerer.Register(c)
	if err == nil {
		m.mu.Lock()
		m.all = append(m.all, c)
		m.mu.Unlock()
	}
	return err
}

func (m *measurements) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

func (m *measurements) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.all {
		m.Unregister(c)
	}
}
