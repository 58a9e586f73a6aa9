// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
	"sluice.dev/sluice/agent/store"
)

var errFull = errors.New("no space left on device")

// failingStore is a store on disk whose writes fail on demand.
type failingStore struct {
	*store.Store
	mu               sync.Mutex
	commits, settles error
}

func (f *failingStore) fail(commits, settles error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits, f.settles = commits, settles
}

func (f *failingStore) failures() (commits, settles error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits, f.settles
}

func (f *failingStore) Commit(c *intent.Commit) error {
	if err, _ := f.failures(); err != nil {
		return err
	}
	return f.Store.Commit(c)
}

func (f *failingStore) Settle(revision uint64, open *intent.Open, revised []intent.Undo) error {
	if _, err := f.failures(); err != nil {
		return err
	}
	return f.Store.Settle(revision, open, revised)
}

// lifetime is one run of an agent, with its reports of undone revisions.
type lifetime struct {
	*intent.Desired
	t     testing.TB
	path  string
	plane *reconciletest.Plane
	store *failingStore
	end   func()

	mu       sync.Mutex
	reported []intent.Undoing
}

func start(t testing.TB, path string) *lifetime {
	t.Helper()
	return startAt(t, path, nil)
}

// bornAt is born with another clock of the machine; nil: the kernel's.
func startAt(t testing.TB, path string, boot func() (string, time.Duration)) *lifetime {
	t.Helper()
	r := registry(t)
	s, err := store.Open(path, r)
	must(t, err)
	l := &lifetime{t: t, path: path, plane: reconciletest.NewPlane(r), store: &failingStore{Store: s}}
	l.Desired, err = intent.New(intent.Config{Registry: r, Store: l.store, UndoAgain: time.Millisecond,
		Boot: boot, Reconciler: reconcile.Options{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Undone: func(u intent.Undoing) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.reported = append(l.reported, u)
		}})
	if err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	l.Attach(ctx, l.plane)
	l.end = func() {
		cancel()
		<-ended
		must(t, s.Close())
		l.end = func() {}
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *lifetime) again() *lifetime {
	l.t.Helper()
	l.end()
	return start(l.t, l.path)
}

// reports are the reports of undone revisions.
func (l *lifetime) reports() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, u := range l.reported {
		text := fmt.Sprintf("%s: %s:", u.Source.Owner, u.Source.Why)
		for _, o := range u.Objects {
			text += fmt.Sprintf(" %s %s", o.Step, o.Status.Key)
		}
		if u.Problem != nil {
			text += " " + u.Problem.Error()
		}
		all = append(all, text)
	}
	return all
}

func (l *lifetime) put(options intent.Options, objects ...*object.Object) uint64 {
	l.t.Helper()
	return apply(l.t, l.Desired, "api", puts(objects...), options).Revision
}

func (l *lifetime) eventually(what string, holds func() bool) {
	l.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("never: %s; configured is %v", what, l.configured())
		}
	}
}

func (l *lifetime) configured() []string {
	page, err := l.List(intent.Query{})
	must(l.t, err)
	var all []string
	for _, s := range page.Objects {
		if s.Object != nil {
			all = append(all, s.Key.String()+" "+strings.TrimSpace(fmt.Sprint(s.Object.Spec)))
		}
	}
	return all
}

func (l *lifetime) device(name string) string {
	if o := l.OwnLayer("api", object.Key{Kind: "Port", Name: name}); o != nil {
		return o.Spec.(*api.Port).Device
	}
	return ""
}

func (l *lifetime) text(name string) string {
	if o := l.OwnLayer("api", object.Key{Kind: "Vrf", Name: name}); o != nil {
		return o.Spec.(*api.Vrf).Description
	}
	return ""
}

func at(name, device string) *object.Object { return made("Port", name, &api.Port{Device: device}) }

func vrf(name, text string) *object.Object { return made("Vrf", name, &api.Vrf{Description: text}) }

var (
	anHour = intent.Options{ConfirmWithin: time.Hour}
	whole  = intent.Options{Mode: intent.AllOrNothing}
)

// The agent died after an all-or-nothing change was complete and before it was stored. Meanwhile another owner took
// the released value.
func TestTheAgentStartsAlsoIfAnUnfinishedChangeCannotBeUndoneWhole(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	l.put(intent.Options{}, at("a", "net_null0"), vrf("red", "one"))
	l.store.fail(nil, errFull)
	if _, err := l.Apply(t.Context(), as("api"), puts(at("a", "net_null1"), vrf("red", "two")), whole); !errors.Is(err, errFull) {
		t.Fatalf("error %v", err)
	}
	l.put(intent.Options{}, at("b", "net_null0"))
	l = l.again()

	if a, b, red := l.device("a"), l.device("b"), l.text("red"); a != "net_null1" || b != "net_null0" || red != "one" {
		t.Errorf("a has %s, b %s, and red says %s", a, b, red)
	}
	history, err := l.History(0, 1)
	must(t, err)
	why := "revision 2 undone in part: the agent stopped before it was complete; left as it is: Port/a (device: Port/b already has device net_null0)"
	if got := history[0].Source; got.Owner != "agent" || got.Why != why {
		t.Errorf("history %+v", got)
	}
	if got := l.reports(); !slices.Equal(got, []string{"agent: " + why + ": update Vrf/red"}) {
		t.Errorf("reports %q", got)
	}
	st, _ := l.Get(object.Key{Kind: "Port", Name: "a"})
	if c := st.Conditions()[0]; !c.Holds || c.Reason != "NotUndone" || c.Message != "revision 2 is to be undone, but device: Port/b already has device net_null0" {
		t.Errorf("condition %+v", c)
	}
	if waits := l.Unconfirmed(); len(waits) != 1 || !waits[0].Overdue || waits[0].Revision != 2 || len(waits[0].Left) != 1 {
		t.Errorf("waits %+v", waits)
	}

	// No attempt and no start of the agent makes another revision.
	l = l.again()
	time.Sleep(20 * time.Millisecond)
	if l.Revision() != history[0].Number {
		t.Errorf("revision %d", l.Revision())
	}
	apply(t, l.Desired, "api", removes(at("b", "")), intent.Options{})
	l.eventually("a is as before", func() bool { return l.device("a") == "net_null0" })
	l.eventually("nothing waits", func() bool { return len(l.Unconfirmed()) == 0 })
	if st, _ := l.Get(object.Key{Kind: "Port", Name: "a"}); st.NotUndone != "" {
		t.Errorf("still reported: %s", st.NotUndone)
	}
}

func TestAConflictDoesNotKeepOtherObjectsFromBeingUndone(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	l.put(intent.Options{}, at("a", "net_null0"), vrf("red", "one"))
	changed := l.put(anHour, at("a", "net_null1"), vrf("red", "two"), vrf("new", "two"))
	l.put(intent.Options{}, at("b", "net_null0"))
	events, err := l.Events(intent.Cursor{})
	must(t, err)
	l.Expire(changed)
	if got := l.configured(); len(got) != 3 || l.device("a") != "net_null1" || l.text("red") != "one" {
		t.Errorf("configured is %q", got)
	}
	for seen := false; !seen; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		e, err := events.Next(ctx)
		cancel()
		must(t, err)
		seen = e.Status.NotUndone != ""
	}
	// An operator confirms the rest.
	must(t, l.Confirm(as("api"), 0))
	apply(t, l.Desired, "api", removes(at("b", "")), intent.Options{})
	time.Sleep(20 * time.Millisecond)
	if l.device("a") != "net_null1" || len(l.Unconfirmed()) != 0 {
		t.Errorf("configured is %q", l.configured())
	}
	in := fmt.Sprintf("revision %d was undone in part already, by revision %d, and the rest confirmed", changed, changed+2)
	if err := l.Confirm(as("api"), changed); !errors.Is(err, intent.ErrNothingToConfirm) || err.Error() != in {
		t.Errorf("confirmed twice: %v", err)
	}
}

func TestHistoryShowsTheOutcomeOfUnconfirmedRevisions(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	l.Expire(l.put(anHour, vrf("first", "one")))
	l.put(intent.Options{}, at("a", "net_null0"), vrf("red", "one"))
	must(t, l.Confirm(as("api"), l.put(anHour, vrf("red", "two"))))
	changed := l.put(anHour, at("a", "net_null1"), vrf("red", "three"))
	l.put(intent.Options{}, at("b", "net_null0"))
	l.Expire(changed)
	_, err := l.Apply(t.Context(), intent.Source{Owner: "agent", Why: "revision 1 undone in part: so they say"}, puts(vrf("green", "one")), intent.Options{})
	must(t, err)

	inPart := intent.Standing{Waits: true, Overdue: true, UndoneBy: 7, InPart: true}
	want := map[uint64]intent.Standing{1: {UndoneBy: 2}, 5: inPart}
	check := func() {
		t.Helper()
		for before := range uint64(10) {
			for _, limit := range []int{1, 100} {
				found, err := l.History(before, limit)
				must(t, err)
				if before != 1 && len(found) == 0 {
					t.Errorf("no revision before %d", before)
				}
				for _, r := range found {
					if r.Standing != want[r.Number] {
						t.Errorf("before %d, %d: %+v", before, r.Number, r.Standing)
					}
				}
			}
		}
	}
	check()
	l = l.again()
	check()
	must(t, l.Confirm(as("api"), changed))
	want[5] = intent.Standing{UndoneBy: 7, InPart: true}
	check()
}

func (l *lifetime) back(to uint64, options intent.Options) (uint64, error) {
	out, err := l.Rollback(l.t.Context(), as("api"), to, options)
	if err != nil {
		return 0, err
	}
	return out.Revision, nil
}

func TestARollbackUndoesUnconfirmedRevisionsAfterItsTarget(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	first := l.put(intent.Options{}, vrf("red", "one"), vrf("blue", "one"))
	second := l.put(anHour, vrf("red", "two"))
	l.put(intent.Options{}, vrf("blue", "three"))
	back, err := l.back(first, intent.Options{})
	must(t, err)
	check := func() {
		t.Helper()
		if waits := l.Unconfirmed(); len(waits) != 0 || l.text("red") != "one" || l.text("blue") != "one" {
			t.Errorf("waits %+v, configured is %v", waits, l.configured())
		}
		history, err := l.History(0, 10)
		must(t, err)
		for _, r := range history {
			want := map[uint64]intent.Standing{second: {UndoneBy: back}}[r.Number]
			if r.Standing != want {
				t.Errorf("revision %d: %+v", r.Number, r.Standing)
			}
		}
	}
	check()
	if err := l.Confirm(as("api"), second); err == nil || err.Error() != fmt.Sprintf("revision %d was undone already, by revision %d", second, back) {
		t.Errorf("error %v", err)
	}
	l = l.again()
	check()
	// Nothing comes back by itself.
	if l.Revision() != back {
		t.Errorf("revision %d", l.Revision())
	}
}

func TestARollbackThatWouldLeaveSomethingWaitingIsRefused(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	first := l.put(intent.Options{}, vrf("red", "one"))
	waits := l.put(anHour, vrf("red", "two"))
	latest := l.put(intent.Options{}, vrf("blue", "one"))
	for _, c := range []struct {
		to      uint64
		options intent.Options
		says    string
	}{
		{waits, intent.Options{}, "confirm it first (sluice confirm 2), or go back to revision 1 or before, which undoes it"},
		{first, anHour, "before another change with confirmation or as all or nothing"},
		{first, whole, "before another change with confirmation or as all or nothing"},
	} {
		var refused *intent.Waiting
		if _, err := l.back(c.to, c.options); !errors.As(err, &refused) || refused.Revision != waits || !strings.HasSuffix(err.Error(), c.says) {
			t.Errorf("to %d: error %v", c.to, err)
		}
	}
	if l.Revision() != latest || len(l.Unconfirmed()) != 1 || l.text("red") != "two" {
		t.Errorf("revision %d, configured is %v", l.Revision(), l.configured())
	}
	must(t, l.Confirm(as("api"), waits))
	_, err := l.back(first, whole)
	must(t, err)
	if l.text("red") != "one" {
		t.Errorf("configured is %v", l.configured())
	}
}

func TestARollbackUndoesTheRestOfAPartialUndo(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	first := l.put(intent.Options{}, at("a", "net_null0"))
	changed := l.put(anHour, at("a", "net_null1"))
	l.put(intent.Options{}, at("b", "net_null0"))
	l.Expire(changed)
	if st, _ := l.Get(object.Key{Kind: "Port", Name: "a"}); st.NotUndone == "" {
		t.Error("it is undone already")
	}
	_, err := l.back(first, intent.Options{})
	must(t, err)
	if st, _ := l.Get(object.Key{Kind: "Port", Name: "a"}); st.NotUndone != "" || l.device("a") != "net_null0" || len(l.Unconfirmed()) != 0 {
		t.Errorf("%+v, configured is %v", st, l.configured())
	}
}

// Two ports that change places can only do so together.
func TestObjectsThatAreAcceptableOnlyTogetherAreUndoneTogether(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	l.put(intent.Options{}, at("a", "net_null0"), at("b", "net_null1"), at("c", "net_null2"))
	changed := l.put(anHour, at("a", "net_null1"), at("b", "net_null0"), at("c", "net_null3"))
	l.put(intent.Options{}, at("d", "net_null2"))
	l.Expire(changed)
	if a, b, c := l.device("a"), l.device("b"), l.device("c"); a != "net_null0" || b != "net_null1" || c != "net_null3" {
		t.Errorf("a has %s, b %s, c %s", a, b, c)
	}
}

func TestAFullDiskAtExpiryLosesNothing(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("confirmed: %v", confirmed), func(t *testing.T) {
			l := start(t, filepath.Join(t.TempDir(), "intent.db"))
			l.put(intent.Options{}, vrf("red", "one"))
			l.store.fail(errFull, errFull)
			l.store.fail(nil, nil)
			changed := l.put(anHour, vrf("red", "two"))
			l.store.fail(errFull, errFull)
			l.Expire(changed)
			if got := l.reports(); len(got) != 1 || !strings.HasPrefix(got[0], "agent: revision 2 is to be undone: not confirmed in time: ") ||
				!strings.HasSuffix(got[0], "no space left on device") {
				t.Errorf("reports %q", got)
			}
			waits := l.Unconfirmed()
			if len(waits) != 1 || !waits[0].Overdue || !strings.Contains(waits[0].Problem, "no space left on device") || l.text("red") != "two" {
				t.Errorf("waits %+v, configured %q", waits, l.configured())
			}
			if err := l.Confirm(as("api"), 0); !errors.Is(err, errFull) || len(l.Unconfirmed()) != 1 {
				t.Errorf("confirmed: %v", err)
			}
			time.Sleep(10 * time.Millisecond)
			if confirmed {
				l.store.fail(errFull, nil)
				must(t, l.Confirm(as("api"), 0))
			}
			l.store.fail(nil, nil)
			want := "one"
			if confirmed {
				want = "two"
			}
			l.eventually("nothing waits", func() bool { return len(l.Unconfirmed()) == 0 })
			if got := l.text("red"); got != want || len(l.reports()) > 2 {
				t.Errorf("red is %s; reports %q", got, l.reports())
			}
		})
	}
}

// The time to confirm starts with the commit of the change, even if a data plane hangs.
func TestAnUnconfirmedChangeIsUndoneInTimeIfADataPlaneHangs(t *testing.T) {
	for _, mode := range []intent.Mode{intent.BestEffort, intent.AllOrNothing} {
		t.Run(mode.String(), func(t *testing.T) {
			d, bonn, ulm := towns(t, nil)
			apply(t, d, "api", puts(vrf("red", "one")), intent.Options{})
			hangs := make(chan struct{})
			defer close(hangs)
			ulm.Lock()
			ulm.Slow = map[object.Key]<-chan struct{}{{Kind: "Vrf", Name: "red"}: hangs}
			ulm.Unlock()
			bonn.TakeLog()
			out, err := d.Apply(t.Context(), as("api"), puts(vrf("red", "two")), intent.Options{Mode: mode, ConfirmWithin: 50 * time.Millisecond})
			if !errors.Is(err, intent.ErrUnconfirmed) || !out.Undone || !out.ConfirmBy.IsZero() {
				t.Errorf("outcome %+v, error %v", out, err)
			}
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if log := bonn.TakeLog(); slices.Contains(log, "update Vrf/red") && d.OwnLayer("api", vrf("red", "").Key()).Spec.(*api.Vrf).Description == "one" {
					break
				} else if time.Now().After(end) {
					t.Fatalf("never undone in the data plane that answers")
				}
			}
			if err := d.Confirm(as("api"), 0); !errors.Is(err, intent.ErrNothingToConfirm) {
				t.Error(err)
			}
		})
	}
}

func TestAChangeCanBeConfirmedWhileADataPlaneHangs(t *testing.T) {
	d, _, ulm := towns(t, nil)
	apply(t, d, "api", puts(vrf("red", "one")), intent.Options{})
	for _, mode := range []intent.Mode{intent.BestEffort, intent.AllOrNothing} {
		hangs := make(chan struct{})
		ulm.Lock()
		ulm.Slow = map[object.Key]<-chan struct{}{{Kind: "Vrf", Name: "red"}: hangs}
		ulm.Unlock()
		done := make(chan error)
		go func() {
			_, err := d.Apply(context.Background(), as("api"), puts(vrf("red", mode.String())), intent.Options{Mode: mode, ConfirmWithin: time.Hour})
			done <- err
		}()
		for end := time.Now().Add(10 * time.Second); d.Confirm(as("api"), 0) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never to be confirmed")
			}
		}
		close(hangs)
		must(t, <-done)
		if got := d.Unconfirmed(); len(got) != 0 {
			t.Errorf("waits %+v", got)
		}
	}
}

// Changes of any owner while a revision waits stand, also over restarts of the agent; the undo restores the other objects of the revision.
func TestChangesWhileARevisionWaitsStand(t *testing.T) {
	names, owners := []string{"a", "b", "c"}, []string{"api", "night"}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := start(t, filepath.Join(t.TempDir(), "intent.db"))
		// The layer of each owner and object, and its value before the waiting revision, for objects that the revision changed.
		now, before := map[[2]string]string{}, map[[2]string]string{}
		var did []string
		for step := range 30 {
			owner := owners[random.IntN(len(owners))]
			var waits uint64
			for _, u := range l.Unconfirmed() {
				waits = u.Revision
			}
			switch what := random.IntN(10); {
			case what < 6:
				options := intent.Options{}
				if what < 3 {
					options = anHour
				}
				if what == 1 {
					options.Mode = intent.AllOrNothing
				}
				var changes []object.Change
				labels := map[string]string{}
				for _, name := range names {
					switch random.IntN(4) {
					case 0:
						// The labels of owners are disjoint, so that they never conflict.
						labels[name] = fmt.Sprint(step)
						o := vrf(name, "")
						o.Labels = map[string]string{owner: labels[name]}
						changes = append(changes, object.Put(o))
					case 1:
						if now[[2]string{name, owner}] != "" {
							labels[name] = ""
							changes = append(changes, object.Remove(object.Key{Kind: "Vrf", Name: name}))
						}
					}
				}
				out, err := l.Apply(t.Context(), as(owner), changes, options)
				var refused *intent.Waiting
				if options.ConfirmWithin > 0 && waits != 0 {
					if !errors.As(err, &refused) || refused.Revision != waits {
						t.Fatalf("seed %d: a second revision waits: %v", seed, err)
					}
					break
				}
				must(t, err)
				did = append(did, fmt.Sprintf("%s says %v as %d within %s", owner, labels, out.Revision, options.ConfirmWithin))
				for name, text := range labels {
					k := [2]string{name, owner}
					if delete(before, k); options.ConfirmWithin > 0 {
						before[k] = now[k]
					}
					now[k] = text
				}
			case what < 7 && waits != 0:
				did = append(did, fmt.Sprintf("%d is confirmed", waits))
				must(t, l.Confirm(as(owner), waits))
				clear(before)
			case what < 9 && waits != 0:
				did = append(did, fmt.Sprintf("%d is not confirmed", waits))
				l.Expire(waits)
				maps.Copy(now, before)
				clear(before)
			case what == 9:
				did = append(did, "started again")
				l = l.again()
			}
			for k, want := range now {
				got := ""
				if o := l.OwnLayer(k[1], object.Key{Kind: "Vrf", Name: k[0]}); o != nil {
					got = o.Labels[k[1]]
				}
				if got != want {
					t.Fatalf("seed %d: %s says %q of %s, not %q, after\n%s", seed, k[1], got, k[0], want, strings.Join(did, "\n"))
				}
			}
		}
		l.end()
	}
}

func TestASecondChangeThatIsToBeConfirmedIsRefused(t *testing.T) {
	l := start(t, filepath.Join(t.TempDir(), "intent.db"))
	l.put(intent.Options{}, vrf("red", "one"))
	waits := l.put(anHour, vrf("red", "two"))
	for _, options := range []intent.Options{anHour, whole} {
		_, err := l.Apply(t.Context(), as("night"), puts(vrf("blue", "one")), options)
		var refused *intent.Waiting
		if want := "revision 2 waits to be confirmed: confirm it (sluice confirm 2) or undo it (sluice rollback 1) before another change with " +
			"confirmation or as all or nothing"; !errors.As(err, &refused) || refused.Revision != waits || err.Error() != want {
			t.Errorf("error %v", err)
		}
	}
	// Any other change is not.
	l.put(intent.Options{}, vrf("blue", "one"))
	must(t, l.Confirm(as("api"), waits))
	l.put(anHour, vrf("blue", "two"))
}

func TestAllOrNothingWaitsForAnother(t *testing.T) {
	d, _, ulm := towns(t, nil)
	apply(t, d, "api", puts(vrf("red", "one"), vrf("blue", "one")), intent.Options{})
	hangs := make(chan struct{})
	ulm.Lock()
	ulm.Slow = map[object.Key]<-chan struct{}{{Kind: "Vrf", Name: "red"}: hangs}
	ulm.Unlock()
	done := make(chan error, 2)
	change := func(name string) {
		_, err := d.Apply(context.Background(), as("api"), puts(vrf(name, "two")), intent.Options{Mode: intent.AllOrNothing})
		done <- err
	}
	latest := d.Revision()
	go change("red")
	for end := time.Now().Add(10 * time.Second); d.Revision() == latest; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first is never kept")
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := d.Apply(ended, as("api"), puts(vrf("blue", "three")), intent.Options{Mode: intent.AllOrNothing}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	go change("blue")
	close(hangs)
	must(t, <-done)
	must(t, <-done)
	if got := d.OwnLayer("api", vrf("blue", "").Key()).Spec.(*api.Vrf).Description; got != "two" {
		t.Errorf("blue says %s", got)
	}
}
