// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/sctp"
	"sluice.dev/sluice/agent/service"
)

const tick = 100 * time.Millisecond

// Definition is the service of associations to AMFs.
var Definition = service.Definition{
	Name:  "n2",
	Kinds: []string{"AccessNode", "Amf"},
	New: func(e service.Environment) (service.Service, error) {
		s := newService(e.Log, rand.Float64)
		s.environment = e
		if err := s.loadRecords(time.Now()); err != nil {
			return nil, err
		}
		for _, c := range s.collectors() {
			if err := e.Metrics.Register(c); err != nil {
				return nil, err
			}
		}
		return s, nil
	},
}

// opener opens associations: a sctp.Transport.
type opener interface {
	Open(c sctp.Config, h sctp.Handler) (transport, error)
}

// ErrNoAMF: no AMF of the pool is ready, serves the slice and takes new contexts.
var ErrNoAMF = errors.New("no AMF can serve the subscriber")

// ErrStarting is an ErrNoAMF that may pass soon: the service, or an AMF of the node, is new, and the first NG setup is not done.
var ErrStarting = fmt.Errorf("%w yet", ErrNoAMF)

// ErrOverloaded is an ErrNoAMF: AMFs could serve the subscriber, and are overloaded.
var ErrOverloaded = fmt.Errorf("%w: it is overloaded", ErrNoAMF)

// ErrRerouted: an initial message was rerouted before. AMFs that refer a subscriber to each other would do so for ever.
var ErrRerouted = errors.New("the AMF to which the subscriber was rerouted reroutes it, too")

// Service is the pool of AMFs. Everything is guarded by mu.
type Service struct {
	Log         *slog.Logger
	environment service.Environment
	random      func() float64
	messages    *prometheus.CounterVec
	ready       *prometheus.GaugeVec
	contexts    *prometheus.GaugeVec
	moved       *prometheus.CounterVec
	refusedNAS  *prometheus.CounterVec
	unreachable *prometheus.GaugeVec

	mu      sync.Mutex
	network opener // nil: sluice-sctp does not run
	nodes   map[string]*api.AccessNode
	amfs    map[string]*amf
	touch   []string
	ids     identifiers
	// Contexts of before a restart whose Amf is still to come, and until when contexts of before a restart wait for their owners.
	orphans   map[int64]*Context
	ownersDue time.Time
	// Contexts that were claimed after their AMF resumed them.
	claimed []*Context
	// Why there is no network.
	sctpError string
	// All objects of the start are known.
	synced bool
}

func newService(log *slog.Logger, random func() float64) *Service {
	return &Service{Log: log, random: random, nodes: map[string]*api.AccessNode{}, amfs: map[string]*amf{}, orphans: map[int64]*Context{}, ids: identifiers{made: map[int64]*block{}}, sctpError: "sluice-sctp does not run yet",
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_n2_messages_total", Help: "NGAP messages, by AMF, direction and message."},
			[]string{"amf", "direction", "message"}),
		ready:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_n2_amf_ready", Help: "1: NG setup with the AMF is done."}, []string{"amf"}),
		contexts:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_n2_ue_contexts", Help: "Subscribers with a context at the AMF."}, []string{"amf"}),
		moved:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_n2_contexts_moved_total", Help: "Contexts of subscribers that went from an AMF to another one of its set, or to its backup AMF."}, []string{"from", "to"}),
		refusedNAS:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_n2_nas_refused_total", Help: "NAS messages for lines that the gateway did not take, by AMF and reason."}, []string{"amf", "reason"}),
		unreachable: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_n2_unreachable_addresses", Help: "Addresses of an AMF that do not answer SCTP heartbeats."}, []string{"amf"}),
	}
}

func (s *Service) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.messages, s.ready, s.contexts, s.moved, s.refusedNAS, s.unreachable}
}

// Run implements service.Service.
func (s *Service) Run(ctx context.Context) error {
	defer service.Offer[Pool](s.environment, s)()
	defer service.Provide(s.environment, s.counters)()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var running *sctp.Transport
	// Earlier processes, until their last association ends.
	var retired []*sctp.Transport
	defer func() {
		if running != nil {
			retired = append(retired, running)
		}
		for _, process := range retired {
			<-process.Done()
		}
	}()
	for {
		if running != nil && running.Stale() {
			running.Retire()
			retired = append(retired, running)
			running = nil
		}
		retired = slices.DeleteFunc(retired, func(t *sctp.Transport) bool {
			select {
			case <-t.Done():
				return true
			default:
				return false
			}
		})
		if running != nil {
			select {
			case <-running.Done():
				running = nil
				s.connect(nil, "sluice-sctp ended")
			default:
			}
		}
		// Without AMFs there is no process.
		if running == nil && s.any() {
			program, err := sctp.Program()
			if err == nil {
				running, err = sctp.Start(ctx, program, s.Log)
			}
			if err != nil {
				s.connect(nil, err.Error())
			} else {
				s.connect(process{running}, "")
			}
		}
		s.Tick(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

type process struct{ *sctp.Transport }

func (p process) Open(c sctp.Config, h sctp.Handler) (transport, error) {
	a, err := p.Transport.Open(c, h)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (s *Service) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.amfs) > 0
}

func (s *Service) connect(o opener, sctpError string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sctpError != s.sctpError && sctpError != "" {
		s.Log.Error("SCTP cannot be used", "error", sctpError)
	}
	s.network, s.sctpError = o, sctpError
}

// Follow implements service.Follower.
func (s *Service) Follow(c service.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	name := c.Key.Name
	switch c.Key.Kind {
	case "AccessNode":
		s.node(name, service.SpecOf[*api.AccessNode](c.Object), now)
	case "Amf":
		s.amf(name, service.SpecOf[*api.Amf](c.Object), now)
	}
}

// node takes an AccessNode. AMFs get a RAN CONFIGURATION UPDATE if its tracking areas or its name change (section
// 8.7.2). A change of the association's addresses opens the association anew.
func (s *Service) node(name string, spec *api.AccessNode, now time.Time) {
	before := s.nodes[name]
	if spec == nil {
		delete(s.nodes, name)
	} else {
		s.nodes[name] = spec
	}
	if before == nil {
		return
	}
	other := spec == nil || spec.Plmn != before.Plmn || spec.WagfId != before.WagfId || spec.N3IwfId != before.N3IwfId ||
		!slices.Equal(spec.LocalAddresses, before.LocalAddresses) || spec.Heartbeat != before.Heartbeat
	announced := other || nodeName(name, spec) != nodeName(name, before) || !slices.EqualFunc(spec.TrackingAreas, before.TrackingAreas, sameArea)
	for _, a := range s.amfs {
		switch {
		case a.node != name || a.phase == down:
		// NG SETUP REQUEST may be on its way with what was.
		case other, announced && a.phase != ready:
			s.abandon(a, "the AccessNode changed", now)
			a.due = now
		case announced:
			s.announce(a)
		}
	}
}

func sameArea(a, b *api.TrackingArea) bool { return proto.Equal(a, b) }

// announce sends RAN CONFIGURATION UPDATE.
func (s *Service) announce(a *amf) {
	spec := s.nodes[a.node]
	areas, err := supportedAreas(spec)
	if err != nil {
		return
	}
	a.announce = time.Time{}
	label := nodeName(a.node, spec)
	s.send(a, 0, &ngap.RANConfigurationUpdate{RANNodeName: &label, SupportedTAList: areas})
}

func (s *Service) amf(name string, spec *api.Amf, now time.Time) {
	a := s.amfs[name]
	if spec == nil {
		if a != nil {
			s.abandon(a, "the Amf was deleted", now)
			s.handOver(a)
			s.loseAll(a, "the Amf was deleted")
			s.erased(a)
			delete(s.amfs, name)
			s.forgetStale()
			s.ready.DeleteLabelValues(name)
			s.contexts.DeleteLabelValues(name)
			s.unreachable.DeleteLabelValues(name)
		}
		return
	}
	if a != nil && (a.node != spec.Node || !slices.Equal(a.spec.Addresses, spec.Addresses) || a.spec.Port != spec.Port) {
		s.abandon(a, "the Amf changed", now)
		a.due = now
	}
	if a == nil {
		s.ids.prepare()
		a = &amf{name: name, swept: s.synced, since: now, due: now, startUntil: now.Add(startTime), reason: "no association yet", ues: map[int64]*Context{}, closed: map[int64]closedContext{}}
		s.amfs[name] = a
		for id, c := range s.orphans {
			if c.amfName == name {
				c.amf = a
				a.ues[id] = c
				delete(s.orphans, id)
			}
		}
		a.retainUntil = now.Add(retainTime)
	}
	a.node, a.spec = spec.Node, spec
}

// Synced implements service.Follower: contexts at AMFs that are not in the configuration any more are gone.
func (s *Service) Synced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	for _, c := range s.orphans {
		s.ended(c, Loss{Kind: AssociationLost, Reason: "the Amf was deleted"})
	}
	s.forgetStale()
}

// Tick begins and ends attempts.
func (s *Service) Tick(now time.Time) {
	s.mu.Lock()
	for _, a := range s.amfs {
		if a.phase == ready && !a.announce.IsZero() && !now.Before(a.announce) {
			s.announce(a)
		}
		if now.Before(a.due) {
			continue
		}
		switch a.phase {
		case down:
			s.open(a, now)
		case connecting, settingUp:
			s.abandon(a, "no answer: "+a.phase.String(), now)
		}
	}
	for _, a := range s.amfs {
		if a.phase < settingUp && a.remembered() && now.After(a.retainUntil) {
			// The next NG SETUP REQUEST asks for no contexts: the AMF erases those that it has.
			s.handOver(a)
			s.loseAll(a, a.reason)
			s.erased(a)
		}
	}
	for _, a := range s.amfs {
		for id, one := range a.closed {
			// While there is no association, the AMF cannot release it.
			if now.After(one.until) && (a.phase == ready || one.confirmed) {
				s.reopen(a, id)
			}
		}
	}
	s.disown(now)
	for _, a := range s.amfs {
		value := 0.0
		if a.phase == ready {
			value = 1
		}
		s.ready.WithLabelValues(a.name).Set(value)
		s.contexts.WithLabelValues(a.name).Set(float64(len(a.ues)))
		s.unreachable.WithLabelValues(a.name).Set(float64(len(a.unreachable)))
	}
	touch := s.touch
	s.touch = nil
	s.mu.Unlock()
	if s.environment.Intent == nil {
		return
	}
	for _, name := range touch {
		s.environment.Intent.Touched(object.Key{Kind: "Amf", Name: name})
	}
}

func (s *Service) touched(a *amf) { s.touch = append(s.touch, a.name) }

// open begins an attempt.
func (s *Service) open(a *amf, now time.Time) {
	node := s.nodes[a.node]
	switch {
	case node == nil:
		a.reason = "AccessNode/" + a.node + " does not exist"
		return
	case s.network == nil:
		a.reason = s.sctpError
		return
	}
	c := sctp.Config{Port: a.portOf(), Streams: streams, Heartbeat: time.Duration(node.Heartbeat)}
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	for _, of := range []struct {
		from []string
		to   *[]netip.Addr
	}{{node.LocalAddresses, &c.Local}, {a.spec.Addresses, &c.Remote}} {
		for _, text := range of.from {
			if address, err := netip.ParseAddr(text); err == nil {
				*of.to = append(*of.to, address)
			}
		}
	}
	h := &handler{s, a}
	opened, err := s.network.Open(c, h)
	if err != nil {
		a.fail(err.Error(), now)
		return
	}
	a.phase, a.assoc, a.handler, a.due = connecting, opened, h, now.Add(setupTime)
	a.unreachable = map[netip.Addr]bool{}
}

// abandon ends an association, or an attempt.
func (s *Service) abandon(a *amf, reason string, now time.Time) {
	assoc := a.assoc
	s.failed(a, reason, now)
	if assoc != nil {
		assoc.Abort()
	}
}

func (s *Service) failed(a *amf, reason string, now time.Time) {
	if a.phase == ready || reason != a.reason {
		s.Log.Warn("an AMF is not ready", "amf", a.name, "why", reason)
	}
	if a.phase == ready {
		a.retainUntil = now.Add(retainTime)
	}
	a.fail(reason, now)
	s.suspend(a, reason)
	s.touched(a)
}

// send sends a message. One that cannot be encoded is a mistake of the gateway.
func (s *Service) send(a *amf, stream uint16, message any) {
	octets, err := ngap.Encode(message)
	if err != nil {
		s.Log.Error("a message cannot be encoded", "amf", a.name, "error", err)
		return
	}
	if a.assoc == nil {
		return
	}
	name := fmt.Sprintf("%T", message)[len("*ngap."):]
	if err := a.assoc.Send(stream, payloadProtocol, octets); err != nil {
		s.Log.Warn("a message is not sent", "amf", a.name, "message", name, "error", err)
		return
	}
	s.messages.WithLabelValues(a.name, "out", name).Inc()
	a.counts.sent++
}

// handler takes the events of one association of an AMF.
type handler struct {
	service *Service
	amf     *amf
}

// current takes the lock if the association is the AMF's, and none that was abandoned.
func (h *handler) current() bool {
	h.service.mu.Lock()
	if h.amf.handler == h {
		return true
	}
	h.service.mu.Unlock()
	return false
}

// Up implements sctp.Handler.
func (h *handler) Up(out, _ uint16) {
	if !h.current() {
		return
	}
	defer h.service.mu.Unlock()
	h.service.setup(h.amf, out)
}

// Restarted implements sctp.Handler: the AMF lost its state.
func (h *handler) Restarted(out, _ uint16) {
	if !h.current() {
		return
	}
	defer h.service.mu.Unlock()
	h.amf.assoc.Renew()
	h.amf.retainUntil = time.Now().Add(retainTime)
	h.service.suspend(h.amf, "the AMF started anew")
	h.service.setup(h.amf, out)
}

func (s *Service) setup(a *amf, out uint16) {
	a.out, a.phase, a.due = out, settingUp, time.Now().Add(setupTime)
	request, err := setupRequest(a.node, s.nodes[a.node], len(a.ues) > 0)
	a.sweeps = nil
	if err != nil {
		s.abandon(a, err.Error(), time.Now())
		return
	}
	s.send(a, 0, request)
}

// Message implements sctp.Handler.
func (h *handler) Message(stream uint16, protocol uint32, message []byte) {
	if protocol != payloadProtocol || !h.current() {
		return
	}
	defer h.service.mu.Unlock()
	h.service.receive(h.amf, message, time.Now())
}

// Path implements sctp.Handler.
func (h *handler) Path(address netip.Addr, reachable bool) {
	if !h.current() {
		return
	}
	defer h.service.mu.Unlock()
	if reachable {
		delete(h.amf.unreachable, address)
	} else {
		h.amf.unreachable[address] = true
	}
	h.service.Log.Info("a path to an AMF changed", "amf", h.amf.name, "address", address, "reachable", reachable)
}

// Down implements sctp.Handler.
func (h *handler) Down(reason string) {
	if !h.current() {
		return
	}
	defer h.service.mu.Unlock()
	h.service.failed(h.amf, reason, time.Now())
}

// NotReady implements service.ReadinessReporter.
func (s *Service) NotReady(_ string, stored *object.StoredObject) intent.NotReady {
	if stored.KindName() != "Amf" {
		return intent.NotReady{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.amfs[stored.Key().Name]
	switch {
	case a == nil:
		return intent.NotReady{}
	case a.phase != ready:
		message := a.phase.String()
		if a.reason != "" {
			message = a.reason
		}
		return intent.NotReady{Reason: "NoAssociation", Message: message, Since: a.since, External: true}
	case a.takesNone():
		return intent.NotReady{Reason: "NoNewSubscribers", Message: "the AMF takes no new subscribers", Since: a.since, External: true}
	}
	return intent.NotReady{}
}

// Pool is the interface for services with subscribers at a core (service.Find).
type Pool interface {
	// Do calls f with the lock of the service, under which a Context may be used.
	Do(f func())
	// Open makes a context for a UE at an AMF of an access node: the AMF of the GUTI, if it has one and the AMF is
	// ready, or else its backup AMF, or one of its set or region. node "": the first by name. Called under Do.
	Open(node string, slice *api.Slice, guti *nas.GUTI, ue UE) (*Context, error)
	// Serves tells why no AMF of an access node is ready for subscribers of a slice; nil: one is.
	Serves(node string, slice *api.Slice) error
	// OpenIn is Open at an AMF of the AMF set that another AMF names.
	OpenIn(node string, slice *api.Slice, to Reroute, ue UE) (*Context, error)
	// Claim gives a context of before a restart of the agent to its owner, by its RAN UE NGAP ID; nil: it is gone. The context is suspended
	// until Resumed is called. Called under Do.
	Claim(ranID int64, ue UE) *Context
}

// Reroute is where a REROUTE NAS REQUEST sends an initial message: to an AMF set. From is the AMF that says so.
type Reroute struct {
	Set  uint16
	From string
}

// Caused is a UE that says what its context is for: an overloaded AMF takes some. The context of another one is for signalling.
type Caused interface {
	// Cause is called in Open.
	Cause() ngap.RRCEstablishmentCause
}

// Do implements Pool.
func (s *Service) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Open implements Pool.
func (s *Service) Open(node string, slice *api.Slice, guti *nas.GUTI, ue UE) (*Context, error) {
	return s.openContext(node, slice, guti, demand{}, "", ue)
}

// OpenIn implements Pool.
func (s *Service) OpenIn(node string, slice *api.Slice, to Reroute, ue UE) (*Context, error) {
	of := serving(func(g guami) bool { return g.set() == uint32(to.Set) })
	return s.openContext(node, slice, nil, demand{prefer: []func(*amf) bool{of}, only: true}, to.From, ue)
}

// openContext opens a context at any AMF but `not`. The caller fills in what it prefers.
func (s *Service) openContext(node string, slice *api.Slice, guti *nas.GUTI, d demand, not string, ue UE) (*Context, error) {
	if node == "" {
		for name := range s.nodes {
			if node == "" || name < node {
				node = name
			}
		}
	}
	n := s.nodes[node]
	if n == nil && !s.synced {
		return nil, fmt.Errorf("%w: AccessNode/%s is not known", ErrStarting, node)
	}
	if n == nil {
		return nil, fmt.Errorf("%w: AccessNode/%s does not exist", ErrNoAMF, node)
	}
	pool := s.pool(node, not)
	if guti != nil {
		s.preferences(node, guti, &d)
	}
	d.plmn, d.cause = nas.PLMN(n.Plmn), ngap.RRCEstablishmentCauseMoSignalling
	if slice != nil {
		item := snssai(slice)
		one := sliceOf(&item)
		d.needed = &one
	}
	if caused, is := ue.(Caused); is {
		d.cause = caused.Cause()
	}
	a, overloaded := choose(pool, d, s.random)
	if a == nil {
		now := time.Now()
		err := ErrNoAMF
		switch {
		case overloaded:
			err = ErrOverloaded
		case !s.synced || slices.ContainsFunc(pool, func(a *amf) bool { return a.starting(now) }):
			err = ErrStarting
		}
		return nil, fmt.Errorf("%w at AccessNode/%s%s", err, node, whyNone(pool, d))
	}
	c := &Context{service: s, amf: a, amfName: a.name, ue: ue, ranID: s.newRanID()}
	a.ues[c.ranID] = c
	return c, nil
}
