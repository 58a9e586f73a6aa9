// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func registry(t testing.TB) *object.Registry {
	t.Helper()
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func made(kind, name string, spec proto.Message) *object.Object {
	return &object.Object{Kind: kind, Name: name, Spec: spec}
}

func port(name string) *object.Object {
	return made("Port", name, &api.Port{Device: "net_null_" + name})
}

func acl(name string) *object.Object { return made("Acl", name, &api.Acl{}) }

func session(name, port string, vlan uint32, acl string) *object.Object {
	return made("Session", name, &api.Session{
		Access: &api.Access{Port: port, OuterVlan: vlan}, Policy: &api.Policy{AclUp: acl},
	})
}

func loopback(name string, addresses ...string) *object.Object {
	return made("Interface", name, &api.Interface{Addresses: addresses})
}

func puts(objects ...*object.Object) []object.Change {
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Put(o))
	}
	return changes
}

func removes(objects ...*object.Object) []object.Change {
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Remove(o.Key()))
	}
	return changes
}

func both(changes ...[]object.Change) []object.Change { return slices.Concat(changes...) }

// scene is a Reconciler that runs, with a plane.
type scene struct {
	*intent.Desired
	registry *object.Registry
	t        testing.TB
	plane    *reconciletest.Plane
	// In its place, if it is not nil.
	willing reconciletest.Willing
	link    context.CancelFunc
}

func desired(t testing.TB, c intent.Config) *intent.Desired {
	t.Helper()
	d, err := intent.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// as is a source.
func as(owner string) intent.Source { return intent.Source{Owner: owner} }

func newScene(t testing.TB, o reconcile.Options) *scene {
	t.Helper()
	reg := registry(t)
	if o.MinBackoff == 0 {
		o.MinBackoff, o.MaxBackoff = time.Millisecond, 5*time.Millisecond
	}
	s := &scene{Desired: desired(t, intent.Config{Registry: reg, Reconciler: o}), registry: reg, t: t, plane: reconciletest.NewPlane(reg)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	s.connect()
	return s
}

func (s *scene) connect() {
	ctx, cancel := context.WithCancel(context.Background())
	s.link = cancel
	s.t.Cleanup(cancel)
	if s.willing != nil {
		s.Attach(ctx, s.willing)
	} else {
		s.Attach(ctx, s.plane)
	}
}

// willing replaces the plane by one that refuses nothing.
func willing(s *scene) *scene {
	s.link()
	s.willing = make(reconciletest.Willing, 250_000)
	s.connect()
	return s
}

func (s *scene) apply(changes []object.Change) *intent.Outcome {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := s.Apply(ctx, as("test"), changes, intent.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// eventually waits until the plane has the desired state.
func (s *scene) eventually(expected ...*object.Object) {
	s.t.Helper()
	all := map[object.Key]*object.Object{}
	for _, o := range expected {
		all[o.Key()] = o
	}
	s.eventuallyAll(all)
}

func (s *scene) eventuallyAll(expected map[object.Key]*object.Object) {
	s.t.Helper()
	var found []string
	for range 3000 {
		if found = s.plane.Differences(expected); len(found) == 0 && s.Settled() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, k := range slices.SortedFunc(maps.Keys(expected), object.Key.Compare) {
		if status, _ := s.Get(k); status.State != intent.Applied {
			found = append(found, fmt.Sprintf("%s is %s: %s", k, status.State, status.Message))
		}
	}
	s.t.Fatalf("the plane does not have the desired state:\n%s", strings.Join(found, "\n"))
}

func TestPlansAndWhatIsDone(t *testing.T) {
	a, b, p := acl("a"), acl("b"), port("p")
	s1, s2 := session("s1", "p", 1, "a"), session("s2", "p", 2, "a")
	moved := made("Port", "p", &api.Port{Device: "net_null_other"})
	port2 := func(name, device string) *object.Object {
		return made("Port", name, &api.Port{Device: "net_null_" + device})
	}
	drop := func(name, prefix string) *object.Object {
		return made("Route", name, &api.Route{Prefix: prefix, Action: api.RouteAction_BLACKHOLE})
	}
	swap1, swap2 := loopback("x", "192.0.2.1/32"), loopback("y", "192.0.2.2/32")
	for _, c := range []struct {
		sentence string
		before   []object.Change
		changes  []object.Change
		want     []string
	}{
		{"what is needed is created first", nil, puts(s2, s1, p, a),
			[]string{"create Acl/a", "create Port/p", "create Session/s1", "create Session/s2"}},
		{"what needs others is deleted first", puts(a, p, s1), removes(a, p, s1),
			[]string{"delete Session/s1", "delete Port/p", "delete Acl/a"}},
		{"what waits for something that is not there is not done", nil, puts(s1, p), []string{"create Port/p"}},
		{"what waited is done as soon as it can be", puts(s1, p), puts(a), []string{"create Acl/a", "create Session/s1"}},
		{"a change that can be made in place is an update", puts(p, a, b, s1), puts(session("s1", "p", 1, "b")), []string{"update Session/s1"}},
		{"what a session is known by changes in place", puts(p, a, s1), puts(session("s1", "p", 9, "a")), []string{"update Session/s1"}},
		{"also to another port, before the one that it leaves goes", puts(p, a, s1), both(removes(p), puts(port("q"), session("s1", "q", 1, "a"))),
			[]string{"create Port/q", "update Session/s1", "delete Port/p"}},
		{"it stays on the port that it leaves until the other is there", puts(p, a, s1), both(removes(p), puts(session("s1", "q", 1, "a"))), nil},
		{"unless that is taken by others", puts(p, a, s1), both(removes(p), puts(port2("r", "p"), session("s1", "q", 1, "a"))),
			[]string{"delete Session/s1", "delete Port/p", "create Port/r"}},
		{"or what it is known by is", puts(p, a, s1), puts(session("s1", "q", 1, "a"), session("s2", "p", 1, "a")),
			[]string{"delete Session/s1", "create Session/s2"}},
		{"nor for one that waits for what the port has", puts(p, a, s1), both(removes(p), puts(port2("q", "p"), session("s1", "q", 1, "a"))),
			[]string{"delete Session/s1", "delete Port/p", "create Port/q", "create Session/s1"}},
		{"two that exchange what they are known by: one of them is replaced", puts(p, a, s1, s2), puts(session("s1", "p", 2, "a"), session("s2", "p", 1, "a")),
			[]string{"delete Session/s2", "update Session/s1", "create Session/s2"}},
		{"three in a ring, too", puts(p, a, s1, s2, session("s3", "p", 3, "a")), puts(session("s1", "p", 2, "a"), session("s2", "p", 3, "a"), session("s3", "p", 1, "a")),
			[]string{"delete Session/s3", "update Session/s2", "update Session/s1", "create Session/s3"}},
		{"a change that cannot be made in place is a replacement", puts(drop("r", "198.51.100.0/24")), puts(drop("r", "198.51.101.0/24")),
			[]string{"delete Route/r", "create Route/r"}},
		{"a replacement rebuilds those who need it", puts(p, a, s1, s2), puts(moved),
			[]string{"delete Session/s1", "delete Session/s2", "delete Port/p", "create Port/p", "create Session/s1", "create Session/s2"}},
		{"those who need something that is deleted go first and wait", puts(p, a, s1), removes(p), []string{"delete Session/s1", "delete Port/p"}},
		{"what is deleted is first let go of by those who no longer need it", puts(p, a, b, s1),
			both(removes(a), puts(session("s1", "p", 1, "b"))), []string{"update Session/s1", "delete Acl/a"}},
		{"what one gives up is given up before another takes it", puts(p, a, s1), both(removes(s1), puts(session("s3", "p", 1, "a"))),
			[]string{"delete Session/s1", "create Session/s3"}},
		{"two that exchange what they have are taken apart", puts(swap1, swap2), puts(loopback("x", "192.0.2.2/32"), loopback("y", "192.0.2.1/32")),
			[]string{"delete Interface/y", "update Interface/x", "create Interface/y"}},
		{"a chain of what is given up is followed from its end", puts(loopback("x", "192.0.2.1/32"), loopback("y", "192.0.2.2/32")),
			puts(loopback("x", "192.0.2.2/32"), loopback("y", "192.0.2.3/32")), []string{"update Interface/y", "update Interface/x"}},
		{"what says the same again is left alone", puts(p, a, s1), puts(p, a, s1), nil},
		{"labels alone do not reach the data plane", puts(a), puts(&object.Object{Kind: "Acl", Name: "a", Labels: map[string]string{"x": "y"}, Spec: &api.Acl{}}), nil},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			s.apply(c.before)
			s.plane.TakeLog()
			plan, err := s.Plan(as("test"), c.changes, intent.Options{})
			if err != nil {
				t.Fatal(err)
			}
			planned := plan.Operations
			if again, _ := s.Plan(as("test"), c.changes, intent.Options{}); !reflect.DeepEqual(planned, again.Operations) {
				t.Errorf("planned a second time: %v, not %v", reconciletest.Describe(again.Operations), reconciletest.Describe(planned))
			}
			if got := reconciletest.Describe(planned); !slices.Equal(got, c.want) {
				t.Errorf("planned %q, not %q", got, c.want)
			}
			if log := s.plane.TakeLog(); len(log) > 0 {
				t.Errorf("the plan did %q", log)
			}
			out := s.apply(c.changes)
			for i := range planned {
				planned[i].Impact = reconcile.NoImpact // operations do not have it
			}
			if !reflect.DeepEqual(out.Operations, planned) {
				t.Errorf("did %v, not as planned %v", out.Operations, planned)
			}
			if log := s.plane.TakeLog(); !slices.Equal(log, c.want) {
				t.Errorf("the plane did %q, not %q", log, c.want)
			}
		})
	}
}

func TestStatusSaysWhatAnObjectWaitsFor(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	out := s.apply(puts(session("s", "p", 1, "")))
	if got := out.Objects[0].Status; got.State != intent.Pending || got.Message != "waits for Port/p (access.port), which is not there; not in the data plane" {
		t.Errorf("it is %s: %s", got.State, got.Message)
	}
	s.plane.Never[port("p").Key()] = true
	out = s.apply(puts(port("p")))
	if got := out.Objects[0].Status; got.State != intent.Failed || got.Message != "Port/p: no room" {
		t.Errorf("the port is %s: %s", got.State, got.Message)
	}
	if got, _ := s.Get(object.Key{Kind: "Session", Name: "s"}); got.State != intent.Pending || got.Message != "waits for Port/p, which failed: Port/p: no room; not in the data plane" {
		t.Errorf("the session is %s: %s", got.State, got.Message)
	}
}

func TestAFailedObjectIsRetried(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.plane.Never[port("p").Key()] = true
	s.apply(puts(port("p"), session("s", "p", 1, "")))
	s.plane.Lock()
	clear(s.plane.Never)
	s.plane.Unlock()
	s.eventually(port("p"), session("s", "p", 1, ""))
}

func TestAllOrNothing(t *testing.T) {
	ctx := context.Background()
	t.Run("what the data plane refuses undoes everything", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		s.apply(puts(port("p"), acl("a"), session("s", "p", 1, "a")))
		s.plane.Never[session("t", "p", 2, "").Key()] = true
		out, err := s.Apply(ctx, as("test"), both(puts(session("s", "p", 7, ""), session("t", "p", 2, ""), acl("n")), removes(acl("a"))), intent.Options{Mode: intent.AllOrNothing})
		if err != nil || !out.Undone || len(out.Failures) == 0 {
			t.Fatalf("outcome %+v, error %v", out, err)
		}
		s.eventually(port("p"), acl("a"), session("s", "p", 1, "a"))
		if _, there := s.Get(acl("n").Key()); there {
			t.Error("the new ACL is still desired")
		}
	})
	t.Run("what succeeds stands", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		s.apply(nil)
		for range 1000 {
			if out, err := s.Apply(ctx, as("test"), puts(port("p"), session("s", "p", 1, "")), intent.Options{Mode: intent.AllOrNothing}); err != nil || out.Undone {
				t.Fatalf("outcome %+v, error %v", out, err)
			}
		}
		s.eventually(port("p"), session("s", "p", 1, ""))
	})
	t.Run("without a data plane nothing is changed", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		s.Detach()
		if _, err := s.Apply(ctx, as("test"), puts(port("p")), intent.Options{Mode: intent.AllOrNothing}); !errors.Is(err, intent.ErrDisconnected) {
			t.Fatalf("error %v", err)
		}
		if _, there := s.Get(port("p").Key()); there {
			t.Error("the port is desired")
		}
	})
	t.Run("a connection that is lost in the middle undoes everything", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		s.apply(puts(port("q")))
		s.plane.Before = func() { s.plane.Before = nil; s.link() }
		out, err := s.Apply(ctx, as("test"), puts(port("p")), intent.Options{Mode: intent.AllOrNothing})
		if !errors.Is(err, intent.ErrDisconnected) || !out.Undone {
			t.Fatalf("outcome %+v, error %v", out, err)
		}
		s.connect()
		s.eventually(port("q"))
	})
}

func TestRepairOnReconnect(t *testing.T) {
	t.Run("only the difference is repaired", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		s.apply(puts(port("p"), acl("a"), acl("b"), session("s", "p", 1, "a"), session("t", "p", 2, "a")))
		s.link()
		s.plane.Lock()
		s.plane.Forget(session("t", "p", 2, "a").Key())
		spec, _ := object.Pack(&api.Acl{Otherwise: api.AclAction_PERMIT})
		s.plane.Set(reconcile.Object{Key: acl("b").Key(), Spec: string(spec)})
		s.plane.Set(reconcile.Object{Key: acl("stray").Key(), Spec: string(spec)})
		s.plane.Unlock()
		s.plane.TakeLog()
		s.connect()
		s.eventually(port("p"), acl("a"), acl("b"), session("s", "p", 1, "a"), session("t", "p", 2, "a"))
		log := s.plane.TakeLog()
		slices.Sort(log)
		if want := []string{"create Session/t", "delete Acl/stray", "update Acl/b"}; !slices.Equal(log, want) {
			t.Errorf("did %q, not %q", log, want)
		}
	})
	t.Run("a data plane that was started again gets everything", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		all := []*object.Object{port("p"), acl("a"), session("s", "p", 1, "a")}
		s.apply(puts(all...))
		s.link()
		s.plane.Restart()
		s.connect()
		s.eventually(all...)
	})
	t.Run("an agent that was started again does nothing to what is right", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		all := []*object.Object{port("p"), acl("a"), session("s", "p", 1, "a")}
		s.apply(puts(all...))
		s.link()
		s.plane.TakeLog()
		second := desired(t, intent.Config{Registry: s.registry})
		if _, err := second.Apply(context.Background(), as("test"), puts(all...), intent.Options{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { second.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		second.Attach(ctx, s.plane)
		if _, err := second.Apply(ctx, as("test"), puts(acl("new")), intent.Options{}); err != nil {
			t.Fatal(err)
		}
		if log := s.plane.TakeLog(); !slices.Equal(log, []string{"create Acl/new"}) {
			t.Errorf("did %q", log)
		}
	})
	t.Run("a builtin object is not deleted but emptied", func(t *testing.T) {
		s := newScene(t, reconcile.Options{})
		v := made("Vrf", "default", &api.Vrf{Description: "the internet"})
		s.apply(puts(v))
		s.eventually(v)
		s.apply(removes(v))
		if log := s.plane.TakeLog(); !slices.Equal(log, []string{"create Vrf/default", "update Vrf/default"}) {
			t.Errorf("did %q", log)
		}
		if _, there := s.Get(v.Key()); there {
			t.Error("it is still desired")
		}
	})
}

func TestOwners(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(puts(acl("a")))
	_, err := s.Apply(context.Background(), as("another"), removes(acl("a")), intent.Options{})
	var conflicts *intent.Conflicts
	if !errors.As(err, &conflicts) || conflicts.All[0].Holder != "test" || conflicts.All[0].Owner != "another" {
		t.Errorf("error %v", err)
	}
	s.eventually(acl("a"))
}

func TestASlowDataPlaneBlocksNeitherPlanNorGet(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(puts(acl("a")))
	entered, leave := make(chan struct{}), make(chan struct{})
	s.plane.Before = func() { s.plane.Before = nil; close(entered); <-leave }
	done := make(chan struct{})
	go func() { s.apply(puts(port("p"))); close(done) }()
	<-entered
	if ops, err := s.Plan(as("test"), puts(session("s", "p", 1, "")), intent.Options{}); err != nil || !slices.Equal(reconciletest.Describe(ops.Operations), []string{"create Session/s"}) {
		t.Errorf("planned %v, error %v", ops, err)
	}
	if got, _ := s.Get(port("p").Key()); got.State != intent.Pending || got.Message != "is being applied" {
		t.Errorf("the port is %s: %s", got.State, got.Message)
	}
	if out, err := s.Apply(context.Background(), as("test"), puts(acl("b")), intent.Options{Mode: intent.NoWait}); err != nil || out.Objects[0].Status.State != intent.Pending {
		t.Errorf("outcome %+v, error %v", out, err)
	}
	close(leave)
	<-done
	s.eventually(acl("a"), acl("b"), port("p"))
}

func TestAReaderOfEventsResumesOrIsToldThatItIsTooLate(t *testing.T) {
	d := desired(t, intent.Config{Registry: registry(t), Events: 40})
	read := func(e *intent.Events, count int) []string {
		t.Helper()
		var names []string
		for range count {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			next, err := e.Next(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, next.Status.Key.Name)
		}
		return names
	}
	start, err := d.Events(intent.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := d.Apply(context.Background(), as("test"), puts(acl(fmt.Sprint("a", i))), intent.Options{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 4)
	if got := read(start, 2); !slices.Equal(got, []string{"a0", "a1"}) {
		t.Errorf("told of %q", got)
	}
	cursor, err := intent.ParseCursor(start.Cursor().String())
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Events(cursor)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(again, 2); !slices.Equal(got, []string{"a2", "a3"}) {
		t.Errorf("after resuming told of %q", got)
	}
	put(4, 50)
	if _, err := again.Next(context.Background()); !errors.Is(err, intent.ErrTooLate) {
		t.Errorf("a reader that is far behind: %v", err)
	}
	if _, err := d.Events(cursor); !errors.Is(err, intent.ErrTooLate) {
		t.Errorf("a reader that comes back late: %v", err)
	}
	page, err := d.List(intent.Query{})
	if err != nil || len(page.Objects) != 50 {
		t.Fatalf("%d objects, %v", len(page.Objects), err)
	}
	follow, err := d.Events(page.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	put(50, 51)
	if got := read(follow, 1); !slices.Equal(got, []string{"a50"}) {
		t.Errorf("after listing told of %q", got)
	}
	second := desired(t, intent.Config{Registry: registry(t)})
	if _, err := second.Events(cursor); !errors.Is(err, intent.ErrTooLate) {
		t.Errorf("a cursor of another log: %v", err)
	}
}

func TestAnySequenceEndsInTheDesiredState(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			s := newScene(t, reconcile.Options{Batch: 1 + random.IntN(8)})
			s.plane.Lock()
			s.plane.Random = rand.New(rand.NewPCG(seed, 2))
			s.plane.Refuse, s.plane.Drop = 100, 20
			s.plane.Unlock()
			expected := map[object.Key]*object.Object{}
			for range 60 {
				changes := randomChanges(random, expected)
				mode := []intent.Mode{intent.BestEffort, intent.AllOrNothing, intent.NoWait}[random.IntN(3)]
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
				out, err := s.Apply(ctx, as("test"), changes, intent.Options{Mode: mode})
				cancel()
				refused := object.AllErrors(err) != nil || errors.Is(err, intent.ErrDisconnected) && out == nil
				if !refused && !(out != nil && out.Undone) {
					for _, c := range changes {
						if delete(expected, c.Key); c.Object != nil {
							expected[c.Key] = c.Object
						}
					}
				}
				switch random.IntN(12) {
				case 0:
					s.link()
					s.connect()
				case 1:
					s.link()
					s.plane.Restart()
					s.connect()
				case 2:
					s.Detach()
				case 3:
					s.connect()
				}
			}
			s.plane.Lock()
			s.plane.Refuse, s.plane.Drop = 0, 0
			s.plane.Unlock()
			s.connect()
			s.eventuallyAll(expected)

			// And now that nothing fails, plans are exact.
			for range 10 {
				s.plane.TakeLog()
				changes := randomChanges(random, expected)
				planned, err := s.Plan(as("test"), changes, intent.Options{})
				if err != nil {
					continue
				}
				s.apply(changes)
				for _, c := range changes {
					if delete(expected, c.Key); c.Object != nil {
						expected[c.Key] = c.Object
					}
				}
				if log := s.plane.TakeLog(); !slices.Equal(log, reconciletest.Describe(planned.Operations)) {
					t.Errorf("did\n%q\nnot as planned\n%q", log, reconciletest.Describe(planned.Operations))
				}
				s.eventuallyAll(expected)
			}

			// Through all of that, no object was counted twice or forgotten.
			if got := s.Count(); got[intent.Applied]+got[intent.Pending] != len(expected) {
				t.Errorf("%v are counted where %d are desired", got, len(expected))
			}
			s.apply(removes(slices.Collect(maps.Values(expected))...))
			s.eventuallyAll(nil)
			if got := s.Count(); len(got) != 0 {
				t.Errorf("%v are counted where nothing is desired", got)
			}
		})
	}
}

// randomChanges are up to six, in any order, with many exchanges, replacements and dangling references among them.
func randomChanges(r *rand.Rand, expected map[object.Key]*object.Object) []object.Change {
	name := func(n int) string { return string(rune('a' + r.IntN(n))) }
	maybe := func(n int) string {
		if r.IntN(3) == 0 {
			return ""
		}
		return name(n)
	}
	byKey := map[object.Key]object.Change{}
	for range 1 + r.IntN(6) {
		var o *object.Object
		switch r.IntN(5) {
		case 0:
			o = made("Port", name(3), &api.Port{Device: fmt.Sprint("net_null_", r.IntN(4)), Mtu: uint32(1500 + r.IntN(2))})
		case 1:
			o = made("Acl", name(3), &api.Acl{Otherwise: api.AclAction(r.IntN(2))})
		case 2:
			i := &api.Interface{Port: maybe(3), AclIn: maybe(3)}
			if i.Unnumbered = maybe(4); i.Unnumbered == "" {
				i.Addresses = []string{fmt.Sprintf("192.0.2.%d/32", 1+r.IntN(4))}
			}
			if i.Port != "" {
				i.OuterVlan = uint32(r.IntN(4))
			}
			o = made("Interface", name(4), i)
		case 3:
			o = session(name(6), name(3), uint32(1+r.IntN(4)), maybe(3))
		case 4:
			o = made("Route", name(3), &api.Route{Prefix: fmt.Sprintf("198.51.%d.0/24", r.IntN(3)), NextHops: []*api.NextHop{{Interface: name(4)}}})
		}
		c := object.Put(o)
		if r.IntN(4) == 0 {
			c = object.Remove(o.Key())
		}
		byKey[c.Key] = c
	}
	changes := slices.Collect(maps.Values(byKey))
	slices.SortFunc(changes, func(a, b object.Change) int { return a.Key.Compare(b.Key) })
	r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	return changes
}

func many(n int) []object.Change {
	changes := puts(port("p"), acl("a"))
	for i := range n {
		o := made("Session", fmt.Sprint("s", i), &api.Session{
			Access:    &api.Access{Port: "p", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)},
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255)},
			Policy:    &api.Policy{AclUp: "a"},
		})
		changes = append(changes, object.Put(o))
	}
	return changes
}

func BenchmarkApply200kObjects(b *testing.B) {
	changes := many(200_000)
	for b.Loop() {
		b.StopTimer()
		s := willing(newScene(b, reconcile.Options{}))
		b.StartTimer()
		s.apply(changes)
	}
}

// The memory of an object: itself, and its state.
func BenchmarkMemoryOf200kObjects(b *testing.B) {
	const count = 200_000
	for b.Loop() {
		s := willing(newScene(b, reconcile.Options{}))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s.apply(many(count))
		clear(s.willing) // the plane's, not the agent's
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/object")
		runtime.KeepAlive(s)
	}
}

func BenchmarkChangeOneOf200kObjects(b *testing.B) {
	s := willing(newScene(b, reconcile.Options{}))
	changes := many(200_000)
	s.apply(changes)
	i := 0
	for b.Loop() {
		i++
		o := changes[2].Object
		spec := proto.Clone(o.Spec).(*api.Session)
		spec.Policy.Mss = uint32(1000 + i%400)
		s.apply(puts(made("Session", o.Name, spec)))
	}
}

func BenchmarkPlanOneOf200kObjects(b *testing.B) {
	s := willing(newScene(b, reconcile.Options{}))
	changes := many(200_000)
	s.apply(changes)
	for b.Loop() {
		if _, err := s.Plan(as("test"), puts(session("s7", "p", 4000, "a")), intent.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRepair200kObjects(b *testing.B) {
	s := willing(newScene(b, reconcile.Options{}))
	s.apply(many(200_000))
	n := 0
	for b.Loop() {
		n++
		s.link()
		s.connect()
		s.apply(puts(acl(fmt.Sprint("probe", n))))
	}
}
