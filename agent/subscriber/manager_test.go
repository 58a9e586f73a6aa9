// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/durable/durabletest"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// fakePlane is a data plane that stores its objects.
type fakePlane struct {
	mu       sync.Mutex
	has      map[object.Key]*object.Object
	counters map[string]*api.SessionCounters
	// The result of a Put; nil: done.
	refuse func(*object.Object) *service.Result
	puts   int
	// Deletions wait for it.
	hold chan struct{}
	// Results of Puts wait for it.
	holdPut chan struct{}
}

func (f *fakePlane) Put(o *object.Object, result func(service.Result)) {
	f.mu.Lock()
	f.puts++
	r := service.Result{Done: true}
	if f.refuse != nil {
		if no := f.refuse(o); no != nil {
			r = *no
		}
	}
	if r.Err == nil {
		f.has[o.Key()] = o
	}
	hold := f.holdPut
	f.mu.Unlock()
	if result != nil {
		go func() {
			if hold != nil {
				<-hold
			}
			result(r)
		}()
	}
}

func (f *fakePlane) Delete(k object.Key, result func(service.Result)) {
	f.mu.Lock()
	r := service.Result{Done: true}
	if f.has[k] != nil && k.Kind == "Session" {
		c := f.counters[k.Name]
		if c == nil {
			c = &api.SessionCounters{}
		}
		r.Final, _ = proto.Marshal(c)
	}
	delete(f.has, k)
	hold := f.hold
	f.mu.Unlock()
	if result != nil {
		go func() {
			if hold != nil {
				<-hold
			}
			result(r)
		}()
	}
}

func (f *fakePlane) count(session string, c *api.SessionCounters) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counters[session] = c
}

// refuses makes the data plane answer Puts so.
func (f *fakePlane) refuses(how func(*object.Object) *service.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = how
}

// holdsPuts makes the results of Puts wait from now on; nil: they do not wait.
func (f *fakePlane) holdsPuts(until chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holdPut = until
}

// holds makes deletions wait.
func (f *fakePlane) holds(until chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = until
}

func (f *fakePlane) session(name string) *api.Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.has[object.Key{Kind: "Session", Name: name}]; o != nil {
		return o.Spec.(*api.Session)
	}
	return nil
}

func (f *fakePlane) names(kind string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for k := range f.has {
		if k.Kind == kind {
			all = append(all, k.Name)
		}
	}
	slices.Sort(all)
	return all
}

// fakeBackEnd accepts every subscriber and stores records.
type fakeBackEnd struct {
	answer  Answer
	records chan Record
}

func (b *fakeBackEnd) Authenticate(_ Request, done func(Answer)) { go done(b.answer) }
func (b *fakeBackEnd) Account(r Record)                          { b.records <- r }

// fakeAccess records the Manager's calls.
type fakeAccess struct{ said chan string }

func (a *fakeAccess) Restore(c Connection, l Lease) {
	a.said <- fmt.Sprintf("restore %s %s %s", c.ID, l.IPv4, c.State)
}
func (a *fakeAccess) Restored() { a.said <- "restored" }
func (a *fakeAccess) Terminate(id string, cause Cause, text string) {
	a.said <- "terminate " + id + " " + cause.String()
}

// world is a manager with all that is around it.
type world struct {
	*manager
	t     *testing.T
	plane *fakePlane
	log   *durable.Log
	// Where the log is.
	directory string
	aaa       *fakeBackEnd
	ppp       *fakeAccess
	at        time.Time
}

var began = time.Unix(1_800_000_000, 0)

func profile() *api.SubscriberProfile {
	return &api.SubscriberProfile{Authentication: []string{"radius", "local"}, Accounting: []string{"radius"}, Ipv4Pools: []string{"home"},
		Ipv6Pools: []string{"links", "hosts"}, DelegatedPools: []string{"homes"}, Policy: &api.Policy{AclUp: "no-mail", Mss: 1400}}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

func newWorldIn(t *testing.T, directory string) *world {
	t.Helper()
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	w := &world{t: t, log: log, directory: directory, at: began, plane: &fakePlane{has: map[object.Key]*object.Object{}, counters: map[string]*api.SessionCounters{}},
		aaa: &fakeBackEnd{records: make(chan Record, 1000)}, ppp: &fakeAccess{make(chan string, 1000)}}
	w.start()
	return w
}

// setClock sets the manager's time.
func (w *world) setClock(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

// stop disconnects a subscriber and returns the record of its end after its session has left the manager and the log.
func (w *world) stop(id string) Record {
	w.t.Helper()
	w.Disconnect(id, UserRequest)
	r := get(w.t, w.aaa.records)
	for r.Kind != Stop {
		r = get(w.t, w.aaa.records)
	}
	// The back end gets the record before the log does, and calls are made one after the other.
	done := make(chan bool, 1)
	w.mu.Lock()
	w.later(func() { done <- true })
	w.mu.Unlock()
	get(w.t, done)
	return r
}

// start is the agent's start: with the records of the log, and the objects of the data plane.
func (w *world) start() { w.restart(w.aaa) }

// restart is start with another back end for "radius"; nil: there is none yet.
func (w *world) restart(b interface {
	Authenticator
	Accountant
}) {
	table, err := w.log.Table("subscriber")
	if err != nil {
		w.t.Fatal(err)
	}
	w.manager = newManager(slog.New(slog.DiscardHandler), w.plane, table, false)
	w.manager.now = func() time.Time { return w.at }
	w.loadRecords(table.All(), func(r durable.Record, err error) { w.t.Fatal(r.Key, err) })
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.0/29"}, Gateway: "100.64.0.1", Dns: []string{"192.0.2.53"}, Next: "more"})
	w.setPool("more", &api.AddressPool{Ranges: []string{"100.65.0.1-100.65.0.2"}})
	w.setPool("links", &api.AddressPool{Ranges: []string{"2001:db8:1::/48"}, PrefixLength: 64})
	w.setPool("hosts", &api.AddressPool{Ranges: []string{"2001:db8:2::/64"}})
	w.setPool("homes", &api.AddressPool{Ranges: []string{"2001:db8:6400::/40"}, PrefixLength: 56})
	w.setProfile("home", profile())
	w.setUser("alice", &api.LocalUser{Username: "alice", Password: "secret"})
	w.begin()
	if b != nil {
		w.Use("radius", b, b)
	}
	w.t.Cleanup(w.manager.close)
}

// sessionsIn counts the records of sessions.
func sessionsIn(table *durable.Table) (n int) {
	for _, r := range table.All() {
		if !strings.HasPrefix(r.Key, stickyPrefix) {
			n++
		}
	}
	return n
}

func (w *world) connection(id, user string, mac byte) Connection {
	return Connection{Request: Request{Protocol: "pppoe", Profile: "home", ID: id, Credentials: Credentials{Username: user, Password: []byte("secret")},
		Line: Line{Circuit: Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7}, MAC: MAC{2, 0, 0, 0, 0, mac}}},
		IPv4: true, Access: &api.Access{Port: "access", OuterVlan: 100, InnerVlan: 7, PppoeSessionId: uint32(mac)}, State: []byte("of " + id)}
}

type connected struct {
	Lease
	err error
}

func (w *world) connect(c Connection) connected {
	w.t.Helper()
	done := make(chan connected, 1)
	w.Connect(c, func(l Lease, err error) { done <- connected{l, err} })
	return get(w.t, done)
}

func get[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatal("never")
	}
	return v
}

func (w *world) matching(match Match) (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.find(match) {
		ids = append(ids, s.id())
	}
	return ids
}

// left counts the objects and addresses of subscribers in the manager and the data plane.
func (w *world) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	return len(w.sessions) + len(w.taken) + len(w.byMAC) + len(w.byUser) + len(w.byRemote) + w.byName.Len() + len(w.circuits) + len(w.leaving) + w.timers.Len() + len(w.bySession) + len(w.vrfs) + len(w.plane.has)
}

func (w *world) nothing() {
	w.t.Helper()
	select {
	case r := <-w.aaa.records:
		w.t.Errorf("another record: %+v", r)
	default:
	}
}

func TestASubscriberComesUpAndEndsOnce(t *testing.T) {
	w := newWorld(t)
	got := w.connect(w.connection("1", "alice", 1))
	if got.err != nil || got.IPv4.String() != "100.64.0.2" || got.Gateway.String() != "100.64.0.1" || got.DNS[0].String() != "192.0.2.53" {
		t.Fatalf("%+v", got)
	}
	s := w.plane.session(got.Session)
	if s == nil || s.Addresses[0] != "100.64.0.2/32" || s.Policy.AclUp != "no-mail" || s.Policy.Mss != 1400 || s.Access.PppoeSessionId != 1 {
		t.Errorf("%v", s)
	}
	if r := get(t, w.aaa.records); r.Kind != Start || r.ID != "1" || r.Lease.IPv4 != got.IPv4 || r.Password != nil {
		t.Errorf("%+v", r)
	}
	w.plane.count(got.Session, &api.SessionCounters{UpPackets: 1, UpBytes: 2, DownPackets: 3, DownBytes: 4})
	w.Disconnect("1", UserRequest)
	w.Disconnect("1", LostCarrier)
	if r := get(t, w.aaa.records); r.Kind != Stop || r.Cause != UserRequest || r.UpPackets != 1 || r.UpBytes != 2 || r.DownPackets != 3 || r.DownBytes != 4 {
		t.Errorf("%+v", r)
	}
	w.manager.callbacks.close()
	w.nothing()
	table, _ := w.log.Table("subscriber")
	if n := w.left(); n != 0 || sessionsIn(table) != 0 {
		t.Errorf("%d things are left", n)
	}
}

func TestWhoComesBackGetsTheSameAddress(t *testing.T) {
	w := newWorld(t)
	first := w.connect(w.connection("1", "alice", 1))
	// The new session waits for the end of the old one.
	ends := make(chan struct{})
	w.plane.holds(ends)
	w.Disconnect("1", LostCarrier)
	done := make(chan connected, 1)
	w.Connect(w.connection("2", "alice", 1), func(l Lease, err error) { done <- connected{l, err} })
	if got := w.connect(w.connection("3", "bob", 3)); got.err != nil || got.IPv4 == first.IPv4 {
		t.Errorf("%+v", got)
	}
	close(ends)
	if got := get(t, done); got.err != nil || got.IPv4 != first.IPv4 {
		t.Errorf("%+v, not %s", got, first.IPv4)
	}
}

func TestAPoolThatIsExhaustedIsOneEvent(t *testing.T) {
	w := newWorld(t)
	events := func() (all []string) {
		for _, e := range w.poolEvents(w.now()) {
			all = append(all, e.Name+" "+e.State)
		}
		slices.Sort(all)
		return all
	}
	want := func(want ...string) {
		t.Helper()
		if got := events(); !slices.Equal(got, want) {
			t.Errorf("%v, and not %v", got, want)
		}
	}
	for i := range byte(7) {
		if got := w.connect(w.connection(fmt.Sprint(i), fmt.Sprint(i), i)); got.err != nil {
			t.Fatal(i, got.err)
		}
	}
	want("home exhausted")
	for range 3 {
		if got := w.connect(w.connection("x", "x", 99)); !errors.Is(got.err, ErrExhausted) {
			t.Errorf("%v", got.err)
		}
	}
	want("more exhausted")
	w.setClock(w.now().Add(poolQuiet))
	want()
	w.stop("0")
	want("home available")
	want()
}

func TestAnAddressThatIsNotThereHasAnErrorOfItsOwn(t *testing.T) {
	w := newWorld(t)
	for i := range byte(7) { // five of the pool, and two of the next
		if got := w.connect(w.connection(fmt.Sprint(i), fmt.Sprint(i), i)); got.err != nil {
			t.Fatal(i, got.err)
		}
	}
	if got := w.connect(w.connection("x", "x", 99)); !errors.Is(got.err, ErrExhausted) || !strings.Contains(got.err.Error(), "more") {
		t.Errorf("%v", got.err)
	}
	c := w.connection("y", "y", 100)
	c.Grant.IPv4 = netip.MustParseAddr("100.64.0.2")
	if got := w.connect(c); !errors.Is(got.err, ErrAddressInUse) {
		t.Errorf("%v", got.err)
	}
	c = w.connection("z", "z", 101)
	c.Grant.VRF = "other"
	if got := w.connect(c); !errors.Is(got.err, ErrExhausted) || !strings.Contains(got.err.Error(), "VRF") {
		t.Errorf("%v", got.err)
	}
	if n := len(w.plane.names("Session")); n != 7 {
		t.Errorf("%d sessions", n)
	}
	uses, err := queryServer{manager: w.manager}.uses(t.Context(), &api.AddressPoolUsesQuery{})
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, p := range uses.GetPools() {
		switch p.GetPool() {
		case "home":
			if p.GetSize() != 5 || p.GetUsed() != 5 || p.GetLeft() != 0 || p.GetExhausted() == 0 || p.GetVrf() != "default" {
				t.Errorf("%v", p)
			}
			known++
		case "more":
			if p.GetUsed() != 2 || p.GetLeft() != p.GetSize()-2 {
				t.Errorf("%v", p)
			}
			known++
		}
	}
	if known != 2 {
		t.Errorf("%v", uses)
	}
	if one, err := (queryServer{manager: w.manager}).uses(t.Context(), &api.AddressPoolUsesQuery{Pool: "more"}); err != nil || len(one.GetPools()) != 1 || one.Pools[0].GetPool() != "more" {
		t.Errorf("%v, %v", one, err)
	}
}

func TestWhatTheDataPlaneRefusesLeavesNothing(t *testing.T) {
	w := newWorld(t)
	for _, r := range []service.Result{{Err: errors.New("full")}, {}} {
		w.plane.refuses(func(*object.Object) *service.Result { return &r })
		if got := w.connect(w.connection("1", "alice", 1)); got.err == nil {
			t.Errorf("%+v: %+v", r, got)
		}
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d things are left", n)
	}
	w.nothing()
	w.plane.refuses(nil)
	if got := w.connect(w.connection("1", "alice", 1)); got.err != nil {
		t.Error(got.err)
	}
}

func TestASessionThatEndsWhileItIsConnectedIsNotAccountedFor(t *testing.T) {
	w := newWorld(t)
	w.manager.mu.Lock() // so that the data plane's answer waits
	done := make(chan connected, 1)
	w.manager.connect(w.connection("1", "alice", 1), func(l Lease, err error) { done <- connected{l, err} })
	w.manager.finish(w.sessions["1"], UserRequest)
	w.manager.mu.Unlock()
	if got := get(t, done); !errors.Is(got.err, ErrNoSession) {
		t.Errorf("%+v", got)
	}
	w.nothing()
	if n := w.left(); n != 0 {
		t.Errorf("%d things are left", n)
	}
}

func TestASessionThatNeedsAnAddressOrAGatewayIsRefusedWithout(t *testing.T) {
	for _, of := range []struct {
		profile *api.SubscriberProfile
		want    error
		text    string
	}{
		{&api.SubscriberProfile{Authentication: []string{"aaa"}, Accounting: []string{"aaa"}}, ErrNoAddress, "no ipv4Pools"},
		{&api.SubscriberProfile{Authentication: []string{"aaa"}, Accounting: []string{"aaa"}, Ipv4Pools: []string{"links"}}, ErrNoAddress, "no ipv4Pools"},
		{&api.SubscriberProfile{Authentication: []string{"aaa"}, Accounting: []string{"aaa"}, Ipv4Pools: []string{"more"}}, ErrNoGateway, "AddressPool more"},
		{&api.SubscriberProfile{Authentication: []string{"aaa"}, Accounting: []string{"aaa"}, Ipv4Pools: []string{"more"}, Gateway: "100.65.0.9"}, nil, ""},
	} {
		w := newWorld(t)
		w.setProfile("home", of.profile)
		c := w.connection("1", "alice", 1)
		c.Needs = Needs{Address: true, Gateway: true}
		got := w.connect(c)
		if !errors.Is(got.err, of.want) || of.want != nil && (!strings.Contains(got.err.Error(), of.text) || len(w.aaa.records)+len(w.sessions)+len(w.taken) != 0) {
			t.Errorf("%v, not %v", got.err, of.want)
		}
	}
}

func TestTheStateOfAnAccessProtocolIsKeptWhateverPoolsHave(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.IPv6 = true
	got := w.connect(c)
	puts := len(w.plane.session(got.Session).Addresses)
	// The session lacks a prefix from now on, and there is none; the pool has another name server.
	w.mu.Lock()
	s := w.sessions["1"]
	w.letGo(s, s.holdings()[3])
	w.mu.Unlock()
	w.setPool("homes", nil)
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.2-100.64.0.9"}, Gateway: "100.64.0.1", Dns: []string{"192.0.2.99"}})
	done := make(chan error, 1)
	w.Keep("1", []byte("renewed"), func(err error) { done <- err })
	if err := get(t, done); err != nil {
		t.Fatal(err)
	}
	lease, up := w.Lease("1")
	if string(w.sessions["1"].connection.State) != "renewed" || !up || !slices.Contains(lease.DNS, netip.MustParseAddr("192.0.2.99")) || lease.IPv4 != got.IPv4 ||
		len(w.plane.session(got.Session).Addresses) != puts {
		t.Errorf("%+v", lease)
	}
	w.Keep("2", nil, func(err error) { done <- err })
	if err := get(t, done); !errors.Is(err, ErrNoSession) {
		t.Error(err)
	}
	if _, up := w.Lease("2"); up {
		t.Error("a lease without a subscriber")
	}
}

func TestFamiliesThatComeLaterExtendTheSession(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	done := make(chan connected, 1)
	w.Extend("1", func(c *Connection) { c.IPv6, c.State = true, []byte("both") }, func(l Lease, err error) { done <- connected{l, err} })
	got := get(t, done)
	if got.err != nil || got.IPv4.String() != "100.64.0.2" || got.IPv6Prefix.String() != "2001:db8:1::/64" || got.IPv6.String() != "2001:db8:2::1" ||
		got.Delegated.String() != "2001:db8:6400::/56" {
		t.Fatalf("%+v", got)
	}
	want := []string{"100.64.0.2/32", "2001:db8:2::1/128", "2001:db8:1::/64", "2001:db8:6400::/56"}
	if s := w.plane.session(got.Session); !slices.Equal(s.Addresses, want) {
		t.Errorf("%v", s.Addresses)
	}
	w.Extend("1", func(c *Connection) { c.IPv4 = false }, func(l Lease, err error) { done <- connected{l, err} })
	if got := get(t, done); got.err != nil || got.IPv4.IsValid() || !got.Delegated.IsValid() || len(w.plane.session(got.Session).Addresses) != 3 {
		t.Errorf("%+v", got)
	}
	w.Extend("2", func(*Connection) {}, func(l Lease, err error) { done <- connected{l, err} })
	if got := get(t, done); !errors.Is(got.err, ErrNoSession) {
		t.Errorf("%+v", got)
	}
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.9"}, Gateway: "100.64.0.9"})
	w.Extend("1", func(c *Connection) { c.IPv4 = true }, func(l Lease, err error) { done <- connected{l, err} })
	if got := get(t, done); !errors.Is(got.err, ErrExhausted) || len(w.plane.names("Session")) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAnExtensionThatTheDataPlaneRefusesIsTakenBack(t *testing.T) {
	for _, result := range []service.Result{{Err: errors.New("full")}, {}} {
		w := newWorld(t)
		before := w.connect(w.connection("1", "alice", 1))
		extend := func(change func(*Connection)) connected {
			done := make(chan connected, 1)
			w.Extend("1", change, func(l Lease, err error) { done <- connected{l, err} })
			return get(t, done)
		}
		w.plane.refuses(func(o *object.Object) *service.Result {
			if s, is := o.Spec.(*api.Session); is && len(s.Addresses) > 1 {
				return &result
			}
			return nil
		})
		got := extend(func(c *Connection) { c.IPv6, c.State = true, []byte("both") })
		if got.err == nil || got.Session != before.Session || got.IPv4 != before.IPv4 || got.IPv6.IsValid() || got.IPv6Prefix.IsValid() || got.Delegated.IsValid() {
			t.Errorf("%+v: %+v", result, got)
		}
		w.mu.Lock()
		s := w.sessions["1"]
		if s.connection.IPv6 || string(s.connection.State) != "of 1" || len(w.taken) != 1 {
			t.Errorf("%+v: %+v, %d addresses are taken", result, s.connection, len(w.taken))
		}
		w.mu.Unlock()
		if has := w.plane.session(got.Session).Addresses; !slices.Equal(has, []string{"100.64.0.2/32"}) {
			t.Errorf("%+v: %v", result, has)
		}
		// A change that is done stays, and the next extension is a new one.
		if got = extend(func(c *Connection) { c.State = []byte("renewed") }); got.err != nil || got.IPv6.IsValid() {
			t.Errorf("%+v: %+v", result, got)
		}
		w.plane.refuses(nil)
		if got = extend(func(c *Connection) { c.IPv6 = true }); got.err != nil || !got.IPv6.IsValid() || len(w.plane.session(got.Session).Addresses) != 4 {
			t.Errorf("%+v: %+v", result, got)
		}
	}
}

func TestAddressesOfADHCPServerThatTheDataPlaneRefusesLeaveTheEarlierOnes(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.AssignedElsewhere, c.Grant.IPv4 = true, netip.MustParseAddr("192.0.2.7")
	before := w.connect(c)
	if before.err != nil {
		t.Fatal(before.err)
	}
	w.plane.refuses(func(o *object.Object) *service.Result {
		if s, is := o.Spec.(*api.Session); is && !slices.Contains(s.Addresses, "192.0.2.7/32") {
			return &service.Result{Err: errors.New("full")}
		}
		return nil
	})
	done := make(chan connected, 1)
	w.Extend("1", func(c *Connection) { c.Grant.IPv4 = netip.MustParseAddr("192.0.2.8") }, func(l Lease, err error) { done <- connected{l, err} })
	if got := get(t, done); got.err == nil || got.IPv4 != before.IPv4 || !slices.Equal(w.plane.session(got.Session).Addresses, []string{"192.0.2.7/32"}) {
		t.Errorf("%+v", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.taken) != 1 {
		t.Errorf("%v", w.taken)
	}
}

func TestSessionsOfACircuitAreThoseOfALineOfATrustedAccessNode(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.SessionsPerCircuit = 1
	w.setProfile("home", p)
	of := func(id string, mac byte, line string) connected {
		c := w.connection(id, "user"+id, mac)
		c.Line.CircuitID = []byte(line)
		return w.connect(c)
	}
	if one, two := of("1", 1, "1/1"), of("2", 2, "1/2"); one.err != nil || two.err != nil {
		t.Errorf("%v, %v", one.err, two.err)
	}
	if got := of("3", 3, "1/2"); !errors.Is(got.err, ErrLimit) {
		t.Errorf("%v", got.err)
	}
}

func TestADeclinedAddressIsReplacedAndTheOtherFamilyStays(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.IPv6 = true
	first := w.connect(c)
	extend := func(change func(*Connection)) connected {
		done := make(chan connected, 1)
		w.Extend("1", change, func(l Lease, err error) { done <- connected{l, err} })
		return get(t, done)
	}
	without := extend(func(c *Connection) { c.IPv4, c.Declined.IPv4 = false, true })
	if without.err != nil || without.IPv4.IsValid() || without.IPv6 != first.IPv6 || without.Delegated != first.Delegated {
		t.Errorf("%+v", without)
	}
	again := extend(func(c *Connection) { c.IPv4 = true })
	if again.err != nil || !again.IPv4.IsValid() || again.IPv4 == first.IPv4 || again.IPv6 != first.IPv6 {
		t.Errorf("IPv4: %+v after %s", again, first.IPv4)
	}
	other := extend(func(c *Connection) { c.Declined.IPv6 = true })
	if other.err != nil || !other.IPv6.IsValid() || other.IPv6 == first.IPv6 || other.IPv4 != again.IPv4 || other.IPv6Prefix != first.IPv6Prefix ||
		other.Delegated != first.Delegated {
		t.Errorf("IPv6: %+v after %s", other, first.IPv6)
	}
	if all := w.plane.session(other.Session).Addresses; len(all) != 4 || slices.Contains(all, first.IPv6.String()+"/128") || slices.Contains(all, first.IPv4.String()+"/32") {
		t.Errorf("%v", all)
	}
	// The declined addresses have no subscriber, and the next change of the session declines none.
	if same := extend(func(*Connection) {}); same.IPv4 != other.IPv4 || same.IPv6 != other.IPv6 || len(w.taken) != 4 {
		t.Errorf("%+v, %d taken", same, len(w.taken))
	}
	// Without any address that it could have instead, the session goes on without.
	w.setPool("hosts", &api.AddressPool{Ranges: []string{"2001:db8:3::1"}, Excluded: []string{"2001:db8:3::1"}})
	none := extend(func(c *Connection) { c.Declined.IPv6 = true })
	if !errors.Is(none.err, ErrExhausted) || none.Session != other.Session || none.IPv6.IsValid() || none.Delegated != first.Delegated ||
		len(w.plane.session(other.Session).Addresses) != 3 {
		t.Errorf("%+v: %v", none, w.plane.session(other.Session).Addresses)
	}
}

func TestAPoolThatReplacesAnotherTakesUpItsAddresses(t *testing.T) {
	old := func() *api.AddressPool {
		return &api.AddressPool{Ranges: []string{"100.64.0.0/29"}, Gateway: "100.64.0.1", Dns: []string{"192.0.2.53"}}
	}
	use := func(w *world, name string) {
		p := profile()
		p.Ipv4Pools = []string{name}
		w.setProfile("home", p)
	}
	for name, replace := range map[string]func(*world){
		"deleted and created": func(w *world) {
			w.setPool("home", nil)
			w.setPool("home", old())
		},
		"created under another name, then deleted": func(w *world) {
			w.setPool("renamed", old())
			use(w, "renamed")
			w.setPool("home", nil)
		},
		"deleted, then created under another name": func(w *world) {
			use(w, "renamed")
			w.setPool("home", nil)
			w.setPool("renamed", old())
		},
		"the range moves to a pool that is there": func(w *world) {
			w.setPool("renamed", &api.AddressPool{Ranges: []string{"100.66.0.1"}, Gateway: "100.66.0.1"})
			use(w, "renamed")
			w.setPool("home", &api.AddressPool{Ranges: []string{"100.67.0.0/29"}, Dns: []string{"192.0.2.53"}})
			w.setPool("renamed", old())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setPool("home", old())
			fill := func(round string) {
				t.Helper()
				for i := range byte(5) {
					if got := w.connect(w.connection(round+fmt.Sprint(i), round+fmt.Sprint(i), i)); got.err != nil {
						t.Fatal(round, i, got.err)
					}
				}
			}
			hangUp := func(round string, some ...int) {
				t.Helper()
				for _, i := range some {
					w.Disconnect(round+fmt.Sprint(i), UserRequest)
				}
				for len(w.matching(Match{Port: "access"})) > 5-len(some) {
					time.Sleep(time.Millisecond)
				}
			}
			fill("a")
			replace(w)
			// The pool passes all of its addresses.
			if got := w.connect(w.connection("x", "x", 99)); !errors.Is(got.err, ErrExhausted) {
				t.Fatalf("%+v", got)
			}
			// Sessions keep what they have of the old pool.
			done := make(chan connected, 1)
			w.Extend("a1", func(*Connection) {}, func(l Lease, err error) { done <- connected{l, err} })
			if got := get(t, done); got.err != nil || got.Gateway.String() != "100.64.0.1" || len(got.DNS) != 1 {
				t.Errorf("%+v", got)
			}
			hangUp("a", 0, 1, 2, 3, 4)
			fill("b")
			if got := w.connect(w.connection("y", "y", 99)); !errors.Is(got.err, ErrExhausted) {
				t.Errorf("%+v", got)
			}
			for _, p := range w.poolUses() {
				if p.used != 0 && (p.used != 5 || p.size != 5) {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

func TestAnAddressOfNoPoolHasTheGatewayOfTheProfileOrOfItsPools(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.Grant.IPv4 = netip.MustParseAddr("100.64.7.7")
	if got := w.connect(c); got.err != nil || got.IPv4 != c.Grant.IPv4 || got.Gateway.String() != "100.64.0.1" || got.Network.IsValid() {
		t.Errorf("%+v", got)
	}
	p := profile()
	p.Gateway = "100.64.7.1"
	w.setProfile("home", p)
	c.ID, c.Line.MAC, c.Grant.IPv4 = "2", MAC{2, 2}, netip.MustParseAddr("100.64.7.8")
	if got := w.connect(c); got.Gateway.String() != "100.64.7.1" {
		t.Errorf("%+v", got)
	}
	if got := w.connect(w.connection("3", "bob", 3)); got.Gateway.String() != "100.64.0.1" || got.Network.String() != "100.64.0.0/29" {
		t.Errorf("%+v", got)
	}
}

func TestWhoDeclinesAnAddressGetsAnotherOne(t *testing.T) {
	w := newWorld(t)
	first := w.connect(w.connection("1", "alice", 1))
	w.Disconnect("1", UserError)
	if got := w.connect(w.connection("2", "alice", 1)); got.err != nil || got.IPv4 == first.IPv4 {
		t.Errorf("%+v", got)
	}
}

func TestSessionsOutliveTheAgent(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "al\xffice", 1)
	c.Grant = Grant{Class: [][]byte{{1, 2}}, RateUp: Rate{BitsPerSecond: 1e6}, Routes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/29")}, IdleTimeout: time.Hour}
	first := w.connect(c)
	w.connect(w.connection("2", "bob", 2))
	get(t, w.aaa.records)
	get(t, w.aaa.records)
	before := w.plane.session(first.Session)
	w.start()
	w.Attach("pppoe", w.ppp)
	said := []string{get(t, w.ppp.said), get(t, w.ppp.said)}
	slices.Sort(said)
	if said[0] != "restore 1 100.64.0.2 of 1" || said[1] != "restore 2 100.64.0.3 of 2" || get(t, w.ppp.said) != "restored" {
		t.Errorf("%q", said)
	}
	if after := w.plane.session(first.Session); !proto.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
	// Their addresses are taken, and of the pool.
	if got := w.connect(w.connection("3", "carol", 3)); got.err != nil || got.IPv4.String() != "100.64.0.4" {
		t.Errorf("%+v", got)
	}
	get(t, w.aaa.records)
	w.Disconnect("1", AdminReset)
	if r := get(t, w.aaa.records); r.Kind != Stop || r.Username != "al\xffice" || len(r.Grant.Class) != 1 || !r.Since.Equal(began) || r.Grant.IdleTimeout != time.Hour {
		t.Errorf("%+v", r)
	}
	for _, p := range w.poolUses() {
		if p.name == "home" && p.used != 2 {
			t.Errorf("%+v", p)
		}
	}
}

func TestWhoComesBackAfterARestartGetsTheSameAddresses(t *testing.T) {
	w := newWorld(t)
	both := func(id, user string, mac byte) Connection {
		c := w.connection(id, user, mac)
		c.IPv6 = true
		return c
	}
	had := map[string]Lease{}
	for i, user := range []string{"alice", "bob", "carol"} {
		had[user] = w.connect(both(user, user, byte(i+1))).Lease
	}
	for user := range had {
		w.stop(user)
	}
	w.start()
	// Another one gets a new address.
	if dave := w.connect(both("4", "dave", 4)).Lease; dave.IPv4.String() != "100.64.0.5" {
		t.Errorf("%+v", dave)
	}
	for i, user := range []string{"carol", "bob"} {
		l := w.connect(both(user+"again", user, byte(i+1))).Lease
		if before := had[user]; l.IPv4 != before.IPv4 || l.IPv6 != before.IPv6 || l.IPv6Prefix != before.IPv6Prefix || l.Delegated != before.Delegated || !l.Delegated.IsValid() {
			t.Errorf("%s had %+v and has %+v", user, before, l)
		}
	}
	// As many as the pool has, alice's the last: then it is another's for good.
	for i := range 2 {
		if l := w.connect(w.connection(fmt.Sprint("more", i), fmt.Sprint("more", i), byte(10+i))).Lease; i == 1 && l.IPv4 != had["alice"].IPv4 {
			t.Errorf("%+v", l)
		}
	}
	if l := w.connect(w.connection("late", "alice", 1)).Lease; l.IPv4 == had["alice"].IPv4 || !l.IPv4.IsValid() {
		t.Errorf("%+v", l)
	}
}

func TestALineThatAuthenticatesAgainKeepsItsIdentification(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.Authentication, p.Username = []string{"local"}, "{circuit}"
	w.setProfile("home", p)
	w.setUser("line", &api.LocalUser{Username: "olt 7"})
	c := w.connection("1", "", 1)
	c.Password, c.Line.CircuitID = nil, []byte("olt 7")
	if got := w.connect(c); got.err != nil {
		t.Fatal(got.err)
	}
	// A PPPoE host negotiates LCP again: no discovery, and no tag of the access node.
	for id, known := range map[string]bool{"1": true, "2": false} {
		again := c.Request
		again.ID, again.Line.CircuitID = id, nil
		answers := make(chan Answer, 1)
		w.Authenticate(again, func(a Answer) { answers <- a })
		if a := get(t, answers); (a.Reject == nil) != known || known && a.Grant.Username != "olt 7" {
			t.Errorf("%s: %+v", id, a)
		}
	}
}

func TestAddressesThatADHCPServerAssignsAreAll(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.AssignedElsewhere, c.IPv6 = true, true
	c.Grant.IPv4, c.Grant.Delegated = netip.MustParseAddr("203.0.113.7"), netip.MustParsePrefix("2001:db8:7700::/56")
	got := w.connect(c)
	if got.err != nil || got.IPv4 != c.Grant.IPv4 || got.Delegated != c.Grant.Delegated || got.IPv6.IsValid() || got.IPv6Prefix.IsValid() {
		t.Fatalf("%+v", got)
	}
	// The server assigns another address, and no prefix any more.
	done := make(chan connected, 1)
	w.Extend("1", func(c *Connection) {
		c.AssignedElsewhere, c.IPv6 = true, true
		c.Grant.IPv4, c.Grant.Delegated, c.Grant.IPv6 = netip.MustParseAddr("203.0.113.8"), netip.Prefix{}, netip.MustParseAddr("2001:db8:77::1")
	}, func(l Lease, err error) { done <- connected{l, err} })
	if got = get(t, done); got.err != nil || got.IPv4.String() != "203.0.113.8" || got.Delegated.IsValid() || got.IPv6.String() != "2001:db8:77::1" {
		t.Errorf("%+v", got)
	}
	if s := w.plane.session(got.Session); !slices.Equal(s.Addresses, []string{"203.0.113.8/32", "2001:db8:77::1/128"}) {
		t.Errorf("%v", s)
	}
	if found := w.matching(Match{IPv4: netip.MustParseAddr("203.0.113.7")}); len(found) != 0 {
		t.Error(found)
	}
	w.Disconnect("1", UserRequest)
	for r := get(t, w.aaa.records); r.Kind != Stop; r = get(t, w.aaa.records) {
	}
	w.manager.callbacks.close()
	if n := w.left(); n != 0 {
		t.Errorf("%d things are left", n)
	}
}

func TestKeptAddressesHaveAnAgeAndALimit(t *testing.T) {
	w := newWorld(t)
	stored := func() (n int) {
		table, err := w.log.Table("subscriber")
		if err != nil {
			t.Fatal(err)
		}
		return len(table.All()) - sessionsIn(table)
	}
	leave := func(user string) netip.Addr {
		l := w.connect(w.connection(user+w.at.String(), user, 1)).Lease
		get(t, w.aaa.records)
		w.stop(user + w.at.String())
		return l.IPv4
	}
	leave("alice")
	w.setClock(began.Add(stickyAge / 2))
	bobs := leave("bob")
	if stored() != 2 {
		t.Fatal(stored())
	}
	// Time passes while the agent runs, or while it does not.
	w.setClock(began.Add(stickyAge + time.Second))
	w.tick(w.at)
	if stored() != 1 || len(w.sticky) != 1 {
		t.Error(stored(), len(w.sticky))
	}
	w.start()
	if got := w.connect(w.connection("bob again", "bob", 1)); got.IPv4 != bobs {
		t.Errorf("bob had %s and has %s", bobs, got.IPv4)
	}
	get(t, w.aaa.records)
	// While he is here his record ages, and is made anew at the end.
	w.setClock(began.Add(2 * stickyAge))
	w.tick(w.at)
	if stored() != 0 {
		t.Error(stored())
	}
	w.stop("bob again")
	if stored() != 1 || len(w.departures) != 1 {
		t.Error(stored(), w.departures)
	}
	w.setClock(began.Add(4 * stickyAge))
	w.start()
	if stored() != 0 || len(w.sticky)+len(w.departures) != 0 {
		t.Error(stored(), w.sticky, w.departures)
	}
	// The one that is gone the longest makes room.
	w.stickyLimit = 2
	for _, user := range []string{"alice", "bob", "alice", "carol"} {
		w.setClock(w.at.Add(time.Second))
		leave(user)
	}
	if _, has := w.sticky[identityOf(&Connection{Request: Request{Credentials: Credentials{Username: "bob"}}}, false)]; has || stored() != 2 {
		t.Error(has, stored())
	}
}

func TestASubscriberThatStaysAwayDoesNotKeepTheDeparturesOfOthers(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	leave := func(identity uint64) {
		w.at = w.at.Add(time.Second)
		w.keepAddresses(&session{identity: identity, lease: Lease{IPv4: netip.MustParseAddr("192.0.2.7")}, pool4: &pool{name: "pool"}})
	}
	leave(1)
	for range 5000 {
		leave(2)
		if most := 2*len(w.sticky) + 1024; len(w.departures) > most {
			t.Fatalf("%d departures of %d subscribers", len(w.departures), len(w.sticky))
		}
	}
	if w.departures[0].subscriber != 1 || w.departures[len(w.departures)-1].at != w.at.UnixNano() || len(w.sticky) != 2 {
		t.Errorf("%v first, %d subscribers", w.departures[0], len(w.sticky))
	}
}

func TestASessionThatWasEndingWhenTheAgentDiedEndsOnce(t *testing.T) {
	w := newWorld(t)
	first := w.connect(w.connection("1", "alice", 1))
	get(t, w.aaa.records)
	w.plane.holds(make(chan struct{}))
	w.plane.count(first.Session, &api.SessionCounters{UpBytes: 7})
	w.Disconnect("1", IdleTimeout)
	// The agent dies here: the data plane's deletion of the session is not reported.
	dead := w.manager
	w.plane.holds(nil)
	w.start()
	w.Attach("pppoe", w.ppp)
	if said := get(t, w.ppp.said); said != "restored" {
		t.Errorf("%q: the session is on its way out", said)
	}
	w.met("default")
	if r := get(t, w.aaa.records); r.Kind != Stop || r.Cause != IdleTimeout || r.UpBytes != 7 || r.ID != "1" {
		t.Errorf("%+v", r)
	}
	if got := w.connect(w.connection("2", "alice", 1)); got.err != nil || got.IPv4 != first.IPv4 {
		t.Errorf("%+v", got)
	}
	if r := get(t, w.aaa.records); r.Kind != Start || r.ID != "2" {
		t.Errorf("%+v", r)
	}
	_ = dead
}

func TestRecordsWaitForTheirBackEnd(t *testing.T) {
	w := newWorld(t)
	w.Use("radius", nil, nil)
	w.connect(w.connection("1", "alice", 1))
	w.Disconnect("1", UserRequest)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		left := len(w.sessions)
		w.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("never: the session ends")
		}
	}
	table, _ := w.log.Table("subscriber")
	if sessionsIn(table) != 1 {
		t.Errorf("the end of a session that is not accounted for is forgotten")
	}
	w.Use("radius", w.aaa, w.aaa)
	if a, b := get(t, w.aaa.records), get(t, w.aaa.records); a.Kind != Start || b.Kind != Stop {
		t.Errorf("%v, %v", a, b)
	}
	w.callbacks.close()
	if sessionsIn(table) != 0 {
		t.Error("the record of an accounted session is kept")
	}
}

// resuming is a back end that gets sessions of an earlier life.
type resuming struct {
	*fakeBackEnd
	resumed chan Record
}

func (b *resuming) Resume(r Record) { b.resumed <- r }

func TestABackEndGetsEachSessionOfAnEarlierLifeOnce(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	get(t, w.aaa.records)
	// The agent is killed before the back end has the Start of this one.
	w.Use("radius", nil, nil)
	w.connect(w.connection("2", "bob", 2))
	p := profile()
	p.Accounting = nil
	w.setProfile("home", p)
	w.connect(w.connection("3", "carol", 3))
	w.setClock(began.Add(time.Hour))
	b := &resuming{w.aaa, make(chan Record, 10)}
	w.restart(b)
	w.connect(w.connection("4", "dave", 4))
	since := map[string]time.Time{}
	for range 2 {
		r := get(t, b.resumed)
		since[r.ID] = r.Since
		if r.Kind != Start || !r.At.Equal(r.Since) || !r.Lease.IPv4.IsValid() || r.Username == "" {
			t.Errorf("%+v", r)
		}
	}
	if len(since) != 2 || !since["1"].Equal(began) || !since["2"].Equal(began) {
		t.Errorf("%v", since)
	}
	if r := get(t, w.aaa.records); r.Kind != Start || r.ID != "4" {
		t.Errorf("%+v", r)
	}
	w.Use("radius", nil, nil)
	w.Use("radius", b, b)
	w.callbacks.close()
	if len(b.resumed) > 0 {
		t.Errorf("%+v", <-b.resumed)
	}
	w.nothing()
}

func TestASessionThatEndsBeforeItsBackEndIsThereHasItsStopAlone(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	get(t, w.aaa.records)
	b := &resuming{w.aaa, make(chan Record, 10)}
	w.restart(nil)
	w.Disconnect("1", UserRequest)
	for w.left() > 0 {
		time.Sleep(time.Millisecond)
	}
	w.Use("radius", b, b)
	if r := get(t, w.aaa.records); r.Kind != Stop || r.ID != "1" || len(b.resumed) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestASubscriberWhomTheLogDoesNotTakeHasNoSessionAndNoRecords(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.State = make([]byte, durable.ValueLimit+1)
	if got := w.connect(c); !errors.Is(got.err, durable.ErrLimit) || got.Session != "" {
		t.Errorf("%+v", got)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d things are left", n)
	}
	w.callbacks.close()
	w.nothing()
}

func TestWhoHeardOfTheBeginningOfASessionHearsOfItsEnd(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	w.connect(w.connection("2", "bob", 2))
	get(t, w.aaa.records)
	get(t, w.aaa.records)
	p := profile()
	p.Accounting = nil
	w.setProfile("home", p)
	if r := w.stop("1"); r.ID != "1" {
		t.Errorf("%+v", r)
	}
	w.start()
	w.setProfile("home", nil)
	w.Disconnect("2", UserRequest)
	if r := get(t, w.aaa.records); r.Kind != Stop || r.ID != "2" {
		t.Errorf("%+v", r)
	}
}

func TestRatesAreMetersThatSessionsShare(t *testing.T) {
	w := newWorld(t)
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	slow := Rate{BitsPerSecond: 2_000_000}
	for i := range byte(2) {
		c := w.connection(fmt.Sprint(i), fmt.Sprint(i), i+1)
		c.Grant.RateUp, c.Grant.RateDown = slow, Rate{BitsPerSecond: 1e8, PeakBitsPerSecond: 2e8}
		got := w.connect(c)
		if s := w.plane.session(got.Session); s == nil || s.Policy.MeterUp != "rate-2000000-25000" || s.Policy.MeterDown != "rate-100000000-1250000-200000000-2500000" {
			t.Fatalf("%v", s)
		}
	}
	if got := w.plane.names("Meter"); len(got) != 2 {
		t.Errorf("%v", got)
	}
	for _, o := range w.plane.has {
		if errs := registry.Check(o); len(errs) > 0 {
			t.Errorf("%v: %v", o, errs)
		}
	}
	changed := make(chan error, 1)
	w.Change([]Match{{ID: "0"}}, Grant{RateUp: Rate{BitsPerSecond: 4e6}, ACLUp: Clear}, func(n int, err error) {
		if n != 1 {
			t.Errorf("%d are changed", n)
		}
		changed <- err
	})
	if err := get(t, changed); err != nil {
		t.Error(err)
	}
	if s := w.plane.session("pppoe-0"); s.Policy.MeterUp != "rate-4000000-50000" || s.Policy.AclUp != "" {
		t.Errorf("%v", s)
	}
	w.Disconnect("0", UserRequest)
	w.Disconnect("1", UserRequest)
	for range 4 {
		get(t, w.aaa.records)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d things are left: %v", n, w.plane.names("Meter"))
	}
	w.Change([]Match{{Username: "0"}}, Grant{}, func(_ int, err error) { changed <- err })
	if err := get(t, changed); !errors.Is(err, ErrNoSession) {
		t.Error(err)
	}
}

func TestAChangeToAQosProfileWithoutAQosGroupIsRefused(t *testing.T) {
	w := newWorld(t)
	first := w.connect(w.connection("1", "alice", 1))
	tunnelled := w.connection("2", "bob", 2)
	byCore := profile()
	byCore.Authentication = append(byCore.Authentication, "core")
	w.setProfile("home", byCore)
	tunnelled.Grant.Core = &api.Gtpu{LocalAddress: "192.0.2.1", RemoteAddress: "192.0.2.2"}
	w.connect(tunnelled)
	change := func(id string, g Grant) error {
		done := make(chan error, 1)
		w.Change([]Match{{ID: id}}, g, func(n int, err error) {
			if (err == nil) != (n == 1) {
				t.Errorf("%d changed, error %v", n, err)
			}
			done <- err
		})
		return get(t, done)
	}
	for _, g := range []Grant{{QosProfile: "gold"}, {QosGroup: "olt"}, {QosProfileUp: "gold"}, {QosGroupUp: "olt"}, {QosProfile: "gold", MSS: 1200}} {
		if err := change("1", g); !errors.Is(err, ErrUnpairedQos) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	if s := w.plane.session(first.Session); s.Policy.QosProfile != "" || s.Policy.Mss != 1400 {
		t.Error("a refused change is applied:", s.Policy)
	}
	for id, g := range map[string]Grant{"1": {QosProfile: "gold", QosGroup: "olt"}, "2": {QosProfile: "gold"}} {
		if err := change(id, g); err != nil {
			t.Errorf("session %s: %v", id, err)
		}
	}
	if s := w.plane.session(first.Session); s.Policy.QosProfile != "gold" || s.Policy.QosGroup != "olt" {
		t.Error(s.Policy)
	}
	if err := change("1", Grant{QosProfile: Clear}); err != nil {
		t.Error(err)
	}
}

func TestASessionWithoutTheQueuesOfItsGrantIsLogged(t *testing.T) {
	w, log := newWorld(t), &bytes.Buffer{}
	w.manager.log = slog.New(slog.NewTextHandler(log, nil))
	for i := range byte(2) {
		c := w.connection(fmt.Sprint(i), fmt.Sprint(i), i+1)
		c.Grant.QosProfile = "gold"
		w.connect(c)
	}
	if n := strings.Count(log.String(), "QosProfile gold"); n != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
}

func TestAChangeThatTheDataPlaneDoesNotCarryOutIsUndone(t *testing.T) {
	// The second one waits for an object that does not exist: the data plane keeps the old form.
	for _, result := range []service.Result{{Err: errors.New("refused")}, {}} {
		w := newWorld(t)
		got := w.connect(w.connection("1", "alice", 1))
		w.plane.refuses(func(o *object.Object) *service.Result {
			if s, is := o.Spec.(*api.Session); is && s.Policy.AclUp == "none" {
				return &result
			}
			return nil
		})
		changed, count := make(chan error, 1), 0
		w.Change([]Match{{IPv4: got.IPv4}}, Grant{ACLUp: "none"}, func(n int, err error) { count = n; changed <- err })
		if err := get(t, changed); err == nil || count != 0 || result.Err == nil && !errors.Is(err, ErrNotChanged) {
			t.Errorf("%d changed, error %v", count, err)
		}
		if s := w.plane.session(got.Session); s.Policy.AclUp != "no-mail" {
			t.Errorf("%v", s)
		}
	}
}

// terminated ends sessions.
func (w *world) terminated(t *testing.T, which ...Match) (count int, err error) {
	t.Helper()
	done := make(chan error, 1)
	w.Terminate(which, AdminReset, "", func(n int, err error) { count = n; done <- err })
	err = get(t, done)
	return count, err
}

func TestARequestIsAnsweredOnceTheDiskHasItsEffect(t *testing.T) {
	for name, request := range map[string]func(*world, Match, chan<- error){
		"Change": func(w *world, m Match, done chan<- error) {
			w.Change([]Match{m}, Grant{ACLUp: "quiet"}, func(_ int, err error) { done <- err })
		},
		"Terminate": func(w *world, m Match, done chan<- error) {
			w.Terminate([]Match{m}, AdminReset, "", func(_ int, err error) { done <- err })
		},
		"the second Terminate": func(w *world, m Match, done chan<- error) {
			w.Terminate([]Match{m}, AdminReset, "", nil)
			w.Terminate([]Match{m}, AdminReset, "", func(_ int, err error) { done <- err })
		},
		"DisconnectSubscribers": func(w *world, m Match, done chan<- error) {
			go func() {
				_, err := queryServer{manager: w.manager}.DisconnectSubscribers(context.Background(), &api.SubscribersDisconnection{Which: &api.SubscribersQuery{Address: m.IPv4.String()}})
				done <- err
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			got := w.connect(w.connection("1", "alice", 1))
			held, hold := make(chan bool, 1), make(chan struct{})
			w.afterDisk(durable.Pending{}, func(error) { held <- true; <-hold })
			get(t, held)
			waits := func() bool {
				w.disk.mu.Lock()
				defer w.disk.mu.Unlock()
				return len(w.disk.waiting) > 0
			}
			done := make(chan error, 1)
			request(w, Match{IPv4: got.IPv4}, done)
			for !waits() {
				select {
				case err := <-done:
					close(hold)
					t.Fatalf("answered before the disk has it: %v", err)
				default:
					time.Sleep(time.Millisecond)
				}
			}
			close(hold)
			if err := get(t, done); err != nil {
				t.Error(err)
			}
			if session := w.plane.session(got.Session); name == "Change" && session.Policy.AclUp != "quiet" {
				t.Error(session)
			}
		})
	}
}

func TestAChangeThatAFullDiskRefusesLeavesTheSessionAsItWas(t *testing.T) {
	directory, _ := durabletest.SmallDisk(t)
	w := newWorldIn(t, directory)
	got := w.connect(w.connection("1", "alice", 1))
	others, err := w.log.Table("others")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		others.Put(durable.Record{Key: fmt.Sprint(i), Value: make([]byte, 1<<10)})
	}
	before := w.plane.session(got.Session).Policy.AclUp
	changed := make(chan error, 1)
	w.Change([]Match{{ID: "1"}}, Grant{ACLUp: "quiet", SessionTimeout: time.Minute}, func(n int, err error) {
		if n != 0 {
			t.Errorf("%d changed", n)
		}
		changed <- err
	})
	if err := get(t, changed); err == nil {
		t.Fatal("the change is confirmed, and the disk does not have it")
	}
	if acl := w.plane.session(got.Session).Policy.AclUp; acl != before || acl == "quiet" {
		t.Error("the data plane keeps a change that was refused:", acl)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.sessions["1"].connection.Grant; g.SessionTimeout == time.Minute || g.ACLUp == "quiet" {
		t.Errorf("the session keeps a change that was refused: %+v", g)
	}
}

func TestSelectorsThatAreToTellOneSessionFromAllOthersSelectNoneOfSeveral(t *testing.T) {
	w := newWorld(t)
	var got []connected
	for i, vrf := range []string{"", "red"} {
		c := w.connection(fmt.Sprint(i), "alice", byte(i+1))
		c.Grant.VRF, c.Grant.IPv4 = vrf, netip.MustParseAddr("10.1.1.1")
		got = append(got, w.connect(c))
		if got[i].err != nil {
			t.Fatal(got[i].err)
		}
	}
	change := func(m Match) (count int, err error) {
		t.Helper()
		done := make(chan error, 1)
		w.Change([]Match{m}, Grant{SessionTimeout: time.Hour}, func(n int, err error) { count = n; done <- err })
		return count, get(t, done)
	}
	address := netip.MustParseAddr("10.1.1.1")
	for _, c := range []struct {
		match Match
		count int
	}{
		{Match{IPv4: address}, 0}, {Match{IPv4: address, VRF: "red"}, 1}, {Match{IPv4: address, VRF: "default"}, 1}, {Match{IPv4: address, ID: "1"}, 1},
		{Match{Username: "alice"}, 2}, {Match{Username: "alice", One: true}, 0}, {Match{ID: "0", One: true}, 1},
	} {
		count, err := change(c.match)
		if count != c.count || (count == 0) != errors.Is(err, ErrTooManySessions) || count > 0 && err != nil {
			t.Errorf("%+v: %d, %v", c.match, count, err)
		}
	}
}

func TestTheLastRecordOfSeveralSessionsIsThatOfOneThatHasARecord(t *testing.T) {
	w := newWorld(t)
	got := w.connect(w.connection("1", "alice", 1))
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept pendings
	for _, s := range w.sessions {
		if s.lease.Session == got.Session {
			kept.add(w.keep(s))
		}
	}
	first := kept.last
	// A session that is still connecting has no record of its end.
	kept.add(durable.Pending{})
	if first == (durable.Pending{}) || kept.last != first || kept.refused != nil {
		t.Errorf("%+v, first %+v", kept, first)
	}
}

func TestASessionWhoseEndWasAnsweredDoesNotComeBackWithAKilledAgent(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	w.connect(w.connection("2", "bob", 2))
	// The disk as it is at the time of the answer.
	killed, copied := t.TempDir(), make(chan error, 1)
	w.Terminate([]Match{{ID: "1"}}, AdminReset, "", func(int, error) { copied <- os.CopyFS(killed, os.DirFS(w.directory)) })
	if err := get(t, copied); err != nil {
		t.Fatal(err)
	}
	later := newWorldIn(t, killed)
	later.Attach("pppoe", later.ppp)
	var said []string
	for len(said) == 0 || said[len(said)-1] != "restored" {
		said = append(said, get(t, later.ppp.said))
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "restore 2 ") {
		t.Errorf("%q", said)
	}
}

func TestAChangeThatOneSessionRefusesChangesNoSession(t *testing.T) {
	w := newWorld(t)
	var all []connected
	for i := range byte(3) {
		all = append(all, w.connect(w.connection(fmt.Sprint(i), "alice", i+1)))
	}
	w.plane.refuses(func(o *object.Object) *service.Result {
		if s, is := o.Spec.(*api.Session); is && o.Name == all[1].Session && s.Policy.AclUp == "home" {
			return &service.Result{Err: errors.New("refused")}
		}
		return nil
	})
	changed, count := make(chan error, 1), 0
	change := Grant{ACLUp: "home", SessionTimeout: time.Hour}
	w.Change([]Match{{Username: "alice"}, {ID: "0"}}, change, func(n int, err error) { count = n; changed <- err })
	if err := get(t, changed); err == nil || count != 0 {
		t.Errorf("%d changed, error %v", count, err)
	}
	for i, c := range all {
		if s := w.plane.session(c.Session); s.Policy.AclUp != "no-mail" {
			t.Errorf("session %d keeps Acl %s of a refused change", i, s.Policy.AclUp)
		}
		if g := w.sessions[fmt.Sprint(i)].connection.Grant; g.SessionTimeout == time.Hour || g.ACLUp == "home" {
			t.Errorf("session %d keeps the grant of a refused change: %+v", i, g)
		}
	}
	w.plane.refuses(nil)
	w.Change([]Match{{Username: "alice"}, {ID: "0"}}, change, func(n int, err error) { count = n; changed <- err })
	if err := get(t, changed); err != nil || count != len(all) {
		t.Errorf("%d changed, error %v", count, err)
	}
}

func TestARequestForTooManySessionsChangesNone(t *testing.T) {
	w := newWorld(t)
	l := w.connect(w.connection("1", "alice", 1))
	w.mu.Lock()
	for i := range MaxSelected {
		w.byUser.add("alice", &session{connection: Connection{Request: Request{ID: fmt.Sprint("of-", i), Credentials: Credentials{Username: "alice"}}}, state: up})
	}
	w.mu.Unlock()
	changed := make(chan error, 1)
	w.Change([]Match{{Username: "alice"}}, Grant{ACLUp: "home"}, func(_ int, err error) { changed <- err })
	if err := get(t, changed); !errors.Is(err, ErrTooManySessions) {
		t.Error(err)
	}
	if n, err := w.terminated(t, Match{Username: "alice"}); n != 0 || !errors.Is(err, ErrTooManySessions) {
		t.Errorf("%d are ended, error %v", n, err)
	}
	if s := w.plane.session(l.Session); s == nil || s.Policy.AclUp != "no-mail" {
		t.Errorf("a refused request changes a session: %v", s)
	}
}

func TestASupersededChangeGetsTheResultOfTheLaterOne(t *testing.T) {
	for _, of := range []struct {
		superseded bool
		// The data plane refuses the Acl of the first change, or the MSS of the second.
		acl, mss bool
		counts   [2]int
	}{
		{counts: [2]int{1, 1}},
		{superseded: true, counts: [2]int{1, 1}},
		{mss: true, counts: [2]int{1, 0}},
		{superseded: true, mss: true, counts: [2]int{1, 0}},
		{acl: true, counts: [2]int{0, 0}},
		{superseded: true, acl: true, counts: [2]int{0, 0}},
	} {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			w := newWorld(t)
			got := w.connect(w.connection("1", "alice", 1))
			w.plane.refuses(func(o *object.Object) *service.Result {
				s, is := o.Spec.(*api.Session)
				switch {
				case is && (of.acl && s.Policy.AclUp == "home" || of.mss && s.Policy.Mss == 1300):
					return &service.Result{Err: errors.New("refused")}
				case is && of.superseded && s.Policy.AclUp == "home" && s.Policy.Mss == 1400 && w.sessions["1"].puts == 2:
					return &service.Result{}
				}
				return nil
			})
			// Both are in flight, and the results come in this order.
			holds, done := [2]chan struct{}{}, [2]chan int{}
			for i, change := range []Grant{{ACLUp: "home"}, {MSS: 1300}} {
				holds[i], done[i] = make(chan struct{}), make(chan int, 1)
				w.plane.holdsPuts(holds[i])
				w.Change([]Match{{ID: "1"}}, change, func(n int, _ error) { done[i] <- n })
			}
			w.plane.holdsPuts(nil)
			for _, i := range order {
				close(holds[i])
				// The first result is taken before the second one comes.
				for inFlight := 2; i == order[0] && inFlight == 2; runtime.Gosched() {
					w.mu.Lock()
					inFlight = int(w.sessions["1"].inFlight)
					w.mu.Unlock()
				}
			}
			counts := [2]int{get(t, done[0]), get(t, done[1])}
			acl, mss := "no-mail", uint32(1400)
			if counts[0] == 1 {
				acl = "home"
			}
			if counts[1] == 1 {
				mss = 1300
			}
			if s := w.plane.session(got.Session); counts != of.counts || s.Policy.AclUp != acl || s.Policy.Mss != mss {
				t.Errorf("%+v, results in order %v: %v changed, Acl %s, MSS %d", of, order, counts, s.Policy.AclUp, s.Policy.Mss)
			}
		}
	}
}

func TestSessionsAreFoundByAnyKey(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.IPv6 = true
	c.Line.CircuitID, c.Line.RemoteID, c.Grant.InterfaceID = []byte("olt 7"), []byte("home"), [8]byte{7: 7}
	got := w.connect(c)
	w.connect(w.connection("2", "bob", 2))
	for _, match := range []Match{{CircuitID: "olt 7"}, {RemoteID: "home"}, {InterfaceID: [8]byte{7: 7}}, {RemoteID: "home", CircuitID: "olt 7"}, {ID: "1"}, {Prefix: got.IPv6Prefix}, {Session: got.Session}, {Username: "alice"}, {MAC: MAC{2, 0, 0, 0, 0, 1}}, {IPv4: got.IPv4}, {IPv6: got.IPv6},
		{IPv6: got.IPv6Prefix.Addr().Next()}, {Delegated: got.Delegated}, {CallingStationID: "02-00-00-00-00-01"}, {Username: "alice", Port: "access", VRF: "default"}} {
		if found := w.matching(match); len(found) != 1 || found[0] != "1" {
			t.Errorf("%+v finds %d", match, len(found))
		}
	}
	none, all := &Profiles{Has: func(string) bool { return false }}, &Profiles{Has: func(name string) bool { return name == "home" }}
	// A prefix is that of the link, and no other that overlaps with it.
	wider, narrower := netip.PrefixFrom(got.IPv6Prefix.Addr(), 32), netip.PrefixFrom(got.IPv6Prefix.Addr(), 96)
	if found := w.matching(Match{Username: "alice", Of: all}); len(found) != 1 {
		t.Errorf("of its profile, %d are found", len(found))
	}
	for _, match := range []Match{{}, {Of: all}, {Of: none}, {ID: "1", Of: none}, {Port: "access", Of: none}, {CircuitID: "olt"}, {RemoteID: "olt 7"}, {InterfaceID: [8]byte{7: 8}}, {RemoteID: "home", CircuitID: "home"}, {ID: "3"}, {Username: "alice", MAC: MAC{9}}, {IPv4: netip.MustParseAddr("1.1.1.1")}, {ID: "1", VRF: "other"}, {Prefix: wider}, {Prefix: narrower}} {
		if found := w.matching(match); len(found) != 0 {
			t.Errorf("%+v finds %d", match, len(found))
		}
	}
	w.Attach("pppoe", w.ppp)
	for range 3 {
		get(t, w.ppp.said)
	}
	if n, err := w.terminated(t, Match{Port: "access"}, Match{ID: "1"}); n != 2 || err != nil {
		t.Errorf("%d are ended, error %v", n, err)
	}
	said := []string{get(t, w.ppp.said), get(t, w.ppp.said)}
	slices.Sort(said)
	if said[0] != "terminate 1 admin-reset" || said[1] != "terminate 2 admin-reset" {
		t.Errorf("%q", said)
	}
}

func TestTimeoutsEndSessionsAndIntervalsAccountForThem(t *testing.T) {
	w := newWorld(t)
	w.Attach("pppoe", w.ppp)
	get(t, w.ppp.said)
	c := w.connection("1", "alice", 1)
	c.Grant.SessionTimeout = time.Hour
	w.connect(c)
	c = w.connection("2", "bob", 2)
	c.Grant.IdleTimeout, c.Grant.InterimInterval = 40*time.Minute, 10*time.Minute
	got := w.connect(c)
	get(t, w.aaa.records)
	get(t, w.aaa.records)
	// The first half an hour it sends.
	bytes, interims := uint64(0), 0
	for minute := 1; minute <= 90; minute++ {
		w.setClock(began.Add(time.Duration(minute) * time.Minute))
		if minute <= 30 {
			bytes = uint64(minute)
		}
		for plane, names := range w.tick(w.at) {
			if plane != "default" || !slices.Equal(names, []string{got.Session}) {
				t.Fatalf("%s: %v", plane, names)
			}
			w.counted(1, []*api.SessionCounters{{Session: got.Session, UpBytes: bytes}})
			w.look(names, true)
		}
	}
	w.callbacks.close()
	if said := get(t, w.ppp.said); said != "terminate 1 session-timeout" {
		t.Error(said)
	}
	if said := get(t, w.ppp.said); said != "terminate 2 idle-timeout" {
		t.Error(said)
	}
	for len(w.aaa.records) > 0 {
		if r := get(t, w.aaa.records); r.Kind == Interim && r.ID == "2" {
			interims++
		}
	}
	if interims < 6 || interims > 9 {
		t.Errorf("%d interim records", interims)
	}
}

func TestATimeOfAGrantMayBeNone(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.SessionTimeout, p.IdleTimeout, p.InterimInterval = uint64(time.Hour), uint64(time.Minute), uint64(10*time.Minute)
	w.setProfile("home", p)
	never := Grant{SessionTimeout: Never, IdleTimeout: Never, InterimInterval: Never}
	// As the back end grants it, and as a change.
	c := w.connection("1", "alice", 1)
	c.Grant = never
	if l := w.connect(c); l.SessionTimeout != 0 {
		t.Errorf("%+v", l)
	}
	w.connect(w.connection("2", "bob", 2))
	done := make(chan error, 1)
	w.Change([]Match{{ID: "2"}}, never, func(_ int, err error) { done <- err })
	if err := get(t, done); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"1", "2"} {
		s := w.sessions[id]
		if now := w.times(s); now.sessionTimeout != 0 || now.idleTimeout != 0 || now.interim != 0 || !s.interim.IsZero() || s.lease.SessionTimeout != 0 {
			t.Errorf("%s: %+v, interim at %v", id, now, s.interim)
		}
		if state := w.stateOf(s); state.SessionTimeout != "" || state.IdleTimeout != "" {
			t.Errorf("%v", state)
		}
		unpacked, err := newPacker().unpack(w.packer.pack(s))
		if err != nil || unpacked.connection.Grant.SessionTimeout != Never || unpacked.connection.Grant.IdleTimeout != Never || unpacked.connection.Grant.InterimInterval != Never {
			t.Errorf("%+v, %v", unpacked, err)
		}
	}
	if due := w.tick(began.Add(48 * time.Hour)); len(due) != 0 || len(w.sessions) != 2 {
		t.Errorf("%v, %d sessions", due, len(w.sessions))
	}
	// Times that a later change grants.
	w.Change([]Match{{ID: "2"}}, Grant{IdleTimeout: time.Minute}, func(_ int, err error) { done <- err })
	if err := get(t, done); err != nil || w.times(w.sessions["2"]).idleTimeout != time.Minute {
		t.Errorf("%v, %+v", err, w.times(w.sessions["2"]))
	}
}

// interims makes the Interim records that are due at a time, and returns them.
func (w *world) interims(after time.Duration) (all []Record) {
	w.t.Helper()
	w.setClock(began.Add(after))
	for _, names := range w.tick(w.at) {
		w.look(names, false)
	}
	done := make(chan bool, 1)
	w.mu.Lock()
	w.later(func() { done <- true })
	w.mu.Unlock()
	get(w.t, done)
	for len(w.aaa.records) > 0 {
		if r := <-w.aaa.records; r.Kind == Interim {
			all = append(all, r)
		}
	}
	return all
}

func (w *world) extend(id string, change func(*Connection)) Lease {
	w.t.Helper()
	done := make(chan connected, 1)
	w.Extend(id, change, func(l Lease, err error) { done <- connected{l, err} })
	got := get(w.t, done)
	if got.err != nil {
		w.t.Error(got.err)
	}
	return got.Lease
}

func TestChangedAddressesAreInOneInterimRecordSoon(t *testing.T) {
	w := newWorld(t)
	w.connect(w.connection("1", "alice", 1))
	families := func(four, six bool) func(*Connection) { return func(c *Connection) { c.IPv4, c.IPv6 = four, six } }
	w.extend("1", func(c *Connection) { c.State = []byte("other") })
	if got := w.interims(time.Hour); len(got) != 0 {
		t.Errorf("no address changes: %+v", got)
	}
	// Three changes within the delay.
	at := time.Hour
	w.extend("1", families(true, true))
	w.extend("1", families(true, false))
	if got := w.interims(at + addressDelay/2); len(got) != 0 {
		t.Errorf("too soon: %+v", got)
	}
	last := w.extend("1", families(true, true))
	got := w.interims(at + addressDelay)
	if len(got) != 1 || got[0].Lease.IPv4 != last.IPv4 || got[0].Lease.IPv6 != last.IPv6 || !last.IPv6.IsValid() || got[0].Lease.Delegated != last.Delegated || !last.Delegated.IsValid() {
		t.Errorf("%+v, and the addresses are %+v", got, last)
	}
	if got := w.interims(2 * time.Hour); len(got) != 0 {
		t.Errorf("once more: %+v", got)
	}
	// The agent is killed between a change and its record.
	w.extend("1", families(false, true))
	w.start()
	got = w.interims(2*time.Hour + addressDelay)
	if len(got) != 1 || got[0].Lease.IPv4.IsValid() || got[0].Lease.IPv6 != last.IPv6 {
		t.Errorf("after a restart: %+v", got)
	}
	w.start()
	if got := w.interims(3 * time.Hour); len(got) != 0 {
		t.Errorf("after another restart: %+v", got)
	}
}

func TestOneInterimRecordIsOfAChangedAddressAndOfTheInterval(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.InterimInterval, p.InterimJitter = uint64(time.Minute), 1
	w.setProfile("home", p)
	w.connect(w.connection("1", "alice", 1))
	interval := func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.sessions["1"].interim.Sub(began)
	}
	// The interval does not begin anew with a change.
	first := interval()
	w.extend("1", func(c *Connection) { c.IPv6 = true })
	if got := w.interims(addressDelay); len(got) != 1 || interval() != first {
		t.Errorf("%+v, the next one at %v, not at %v", got, interval(), first)
	}
	// The record of the interval comes before that of the change, or would come just after it.
	w.setClock(began.Add(first - addressDelay/2))
	w.extend("1", func(c *Connection) { c.IPv6 = false })
	if got := w.interims(first); len(got) != 1 || got[0].Lease.IPv6.IsValid() {
		t.Errorf("%+v", got)
	}
	second := interval()
	w.setClock(began.Add(second - 3*addressDelay/2))
	w.extend("1", func(c *Connection) { c.IPv6 = true })
	if got := w.interims(second - addressDelay/2); len(got) != 1 || !got[0].Lease.IPv6.IsValid() || interval() < second+30*time.Second {
		t.Errorf("%+v, the next one at %v", got, interval())
	}
	if got := w.interims(second + 2*addressDelay); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestCountersNeverGoBackwards(t *testing.T) {
	w := newWorld(t)
	got := w.connect(w.connection("1", "alice", 1))
	get(t, w.aaa.records)
	w.counted(1, []*api.SessionCounters{{Session: got.Session, UpBytes: 100, DownBytes: 50}})
	// The data plane restarts; at the next reading the session's counters are above the last ones.
	w.counted(2, []*api.SessionCounters{{Session: got.Session, UpBytes: 150, DownBytes: 60}})
	// Again, and less.
	w.counted(3, []*api.SessionCounters{{Session: got.Session, UpBytes: 1}})
	w.mu.Lock()
	w.keep(w.sessions["1"])
	w.mu.Unlock()
	w.start()
	// While the agent was away the data plane started once more.
	w.counted(4, []*api.SessionCounters{{Session: got.Session, UpBytes: 5}})
	w.plane.count(got.Session, &api.SessionCounters{UpBytes: 6})
	w.Disconnect("1", LostCarrier)
	if r := get(t, w.aaa.records); r.UpBytes != 100+150+1+6 || r.DownBytes != 50+60 {
		t.Errorf("%d, %d", r.UpBytes, r.DownBytes)
	}
}

func TestBackEndsAreAskedInTurn(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		sentence string
		order    []string
		radius   error
		user     string
		want     error
		grant    string
	}{
		{"the first that knows the user", []string{"radius", "local"}, nil, "alice", nil, "of-radius"},
		{"a rejection is final", []string{"radius", "local"}, errors.New("no"), "alice", ErrRejected, ""},
		{"the next if there is no answer", []string{"radius", "local"}, ErrUnavailable, "alice", nil, ""},
		{"the next if the user is unknown", []string{"local", "radius"}, nil, "carol", nil, "of-radius"},
		{"an unknown user is rejected", []string{"local"}, nil, "carol", ErrUnknownUser, ""},
		{"none accepts", []string{"local", "none"}, nil, "carol", nil, ""},
		{"a rejection is final before none", []string{"radius", "none"}, errors.New("no"), "carol", ErrRejected, ""},
		{"local users alone without an order", nil, nil, "alice", nil, ""},
	} {
		p := profile()
		p.Authentication = c.order
		w.setProfile("home", p)
		w.aaa.answer = Answer{Reject: c.radius, Grant: Grant{ACLUp: "of-radius"}}
		done := make(chan Answer, 1)
		w.Authenticate(w.connection("1", c.user, 1).Request, func(a Answer) { done <- a })
		a := get(t, done)
		if !errors.Is(a.Reject, c.want) || c.want == nil && (a.Reject != nil || a.Grant.ACLUp != c.grant || a.Grant.Username != c.user) {
			t.Errorf("%s: %+v", c.sentence, a)
		}
	}
}

func TestALineWithoutCredentialsHasAName(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.Authentication, p.Username, p.Password = []string{"local"}, "{port}:{outer}.{inner}/{circuit}", "line"
	w.setProfile("home", p)
	w.setUser("line", &api.LocalUser{Username: "access:100.7/eth 0", Password: "line"})
	r := w.connection("1", "", 1).Request
	r.Password, r.Line.CircuitID = nil, []byte("eth 0")
	done := make(chan Answer, 1)
	w.Authenticate(r, func(a Answer) { done <- a })
	if a := get(t, done); a.Reject != nil || a.Grant.Username != "access:100.7/eth 0" {
		t.Errorf("%+v", a)
	}
}

func TestSessionsOfAMACACircuitAndAUserAreLimited(t *testing.T) {
	w := newWorld(t)
	p := profile()
	p.SessionsPerMac, p.SessionsPerCircuit, p.SessionsPerUser = 2, 3, 1
	p.OnConflict = api.SessionConflict_REFUSE_SESSION
	w.setProfile("home", p)
	for i, c := range []struct {
		user string
		mac  byte
		want error
	}{{"a", 1, nil}, {"b", 1, nil}, {"c", 1, ErrLimit}, {"a", 2, ErrLimit}, {"d", 2, nil}, {"e", 3, ErrLimit}} {
		if got := w.connect(w.connection(fmt.Sprint(i), c.user, c.mac)); !errors.Is(got.err, c.want) || c.want == nil && got.err != nil {
			t.Errorf("%v: %v", c, got.err)
		}
	}
}

func TestASecondSessionOfASubscriberReplacesTheFirst(t *testing.T) {
	address, prefix := netip.MustParseAddr("100.64.7.7"), netip.MustParsePrefix("2001:db8:700::/56")
	for name, set := range map[string]func(*api.SubscriberProfile, *Connection){
		"fixed address":        func(_ *api.SubscriberProfile, c *Connection) { c.Grant.IPv4 = address },
		"fixed prefix":         func(_ *api.SubscriberProfile, c *Connection) { c.Grant.Delegated, c.IPv6 = prefix, true },
		"name of the back end": func(_ *api.SubscriberProfile, c *Connection) { c.Grant.Username, c.Grant.IPv4 = "contract 7", address },
		"limit of the circuit": func(p *api.SubscriberProfile, _ *Connection) { p.SessionsPerCircuit = 1 },
		"limit of the user":    func(p *api.SubscriberProfile, _ *Connection) { p.SessionsPerUser = 1 },
		"two sessions too many": func(p *api.SubscriberProfile, c *Connection) {
			c.Grant.IPv4, p.SessionsPerUser, p.SessionsPerCircuit = address, 1, 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Attach("pppoe", w.ppp)
			get(t, w.ppp.said)
			p, first, second := profile(), w.connection("1", "line 7", 1), w.connection("2", "line 7", 2)
			set(p, &first)
			set(p, &second)
			w.setProfile("home", p)
			before := w.connect(first)
			get(t, w.aaa.records)
			// The new CPE is on another port.
			if name != "limit of the circuit" && name != "two sessions too many" {
				second.Line.Port = "other"
			}
			got := w.connect(second)
			if before.err != nil || got.err != nil || got.IPv4 != before.IPv4 || got.Delegated != before.Delegated {
				t.Fatalf("%+v, then %+v", before, got)
			}
			if said := get(t, w.ppp.said); said != "terminate 1 port-preempted" {
				t.Error(said)
			}
			if r := get(t, w.aaa.records); r.ID != "1" || r.Kind != Stop || r.Cause != PortPreempted {
				t.Errorf("%+v", r)
			}
			if names := w.plane.names("Session"); !slices.Equal(names, []string{"pppoe-2"}) {
				t.Errorf("%v", names)
			}
			// Another subscriber does not replace it.
			third := w.connection("3", "line 8", 3)
			set(p, &third)
			third.Grant.Username = ""
			if got := w.connect(third); name != "limit of the user" && got.err == nil {
				t.Errorf("%+v", got)
			}
			// Nor does a session of the same name in another VRF.
			third.ID, third.Username, third.Grant.Username, third.Grant.VRF = "4", second.Username, second.Grant.Username, "other"
			third.Line.Circuit = second.Line.Circuit
			w.connect(third)
			if all := w.matching(Match{ID: "2"}); len(all) != 1 {
				t.Error("the session was ended")
			}
			p.OnConflict = api.SessionConflict_REFUSE_SESSION
			w.setProfile("home", p)
			first.ID = "5"
			if name == "limit of the circuit" {
				first.Line.Circuit = second.Line.Circuit
			}
			if got := w.connect(first); !errors.Is(got.err, ErrAddressInUse) && !errors.Is(got.err, ErrLimit) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestASessionThatComesUpIsReplacedToo(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	w.plane.holdsPuts(hold)
	results := make(chan string, 3)
	for i := range byte(3) {
		c := w.connection(fmt.Sprint(i), "line 7", i+1)
		c.Grant.IPv4 = netip.MustParseAddr("100.64.7.7")
		w.Connect(c, func(_ Lease, err error) { results <- fmt.Sprint(c.ID, err == nil) })
	}
	w.plane.holdsPuts(nil)
	close(hold)
	all := []string{get(t, results), get(t, results), get(t, results)}
	if slices.Sort(all); !slices.Equal(all, []string{"0false", "1false", "2true"}) {
		t.Errorf("%v", all)
	}
	if names := w.plane.names("Session"); !slices.Equal(names, []string{"pppoe-2"}) {
		t.Errorf("%v", names)
	}
}

func TestAFamilyThatComesLaterReplacesTheEarlierSession(t *testing.T) {
	w := newWorld(t)
	first, second := w.connection("1", "line 7", 1), w.connection("2", "line 7", 2)
	first.IPv6 = true
	for _, c := range []*Connection{&first, &second} {
		c.Grant.Delegated = netip.MustParsePrefix("2001:db8:700::/56")
		if got := w.connect(*c); got.err != nil {
			t.Fatal(got.err)
		}
	}
	done := make(chan connected, 1)
	w.Extend("2", func(c *Connection) { c.IPv6 = true }, func(l Lease, err error) { done <- connected{l, err} })
	if got := get(t, done); got.err != nil || got.Delegated != first.Grant.Delegated || len(w.matching(Match{ID: "1"})) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAProfileThatChangesReachesSessionsThatAreUp(t *testing.T) {
	w := newWorld(t)
	got := w.connect(w.connection("1", "alice", 1))
	p := profile()
	p.Policy, p.RateDown = &api.Policy{AclUp: "other"}, 1e9
	w.setProfile("home", p)
	if s := w.plane.session(got.Session); s.Policy.AclUp != "other" || s.Policy.MeterDown != "rate-1000000000-12500000" {
		t.Errorf("%v", s)
	}
}

func BenchmarkASubscriber(b *testing.B) {
	log, err := durable.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	table, _ := log.Table("subscriber")
	w := &world{plane: &fakePlane{has: map[object.Key]*object.Object{}}}
	m := newManager(slog.New(slog.DiscardHandler), w.plane, table, false)
	defer m.close()
	m.setPool("home", &api.AddressPool{Ranges: []string{"10.0.0.0/8"}})
	m.setPool("homes", &api.AddressPool{Ranges: []string{"2001:db8::/32"}, PrefixLength: 56})
	m.setProfile("home", &api.SubscriberProfile{Ipv4Pools: []string{"home"}, DelegatedPools: []string{"homes"}})
	m.begin()
	var group sync.WaitGroup
	b.ReportAllocs()
	for i := range b.N {
		group.Add(1)
		c := w.connection(fmt.Sprint(i), fmt.Sprint(i), 1)
		c.IPv6 = true
		c.Line.MAC = MAC{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		m.Connect(c, func(Lease, error) { group.Done() })
	}
	group.Wait()
}

func TestManySubscribersAreListedByPagesAndFoundByTheirKeys(t *testing.T) {
	w := newWorld(t)
	const count = 3*pageStep + 7
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.0/16"}})
	silent := profile()
	silent.Accounting = nil
	w.setProfile("home", silent)
	var group sync.WaitGroup
	group.Add(count)
	for i := range count {
		c := w.connection(fmt.Sprintf("%04d", i), fmt.Sprint("user", i), 0)
		c.IPv6 = true
		c.Line.MAC = MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}
		c.Line.InnerVLAN = uint16(i%2 + 1)
		c.Line.RemoteID = []byte(fmt.Sprint("line ", i))
		w.Connect(c, func(_ Lease, err error) {
			if err != nil {
				t.Error(err)
			}
			group.Done()
		})
	}
	group.Wait()
	served := queryServer{manager: w.manager}
	for _, c := range []struct {
		query *api.SubscribersQuery
		step  int
		first int
	}{{&api.SubscribersQuery{Limit: 100}, 1, 0}, {&api.SubscribersQuery{Limit: 100, Circuit: "access:100.2"}, 2, 1}} {
		next := c.first
		for {
			page, err := served.list(t.Context(), c.query)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Subscribers {
				if s.Id != fmt.Sprintf("%04d", next) {
					t.Fatalf("%s, not %04d", s.Id, next)
				}
				next += c.step
			}
			if c.query.Page = page.NextPage; page.NextPage == "" {
				break
			}
			// A page begins where the one before ended, though a session ends meanwhile.
			if next == 100 {
				w.Disconnect("0000", UserRequest)
			}
		}
		if next < count {
			t.Error(c.query, next)
		}
	}
	access := func(a Access) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.accesses = map[string]Access{"pppoe": a}
	}
	access(w.ppp)
	for _, q := range []*api.SubscribersQuery{{Circuit: "access:"}, {Circuit: "access:7."}, {Circuit: "access:4095"}, {Circuit: "access:100/7"}, {Protocol: "ppoe"}} {
		if _, err := served.list(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", q, err)
		}
	}
	access(nil)
	// None of these looks at all sessions.
	w.mu.Lock()
	s := w.sessions["1234"]
	w.mu.Unlock()
	for _, match := range []Match{{ID: "1234"}, {Username: "user1234"}, {IPv4: s.lease.IPv4}, {IPv6: s.lease.IPv6}, {IPv6: s.lease.IPv6Prefix.Addr().Next()},
		{IPv6: s.lease.Delegated.Addr().Next()}, {Delegated: s.lease.Delegated}, {CallingStationID: "0200.0000.04D2"}, {CallingStationID: "02-00-00-00-04-d2"},
		{CallingStationID: "line 1234"}, {MAC: s.connection.Line.MAC}} {
		if found := w.matching(match); !slices.Equal(found, []string{"1234"}) || !match.indexed() {
			t.Errorf("%+v: %v", match, found)
		}
	}
	for _, match := range []Match{{CallingStationID: "line"}, {CallingStationID: "02000000ffff"}, {IPv6: netip.MustParseAddr("2001:db9::1")}, {CallingStationID: "line 1234", Username: "x"}} {
		if found := w.matching(match); len(found) != 0 {
			t.Errorf("%+v: %v", match, found)
		}
	}
	if n, err := served.DisconnectSubscribers(t.Context(), &api.SubscribersDisconnection{All: true}); err != nil || n.Count != count-1 {
		t.Error(n, err)
	}
}

func TestSubscribersAreListedAndEndedByAnySelector(t *testing.T) {
	w := newWorld(t)
	alice := w.connection("1", "alice", 1)
	alice.Line.CircuitID, alice.Line.RemoteID = []byte("olt 7"), []byte("home \xff")
	alice.Service, alice.PPPoESessionID = "gold", 4711
	alice.Grant.Routes, alice.Grant.DNS = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, []netip.Addr{netip.MustParseAddr("192.0.2.54")}
	alice.Grant.Redirect = "garden"
	w.setPortal("garden", &api.Portal{Url: "http://portal.example/"})
	got := w.connect(alice)
	w.connect(w.connection("2", "bob", 2))
	w.counted(0, []*api.SessionCounters{{Session: got.Session, UpBytes: 7}})
	served := queryServer{manager: w.manager}
	list := func(q *api.SubscribersQuery) (ids []string, first *api.SubscriberState) {
		answer, err := served.list(t.Context(), q)
		if err != nil {
			t.Errorf("%v: %v", q, err)
		}
		for _, s := range answer.GetSubscribers() {
			ids = append(ids, s.Id)
		}
		if len(ids) > 0 {
			first = answer.Subscribers[0]
		}
		return ids, first
	}
	for _, c := range []struct {
		query *api.SubscribersQuery
		want  []string
	}{
		{&api.SubscribersQuery{}, []string{"1", "2"}},
		{&api.SubscribersQuery{Limit: 1}, []string{"1"}},
		{&api.SubscribersQuery{Username: "alice"}, []string{"1"}},
		{&api.SubscribersQuery{Mac: "02:00:00:00:00:02"}, []string{"2"}},
		{&api.SubscribersQuery{Address: got.IPv4.String()}, []string{"1"}},
		{&api.SubscribersQuery{Circuit: "access:100.7"}, []string{"1", "2"}},
		{&api.SubscribersQuery{Circuit: "access"}, []string{"1", "2"}},
		{&api.SubscribersQuery{Circuit: "access:100.8"}, nil},
		{&api.SubscribersQuery{Protocol: "dhcp4"}, nil},
		{&api.SubscribersQuery{Profile: "home", Username: "bob"}, []string{"2"}},
		{&api.SubscribersQuery{CircuitId: "olt 7"}, []string{"1"}},
		{&api.SubscribersQuery{RemoteId: "home ?"}, []string{"1"}},
		{&api.SubscribersQuery{Service: "gold"}, []string{"1"}},
		{&api.SubscribersQuery{Portal: "garden"}, []string{"1"}},
		{&api.SubscribersQuery{PppoeSessionId: 4711}, []string{"1"}},
		{&api.SubscribersQuery{PppoeSessionId: 4711, Username: "bob"}, nil},
		{&api.SubscribersQuery{OuterVlan: 100}, []string{"1", "2"}},
		{&api.SubscribersQuery{OuterVlan: 100, InnerVlan: 8}, nil},
		{&api.SubscribersQuery{Route: "198.51.100.0/24"}, []string{"1"}},
		{&api.SubscribersQuery{Route: "198.51.100.9"}, []string{"1"}},
		{&api.SubscribersQuery{Route: "198.51.100.0/25"}, nil},
		{&api.SubscribersQuery{Gateway: got.Gateway.String()}, []string{"1", "2"}},
		{&api.SubscribersQuery{Dns: "192.0.2.54"}, []string{"1"}},
		{&api.SubscribersQuery{Dns: "192.0.2.55"}, nil},
	} {
		if ids, _ := list(c.query); !slices.Equal(ids, c.want) {
			t.Errorf("%v: %v, not %v", c.query, ids, c.want)
		}
	}
	if _, first := list(&api.SubscribersQuery{Id: "1"}); first.GetUp().GetBytes() != 7 || first.GetIpv4Address() != got.IPv4.String() || first.GetCircuit() != "access:100.7" {
		t.Errorf("%v", first)
	}
	page, err := served.list(t.Context(), &api.SubscribersQuery{Limit: 1})
	if err != nil || page.GetNextPage() == "" {
		t.Fatal(page, err)
	}
	if ids, _ := list(&api.SubscribersQuery{Page: page.GetNextPage()}); !slices.Equal(ids, []string{"2"}) {
		t.Errorf("the second page: %v", ids)
	}
	for _, q := range []*api.SubscribersQuery{{Mac: "x"}, {Address: "x"}, {Route: "x"}, {Gateway: "x"}, {Dns: "x"}} {
		if _, err := served.list(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", q, err)
		}
	}
	if _, err := served.DisconnectSubscribers(t.Context(), &api.SubscribersDisconnection{}); status.Code(err) != codes.InvalidArgument {
		t.Error("all subscribers are ended by a query that says nothing")
	}
	if n, err := served.DisconnectSubscribers(t.Context(), &api.SubscribersDisconnection{Which: &api.SubscribersQuery{CircuitId: "olt 7"}}); err != nil || n.Count != 1 {
		t.Error(n, err)
	}
	if n, err := served.DisconnectSubscribers(t.Context(), &api.SubscribersDisconnection{All: true}); err != nil || n.Count != 1 {
		t.Error(n, err)
	}
}

// BenchmarkRestart restores 192,000 subscribers of both families; B/session is the manager's memory of each.
func BenchmarkRestart(b *testing.B) {
	const count = 192_000
	w := &world{}
	values, p := make([][]byte, count), newPacker()
	for i := range values {
		c := w.connection(fmt.Sprint("1a2061482", i), fmt.Sprintf("user-%d@example.net", i), 1)
		c.Line.MAC = MAC{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		c.IPv6 = true
		s := &session{connection: c, since: began, accounting: []string{"radius"},
			lease: Lease{Session: "pppoe-" + c.ID, VRF: "default", IPv4: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
				Delegated: netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 16), byte(i >> 8), byte(i)}), 56)}}
		values[i] = slices.Clone(p.pack(s))
	}
	b.ReportMetric(float64(len(values[0])), "B/record")
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m := newManager(slog.New(slog.DiscardHandler), discard{}, nil, false)
		records := make([]durable.Record, len(values))
		for i, v := range values {
			records[i] = durable.Record{Key: strconv.Itoa(i), Value: v}
		}
		m.loadRecords(records, func(_ durable.Record, err error) { b.Fatal(err) })
		m.setPool("home", &api.AddressPool{Ranges: []string{"10.0.0.0/8"}})
		m.setPool("homes", &api.AddressPool{Ranges: []string{"2001:db8::/32"}, PrefixLength: 56})
		m.setProfile("home", &api.SubscriberProfile{Ipv4Pools: []string{"home"}, DelegatedPools: []string{"homes"}, IdleTimeout: 1800e9})
		m.begin()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/session")
		m.close()
	}
}

// discard is a data plane without output.
type discard struct{}

func (discard) Put(*object.Object, func(service.Result)) {}
func (discard) Delete(object.Key, func(service.Result))  {}
