// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"slices"
	"testing"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// leftBehind is a scene whose data plane has two sessions of a service that does not run, which use a port and an
// access list. The configuration has the given objects.
func leftBehind(t *testing.T, configuration ...*object.Object) *scene {
	t.Helper()
	s := newScene(t, reconcile.Options{})
	s.link()
	s.apply(puts(configuration...))
	s.plane.Lock()
	for _, o := range []*object.Object{port("p"), acl("web"), session("s-1", "p", 1, "web"), session("s-2", "p", 2, "web")} {
		spec, err := object.Pack(o.Spec)
		if err != nil {
			t.Fatal(err)
		}
		of := ""
		if o.Kind == "Session" {
			of = "pppoe"
		}
		if r := s.plane.Set(reconcile.Object{Key: o.Key(), Spec: string(spec), Owner: of}); r.Code != 0 {
			t.Fatal(r)
		}
	}
	s.plane.Unlock()
	s.plane.TakeLog()
	s.connect()
	s.until(func() bool { return s.Measure()["default"].Connected })
	return s
}

func (s *scene) neverRefused() {
	s.t.Helper()
	s.plane.Lock()
	defer s.plane.Unlock()
	if s.plane.Refused > 0 {
		s.t.Errorf("the data plane refused %d objects", s.plane.Refused)
	}
}

func TestLeftoversOfAServiceGoBeforeObjectsThatTheyUse(t *testing.T) {
	s := leftBehind(t, port("p"))
	s.eventually(port("p"))
	s.neverRefused()
	if log := s.plane.TakeLog(); len(log) != 3 || log[2] != "delete Acl/web" {
		t.Errorf("did %q", log)
	}
}

func TestAServiceThatMakesItsObjectsAgainChangesNothing(t *testing.T) {
	s := leftBehind(t, port("p"), acl("web"))
	p, err := s.Producer("pppoe")
	if err != nil {
		t.Fatal(err)
	}
	one := session("s-1", "p", 1, "web")
	work := p.Produce(puts(one))
	<-work.Done()
	if done, failures, interrupted := work.Close(); len(done)+len(failures) > 0 || interrupted {
		t.Errorf("did %v, %v", done, failures)
	}
	// It takes the VLAN of a leftover session.
	other := session("s-3", "p", 2, "web")
	work = p.Produce(puts(other))
	<-work.Done()
	work.Close()
	if log := s.plane.TakeLog(); len(log) > 0 {
		t.Errorf("did %q", log)
	}
	p.Complete()
	s.eventually(port("p"), acl("web"), one, other)
	if log := s.plane.TakeLog(); !slices.Equal(log, []string{"delete Session/s-2", "create Session/s-3"}) {
		t.Errorf("did %q", log)
	}
	// That its access list goes, it knows as others do.
	s.apply(removes(acl("web")))
	if log := s.plane.TakeLog(); len(log) != 3 || log[2] != "delete Acl/web" {
		t.Errorf("did %q", log)
	}
}

func TestLeftoversOfAServiceAreInTheNextDataPlane(t *testing.T) {
	s := leftBehind(t, port("p"), acl("web"))
	s.link()
	s.plane = reconciletest.NewPlane(s.registry)
	s.connect()
	s.eventually(port("p"), acl("web"), session("s-1", "p", 1, "web"), session("s-2", "p", 2, "web"))
	s.apply(removes(acl("web")))
	s.eventually(port("p"))
	s.neverRefused()
}

func TestAPlanKnowsWhatAServiceLeft(t *testing.T) {
	s := leftBehind(t, port("p"), acl("web"))
	plan, err := s.Plan(as("test"), removes(acl("web")), intent.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, o := range plan.Operations {
		all = append(all, o.Action.String()+" "+o.Key.String())
	}
	if !slices.Equal(all, []string{"delete Session/s-1", "delete Session/s-2", "delete Acl/web"}) {
		t.Errorf("it would do %q", all)
	}
}
