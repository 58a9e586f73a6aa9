// SPDX-License-Identifier: Apache-2.0

// Package ipoe serves IPoE subscribers: it is the DHCP server of their lines (RFC 2131, RFC 8415), or takes them up by their first packet, and gives each a
// session by way of the Manager of agent/subscriber. Machine is the protocol without I/O; the service around it has packets, objects, the Manager and
// the clock.
package ipoe

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	clock = time.Second
	// Questions for counters that wait for a data plane.
	listensWaiting = 1024
)

// Definition is the service "ipoe".
var Definition = service.Definition{
	Name:  "ipoe",
	Kinds: []string{"Port", "IpoeServer"},
	Punts: []string{"arp", "dhcp4", "dhcp6", "first-packet", "nd", "router-solicitation"},
	New:   newServing,
}

// serving is the service.
type serving struct {
	service.Environment
	service.NotReadyReasons
	messages, drops *prometheus.CounterVec
	punts           *service.Punts

	mu      sync.Mutex
	machine *Machine
	manager subscriber.Manager
	// Access protocols whose sessions of before a restart are not all known yet.
	restoring int
	once      sync.Once
	synced    chan struct{}
	ports     *service.Ports
	// By data plane, while it is connected.
	listens map[string]chan Listen
	refused service.Refusals
}

func newServing(e service.Environment) (service.Service, error) {
	s := &serving{Environment: e, machine: New(subscriber.NewID, rand.Uint64), synced: make(chan struct{}), listens: map[string]chan Listen{},
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ipoe_messages_total", Help: "Messages of IPoE clients that were taken.",
		}, []string{"protocol", "type"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ipoe_drops_total", Help: "Messages of IPoE clients that were not answered.",
		}, []string{"protocol", "reason"})}
	s.punts = service.NewPunts(e, &s.NotReadyReasons)
	s.ports = service.FollowPorts(e, func(dataplane string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.machine.NeedsPort(dataplane)
	}, func(dataplane, port string, mac [6]byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.machine.SetPort(dataplane, port, dhcp.MAC(mac))
	})
	clients := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_ipoe_clients", Help: "IPoE clients that have a session or wait for one."}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.machine.Clients())
	})
	for _, c := range []prometheus.Collector{s.messages, s.drops, clients} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	if s.punts.Follow(c) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(s.machine.SetServer(c.Key.Name, service.SpecOf[*api.IpoeServer](c.Object), time.Now()))
	s.ports.Look()
}

// Ends implements service.Predictor.
func (s *serving) Ends(k object.Key, o *object.Object) int {
	if k.Kind != "IpoeServer" {
		return 0
	}
	spec := service.SpecOf[*api.IpoeServer](o)
	s.mu.Lock()
	sessions, others := s.machine.Ends(k.Name, spec)
	manager := s.manager
	s.mu.Unlock()
	if manager == nil {
		return sessions
	}
	for _, id := range others {
		if manager.Moves(id, spec.Profile) {
			sessions++
		}
	}
	return sessions
}

// Synced implements service.Follower.
func (s *serving) Synced() { s.once.Do(func() { close(s.synced) }) }

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.synced:
	}
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	defer service.Provide(s.Environment, s.list)()
	var group sync.WaitGroup
	defer group.Wait()
	group.Add(1)
	go func() {
		defer group.Done()
		s.Watch(ctx, s.Intent)
	}()
	ticker := time.NewTicker(clock)
	defer ticker.Stop()
	for {
		manager, gone, err := service.Find[subscriber.Manager](ctx, s.Environment)
		if err != nil {
			return nil
		}
		s.mu.Lock()
		attach := s.manager != manager
		if attach {
			s.manager, s.restoring = manager, len(names)
			s.machine.present, s.machine.moves = manager.Lease, manager.Moves
		}
		s.mu.Unlock()
		if attach {
			for _, protocol := range names {
				manager.Attach(protocol, s)
			}
		}
		for found := true; found; {
			select {
			case <-ctx.Done():
				return nil
			case <-gone:
				found = false
			case now := <-ticker.C:
				s.mu.Lock()
				s.carryOut(s.machine.Tick(now))
				s.mu.Unlock()
			}
		}
	}
}

// Restore implements subscriber.Access.
func (s *serving) Restore(c subscriber.Connection, l subscriber.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(s.machine.Restore(c, l, time.Now()))
}

// Restored implements subscriber.Access.
func (s *serving) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restoring--
}

// Terminate implements subscriber.Access. DHCP has no such message that clients accept: they learn it when they
// renew.
func (s *serving) Terminate(id string, _ subscriber.Cause, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(s.machine.Terminated(id, time.Now()))
}

// Renews implements subscriber.Renewer: a host that has its address without DHCP dials in with its next packet.
func (s *serving) Renews(protocol string) bool { return protocol != names[kindFirst] }

// Receive implements service.Receiver.
func (s *serving) Receive(packets []service.Packet) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manager == nil || s.restoring > 0 {
		// A client may have a session that we do not know yet. It repeats itself.
		s.drops.WithLabelValues("", "not-ready").Add(float64(len(packets)))
		return
	}
	for _, p := range packets {
		s.carryOut(s.machine.Receive(Packet{p.Dataplane, p.Port, p.Reason, p.Frame}, now))
	}
}

// carryOut carries out the machine's actions. s.mu is held: the Manager calls back from goroutines of its own.
func (s *serving) carryOut(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case Send:
			if err := s.Packets.Send(a.Dataplane, service.Frame(a.Port, a.Frame)); err != nil {
				s.drops.WithLabelValues("", "not-sent").Inc()
				s.Log.Debug("a packet is not sent", "error", err)
			}
		case Count:
			if a.Drop == "" {
				s.messages.WithLabelValues(a.Protocol, a.Type).Inc()
			} else {
				s.drops.WithLabelValues(a.Protocol, a.Drop).Inc()
			}
		case PutPunt:
			s.punts.Put(a.Name, a.Punt, object.Key{Kind: "IpoeServer", Name: a.Server})
		case DeletePunt:
			s.punts.Delete(a.Name)
		case Listen:
			select {
			case s.listens[a.Dataplane] <- a: // without a data plane, a nil channel: no client gives way
			default:
			}
		default:
			s.ask(a)
		}
	}
}

// then carries out the machine's actions for an answer.
func (s *serving) then(f func(now time.Time) []Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(f(time.Now()))
}

// ask asks the Manager.
func (s *serving) ask(a Action) {
	if s.manager == nil {
		s.drops.WithLabelValues("", "not-ready").Inc()
		return
	}
	switch a := a.(type) {
	case Authenticate:
		s.manager.Authenticate(a.Request, func(answer subscriber.Answer) {
			s.then(func(now time.Time) []Action { return s.machine.Authenticated(a.Request.ID, answer, now) })
		})
	case Connect:
		s.manager.Connect(a.Connection, func(l subscriber.Lease, err error) {
			if err != nil {
				// A metric counts all of them: a pool that is exhausted would fill the log.
				line := &a.Connection.Line
				s.refused.Warn(s.Log, time.Now(), "an IPoE client gets no session", slog.String("session", a.Connection.ID),
					slog.String("circuit", line.Circuit.String()), slog.String("mac", line.MAC.String()), slog.Any("error", err))
			}
			s.then(func(now time.Time) []Action { return s.machine.Connected(a.Connection.ID, l, err, now) })
		})
	case Extend:
		s.manager.Extend(a.ID, func(c *subscriber.Connection) {
			c.IPv4, c.IPv6, c.State, c.Declined = a.IPv4, a.IPv6, a.State, a.Declined
		}, func(l subscriber.Lease, err error) {
			s.then(func(now time.Time) []Action { return s.machine.Extended(a.ID, l, err, now) })
		})
	case Save:
		s.manager.Keep(a.ID, a.State, func(err error) {
			if err != nil {
				s.drops.WithLabelValues("", "not-kept").Inc()
				return
			}
			s.then(func(time.Time) []Action { return a.Then })
		})
	case Disconnect:
		s.manager.Disconnect(a.ID, a.Cause)
	case Serve:
		s.manager.Serve(a.ID, a.Profile)
	}
}

// Connected implements service.Connector: answers to clients carry the MAC of their port, and counters tell which clients are silent.
func (s *serving) Connected(ctx context.Context, plane service.Plane) {
	asked := make(chan Listen, listensWaiting)
	s.mu.Lock()
	s.listens[plane.Name] = asked
	s.mu.Unlock()
	var group sync.WaitGroup
	defer group.Wait()
	group.Add(1)
	go func() {
		defer group.Done()
		s.listen(ctx, plane, asked)
	}()
	s.ports.Connected(ctx, plane)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listens[plane.Name] == asked {
		delete(s.listens, plane.Name)
	}
}

// listen reads the counters that the machine asks for.
func (s *serving) listen(ctx context.Context, plane service.Plane, asked <-chan Listen) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-asked:
			answer, err := dataplane.Ask[*api.SessionCountersList](ctx, plane.Client, &api.SessionCountersQuery{Sessions: a.Sessions})
			var packets map[string]uint64
			if err == nil {
				packets = map[string]uint64{}
				for _, c := range answer.GetSessions() {
					packets[c.GetSession()] = c.GetUpPackets()
				}
			}
			s.then(func(now time.Time) []Action { return s.machine.Listened(a, packets, now) })
		}
	}
}
