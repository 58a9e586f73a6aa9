// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// graph is the core: desired state, observed state, and the references between objects. It is passive: next returns
// possible steps, and settle takes their results. The same code plans and executes, so that a plan is exact.
type graph struct {
	registry *object.Registry
	now      func() time.Time
	// Start of the present operation, in nanoseconds since the Unix epoch.
	at      int64
	entries object.Table[*entry]
	// Of the latest entry that was added: mostly the next one is of it, too.
	kind     *object.Kind
	named    resolved
	compared difference
	// Entries to decide about, by the rank of their kinds.
	queues [][]*entry
	// Entries that only the data plane has, by number, and their count. Others are among the numbers: removal of one
	// would cost more than skipping it.
	leftovers []object.Number
	left      int
	// How often something came to be.
	deletions uint64
	// The number of objects that were found in the data plane and not read yet: their needs and claims are unknown
	// (settle.go).
	unread int
	// Services of which only produced objects stay (retain.go).
	released map[string]struct{}
	// Of objects that were found in the data plane.
	origins map[string]*Origin
	// Entries that wait for an object to become ready, or to release a claim.
	waiters map[object.Key]*waiters
	// Claims of the data plane's objects, by the numbers of entries.
	holdings *object.Holdings[object.Number]
	networks networks
	// The steps that were started last, and earlier ones that are not settled.
	wave, aloft []*step
	// Room for steps: many are made at once, of which there is room for so many.
	steps    []step
	stepRoom int
	// Steps that the data plane refused because of another object; see retry.go.
	refused []*refusal
	// Entries that the data plane will refuse until an object that they name changes, by that object.
	condemned map[object.Key]map[*entry]struct{}
	succeeded uint64
	failures  []failure
	measured  measured
	// Called whenever the status of an entry changed.
	changed func(*entry)
	// The graph is a copy on which a plan is carried out: it measures nothing, and has no listeners. The snapshot is asked for entries
	// that the plan concerns, too; nil: it is not carried out yet.
	simulating bool
	asks       *snapshot
}

// entry is one object. There are as many as objects, and each garbage collection scans all of them: rarely used
// fields are behind pointers.
type entry struct {
	key     object.Key
	kind    *object.Kind // nil: not a kind of ours
	desired *Version     // nil: not desired
	have    *Version     // nil: the data plane does not have it
	// Entries that name it in the data plane; nil: never any.
	users *users
	// It must be deleted before it can reach its desired state; nil: it need not.
	rebuild *rebuild
	// Nil: it does not wait.
	waits *waiting
	// It was refused because of something else, and is tried again once something else was done.
	refusal *refusal

	cause *transaction
	// The reason of its state; of a waiting entry, the object that it waits for.
	message string
	// When it is tried again; nil: it never failed.
	retry *retry
	// Nanoseconds since the epoch of Unix: of the latest change of state.
	since int64
	// The time of its desired state, until the data plane has it; 0: it has, or had it before.
	desiredAt int64
	number    object.Number
	// The place among the changes of its Work.
	place uint32
	// Times that it failed in a row, at most 100.
	failures uint8
	state    State
	reason   Reason
	// As which it is counted: its state, unless it was forgotten. Gone is not counted.
	counted State
	// In the queue; started; decide again when settled.
	queued, flying, again bool
	// It waits for an object that is queued or started, so its transaction goes on.
	soon bool
	// Its users know that it has to go.
	warned bool
	// It is counted as a leftover of the data plane.
	leftover bool
	// The data plane has listed it.
	listed bool
	// Was just deleted to be created again.
	replacing bool
	// It would have to be deleted to reach its desired state, and stays because the desired object could not be
	// created.
	kept bool
}

// Key makes entries be found by their keys.
func (e *entry) Key() object.Key { return e.key }

// anyDesired reports whether any object is desired except builtin ones.
func (g *graph) anyDesired() bool {
	for e := range g.entries.All() {
		if e.desired != nil && !e.desired.builtin() {
			return true
		}
	}
	return false
}

type rebuild struct {
	why    string
	fields []object.FieldChange
}

// waiters wait for one object, in the order of arrival. The order of steps must not depend on the order of a map, or
// plans would not be exact.
type waiters struct {
	on          object.Key
	first, last *waiting
}

// waiting is an entry among the waiters for one object.
type waiting struct {
	*entry
	all           *waiters
	before, after *waiting
	// It waits for a claim.
	claim bool
	// It waits for a missing object.
	missing *Missing
}

// claiming reports whether the entry waits for a claim to be released.
func (e *entry) claiming() bool { return e.waits != nil && e.waits.claim }

// step is an operation on an entry.
type step struct {
	entry *entry
	put   *Version // nil: delete
	// The desired state at the decision.
	desired *Version
	operation
	settled bool
}

type operation = Operation

func newGraph(r *object.Registry, now func() time.Time, changed func(*entry)) *graph {
	g := &graph{
		registry: r, now: now, at: now().UnixNano(), changed: changed, waiters: map[object.Key]*waiters{},
		released: map[string]struct{}{}, origins: map[string]*Origin{},
		condemned: map[object.Key]map[*entry]struct{}{}, queues: make([][]*entry, len(r.Kinds())+1),
	}
	g.holdings, g.networks = object.NewHoldings(g.entries.Compare), newNetworks()
	return g
}

// rank orders entries by kind; those that are of no kind of ours come last.
func (g *graph) rank(e *entry) int {
	if e.kind == nil {
		return len(g.queues) - 1
	}
	return e.kind.Rank
}

// doomed reports whether the data plane's object has to be deleted.
func (e *entry) doomed() bool { return e.have != nil && (e.desired == nil || e.rebuild != nil) }

func (e *entry) busy() bool { return e.queued || e.flying }

// open: something is still to be done for its transaction.
func (e *entry) open() bool { return e.busy() || e.soon || e.refusal != nil }

func (e *entry) inStep() bool {
	return e.have != nil && e.desired != nil && e.rebuild == nil && e.have.same(e.desired)
}

// reserve makes room for so many more entries and claims, instead of doubling it again and again.
func (g *graph) reserve(more, claims int) {
	g.holdings.Reserve(claims)
	g.entries.Reserve(more)
}

// tick is called before anything is done.
func (g *graph) tick() { g.at = g.now().UnixNano() }

func (g *graph) ensure(k object.Key) *entry {
	e := g.entries.Get(k)
	if e == nil {
		if g.kind == nil || g.kind.Name != k.Kind {
			g.kind = g.registry.Kind(k.Kind)
		}
		e = &entry{key: k, kind: g.kind, state: Gone, counted: Gone}
		g.add(e)
	}
	return e
}

func (g *graph) forget(e *entry) {
	if e.users.count() == 0 && g.entries.Get(e.key) == e {
		g.remove(e.key)
		if !g.simulating {
			g.recount(e, Gone)
		}
	}
}

func (g *graph) mark(e *entry, s State, reason Reason, message string) {
	if e.state == s && e.reason == reason && e.message == message {
		return
	}
	e.state, e.reason, e.message = s, reason, message
	if !g.simulating {
		g.countLeftover(e, leftover(e, s))
		e.since = g.at
		g.recount(e, s)
		g.changed(e)
	}
}

// leftover reports whether only the data plane has an object in this state: it is being deleted, or a service left it
// there.
func leftover(e *entry, s State) bool {
	return s == Deleting || s != Gone && e.desired != nil && e.desired.retained()
}

// countLeftover notes whether an entry is in the data plane alone.
func (g *graph) countLeftover(e *entry, is bool) {
	switch {
	case e.leftover == is:
	case is:
		if len(g.leftovers) > 2*g.left+leftoverSlack {
			g.leftovers = slices.DeleteFunc(g.leftovers, func(n object.Number) bool { return !g.isLeftover(n) })
		}
		g.leftovers = append(g.leftovers, e.number)
		g.left++
		g.deletions++
	default:
		if g.left--; g.left == 0 {
			g.leftovers = nil
		}
	}
	e.leftover = is
}

// leftoverSlack is how many numbers may be among the leftovers that stand for none.
const leftoverSlack = 1 << 10

// isLeftover reports whether a number is that of a leftover.
func (g *graph) isLeftover(n object.Number) bool {
	e := g.entries.At(n)
	return e != nil && e.leftover
}

// recount counts an entry as in a state.
func (g *graph) recount(e *entry, s State) {
	g.measured.moved(e.key.Kind, e.counted, s)
	e.counted = s
}

// enqueue queues an entry for a decision. Consequences are attributed to the cause.
func (g *graph) enqueue(e *entry, cause *transaction) {
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
	wasOpen := e.soon || e.refusal != nil
	e.queued, e.soon, e.refusal = true, false, nil
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

// wake queues the waiters of an entry. While the entry waits itself, it does not wake those that wait for a claim of
// it: so all entries of a ring wait, and the last one detects the ring.
func (g *graph) wake(e *entry) {
	if g.asks != nil {
		g.asks.around(e.key)
	}
	all := g.waiters[e.key]
	if all == nil {
		return
	}
	if e.waits != nil {
		for w := all.first; w != nil; w = w.after {
			if !w.claim {
				g.unwait(w.entry)
				g.enqueue(w.entry, w.entry.causeOf(e))
			}
		}
		return
	}
	delete(g.waiters, e.key)
	w := all.first
	all.first, all.last = nil, nil
	for ; w != nil; w = w.after {
		w.waits = nil
		g.enqueue(w.entry, w.entry.causeOf(e))
	}
}

// causeOf is the transaction of a waiter that another entry wakes: its own if that goes on.
func (e *entry) causeOf(other *entry) *transaction {
	if e.soon {
		return nil
	}
	return other.cause
}

// inOrder: as with waiters. Each is there once.
func inOrder(all []*entry) []*entry {
	slices.SortFunc(all, func(a, b *entry) int { return a.key.Compare(b.key) })
	return slices.Compact(all)
}

// wait lets an entry wait for another; the message names that one.
func (g *graph) wait(e *entry, on object.Key, claiming bool, reason Reason, message string) {
	g.unwait(e)
	all := g.waiters[on]
	if all == nil {
		all = &waiters{on: on}
		g.waiters[on] = all
	}
	w := &waiting{entry: e, all: all, before: all.last, claim: claiming}
	e.waits, e.failures = w, 0
	if all.last == nil {
		all.first = w
	} else {
		all.last.after = w
	}
	all.last = w
	g.mark(e, Pending, reason, message)
}

func (g *graph) unwait(e *entry) {
	w := e.waits
	if w == nil {
		return
	}
	all := w.all
	if w.before == nil {
		all.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		all.last = w.before
	} else {
		w.after.before = w.before
	}
	if all.first == nil {
		delete(g.waiters, all.on)
	}
	e.waits = nil
}

// setDesired changes the desired state of an object. nil: it has no owner any more.
func (g *graph) setDesired(k object.Key, v *Version, cause *transaction) {
	g.setDesiredAt(0, k, v, cause)
}

// setDesiredAt is setDesired for one of the changes of a Work, at its place among them.
func (g *graph) setDesiredAt(place int, k object.Key, v *Version, cause *transaction) {
	e := g.ensure(k)
	if v != nil {
		e.key = v.Key() // and release the old version's memory
	}
	if v == nil && e.have != nil && e.kind != nil && e.kind.IsBuiltin(k.Name) {
		v = g.builtin(k)
	}
	g.pardon(e)
	if v != nil && !g.simulating {
		g.countLeftover(e, false)
	}
	e.desired, e.place, e.failures, e.warned = v, uint32(place), 0, false
	g.compare(e)
	e.desiredAt = 0
	if v != nil && !v.builtin() && !e.inStep() {
		e.desiredAt = g.at
	}
	g.enqueue(e, cause)
	switch {
	case v == nil && (e.have != nil || e.flying):
		g.mark(e, Deleting, WaitsForTurn, "waits for its turn")
	case v == nil:
		g.mark(e, Gone, NotDesired, "")
	case v != nil && !e.inStep():
		g.mark(e, Pending, WaitsForTurn, "waits for its turn")
	case v != nil && !g.simulating:
		g.changed(e)
	}
}

// builtin returns the builtin version of an object that has no owner.
func (g *graph) builtin(k object.Key) *Version {
	o, err := g.registry.Explore(k, nil)
	if err != nil {
		return nil
	}
	return &Version{StoredObject: o, Origin: alwaysThere}
}

// compare determines whether the data plane's object can reach its desired state in place.
func (g *graph) compare(e *entry) {
	e.rebuild = nil
	if e.have == nil || e.desired == nil || e.have.same(e.desired) {
		return
	}
	if e.have.StoredObject == nil {
		e.rebuild = &rebuild{why: "what the data plane has cannot be read"}
		return
	}
	fields := g.differences(e)
	if len(fields) > 0 && fields[0].Immutable {
		e.rebuild = &rebuild{fields[0].Field + " cannot change in place", fields}
	}
}

// setHave sets the observed state of an entry.
func (g *graph) setHave(e *entry, v *Version) {
	g.moveNetworks(e, e.have, v)
	if old := e.have; old != nil {
		for k := range old.needs() {
			t := g.ensure(k)
			g.unuse(e, t)
			if t.users.count() == 0 && t.doomed() {
				g.enqueue(t, e.cause)
			}
			if t.users.count() == 0 && t.have == nil && t.desired == nil {
				g.forget(t)
			}
		}
		for m := range old.Marks() {
			g.holdings.Release(e.number, m)
		}
	}
	if old := e.have; old.unread() {
		g.unread--
		if e.desired == old {
			g.replaceFound(e, &Version{Origin: old.Origin, StoredObject: g.explore(e.key, old.Spec())})
		}
	}
	e.have, e.warned = v, false
	if v == nil {
		return
	}
	if v.unread() {
		g.unread++
		return
	}
	g.attach(e)
}

// attach makes an entry a user of all that it needs, as the data plane has it, and gives it its claims.
func (g *graph) attach(e *entry) {
	needs := g.resolve(e.have)
	for i, t := range needs.entries {
		if t == nil {
			k := needs.keys[i]
			k.Name = strings.Clone(k.Name) // it points into the version's memory
			t = g.ensure(k)
		}
		g.use(e, t)
	}
	g.takeClaims(e)
}

// takeClaims takes the claims of an entry, as the data plane has it.
func (g *graph) takeClaims(e *entry) {
	for m := range e.have.Marks() {
		// If another has it, they are two objects in a data plane that we did not fill; each is dealt with by itself.
		g.holdings.Claim(e.number, m)
	}
}
