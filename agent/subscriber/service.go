// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

const (
	clock = time.Second
	// How long the end of a restored session waits for its data plane and its last counters.
	meetPatience = 30 * time.Second
)

// Definition is the service "subscriber".
var Definition = service.Definition{
	Name:  "subscriber",
	Kinds: []string{"AddressPool", "Portal", "SubscriberProfile", "LocalUser", "QosProfile"},
	New:   newServing,

	RPCs:     []service.RPC{rpc},
	Commands: commands,
	Sessions: sessions,
}

// serving is the service around the manager.
type serving struct {
	service.Environment
	*manager
	offers []func()
	once   sync.Once
	// Closed when all objects were followed.
	synced chan struct{}
}

func newServing(e service.Environment) (service.Service, error) {
	var stored records
	if e.Records != nil {
		stored = e.Records
	}
	m := newManager(e.Log, e.Objects, stored, len(e.Dataplanes) > 1)
	for _, c := range []prometheus.Collector{m.measured.sessions, m.measured.setUps, m.measured.failures, m.measured.endings, poolCollector{m}} {
		if err := e.Metrics.Register(c); err != nil {
			m.close()
			return nil, err
		}
	}
	if e.Records != nil {
		m.loadRecords(e.Records.Unsorted(), func(r durable.Record, err error) {
			e.Log.Error("a subscriber is lost", "record", r.Key, "error", err)
		})
	}
	offers := []func(){service.Offer[Manager](e, m), service.Offer[Gardens](e, m), service.Offer[Pools](e, m),
		service.Offer[api.SubscribersServer](e, queryServer{manager: m}), service.Provide(e, queryServer{manager: m}.list),
		service.Provide(e, queryServer{manager: m}.uses)}
	return &serving{Environment: e, manager: m, offers: offers, synced: make(chan struct{})}, nil
}

// remember takes up a session of an earlier life. m.mu is held.
func (m *manager) remember(s *session) error {
	if m.sessions[s.connection.ID] != nil {
		return fmt.Errorf("duplicate session %s", s.connection.ID)
	}
	s.identity = identityOf(&s.connection, false)
	m.enter(s)
	m.takeUp(s)
	if s.cause != 0 {
		m.unfinished[s] = true
		m.leaving[s.identity] = s
		return nil
	}
	for _, name := range s.accounting {
		m.restored[name] = append(m.restored[name], s)
	}
	return nil
}

// begin puts restored sessions and gives them to their access protocols: all objects are known.
func (m *manager) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready {
		return
	}
	m.ready = true
	now := m.now()
	for _, s := range m.sessions {
		s.active, s.seen = now, s.total()
		s.settle(maps.Values(m.pools))
		m.apply(s, func(r service.Result) {
			if r.Err == nil {
				return
			}
			m.log.Error("the data plane refuses the session of a subscriber that was up", "session", s.lease.Session, "error", r.Err)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.terminate(s, NASError, "")
		})
		if s.cause == 0 {
			m.schedule(s)
		}
	}
	for _, g := range m.guests {
		g.settle(maps.Values(m.pools))
	}
	for protocol, a := range m.accesses {
		m.restore(protocol, a)
	}
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	switch c.Key.Kind {
	case "AddressPool":
		s.setPool(c.Key.Name, service.SpecOf[*api.AddressPool](c.Object))
	case "Portal":
		s.setPortal(c.Key.Name, service.SpecOf[*api.Portal](c.Object))
	case "SubscriberProfile":
		s.setProfile(c.Key.Name, service.SpecOf[*api.SubscriberProfile](c.Object))
	case "QosProfile":
		s.setQosProfile(c.Key.Name, service.SpecOf[*api.QosProfile](c.Object))
	case "LocalUser":
		s.setUser(c.Key.Name, service.SpecOf[*api.LocalUser](c.Object))
	}
}

// Ends implements service.Predictor.
func (s *serving) Ends(k object.Key, o *object.Object) int {
	if k.Kind != "SubscriberProfile" {
		return 0
	}
	return s.ends(k.Name, service.SpecOf[*api.SubscriberProfile](o))
}

// Synced implements service.Follower.
func (s *serving) Synced() {
	s.begin()
	s.once.Do(func() { close(s.synced) })
}

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	defer s.close()
	defer func() {
		for _, withdraw := range s.offers {
			withdraw()
		}
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-s.synced:
	}
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	late := time.NewTimer(meetPatience)
	defer late.Stop()
	ticker := time.NewTicker(clock)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			s.met("")
		case <-ticker.C:
			for _, e := range s.poolEvents(s.now()) {
				s.Intent.Report(e)
			}
			for name, sessions := range s.tick(s.now()) {
				group.Add(1)
				go func() {
					defer group.Done()
					s.read(ctx, name, sessions)
				}()
			}
		}
	}
}

// Connected implements service.Connector: it reads counters.
func (s *serving) Connected(ctx context.Context, connected service.Plane) {
	p := &plane{name: connected.Name, client: connected.Client, boot: connected.Client.Link().GetGreeting().GetBoot()}
	s.mu.Lock()
	s.planes[p.name] = p
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.planes[p.name] == p {
			delete(s.planes, p.name)
		}
	}()
	select {
	case <-s.synced:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if err := s.poll(ctx, p); err != nil && ctx.Err() == nil {
			s.Log.Warn("the counters of sessions cannot be read; trying again", "dataplane", p.name, "error", err)
		} else if ctx.Err() == nil {
			s.met(p.name)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
