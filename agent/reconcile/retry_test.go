// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func route(name, nextHop string) *object.Object {
	return made("Route", name, &api.Route{Prefix: "198.51.100.0/24", NextHops: []*api.NextHop{{Address: nextHop}}})
}

func vrf(name string) *object.Object { return made("Vrf", name, &api.Vrf{}) }

func TestDependenciesWithoutAReference(t *testing.T) {
	uplink := made("Interface", "up", &api.Interface{Port: "p", Addresses: []string{"192.0.2.1/24"}})
	neighbor := made("Neighbor", "n", &api.Neighbor{Interface: "up", Address: "192.0.2.2", Mac: "02:00:00:00:00:01"})
	r, p, a, b, v := route("r", "192.0.2.2"), port("p"), acl("a"), acl("b"), vrf("v")
	s := session("s", "p", 1, "")
	key := func(o *object.Object) object.Key { return o.Key() }
	for _, c := range []struct {
		sentence string
		// Alternating: an object, and the object that it needs.
		needs           []*object.Object
		before, changes []object.Change
		want            []string
		refused         int
		// The entries that fail at last, and their messages.
		failures []string
	}{
		{"a route comes after the interface that it finds by an address", []*object.Object{r, uplink}, nil, puts(r, uplink, p),
			[]string{"create Port/p", "create Interface/up", "create Route/r"}, 0, nil},
		{"a session comes after routes, they after neighbors", []*object.Object{s, r, r, neighbor}, nil, puts(s, r, neighbor, uplink, p),
			[]string{"create Port/p", "create Interface/up", "create Neighbor/n", "create Route/r", "create Session/s"}, 0, nil},
		{"what is refused is tried again when something else is there", []*object.Object{a, p}, nil, puts(a, p),
			[]string{"create Port/p", "create Acl/a"}, 1, nil},
		{"each that makes something possible has the others tried again", []*object.Object{a, p, p, v}, nil, puts(a, p, v),
			[]string{"create Vrf/v", "create Port/p", "create Acl/a"}, 3, nil},
		{"those who need what is refused wait for it", []*object.Object{p, v}, nil, puts(p, s, v),
			[]string{"create Vrf/v", "create Port/p", "create Session/s"}, 1, nil},
		{"what cannot be is told when nothing else can be done", []*object.Object{a, b}, nil, puts(a, p, s),
			[]string{"create Port/p", "create Session/s"}, 2, []string{"Acl/a: no Acl/b"}},
		{"what fails by itself is told at once", nil, nil, puts(acl("never"), p), []string{"create Port/p"}, 1, []string{"Acl/never: no room"}},
		{"a route goes before the interface that it found", []*object.Object{r, uplink}, puts(r, uplink, p), removes(p, r, uplink),
			[]string{"delete Route/r", "delete Interface/up", "delete Port/p"}, 0, nil},
		{"a deletion is tried again when something else is gone", []*object.Object{a, v}, puts(a, v), removes(a, v),
			[]string{"delete Acl/a", "delete Vrf/v"}, 1, nil},
		{"what somebody uses who stays is not deleted", []*object.Object{a, v}, puts(a, v), removes(v), nil, 1, []string{"Vrf/v is in use"}},
		{"what one lets go of another may delete", []*object.Object{a, v}, puts(a, v), both(removes(v), removes(a), puts(p)),
			[]string{"delete Acl/a", "create Port/p", "delete Vrf/v"}, 1, nil},
	} {
		for _, mode := range []intent.Mode{intent.BestEffort, intent.AllOrNothing} {
			name := c.sentence
			if mode == intent.AllOrNothing {
				name += ", all or nothing"
			}
			t.Run(name, func(t *testing.T) {
				s := newScene(t, reconcile.Options{MinBackoff: time.Hour, MaxBackoff: time.Hour})
				s.plane.Never[acl("never").Key()] = true
				s.plane.Needs = map[object.Key]object.Key{}
				s.apply(nil)
				for pair := range slices.Chunk(c.needs, 2) {
					s.plane.Needs[key(pair[0])] = key(pair[1])
				}
				s.apply(c.before)
				s.plane.Lock()
				s.plane.Refused = 0
				s.plane.Unlock()
				s.plane.TakeLog()
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				out, err := s.Apply(ctx, as("test"), c.changes, intent.Options{Mode: mode})
				if err != nil {
					t.Fatal(err)
				}
				var failures []string
				for _, f := range out.Failures {
					failures = append(failures, f.Message)
				}
				if !slices.Equal(failures, c.failures) {
					t.Errorf("failures %q, not %q", failures, c.failures)
				}
				if out.Undone != (mode == intent.AllOrNothing && len(c.failures) > 0) {
					t.Errorf("undone: %v", out.Undone)
				}
				if out.Undone {
					return
				}
				if log := s.plane.TakeLog(); !slices.Equal(log, c.want) {
					t.Errorf("the plane did %q, not %q", log, c.want)
				}
				s.plane.Lock()
				defer s.plane.Unlock()
				if s.plane.Refused != c.refused {
					t.Errorf("%d were refused, not %d", s.plane.Refused, c.refused)
				}
				for _, one := range out.Objects {
					o := one.Status
					if o.State != intent.Applied && o.State != intent.Gone && len(c.failures) == 0 {
						t.Errorf("%s is %s: %s", o.Key, o.State, o.Message)
					}
				}
			})
		}
	}
}

func TestAFailedObjectStaysFailedDuringARetry(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	a, p := acl("a"), port("p")
	s.plane.Never[p.Key()] = true
	s.plane.Needs = map[object.Key]object.Key{a.Key(): acl("b").Key()}
	s.apply(puts(a, p))
	events, err := s.Events(intent.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	s.plane.Lock()
	before := s.plane.Requests
	s.plane.Unlock()
	tried := false
	for range 3000 {
		s.plane.Lock()
		tried = s.plane.Requests > before+10
		s.plane.Unlock()
		for _, k := range []object.Key{a.Key(), p.Key()} {
			if got, _ := s.Get(k); got.State != intent.Failed {
				t.Fatalf("%s is %s: %s", k, got.State, got.Message)
			}
		}
		if tried {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !tried {
		t.Error("it was not tried again")
	}
	soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if e, err := events.Next(soon); err == nil {
		t.Errorf("a change of state was told: %+v", e.Status)
	}
}

func TestTheLogSaysHowManyObjectsDiffer(t *testing.T) {
	reg := registry(t)
	plane := reconciletest.NewPlane(reg)
	var objects []*object.Object
	for _, o := range []*object.Object{port("p"), acl("a"), acl("b"), session("s", "p", 1, "a")} {
		objects = append(objects, o)
		spec, err := object.Pack(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if o.Name != "b" {
			plane.Set(reconcile.Object{Key: o.Key(), Spec: string(spec)})
		}
	}
	plane.Set(reconcile.Object{Key: acl("stray").Key()})
	var log bytes.Buffer
	r := desired(t, intent.Config{Registry: reg, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := r.Apply(context.Background(), as("test"), puts(objects...), intent.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	r.Attach(ctx, plane)
	if _, err := r.Apply(ctx, as("test"), puts(acl("c")), intent.Options{}); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	// Acl/b is missing, Acl/stray is a leftover; Acl/c may be desired by then or not.
	if text := log.String(); !strings.Contains(text, "objects=4 different=2") && !strings.Contains(text, "objects=4 different=3") {
		t.Error(text)
	}
}

func TestAnEmptyDesiredStateIsWarnedOfDeletions(t *testing.T) {
	reg := registry(t)
	for _, configured := range []bool{false, true} {
		plane := reconciletest.NewPlane(reg)
		plane.Set(reconcile.Object{Key: acl("stray").Key()})
		var log bytes.Buffer
		d := desired(t, intent.Config{Registry: reg, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if configured {
			if _, err := d.Apply(t.Context(), as("test"), puts(acl("a")), intent.Options{Mode: intent.NoWait}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { d.Run(ctx); close(ended) }()
		d.Attach(ctx, plane)
		for range 3000 {
			if slices.Contains(plane.TakeLog(), "delete Acl/stray") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		<-ended
		if warned := strings.Contains(log.String(), "the configuration is empty"); warned == configured {
			t.Errorf("desired state: %t; the log says\n%s", configured, &log)
		}
	}
}
