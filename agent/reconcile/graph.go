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
	e.waiting, e.waits, e.claiming = on, true, claiming
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

// next empties the queue and returns what can be done now: first deletions, then the rest, each sorted by kind and name. The
// steps do not need one another. All have to be settled before it is called again.
func (g *graph) next() []*step {
	g.wave = nil
	for len(g.queue) > 0 {
		for len(g.queue) > 0 {
			e := g.queue[0]
			g.queue[0] = nil
			g.queue = g.queue[1:]
			g.remember(e)
			e.queued = false
			if s := g.decide(e); s != nil {
				e.flying = true
				g.wave = append(g.wave, s)
				continue
			}
			g.wake(e)
			g.rest(e)
		}
		g.wave = slices.DeleteFunc(g.wave, g.overtaken)
	}
	g.queue = nil
	slices.SortFunc(g.wave, func(a, b *step) int {
		if (a.put == nil) != (b.put == nil) {
			if a.put == nil {
				return -1
			}
			return 1
		}
		return a.Key.Compare(b.Key)
	})
	return g.wave
}

// overtaken: something that the step needs was decided about later, and is not to be relied on. Then it is decided about again.
func (g *graph) overtaken(s *step) bool {
	if s.put == nil {
		return false
	}
	for _, k := range s.put.refs {
		t := g.entries[k]
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
		g.mark(e, Gone, "")
		g.forget(e)
		return nil
	}
	if e.kind != nil && e.kind.Plane != dataplane {
		return g.decideLocally(e)
	}
	// What made a rebuild necessary may have passed.
	g.compare(e)
	g.undermine(e)
	if !e.doomed() {
		if e.inStep() {
			return g.arrived(e)
		}
		if g.held(e) {
			return nil
		}
	}
	if !e.doomed() {
		return g.put(e)
	}
	if len(e.users) > 0 {
		return g.warn(e)
	}
	op := operation{Action: Delete, Key: e.key, Reason: e.why, Fields: e.fields, Replacing: e.want != nil}
	if e.want == nil {
		op.Reason = "no longer wanted"
		g.mark(e, Deleting, "")
	} else {
		g.mark(e, Pending, "is being replaced: "+e.why)
	}
	return &step{entry: e, operation: op}
}

// decideLocally: only the agent understands the kind, and to want an object is to have it.
func (g *graph) decideLocally(e *entry) *step {
	e.rebuild = false
	if e.want == nil && len(e.users) > 0 {
		return g.warn(e)
	}
	g.setHave(e, e.want)
	if e.want == nil {
		g.mark(e, Gone, "")
		g.forget(e)
		return nil
	}
	g.mark(e, Applied, "")
	return nil
}

// arrived: the data plane has what is wanted.
func (g *graph) arrived(e *entry) *step {
	e.failures, e.replacing = 0, false
	if e.want.builtin {
		e.want = nil
		g.setHave(e, nil)
		g.mark(e, Gone, "")
		g.forget(e)
		return nil
	}
	e.have = e.want // the same spec, so the same references and claims
	g.mark(e, Applied, "")
	return nil
}

// undermine: what uses something that has to go, and will use it again, has to go with it.
func (g *graph) undermine(e *entry) {
	if e.have == nil || e.want == nil || e.rebuild {
		return
	}
	for _, k := range e.want.refs {
		t := g.entries[k]
		if t == nil || !t.doomed() || !slices.Contains(e.have.refs, k) {
			continue
		}
		e.rebuild, e.fields = true, nil
		e.why = k.String() + " is replaced"
		if t.want == nil {
			e.why = k.String() + " is deleted"
		}
		return
	}
}

// held says whether the entry has to wait for something that it needs. It may find out that the entry has to be rebuilt.
func (g *graph) held(e *entry) bool {
	for _, k := range e.want.refs {
		t := g.entries[k]
		switch {
		case t == nil || t.have == nil && t.want == nil:
			g.wait(e, k, false, "waits for "+k.String()+", which is not there")
		case t.have == nil && t.state == Failed:
			g.wait(e, k, false, "waits for "+k.String()+", which failed: "+t.message)
		case t.have == nil || t.doomed() || t.busy():
			g.wait(e, k, false, "waits for "+k.String())
		default:
			continue
		}
		return true
	}
	for _, c := range e.want.claims {
		k, taken := g.holdings.Holder(e.key, c)
		if !taken {
			continue
		}
		h := g.entries[k]
		if h == nil || h.inStep() && !h.busy() {
			continue // not ours to judge: the data plane will say
		}
		for next := h; next != nil && next.claiming; next = g.entries[next.waiting] {
			if g.entries[next.waiting] == e && e.have != nil {
				e.rebuild, e.why = true, k.String()+" and it exchange "+c.String()
				e.fields = g.differences(e)
				return false
			}
		}
		g.wait(e, k, true, "waits for "+k.String()+" to give up "+c.String())
		return true
	}
	return false
}

func (g *graph) differences(e *entry) []object.FieldChange {
	if e.have == nil || e.have.object == nil || e.want == nil {
		return nil
	}
	return e.kind.Diff(e.have.object.Spec, e.want.object.Spec)
}

func (g *graph) put(e *entry) *step {
	op := operation{Action: Create, Key: e.key, Reason: "wanted", Replacing: e.replacing}
	if e.have != nil {
		op.Action, op.Reason, op.Fields = Update, "changed", g.differences(e)
	} else if e.replacing {
		op.Reason = "replaced"
	}
	g.mark(e, Pending, "is being applied")
	return &step{entry: e, put: e.want, operation: op}
}

// warn: those who use a doomed entry have to let go of it first.
func (g *graph) warn(e *entry) *step {
	var one *entry
	for u := range e.users {
		if one == nil || !e.warned && u.key.Compare(one.key) < 0 {
			one = u
		}
		if e.warned {
			break
		}
	}
	if !e.warned {
		e.warned = true
		for _, u := range sorted(e.users) {
			g.enqueue(u, e.cause)
		}
	}
	message := fmt.Sprintf("waits for %s, which still uses it", one.key)
	if more := len(e.users) - 1; more > 0 {
		message = fmt.Sprintf("waits for %s and %d more, which still use it", one.key, more)
	}
	if e.want == nil {
		g.mark(e, Deleting, message)
	} else {
		g.mark(e, Pending, message)
	}
	return nil
}

// settle tells how a step went. It returns true if it has to be tried again after a while.
func (g *graph) settle(s *step, r Result) (retry bool) {
	e := s.entry
	g.remember(e)
	s.settled = true
	e.flying = false
	if r.Code == 0 {
		e.failures = 0
		e.replacing = s.put == nil && e.want != nil
		g.setHave(e, s.put)
		g.compare(e)
		if e.inStep() {
			g.arrived(e)
		} else if s.put == nil && e.want == nil {
			g.mark(e, Gone, "")
			g.forget(e)
		} else {
			e.again = true
		}
	} else {
		e.failures++
		retry = !e.again
		message := r.Message
		if message == "" {
			message = fmt.Sprintf("the data plane refused it with error %d", r.Code)
		}
		if e.want == nil {
			g.mark(e, Deleting, message)
		} else {
			g.mark(e, Failed, message)
		}
		if !g.simulating {
			e.cause.failed(e.key, message)
		}
	}
	g.settled(e)
	return retry
}

// lost: nobody knows whether a step was done. The entry is decided about again after everything was listed.
func (g *graph) lost(s *step) {
	s.settled = true
	s.entry.flying = false
	s.entry.again = true
	g.settled(s.entry)
}

func (g *graph) settled(e *entry) {
	if e.again {
		e.again = false
		// Enter before leaving, so that the transaction does not end in between.
		g.enqueue(e, nil)
		if !g.simulating {
			e.cause.leave()
		}
		g.wake(e)
		return
	}
	g.wake(e)
	g.rest(e)
}

// observe takes note of everything that the data plane has.
func (g *graph) observe(listed map[object.Key][]byte) {
	var gone []*entry
	for _, e := range g.entries {
		if _, there := listed[e.key]; !there && e.have != nil && (e.kind == nil || e.kind.Plane == dataplane) {
			gone = append(gone, e)
		}
	}
	for _, e := range gone {
		g.setHave(e, nil)
	}
	for k, spec := range listed {
		e := g.entries[k]
		builtin := false
		if kind := g.registry.Kind(k.Kind); kind != nil {
			builtin = kind.IsBuiltin(k.Name)
		}
		if builtin && len(spec) == 0 && (e == nil || e.want == nil) {
			continue
		}
		e = g.ensure(k)
		switch {
		case e.have != nil && bytes.Equal(e.have.spec, spec):
		case e.want != nil && bytes.Equal(e.want.spec, spec):
			g.setHave(e, e.want)
		default:
			g.setHave(e, g.unpack(k, spec))
		}
		if builtin && e.want == nil {
			e.want = g.builtin(k)
		}
	}
	all := make([]*entry, 0, len(g.entries))
	for _, e := range g.entries {
		all = append(all, e)
	}
	for _, e := range all {
		e.failures, e.warned, e.replacing = 0, false, false
		g.compare(e)
		if !e.inStep() || e.state != Applied {
			g.enqueue(e, nil)
		}
	}
}

func (g *graph) unpack(k object.Key, spec []byte) *version {
	o, err := g.registry.New(k.Kind, k.Name, nil, spec)
	if err != nil {
		return &version{spec: spec}
	}
	v, err := newVersion(g.registry, o, "", 0)
	if err != nil {
		return &version{spec: spec}
	}
	v.spec = spec
	return v
}
