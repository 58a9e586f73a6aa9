// What can be done now, and what has to wait for what.
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
	g.aloft = slices.DeleteFunc(append(g.aloft, g.wave...), func(s *step) bool { return s.settled })
	for {
		g.collect()
		if len(g.wave) > 0 {
			break
		}
		if !g.anyQueued() && !g.reconsider() {
			return nil
		}
	}
	g.sortWave()
	return g.wave
}

// hasMore says whether next has something to look at.
func (g *graph) hasMore() bool { return len(g.refused) > 0 || g.anyQueued() }

func (g *graph) anyQueued() bool {
	return slices.ContainsFunc(g.queues, func(q []*entry) bool { return len(q) > 0 })
}

// collect decides about what is queued, and leaves what can be done in the wave. What has to come after what is in the wave
// stays in the queue.
func (g *graph) collect() {
	g.wave = nil
	// The rank of what is put.
	lowest := len(g.queues)
	var later []*entry
	g.steps = nil
	for more := true; more; {
		more = false
		for rank := range g.queues {
			queue := g.queues[rank]
			g.queues[rank] = nil
			for _, e := range queue {
				if rank > lowest && e.have == nil && e.want != nil && e.kind.Plane == dataplane {
					later = append(later, e)
					continue
				}
				more = true
				g.remember(e)
				e.queued = false
				s := g.decide(e)
				switch {
				case s == nil:
					g.wake(e)
					g.rest(e)
				case s.put != nil && rank > lowest:
					e.queued = true
					later = append(later, e)
				default:
					e.flying = true
					g.wave = append(g.wave, s)
					if s.put != nil {
						lowest = min(lowest, rank)
					}
				}
			}
		}
		g.wave = slices.DeleteFunc(g.wave, g.overtaken)
	}
	g.requeue(later)
}

// requeue puts entries back before what came into their queues meanwhile. Of one rank they are in order.
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

// decide returns what has to be done about an entry, or nil: then there is nothing to do, or it waits.
func (g *graph) decide(e *entry) *step {
	g.unwait(e)
	if e.want == nil && e.have == nil {
		g.mark(e, Gone, NotWanted, "")
		g.forget(e)
		return nil
	}
	if e.kind != nil && e.kind.Plane != dataplane {
		return g.decideLocally(e)
	}
	// What made a rebuild necessary may have passed.
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
	if e.users.count() > 0 {
		return g.warn(e)
	}
	op := operation{Action: Delete, Key: e.key, Reason: "no longer wanted"}
	if r := e.rebuild; r != nil {
		op.Reason, op.Fields, op.Replacing = r.why, r.fields, true
	}
	// What failed before is Failed until it succeeds.
	switch {
	case e.failures > 0:
	case e.want == nil:
		g.mark(e, Deleting, InProgress, "")
	default:
		g.mark(e, Pending, BeingReplaced, "is being replaced: "+op.Reason)
	}
	return g.newStep(e, nil, op)
}

// decideLocally: only the agent understands the kind, and to want an object is to have it.
func (g *graph) decideLocally(e *entry) *step {
	e.rebuild = nil
	if e.want == nil && e.users.count() > 0 {
		return g.warn(e)
	}
	g.setHave(e, e.want)
	if e.want == nil {
		g.mark(e, Gone, NotWanted, "")
		g.forget(e)
		return nil
	}
	g.mark(e, Applied, InStep, "")
	return nil
}

// arrived: the data plane has what is wanted.
func (g *graph) arrived(e *entry) *step {
	e.failures, e.replacing, e.wantedAt = 0, false, 0
	if e.want.builtin {
		e.want = nil
		g.setHave(e, nil)
		g.mark(e, Gone, NotWanted, "")
		g.forget(e)
		return nil
	}
	e.have = e.want // the same spec, so the same references and claims
	g.mark(e, Applied, InStep, "")
	return nil
}

// undermine: what uses something that has to go, and will use it again, has to go with it.
func (g *graph) undermine(e *entry) {
	if e.have == nil || e.want == nil || e.rebuild != nil {
		return
	}
	needs := g.resolve(e.want)
	for i, t := range needs.entries {
		k := needs.keys[i]
		if t == nil || !t.doomed() || !e.have.names(k) {
			continue
		}
		e.rebuild = &rebuild{why: k.String() + " is replaced"}
		if t.want == nil {
			e.rebuild.why = k.String() + " is deleted"
		}
		return
	}
}

// keeps says whether what the data plane has stays although it would have to be deleted to be as wanted: because to create what is
// wanted is not possible now, and nothing else has to make way for it. Make before break.
func (g *graph) keeps(e *entry) bool {
	if e.rebuild == nil || e.want == nil || e.have.Kept == nil {
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
	return slices.ContainsFunc(g.resolve(e.want).entries, g.absent)
}

// What a status says of an object that waits: what for, and what the data plane has meanwhile.
const (
	waitsFor   = "waits for "
	isAbsent   = "; not in the data plane"
	isAsBefore = "; the data plane still has it as it was before"
)

// held says whether the entry has to wait for something that it needs. It may find out that the entry has to be rebuilt.
func (g *graph) held(e *entry) bool {
	needs := g.resolve(e.want)
	for i, t := range needs.entries {
		k := needs.keys[i]
		switch {
		case t == nil || t.have == nil && t.want == nil:
			g.wait(e, k, false, WaitsForObject, waitsFor+k.String()+g.namedBy(e, k)+", which is not there")
		case t.have == nil && t.state == Failed:
			g.wait(e, k, false, WaitsForFailed, waitsFor+k.String()+", which failed: "+t.message)
		case t.have == nil || t.doomed() || t.busy():
			g.wait(e, k, false, WaitsForObject, waitsFor+k.String())
		default:
			continue
		}
		return true
	}
	for m := range e.want.marks() {
		holder, taken := g.holdings.Holder(e.number, m)
		if !taken {
			continue
		}
		h := g.entries.At(holder)
		if h.have == nil || h.inStep() && !h.busy() {
			continue // not ours to judge: the data plane will say
		}
		c, really := e.want.Disputed(m, h.have.Kept)
		if !really {
			continue
		}
		for next := h; next != nil && next.claiming(); next = g.entries.Get(next.waits.all.on) {
			if g.entries.Get(next.waits.all.on) == e && e.have != nil {
				e.rebuild = &rebuild{h.key.String() + " and it exchange " + c.String(), g.differences(e)}
				return false
			}
		}
		g.wait(e, h.key, true, WaitsForClaim, waitsFor+h.key.String()+" to give up "+c.String())
		if h.kept || g.stuck(h) {
			g.enqueue(h, e.cause)
		}
		if h.doomed() && h.users.count() > 0 {
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

// letsGo says whether an entry that has to wait goes meanwhile: what the data plane has of it is in somebody's way, and what it waits for
// does not come by itself.
func (g *graph) letsGo(e *entry) bool {
	if e.have == nil || g.moves(e) {
		return false
	}
	why := ""
	for _, t := range g.resolve(e.have).entries {
		if t == nil || !t.doomed() {
			continue
		}
		// What nobody wants any more can stay as long as it is needed, unless others want what it has.
		if t.want != nil {
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

// moves says whether what an entry waits for, or what that waits to be given up, is being decided about or done.
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

// stuck says whether an entry that the data plane has waits for something that does not come by itself.
func (g *graph) stuck(e *entry) bool {
	return e.have != nil && e.want != nil && e.waits != nil && !e.claiming() && g.absent(g.entries.Get(e.waits.all.on))
}

// absent says whether something is not there and does not come unless something else is wanted.
func (g *graph) absent(t *entry) bool {
	return t == nil || t.have == nil && (t.want == nil || t.state == Failed || t.waits != nil && !t.claiming())
}

// claimant returns somebody who waits for what the entry has, or nil.
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

// namedBy says by which field a wanted object names another.
func (g *graph) namedBy(e *entry, k object.Key) string {
	for _, ref := range g.registry.References(e.want.Object()) {
		if ref.To == k {
			return " (" + ref.Field + ")"
		}
	}
	return ""
}

// difference remembers how what the data plane has differs from what is wanted: it is asked for several times in a row.
type difference struct {
	have, want *Version
	fields     []object.FieldChange
}

func (g *graph) differences(e *entry) []object.FieldChange {
	if e.have == nil || e.have.Kept == nil || e.want == nil {
		return nil
	}
	if g.told.have != e.have || g.told.want != e.want {
		g.told = difference{e.have, e.want, e.have.DiffSpec(e.want.Kept)}
	}
	return g.told.fields
}

func (g *graph) newStep(e *entry, put *Version, op operation) *step {
	if len(g.steps) == cap(g.steps) {
		g.steps = make([]step, 0, min(max(1, 2*cap(g.steps)), 256))
	}
	g.steps = append(g.steps, step{entry: e, put: put, want: e.want, operation: op})
	return &g.steps[len(g.steps)-1]
}

func (g *graph) put(e *entry) *step {
	op := operation{Action: Create, Key: e.key, Reason: "wanted", Replacing: e.replacing}
	if e.have != nil {
		op.Action, op.Reason, op.Fields = Update, "changed", g.differences(e)
	} else if e.replacing {
		op.Reason = "replaced"
	}
	if e.failures == 0 {
		g.mark(e, Pending, InProgress, "is being applied")
	}
	return g.newStep(e, e.want, op)
}

// warn: those who use a doomed entry have to let go of it first.
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
	message := fmt.Sprintf("%s%s, which still uses it", waitsFor, one.key)
	if more := e.users.count() - 1; more > 0 {
		message = fmt.Sprintf("%s%s and %d more, which still use it", waitsFor, one.key, more)
	}
	if e.want == nil {
		g.mark(e, Deleting, InUse, message)
	} else {
		g.mark(e, Pending, InUse, message+isAsBefore)
	}
	return nil
}
