// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/aka"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/wcp"
)

const (
	// Name of the back end in a SubscriberProfile.
	backEnd = "core"
	// The reasons of router advertisements and DHCPv6 answers in tunnels.
	advertisements = "gtpu-router-advertisement"
	delegations    = "gtpu-dhcp6"
	// That of error indications of UPFs.
	errorIndications = "gtpu-error-indication"
	// How long a PDU session may be there until its subscriber session begins.
	sessionTime = time.Minute
	tick        = 100 * time.Millisecond
	// After this time without an attempt, the registration attempts of a line are counted from the beginning.
	forgetTime = 15 * time.Minute
	// Lines that the core refused, and that need not wait, are listed until there are so many.
	maxHolds = 200_000
	// How often it is looked for them.
	sweepTime = 10 * time.Second
)

// hold is on a line whose registration failed.
type hold struct {
	until                      time.Time
	attempts, doubts, refusals int
	why                        error
	agf                        string
	// Of the Agf and the CoreSubscriber of the registration: a change of either ends the hold.
	objects string
}

// objectsOf is a digest of the Agf and the CoreSubscriber of a line.
func (s *agf) objectsOf(line, agf string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := sha256.New()
	for _, spec := range []proto.Message{s.agfs[agf], s.credentials[s.credentialOf[line]]} {
		// A message of ours can always be packed.
		packed, _ := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
		fmt.Fprintf(digest, "%d ", len(packed))
		digest.Write(packed)
	}
	return hex.EncodeToString(digest.Sum(nil)[:16])
}

// Definition is the service that registers lines with a 5G core.
var Definition = service.Definition{
	Name:  "agf",
	Kinds: []string{"AccessNode", "Agf", "CoreSubscriber", "Interface", "SubscriberProfile"},
	Punts: []string{advertisements, delegations, errorIndications},
	New: func(e service.Environment) (service.Service, error) {
		s := newAGF(e)
		for _, c := range []prometheus.Collector{s.registered, s.pduSessions, s.gateways.count, s.gateways.drops} {
			if err := e.Metrics.Register(c); err != nil {
				return nil, err
			}
		}
		return s, nil
	},
}

// registration is a Line with the service's state of it.
type registration struct {
	*Line
	deadline.Timer
	// The name of its Agf, and its own.
	agf, key string
	// A record of it is in the log.
	recorded bool
	// It is of before a restart, and its context at the AMF is still to be claimed, by the RAN UE NGAP ID; -1: it was idle.
	restored bool
	ran      int64
}

// agf is the service.
type agf struct {
	environment             service.Environment
	registered, pduSessions prometheus.Gauge
	synced                  chan struct{}
	once                    sync.Once

	mu      sync.Mutex
	pool    n2.Pool
	manager subscriber.Manager
	// By the objects' names.
	nodes       service.View[*api.AccessNode]
	agfs        service.View[*api.Agf]
	credentials service.View[*api.CoreSubscriber]
	// By line: the name of its CoreSubscriber.
	credentialOf map[string]string
	// The Agf that a SubscriberProfile names.
	named map[string]string
	// The field by which a SubscriberProfile has the core as back end.
	core map[string]string
	// Of Interfaces in the default VRF that have some.
	addresses map[string][]netip.Addr
	// Agfs that changed since the last tick.
	changed map[string]bool

	// The fields below are used under Pool.Do alone, and before there is a Pool by Run.
	lines   map[string]*registration
	of      map[*Line]*registration
	members map[string]*member
	// By our TEID; nil: of a residential gateway.
	teids map[uint32]*member
	// Owners of tunnels by the UPF's end.
	ends  map[farEnd]tunnelOwner
	holds map[string]hold
	swept time.Time
	// Sequence numbers of Subscriptions without a registration, by Card: the core's challenges of before are not accepted again.
	sequences map[string]uint64
	timers    deadline.Queue[*registration]
	remarks   []remark
	shared    *service.Shared
	gateways  gateways
}

func newAGF(e service.Environment) *agf {
	s := &agf{environment: e, synced: make(chan struct{}), nodes: map[string]*api.AccessNode{}, agfs: map[string]*api.Agf{}, named: map[string]string{}, core: map[string]string{}, changed: map[string]bool{}, addresses: map[string][]netip.Addr{}, credentials: map[string]*api.CoreSubscriber{}, credentialOf: map[string]string{},
		lines: map[string]*registration{}, of: map[*Line]*registration{}, members: map[string]*member{}, teids: map[uint32]*member{}, ends: map[farEnd]tunnelOwner{}, holds: map[string]hold{}, sequences: map[string]uint64{},
		gateways:    newGateways(),
		registered:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_agf_lines", Help: "Lines with a registration at a 5G core, or on the way to one."}),
		pduSessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_agf_pdu_sessions", Help: "PDU sessions of lines."})}
	s.shared = service.NewShared(e.Objects, sharedPrefix, s.do, func(k object.Key, err error) {
		e.Log.Error("the data plane refuses the QoS of a PDU session", "kind", k.Kind, "name", k.Name, "error", err)
	})
	return s
}

// Follow implements service.Follower.
func (s *agf) Follow(c service.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.Key.Kind {
	case "AccessNode":
		s.nodes.Follow(c)
	case "Agf":
		s.agfs.Follow(c)
		s.changed[c.Key.Name] = true
	case "Interface":
		if now := addressesOf(c.Object); len(now) > 0 {
			s.addresses[c.Key.Name] = now
		} else {
			delete(s.addresses, c.Key.Name)
		}
	case "CoreSubscriber":
		before, now := s.credentials.Follow(c)
		if before != nil && s.credentialOf[before.Line] == c.Key.Name {
			delete(s.credentialOf, before.Line)
		}
		if now != nil {
			s.credentialOf[now.Line] = c.Key.Name
		}
	case "SubscriberProfile":
		delete(s.named, c.Key.Name)
		delete(s.core, c.Key.Name)
		spec := service.SpecOf[*api.SubscriberProfile](c.Object)
		if spec.GetAgf() != "" {
			s.named[c.Key.Name] = spec.GetAgf()
		}
		if slices.Contains(spec.GetAuthorization(), backEnd) {
			s.core[c.Key.Name] = "authorization"
		}
		if slices.Contains(spec.GetAuthentication(), backEnd) {
			s.core[c.Key.Name] = "authentication"
		}
	}
}

// NotReady implements service.ReadinessReporter.
func (s *agf) NotReady(_ string, kept *object.StoredObject) intent.NotReady {
	name := kept.Key().Name
	switch kept.Key().Kind {
	case "Agf":
		return s.agfNotReady(name)
	case "SubscriberProfile":
		s.mu.Lock()
		field := s.core[name]
		s.mu.Unlock()
		if field == "" {
			break
		}
		if agf, of, _ := s.agfOf(name); of == nil {
			return intent.NotReady{Reason: "NotConfigured", Message: field + ": core: " + missing(agf).Error()}
		}
	}
	return intent.NotReady{}
}

func (s *agf) agfNotReady(name string) intent.NotReady {
	s.mu.Lock()
	spec, pool := s.agfs[name], s.pool
	node := s.nodes[spec.GetNode()]
	s.mu.Unlock()
	if node.GetN3IwfId() != 0 {
		return intent.NotReady{Reason: "NotConfigured", Message: "node: AccessNode/" + spec.Node + " has an n3iwfId: it is the N2 interface of an N3iwf; name another one"}
	}
	if pool == nil || node == nil {
		return intent.NotReady{}
	}
	if err := pool.Serves(spec.Node, spec.Slice); err != nil {
		return intent.NotReady{Reason: "NoAmf", Message: err.Error(), External: true}
	}
	return intent.NotReady{}
}

// Synced implements service.Follower.
func (s *agf) Synced() { s.once.Do(func() { close(s.synced) }) }

// Run implements service.Service.
func (s *agf) Run(ctx context.Context) error {
	select {
	case <-s.synced:
	case <-ctx.Done():
		return nil
	}
	s.loadRecords()
	if err := s.environment.Objects.Complete(ctx); err != nil {
		return err
	}
	defer service.Provide(s.environment, s.list)()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		pool, poolGone, err := service.Find[n2.Pool](ctx, s.environment)
		if err != nil {
			return nil
		}
		manager, gone, err := service.Find[subscriber.Manager](ctx, s.environment)
		if err != nil {
			return nil
		}
		s.mu.Lock()
		before := s.pool
		s.pool, s.manager = pool, manager
		s.mu.Unlock()
		pool.Do(func() {
			if before != nil && before != pool {
				// Contexts went with the service that had them.
				for _, one := range s.lines {
					one.Lost("the service of AMFs started anew")
				}
				s.loseGateways("the service of AMFs started anew")
			}
			s.claim()
		})
		manager.Use(backEnd, s, s)
		withdraw := service.Offer[wcp.Server](s.environment, gatewayServer{s})
		for serving := true; serving; {
			select {
			case <-ticker.C:
				pool.Do(s.tick)
			case <-gone:
				serving = false
			case <-poolGone:
				serving = false
			case <-ctx.Done():
				manager.Use(backEnd, nil, nil)
				serving = false
			}
		}
		withdraw()
	}
	return nil
}

// tick ends timers that are due.
func (s *agf) tick() {
	now := time.Now()
	for one, due := s.timers.Due(now); due; one, due = s.timers.Due(now) {
		s.timers.Remove(one)
		one.Tick()
	}
	if now.After(s.swept.Add(sweepTime)) {
		s.swept = now
		for key, h := range s.holds {
			if now.After(h.until.Add(forgetTime)) {
				s.unhold(key)
			}
		}
	}
	s.remark()
	s.tickGateways(now)
	s.registered.Set(float64(len(s.lines)))
	s.pduSessions.Set(float64(len(s.members)))
}

// ---- World

// Open implements World.
func (s *agf) Open(l *Line, guti *nas.GUTI, to *n2.Reroute) (Core, error) {
	one := s.of[l]
	s.mu.Lock()
	of := s.agfs[one.agf]
	s.mu.Unlock()
	if of == nil {
		return nil, fmt.Errorf("%w: %w", n2.ErrNoAMF, missing(one.agf))
	}
	var core *n2.Context
	var err error
	if to != nil {
		core, err = s.pool.OpenIn(of.Node, of.Slice, *to, l)
	} else {
		core, err = s.pool.Open(of.Node, of.Slice, guti, l)
	}
	if err != nil {
		return nil, err
	}
	return core, nil
}

// Uplink implements World.
func (s *agf) Uplink(of *Session, packet []byte) {
	m, ok := of.events.(*member)
	if !ok {
		return
	}
	if err := s.environment.Packets.Send(m.circuit.Dataplane, service.Routed("default", of.tunnelPacket(packet))); err != nil {
		// It is sent again.
		s.environment.Log.Debug("a router solicitation is not sent", "session", m.id, "error", err)
	}
}

// Now implements World.
func (s *agf) Now() time.Time { return time.Now() }

// Random implements World.
func (s *agf) Random(n time.Duration) time.Duration { return mathrand.N(n) }

// Alarm implements World.
func (s *agf) Alarm(l *Line, at time.Time) {
	if one := s.of[l]; one != nil {
		s.timers.Set(one, at)
	}
}

// Over implements World.
func (s *agf) Over(l *Line, why error, wait time.Duration) {
	one := s.of[l]
	if one == nil {
		return
	}
	delete(s.of, l)
	delete(s.lines, one.key)
	if of := l.settings.Subscription; of != nil {
		s.sequences[of.Card] = of.Greatest()
	}
	s.timers.Remove(one)
	s.unrecord(one)
	s.unhold(one.key)
	if why != nil {
		s.hold(one.key, hold{time.Now().Add(wait), l.attempts, l.doubts, l.refusals, why, one.agf, s.objectsOf(one.key, one.agf)})
	}
}

// refused notes for operators why a line does not register. It may try again at once.
func (s *agf) refused(key, agf string, why error) {
	if s.lines[key] == nil && !time.Now().Before(s.holds[key].until) {
		h := s.holds[key]
		h.until, h.why, h.agf, h.objects = time.Now(), why, agf, s.objectsOf(key, agf)
		s.hold(key, h)
	}
}

// ---- Back end

// agfOf returns the Agf of a SubscriberProfile with its AccessNode: the one that the profile names, or else the first one by name. They are nil if there is none.
func (s *agf) agfOf(profile string) (name string, of *api.Agf, node *api.AccessNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name = s.named[profile]; name != "" {
		if node = s.nodeOf(s.agfs[name]); node == nil {
			return name, nil, nil
		}
		return name, s.agfs[name], node
	}
	for other, its := range s.agfs {
		if of != nil && other > name {
			continue
		}
		if its := s.nodeOf(its); its != nil {
			name, of, node = other, s.agfs[other], its
		}
	}
	return name, of, node
}

// nodeOf is the AccessNode of an Agf; nil: there is none, or it is an N3iwf's. s.mu is held.
func (s *agf) nodeOf(of *api.Agf) *api.AccessNode {
	if node := s.nodes[of.GetNode()]; node.GetN3IwfId() == 0 {
		return node
	}
	return nil
}

// missing is why a line has no Agf; name is of agfOf.
func missing(name string) error {
	if name == "" {
		return errors.New("there is no Agf with an AccessNode")
	}
	return fmt.Errorf("no Agf/%s with an AccessNode", name)
}

func (s *agf) settings(line string, mac [6]byte, of *api.Agf, n *api.AccessNode) (Settings, error) {
	plmn := n.Plmn
	network := plmn[3:]
	for len(network) < 3 {
		network = "0" + network
	}
	set := Settings{Line: line, Realm: "5gc.mnc" + network + ".mcc" + plmn[:3] + ".3gppnetwork.org", MAC: mac, Markings: of.Markings, Marks: qosflow.Marks(of.Markings),
		HFCNode: of.HfcNode}
	if of.Slice != nil {
		sd, _ := hex.DecodeString(of.Slice.Sd)
		set.Slice = &nas.SNSSAI{SST: uint8(of.Slice.Sst), SD: sd}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.credentialOf[line]; name != "" {
		c := s.credentials[name]
		subscription, err := subscriptionOf(c)
		if err != nil {
			return set, fmt.Errorf("CoreSubscriber/%s: %w", name, err)
		}
		subscription.Name = "CoreSubscriber/" + name
		subscription.Restore(s.sequences[subscription.Card])
		set.Subscription = subscription
	}
	return set, nil
}

func keyOfCard(c *api.CoreSubscriber) string {
	sum := sha256.Sum256([]byte(c.Imsi + " " + c.Key + " " + c.Opc))
	return hex.EncodeToString(sum[:])
}

func subscriptionOf(c *api.CoreSubscriber) (*Subscription, error) {
	digits := int(c.MncDigits)
	if digits == 0 {
		digits = 2
	}
	k, err := hex.DecodeString(c.Key)
	opc, err2 := hex.DecodeString(c.Opc)
	home, err3 := hex.DecodeString(c.HomeNetworkKey)
	switch {
	case len(c.Imsi) < 3+digits+1:
		return nil, errors.New("imsi: it is too short")
	case err != nil || len(k) != 16:
		return nil, errors.New("key: it must have 32 hexadecimal digits")
	case err2 != nil || len(opc) != 16:
		return nil, errors.New("opc: it must have 32 hexadecimal digits")
	case err3 != nil:
		return nil, errors.New("homeNetworkKey: it must be hexadecimal")
	}
	return &Subscription{PLMN: nas.PLMN(c.Imsi[:3+digits]), MSIN: c.Imsi[3+digits:], Card: keyOfCard(c), USIM: aka.USIM{Milenage: aka.NewMilenage([16]byte(k), [16]byte(opc))},
		Concealment: nas.Concealment{Routing: c.RoutingIndicator, Scheme: uint8(c.Scheme), KeyID: uint8(c.HomeNetworkKeyId), Key: home}}, nil
}

// newTEID returns a TEID that no other PDU session has. m is nil for a PDU session of a residential gateway.
func (s *agf) newTEID(m *member) uint32 {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		teid := binary.BigEndian.Uint32(b[:])
		if _, used := s.teids[teid]; teid != 0 && !used {
			s.teids[teid] = m
			return teid
		}
	}
}

// Authenticate implements subscriber.Authenticator: it answers when the core gave the line a PDU session.
func (s *agf) Authenticate(r subscriber.Request, done func(subscriber.Answer)) {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	name, of, node := s.agfOf(r.Profile)
	switch {
	case of == nil:
		if pool != nil {
			pool.Do(func() { s.refused(r.Username, name, missing(name)) })
		}
		done(subscriber.Answer{Reject: fmt.Errorf("%w: %w", subscriber.ErrUnavailable, missing(name))})
		return
	case pool == nil:
		done(subscriber.Answer{Reject: fmt.Errorf("%w: the service of AMFs does not run", subscriber.ErrUnavailable)})
		return
	}
	pool.Do(func() { s.ask(&r, name, of, node, done) })
}

func (s *agf) ask(r *subscriber.Request, name string, of *api.Agf, node *api.AccessNode, done func(subscriber.Answer)) {
	key := r.Username
	refuse := func(err error, text string) {
		done(subscriber.Answer{Reject: fmt.Errorf("%w: %w", subscriber.ErrRejected, err), Message: r.Failure(text)})
	}
	if key == "" {
		refuse(errors.New("the line has no name: set `username` in SubscriberProfile/"+r.Profile), "")
		return
	}
	before := s.holds[key]
	if before.objects != "" && before.objects != s.objectsOf(key, before.agf) {
		// The operator has changed what failed.
		s.unhold(key)
		before = hold{}
	}
	if time.Now().Before(before.until) {
		refuse(fmt.Errorf("line %s waits until %s before it registers again: %w", key, before.until.Format(time.TimeOnly), before.why), textOf(before.why))
		return
	}
	one := s.lines[key]
	if one != nil && one.state == leaving && one.refused != nil {
		refuse(one.refused, textOf(one.refused))
		return
	}
	if one == nil || one.state == leaving {
		if one != nil {
			// It registers anew while the core takes it away.
			one.finish(nil, 0)
		}
		settings, err := s.settings(key, [6]byte(r.Line.MAC), of, node)
		if err != nil {
			s.refused(key, name, err)
			refuse(err, "")
			return
		}
		one = &registration{Line: NewLine(settings, s), agf: name, key: key}
		one.attempts, one.doubts, one.refusals = before.attempts, before.doubts, before.refusals
		s.lines[key], s.of[one.Line] = one, one
	}
	m := &member{service: s, id: r.ID, of: one, mac: r.Line.MAC, circuit: r.Line.Circuit, request: r, done: done}
	s.members[r.ID] = m
	// The line is at another place: its PDU session goes with it.
	for _, session := range one.sessions {
		before, is := session.events.(*member)
		if is && before != m && before.mac == m.mac && before.circuit.Port != "" && before.circuit != m.circuit && session.told && before.session == session {
			m.takeOver(before)
			return
		}
	}
	m.teid = s.newTEID(m)
	s.mu.Lock()
	if its := s.agfs[one.agf]; its != nil {
		// It may be another one than that of the profile.
		of = its
	} else {
		one.agf = name
	}
	s.mu.Unlock()
	address, _ := netip.ParseAddr(of.CoreAddress)
	session, err := one.Add(Demand{Type: typeOf(of.PduSessionType), DNN: of.Dnn, Address: address, TEID: m.teid, Delegated: delegatedLength(of)}, m)
	m.session = session
	if err != nil {
		m.Ended(err)
	}
}

// delegatedLength is of the prefix that the core is asked for; 0: it is not.
func delegatedLength(of *api.Agf) uint8 {
	if of.PduSessionType == api.PduSessionType_IPV4 {
		return 0
	}
	return uint8(of.DelegatedPrefixLength)
}

func typeOf(t api.PduSessionType) uint8 {
	switch t {
	case api.PduSessionType_IPV6:
		return nas.PDUSessionIPv6
	case api.PduSessionType_IPV4V6:
		return nas.PDUSessionIPv4v6
	}
	return nas.PDUSessionIPv4
}

// Receive implements service.Receiver: router advertisements and error indications of UPFs.
func (s *agf) Receive(packets []service.Packet) {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	if pool == nil {
		return
	}
	pool.Do(func() {
		for _, p := range packets {
			if p.Reason == errorIndications {
				if vrf, ok := gtpu.VRFOf(s.environment.Intent, &p); ok {
					s.takeRefusal(vrf, p.Frame)
				}
				continue
			}
			teid, packet, ok := tunnelled(p.Frame)
			if !ok {
				continue
			}
			if m := s.teids[teid]; m != nil && m.session != nil {
				m.session.Advertised(packet)
			} else if p.Session != "" {
				// A configured session: its subscriber does router discovery itself.
				_ = s.environment.Packets.Send(p.Dataplane, service.ToSession(p.Session, packet))
			}
		}
	})
}

// Account implements subscriber.Accountant: the end of a subscriber session gives its PDU session back.
func (s *agf) Account(r subscriber.Record) {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	if pool == nil {
		return
	}
	pool.Do(func() {
		m := s.members[r.ID]
		switch {
		case m == nil:
		case r.Kind == subscriber.Start:
			m.began()
		case r.Kind == subscriber.Stop:
			m.leave()
			m.session.Leave()
		}
	})
}
