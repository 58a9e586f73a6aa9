package intent_test

import (
	"context"
	"errors"
	"fmt"
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

// flawed is a store on disk that may be told to write no more.
type flawed struct {
	*store.Store
	mu               sync.Mutex
	commits, settles error
}

func (f *flawed) fail(commits, settles error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits, f.settles = commits, settles
}

func (f *flawed) flaws() (commits, settles error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits, f.settles
}

func (f *flawed) Commit(c *intent.Commit) error {
	if err, _ := f.flaws(); err != nil {
		return err
	}
	return f.Store.Commit(c)
}

func (f *flawed) Settle(revision uint64, open *intent.Open, revised []intent.Undo) error {
	if _, err := f.flaws(); err != nil {
		return err
	}
	return f.Store.Settle(revision, open, revised)
}

// life is an agent from one start to its end, and what it told of what it undid.
type life struct {
	*intent.Desired
	t     testing.TB
	path  string
	plane *reconciletest.Plane
	store *flawed
	end   func()

	mu   sync.Mutex
	told []intent.Undoing
}

func born(t testing.TB, path string) *life {
	t.Helper()
	r := registry(t)
	s, err := store.Open(path, r)
	must(t, err)
	l := &life{t: t, path: path, plane: reconciletest.NewPlane(r), store: &flawed{Store: s}}
	l.Desired, err = intent.New(intent.Config{Registry: r, Store: l.store, UndoAgain: time.Millisecond,
		Reconciler: reconcile.Options{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Undone: func(u intent.Undoing) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.told = append(l.told, u)
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

func (l *life) again() *life {
	l.t.Helper()
	l.end()
	return born(l.t, l.path)
}

// tellings are what was told of what was undone.
func (l *life) tellings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, u := range l.told {
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

func (l *life) put(options intent.Options, objects ...*object.Object) uint64 {
	l.t.Helper()
	return apply(l.t, l.Desired, "api", puts(objects...), options).Revision
}

func (l *life) eventually(what string, holds func() bool) {
	l.t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("never: %s; wanted is %v", what, l.wanted())
		}
	}
}

func (l *life) wanted() []string {
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

func (l *life) device(name string) string {
	if o := l.Said("api", object.Key{Kind: "Port", Name: name}); o != nil {
		return o.Spec.(*api.Port).Device
	}
	return ""
}

func (l *life) text(name string) string {
	if o := l.Said("api", object.Key{Kind: "Vrf", Name: name}); o != nil {
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

// The agent died when all of an all-or-nothing change was done and that was not kept yet; somebody took what it gave up.
func TestTheAgentStartsAlsoIfAnUnfinishedChangeCannotBeUndoneWhole(t *testing.T) {
	l := born(t, filepath.Join(t.TempDir(), "intent.db"))
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
	why := "revision 2 undone in part: the agent ended before all of it was done; left as it is: Port/a (device: Port/b already has Port device net_null0)"
	if got := history[0].Source; got.Owner != "agent" || got.Why != why {
		t.Errorf("history %+v", got)
	}
	if got := l.tellings(); !slices.Equal(got, []string{"agent: " + why + ": update Vrf/red"}) {
		t.Errorf("told %q", got)
	}
	st, _ := l.Get(object.Key{Kind: "Port", Name: "a"})
	if c := st.Conditions()[0]; !c.Holds || c.Reason != "NotUndone" || c.Message != "revision 2 is to be undone, but device: Port/b already has Port device net_null0" {
		t.Errorf("condition %+v", c)
	}
	if waits := l.Unconfirmed(); len(waits) != 1 || !waits[0].Overdue || waits[0].Revision != 2 || len(waits[0].Left) != 1 {
		t.Errorf("waits %+v", waits)
	}

	// It is no other revision each time that it is tried, nor each time that the agent starts.
	l = l.again()
	time.Sleep(20 * time.Millisecond)
	if l.Revision() != history[0].Number {
		t.Errorf("revision %d", l.Revision())
	}
	apply(t, l.Desired, "api", removes(at("b", "")), intent.Options{})
	l.eventually("a is as before", func() bool { return l.device("a") == "net_null0" })
	l.eventually("nothing waits", func() bool { return len(l.Unconfirmed()) == 0 })
	if st, _ := l.Get(object.Key{Kind: "Port", Name: "a"}); st.NotUndone != "" {
		t.Errorf("still told: %s", st.NotUndone)
	}
}

func TestWhatStandsInTheWayOfUndoingKeepsNothingElseFromIt(t *testing.T) {
	l := born(t, filepath.Join(t.TempDir(), "intent.db"))
	l.put(intent.Options{}, at("a", "net_null0"), vrf("red", "one"))
	changed := l.put(anHour, at("a", "net_null1"), vrf("red", "two"), vrf("new", "two"))
	l.put(intent.Options{}, at("b", "net_null0"))
	events, err := l.Events(intent.Cursor{})
	must(t, err)
	l.Expire(changed)
	if got := l.wanted(); len(got) != 3 || l.device("a") != "net_null1" || l.text("red") != "one" {
		t.Errorf("wanted is %q", got)
	}
	for seen := false; !seen; {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		e, err := events.Next(ctx)
		cancel()
		must(t, err)
		seen = e.Status.NotUndone != ""
	}
	// Somebody decides that the rest stands.
	must(t, l.Confirm(as("api"), 0))
	apply(t, l.Desired, "api", removes(at("b", "")), intent.Options{})
	time.Sleep(20 * time.Millisecond)
	if l.device("a") != "net_null1" || len(l.Unconfirmed()) != 0 {
		t.Errorf("wanted is %q", l.wanted())
	}
	in := fmt.Sprintf("revision %d was undone in part already, by revision %d, and the rest confirmed", changed, changed+2)
	if err := l.Confirm(as("api"), changed); !errors.Is(err, intent.ErrNothingToConfirm) || err.Error() != in {
		t.Errorf("confirmed twice: %v", err)
	}
}

func TestHistorySaysWhatBecameOfWhatHadToBeConfirmed(t *testing.T) {
	l := born(t, filepath.Join(t.TempDir(), "intent.db"))
	l.Expire(l.put(anHour, vrf("first", "one")))
	l.put(intent.Options{}, at("a", "net_null0"), vrf("red", "one"))
	must(t, l.Confirm(as("api"), l.put(anHour, vrf("red", "two"))))
	changed := l.put(anHour, at("a", "net_null1"), vrf("red", "three"))
	l.put(intent.Options{}, at("b", "net_null0"))
	l.Expire(changed)
	l.put(anHour, vrf("blue", "one"))
	_, err := l.Apply(t.Context(), intent.Source{Owner: "agent", Why: "revision 4 undone: so they say"}, puts(vrf("green", "one")), intent.Options{})
	must(t, err)

	inPart := intent.Standing{Waits: true, Overdue: true, UndoneBy: 7, InPart: true}
	want := map[uint64]intent.Standing{1: {UndoneBy: 2}, 5: inPart, 8: {Waits: true}}
	check := func() {
		t.Helper()
		for before := range uint64(11) {
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

// Two ports that change places can only do so together.
func TestWhatIsAcceptableTogetherIsUndoneTogether(t *testing.T) {
	l := born(t, filepath.Join(t.TempDir(), "intent.db"))
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
			l := born(t, filepath.Join(t.TempDir(), "intent.db"))
			l.put(intent.Options{}, vrf("red", "one"))
			l.store.fail(errFull, errFull)
			l.store.fail(nil, nil)
			changed := l.put(anHour, vrf("red", "two"))
			l.store.fail(errFull, errFull)
			l.Expire(changed)
			if got := l.tellings(); len(got) != 1 || !strings.HasPrefix(got[0], "agent: revision 2 is to be undone: nobody confirmed it in time: ") ||
				!strings.HasSuffix(got[0], "no space left on device") {
				t.Errorf("told %q", got)
			}
			waits := l.Unconfirmed()
			if len(waits) != 1 || !waits[0].Overdue || !strings.Contains(waits[0].Problem, "no space left on device") || l.text("red") != "two" {
				t.Errorf("waits %+v, wanted %q", waits, l.wanted())
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
			if got := l.text("red"); got != want || len(l.tellings()) > 2 {
				t.Errorf("red says %s; told %q", got, l.tellings())
			}
		})
	}
}

// The clock runs from when the change is wanted, whatever data planes do.
func TestWhatNobodyConfirmsIsUndoneInTimeAlsoIfADataPlaneHangs(t *testing.T) {
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
				if log := bonn.TakeLog(); slices.Contains(log, "update Vrf/red") && d.Said("api", vrf("red", "").Key()).Spec.(*api.Vrf).Description == "one" {
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

// pile is what an owner says of an object by turns: what stands, and above it what is open.
type pile []struct {
	revision uint64
	text     string
}

func (p pile) top() string {
	if len(p) == 0 {
		return ""
	}
	return p[len(p)-1].text
}

// Whatever the order in which open changes end, and whenever the agent is started again: what is wanted is what is left of the pile.
func TestOpenChangesOfTheSameObjectsEndInAnyOrder(t *testing.T) {
	names, owners := []string{"a", "b", "c"}, []string{"api", "night"}
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := born(t, filepath.Join(t.TempDir(), "intent.db"))
		piles := map[[2]string]pile{}
		var did []string
		for step := range 30 {
			owner := owners[random.IntN(len(owners))]
			var open []uint64
			for _, u := range l.Unconfirmed() {
				open = append(open, u.Revision)
			}
			switch what := random.IntN(10); {
			case what < 6:
				options := intent.Options{}
				if what < 4 {
					options = anHour
				}
				if what == 1 {
					options.Mode = intent.AllOrNothing
				}
				var changes []object.Change
				said := map[string]string{}
				for _, name := range names {
					now := piles[[2]string{name, owner}].top()
					switch random.IntN(4) {
					case 0:
						// As its value, so that owners do not differ: each says a label of its own.
						said[name] = fmt.Sprint(step)
						o := vrf(name, "")
						o.Labels = map[string]string{owner: said[name]}
						changes = append(changes, object.Put(o))
					case 1:
						if now != "" {
							said[name] = ""
							changes = append(changes, object.Remove(object.Key{Kind: "Vrf", Name: name}))
						}
					}
				}
				out, err := l.Apply(t.Context(), as(owner), changes, options)
				must(t, err)
				did = append(did, fmt.Sprintf("%s says %v as %d within %s", owner, said, out.Revision, options.ConfirmWithin))
				for name, text := range said {
					k := [2]string{name, owner}
					one := pile{{0, text}}
					if options.ConfirmWithin > 0 {
						one[0].revision = out.Revision
						one = append(slices.Clone(piles[k]), one...)
					}
					piles[k] = one
				}
			case what < 7 && len(open) > 0:
				r := open[random.IntN(len(open))]
				did = append(did, fmt.Sprintf("%d is confirmed", r))
				must(t, l.Confirm(as(owner), r))
				for k, p := range piles {
					for i := range p {
						if p[i].revision == r {
							p[i].revision = 0
							piles[k] = p[i:]
						}
					}
				}
			case what < 9 && len(open) > 0:
				r := open[random.IntN(len(open))]
				did = append(did, fmt.Sprintf("%d is not confirmed", r))
				l.Expire(r)
				for k, p := range piles {
					for i := range p {
						if p[i].revision == r {
							piles[k] = slices.Delete(slices.Clone(p), i, i+1)
						}
					}
				}
			case what == 9:
				did = append(did, "started again")
				l = l.again()
			}
			for k, p := range piles {
				got := ""
				if o := l.Said(k[1], object.Key{Kind: "Vrf", Name: k[0]}); o != nil {
					got = o.Labels[k[1]]
				}
				if got != p.top() {
					t.Fatalf("seed %d: %s says %q of %s, not %q, after\n%s", seed, k[1], got, k[0], p.top(), strings.Join(did, "\n"))
				}
			}
		}
		l.end()
	}
}
