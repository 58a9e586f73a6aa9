// SPDX-License-Identifier: Apache-2.0

// Package pppoe is a PPPoE access concentrator (RFC 2516, RFC 4638, TR-101). Machine is discovery and the sessions without I/O, package ppp the
// links; the service around them has packets, objects, the subscriber Manager and the clock.
package pppoe

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	random "math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/wcp"
)

const (
	tick = 50 * time.Millisecond
	// Key of the record that has the keys of AC-Cookies.
	keysRecord = "cookie"
	// The data plane's reason for the Echo-Request that a peer did not answer.
	peerLost = "lcp-peer-lost"
	// After so many frames for a data plane, those of a moment are gathered: a frame alone costs both sides as much as several.
	// After very many, for longer.
	muchAtOnce, gather         = 4, time.Millisecond
	veryMuchAtOnce, gatherMore = 16, 2 * time.Millisecond
	// So many frames that wait hold up Receive until the data plane takes them.
	framesLimit = 4096
)

// Definition is the PPPoE access concentrator.
var Definition = service.Definition{
	Name:  protocolName,
	Kinds: []string{"Port", "PppoeServer"},
	Punts: []string{"pppoe-discovery", "ppp-control", peerLost, "dhcp6", "router-solicitation"},
	New:   newServing,
}

// serving is the service.
type serving struct {
	service.Environment
	service.NotReadyReasons
	packets, drops counters
	ended          *prometheus.CounterVec
	punts          *service.Punts

	mu      sync.Mutex
	machine *Machine
	keys    cookieKeys
	synced  bool
	// Closed when Synced was called first.
	first chan struct{}
	ports *service.Ports
	// Frames to send, by data plane, and requests for the Manager, each in order.
	frames   map[string][]*api.PacketOut
	waiting  int // frames
	requests []Action
	// There are frames, and requests.
	filled, asked chan struct{}
	manager       subscriber.Manager
	// The server of 5G residential gateways; nil: there is none. Connections by session: askManager alone has them.
	gateways    wcp.Server
	connections map[string]wcp.Connection
	// Time of the last line in the log about a subscriber that is not connected.
	warned time.Time

	// Held while frames are sent, so that they stay in order.
	sending sync.Mutex
}

func newServing(e service.Environment) (service.Service, error) {
	var keys cookieKeys
	if e.Records != nil {
		keys, _ = readCookieKeys(e.Records.Get(keysRecord))
	}
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, err
	}
	s := &serving{Environment: e, keys: keys, machine: New(&keys, random.NewChaCha8(seed).Uint64, time.Now()), first: make(chan struct{}),
		frames: map[string][]*api.PacketOut{}, filled: make(chan struct{}, 1), asked: make(chan struct{}, 1), connections: map[string]wcp.Connection{},
		packets: newCounters("sluice_pppoe_packets_total", "PPPoE packets, by type.", "type"),
		drops:   newCounters("sluice_pppoe_drops_total", "PPPoE packets that were not served.", "reason"),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_pppoe_sessions_ended_total", Help: "PPPoE sessions that ended, by Acct-Terminate-Cause.",
		}, []string{"cause"})}
	if err := s.renewKeys(time.Now()); err != nil {
		return nil, err
	}
	s.punts = service.NewPunts(e, &s.NotReadyReasons)
	s.ports = service.FollowPorts(e, func(dataplane string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.machine.NeedsPort(dataplane)
	}, func(dataplane, port string, mac [6]byte) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.machine.SetPort(dataplane, port, subscriber.MAC(mac))
	})
	gauge := func(state string, value func(halfOpen, connected int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_pppoe_sessions", Help: "PPPoE sessions, by whether they are connected.",
			ConstLabels: prometheus.Labels{"state": state}}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(value(s.machine.Sessions()))
		})
	}
	for _, c := range []prometheus.Collector{s.packets.all, s.drops.all, s.ended,
		gauge("half-open", func(halfOpen, _ int) int { return halfOpen }), gauge("connected", func(_, connected int) int { return connected })} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// renewKeys replaces the key of AC-Cookies when its time is over.
func (s *serving) renewKeys(now time.Time) error {
	if !s.keys.due(now) {
		return nil
	}
	if err := s.keys.renew(now); err != nil {
		return err
	}
	if s.Records != nil {
		s.Records.Put(durable.Record{Key: keysRecord, Value: s.keys.bytes()})
	}
	s.machine.SetKeys(&s.keys)
	return nil
}

// locked runs f, and carries out its actions.
func (s *serving) locked(f func() []Action) {
	s.mu.Lock()
	defer s.unlock()
	s.carryOut(f())
}

// unlock unlocks s.mu, and wakes those who send frames and ask the Manager: before, they would only wait for the lock.
func (s *serving) unlock() {
	frames, requests := s.waiting > 0, len(s.requests) > 0
	s.mu.Unlock()
	if frames {
		wake(s.filled)
	}
	if requests {
		wake(s.asked)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	if c.Key.Kind == "Port" {
		s.followPort(c)
		s.punts.Follow(c)
		return
	}
	spec := service.SpecOf[*api.PppoeServer](c.Object)
	s.locked(func() []Action { return s.machine.SetServer(c.Key.Name, spec, time.Now()) })
	s.checkSizes(c.Key.Name)
	s.ports.Look()
}

// Ends implements service.Predictor.
func (s *serving) Ends(k object.Key, o *object.Object) int {
	spec := service.SpecOf[*api.PppoeServer](o)
	if k.Kind != "PppoeServer" {
		return 0
	}
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

func (s *serving) followPort(c service.Change) {
	mtu := uint32(0)
	if spec := service.SpecOf[*api.Port](c.Object); spec != nil {
		mtu = cmp.Or(spec.Mtu, 1500)
	}
	s.mu.Lock()
	s.machine.SetMTU(c.Key.Name, mtu)
	names := s.machine.Servers(c.Key.Name)
	s.mu.Unlock()
	s.checkSizes(names...)
}

// checkSizes sets whether the payloads of servers fit into their ports.
func (s *serving) checkSizes(names ...string) {
	for _, name := range names {
		s.mu.Lock()
		why, reason := s.machine.TooLarge(name), ""
		s.mu.Unlock()
		if why != "" {
			reason = "Payload" + service.Refused
		}
		if k := (object.Key{Kind: "PppoeServer", Name: name}); s.SetNotReady(k, "mru", reason, why) {
			s.Intent.Touched(k)
		}
	}
}

// Synced implements service.Follower.
func (s *serving) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		s.synced = true
		close(s.first)
	}
}

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	start := func(f func()) {
		group.Add(1)
		go func() {
			defer group.Done()
			f()
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.first:
	}
	start(func() { s.askManager(ctx) })
	start(func() { s.send(ctx) })
	start(func() { s.attach(ctx) })
	start(func() { s.attachGateways(ctx) })
	start(func() { s.Watch(ctx, s.Intent) })
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	service.Every(ctx, tick, func(now time.Time) {
		s.locked(func() []Action {
			if err := s.renewKeys(now); err != nil {
				s.Log.Error("no new key for AC-Cookies", "error", err)
			}
			return s.machine.Tick(now)
		})
	})
	return nil
}

// attach finds the Manager, each one that there is in turn, and gets the sessions of an earlier life from it.
func (s *serving) attach(ctx context.Context) {
	for ctx.Err() == nil {
		manager, changed, err := service.Find[subscriber.Manager](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		another := s.manager != manager
		s.manager = manager
		s.mu.Unlock()
		if another {
			manager.Attach(protocolName, s)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// Restore implements subscriber.Access.
func (s *serving) Restore(c subscriber.Connection, l subscriber.Lease) {
	s.mu.Lock()
	defer s.unlock()
	actions, taken := s.machine.Restore(c, l, time.Now())
	s.carryOut(actions)
	if !taken {
		s.Log.Warn("a session of before the restart ends: no PppoeServer serves it", "session", l.Session)
		s.requests = append(s.requests, Disconnect{c.ID, subscriber.AdminReset})
	}
}

// Restored implements subscriber.Access.
func (s *serving) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.Restored(true)
}

// Terminate implements subscriber.Access.
func (s *serving) Terminate(id string, cause subscriber.Cause, text string) {
	s.locked(func() []Action { return s.machine.Terminate(id, cause, text, time.Now()) })
}

// askManager hands over requests in their order. It does not hold s.mu: the Manager may call back at once.
func (s *serving) askManager(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.asked:
		}
		s.mu.Lock()
		requests, manager := s.requests, s.manager
		s.requests = nil
		s.mu.Unlock()
		if manager == nil {
			continue
		}
		for _, a := range requests {
			s.ask(manager, a)
		}
	}
}

func (s *serving) ask(manager subscriber.Manager, a Action) {
	switch a := a.(type) {
	case Authenticate:
		id, username, attempt := a.Request.ID, a.Request.Username, a.Attempt
		manager.Authenticate(a.Request, func(answer subscriber.Answer) {
			s.locked(func() []Action {
				return s.machine.Authenticated(id, attempt, cmp.Or(answer.Grant.Username, username), answer, time.Now())
			})
		})
	case Connect:
		// The callback does not hold all of the connection.
		id, line, interfaceID, message := a.Connection.ID, a.Connection.Line, a.Connection.Grant.InterfaceID, a.Message
		username := cmp.Or(a.Connection.Grant.Username, a.Connection.Username)
		manager.Connect(a.Connection, func(l subscriber.Lease, err error) {
			if err != nil {
				s.warn(err, username, &line)
			}
			s.locked(func() []Action { return s.machine.Connected(id, l, interfaceID, message, err, time.Now()) })
		})
	case Update:
		manager.Extend(a.ID, a.Change, func(l subscriber.Lease, err error) {
			if err != nil {
				s.Log.Warn("a session keeps what it has", "record", a.ID, "error", err)
				return
			}
			s.locked(func() []Action { return s.machine.Updated(a.ID, l, time.Now()) })
		})
	case Disconnect:
		manager.Disconnect(a.ID, a.Cause)
	case Serve:
		manager.Serve(a.ID, a.Profile)
	default:
		s.askGateways(a)
	}
}

// warn logs why a subscriber is not connected, at most once a second.
func (s *serving) warn(err error, username string, line *subscriber.Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.warned) >= time.Second {
		s.warned = now
		s.Log.Warn("a subscriber is not connected", "username", username, "mac", macText(line.MAC), "circuit", line.Circuit.String(), "error", err)
	}
}

// Connected implements service.Connector: frames carry the MAC of their port.
func (s *serving) Connected(ctx context.Context, plane service.Plane) { s.ports.Connected(ctx, plane) }

// Receive implements service.Receiver.
func (s *serving) Receive(packets []service.Packet) {
	if s.take(packets, time.Now()) {
		s.flush()
	}
}

// take reports whether enough frames wait.
func (s *serving) take(packets []service.Packet, now time.Time) bool {
	s.mu.Lock()
	defer s.unlock()
	for _, p := range packets {
		packet := Packet{p.Dataplane, p.Port, p.Frame}
		if p.Reason == peerLost {
			s.carryOut(s.machine.Lost(packet, now))
		} else {
			s.carryOut(s.machine.Receive(packet, now))
		}
	}
	return s.waiting >= framesLimit
}

// carryOut does what does not wait, and keeps the rest for send and askManager. s.mu is held.
func (s *serving) carryOut(actions []Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case SendFrame:
			s.frames[a.Dataplane] = append(s.frames[a.Dataplane], packetOut(a.Port, a.Frame))
			s.waiting++
		case Authenticate, Connect, Update, Disconnect, Serve, Delegate, Carry, Down:
			s.requests = append(s.requests, a)
		case Count:
			if a.Drop == "" {
				s.packets.of(a.Type).Inc()
			} else {
				s.drops.of(a.Drop).Inc()
			}
		case Ended:
			s.ended.WithLabelValues(causeName(a.Cause)).Inc()
			s.Log.Debug("a PPPoE session ended", "mac", macText(a.MAC), "cause", causeName(a.Cause), "why", a.Reason)
		case PutPunt:
			s.punts.Put(a.Name, a.Punt, object.Key{Kind: "PppoeServer", Name: a.Server})
		case DeletePunt:
			s.punts.Delete(a.Name)
		}
	}
}

// packetOut is service.Frame in one allocation.
func packetOut(port string, frame []byte) *api.PacketOut {
	p := &struct {
		api.PacketOut
		way api.PacketOut_Port
	}{}
	p.way.Port, p.Packet = port, frame
	p.Way = &p.way
	return &p.PacketOut
}

// send sends frames until the context ends.
func (s *serving) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return
		case <-s.filled:
		}
		switch count := s.flush(); {
		case count >= veryMuchAtOnce:
			time.Sleep(gatherMore)
		case count >= muchAtOnce:
			time.Sleep(gather)
		}
	}
}

// flush sends the frames that wait, and returns how many there were.
func (s *serving) flush() (count int) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	frames, count := s.frames, s.waiting
	if count > 0 {
		s.frames, s.waiting = make(map[string][]*api.PacketOut, len(frames)), 0
		for plane, packets := range frames {
			// The next ones are about as many.
			s.frames[plane] = make([]*api.PacketOut, 0, len(packets))
		}
	}
	s.mu.Unlock()
	if count == 0 {
		return 0
	}
	for plane, packets := range frames {
		if len(packets) == 0 {
			continue
		}
		if err := s.Packets.Send(plane, packets...); err != nil {
			s.mu.Lock()
			s.drops.of("not-sent").Add(float64(len(packets)))
			s.mu.Unlock()
			s.Log.Debug("packets are not sent", "dataplane", plane, "error", err)
		}
	}
	return count
}

// counters are those of one label. Each is looked up once: that takes longer than to count.
type counters struct {
	all   *prometheus.CounterVec
	known map[string]prometheus.Counter
}

func newCounters(name, help, label string) counters {
	return counters{prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}), map[string]prometheus.Counter{}}
}

func (c *counters) of(label string) prometheus.Counter {
	one := c.known[label]
	if one == nil {
		one = c.all.WithLabelValues(label)
		c.known[label] = one
	}
	return one
}

func causeName(c subscriber.Cause) string {
	switch c {
	case subscriber.UserRequest:
		return "user-request"
	case subscriber.LostCarrier:
		return "lost-carrier"
	case subscriber.IdleTimeout:
		return "idle-timeout"
	case subscriber.SessionTimeout:
		return "session-timeout"
	case subscriber.AdminReset:
		return "admin-reset"
	case subscriber.PortError:
		return "port-error"
	case subscriber.UserError:
		return "user-error"
	}
	return "other"
}
