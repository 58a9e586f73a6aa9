package reconcile

import (
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// graph is the heart: what is wanted, what the data plane has, what needs what. It does nothing by itself. next says what
// can be done now, settle tells it how that went. The same code plans and executes, so that a plan is what is done.
type graph struct {
	registry *object.Registry
	now      func() time.Time
	// Nanoseconds since the epoch of Unix: when whatever is being done began.
	at      int64
	entries object.Table[*entry]
	named   resolved
	told    difference
	// Entries to decide about, by the rank of their kinds.
	queues [][]*entry
	// What is Deleting.
	unwanted map[object.Key]struct{}
	// How often something came to be.
	deletions uint64
	// Who waits for an object to become ready, or to give up what it has.
	waiters map[object.Key]*waiters
	// What the data plane's objects have for themselves, by the numbers of entries.
	holdings *object.Holdings[object.Number]
	// What was started last, and what before that is not settled.
	wave, aloft []*step
	// Room for steps: many are made at once.
	steps []step
	// What the data plane refused because of something else; see retry.go.
	refused []*refusal
	// What it will refuse until what they name is another, by that.
	condemned map[object.Key]map[*entry]struct{}
	succeeded uint64
	failures  []failure
	measured  measured
	// Told whenever the status of an entry changed.
	changed func(*entry)
	// While simulating: how to take everything back.
	journal    []func()
	simulating bool
	epoch      uint32
}

// entry is one object. There are as many as objects, and each collection of garbage looks through all of them: what few of them have is
// behind pointers.
type entry struct {
	key  object.Key
	kind *object.Kind // nil: not a kind of ours
	want *Version     // nil: nobody wants it
	have *Version     // nil: the data plane does not have it
	// Who names it as the data plane has them; nil: never anybody.
	users *users
	// Must be deleted before it can be as wanted; nil: it need not.
	rebuild *rebuild
	// Nil: it waits for nobody.
	waits *waiting
	// It was refused because of something else, and is tried again once something else was done.
	refusal *refusal

	cause   *transaction
	message string
	// Nanoseconds since the epoch of Unix: of the latest change of state; and when it is tried again.
	since, retryAt int64
	// When what is wanted came to be so, until the data plane has it; 0: it has, or had it before.
	wantedAt int64
	// Of the latest simulation that took note of it.
	epoch  uint32
	number object.Number
	// Times that it failed in a row.
	failures int32
	state    State
	reason   Reason
	// As which it is counted: its state, unless it was forgotten. Gone is not counted.
	counted State
	// In the queue; started; decide again when settled.
	queued, flying, again bool
	// Its users know that it has to go.
	warned bool
	// Was just deleted to be created again.
	replacing bool
	// It would have to be deleted to be as wanted, and stays as it is because what is wanted could not be created.
	kept bool
}

// Key makes entries be found by their keys.
func (e *entry) Key() object.Key { return e.key }

// wantsAny says whether anything is wanted but what is always there.
func (g *graph) wantsAny() bool {
	for e := range g.entries.All() {
		if e.want != nil && !e.want.builtin {
			return true
		}
	}
	return false
}

type rebuild struct {
	why    string
	fields []object.FieldChange
}

// waiters wait for one object, in the order in which they began to. What is done must not depend on the order of a map, or a plan
// would not tell the truth.
type waiters struct {
	on          object.Key
	first, last *waiting
}

// waiting is an entry among those who wait for the same.
type waiting struct {
	*entry
	all           *waiters
	before, after *waiting
	// What it waits for is a claim.
	claim bool
}

// claiming says whether the entry waits for something to be given up.
func (e *entry) claiming() bool { return e.waits != nil && e.waits.claim }

// step is an operation on an entry.
type step struct {
	entry *entry
	put   *Version // nil: delete
	// What was wanted when it was decided about.
	want *Version
	operation
	settled bool
}

type operation = Operation

func newGraph(r *object.Registry, now func() time.Time, changed func(*entry)) *graph {
	g := &graph{
		registry: r, now: now, at: now().UnixNano(), changed: changed, waiters: map[object.Key]*waiters{}, unwanted: map[object.Key]struct{}{},
		condemned: map[object.Key]map[*entry]struct{}{}, queues: make([][]*entry, len(r.Kinds())+1),
	}
	g.holdings = object.NewHoldings(g.entries.Compare)
	return g
}

// rank orders entries by kind; those that are of no kind of ours come last.
func (g *graph) rank(e *entry) int {
	if e.kind == nil {
		return len(g.queues) - 1
	}
	return e.kind.Rank
}

// doomed says whether the data plane's object has to go.
func (e *entry) doomed() bool { return e.have != nil && (e.want == nil || e.rebuild != nil) }

func (e *entry) busy() bool { return e.queued || e.flying }

// open: something is still to be done for its transaction.
func (e *entry) open() bool { return e.busy() || e.refusal != nil }

func (e *entry) inStep() bool {
	return e.have != nil && e.want != nil && e.rebuild == nil && e.have.same(e.want)
}

// reserve makes room for so many more entries and claims, instead of doubling it again and again.
func (g *graph) reserve(more, claims int) {
	g.holdings.Reserve(claims)
	g.entries.Reserve(more)
}

// tick is called before anything is done.
func (g *graph) tick() { g.at = g.now().UnixNano() }

// remember takes note of an entry before it is changed, so that a simulation can be taken back.
func (g *graph) remember(e *entry) {
	if g.simulating && e.epoch != g.epoch {
		e.epoch = g.epoch
		before := *e
		g.note(func() { *e = before })
		if w := e.waits; w != nil {
			before := *w
			g.note(func() { *w = before })
		}
	}
}

// note takes note of how to undo something while simulating. Callers ask for that first: a closure costs memory.
func (g *graph) note(undo func()) { g.journal = append(g.journal, undo) }

// simulate runs f, and then makes everything be as it was before.
func (g *graph) simulate(f func()) {
	queues, refused := slices.Clone(g.queues), slices.Clone(g.refused)
	for i, q := range queues {
		queues[i] = slices.Clone(q)
	}
	wave, aloft, succeeded := g.wave, slices.Clone(g.aloft), g.succeeded
	g.simulating = true
	g.epoch++
	f()
	for i := len(g.journal) - 1; i >= 0; i-- {
		g.journal[i]()
	}
	g.journal, g.simulating, g.queues, g.refused = nil, false, queues, refused
	g.wave, g.aloft, g.succeeded = wave, aloft, succeeded
}

func (g *graph) ensure(k object.Key) *entry {
	e := g.entries.Get(k)
	if e == nil {
		e = &entry{key: k, kind: g.registry.Kind(k.Kind), state: Gone, counted: Gone, epoch: g.epoch}
		g.add(e)
		if g.simulating {
			g.note(func() { g.remove(k) })
		}
	}
	return e
}

func (g *graph) forget(e *entry) {
	if e.users.count() == 0 && g.entries.Get(e.key) == e {
		g.remove(e.key)
		if g.simulating {
			g.note(func() { g.add(e) })
		} else {
			g.recount(e, Gone)
		}
	}
}

func (g *graph) mark(e *entry, s State, reason Reason, message string) {
	if e.state == s && e.message == message {
		return
	}
	before := e.state
	e.state, e.reason, e.message = s, reason, message
	if !g.simulating {
		switch {
		case s == Deleting && before != Deleting:
			g.unwanted[e.key] = struct{}{}
			g.deletions++
		case before == Deleting:
			delete(g.unwanted, e.key)
		}
		e.since = g.at
		g.recount(e, s)
		g.changed(e)
	}
}

// recount counts an entry as in a state.
func (g *graph) recount(e *entry, s State) {
	g.measured.moved(e.key.Kind, e.counted, s)
	e.counted = s
}

// enqueue has an entry decided about. What is done in consequence is put down to the cause.
func (g *graph) enqueue(e *entry, cause *transaction) {
	g.remember(e)
	if cause != nil && cause != e.cause {
		if e.open() && !g.simulating {
			e.cause.leave()
			cause.enter()
		}
		e.cause = cause
	}
	if e.flying {
		e.again = true
		return
	}
	if e.queued {
		return
	}
	g.pardon(e)
	wasOpen := e.refusal != nil
	e.queued, e.refusal = true, nil
	rank := g.rank(e)
	g.queues[rank] = append(g.queues[rank], e)
	if !g.simulating && !wasOpen {
		e.cause.enter()
	}
}

// rest is the end of being busy.
func (g *graph) rest(e *entry) {
	if !g.simulating && !e.open() {
		e.cause.leave()
		e.cause = nil
	}
}

// wake has those who wait for the entry decided about again; while it waits itself, not those who wait for it to give something up: so all
// of a ring come to wait, and the last sees it.
func (g *graph) wake(e *entry) {
	all := g.waiters[e.key]
	if all == nil {
		return
	}
	if e.waits != nil {
		for w := all.first; w != nil; w = w.after {
			if !w.claim {
				g.remember(w.entry)
				g.unwait(w.entry)
				g.enqueue(w.entry, e.cause)
			}
		}
		return
	}
	delete(g.waiters, e.key)
	if g.simulating {
		before := *all
		g.note(func() { *all = before; g.waiters[e.key] = all })
	}
	w := all.first
	all.first, all.last = nil, nil
	for ; w != nil; w = w.after {
		g.remember(w.entry)
		w.waits = nil
		g.enqueue(w.entry, e.cause)
	}
}

// inOrder: as with waiters. Each is there once.
func inOrder(all []*entry) []*entry {
	slices.SortFunc(all, func(a, b *entry) int { return a.key.Compare(b.key) })
	return slices.Compact(all)
}

func (g *graph) wait(e *entry, on object.Key, claiming bool, reason Reason, message string) {
	g.unwait(e)
	all := g.waiters[on]
	if all == nil {
		all = &waiters{on: on}
		g.waiters[on] = all
		if g.simulating {
			g.note(func() { delete(g.waiters, on) })
		}
	} else if g.simulating {
		before := *all
		g.note(func() { *all = before })
	}
	w := &waiting{entry: e, all: all, before: all.last, claim: claiming}
	e.waits, e.failures = w, 0
	if all.last == nil {
		all.first = w
	} else {
		g.remember(all.last.entry)
		all.last.after = w
	}
	all.last = w
	if e.have == nil {
		g.mark(e, Pending, reason, message+isAbsent)
	} else {
		g.mark(e, Pending, reason, message+isAsBefore)
	}
}

func (g *graph) unwait(e *entry) {
	w := e.waits
	if w == nil {
		return
	}
	all := w.all
	if g.simulating {
		before := *all
		g.note(func() { *all = before })
	}
	if w.before == nil {
		all.first = w.after
	} else {
		g.remember(w.before.entry)
		w.before.after = w.after
	}
	if w.after == nil {
		all.last = w.before
	} else {
		g.remember(w.after.entry)
		w.after.before = w.before
	}
	if all.first == nil {
		delete(g.waiters, all.on)
		if g.simulating {
			g.note(func() { g.waiters[all.on] = all })
		}
	}
	e.waits = nil
}

// setWant changes what is wanted. nil: nobody wants the object any more.
func (g *graph) setWant(k object.Key, v *Version, cause *transaction) {
	e := g.ensure(k)
	g.remember(e)
	if v != nil {
		e.key = v.Key() // and what was said before is not held on to
	}
	if v == nil && e.have != nil && e.kind != nil && e.kind.IsBuiltin(k.Name) {
		v = g.builtin(k)
	}
	g.pardon(e)
	e.want, e.failures, e.warned = v, 0, false
	g.compare(e)
	e.wantedAt = 0
	if v != nil && !v.builtin && !e.inStep() {
		e.wantedAt = g.at
	}
	g.enqueue(e, cause)
	switch {
	case v == nil && (e.have != nil || e.flying):
		g.mark(e, Deleting, WaitsForTurn, "waits for its turn")
	case v == nil:
		g.mark(e, Gone, NotWanted, "")
	case v != nil && !e.inStep():
		g.mark(e, Pending, WaitsForTurn, "waits for its turn")
	case v != nil && !g.simulating:
		g.changed(e)
	}
}

// builtin is what an object says that is always there, when nobody says anything.
func (g *graph) builtin(k object.Key) *Version {
	o, err := g.registry.Explore(k, nil)
	if err != nil {
		return nil
	}
	return &Version{Kept: o, builtin: true}
}

// compare finds out whether what the data plane has can become what is wanted in place.
func (g *graph) compare(e *entry) {
	e.rebuild = nil
	if e.have == nil || e.want == nil || e.have.same(e.want) {
		return
	}
	if e.have.Kept == nil {
		e.rebuild = &rebuild{why: "what the data plane has cannot be read"}
		return
	}
	fields := g.differences(e)
	if len(fields) > 0 && fields[0].Immutable {
		e.rebuild = &rebuild{fields[0].Field + " cannot change in place", fields}
	}
}

// setHave takes note of what the data plane has now.
func (g *graph) setHave(e *entry, v *Version) {
	g.remember(e)
	if old := e.have; old != nil {
		for k := range old.needs() {
			t := g.ensure(k)
			g.unuse(e, t)
			if t.users.count() == 0 && t.doomed() {
				g.enqueue(t, e.cause)
			}
			if t.users.count() == 0 && t.have == nil && t.want == nil {
				g.forget(t)
			}
		}
		for m := range old.marks() {
			if released := g.holdings.Release(e.number, m); released && g.simulating {
				g.note(func() { g.holdings.Take(e.number, m) })
			}
		}
	}
	e.have, e.warned = v, false
	if v == nil {
		return
	}
	needs := g.resolve(v)
	for i, t := range needs.entries {
		if t == nil {
			k := needs.keys[i]
			k.Name = strings.Clone(k.Name) // it is part of what this version says
			t = g.ensure(k)
		}
		g.use(e, t)
	}
	for m := range v.marks() {
		if _, taken := g.holdings.Holder(e.number, m); taken {
			continue // two objects in a data plane that we did not fill; each is dealt with by itself
		}
		g.holdings.Take(e.number, m)
		if g.simulating {
			g.note(func() { g.holdings.Release(e.number, m) })
		}
	}
}
