// Want and Plan: how something else comes to be wanted.
package reconcile

import (
	"slices"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// Work is what has to be done for one Want.
type Work struct {
	reconciler *Reconciler
	*transaction
}

// Want has objects be wanted. Work.Done says when each is Applied, Failed or waits for something, and so is what had to be rebuilt
// for it; without a data plane that is at once. A strict Work is done as soon as anything failed. It must be closed.
func (r *Reconciler) Want(wants []Want, strict bool) *Work {
	t := newTransaction(strict)
	claims := 0
	for _, w := range wants {
		if w.Version != nil && w.Version.Kept != nil {
			claims += w.Version.Claims()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.graph.tick()
	r.transactions[t] = struct{}{}
	r.graph.reserve(len(wants), claims)
	for _, w := range wants {
		r.graph.setWant(w.Key, w.Version, t)
	}
	switch {
	case r.link == nil:
		r.interrupt(t)
	case t.open == 0:
		// Nothing is another for the data plane: another owner wants the same, for instance.
		t.end()
	}
	r.wakeUp()
	return &Work{r, t}
}

// Done is closed when there is nothing more to be done for now.
func (w *Work) Done() <-chan struct{} { return w.done }

// Close returns what was done so far, in that order, what the data plane refused, and whether the data plane went away or was
// not there. What is still to be done is done all the same.
func (w *Work) Close() (done []Operation, failures []Failure, interrupted bool) {
	w.reconciler.mu.Lock()
	defer w.reconciler.mu.Unlock()
	delete(w.reconciler.transactions, w.transaction)
	w.end()
	done, failures = w.operations, w.failures
	// Objects remember the transaction for as long as they are.
	w.operations, w.failures = nil, nil
	return done, failures, w.interrupted
}

// interrupt ends a transaction because nobody knows when the data plane comes back. r.mu is held.
func (r *Reconciler) interrupt(t *transaction) {
	if t.open > 0 {
		t.interrupted = true
	}
	t.end()
}

// Connected says whether there is a data plane.
func (r *Reconciler) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link != nil
}

// Plan says what Want would do, in that order, as if the data plane refused nothing; and what of it could not be done yet. Of the
// latter those that are Replacing are only taken out of the data plane.
func (r *Reconciler) Plan(wants []Want) (planned, waiting []Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.graph
	keys := make([]object.Key, len(wants))
	before := map[object.Key]*Version{}
	for i, w := range wants {
		keys[i] = w.Key
		if e := g.entries.Get(w.Key); e != nil && e.want != nil && !e.want.builtin {
			before[w.Key] = e.want
		}
	}
	t := newTransaction(false)
	g.simulate(func() {
		// First what is under way, as if it went well.
		for _, s := range slices.Concat(g.aloft, g.wave) {
			if !s.settled {
				g.settle(&step{entry: s.entry, put: s.put, operation: s.operation}, Result{})
			}
		}
		g.aloft, g.wave = nil, nil
		for wave := g.next(); len(wave) > 0; wave = g.next() {
			for _, s := range wave {
				g.settle(s, Result{})
			}
		}
		for _, w := range wants {
			g.setWant(w.Key, w.Version, t)
		}
		for wave := g.next(); len(wave) > 0; wave = g.next() {
			for _, s := range wave {
				planned = append(planned, s.operation)
				g.settle(s, Result{})
			}
		}
		waiting = g.unfinished(planned, keys, before)
		g.weigh(planned)
	})
	return planned, waiting
}

// weigh says what each operation costs. While simulating, behind all of them.
func (g *graph) weigh(planned []Operation) {
	for i := range planned {
		op := &planned[i]
		e, kind := g.entries.Get(op.Key), g.registry.Kind(op.Key.Kind)
		switch {
		case op.Action == Update && slices.ContainsFunc(op.Fields, func(f object.FieldChange) bool { return f.Interrupts }):
			op.Impact = BriefInterruption
		case op.Action != Delete || kind != nil && kind.Passive:
		case e == nil || e.have == nil:
			op.Impact = Outage
		default:
			op.Impact = BriefInterruption
		}
	}
}

// unfinished returns what was to be done about the keys, and about what was taken out of the data plane, and could not be.
func (g *graph) unfinished(done []Operation, keys []object.Key, before map[object.Key]*Version) []Operation {
	out := map[object.Key]*Operation{}
	for i, op := range done {
		if op.Action == Delete && op.Replacing {
			out[op.Key] = &done[i]
			keys = append(keys, op.Key)
		}
	}
	var all []Operation
	told := map[object.Key]bool{}
	for _, k := range keys {
		e := g.entries.Get(k)
		if e == nil || told[k] || e.inStep() || e.have == nil && e.want == nil {
			continue
		}
		told[k] = true
		waits, ok := strings.CutPrefix(e.message, waitsFor)
		if !ok {
			continue
		}
		op := Operation{Key: k, WaitsFor: strings.TrimSuffix(strings.TrimSuffix(waits, isAbsent), isAsBefore)}
		switch old := before[k]; {
		case out[k] != nil:
			op.Action, op.Reason, op.Fields, op.Replacing = Create, out[k].Reason, out[k].Fields, true
		case e.want == nil:
			op.Action, op.Reason = Delete, "no longer wanted"
		case e.have != nil:
			op.Action, op.Reason, op.Fields = Update, "the data plane keeps its old form until then", g.differences(e)
		case old != nil:
			op.Action, op.Reason, op.Fields = Update, "not in the data plane", old.DiffSpec(e.want.Kept)
		default:
			op.Action, op.Reason = Create, "wanted"
		}
		all = append(all, op)
	}
	return all
}
