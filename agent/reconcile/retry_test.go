package reconcile

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func route(name, nextHop string) *object.Object {
	return made("Route", name, &api.Route{Prefix: "198.51.100.0/24", NextHops: []*api.NextHop{{Address: nextHop}}})
}

func vrf(name string) *object.Object { return made("Vrf", name, &api.Vrf{}) }

func TestWhatIsNeededWithoutBeingNamed(t *testing.T) {
	uplink := made("Interface", "up", &api.Interface{Port: "p", Addresses: []string{"192.0.2.1/24"}})
	neighbor := made("Neighbor", "n", &api.Neighbor{Interface: "up", Address: "192.0.2.2", Mac: "02:00:00:00:00:01"})
	r, p, a, b, v := route("r", "192.0.2.2"), port("p"), acl("a"), acl("b"), vrf("v")
	s := session("s", "p", 1, "")
	key := func(o *object.Object) object.Key { return o.Key() }
	for _, c := range []struct {
		sentence string
		// In turns: an object, and what it needs.
		needs           []*object.Object
		before, changes []object.Change
		want            []string
		refused         int
		// Who fails at last, and what is said about it.
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
		for _, mode := range []Mode{BestEffort, AllOrNothing} {
			name := c.sentence
			if mode == AllOrNothing {
				name += ", all or nothing"
			}
			t.Run(name, func(t *testing.T) {
				s := newScene(t, Options{MinBackoff: time.Hour, MaxBackoff: time.Hour})
				s.plane.never[acl("never").Key()] = true
				s.plane.needs = map[object.Key]object.Key{}
				s.apply(nil)
				for pair := range slices.Chunk(c.needs, 2) {
					s.plane.needs[key(pair[0])] = key(pair[1])
				}
				s.apply(c.before)
				s.plane.mu.Lock()
				s.plane.refused = 0
				s.plane.mu.Unlock()
				s.plane.takeLog()
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				out, err := s.Apply(ctx, "test", c.changes, mode)
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
				if out.Undone != (mode == AllOrNothing && len(c.failures) > 0) {
					t.Errorf("undone: %v", out.Undone)
				}
				if out.Undone {
					return
				}
				if log := s.plane.takeLog(); !slices.Equal(log, c.want) {
					t.Errorf("the plane did %q, not %q", log, c.want)
				}
				s.plane.mu.Lock()
				defer s.plane.mu.Unlock()
				if s.plane.refused != c.refused {
					t.Errorf("%d were refused, not %d", s.plane.refused, c.refused)
				}
				for _, o := range out.Objects {
					if o.State != Applied && o.State != Gone && len(c.failures) == 0 {
						t.Errorf("%s is %s: %s", o.Key, o.State, o.Message)
					}
				}
			})
		}
	}
}

func TestWhatFailedStaysFailedWhileItIsTriedAgain(t *testing.T) {
	s := newScene(t, Options{})
	a, p := acl("a"), port("p")
	s.plane.never[p.Key()] = true
	s.plane.needs = map[object.Key]object.Key{a.Key(): acl("b").Key()}
	s.apply(puts(a, p))
	sub := s.Subscribe(1000)
	defer sub.Close()
	s.plane.mu.Lock()
	before := s.plane.requests
	s.plane.mu.Unlock()
	tried := false
	for range 3000 {
		s.plane.mu.Lock()
		tried = s.plane.requests > before+10
		s.plane.mu.Unlock()
		for _, k := range []object.Key{a.Key(), p.Key()} {
			if got, _ := s.Get(k); got.State != Failed {
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
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if len(sub.events) > 0 {
		t.Errorf("%d changes of state were told, the first %+v", len(sub.events), sub.events[0].Status)
	}
}

func TestTheLogSaysHowManyObjectsDiffer(t *testing.T) {
	reg := registry(t)
	plane := newMockPlane(reg)
	var intents []Intent
	for _, o := range []*object.Object{port("p"), acl("a"), acl("b"), session("s", "p", 1, "a")} {
		intents = append(intents, Intent{o.Key(), o, "test", 1})
		spec, err := object.Pack(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		if o.Name != "b" {
			plane.put(Object{o.Key(), spec})
		}
	}
	plane.put(Object{acl("stray").Key(), nil})
	var log bytes.Buffer
	r := New(reg, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := r.Load(intents); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	r.Attach(ctx, plane)
	if _, err := r.Apply(ctx, "test", puts(acl("c")), BestEffort); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
	// Acl/b is missing, Acl/stray is too much; Acl/c may be wanted by then or not.
	if text := log.String(); !strings.Contains(text, "objects=4 different=2") && !strings.Contains(text, "objects=4 different=3") {
		t.Error(text)
	}
}
