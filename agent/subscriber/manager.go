// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
	"unique"

	"github.com/google/btree"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// objects are where Session, Meter and QosProfile objects are written.
type objects interface {
	Put(one *object.Object, result func(service.Result))
	Delete(k object.Key, result func(service.Result))
}

// records are where sessions are kept.
type records interface {
	Put(records ...durable.Record) durable.Pending
}

type addressKey struct {
	vrf    string
	prefix netip.Prefix
}

type backEnd struct {
	authenticator Authenticator
	accountant    Accountant
	known         bool
}

// manager is the Manager. mu guards everything. Calls of others run in the callbacks' queue, or in the queue that waits for the disk.
type manager struct {
	log      *slog.Logger
	objects  objects
	records  records // nil: nothing is kept
	packer   *packer
	labelled bool // there are several data planes
	now      func() time.Time
	measured *measured

	callbacks, disk *queue

	mu       sync.Mutex
	profiles map[string]*api.SubscriberProfile
	pools    map[string]*pool
	users    map[string]*api.LocalUser // by user name
	userOf   map[string]string         // user name, by the object's name
	meters   map[string]int            // sessions that use a Meter of ours
	portals  map[string]*api.Portal
	shapers  map[shaper]int // sessions that use a QosProfile of ours
	// All QosProfiles.
	qosProfiles map[string]*api.QosProfile
	// Addresses of subscribers that are gone, until their pools are known.
	sticky map[uint64]keptAddresses
	// Of those in sticky, the oldest first; also some that are there with a later end.
	departures  []departure
	stickyLimit int
	quarantine  *quarantine

	// Holders of addresses without a session, by name.
	guests map[string]*session

	sessions  map[string]*session // by ID
	bySession map[string]*session
	taken     map[addressKey]*session
	vrfs      map[string]int // addresses that are taken
	lengths   [129]int       // and how many of IPv6 have a length
	byMAC     index[MAC]
	byUser    index[string]
	byRemote  index[string] // Remote-Ids
	byName    *btree.BTreeG[*session]
	circuits  map[lineKey]int
	leaving   map[uint64]*session
	timers    deadline.Queue[*session]
	// Sessions that were ending when the agent stopped: they wait for their last counters from the data plane.
	unfinished map[*session]bool

	backEnds    map[string]backEnd
	accesses    map[string]Access
	undelivered map[string][]delivery
	// Sessions of an earlier life, by a back end that has not got them yet.
	restored map[string][]*session
	planes   map[string]*plane
	ready    bool
	// When a session without its queues was logged last.
	unpairedAt time.Time
	// Limits the log of rejected subscribers.
	rejected service.Refusals
}

func newManager(log *slog.Logger, to objects, stored records, labelled bool) *manager {
	m := &manager{log: log, objects: to, records: stored, packer: newPacker(), labelled: labelled, now: time.Now, measured: newMeasured(),
		callbacks: newQueue(log), disk: newQueue(log),
		profiles: map[string]*api.SubscriberProfile{}, pools: map[string]*pool{}, users: map[string]*api.LocalUser{}, userOf: map[string]string{},
		meters: map[string]int{}, portals: map[string]*api.Portal{}, shapers: map[shaper]int{}, qosProfiles: map[string]*api.QosProfile{}, sticky: map[uint64]keptAddresses{}, stickyLimit: stickyLimit, quarantine: newQuarantine(), guests: map[string]*session{}, sessions: map[string]*session{}, bySession: map[string]*session{}, taken: map[addressKey]*session{}, vrfs: map[string]int{},
		byMAC: index[MAC]{}, byUser: index[string]{}, byRemote: index[string]{}, byName: btree.NewG(nameDegree, byName), circuits: map[lineKey]int{}, leaving: map[uint64]*session{}, unfinished: map[*session]bool{},
		backEnds: map[string]backEnd{}, accesses: map[string]Access{}, undelivered: map[string][]delivery{}, restored: map[string][]*session{}, planes: map[string]*plane{}}
	return m
}

func (m *manager) close() {
	m.disk.close()
	m.callbacks.close()
}

func (m *manager) later(f func()) { m.callbacks.add(f) }

// NewID returns an Acct-Session-Id that no other session has, also of an earlier start of the agent.
func NewID() string {
	b := strconv.AppendUint(nil, uint64(time.Now().UnixMilli()), 16)
	r := strconv.FormatUint(1<<40|rand.Uint64N(1<<40), 16)
	return string(b) + r[1:]
}

// intern makes sessions share the texts that many of them have.
func intern(c *Connection) {
	for _, s := range []*string{&c.Protocol, &c.Profile, &c.Service, &c.Line.Dataplane, &c.Line.Port, &c.Grant.VRF, &c.Grant.Profile, &c.Grant.ACLUp,
		&c.Grant.ACLDown, &c.Grant.QosProfile, &c.Grant.QosGroup} {
		if *s != "" {
			*s = unique.Make(*s).Value()
		}
	}
}

// Connect implements Manager.
func (m *manager) Connect(c Connection, done func(Lease, error)) {
	c.Password, c.CHAP, c.MSCHAPv2 = nil, nil, nil
	intern(&c)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connect(c, done)
}

// connect is Connect. m.mu is held.
func (m *manager) connect(of Connection, done func(Lease, error)) {
	fail := func(reason string, err error) {
		m.measured.failure(reason)
		m.later(func() { done(Lease{}, err) })
	}
	s := &session{connection: of}
	c := &s.connection
	name := m.profileName(c)
	if c.Grant.Username != "" {
		c.Username = c.Grant.Username
	}
	s.identity = identityOf(c, false)
	again := func() { m.connect(s.connection, done) }
	switch {
	case m.profiles[name] == nil:
		fail("no-profile", fmt.Errorf("%w: %s", ErrNoProfile, name))
		return
	case c.ID == "" || len(c.ID) > durable.KeyLimit || c.Access == nil:
		fail("malformed", errors.New("a session needs an ID and an Access"))
		return
	case m.moves(s):
		// The profile changed while a back end authenticated the subscriber.
		fail("moved", fmt.Errorf("%w: %s", ErrMoved, moved))
		return
	case m.sessions[c.ID] != nil:
		fail("id-in-use", fmt.Errorf("session %s exists", c.ID))
		return
	}
	if before := m.leaving[s.identity]; before != nil {
		// Its addresses are this subscriber's again when the data plane has let go of them.
		before.then = append(before.then, again)
		return
	}
	a := m.allowed(s)
	if a.redirect != "" && m.portals[a.policy.Portal] == nil {
		fail("no-portal", fmt.Errorf("%w: %s", ErrNoPortal, a.redirect))
		return
	}
	if reason, sharing, err := m.exceeds(s, &a); err != nil {
		if !m.preempt(s, &a, m.ofSubscriber(s, sharing), again) {
			fail(reason, err)
		}
		return
	}
	s.lease.Session = sessionName(c.Protocol, c.ID)
	m.warnUnpaired(s, &a)
	if reason, err := m.allocate(s, &a); err != nil {
		m.release(s)
		if !m.preempt(s, &a, holderOf(err), again) {
			fail(reason, err)
		}
		return
	}
	if reason, err := s.lacks(name); err != nil {
		m.release(s)
		fail(reason, err)
		return
	}
	c.Needs = Needs{}
	m.enter(s)
	m.put(s, &a, func(r service.Result) { m.connected(s, r, done) })
}

// lacks reports what the session needs and does not have.
func (s *session) lacks(profile string) (reason string, err error) {
	c, l := &s.connection, &s.lease
	switch {
	case c.Needs.Address && s.held() == [4]netip.Prefix{}:
		fields := "ipv6Pools or delegatedPools"
		if c.IPv4 {
			fields = "ipv4Pools"
		}
		return "no-address", fmt.Errorf("%w: SubscriberProfile %s has no %s with such addresses", ErrNoAddress, profile, fields)
	case c.Needs.Gateway && l.IPv4.IsValid() && !l.Gateway.Is4():
		of := "the grant of " + l.IPv4.String()
		if s.pool4 != nil {
			of = "AddressPool " + s.pool4.name
		}
		return "no-gateway", fmt.Errorf("%w: neither %s nor SubscriberProfile %s has a gateway", ErrNoGateway, of, profile)
	}
	return "", nil
}

// warnUnpaired logs at most once a minute that a session is without the queues of its grant.
func (m *manager) warnUnpaired(s *session, a *allowed) {
	g := &s.connection.Grant
	object := a.unpaired(g)
	if now := m.now(); object != "" && g.Core == nil && now.Sub(m.unpairedAt) >= time.Minute {
		m.unpairedAt = now
		m.log.Warn("a subscriber's session is not shaped", "session", s.lease.Session, "object", object, "error", ErrUnpairedQos)
	}
}

// enter makes the session known.
func (m *manager) enter(s *session) {
	c := &s.connection
	m.sessions[c.ID], m.bySession[s.lease.Session] = s, s
	m.byMAC.add(c.Line.MAC, s)
	m.byUser.add(c.Username, s)
	if len(c.Line.RemoteID) > 0 {
		m.byRemote.add(string(c.Line.RemoteID), s)
	}
	m.byName.ReplaceOrInsert(s)
	m.circuits[lineOf(&c.Line)]++
	m.measured.up(c.Protocol, c.Profile, 1)
}

// leave forgets the session, and gives its addresses back.
func (m *manager) leave(s *session) {
	c := &s.connection
	s.state = ended
	m.timers.Remove(s)
	delete(m.sessions, c.ID)
	delete(m.bySession, s.lease.Session)
	delete(m.unfinished, s)
	m.byMAC.remove(c.Line.MAC, s)
	m.byUser.remove(c.Username, s)
	if len(c.Line.RemoteID) > 0 {
		m.byRemote.remove(string(c.Line.RemoteID), s)
	}
	m.byName.Delete(s)
	line := lineOf(&c.Line)
	if m.circuits[line]--; m.circuits[line] == 0 {
		delete(m.circuits, line)
	}
	m.measured.up(c.Protocol, c.Profile, -1)
	m.release(s)
	m.useMeters(s, Rate{}, Rate{})()
	m.useShaper(s, shaper{})()
	if m.leaving[s.identity] == s {
		delete(m.leaving, s.identity)
	}
	then := s.then
	s.then = nil
	for _, f := range then {
		f()
	}
}

// put puts the Session object if it changed. result is called in any case.
func (m *manager) put(s *session, a *allowed, result func(service.Result)) {
	dropMeters, dropShaper := m.useMeters(s, a.rateUp, a.rateDown), m.useShaper(s, shaperOf(a))
	o := s.object(a, m.labelled, m.qosProfiles[s.shaper.base] != nil)
	digest := digestOf(o.Spec.(*api.Session))
	switch {
	case digest != s.putDigest:
		s.putDigest = digest
		s.puts++
		s.inFlight++
		number := s.puts
		if s.superseded != nil {
			s.superseded.latest = nil
		}
		m.objects.Put(o, func(r service.Result) { m.putDone(s, number, r, result) })
	case result == nil:
	case s.inFlight > 0 && (s.superseded == nil || s.superseded.latest == nil):
		// The same form is in flight.
		s.supersede().waiting = append(s.supersede().waiting, result)
	default:
		r := service.Result{Done: true}
		if s.superseded != nil {
			r = *s.superseded.latest
		}
		m.later(func() { result(r) })
	}
	dropMeters()
	dropShaper()
}

// superseded is the state of a session while several of its Puts are in flight. The data plane does not carry out a Put that a later one
// supersedes. This is no failure: the later Put contains the change of the earlier one. The earlier one gets the result of the latest.
type superseded struct {
	// Result of the latest Put; nil: not known yet.
	latest  *service.Result
	waiting []func(service.Result)
}

func (s *session) supersede() *superseded {
	if s.superseded == nil {
		s.superseded = &superseded{}
	}
	return s.superseded
}

// putDone takes the result of a Put.
func (m *manager) putDone(s *session, number uint32, r service.Result, result func(service.Result)) {
	if result == nil {
		result = func(service.Result) {}
	}
	m.mu.Lock()
	s.inFlight--
	switch {
	case s.inFlight == 0 && s.superseded == nil:
		m.mu.Unlock()
		result(r)
		return
	case number == s.puts:
		latest := r
		s.supersede().latest = &latest
	case r.Done && r.Err == nil:
	case s.supersede().latest != nil:
		r = *s.superseded.latest
	default:
		s.superseded.waiting = append(s.superseded.waiting, result)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	result(r)
	var waiting []func(service.Result)
	m.mu.Lock()
	if all := s.superseded; all != nil {
		if number == s.puts {
			// Otherwise result put the session back to its earlier form, and the others wait for the result of that Put.
			waiting, all.waiting = all.waiting, nil
		}
		if s.inFlight == 0 && len(all.waiting) == 0 {
			s.superseded = nil
		}
	}
	m.mu.Unlock()
	// The latest first: if all fail, the first change restores the oldest form.
	for _, f := range slices.Backward(waiting) {
		f(r)
	}
}

// useMeters makes the Meters of rates, and returns the function that releases the previous ones: after the session
// does not name them any more.
func (m *manager) useMeters(s *session, up, down Rate) (drop func()) {
	var before []string
	for _, of := range []struct {
		name *string
		rate Rate
	}{{&s.meterUp, up}, {&s.meterDown, down}} {
		name, spec := meterOf(of.rate)
		if name == *of.name {
			continue
		}
		if *of.name != "" {
			before = append(before, *of.name)
		}
		*of.name = unique.Make(name).Value()
		if name == "" {
			continue
		}
		if m.meters[name]++; m.meters[name] == 1 {
			m.objects.Put(&object.Object{Kind: "Meter", Name: name, Spec: spec}, func(r service.Result) {
				if r.Err != nil {
					m.log.Error("a rate of subscribers has no meter", "error", r.Err)
				}
			})
		}
	}
	return func() {
		for _, name := range before {
			if m.meters[name]--; m.meters[name] == 0 {
				delete(m.meters, name)
				m.objects.Delete(object.Key{Kind: "Meter", Name: name}, nil)
			}
		}
	}
}

// connected goes on when the data plane has the session.
func (m *manager) connected(s *session, r service.Result, done func(Lease, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	undo := func(reason string, err error) {
		m.measured.failure(reason)
		m.objects.Delete(object.Key{Kind: "Session", Name: s.lease.Session}, func(service.Result) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.leave(s)
			m.later(func() { done(Lease{}, err) })
		})
	}
	cancel := s.state == cancelled
	if cancel || r.Err != nil || !r.Done {
		s.state = ending
		m.leaving[s.identity] = s
	}
	switch {
	case cancel:
		undo("ended-early", ErrNoSession)
		return
	case r.Err != nil:
		undo("session-refused", r.Err)
		return
	case !r.Done:
		undo("not-forwarding", fmt.Errorf("%w: %s %s", ErrNotForwarding, s.lease.Session, r.Waits))
		return
	}
	s.since = m.now()
	s.active = s.since
	s.boot = m.bootOf(s)
	if p := m.profiles[m.profileName(&s.connection)]; p != nil {
		s.accounting = p.Accounting
	}
	pending := m.keep(s)
	if err := pending.Refused(); err != nil {
		// The log has no room for it. It has no records either: those of subscribers who try again and again would fill the memory.
		m.log.Error("a subscriber is not kept on the disk, and gets no session", "session", s.lease.Session, "error", err)
		s.state = ending
		m.leaving[s.identity] = s
		undo("disk", err)
		return
	}
	s.state = up
	m.measured.setUp(s.connection.Protocol)
	s.interim = interimAfter(s.since, m.times(s))
	m.schedule(s)
	// Its record is in the log: from now on, the end of the session is accounted for in any case.
	m.account(s, Start, nil)
	m.afterDisk(pending, func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case err != nil:
			m.measured.failure("disk")
			m.log.Error("a subscriber is not kept on the disk, and gets no session", "session", s.lease.Session, "error", err)
			m.finish(s, NASError)
		case s.state != up:
			err = ErrNoSession
		}
		lease := s.lease
		m.later(func() {
			if err != nil {
				lease = Lease{}
			}
			done(lease, err)
		})
	})
}

func (m *manager) keep(s *session) durable.Pending {
	if m.records == nil {
		return durable.Pending{}
	}
	return m.records.Put(durable.Record{Key: s.connection.ID, Value: m.packer.pack(s)})
}

// afterDisk calls f when the disk has the pending records.
func (m *manager) afterDisk(pending durable.Pending, f func(error)) {
	m.disk.add(func() { f(pending.Wait()) })
}

// pendings are records that were put one after the other: the last one, and why the log does not take one of them.
type pendings struct {
	last    durable.Pending
	refused error
}

// add adds a record; the zero Pending is none.
func (r *pendings) add(kept durable.Pending) {
	if err := kept.Refused(); err != nil {
		r.refused = err
	} else if kept != (durable.Pending{}) {
		r.last = kept
	}
}

// afterRecords calls f once the disk has all of them, or with the reason why not.
func (m *manager) afterRecords(r pendings, f func(error)) {
	m.afterDisk(r.last, func(disk error) { f(errors.Join(r.refused, disk)) })
}

// Lease implements Manager.
func (m *manager) Lease(id string) (Lease, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil || s.state != up {
		return Lease{}, false
	}
	a := m.allowed(s)
	m.fill(s, &a)
	return s.lease, true
}

// Keep implements Manager.
func (m *manager) Keep(id string, state []byte, done func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil || s.state != up {
		m.later(func() { done(ErrNoSession) })
		return
	}
	s.connection.State = state
	m.afterDisk(m.keep(s), func(err error) { m.later(func() { done(err) }) })
}

// Extend implements Manager.
func (m *manager) Extend(id string, change func(*Connection), done func(Lease, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.extend(id, change, done)
}

// extend is Extend. m.mu is held.
func (m *manager) extend(id string, change func(*Connection), done func(Lease, error)) {
	s := m.sessions[id]
	if s == nil || s.state != up {
		m.later(func() { done(Lease{}, ErrNoSession) })
		return
	}
	changed := s.connection
	change(&changed)
	// Its keys stay.
	changed.ID, changed.Protocol, changed.Profile, changed.Line.Circuit, changed.Line.MAC = id, s.connection.Protocol, s.connection.Profile, s.connection.Line.Circuit, s.connection.Line.MAC
	changed.Line.CircuitID, changed.Line.RemoteID = s.connection.Line.CircuitID, s.connection.Line.RemoteID
	changed.Username, changed.Password, changed.CHAP, changed.MSCHAPv2 = s.connection.Username, nil, nil, nil
	accounted := s.held()
	declined := m.decline(s, changed.Declined)
	changed.Declined = Declined{}
	before, had := s.connection, s.held()
	s.connection = changed
	a := m.allowed(s)
	reason, failure := m.allocate(s, &a)
	if failure != nil {
		// It keeps its addresses.
		s.connection = before
		if m.preempt(s, &a, holderOf(failure), func() { m.extend(id, change, done) }) {
			return
		}
		m.measured.failure(reason)
		if !declined {
			m.later(func() { done(Lease{}, failure) })
			return
		}
		// The data plane still has to lose the address that the subscriber declined.
		s.connection.State = changed.State
	}
	m.giveUp(s)
	got := s.held()
	m.apply(s, func(r service.Result) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.state != up {
			m.later(func() { done(Lease{}, ErrNoSession) })
			return
		}
		err := r.Err
		if err == nil && !r.Done {
			err = fmt.Errorf("%w: %s %s", ErrNotForwarding, s.lease.Session, r.Waits)
		}
		if err != nil {
			m.measured.failure("extension-refused")
			m.withdraw(s, &before, &changed, had, got)
		}
		m.readdressed(s, accounted)
		lease := s.lease
		m.afterDisk(m.keep(s), func(disk error) {
			err := errors.Join(failure, err, disk)
			m.later(func() { done(lease, err) })
		})
	})
	m.schedule(s)
}

// withdraw takes back the addresses that an extension added and the data plane refuses: the subscriber shall not use them. The session has its
// earlier form again. Addresses that the extension gave up stay so. m.mu is held.
func (m *manager) withdraw(s *session, before, changed *Connection, had, got [4]netip.Prefix) {
	c := &s.connection
	any := changed.AssignedElsewhere
	for i, h := range s.holdings() {
		if p := h.get(); p.IsValid() && p == got[i] && p != had[i] {
			m.letGo(s, h)
			any = true
		}
	}
	if !any {
		return
	}
	c.IPv4, c.IPv6 = c.IPv4 && before.IPv4, c.IPv6 && before.IPv6
	if bytes.Equal(c.State, changed.State) {
		c.State = before.State
	}
	if g, was := &c.Grant, &before.Grant; changed.AssignedElsewhere {
		c.IPv4, c.IPv6 = before.IPv4, before.IPv6
		g.VRF, g.IPv4, g.IPv6, g.IPv6Prefix, g.Delegated, g.Routes = was.VRF, was.IPv4, was.IPv6, was.IPv6Prefix, was.Delegated, was.Routes
		a := m.allowed(s)
		if _, err := m.allocate(s, &a); err != nil {
			m.log.Warn("a subscriber loses an address: a change of it failed, and another one has it", "session", s.lease.Session, "error", err)
		}
	}
	m.apply(s, nil)
}

// apply puts the present form of the session.
func (m *manager) apply(s *session, result func(service.Result)) {
	a := m.allowed(s)
	m.fill(s, &a)
	if result == nil {
		result = func(r service.Result) {
			if r.Err != nil {
				m.log.Warn("the data plane refuses a change of a subscriber's session", "session", s.lease.Session, "error", r.Err)
			}
		}
	}
	m.put(s, &a, result)
}

// Disconnect implements Manager.
func (m *manager) Disconnect(id string, cause Cause) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil {
		s.declined = s.declined || cause == UserError && (s.state == connecting || s.state == up)
		m.finish(s, cause)
	}
}

// finish ends a session. It returns the record of its end. m.mu is held.
func (m *manager) finish(s *session, cause Cause) durable.Pending {
	switch s.state {
	case connecting:
		s.state, s.cause = cancelled, cause
		return durable.Pending{}
	case cancelled, ending, ended:
		return durable.Pending{}
	}
	s.state, s.cause = ending, cause
	if s.end.IsZero() {
		s.end = m.now()
	}
	delete(m.unfinished, s)
	m.timers.Remove(s)
	m.leaving[s.identity] = s
	kept := m.keep(s)
	m.objects.Delete(object.Key{Kind: "Session", Name: s.lease.Session}, func(r service.Result) { m.disconnected(s, r) })
	return kept
}

// disconnected accounts for a session that the data plane does not have any more.
func (m *manager) disconnected(s *session, r service.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Err != nil {
		m.log.Warn("the data plane does not delete a subscriber's session", "session", s.lease.Session, "error", r.Err)
	}
	if len(r.Final) > 0 {
		var last api.SessionCounters
		if err := proto.Unmarshal(r.Final, &last); err == nil {
			s.count(trafficOf(&last), 0)
		}
	}
	m.measured.ended(s.connection.Protocol, s.cause)
	t := s.total()
	m.log.Info("a subscriber's session ends", "session", s.lease.Session, "username", s.connection.Username, "cause", s.cause.String(),
		"duration", s.end.Sub(s.since).Round(time.Second).String(), "up", t.upBytes, "down", t.downBytes)
	id := s.connection.ID
	m.account(s, Stop, func() {
		if m.records != nil {
			m.records.Put(durable.Record{Key: id})
		}
	})
	m.leave(s)
}

// Attach implements Manager.
func (m *manager) Attach(protocol string, a Access) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accesses[protocol] = a
	if m.ready {
		m.restore(protocol, a)
	}
}

// restore gives an access protocol its sessions.
func (m *manager) restore(protocol string, a Access) {
	var all []*session
	for _, s := range m.sessions {
		if s.connection.Protocol == protocol && s.state == up && s.cause == 0 {
			all = append(all, s)
		}
	}
	m.later(func() {
		for _, s := range all {
			m.mu.Lock()
			c, l := s.connection, s.lease
			m.mu.Unlock()
			m.callbacks.guarded(func() { a.Restore(c, l) })
		}
	})
	m.later(a.Restored)
	m.later(func() { m.moveRestored(all) })
}

// Terminate implements Manager.
func (m *manager) Terminate(which []Match, cause Cause, text string, done func(int, error)) {
	if done == nil {
		done = func(int, error) {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.selected(which, func(s *session) bool { return s.state == up || s.state == connecting })
	if err != nil {
		m.later(func() { done(0, err) })
		return
	}
	var kept pendings
	for _, s := range all {
		kept.add(m.terminate(s, cause, text))
	}
	m.answerEnds(len(all), kept, done)
}

// terminate is finish, and tells the access protocol.
func (m *manager) terminate(s *session, cause Cause, text string) durable.Pending {
	kept := m.finish(s, cause)
	if a := m.accesses[s.connection.Protocol]; a != nil {
		id := s.connection.ID
		m.later(func() { a.Terminate(id, cause, text) })
	}
	return kept
}

// answerEnds calls done once the disk has the ends: a caller that has the answer does not ask again after a restart of the agent. Ends of an earlier
// call, whose sessions this one did not find any more, are on the disk by then, too.
func (m *manager) answerEnds(count int, kept pendings, done func(int, error)) {
	m.afterRecords(kept, func(disk error) { m.later(func() { done(count, disk) }) })
}
