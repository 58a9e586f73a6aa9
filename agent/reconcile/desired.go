// SPDX-License-Identifier: Apache-2.0

// SetDesired and Plan: changes of desired state.
package reconcile

import (
	"slices"

	"sluice.dev/sluice/agent/object"
)

// changesAtOnce is how many changes are taken over while other callers wait.
const changesAtOnce = 256

// Work is the work of one SetDesired.
type Work struct {
	reconciler *Reconciler
	*transaction
}

// SetDesired changes desired state. Work.Done is closed when each object, and each that had to be rebuilt for it, is
// Applied, Failed or waits; without a data plane that is at once. A strict Work is done as soon as any object failed.
// It must be closed. Others may call SetDesired meanwhile, but
// no change is decided about before the desired state has all of them.
func (r *Reconciler) SetDesired(desired []Desired, strict bool) *Work {
	t := newTransaction(strict)
	claims := 0
	for _, w := range desired {
		if w.Version != nil && w.Version.StoredObject != nil {
			claims += w.Version.Claims()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.transactions[t] = struct{}{}
	r.graph.reserve(len(desired), claims)
	r.changing++
	for i, w := range desired {
		if i%changesAtOnce == 0 {
			if i > 0 {
				r.mu.Unlock()
				r.pass()
				r.mu.Lock()
			}
			r.graph.tick()
		}
		r.graph.setDesiredAt(i, w.Key, w.Version, t)
	}
	r.changing--
	switch {
	case r.link == nil:
		r.interrupt(t)
	case t.open == 0:
		// Nothing changes for the data plane: the object has another owner, for instance.
		t.end()
	}
	r.wakeUp()
	return &Work{r, t}
}

// Done is closed when there is nothing more to be done for now.
func (w *Work) Done() <-chan struct{} { return w.done }

// Close returns the operations so far, in their order, the refusals, and whether the data plane was away at some
// time. The rest is carried out all the same.
func (w *Work) Close() (done []Operation, failures []Failure, interrupted bool) {
	operations, failures, interrupted := w.End()
	if len(operations) > 0 {
		done = make([]Operation, len(operations))
	}
	for i, op := range operations {
		done[i] = *op
	}
	return done, failures, interrupted
}

// End is Close for callers that do not change the operations.
func (w *Work) End() (done []*Operation, failures []Failure, interrupted bool) {
	w.reconciler.mu.Lock()
	defer w.reconciler.mu.Unlock()
	delete(w.reconciler.transactions, w.transaction)
	w.end()
	done, failures = w.operations, w.failures
	// Objects hold the transaction for as long as they exist.
	w.operations, w.failures = nil, nil
	return done, failures, w.interrupted
}

// interrupt ends a transaction because the data plane is away for an unknown time. r.mu is held.
func (r *Reconciler) interrupt(t *transaction) {
	if t.open > 0 {
		t.interrupted = true
	}
	t.end()
}

// Connected reports whether there is a data plane.
func (r *Reconciler) Connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link != nil
}

// Plan returns the operations of a SetDesired, in their order, as if the data plane refused nothing; and those that have to
// wait. Of waiting ones with Replacing, only the deletion is carried out.
// The plan is carried out on copies, without the lock.
func (r *Reconciler) Plan(desired []Desired) (planned, waiting []Operation) {
	for s := r.newSnapshot(desired); ; {
		planned, waiting = s.carryOut()
		if len(s.todo) == 0 {
			return planned, waiting
		}
		s.load()
	}
}

// weigh sets the impact of each operation, after all of them were carried out on a copy.
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

// unfinished returns operations on the keys, and on objects that were deleted meanwhile, that could not be carried
// out.
func (g *graph) unfinished(done []Operation, keys []object.Key, before map[object.Key]*Version) []Operation {
	out := map[object.Key]*Operation{}
	for i, op := range done {
		if op.Action == Delete && op.Replacing {
			out[op.Key] = &done[i]
			keys = append(keys, op.Key)
		}
	}
	var all []Operation
	reported := map[object.Key]bool{}
	for _, k := range keys {
		e := g.entries.Get(k)
		if e == nil || reported[k] || e.inStep() || e.have == nil && e.desired == nil {
			continue
		}
		reported[k] = true
		if !e.reason.waits() {
			continue
		}
		op := Operation{Key: k, WaitsFor: e.message}
		if e.waits != nil {
			op.Missing = e.waits.missing
		}
		switch old := before[k]; {
		case out[k] != nil:
			op.Action, op.Reason, op.Fields, op.Replacing = Create, out[k].Reason, out[k].Fields, true
		case e.desired == nil:
			op.Action, op.Reason = Delete, "not in the desired state"
		case e.have != nil:
			op.Action, op.Reason, op.Fields = Update, "the data plane keeps its old form until then", g.differences(e)
		case old != nil:
			op.Action, op.Reason, op.Fields = Update, "not in the data plane", old.DiffSpec(e.desired.StoredObject)
		default:
			op.Action, op.Reason = Create, "in the desired state"
		}
		all = append(all, op)
	}
	return all
}
