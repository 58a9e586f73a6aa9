// SPDX-License-Identifier: Apache-2.0

// Package dhcp relays DHCP (RFC 2131, RFC 3046, RFC 8415) between subscribers and servers, and creates a session for each lease. Machine is
// the protocol without I/O; the service around it has packets, objects, records and the clock.
package dhcp

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	tick = time.Second
	// Answers that wait for the disk. More are dropped; clients repeat themselves.
	storedDepth = 4096
)

// Definition is the DHCP relay.
var Definition = service.Definition{
	Name:  "dhcp",
	Kinds: []string{"Port", "Interface", "DhcpRelay"},
	Punts: []string{"dhcp4", "dhcp6"},
	New:   newRelaying,
}

// relaying is the service.
type relaying struct {
	service.Environment
	service.NotReadyReasons
	messages *prometheus.CounterVec
	drops    *prometheus.CounterVec
	punts    *service.Punts
	manager  subscriber.Manager

	mu      sync.Mutex
	machine *Machine
	synced  bool
	refused service.Refusals
	// Servers that do not answer, by relay.
	silent map[string]map[netip.Addr]bool
	// Closed when Synced was called first.
	first  chan struct{}
	stored chan stored
	// The last record.
	last  durable.Pending
	ports *service.Ports
}

// stored is actions that wait for records to reach the disk.
type stored struct {
	pending durable.Pending
	then    []Action
}

func newRelaying(e service.Environment) (service.Service, error) {
	s := &relaying{Environment: e, machine: New(), silent: map[string]map[netip.Addr]bool{}, first: make(chan struct{}), stored: make(chan stored, storedDepth),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_dhcp_messages_total", Help: "DHCP messages that were relayed.",
		}, []string{"family", "type"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_dhcp_drops_total", Help: "DHCP messages that were not relayed.",
		}, []string{"family", "reason"})}
	s.punts = service.NewPunts(e, &s.NotReadyReasons)
	s.ports = service.FollowPorts(e, func(dataplane string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.machine.NeedsPort(dataplane)
	}, func(dataplane, port string, mac [6]byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.machine.SetPort(dataplane, port, MAC(mac))
	})
	size := func(name, help string, of func(*Machine) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(of(s.machine))
		})
	}
	for _, c := range []prometheus.Collector{s.messages, s.drops,
		size("sluice_dhcp_leases", "Clients that hold a lease.", (*Machine).Leases),
		size("sluice_dhcp_transactions", "Messages of clients that wait for a server.", (*Machine).Transactions),
		size("sluice_dhcp_unbound_clients", "Clients without a lease that are authenticated, wait for it or were refused.", (*Machine).Unbound)} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	if e.Records != nil {
		for _, r := range e.Records.All() {
			if err := s.machine.Restore(r.Value); err != nil {
				e.Log.Error("a lease is lost", "record", r.Key, "error", err)
			}
		}
	}
	return s, nil
}

// Follow implements service.Follower.
func (s *relaying) Follow(c service.Change) {
	if s.punts.Follow(c) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Key.Kind {
	case "Interface":
		s.carryOut(s.machine.SetInterface(c.Key.Name, service.SpecOf[*api.Interface](c.Object)))
	case "DhcpRelay":
		spec := service.SpecOf[*api.DhcpRelay](c.Object)
		s.carryOut(s.machine.SetRelay(c.Key.Name, spec, time.Now()))
		for server := range s.silent[c.Key.Name] {
			if _, has := s.machine.relaysOf(server, vrfOf(spec.GetVrf()))[c.Key.Name]; !has {
				s.hinder(c.Key.Name, server, "", "")
			}
		}
	}
	s.ports.Look()
}

// Synced implements service.Follower.
func (s *relaying) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced {
		return
	}
	s.synced = true
	s.carryOut(s.machine.Restored(time.Now()))
	close(s.first)
}

// Run implements service.Service.
func (s *relaying) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	group.Add(1)
	go func() {
		defer group.Done()
		s.answer(ctx)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-s.first:
	}
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	group.Add(2)
	go func() {
		defer group.Done()
		s.Watch(ctx, s.Intent)
	}()
	go func() {
		defer group.Done()
		s.attach(ctx)
	}()
	service.Every(ctx, tick, func(now time.Time) { s.with(func(time.Time) []Action { return s.machine.Tick(now) }) })
	return nil
}

// answer sends packets after their records are on disk.
func (s *relaying) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case k := <-s.stored:
			if err := k.pending.Wait(); err != nil {
				s.Log.Error("a lease cannot be stored, and its answer is not sent", "error", err)
				continue
			}
			s.send(k.then)
		}
	}
}

// Connected implements service.Connector: answers to clients carry the MAC of their port.
func (s *relaying) Connected(ctx context.Context, plane service.Plane) { s.ports.Connected(ctx, plane) }

// Receive implements service.Receiver.
func (s *relaying) Receive(packets []service.Packet) {
	now := time.Now()
	s.send(s.take(packets, now))
}

func (s *relaying) take(packets []service.Packet, now time.Time) (later []Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range packets {
		later = append(later, s.carryOut(s.machine.Receive(Packet{p.Dataplane, p.Port, p.Interface, p.Session, p.Frame}, now))...)
	}
	return later
}

// carryOut carries out all actions that do not wait, and returns the packets to send. s.mu is held.
func (s *relaying) carryOut(actions []Action) (packets []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case ToServer, ToLink, ToClient:
			packets = append(packets, a)
		case Count:
			if a.Drop == "" {
				s.messages.WithLabelValues(a.Family, a.Type).Inc()
			} else {
				s.drops.WithLabelValues(a.Family, a.Drop).Inc()
			}
		case ServerState:
			s.serverState(a)
		case PutPunt:
			s.punts.Put(a.Name, a.Punt, object.Key{Kind: "DhcpRelay", Name: a.Relay})
		case DeletePunt:
			s.punts.Delete(a.Name)
		case Save:
			if s.Records != nil {
				s.last = s.Records.Put(durable.Record{Key: a.Key, Value: a.Value})
			}
			s.afterStored(s.last, a.Then)
		case AfterSaved:
			s.afterStored(s.last, a.Then)
		case DeleteSession:
			s.Objects.Delete(object.Key{Kind: "Session", Name: a.Name}, nil)
		case PutSession:
			s.putSession(a, s.last)
		default:
			s.ask(a)
		}
	}
	return packets
}

// serverState reports a server that does not answer, or answers again, also at the relays that have it. s.mu is held.
func (s *relaying) serverState(a ServerState) {
	if a.Silent {
		s.Log.Warn("a DHCP server does not answer", "server", a.Server.String(), "vrf", a.VRF)
	} else {
		s.Log.Info("a DHCP server answers again", "server", a.Server.String(), "vrf", a.VRF)
	}
	for name, others := range s.machine.relaysOf(a.Server, a.VRF) {
		reason, message := "", ""
		if a.Silent {
			reason, message = "ServerSilent", a.Server.String()+" does not answer, and is the relay's only server of its family"
			if others {
				message = a.Server.String() + " does not answer; other servers of the relay get its messages"
			}
			if s.silent[name] == nil {
				s.silent[name] = map[netip.Addr]bool{}
			}
			s.silent[name][a.Server] = true
		}
		s.hinder(name, a.Server, reason, message)
	}
}

// hinder sets why a server of a relay does not serve; an empty reason: it serves, or is none of the relay's.
func (s *relaying) hinder(relay string, server netip.Addr, reason, message string) {
	if reason == "" {
		if delete(s.silent[relay], server); len(s.silent[relay]) == 0 {
			delete(s.silent, relay)
		}
	}
	k := object.Key{Kind: "DhcpRelay", Name: relay}
	if s.SetUnanswered(k, server.String(), reason, message) && s.Intent != nil {
		s.Intent.Touched(k)
	}
}

func (s *relaying) putSession(a PutSession, pending durable.Pending) {
	key := object.Key{Kind: "Session", Name: a.Name}
	s.Objects.Put(&object.Object{Kind: key.Kind, Name: key.Name, Spec: a.Session}, func(r service.Result) {
		waits := ""
		if r.Err == nil && !r.Done {
			// The data plane may have had it in this form before.
			status, _ := s.Intent.Get(key)
			r.Done, waits = status.State == intent.Applied, status.Message
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessionPut(a, pending, r, waits)
	})
}

// sessionPut takes the result of a PutSession, and what the session waits for. s.mu is held.
func (s *relaying) sessionPut(a PutSession, pending durable.Pending, r service.Result, waits string) {
	err := r.Err
	if err == nil && !r.Done {
		err = fmt.Errorf("%w: it %s", subscriber.ErrNotForwarding, waits)
	}
	switch {
	case err == nil:
		s.afterStored(pending, a.Then)
	case r.Err != nil || len(a.Then) > 0:
		s.drops.WithLabelValues("", "session-refused").Inc()
		s.logRefused(a.Name, err)
	}
	s.carryOut(s.machine.SessionPut(a.Name, a.Number, r.Err, r.Done, time.Now()))
}

// afterStored sends packets once a record is on the disk.
func (s *relaying) afterStored(pending durable.Pending, then []Action) {
	if len(then) == 0 {
		return
	}
	select {
	case s.stored <- stored{pending, then}:
	default:
		s.drops.WithLabelValues("", "disk-too-slow").Inc()
	}
}

// send gives packets to the data planes.
func (s *relaying) send(packets []Action) {
	for _, a := range packets {
		var err error
		switch a := a.(type) {
		case ToServer:
			err = s.Packets.Send(a.Dataplane, service.Routed(a.VRF, a.Packet))
		case ToLink:
			err = s.Packets.Send(a.Dataplane, service.Untagged(a.Interface, a.Frame))
		case ToClient:
			err = s.Packets.Send(a.Dataplane, service.Frame(a.Port, a.Frame))
		}
		if err != nil {
			s.drops.WithLabelValues("", "not-sent").Inc()
			s.Log.Debug("a packet is not sent", "error", err)
		}
	}
}
