// Plan and Apply: how somebody comes to want something else.
package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// Mode says how Apply treats failures.
type Mode int

const (
	// BestEffort: each object stands by itself, and what failed is tried again.
	BestEffort Mode = iota
	// AllOrNothing: if the data plane refuses any, all changes are undone.
	AllOrNothing
	// NoWait: as BestEffort, but Apply returns when the changes are kept.
	NoWait
)

// Outcome is what became of an Apply.
type Outcome struct {
	Revision uint64
	// How it stands with each object that was named, in the same order.
	Objects []Status
	// What was done, in that order. After NoWait: nothing yet.
	Operations []Operation
	// What the data plane refused.
	Failures []Failure
	// Everything is wanted as it was before.
	Undone bool
}

// prepare checks changes against all that is wanted, and drops those that change nothing. The set has them afterwards, until
// undo is called. r.mu is held.
func (r *Reconciler) prepare(owner string, x *object.Examined) (real []int, undo func(), err error) {
	var errs object.Errors
	real = make([]int, 0, len(x.Changes))
	for i, c := range x.Changes {
		e := r.graph.entries[c.Key]
		if e == nil || e.want == nil || e.want.builtin {
			if c.Object != nil || e != nil && e.want != nil && !e.want.builtin {
				real = append(real, i)
			}
			continue
		}
		if e.want.owner != owner {
			errs = append(errs, &object.Error{Object: c.Key, Problem: "belongs to " + e.want.owner, Accepted: "changes by its owner alone"})
			continue
		}
		if c.Object == nil || !bytes.Equal(x.Facts[i].Spec, e.want.spec) || !maps.Equal(c.Object.Labels, e.want.object.Labels) {
			real = append(real, i)
		}
	}
	if len(errs) > 0 {
		return nil, nil, errs
	}
	// Those that change nothing are checked, too: they may be in the way of the others.
	undo, err = r.set.ApplyExamined(x)
	return real, undo, err
}

// versionOf is what a change makes an object say; nil: it is deleted.
func versionOf(x *object.Examined, i int, owner string, revision uint64) *version {
	if x.Changes[i].Object == nil {
		return nil
	}
	return newVersion(x.Changes[i].Object, x.Facts[i], owner, revision)
}

// Plan says what applying the changes would do, in that order, as if the data plane refused nothing; and what of it could not be
// done yet. Of the latter those that are Replacing are only taken out of the data plane. Errors as Apply's.
func (r *Reconciler) Plan(owner string, changes []object.Change) (planned, waiting []Operation, err error) {
	x, err := r.registry.Examine(changes)
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	real, undo, err := r.prepare(owner, x)
	if err != nil {
		return nil, nil, err
	}
	defer undo()
	g := r.graph
	keys := make([]object.Key, len(real))
	before := map[object.Key]*version{}
	for n, i := range real {
		keys[n] = changes[i].Key
		if e := g.entries[keys[n]]; e != nil && e.want != nil && !e.want.builtin {
			before[keys[n]] = e.want
		}
	}
	t := newTransaction(false)
	g.simulate(func() {
		// First what is under way, as if it went well.
		for _, s := range g.wave {
			if !s.settled {
				g.settle(&step{entry: s.entry, put: s.put, operation: s.operation}, Result{})
			}
		}
		for wave := g.next(); len(wave) > 0; wave = g.next() {
			for _, s := range wave {
				g.settle(s, Result{})
			}
		}
		for _, i := range real {
			g.setWant(changes[i].Key, versionOf(x, i, owner, 0), t)
		}
		for wave := g.next(); len(wave) > 0; wave = g.next() {
			for _, s := range wave {
				planned = append(planned, s.operation)
				g.settle(s, Result{})
			}
		}
		waiting = g.unfinished(planned, keys, before)
	})
	return planned, waiting, nil
}

// unfinished returns what was to be done about the keys, and about what was taken out of the data plane, and could not be.
func (g *graph) unfinished(done []Operation, keys []object.Key, before map[object.Key]*version) []Operation {
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
		e := g.entries[k]
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
			op.Action, op.Reason, op.Fields = Update, "not in the data plane", e.kind.Diff(old.object.Spec, e.want.object.Spec)
		default:
			op.Action, op.Reason = Create, "wanted"
		}
		all = append(all, op)
	}
	return all
}

// Apply makes an owner want the changes: they are checked together with everything else that is wanted (object.Errors say what is
// wrong, and then nothing was changed), kept, and then carried out. It returns when each object is Applied, Failed or waits for
// something, and so is what had to be rebuilt for it; or when ctx ends, which undoes AllOrNothing but nothing else. Without a data plane it
// returns at once; AllOrNothing then changes nothing, with ErrDisconnected. The changes must not be changed meanwhile.
func (r *Reconciler) Apply(ctx context.Context, owner string, changes []object.Change, mode Mode) (*Outcome, error) {
	x, err := r.registry.Examine(changes)
	if err != nil {
		return nil, err
	}
	t, undo, revision, err := r.commit(owner, x, mode)
	if err != nil {
		return nil, err
	}
	if t != nil && mode != NoWait {
		select {
		case <-t.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	out := &Outcome{Revision: revision}
	r.mu.Lock()
	interrupted := false
	if t != nil {
		delete(r.transactions, t)
		t.end()
		out.Operations, out.Failures = t.operations, t.failures
		interrupted = t.interrupted
	}
	r.mu.Unlock()
	if mode == AllOrNothing && t != nil {
		switch failed := len(out.Failures) > 0 || interrupted || err != nil; {
		case failed:
			if interrupted && err == nil {
				err = ErrDisconnected
			}
			undoErr := r.undo(ctx, revision, undo)
			out.Undone = undoErr == nil
			err = errors.Join(err, undoErr)
		case r.options.Store != nil:
			err = r.end(revision)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Objects = make([]Status, len(changes))
	for i, c := range changes {
		out.Objects[i] = r.status(c.Key)
	}
	return out, err
}

func (r *Reconciler) end(revision uint64) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.options.Store.End(revision, nil); err != nil {
		return fmt.Errorf("keeping that revision %d stands: %w", revision, err)
	}
	return nil
}

// commit checks, keeps, and hands over to the goroutine that talks to the data plane. The transaction is nil if there is
// nothing to do.
func (r *Reconciler) commit(owner string, x *object.Examined, mode Mode) (*transaction, []Intent, uint64, error) {
	r.changing.Lock()
	defer r.changing.Unlock()

	r.mu.Lock()
	if mode == AllOrNothing && r.link == nil {
		r.mu.Unlock()
		return nil, nil, 0, ErrDisconnected
	}
	real, takeBack, err := r.prepare(owner, x)
	if err != nil || len(real) == 0 {
		revision := r.revision
		r.mu.Unlock()
		return nil, nil, revision, err
	}
	revision := r.revision + 1
	var intents, undo []Intent
	if r.options.Store != nil {
		intents = make([]Intent, len(real))
		for n, i := range real {
			intents[n] = Intent{x.Changes[i].Key, x.Changes[i].Object, owner, revision}
		}
	}
	if mode == AllOrNothing {
		undo = make([]Intent, len(real))
		for n, i := range real {
			k := x.Changes[i].Key
			undo[n] = Intent{Key: k, Owner: owner}
			if e := r.graph.entries[k]; e != nil && e.want != nil && !e.want.builtin {
				undo[n].Object, undo[n].Revision = e.want.object, e.want.revision
			}
		}
	}
	r.mu.Unlock()

	if store := r.options.Store; store != nil {
		if mode == AllOrNothing {
			err = store.Begin(revision, intents, undo)
		} else {
			err = store.Save(intents)
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		takeBack()
		return nil, nil, 0, fmt.Errorf("keeping what is wanted: %w", err)
	}
	r.revision = revision
	t := newTransaction(mode == AllOrNothing)
	r.transactions[t] = struct{}{}
	r.graph.reserve(len(real), x.Claims())
	for _, i := range real {
		r.graph.setWant(x.Changes[i].Key, versionOf(x, i, owner, revision), t)
	}
	if r.link == nil {
		r.interrupt(t)
	}
	if mode == NoWait {
		delete(r.transactions, t)
	}
	r.wakeUp()
	return t, undo, revision, nil
}

// undo makes everything be wanted as before the revision, except for what somebody changed since.
func (r *Reconciler) undo(ctx context.Context, revision uint64, undo []Intent) error {
	r.changing.Lock()
	defer r.changing.Unlock()

	r.mu.Lock()
	var changes []object.Change
	var intents []Intent
	for _, i := range undo {
		e := r.graph.entries[i.Key]
		if e != nil && e.want != nil && e.want.revision != revision {
			continue
		}
		changes, intents = append(changes, object.Change{Key: i.Key, Object: i.Object}), append(intents, i)
	}
	x, err := r.registry.Examine(changes)
	var takeBack func()
	if err == nil {
		takeBack, err = r.set.ApplyExamined(x)
	}
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("undoing revision %d, after which others made changes: %w", revision, err)
	}
	if r.options.Store != nil {
		err = r.options.Store.End(revision, intents)
	}

	r.mu.Lock()
	if err != nil {
		takeBack()
		r.mu.Unlock()
		return fmt.Errorf("undoing revision %d: %w", revision, err)
	}
	t := newTransaction(false)
	r.transactions[t] = struct{}{}
	for i, c := range changes {
		r.graph.setWant(c.Key, versionOf(x, i, intents[i].Owner, intents[i].Revision), t)
	}
	if r.link == nil {
		r.interrupt(t)
	}
	r.wakeUp()
	r.mu.Unlock()

	select {
	case <-t.done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	delete(r.transactions, t)
	r.mu.Unlock()
	return nil
}

// interrupt ends a transaction because nobody knows when the data plane comes back. r.mu is held.
func (r *Reconciler) interrupt(t *transaction) {
	if t.open > 0 {
		t.interrupted = true
	}
	t.end()
}
