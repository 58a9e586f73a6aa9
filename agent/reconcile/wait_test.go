// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func TestPlansAndStatusesOfWhatHasToWait(t *testing.T) {
	a, b, p := acl("a"), acl("b"), port("p")
	s := session("s", "p", 1, "a")
	red := made("Vrf", "red", &api.Vrf{})
	at := func(name, port, vrf string) *object.Object {
		return made("Interface", name, &api.Interface{Port: port, Vrf: vrf})
	}
	const absent, asBefore = "; not in the data plane", "; the data plane still has it as it was before"
	for _, c := range []struct {
		sentence        string
		before, changes []object.Change
		// Waiting objects, and the object that the first of them waits for when it is applied.
		want    []string
		message string
	}{
		{"a new object that names something missing is created and waits", puts(p), puts(s),
			[]string{"create Session/s: Acl/a (policy.aclUp), which is not there"}, "waits for Acl/a (policy.aclUp), which is not there" + absent},
		{"a changed object that names something missing stays as it was before", puts(p, a, s), puts(session("s", "p", 1, "b")),
			[]string{"update Session/s: Acl/b (policy.aclUp), which is not there"}, "waits for Acl/b (policy.aclUp), which is not there" + asBefore},
		{"what is deleted waits for an object that stays as it was before", puts(p, a, s), both(puts(session("s", "p", 1, "b")), removes(a)),
			[]string{"update Session/s: Acl/b (policy.aclUp), which is not there", "delete Acl/a: Session/s, which still uses it"},
			"waits for Acl/b (policy.aclUp), which is not there" + asBefore},
		{"an object that is replaced and names something missing stays as it was before", puts(p, a, s), puts(session("s", "q", 1, "a")),
			[]string{"update Session/s: Port/q (access.port), which is not there"}, "waits for Port/q (access.port), which is not there" + asBefore},
		{"an object that is replaced, and what it needs waits, stays as it was before", puts(p, red, at("core", "p", "")),
			puts(at("core", "q", "red"), at("x", "y", "")),
			[]string{"update Interface/core: Port/q (port), which is not there", "create Interface/x: Port/y (port), which is not there"},
			"waits for Port/q (port), which is not there" + asBefore},
		{"and so does a port that is deleted", puts(p, a, s), both(puts(session("s", "q", 1, "a")), removes(p)),
			[]string{"update Session/s: Port/q (access.port), which is not there", "delete Port/p: Session/s, which still uses it"},
			"waits for Port/q (access.port), which is not there" + asBefore},
		{"it is taken out if others want what the port has that is deleted", puts(p, a, s),
			both(puts(session("s", "q", 1, "a"), made("Port", "r", &api.Port{Device: "net_null_p"})), removes(p)),
			[]string{"out Session/s: Port/q (access.port), which is not there"}, "waits for Port/q (access.port), which is not there" + absent},
		{"it is taken out if what it was on is replaced", puts(p, a, s), both(puts(session("s", "q", 1, "a"), made("Port", "p", &api.Port{Device: "net_null_x"}))),
			[]string{"out Session/s: Port/q (access.port), which is not there"}, "waits for Port/q (access.port), which is not there" + absent},
		{"it is taken out if another gets what it had", puts(p, a, s), puts(session("s", "q", 1, "a"), session("t", "p", 1, "a")),
			[]string{"out Session/s: Port/q (access.port), which is not there"}, "waits for Port/q (access.port), which is not there" + absent},
		{"an object whose need is deleted is taken out", puts(p, a, s), removes(a),
			[]string{"out Session/s: Acl/a (policy.aclUp), which is not there"}, "waits for Acl/a (policy.aclUp), which is not there" + absent},
		{"an object that waits and changes is updated and waits", puts(p, s), puts(session("s", "p", 2, "a")),
			[]string{"update Session/s: Acl/a (policy.aclUp), which is not there"}, "waits for Acl/a (policy.aclUp), which is not there" + absent},
		{"an object that waits and does not change is not told again", puts(p, s), puts(s), nil, ""},
		{"what comes with all that it needs does not wait", puts(p), puts(b, session("s", "p", 1, "b")), nil, ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			s.apply(c.before)
			plan, err := s.Plan(as("test"), c.changes, intent.Options{})
			if err != nil {
				t.Fatal(err)
			}
			planned, waiting := plan.Operations, plan.Waiting
			var got []string
			for _, op := range waiting {
				action := op.Action.String()
				if op.Replacing {
					action = "out"
				}
				got = append(got, fmt.Sprintf("%s %s: %s", action, op.Key, op.WaitsFor))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("planned that %q wait, not %q", got, c.want)
			}
			if out := s.apply(c.changes); !slices.Equal(reconciletest.Describe(out.Operations), reconciletest.Describe(planned)) {
				t.Errorf("did %q, not as planned %q", reconciletest.Describe(out.Operations), reconciletest.Describe(planned))
			}
			if len(waiting) == 0 {
				return
			}
			if st, _ := s.Get(waiting[0].Key); st.State != intent.Pending || st.Message != c.message {
				t.Errorf("%s is %s: %s", st.Key, st.State, st.Message)
			}
		})
	}
}

func TestWithoutADataPlaneEverythingWaitsForIt(t *testing.T) {
	a, b := acl("a"), acl("b")
	for _, c := range []struct {
		sentence string
		change   []object.Change
		key      object.Key
		state    intent.State
	}{
		{"a new object", puts(b), b.Key(), intent.Pending},
		{"an object that names something missing", puts(session("s", "p", 1, "")), object.Key{Kind: "Session", Name: "s"}, intent.Pending},
		{"an object that is deleted", removes(a), a.Key(), intent.Deleting},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			s.apply(puts(a))
			s.Detach()
			s.apply(c.change)
			if st, _ := s.Get(c.key); st.State != c.state || st.Message != "waits for the data plane: not connected" {
				t.Errorf("it is %s: %s", st.State, st.Message)
			}
		})
	}
}

func TestWhileTheDataPlaneIsAwayNothingIsSaidToBeApplied(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	a, refused, waits := acl("a"), acl("refused"), session("s", "p", 1, "")
	s.plane.Never[refused.Key()] = true
	s.apply(puts(a, refused, waits))
	s.Detach()
	const away = "the data plane is away since "
	for _, c := range []struct {
		key     object.Key
		state   intent.State
		message string
	}{
		{a.Key(), intent.Unknown, "was applied; " + away},
		{refused.Key(), intent.Failed, "no room; " + away},
		{waits.Key(), intent.Pending, "waits for Port/p (access.port), which is not there; not in the data plane; " + away},
	} {
		if st, _ := s.Get(c.key); st.State != c.state || !strings.Contains(st.Message, c.message) {
			t.Errorf("%s is %s: %s", c.key, st.State, st.Message)
		}
	}
	if n := s.Count(); n[intent.Applied] != 0 || n[intent.Unknown] != 1 {
		t.Errorf("counted %v", n)
	}
	s.connect()
	for {
		if st, _ := s.Get(a.Key()); st.State == intent.Applied {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

func TestUntilADataPlaneThatIsBackWasComparedNothingIsSaidToBeApplied(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	a, b, waits := acl("a"), acl("b"), session("s", "p", 1, "")
	s.apply(puts(a, waits))
	s.Detach()
	s.plane.Restart()
	reading := make(chan struct{})
	s.plane.Lock()
	s.plane.Before = func() { <-reading }
	s.plane.Unlock()
	s.connect()
	s.applyWithoutWaiting(puts(b))
	for _, c := range []struct {
		key             object.Key
		state           intent.State
		reason, message string
	}{
		{a.Key(), intent.Unknown, "NotCompared", "was applied; its observed state is being read"},
		{b.Key(), intent.Pending, "NotCompared", "waits for the data plane: its observed state is being read"},
		{waits.Key(), intent.Pending, "WaitsForObject", "waits for Port/p (access.port), which is not there; not in the data plane; its observed state is being read"},
	} {
		if st, _ := s.Get(c.key); st.State != c.state || st.Reason != c.reason || st.Message != c.message {
			t.Errorf("%s is %s: %s: %s", c.key, st.State, st.Reason, st.Message)
		}
	}
	if n := s.Count(); n[intent.Applied] != 0 || n[intent.Unknown] != 1 {
		t.Errorf("counted %v", n)
	}
	close(reading)
	s.becomes(a, intent.Applied)
	s.becomes(b, intent.Applied)
}

func TestLossAndReturnOfADataPlaneAreOneEventEach(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	var all []*object.Object
	for i := range 100 {
		all = append(all, acl(fmt.Sprint("a", i)))
	}
	s.apply(puts(all...))
	events, err := s.Events(intent.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() intent.Event {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		e, err := events.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for _, back := range []func(){func() {}, s.plane.Restart} {
		s.link()
		if e := next(); e.Dataplane == nil || *e.Dataplane != (intent.DataplaneChange{Name: "default"}) {
			t.Fatalf("told of %+v", e)
		}
		if st, _ := s.Get(all[0].Key()); st.State != intent.Unknown {
			t.Errorf("while it is away %s is %s", st.Key, st.State)
		}
		back()
		s.connect()
		if e := next(); e.Dataplane == nil || *e.Dataplane != (intent.DataplaneChange{Name: "default", Connected: true}) {
			t.Fatalf("told of %+v", e)
		}
	}
	// The second is empty, and new objects are reported one by one.
	if e := next(); e.Dataplane != nil || e.Status.Key.Kind != "Acl" {
		t.Errorf("told of %+v", e)
	}
	s.eventually(all...)
}

func TestADeleteDoesNotReportTheFailureOfARetryInFlight(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	a := acl("a")
	s.apply(puts(acl("b"))) // then everything was listed
	s.plane.Never[a.Key()] = true
	started, release := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	s.plane.Before = func() {
		if hold.CompareAndSwap(true, false) {
			close(started)
			<-release
		}
	}
	if out := s.apply(puts(a)); len(out.Failures) != 1 {
		t.Fatalf("failed: %v", out.Failures)
	}
	hold.Store(true)
	<-started
	done := make(chan *intent.Outcome)
	go func() {
		out, _ := s.Apply(context.Background(), as("test"), removes(a), intent.Options{})
		done <- out
	}()
	for {
		if st, _ := s.Get(a.Key()); st.Object == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(release)
	if out := <-done; len(out.Failures) != 0 || out.Objects[0].Status.State != intent.Gone {
		t.Errorf("it is %s, failed: %v", out.Objects[0].Status.State, out.Failures)
	}
}
