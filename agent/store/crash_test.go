// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

var errKilled = errors.New("killed")

// killable is a store whose program is killed at one of its writes.
type killable struct {
	*Store
	writes, last int
	when         moment
	dead         atomic.Bool
	program      *intent.Desired
}

// moment is the time of the kill.
type moment int

const (
	// Just before a write.
	before moment = iota
	// Just after it.
	after
	// After the change reached the data plane, as a power cut: the disk does not have the entry.
	between
	moments
)

func (m moment) String() string {
	return [moments]string{"before it", "after it", "before it is on the disk"}[m]
}

func (m *killable) write(f func() error) error {
	if m.writes++; m.dead.Load() || m.writes < m.last {
		if m.dead.Load() {
			return errKilled
		}
		return f()
	}
	m.dead.Store(true)
	if m.when == after {
		if err := f(); err != nil {
			return err
		}
	}
	return errKilled
}

func (m *killable) Commit(c *intent.Commit) error {
	if m.when == between && m.writes+1 == m.last && c.Written != nil {
		c.Written()
		for end := time.Now().Add(20 * time.Second); !m.program.Settled() && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond)
		}
		m.program.Detach()
	}
	return m.write(func() error { return m.Store.Commit(c) })
}

func (m *killable) Settle(revision uint64, open *intent.Open, revised []intent.Undo) error {
	return m.write(func() error { return m.Store.Settle(revision, open, revised) })
}

// lifetime is one run of the program, from its start to its end or kill.
type lifetime struct {
	*program
	killable *killable
}

// start starts a run with this number of pages in each half of the journal; 0: the default.
func start(t *testing.T, path string, plane *reconciletest.Plane, last int, when moment, pages int64) *lifetime {
	t.Helper()
	s := opened(t, path)
	if pages > 0 {
		s.journal.size = pages * journalPage
	}
	m := &killable{Store: s, last: last, when: when}
	d, err := intent.New(intent.Config{Registry: s.registry, Store: m, Owners: map[string]intent.Owner{"pppoe": {Unrecorded: true}}, UndoAgain: time.Millisecond,
		Reconciler: reconcile.Options{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}})
	must(t, err)
	m.program = d
	l := &lifetime{&program{Desired: d, t: t, path: path, store: s}, m}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	d.Attach(ctx, plane)
	l.stop = func() {
		cancel()
		<-ended
		if m.dead.Load() {
			must(t, s.let())
		} else {
			must(t, s.Close())
		}
		l.stop = func() {}
	}
	return l
}

func acl(name string, otherwise api.AclAction) object.Change {
	return object.Put(&object.Object{Kind: "Acl", Name: name, Spec: &api.Acl{Otherwise: otherwise}})
}

// labelled is a VRF with nothing but a label.
func labelled(name, label, value string) object.Change {
	return object.Put(&object.Object{Kind: "Vrf", Name: name, Labels: map[string]string{label: value}, Spec: &api.Vrf{}})
}

// now is the configuration as text.
func (l *lifetime) now() string {
	page, err := l.List(intent.Query{})
	must(l.t, err)
	text := ""
	for _, s := range page.Objects {
		if s.Object != nil {
			text += fmt.Sprintf("%s %v %v", s.Key, s.Object.Spec, s.Object.Labels)
			for _, o := range l.Owners(s.Key) {
				text += fmt.Sprintf(" by %s %v", o.Owner, o.Fields)
			}
			text += "; "
		}
	}
	return text
}

// writers are all kinds of writes during a run.
func writers() []func(l *lifetime) error {
	apply := func(owner string, o intent.Options, changes ...object.Change) func(l *lifetime) error {
		return func(l *lifetime) error {
			_, err := l.Apply(context.Background(), intent.Source{Owner: owner}, changes, o)
			return err
		}
	}
	all := intent.Options{Mode: intent.AllOrNothing}
	return []func(l *lifetime) error{
		apply("api", intent.Options{}, vrf("a", "one"), vrf("b", "one")),
		apply("api", all, vrf("a", "two"), vrf("b", "two"), gone("c")),
		// The data plane refuses one of them.
		apply("api", all, vrf("a", "three"), acl("never", api.AclAction_PERMIT), vrf("c", "three")),
		apply("pppoe", intent.Options{}, vrf("d", "four")),
		apply("api", intent.Options{Mode: intent.AllOrNothing, ConfirmWithin: time.Hour}, vrf("a", "five"), vrf("c", "five")),
		func(l *lifetime) error { return l.Confirm(intent.Source{Owner: "api"}, 0) },
		// Two owners of one object, of one field and then of different ones.
		apply("night", intent.Options{Force: true}, vrf("a", "night"), labelled("c", "city", "bonn")),
		apply("night", all, labelled("a", "city", "ulm"), gone("c")),
		apply("night", intent.Options{}, gone("a")),
		apply("api", intent.Options{Complete: true}, vrf("b", "six")),
		func(l *lifetime) error {
			_, err := l.Rollback(context.Background(), intent.Source{Owner: "api"}, 2, intent.Options{Mode: intent.AllOrNothing})
			return err
		},
		apply("api", intent.Options{ConfirmWithin: time.Millisecond}, vrf("a", "seven")),
		func(l *lifetime) error {
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && !l.killable.dead.Load(); time.Sleep(time.Millisecond) {
				if h, err := l.History(0, 1); err != nil || h[0].RollbackTo != 0 && h[0].Source.Owner == "agent" && l.Revision() == h[0].Number {
					return err
				}
			}
			return errKilled
		},
	}
}

func TestAKillAtAnyWriteLosesNoChangeAndLeavesNoneHalfDone(t *testing.T) {
	// The configuration after each change, without a kill.
	never := object.Key{Kind: "Acl", Name: "never"}
	newPlane := func() *reconciletest.Plane {
		plane := reconciletest.NewPlane(registry(t))
		plane.Never[never] = true
		return plane
	}
	undisturbed := start(t, filepath.Join(t.TempDir(), "intent.db"), newPlane(), 1<<30, before, 0)
	states := []string{""}
	for i, write := range writers() {
		must(t, write(undisturbed))
		if last := len(writers()) - 2; i == last {
			// Before not confirmed in time, or after: it is one of the two.
			states = append(states, states[last])
			continue
		}
		states = append(states, undisturbed.now())
	}
	writes := undisturbed.killable.writes
	undisturbed.stop()
	if writes < 12 {
		t.Fatalf("only %d writes", writes)
	}
	for n := range 9 * writes {
		// All in the journal; and folded each time, or nearly.
		n, when, pages := 1+n/9, moment(n%3), []int64{0, 1, 3}[n/3%3]
		t.Run(fmt.Sprintf("write %d, %v, with %d pages", n, when, pages), func(t *testing.T) {
			path, plane := filepath.Join(t.TempDir(), "intent.db"), newPlane()
			l := start(t, path, plane, n, when, pages)
			done := 0
			for _, write := range writers() {
				if err := write(l); err != nil || l.killable.dead.Load() {
					break
				}
				done++
			}
			if !l.killable.dead.Load() {
				t.Fatal("the program was not killed")
			}
			l.stop()

			again := start(t, path, plane, 1<<30, before, pages)
			defer again.stop()
			allowed := states[done:min(done+2, len(states))]
			for end := time.Now().Add(10 * time.Second); !slices.Contains(allowed, again.now()) || !again.Settled(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the configuration is\n%s\nand should be one of\n%q", again.now(), allowed)
				}
			}
			again.agrees(plane)
			// The sequence of revisions goes on, without a gap or a duplicate.
			latest := again.Revision()
			if made := again.apply("api", intent.Options{}, vrf("last", "of all")); made != latest+1 {
				t.Errorf("revision %d after %d", made, latest)
			}
			history, err := again.History(0, 100)
			must(t, err)
			for i := 1; i < len(history); i++ {
				if history[i].Number >= history[i-1].Number {
					t.Errorf("revision %d before %d", history[i].Number, history[i-1].Number)
				}
			}
		})
	}
}

// startFailing starts a run whose journal fails on demand.
func startFailing(t *testing.T, plane *reconciletest.Plane) (*lifetime, *failing) {
	t.Helper()
	l := start(t, filepath.Join(t.TempDir(), "intent.db"), plane, 1<<30, before, 0)
	l.store.closing.Store(true) // nothing is written beside
	f := &failing{journalFile: l.store.journal.file}
	l.store.journal.file = f
	return l, f
}

// The data plane may have the change already.
func TestAChangeThatTheDiskDoesNotKeepIsTakenBack(t *testing.T) {
	plane := reconciletest.NewPlane(registry(t))
	l, f := startFailing(t, plane)
	defer l.stop()
	first := l.apply("api", intent.Options{}, vrf("a", "one"), vrf("b", "one"))
	was := l.now()
	f.syncs = syscall.EIO
	received := 0
	f.syncing = func() {
		for end := time.Now().Add(20 * time.Second); received < 3 && time.Now().Before(end); received += len(plane.TakeLog()) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for range 2 {
		plane.TakeLog()
		_, err := l.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{vrf("a", "two"), gone("b"), vrf("c", "two")}, intent.Options{})
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("error %v", err)
		}
		if is := l.now(); is != was || l.Revision() != first {
			t.Errorf("the configuration is\n%s\nof revision %d, not\n%s\nof revision %d", is, l.Revision(), was, first)
		}
		for end := time.Now().Add(20 * time.Second); !l.Settled() && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond)
		}
		l.agrees(plane)
		if received != 3 {
			t.Errorf("the data plane got %d operations meanwhile", received)
		}
		received = 0
	}
	f.syncs, f.syncing = nil, nil
	// No other revision gets a number that a reader may have seen.
	if made := l.apply("api", intent.Options{}, vrf("a", "three")); made != first+3 {
		t.Errorf("revision %d after %d", made, first)
	}
	l.agrees(plane)
}

// A reader meanwhile saw a change that was not stored.
func TestARevisionNumberSeenBeforeAFailedSyncIsNotUsedAgain(t *testing.T) {
	plane := reconciletest.NewPlane(registry(t))
	l, f := startFailing(t, plane)
	defer l.stop()
	a := object.Key{Kind: "Vrf", Name: "a"}
	first := l.apply("api", intent.Options{}, vrf("a", "one"), vrf("b", "one"))
	events, err := l.Events(intent.Cursor{})
	must(t, err)
	var seen intent.Status
	var listed string
	f.syncs = syscall.EIO
	f.syncing = func() {
		if seen.Object != nil {
			return
		}
		for end := time.Now().Add(20 * time.Second); !l.Settled() && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond)
		}
		seen, _ = l.Get(a)
		listed = l.now()
	}
	two := []object.Change{vrf("a", "two"), gone("b")}
	if _, err := l.Apply(context.Background(), intent.Source{Owner: "api"}, two, intent.Options{}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	f.syncs, f.syncing = nil, nil
	if seen.Object == nil || seen.Object.Spec.(*api.Vrf).Description != "two" || strings.Contains(listed, "Vrf/b") {
		t.Fatalf("seen meanwhile: %+v, and\n%s", seen, listed)
	}
	if !strings.Contains(l.now(), "Vrf/b") {
		t.Errorf("what was not deleted is not listed:\n%s", l.now())
	}
	if l.Revision() != first {
		t.Errorf("revision %d, not %d", l.Revision(), first)
	}
	three := l.apply("api", intent.Options{}, vrf("a", "three"))
	var moved *intent.Moved
	expect := intent.Options{Expect: map[object.Key]uint64{a: seen.Revision}}
	if _, err := l.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{vrf("a", "four")}, expect); !errors.As(err, &moved) {
		t.Errorf("what was made of revision %d replaced revision %d: error %v", seen.Revision, three, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for content := ""; content != "three"; {
		e, err := events.Next(ctx)
		must(t, err)
		if e.Status.Key != a || e.Status.Object == nil {
			continue
		}
		if content = e.Status.Object.Spec.(*api.Vrf).Description; content != "three" && e.Status.Revision == three {
			t.Errorf("%q has revision %d", content, three)
		}
	}
}

// agrees: the observed state equals the desired state.
func (l *lifetime) agrees(plane *reconciletest.Plane) {
	l.t.Helper()
	page, err := l.List(intent.Query{})
	must(l.t, err)
	expected := map[object.Key]*object.Object{}
	for _, s := range page.Objects {
		expected[s.Key] = s.Object
	}
	if differences := plane.Differences(expected); len(differences) > 0 {
		l.t.Errorf("the data plane differs: %q", differences)
	}
}

func at(name, device string) object.Change {
	return object.Put(&object.Object{Kind: "Port", Name: name, Spec: &api.Port{Device: device}})
}

// overdue ends the time of revisions before the agent starts.
func overdue(t *testing.T, path string, revisions ...uint64) {
	t.Helper()
	s := opened(t, path)
	for _, r := range revisions {
		must(t, s.Settle(r, &intent.Open{Revision: r, ConfirmBy: time.Now().Add(-time.Second)}, nil))
	}
	must(t, s.Close())
}

// A change is undone only in part until the conflicting object is gone.
func TestAnAgentThatIsKilledAtAnyWriteOfAnUndoGoesOnWithIt(t *testing.T) {
	b := object.Key{Kind: "Port", Name: "b"}
	prepare := func(path string, plane *reconciletest.Plane) {
		l := start(t, path, plane, 1<<30, before, 0)
		hour := intent.Options{ConfirmWithin: time.Hour}
		l.apply("api", intent.Options{}, at("a", "net_null0"), vrf("q", "one"))
		second := l.apply("api", hour, at("a", "net_null1"), vrf("q", "two"))
		l.apply("api", intent.Options{}, at("b", "net_null0"))
		l.stop()
		overdue(t, path, second)
	}
	// The remaining object is port a, whose device b has taken.
	inPart := func(l *lifetime) bool {
		waits := l.Unconfirmed()
		return len(waits) == 1 && waits[0].Overdue && len(waits[0].Left) == 1 && waits[0].Left[0].Key.Name == "a"
	}
	until := func(l *lifetime, what string, holds func() bool) {
		for end := time.Now().Add(10 * time.Second); !holds() && !l.killable.dead.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s; waits %+v, configured is %s", what, l.Unconfirmed(), l.now())
			}
		}
	}
	makeWay := func(l *lifetime) {
		// The process may have been killed after that write.
		if _, there := l.Get(b); there {
			_, _ = l.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{object.Remove(b)}, intent.Options{})
		}
		until(l, "all undone", func() bool { return len(l.Unconfirmed()) == 0 && l.Settled() })
	}
	const want = `Port/a device:"net_null0" map[] by api [{device net_null0 false}]; Vrf/q description:"one" map[] by api [{description one false}]; `
	killed := 0
	for n := 1; ; n++ {
		for i := range 6 {
			when, pages := moment(i%2), []int64{0, 1, 3}[i%3]
			path, plane := filepath.Join(t.TempDir(), "intent.db"), reconciletest.NewPlane(registry(t))
			prepare(path, plane)
			l := start(t, path, plane, n, when, pages)
			until(l, "undone in part", func() bool { return inPart(l) })
			if !l.killable.dead.Load() {
				makeWay(l)
			}
			dead := l.killable.dead.Load()
			l.stop()
			if !dead {
				if killed < 16 {
					t.Errorf("killed only %d times", killed)
				}
				return
			}
			killed++
			again := start(t, path, plane, 1<<30, before, pages)
			if _, there := again.Get(b); there {
				// Its deletion may be on its way.
				until(again, "undone in part", func() bool {
					_, there := again.Get(b)
					return !there || inPart(again)
				})
			}
			makeWay(again)
			t.Logf("killed at write %d, %v", n, when)
			if got := strings.ReplaceAll(again.now(), "  ", " "); got != want {
				t.Errorf("configured is %s", got)
			}
			again.agrees(plane)
			again.stop()
		}
	}
}
