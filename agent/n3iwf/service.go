// SPDX-License-Identifier: Apache-2.0

// Package n3iwf is the non-3GPP interworking function (TS 23.502 section 4.12, TS 24.502): UEs register with a 5G core from any IP network. The IKE
// service has their IKE SAs, the N2 service their contexts at AMFs; this package is between the two: EAP-5G, NAS over TCP, and the user plane of
// PDU sessions. It looks at no NAS message.
package n3iwf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/eap5g"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/tcp"
)

const (
	usualNASPort  = 20000
	usualMaxUEs   = 16384
	usualBackOff  = time.Minute
	usualDPD      = 30 * time.Second
	usualRekey    = 4 * time.Hour
	usualChild    = time.Hour
	keepAlive     = 20 * time.Second
	tickTime      = 200 * time.Millisecond
	certificateIn = 1 << 20
	// How long a plan waits for what a change ends.
	foretold = time.Second
	// Reasons of packets from the data plane: TCP of UEs, and error indications of UPFs.
	tunnelTCP        = "tunnel-tcp"
	errorIndications = "gtpu-error-indication"
)

// Algorithms that UEs have (TS 33.210 section 6.2): AES-GCM, or AES-CBC with HMAC-SHA2-256.
var (
	usualIKE = []string{"aes256gcm16-aes128gcm16-prfsha256-x25519-ecp256-modp2048", "aes256-aes128-sha256-x25519-ecp256-modp2048"}
	usualESP = []string{"aes128gcm16-esn", "aes128gcm16", "aes128-sha256-esn", "aes128-sha256"}
)

var (
	errTooMany    = errors.New("the N3IWF takes no more UEs")
	errNotServing = fmt.Errorf("%w: it does not serve", errTooMany)
)

// Definition is the service.
var Definition = service.Definition{
	Name:     "n3iwf",
	Kinds:    []string{"AccessNode", "IkeCredential", "Interface", "QosGroup", "N3iwf"},
	Punts:    []string{tunnelTCP, errorIndications},
	RPCs:     []service.RPC{rpc},
	Commands: commands,
	New:      newServing,
}

// serving is the service. Everything but the queue of events is used by the goroutine of Run alone.
type serving struct {
	service.Environment
	objects service.Writer
	ike     ike.Server
	pool    n2.Pool

	nodes       service.View[*api.AccessNode]
	credentials service.View[*api.IkeCredential]
	groups      service.View[*api.QosGroup]
	specs       map[string]*object.Object
	instances   map[string]*instance
	verdicts    sync.Map // by name: verdict
	interfaces  map[string]interfaceAddresses
	readdressed bool                         // an Interface has other addresses
	files       map[string]map[string]string // by name of the N3iwf and path: how certificates and keys were when they were read
	conflicts   map[string]bool              // N3iwfs that do not serve because of others
	peers       map[uint64]*ue
	talks       map[uint64]*ue // by EAP conversation
	// Half-open UEs, and log lines that such UEs cause at will.
	registering *registering
	refusals    service.Refusals
	refusedUEs  refusals
	names       map[string]*ue // by the name of the signalling SA's objects
	// Of the newest UE. No two UEs of a life of the agent have the same.
	lastNumber int
	teids      map[uint32]bool
	// By the UPF's end of the tunnel that the data plane has.
	ends map[gtpu.RemoteEnd]*pduSession
	// Objects that PDU sessions share: meters and queues of the same rates, and marks of the same QoS flows.
	shared *service.Shared
	// Data planes that are connected.
	planes map[string]*dataplane.Client
	synced bool
	// How many readings of counters have begun.
	readings uint64
	// Outgoing messages wait here for records.
	sender *sender
	// UEs of a process before: their records by N3iwf, and those that are taken over.
	restored map[string][]*restoredUE
	taken    []*ue

	refused  *prometheus.CounterVec
	messages *prometheus.CounterVec
	count    [3]prometheus.Gauge // UEs, PDU sessions, UEs that register

	mu     sync.Mutex
	events []func()
	queued chan struct{}
}

func newServing(e service.Environment) (service.Service, error) {
	s := &serving{Environment: e, objects: e.Objects, nodes: map[string]*api.AccessNode{}, credentials: map[string]*api.IkeCredential{}, groups: map[string]*api.QosGroup{}, specs: map[string]*object.Object{}, instances: map[string]*instance{},
		interfaces: map[string]interfaceAddresses{}, files: map[string]map[string]string{}, conflicts: map[string]bool{},
		peers: map[uint64]*ue{}, talks: map[uint64]*ue{}, names: map[string]*ue{}, teids: map[uint32]bool{}, ends: map[gtpu.RemoteEnd]*pduSession{}, planes: map[string]*dataplane.Client{}, queued: make(chan struct{}, 1),
		sender: newSender(), registering: newRegistering(time.Now()), restored: map[string][]*restoredUE{},
		refused:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_n3iwf_refused_total", Help: "UEs and messages of UEs that were refused, by the reason."}, []string{"reason"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_n3iwf_nas_messages_total", Help: "NAS messages that were carried, by direction."}, []string{"direction"})}
	s.shared = service.NewShared(e.Objects, sharedPrefix, s.post, func(k object.Key, err error) {
		s.Log.Error("an object of UEs is refused", "kind", k.Kind, "name", k.Name, "error", err)
	})
	s.count[0] = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_n3iwf_ues", Help: "UEs that are connected."})
	s.count[1] = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_n3iwf_pdu_sessions", Help: "PDU sessions with a user plane."})
	s.count[2] = prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_n3iwf_registering", Help: "UEs that register and are not authenticated yet."})
	for _, c := range []prometheus.Collector{s.refused, s.messages, s.count[0], s.count[1], s.count[2]} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// post has f called by the goroutine of Run, after all that were queued before.
func (s *serving) post(f func()) {
	s.mu.Lock()
	s.events = append(s.events, f)
	s.mu.Unlock()
	select {
	case s.queued <- struct{}{}:
	default:
	}
}

// call has f called by the goroutine of Run, and waits for it. The error is that of the context.
func (s *serving) call(ctx context.Context, f func()) error {
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		f()
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

func (s *serving) work() {
	for {
		s.mu.Lock()
		all := s.events
		s.events = nil
		s.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, f := range all {
			f()
		}
	}
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	s.post(func() {
		switch c.Key.Kind {
		case "AccessNode":
			s.nodes.Follow(c)
			s.configureThose(func(spec *api.N3Iwf) bool { return spec.GetNode() == c.Key.Name })
		case "IkeCredential":
			s.credentials.Follow(c)
			s.configureThose(func(spec *api.N3Iwf) bool { return spec.GetCredential() == c.Key.Name })
		case "Interface":
			s.followInterface(c)
		case "QosGroup":
			s.groups.Follow(c)
		case "N3iwf":
			delete(s.specs, c.Key.Name)
			if c.Object != nil {
				s.specs[c.Key.Name] = c.Object
			}
			s.configure(c.Key.Name)
		}
	})
}

// configureThose applies the N3iwf objects of a choice.
func (s *serving) configureThose(which func(*api.N3Iwf) bool) {
	for name, o := range s.specs {
		if spec, is := o.Spec.(*api.N3Iwf); is && which(spec) {
			s.configure(name)
		}
	}
}

// Synced implements service.Follower.
func (s *serving) Synced() { s.post(func() { s.synced = true }) }

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	server, serverGone, err := service.Find[ike.Server](ctx, s.Environment)
	if err != nil {
		return nil
	}
	pool, poolGone, err := service.Find[n2.Pool](ctx, s.Environment)
	if err != nil {
		return nil
	}
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	for !s.synced {
		s.work()
		select {
		case <-ctx.Done():
			return nil
		case <-s.queued:
		case <-ticker.C:
		}
	}
	senderContext, stopSender := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		s.sender.run(senderContext)
	}()
	defer group.Wait()
	defer stopSender()
	s.ike, s.pool = server, pool
	defer service.Provide(s.Environment, s.list)()
	defer service.Offer[api.UesServer](s.Environment, operated{s: s})()
	// After a restart: UEs with their contexts at AMFs, connections whose N3iwf is deleted, and all objects.
	s.loadRecords()
	for _, name := range s.ordered() {
		s.configure(name)
	}
	s.claim()
	for _, name := range server.Registered() {
		if instance, is := instanceOf(name); is && s.instances[instance] == nil {
			server.Unregister(name)
		}
	}
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	s.resume()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		s.work()
		select {
		case <-ctx.Done():
			return nil
		case <-serverGone:
			if _, _, err := service.Find[ike.Server](ctx, s.Environment); err != nil {
				return nil
			}
			return errors.New("the IKE service ended")
		case <-poolGone:
			if _, _, err := service.Find[n2.Pool](ctx, s.Environment); err != nil {
				return nil
			}
			// Contexts and UEs are in the records.
			return errors.New("the N2 service ended")
		case <-s.queued:
		case now := <-again.C:
			s.look(now)
		case now := <-ticker.C:
			if s.readdressed {
				s.review(now)
			}
			s.reviewAMFs(now)
			s.tickRegistering(now)
			s.refusedUEs.sweep(now)
			ues, sessions := 0, 0
			for _, u := range s.peers {
				u.tick(now)
				sessions += len(u.sessions)
				if u.up && !u.gone {
					ues++
				}
			}
			s.count[0].Set(float64(ues))
			s.count[1].Set(float64(sessions))
			s.count[2].Set(float64(s.registering.size()))
		}
	}
}

// Receive implements service.Receiver: TCP segments of UEs, and error indications of UPFs.
func (s *serving) Receive(packets []service.Packet) {
	for _, p := range packets {
		if p.Reason == errorIndications {
			if end, ok := gtpu.RefusedEnd(p.Frame); ok {
				if vrf, there := gtpu.VRFOf(s.Intent, &p); there {
					s.post(func() { s.refusedTunnel(gtpu.RemoteEnd{VRF: vrf, End: end}) })
				}
			}
			continue
		}
		if p.Interface == "" {
			continue
		}
		segment, ok := tcp.Parse(p.Frame)
		if !ok {
			continue
		}
		segment.Payload = slices.Clone(segment.Payload)
		s.post(func() {
			// A UE's packets come by its own signalling SA.
			u := s.names[p.Interface]
			if u != nil && u.up && !u.gone && segment.Destination == netip.AddrPortFrom(u.in.nas, u.in.nasPort) && slices.Contains(u.inner, segment.Source.Addr()) {
				u.segment(segment)
			}
		})
	}
}

// transmit sends an IP packet of ours.
func (s *serving) transmit(plane, vrf string, packet []byte) {
	if err := s.Packets.Send(plane, service.Routed(cmp.Or(vrf, "default"), packet)); err != nil {
		s.Log.Debug("a packet to a UE is not sent", "error", err)
	}
}

// errNotDone: an object waits for another one, or for a data plane.
var errNotDone = errors.New("the data plane does not have it")

// put makes an object. done, if not nil, gets the result of the data plane.
func (s *serving) put(kind, name string, spec proto.Message, done func(error)) {
	s.objects.Put(&object.Object{Kind: kind, Name: name, Spec: spec}, func(r service.Result) {
		if r.Err != nil {
			s.Log.Error("an object of a UE is refused", "kind", kind, "name", name, "error", r.Err)
		}
		if done == nil {
			return
		}
		if r.Err == nil && !r.Done {
			r.Err = errNotDone
		}
		s.post(func() { done(r.Err) })
	})
}

func (s *serving) delete(kind, name string) {
	s.objects.Delete(object.Key{Kind: kind, Name: name}, nil)
}

func (s *serving) random() uint32 { return rand.Uint32() }

// newTEID is no other session's.
func (s *serving) newTEID() uint32 {
	for {
		teid := rand.Uint32()
		if teid != 0 && !s.teids[teid] {
			s.teids[teid] = true
			return teid
		}
	}
}

// ---- Instances

// instance is an N3iwf that serves.
type instance struct {
	s         *serving
	name      string
	spec      *api.N3Iwf
	plane     string // the label "dataplane"
	nas, core netip.Addr
	nasPort   uint16
	userPlane []netip.Addr
	pools     []netip.Prefix
	// By which UEs know the N3IWF.
	identity    ike.Identity
	certificate *smx509.Certificate
	// The object, or a file of its, has changed, and cannot be applied.
	outdated bool
	// It has no certificate: UEs of before a restart go on, and there are no new ones.
	frozen bool
	// Why no AMF takes its UEs, when that was last looked at.
	lacks string
	esp   []message.Proposal
	marks map[uint32]qosflow.Mark
	// Guaranteed rates of the QoS flows of all PDU sessions.
	reserved *rates
	// Those that are authenticated.
	ues   map[*ue]bool
	given map[netip.Addr]*ue
	last  map[netip.Prefix]netip.Addr
}

const (
	connectionPrefix = "n3iwf-"
	// Of objects that PDU sessions share.
	sharedPrefix = "n3iwf-shared-"
)

func instanceOf(connection string) (string, bool) {
	if len(connection) <= len(connectionPrefix) || connection[:len(connectionPrefix)] != connectionPrefix {
		return "", false
	}
	return connection[len(connectionPrefix):], true
}

func (in *instance) maxUEs() int { return int(cmp.Or(in.spec.MaxUes, usualMaxUEs)) }

func (in *instance) tooMany() error {
	return fmt.Errorf("%w: N3iwf/%s has maxUes: %d", errTooMany, in.name, len(in.ues))
}

func (in *instance) backOff() time.Duration {
	return cmp.Or(time.Duration(in.spec.BackOff), usualBackOff)
}

// child is a child SA of a UE.
func (in *instance) child(name, tunnel string, local netip.Addr) *ike.Child {
	rekey := cmp.Or(time.Duration(in.spec.RekeyTime), usualChild)
	return &ike.Child{Name: name, Proposals: in.esp, Local: []message.Selector{ike.SelectorOf(netip.PrefixFrom(local, local.BitLen()))},
		RekeyTime: rekey, LifeTime: rekey + rekey/10, Serves: ike.Serves{Tunnel: tunnel, ReplayWindow: 1024}}
}

// take gives a UE an address: the next that is free.
func (in *instance) take(u *ue, six bool) (netip.Addr, bool) {
	for _, p := range in.pools {
		if p.Addr().Is6() != six {
			continue
		}
		a := in.last[p]
		for range min(1<<16, 1<<min(p.Addr().BitLen()-p.Bits(), 16)) {
			if a.IsValid() {
				a = a.Next()
			}
			if !a.IsValid() || !p.Contains(a) {
				a = p.Addr().Next()
			}
			if p.Contains(a) && in.given[a] == nil && a != in.nas && !slices.Contains(in.userPlane, a) && (six || !lastOf(p, a)) {
				in.given[a], in.last[p] = u, a
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// lastOf: the broadcast address of a network is no host's.
func lastOf(p netip.Prefix, a netip.Addr) bool { return p.Bits() < 31 && !p.Contains(a.Next()) }

func (in *instance) give(a netip.Addr) { delete(in.given, a) }

// configure applies an N3iwf object. A change ends UEs that cannot stay connected.
func (s *serving) configure(name string) {
	if s.ike == nil {
		return // Run does it
	}
	o, before := s.specs[name], s.instances[name]
	delete(s.conflicts, name)
	if o == nil {
		s.verdicts.Delete(name)
		delete(s.files, name)
		if before != nil {
			s.ike.Unregister(connectionPrefix + name)
			delete(s.instances, name)
		}
		s.retry()
		return
	}
	spec, _ := o.Spec.(*api.N3Iwf)
	in := &instance{s: s, name: name, spec: spec, plane: o.Labels["dataplane"], ues: map[*ue]bool{}, given: map[netip.Addr]*ue{}, last: map[netip.Prefix]netip.Addr{}, reserved: &rates{}}
	if err := s.apply(in, before); err != nil {
		words := err.Error()
		switch {
		case s.instances[name] == in:
			words += "; UEs that are connected stay, and no others are taken"
		// A file that is being replaced must not end UEs.
		case before != nil:
			before.outdated = true
			words += "; the configuration of before stays in force"
		}
		s.judge(name, spec, notConfigured, words)
		return
	}
	reason, words := in.unserved(time.Now())
	s.judge(name, spec, reason, words)
	if before != nil {
		s.retry()
	}
}

// retry applies N3iwfs that did not serve because of others.
func (s *serving) retry() {
	waiting := s.conflicts
	s.conflicts = map[string]bool{}
	for _, name := range s.ordered() {
		if waiting[name] {
			s.configure(name)
		}
	}
}

// apply has an instance serve, in the place of the one before. After a restart, an instance without its certificate is frozen: UEs of before stay, and
// the error says what is wrong.
func (s *serving) apply(in, before *instance) error {
	c, err := in.read()
	if err != nil {
		return err
	}
	wrong := s.identified(in.spec.Node)
	if wrong == nil {
		c.Credential, wrong = in.readCredential(s.credentials[in.spec.Credential])
	}
	if wrong != nil {
		if before != nil && !before.frozen {
			return wrong
		}
		in.frozen, in.outdated, c.Frozen = true, true, true
	}
	if err := s.conflict(in); err != nil {
		s.conflicts[in.name] = true
		return err
	}
	if before != nil {
		in.ues, in.given, in.last, in.reserved = before.ues, before.given, before.last, before.reserved
	}
	peers, err := s.ike.Register(c, owner{s, in.name})
	if err != nil {
		return err
	}
	s.instances[in.name] = in
	if before == nil {
		s.takeUp(in, peers)
	}
	for _, p := range peers {
		if s.peers[p.ID] == nil {
			_ = s.ike.Close(p.ID, "the N3IWF starts anew")
		}
	}
	for u := range in.ues {
		if u.in = in; before != nil && in.ends(before, u) {
			u.end("the N3iwf was changed")
		}
	}
	s.registering.each(func(u *ue) {
		if u.in != before || before == nil {
			return
		}
		if u.in = in; in.ends(before, u) {
			u.down("the N3iwf was changed")
		}
	})
	return wrong
}

// identified: without an N3IWF ID, the node sets NG up as a W-AGF, whose subscribers are lines. One that does not exist is waited for.
func (s *serving) identified(node string) error {
	if n := s.nodes[node]; n != nil && n.N3IwfId == 0 {
		return fmt.Errorf("AccessNode/%s has no n3iwfId: set it, or AMFs take the node for a W-AGF", node)
	}
	return nil
}

// fixed are the fields that a UE keeps while it is connected.
func fixed(n *api.N3Iwf) [8]string {
	return [...]string{n.GetNode(), n.GetLocalAddress(), object.VRFName(n.GetVrf()), n.GetNasAddress(), fmt.Sprint(cmp.Or(n.GetNasPort(), usualNASPort)), object.VRFName(n.GetInnerVrf()),
		n.GetCoreAddress(), object.VRFName(n.GetCoreVrf())}
}

// ends reports whether a UE cannot stay connected: it has what the N3iwf had before, and does not have now.
func (in *instance) ends(before *instance, u *ue) bool {
	if u.gone {
		return false
	}
	if fixed(in.spec) != fixed(before.spec) || in.plane != before.plane {
		return true
	}
	for _, a := range u.inner {
		if !slices.ContainsFunc(in.pools, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return true
		}
	}
	for _, p := range u.sessions {
		if p.local.IsValid() && !slices.Contains(in.userPlane, p.local) {
			return true
		}
	}
	return false
}

// Ends implements service.Predictor: the PDU sessions that a change of an N3iwf ends.
func (s *serving) Ends(k object.Key, o *object.Object) (sessions int) {
	if k.Kind != "N3iwf" {
		return 0
	}
	counted := make(chan int, 1)
	s.post(func() {
		ends := 0
		for _, u := range s.endedBy(k, o) {
			ends += len(u.sessions)
		}
		counted <- ends
	})
	select {
	case sessions = <-counted:
	case <-time.After(foretold):
		// It is not known.
	}
	return sessions
}

// addresses reads the addresses of user planes and of UEs.
func (in *instance) addresses() error {
	for _, text := range in.spec.UserPlaneAddresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("userPlaneAddresses: %w", err)
		}
		in.userPlane = append(in.userPlane, a)
	}
	for _, text := range in.spec.InnerPools {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("innerPools: %w", err)
		}
		in.pools = append(in.pools, p.Masked())
	}
	return nil
}

// read is the connection of an instance, without its credential.
func (in *instance) read() (*ike.Connection, error) {
	spec := in.spec
	rekey := cmp.Or(time.Duration(spec.RekeyTime), usualRekey)
	c := &ike.Connection{Name: connectionPrefix + in.name, Owned: true, Dataplane: in.plane, VRF: cmp.Or(spec.Vrf, "default"), LocalMethod: ike.Certificate, RemoteMethod: ike.EAP,
		// A random ID_KEY_ID (TS 24.502 section 7.3.2.1).
		Takes:     func(initiator ike.Identity) bool { return initiator.Kind == message.IDKey },
		RekeyTime: rekey, DPDDelay: cmp.Or(time.Duration(spec.DpdDelay), usualDPD), Tries: int(spec.Tries), KeepAlive: keepAlive,
		// UEs may not know RFC 7427.
		AllowSHA1: true}
	in.nasPort = uint16(cmp.Or(spec.NasPort, usualNASPort))
	in.marks = qosflow.Marks(spec.Markings)
	var err error
	for _, one := range []struct {
		field, text string
		to          *netip.Addr
	}{{"localAddress", spec.LocalAddress, &c.Local}, {"nasAddress", spec.NasAddress, &in.nas}, {"coreAddress", spec.CoreAddress, &in.core}} {
		if *one.to, err = netip.ParseAddr(one.text); err != nil {
			return nil, fmt.Errorf("%s: %w", one.field, err)
		}
	}
	if err = in.addresses(); err != nil {
		return nil, err
	}
	if c.LocalID, err = ike.ParseIdentity(spec.Identity); err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if c.Proposals, err = proposals(message.ProtocolIKE, spec.Proposals, usualIKE...); err != nil {
		return nil, fmt.Errorf("proposals: %w", err)
	}
	if in.esp, err = proposals(message.ProtocolESP, spec.EspProposals, usualESP...); err != nil {
		return nil, fmt.Errorf("espProposals: %w", err)
	}
	in.identity = c.LocalID
	return c, nil
}

func proposals(protocol message.Protocol, texts []string, usual ...string) (all []message.Proposal, err error) {
	if len(texts) == 0 {
		texts = usual
	}
	for _, text := range texts {
		p, err := suite.ParseProposal(protocol, text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// ---- The owner of IKE SAs

// owner takes the events of one instance's UEs from the IKE service.
type owner struct {
	s    *serving
	name string
}

// EAP implements ike.Owner.
func (o owner) EAP(step ike.EAPStep, done func(ike.EAPAnswer)) {
	o.s.post(func() {
		u := o.s.talks[step.Conversation]
		if u == nil {
			in := o.s.instances[o.name]
			back, err := usualBackOff, errNotServing
			if in != nil {
				o.s.lastNumber++
				u = &ue{s: o.s, in: in, peer: step.Peer, name: fmt.Sprintf("n3iwf-%s-%d", in.name, o.s.lastNumber), conversation: step.Conversation, sessions: map[uint8]*pduSession{}, meters: map[string]bool{}}
				back, err = in.backOff(), o.s.beginUE(in, u, time.Now())
			}
			if err != nil {
				o.s.countRefusal(o.name, step.Peer.Remote, err)
				if u != nil {
					u.note(err)
				}
				done(ike.EAPAnswer{Packet: eap5g.End(1, eap.Failure), Err: err, Notify: backOffNotifies(back)})
				return
			}
			o.s.talks[step.Conversation], o.s.peers[step.Peer.ID], o.s.names[u.name] = u, u, u
		}
		u.eap(step, done)
	})
}

// EAPEnded implements ike.Owner.
func (o owner) EAPEnded(conversation uint64) {
	o.s.post(func() {
		u := o.s.talks[conversation]
		delete(o.s.talks, conversation)
		if u == nil || u.up || u.gone || u.key != nil {
			return
		}
		u.down("the UE ends the authentication")
	})
}

// Finish implements ike.Owner.
func (o owner) Finish(what ike.FinishAuth, done func(ike.Finished)) {
	o.s.post(func() {
		if u := o.s.peers[what.Peer.ID]; u != nil && !u.gone {
			u.finish(what, done)
			return
		}
		done(ike.Finished{Err: errors.New("the UE is gone")})
	})
}

// of calls f for a UE that is there.
func (o owner) of(peer uint64, f func(*ue)) {
	o.s.post(func() {
		if u := o.s.peers[peer]; u != nil {
			f(u)
		}
	})
}

// Propose implements ike.Owner: a UE opens no child SAs (TS 24.502 section 7.1).
func (o owner) Propose(_ ike.ProposeChild, done func(ike.ChildAccepted)) {
	done(ike.ChildAccepted{})
}

// Notified implements ike.Owner.
func (o owner) Notified(_ ike.Notified, done func(ike.NotifiedAnswer)) {
	done(ike.NotifiedAnswer{})
}

// Up implements ike.Owner.
func (o owner) Up(e ike.PeerUp) {
	o.s.post(func() {
		if u := o.s.peers[e.Peer.ID]; u != nil {
			u.established(e.Peer)
			return
		}
		_ = o.s.ike.Close(e.Peer.ID, "the UE took too long")
	})
}

// Moved implements ike.Owner.
func (o owner) Moved(e ike.PeerMoved) { o.of(e.Peer.ID, func(u *ue) { u.moved(e.Peer) }) }

// Down implements ike.Owner.
func (o owner) Down(e ike.PeerDown) { o.of(e.Peer.ID, func(u *ue) { u.down(e.Why) }) }

// ChildUp implements ike.Owner.
func (o owner) ChildUp(ike.ChildUp) {}

// ChildDown implements ike.Owner: without its default child SA a PDU session has no user plane, and without the signalling SA there is no UE.
func (o owner) ChildDown(e ike.ChildDown) {
	if e.Replaced {
		return
	}
	o.of(e.Peer.ID, func(u *ue) {
		if e.Child.Name == signalling {
			// When the IKE SA ends, its reason follows at once.
			u.cut = time.Now()
			return
		}
		for _, p := range u.sessions {
			if slices.ContainsFunc(p.children, func(c *childSA) bool { return c.name == e.Child.Name }) {
				// With the IKE SA all child SAs go, and then the UE: that follows at once.
				p.lost = time.Now()
				return
			}
		}
	})
}
