// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// slow makes an object slow in the plane until done is called.
func (s *scene) slow(o *object.Object) (done func()) {
	ready := make(chan struct{})
	s.plane.Lock()
	defer s.plane.Unlock()
	s.plane.Slow[o.Key()] = ready
	return func() {
		s.plane.Lock()
		delete(s.plane.Slow, o.Key())
		s.plane.Unlock()
		close(ready)
	}
}

func (s *scene) applyWithoutWaiting(changes []object.Change) {
	s.t.Helper()
	if _, err := s.Apply(context.Background(), as("test"), changes, intent.Options{Mode: intent.NoWait}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) becomes(o *object.Object, state intent.State) {
	s.t.Helper()
	var got intent.Status
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got, _ = s.Get(o.Key()); got.State == state {
			return
		}
	}
	s.t.Fatalf("%s is %s: %s", o.Key(), got.State, got.Message)
}

func (s *scene) waits(o *object.Object, message string) {
	s.t.Helper()
	if got, _ := s.Get(o.Key()); got.State != intent.Pending || got.Message != message {
		s.t.Errorf("%s is %s: %s", o.Key(), got.State, got.Message)
	}
}

func TestASlowObjectHoldsUpOnlyWhatNeedsIt(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(nil)
	slow, p, needs, needsNot, r := acl("slow"), port("p"), session("s", "p", 1, "slow"), session("t", "p", 2, ""), route("r", "192.0.2.2")
	done := s.slow(slow)
	s.applyWithoutWaiting(puts(slow, p, needs, needsNot, r))
	for _, o := range []*object.Object{p, needsNot, r} {
		s.becomes(o, intent.Applied)
	}
	s.waits(slow, "is being applied")
	s.waits(needs, "waits for Acl/slow; not in the data plane")
	// Later steps pass it, also refused ones; and wait as they do without a slow object.
	s.plane.Never[acl("never").Key()] = true
	other := session("u", "p", 3, "other")
	out := s.apply(puts(acl("other"), other, acl("never"), session("v", "p", 4, "never")))
	if len(out.Failures) != 1 || out.Objects[1].Status.State != intent.Applied || out.Objects[3].Status.State != intent.Pending {
		t.Errorf("failed: %v; then %+v", out.Failures, out.Objects)
	}
	s.apply(removes(acl("never"), session("v", "p", 4, "never")))
	// Later changes of the slow object itself wait, and are carried out after it.
	s.applyWithoutWaiting(removes(r))
	s.becomes(r, intent.Gone)
	changed := made("Acl", "slow", &api.Acl{Otherwise: api.AclAction_PERMIT})
	s.applyWithoutWaiting(puts(changed))
	s.plane.TakeLog()
	done()
	s.eventually(changed, p, needs, needsNot, acl("other"), other)
	if log := s.plane.TakeLog(); !slices.Equal(log, []string{"create Acl/slow", "update Acl/slow", "create Session/s"}) {
		t.Errorf("did %q", log)
	}
}

// A change that names an object of an earlier change, which is on its way, ends with the object.
func TestAChangeWaitsForAnEarlierOneThatItNeeds(t *testing.T) {
	for _, refused := range []bool{false, true} {
		s := newScene(t, reconcile.Options{})
		s.apply(puts(port("p"), session("s", "p", 1, "")))
		slow, changed := acl("slow"), session("s", "p", 1, "slow")
		s.plane.Never[slow.Key()] = refused
		done := s.slow(slow)
		s.applyWithoutWaiting(puts(slow))
		result := make(chan *intent.Outcome)
		go func() { result <- s.apply(puts(changed)) }()
		s.becomes(changed, intent.Pending)
		s.waits(changed, "waits for Acl/slow; the data plane still has it as it was before")
		// Another change, with nothing that is slow, ends meanwhile, and the first one does not.
		s.apply(puts(acl("other")))
		select {
		case <-result:
			t.Fatal("it ended before the object that it needs")
		default:
		}
		done()
		state := intent.Applied
		if refused {
			state = intent.Pending
		}
		if out := <-result; out.Objects[0].Status.State != state {
			t.Errorf("refused %t: %+v", refused, out.Objects[0])
		}
	}
}

func TestALargeObjectDelaysNoOthersOfItsKind(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(puts(port("p")))
	var objects []*object.Object
	var ready []func()
	for i := range 12 {
		o := made("Acl", fmt.Sprint("large-", i), &api.Acl{Rules: slices.Repeat([]*api.AclRule{{Source: "198.51.100.0/24"}}, 4000)})
		objects = append(objects, o)
		ready = append(ready, s.slow(o))
	}
	small, needs := acl("small"), session("s", "p", 1, "small")
	s.applyWithoutWaiting(puts(append(objects, small, needs)...))
	s.becomes(needs, intent.Applied)
	s.becomes(objects[11], intent.Pending)
	for _, done := range ready {
		done()
	}
	s.eventually(append(objects, port("p"), small, needs)...)
}

func TestAConnectionThatIsLostWhileSomethingIsSlow(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	slow, p, needs := acl("slow"), port("p"), session("s", "p", 1, "slow")
	done := s.slow(slow)
	s.applyWithoutWaiting(puts(slow, p, needs))
	s.becomes(p, intent.Applied)
	s.link()
	s.connect()
	// The answer on the previous connection is ignored.
	done()
	s.eventually(slow, p, needs)
}

func TestADisturbedDataPlaneIsListedWhenNothingIsUnderWay(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	slow, p := acl("slow"), port("p")
	s.apply(puts(p))
	done := s.slow(slow)
	s.applyWithoutWaiting(puts(slow, session("s", "p", 1, "slow")))
	s.becomes(slow, intent.Pending)
	s.plane.Lock()
	s.plane.Drop = 1000
	s.plane.Random = rand.New(rand.NewPCG(1, 1))
	s.plane.Unlock()
	lists := s.Measure()["default"].Lists
	s.applyWithoutWaiting(puts(acl("b")))
	for s.Measure()["default"].InSync {
		time.Sleep(time.Millisecond)
	}
	s.plane.Lock()
	s.plane.Drop = 0
	s.plane.Unlock()
	if again := s.Measure()["default"].Lists; again != lists {
		t.Error("it was listed while a put was under way")
	}
	done()
	s.eventually(slow, p, session("s", "p", 1, "slow"), acl("b"))
}
