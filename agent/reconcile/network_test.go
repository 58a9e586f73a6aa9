// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func TestARouteGoesWithTheInterfaceOfItsNextHopsAndComesBackWithIt(t *testing.T) {
	p, q, red := port("p"), port("q"), vrf("red")
	at := func(name, port, vrf string, addresses ...string) *object.Object {
		return made("Interface", name, &api.Interface{Port: port, Vrf: vrf, Addresses: addresses})
	}
	to := func(hops ...*api.NextHop) *object.Object {
		return made("Route", "r", &api.Route{Prefix: "203.0.113.0/24", NextHops: hops})
	}
	by := func(address string) *api.NextHop { return &api.NextHop{Address: address} }
	core := at("core", "p", "", "192.0.2.1/24")
	waits := "waits for an interface whose network holds 192.0.2.2 (nextHops[0].address), which is not there; not in the data plane"
	for _, c := range []struct {
		sentence string
		before   []*object.Object
		route    *object.Object
		change   []object.Change
		stays    bool
		back     []object.Change
	}{
		{sentence: "its interface is deleted", before: []*object.Object{core}, route: to(by("192.0.2.2")), change: removes(core), back: puts(core)},
		{sentence: "its interface has another network", before: []*object.Object{core}, route: to(by("192.0.2.2")),
			change: puts(at("core", "p", "", "198.51.100.1/24")), back: puts(core)},
		{sentence: "its interface moves to another port and network", before: []*object.Object{core}, route: to(by("192.0.2.2")),
			change: puts(at("core", "q", "", "198.51.100.1/24")), back: puts(at("core", "q", "", "192.0.2.1/24"))},
		{sentence: "another interface takes its place", before: []*object.Object{core}, route: to(by("192.0.2.2")), change: removes(core),
			back: puts(at("other", "q", "", "192.0.2.7/25"))},
		{sentence: "both of its interfaces are deleted", before: []*object.Object{core, at("other", "q", "", "198.51.100.1/24")},
			route: to(by("192.0.2.2"), by("198.51.100.2")), change: removes(core, at("other", "q", "")), back: puts(core, at("other", "q", "", "198.51.100.1/24"))},
		{sentence: "one of its interfaces is deleted", before: []*object.Object{core, at("other", "q", "", "198.51.100.1/24")},
			route: to(by("192.0.2.2"), by("198.51.100.2")), change: removes(core), stays: true},
		{sentence: "a wider network holds its next hop", before: []*object.Object{core, at("other", "q", "", "192.0.0.1/16")}, route: to(by("192.0.2.2")),
			change: removes(core), stays: true},
		{sentence: "another interface is deleted", before: []*object.Object{core, at("other", "q", "", "198.51.100.1/24")}, route: to(by("192.0.2.2")),
			change: removes(at("other", "q", "")), stays: true},
		{sentence: "one of two addresses in its network goes", before: []*object.Object{at("core", "p", "", "192.0.2.1/24", "192.0.2.9/24")},
			route: to(by("192.0.2.2")), change: puts(core), stays: true},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			s.apply(puts(append([]*object.Object{p, q, red}, c.before...)...))
			s.apply(puts(c.route))
			plan, err := s.Plan(as("test"), c.change, intent.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out := s.apply(c.change)
			if got, want := reconciletest.Describe(out.Operations), reconciletest.Describe(plan.Operations); len(got) != len(want) {
				t.Errorf("did %q, not as planned %q", got, want)
			}
			if c.stays {
				if st, _ := s.Get(c.route.Key()); st.State != intent.Applied {
					t.Errorf("it is %s: %s", st.State, st.Message)
				}
				return
			}
			if st, _ := s.Get(c.route.Key()); st.State != intent.Pending || st.Message != waits {
				t.Errorf("it is %s: %s", st.State, st.Message)
			}
			// The same network in another VRF is none of its business.
			s.apply(puts(port("z"), at("red", "z", "red", "192.0.2.1/24")))
			if st, _ := s.Get(c.route.Key()); st.State != intent.Pending {
				t.Errorf("with the network in another VRF, it is %s: %s", st.State, st.Message)
			}
			s.apply(removes(at("red", "z", "red")))
			s.apply(c.back)
			s.becomes(c.route, intent.Applied)
		})
	}
}

func TestARouteThatWaitsForAnInterfaceCanBeDeletedAndChanged(t *testing.T) {
	core := made("Interface", "core", &api.Interface{Port: "p", Addresses: []string{"192.0.2.1/24", "198.51.100.1/24"}})
	less := made("Interface", "core", &api.Interface{Port: "p", Addresses: []string{"198.51.100.1/24"}})
	r := made("Route", "r", &api.Route{Prefix: "203.0.113.0/24", NextHops: []*api.NextHop{{Address: "192.0.2.2"}}})
	other := made("Route", "r", &api.Route{Prefix: "203.0.113.0/24", NextHops: []*api.NextHop{{Address: "198.51.100.2"}}})
	s := newScene(t, reconcile.Options{})
	s.apply(puts(port("p"), core))
	s.apply(puts(r))
	s.apply(puts(less))
	s.becomes(r, intent.Pending)
	s.apply(puts(other))
	s.becomes(other, intent.Applied)
	s.apply(puts(core, r))
	s.becomes(r, intent.Applied)
	s.apply(puts(less))
	s.becomes(r, intent.Pending)
	s.apply(removes(r))
	if _, there := s.Get(r.Key()); there {
		t.Error("it is still there")
	}
	s.apply(puts(core))
}
