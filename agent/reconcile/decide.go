// SPDX-License-Identifier: Apache-2.0

// Decisions: steps that are possible now, and entries that have to wait.
package reconcile

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// next returns what can be done now: first deletions, what needs much before what needs little; then, of what is to be created
// or changed, the kind that needs the least, so that what its objects may need without naming it is there before them. All steps
// have to be settled before it is called again, but for those that take so long that what does not name them goes past them. If it
// returns nothing, there is nothing to do.
func (g *graph) next() []*step {
	for len(g.round(nil)) == 0 {
		if !g.anyQueued() && !g.reconsider() {
			return nil
		}
	}
	return g.wave
}

// beside returns the steps that can be sent before the answers to earlier ones. A kind with many unanswered steps waits; the others do
// not. Refused steps wait for all answers.
func (g *graph) beside() []*step {
	unsettled := make([]int, len(g.queues))
	for _, steps := range [][]*step{g.aloft, g.wave} {
		for _, s := range steps {
			if !s.settled {
				unsettled[g.rank(s.entry)]++
			}
		}
	}
	return g.round(unsettled)
}

// round decides about what is queued, but for kinds, by rank, of which more than aheadSteps are unsettled.
func (g *graph) round(unsettled []int) []*step {
	g.aloft = slices.DeleteFunc(append(g.aloft, g.wave...), func(s *step) bool { return s.settled })
	g.strand()
	g.collect(unsettled)
	g.sortWave()
	return g.wave
}

// hasMore reports whether next has queued entries.
func (g *graph) hasMore() bool {
	return len(g.refused) > 0 || len(g.networks.lost) > 0 || g.anyQueued()
}

func (g *graph) anyQueued() bool {
	return slices.ContainsFunc(g.queues, func(q []*entry) bool { return len(q) > 0 })
}

// waveLimit is the maximum number of steps of one kind in a wave, so that later entries of another kind do not wait
// for a million of one. A wave of that size takes the data plane about a millisecond.
const waveLimit = 256

// aheadSteps is the number of unanswered objects of a kind up to which more volatile objects of that kind are sent. A data plane that wakes up
// for each wave spends its time waiting, and so does the agent.
const aheadSteps = waveLimit

// collect fills the wave with the queued steps that can be sent now. Steps that depend on steps of the wave stay in the queue. Volatile
// objects name all that they need, so they do not wait for kinds of a lower rank.
func (g *graph) collect(unsettled []int) {
	g.wave, g.stepRoom = nil, 0
	steps := make([]int, len(g.queues))
	for rank, n := range unsettled {
		if n > aheadSteps {
			steps[rank] = waveLimit
		}
	}
	for rank, q := range g.queues {
		g.stepRoom = min(g.stepRoom+min(len(q), waveLimit-steps[rank]), waveLimit)
	}
	// The rank of what is put.
	lowest := len(g.queues)
	var later []*entry
	g.steps = nil
	for more := true; more; {
		more = false
		for rank := range g.queues {
			if steps[rank] >= waveLimit {
				continue
			}
			queue := g.queues[rank]
			g.queues[rank] = nil
			for i, e := range queue {
				if steps[rank] >= waveLimit {
					// Deciding may have queued others meanwhile.
					g.queues[rank] = append(queue[i:], g.queues[rank]...)
					break
				}
				produced := e.desired != nil && e.desired.owner() != ""
				if rank > lowest && !produced && e.have == nil && e.desired != nil && e.kind.Plane == dataplane {
					later = append(later, e)
					continue
				}
				more = true
				if g.unread > 0 && !g.asItIs(e) {
					g.study()
				}
				e.queued = false
				s := g.decide(e)
				if s != nil && g.unread > 0 {
					g.study()
					s = g.decide(e)
				}
				switch {
				case s == nil:
					g.wake(e)
					g.rest(e)
				case s.put != nil && !produced && rank > lowest:
					e.queued = true
					later = append(later, e)
				default:
					e.flying = true
					g.wave = append(g.wave, s)
					steps[rank]++
					if s.put != nil && !produced {
						lowest = min(lowest, rank)
					}
				}
			}
		}
		g.wave = slices.DeleteFunc(g.wave, g.overtaken)
	}
	g.requeue(later)
}

// requeue returns entries to their queues, before entries that were queued meanwhile. Entries of one rank are in
// order.
func (g *graph) requeue(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	before := make([][]*entry, len(g.queues))
	for _, e := range entries {
		before[g.rank(e)] = append(before[g.rank(e)], e)
	}
	for rank, some := range before {
		g.queues[rank] = append(some, g.queues[rank]...)
	}
}

// overtaken: something that the step needs was decided about later, and is not to be relied on. Then it is decided about again.
func (g *graph) overtaken(s *step) bool {
	if s.put == nil {
		return false
	}
	for _, t := range g.resolve(s.put).entries {
		if t != nil && t.have != nil && !t.flying && !t.doomed() {
			continue
		}
		s.entry.flying = false
		g.enqueue(s.entry, nil)
		if !g.simulating {
			s.entry.cause.leave()
		}
		return true
	}
	return false
}

// decide returns the step for an entry, or nil if there is nothing to do or the entry waits.
func (g *graph) decide(e *entry) *step {
	g.unwait(e)
	if e.desired == nil && e.have == nil {
		g.mark(e, Gone, NotDesired, "")
		g.forget(e)
		return nil
	}
	if e.kind != nil && e.kind.Plane != dataplane {
		return g.decideLocally(e)
	}
	// The reason for a rebuild may have passed.
	g.compare(e)
	if e.kept = g.keeps(e); e.kept {
		e.rebuild = nil
	}
	g.undermine(e)
	if !e.doomed() {
		if e.inStep() {
			return g.arrived(e)
		}
		if g.held(e) && !g.letsGo(e) {
			return nil
		}
	}
	if !e.doomed() {
		return g.put(e)
	}
	if g.used(e) {
		return g.warn(e)
	}
	op := operation{Action: Delete, Key: e.key, Reason: "not in the desired state"}
	if r := e.rebuild; r != nil {
		op.Reason, op.Fields, op.Replacing = r.why, r.fields, true
	}
	// A failed entry stays Failed until it succeeds.
	switch {
	case e.failures > 0:
	case e.desired == nil:
		g.mark(e, Deleting, InProgress, "")
	default:
		g.mark(e, Pending, BeingReplaced, "is being replaced: "+op.Reason)
	}
	return g.newStep(e, nil, op)
}

// asItIs reports whether an entry needs no step, whatever others need and claim.
func (g *graph) asItIs(e *entry) bool {
	return e.desired != nil && (e.kind != nil && e.kind.Plane != dataplane || e.inStep() && e.waits == nil)
}

// decideLocally: only the agent understands the kind, so an object that is desired is observed.
func (g *graph) decideLocally(e *entry) *step {
	e.rebuild = nil
	if e.desired == nil && g.used(e) {
		return g.warn(e)
	}
	g.setHave(e, e.desired)
	if e.desired == nil {
		g.mark(e, Gone, NotDesired, "")
		g.forget(e)
		return nil
	}
	g.mark(e, Applied, InStep, "")
	return nil
}

// arrived: the data plane has the desired state.
func (g *graph) arrived(e *entry) *step {
	e.failures, e.replacing, e.desiredAt = 0, false, 0
	if e.desired.builtin() {
		e.desired = nil
		g.setHave(e, nil)
		g.mark(e, Gone, NotDesired, "")
		g.forget(e)
		return nil
	}
	if e.have.unread() && e.desired != e.have {
		g.setHave(e, e.desired)
	}
	e.have = e.desired // the same spec, so the same references and claims
	g.mark(e, Applied, InStep, "")
	return nil
}

// undermine: an entry that uses a doomed one, and will use it again, has to be rebuilt with it.
func (g *graph) undermine(e *entry) {
	if e.have == nil || e.desired == nil || e.rebuild != nil {
		return
	}
	if g.isStranded(e) {
		e.rebuild = &rebuild{why: "no interface's network holds its next hops"}
		return
	}
	needs := g.resolve(e.desired)
	for i, t := range needs.entries {
		k := needs.keys[i]
		if t == nil || !t.doomed() || !e.have.names(k) {
			continue
		}
		e.rebuild = &rebuild{why: k.String() + " is replaced"}
		if t.desired == nil {
			e.rebuild.why = k.String() + " is deleted"
		}
		return
	}
}

// keeps reports whether the observed object stays although it must be deleted to reach the desired state: its desired form cannot be created now,
// and no other object waits for the deletion. Make before break.
func (g *graph) keeps(e *entry) bool {
	if e.rebuild == nil || e.desired == nil || e.have.StoredObject == nil {
		return false
	}
	for _, t := range g.resolve(e.have).entries {
		if t != nil && t.doomed() {
			return false
		}
	}
	if g.claimant(e) != nil {
		return false
	}
	return slices.ContainsFunc(g.resolve(e.desired).entries, g.absent)
}

// held reports whether the entry has to wait for an object that it needs. It may find that the entry has to be
// rebuilt.
func (g *graph) held(e *entry) bool {
	needs := g.resolve(e.desired)
	for i, t := range needs.entries {
		k := needs.keys[i]
		switch {
		case t == nil || t.have == nil && t.desired == nil:
			missing := &Missing{Key: k, Field: g.namedBy(e, k)}
			g.wait(e, k, false, WaitsForObject, missing.String())
			e.waits.missing = missing
		case t.have == nil && t.state == Failed:
			g.wait(e, k, false, WaitsForFailed, k.String()+", which failed: "+t.message)
		case t.have == nil || t.doomed() || t.busy():
			g.wait(e, k, false, WaitsForObject, k.String())
			e.soon = t.busy() && !g.simulating
		default:
			continue
		}
		return true
	}
	if g.waitsForNetwork(e) {
		return true
	}
	for m := range e.desired.Marks() {
		holder, taken := g.holdings.Holder(e.number, m)
		if !taken {
			continue
		}
		h := g.entries.At(holder)
		if h.have == nil || h.inStep() && !h.busy() {
			continue // not ours to reporter: the data plane will say
		}
		c, really := e.desired.Disputed(m, h.have.StoredObject)
		if !really {
			continue
		}
		for next := h; next != nil && next.claiming(); next = g.entries.Get(next.waits.all.on) {
			if g.entries.Get(next.waits.all.on) == e && e.have != nil {
				e.rebuild = &rebuild{h.key.String() + " and it exchange " + c.String(), g.differences(e)}
				return false
			}
		}
		g.wait(e, h.key, true, WaitsForClaim, h.key.String()+" to give up "+c.String())
		if h.kept || g.stuck(h) {
			g.enqueue(h, e.cause)
		}
		if h.doomed() && g.used(h) {
			for _, u := range inOrder(g.usersOf(h)) {
				if g.stuck(u) {
					g.enqueue(u, e.cause)
				}
			}
		}
		return true
	}
	return false
}

// letsGo reports whether a waiting entry is deleted meanwhile: its object in the data plane blocks another entry, and
// its own wait does not end by itself.
func (g *graph) letsGo(e *entry) bool {
	if e.have == nil || g.moves(e) {
		return false
	}
	why := ""
	for _, t := range g.resolve(e.have).entries {
		if t == nil || !t.doomed() {
			continue
		}
		// An object without an owner may stay as long as it is needed, unless others claim its place.
		if t.desired != nil {
			why = t.key.String() + " is replaced"
		} else if g.claimant(t) != nil {
			why = t.key.String() + " is deleted"
		}
	}
	if w := g.claimant(e); w != nil && g.stuck(e) {
		why = w.key.String() + " takes what it has"
	}
	if why == "" {
		return false
	}
	g.unwait(e)
	e.rebuild = &rebuild{why, g.differences(e)}
	return true
}

// moves reports whether the object that an entry waits for, or waits to be released, is being decided about or
// processed.
func (g *graph) moves(e *entry) bool {
	on := g.entries.Get(e.waits.all.on)
	for range 100 {
		if on == nil || on.busy() {
			return on != nil
		}
		if on == e || !on.claiming() {
			return false
		}
		on = g.entries.Get(on.waits.all.on)
	}
	return false
}

// stuck reports whether an entry of the data plane waits for an event that does not come by itself.
func (g *graph) stuck(e *entry) bool {
	return e.have != nil && e.desired != nil && e.waits != nil && !e.claiming() && g.absent(g.entries.Get(e.waits.all.on))
}

// absent reports whether an object does not exist and is not desired.
func (g *graph) absent(t *entry) bool {
	return t == nil || t.have == nil && (t.desired == nil || t.state == Failed || t.waits != nil && !t.claiming())
}

// claimant returns an entry that waits for a claim of e, or nil.
func (g *graph) claimant(e *entry) *entry {
	if all := g.waiters[e.key]; all != nil {
		for w := all.first; w != nil; w = w.after {
			if w.claim {
				return w.entry
			}
		}
	}
	return nil
}

// namedBy returns the field by which a desired object names another, or "".
func (g *graph) namedBy(e *entry, k object.Key) string {
	for _, ref := range g.registry.References(e.desired.Object()) {
		if ref.To == k {
			return ref.Field
		}
	}
	return ""
}

// difference caches the difference between observed and desired state, which is read several times in a row.
type difference struct {
	have, desired *Version
	fields        []object.FieldChange
}

func (g *graph) differences(e *entry) []object.FieldChange {
	if e.have == nil || e.have.StoredObject == nil || e.desired == nil {
		return nil
	}
	if g.compared.have != e.have || g.compared.desired != e.desired {
		g.compared = difference{e.have, e.desired, e.have.DiffSpec(e.desired.StoredObject)}
	}
	return g.compared.fields
}

func (g *graph) newStep(e *entry, put *Version, op operation) *step {
	if len(g.steps) == cap(g.steps) {
		g.steps = make([]step, 0, max(1, g.stepRoom))
	}
	g.steps = g.steps[:len(g.steps)+1]
	s := &g.steps[len(g.steps)-1]
	s.entry, s.put, s.desired, s.operation, s.Place = e, put, e.desired, op, int(e.place)
	return s
}

func (g *graph) put(e *entry) *step {
	op := operation{Action: Create, Key: e.key, Reason: "in the desired state", Replacing: e.replacing}
	if e.have != nil {
		op.Action, op.Reason, op.Fields = Update, "changed", g.differences(e)
	} else if e.replacing {
		op.Reason = "replaced"
	}
	if e.failures == 0 {
		g.mark(e, Pending, InProgress, "is being applied")
	}
	return g.newStep(e, e.desired, op)
}

// warn: users of a doomed entry have to release it first.
func (g *graph) warn(e *entry) *step {
	var one *entry
	if e.warned {
		one = g.userOf(e)
	} else {
		e.warned = true
		for _, u := range inOrder(g.usersOf(e)) {
			if one == nil {
				one = u
			}
			g.enqueue(u, e.cause)
		}
	}
	message := fmt.Sprintf("%s, which still uses it", one.key)
	if more := e.users.count() - 1; more > 0 {
		message = fmt.Sprintf("%s and %d more, which still use it", one.key, more)
	}
	if e.desired == nil {
		g.mark(e, Deleting, InUse, message)
	} else {
		g.mark(e, Pending, InUse, message)
	}
	return nil
}
