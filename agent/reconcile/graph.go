package reconcile

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// graph is the heart: what is wanted, what the data plane has, what needs what. It does nothing by itself. next says what
// can be done now, settle tells it how that went. The same code plans and executes, so that a plan is what is done.
type graph struct {
	registry *object.Registry
	now      func() time.Time
	entries  map[object.Key]*entry
	// Entries to decide about.
	queue []*entry
	// Who waits for an object to become ready, or to give up what it has.
	waiters map[object.Key]map[*entry]struct{}
	// What the data plane's objects have for themselves.
	holdings *object.Holdings
	// What was started and is not settled.
	wave []*step
	// Told whenever the status of an entry changed.
	changed func(*entry)
	// While simulating: how to take everything back.
	journal    []func()
	simulating bool
	epoch      uint64
	// Changes when an entry comes or goes.
	generation uint64
}

// version is what an object says at one time. It never changes.
type version struct {
	object   *object.Object // nil: the data plane has something that cannot be read
	spec     []byte
	refs     []object.Key
	claims   []object.Claim
	owner    string
	revision uint64
	// It stands for a builtin object that nobody wrote down.
	builtin bool
}

// entry is one object.
type entry struct {
	key  object.Key
	kind *object.Kind // nil: not a kind of ours
	want *version     // nil: nobody wants it
	have *version     // nil: the data plane does not have it
	// Entries that, as the data plane has them, name this one.
	users map[*entry]struct{}

	// In the queue; started; decide again when settled.
	queued, flying, again bool
	// Must be deleted before it can be as wanted, and why.
	rebuild bool
	why     string
	fields  []object.FieldChange
	// Its users know that it has to go.
	warned bool
	// Was just deleted to be created again.
	replacing bool
	// Whom it waits for, and whether that is for a claim.
	waiting  object.Key
	waits    bool
	claiming bool
	// Times that it failed in a row.
	failures int
	// When it is tried again.
	retryAt time.Time

	cause   *transaction
	state   State
	message string
	since   time.Time
	epoch   uint64
}

// step is an operation on an entry.
type step struct {
	entry *entry
	put   *version // nil: delete
	operation
	settled bool
}

type operation = Operation

func newGraph(r *object.Registry, now func() time.Time, changed func(*entry)) *graph {
	return &graph{
		registry: r, now: now, changed: changed, entries: map[object.Key]*entry{}, waiters: map[object.Key]map[*entry]struct{}{},
		holdings: object.NewHoldings(),
	}
}

// doomed says whether the data plane's object has to go.
func (e *entry) doomed() bool { return e.have != nil && (e.want == nil || e.rebuild) }

func (e *entry) busy() bool { return e.queued || e.flying }

func (e *entry) inStep() bool {
	return e.have != nil && e.want != nil && !e.rebuild && bytes.Equal(e.have.spec, e.want.spec)
}

// version prepares what an object says. It needs no lock.
func newVersion(r *object.Registry, o *object.Object, owner string, revision uint64) (*version, error) {
	spec, err := object.Pack(o.Spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Key(), err)
	}
	v := &version{object: o, spec: spec, owner: owner, revision: revision, claims: r.Claims(o)}
	for _, ref := range r.References(o) {
		if !ref.Builtin && !slices.Contains(v.refs, ref.To) {
			v.refs = append(v.refs, ref.To)
		}
	}
	return v, nil
}

// remember takes note of an entry before it is changed, so that a simulation can be taken back.
func (g *graph) remember(e *entry) {
	if g.simulating && e.epoch != g.epoch {
		e.epoch = g.epoch
		before := *e
		g.journal = append(g.journal, func() { *e = before })
	}
}

func (g *graph) note(undo func()) {
	if g.simulating {
		g.journal = append(g.journal, undo)
	}
}

// simulate runs f, and then makes everything be as it was before.
func (g *graph) simulate(f func()) {
	queue, wave, generation := slices.Clone(g.queue), g.wave, g.generation
	g.simulating = true
	g.epoch++
	f()
	for i := len(g.journal) - 1; i >= 0; i-- {
		g.journal[i]()
	}
	g.journal, g.simulating, g.queue, g.wave, g.generation = nil, false, queue, wave, generation
}

func (g *graph) ensure(k object.Key) *entry {
	e := g.entries[k]
	if e == nil {
		e = &entry{key: k, kind: g.registry.Kind(k.Kind), state: Gone, epoch: g.epoch}
		g.entries[k] = e
		g.generation++
		g.note(func() { delete(g.entries, k) })
	}
	return e
}

func (g *graph) forget(e *entry) {
	if g.entries[e.key] == e && len(e.users) == 0 {
		delete(g.entries, e.key)
		g.generation++
		g.note(func() { g.entries[e.key] = e })
	}
}

func (g *graph) mark(e *entry, s State, message string) {
	if e.state == s && e.message == message {
		return
	}
	e.state, e.message = s, message
	if !g.simulating {
		e.since = g.now()
		g.changed(e)
	}
}

// enqueue has an entry decided about. What is done in consequence is put down to the cause.
func (g *graph) enqueue(e *entry, cause *transaction) {
	g.remember(e)
	if cause != nil && cause != e.cause {
		if e.busy() && !g.simulating {
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
	e.queued = true
	g.queue = append(g.queue, e)
	if !g.simulating {
		e.cause.enter()
	}
}

// rest is the end of being busy.
func (g *graph) rest(e *entry) {
	if !g.simulating && !e.busy() {
		e.cause.leave()
	}
}

// wake has those who wait for the entry decided about again.
func (g *graph) wake(e *entry) {
	waiters := g.waiters[e.key]
	if len(waiters) == 0 {
		return
	}
	delete(g.waiters, e.key)
	g.note(func() { g.waiters[e.key] = waiters })
	for _, w := range sorted(waiters) {
		g.remember(w)
		w.waits, w.claiming = false, false
		g.enqueue(w, e.cause)
	}
}

// sorted: what is done must not depend on the order of a map, or a plan would not tell the truth.
func sorted(set map[*entry]struct{}) []*entry {
	all := make([]*entry, 0, len(set))
	for e := range set {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return a.key.Compare(b.key) })
	return all
}

func (g *graph) wait(e *entry, on object.Key, claiming bool, message string) {
	g.unwait(e)
	e.waiting, e.waits, e.claiming, e.failures = on, true, claiming, 0
	waiters := g.waiters[on]
	if waiters == nil {
		waiters = map[*entry]struct{}{}
		g.waiters[on] = waiters
		g.note(func() { delete(g.waiters, on) })
	}
	waiters[e] = struct{}{}
	g.note(func() { delete(waiters, e) })
	g.mark(e, Pending, message)
}

func (g *graph) unwait(e *entry) {
	if !e.waits {
		return
	}
	on := e.waiting
	waiters := g.waiters[on]
	delete(waiters, e)
	g.note(func() { waiters[e] = struct{}{} })
	if len(waiters) == 0 {
		delete(g.waiters, on)
		g.note(func() { g.waiters[on] = waiters })
	}
	e.waits, e.claiming = false, false
}

// setWant changes what is wanted. nil: nobody wants the object any more.
func (g *graph) setWant(k object.Key, v *version, cause *transaction) {
	e := g.ensure(k)
	g.remember(e)
	if v == nil && e.have != nil && e.kind != nil && e.kind.IsBuiltin(k.Name) {
		v = g.builtin(k)
	}
	e.want, e.failures, e.warned = v, 0, false
	g.compare(e)
	g.enqueue(e, cause)
	switch {
	case v == nil && e.have != nil:
		g.mark(e, Deleting, "waits for its turn")
	case v != nil && !e.inStep():
		g.mark(e, Pending, "waits for its turn")
	case v != nil && !g.simulating:
		g.changed(e)
	}
}

// builtin is what an object says that is always there, when nobody says anything.
func (g *graph) builtin(k object.Key) *version {
	o, err := g.registry.New(k.Kind, k.Name, nil, nil)
	if err != nil {
		return nil
	}
	return &version{object: o, builtin: true}
}

// compare finds out whether what the data plane has can become what is wanted in place.
func (g *graph) compare(e *entry) {
	e.rebuild, e.why, e.fields = false, "", nil
	if e.have == nil || e.want == nil || bytes.Equal(e.have.spec, e.want.spec) {
		return
	}
	if e.have.object == nil {
		e.rebuild, e.why = true, "what the data plane has cannot be read"
		return
	}
	fields := e.kind.Diff(e.have.object.Spec, e.want.object.Spec)
	if len(fields) > 0 && fields[0].Immutable {
		e.rebuild, e.why, e.fields = true, fields[0].Field+" cannot change in place", fields
	}
}

// setHave takes note of what the data plane has now.
func (g *graph) setHave(e *entry, v *version) {
	g.remember(e)
	if old := e.have; old != nil {
		for _, k := range old.refs {
			t := g.ensure(k)
			delete(t.users, e)
			g.note(func() { t.users[e] = struct{}{} })
			if len(t.users) == 0 && t.doomed() {
				g.enqueue(t, e.cause)
			}
			if len(t.users) == 0 && t.have == nil && t.want == nil {
				g.forget(t)
			}
		}
		for _, c := range old.claims {
			g.holdings.Release(e.key, c)
			g.note(func() { g.holdings.Take(e.key, c) })
		}
	}
	e.have, e.warned = v, false
	if v == nil {
		return
	}
	for _, k := range v.refs {
		t := g.ensure(k)
		g.remember(t)
		if t.users == nil {
			t.users = map[*entry]struct{}{}
		}
		users := t.users
		users[e] = struct{}{}
		g.note(func() { delete(users, e) })
	}
	for _, c := range v.claims {
		if _, taken := g.holdings.Holder(e.key, c); taken {
			continue // two objects in a data plane that we did not fill; each is dealt with by itself
		}
		g.holdings.Take(e.key, c)
		g.note(func() { g.holdings.Release(e.key, c) })
	}
}
