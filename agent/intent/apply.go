package intent

import (
	"context"
	"errors"
	"fmt"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Apply implements Interface.
func (d *Desired) Apply(ctx context.Context, source Source, changes []object.Change, options Options) (*Outcome, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	x, err := d.registry.ExamineSaid(changes)
	if err != nil {
		return nil, err
	}
	d.changing.Lock()
	p, revision, begun, err := d.commit(source, x, options)
	d.changing.Unlock()
	if err != nil {
		return nil, err
	}
	return d.finish(ctx, p.named, revision, begun, options)
}

// commit checks, keeps and hands over. d.changing is held.
func (d *Desired) commit(source Source, x *object.Examined, options Options) (*prepared, Revision, work, error) {
	d.mu.Lock()
	p, err := d.check(source, x, options)
	latest := Revision{Number: d.revision}
	d.mu.Unlock()
	if err != nil {
		return nil, latest, nil, err
	}
	if len(p.edits) == 0 {
		return p, latest, nil, nil
	}
	begun, revision, err := d.keep(p, source, options, 0, 0)
	return p, revision, begun, err
}

// check prepares a source's changes. d.mu is held.
func (d *Desired) check(source Source, x *object.Examined, options Options) (*prepared, error) {
	if options.Plan != nil {
		if err := d.moved(options.Plan); err != nil {
			return nil, err
		}
	}
	if options.Complete {
		x = d.completed(source.Owner, x)
	}
	edits, err := d.edit(source, x, options)
	if err != nil {
		return nil, err
	}
	if options.Mode == AllOrNothing && !d.sites.connected(edits) {
		return nil, ErrDisconnected
	}
	p, err := d.decided(edits, options)
	if err != nil {
		return nil, err
	}
	if options.Plan != nil {
		if err := d.other(options.Plan, p); err != nil {
			p.takeBack()
			return nil, err
		}
	}
	if len(p.named) == len(x.Keys) {
		return p, nil
	}
	// Those that change nothing are told, too.
	steps := make(map[object.Key]Step, len(p.named))
	for _, n := range p.named {
		steps[n.key] = n.step
	}
	p.named = make([]named, len(x.Keys))
	for i, k := range x.Keys {
		p.named[i] = named{k, steps[k]}
	}
	return p, nil
}

// decided prepares edits. d.mu is held.
func (d *Desired) decided(edits []Edit, options Options) (*prepared, error) {
	p, err := d.prepare(edits, options.Mode)
	if err != nil {
		return nil, err
	}
	p.named = make([]named, len(edits))
	for i, e := range edits {
		p.named[i] = named{e.Key, stepFrom(e.Before.kept(), e.After.kept())}
	}
	return p, nil
}

// named is an object that a caller named, and what that does to it.
type named struct {
	key  object.Key
	step Step
}

func stepFrom(before, after *object.Kept) Step {
	switch {
	case before == nil && after == nil:
		return Keep
	case after == nil:
		return Delete
	case before == nil:
		return Create
	case before.Equal(after):
		return Keep
	case before.Replaces(after):
		return Replace
	}
	return Update
}

// finish waits, takes back what was all or nothing and failed, and says what became of it. begun is nil if nothing was to be done.
func (d *Desired) finish(ctx context.Context, all []named, revision Revision, begun work, options Options) (*Outcome, error) {
	out := &Outcome{Revision: revision.Number}
	var err error
	if begun != nil {
		if options.Mode != NoWait {
			select {
			case <-begun.Done():
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		var interrupted bool
		out.Operations, out.Failures, interrupted = begun.Close()
		switch {
		case options.Mode != AllOrNothing:
		case err != nil || interrupted || len(out.Failures) > 0:
			if interrupted && err == nil {
				err = ErrDisconnected
			}
			undoErr := d.undo(ctx, revision.Number, "not all of it could be done", true)
			out.Undone = undoErr == nil
			err = errors.Join(err, undoErr)
		case revision.ConfirmBy.IsZero():
			err = d.settle(revision.Number, nil)
		default:
			err = d.settle(revision.Number, &Open{Revision: revision.Number, ConfirmBy: revision.ConfirmBy})
		}
		if !revision.ConfirmBy.IsZero() && !out.Undone {
			d.expect(revision.Number, revision.ConfirmBy)
			out.ConfirmBy = revision.ConfirmBy
		}
	}
	d.tell(out, all)
	return out, err
}

func (d *Desired) settle(revision uint64, open *Open) error {
	if err := d.config.Store.Settle(revision, open); err != nil {
		return fmt.Errorf("keeping that revision %d stands: %w", revision, err)
	}
	return nil
}

// tell says of each object what was done and how it stands with it.
func (d *Desired) tell(out *Outcome, all []named) {
	failures := make(map[object.Key]Failure, len(out.Failures))
	for _, f := range out.Failures {
		failures[f.Key] = f
	}
	done := make(map[object.Key]Step, len(out.Operations))
	for _, o := range out.Operations {
		switch before := done[o.Key]; {
		case o.Action == reconcile.Delete, before == Replace:
			done[o.Key] = Replace
		case o.Action == reconcile.Create:
			done[o.Key] = Create
		case before == Keep:
			done[o.Key] = Update
		}
	}
	out.Objects = make([]Done, 0, len(all))
	// Of what was done, how much was named.
	among := 0
	for _, n := range all {
		step, did := done[n.key]
		if did {
			among++
		}
		st, wanted := d.look(n.key)
		switch {
		case wanted == nil:
		case step == Replace, step == Create:
			n.step = step
		case n.step == Replace:
			// The data plane did not have it before, or still does.
			n.step = Update
		}
		out.Objects = append(out.Objects, doneOf(n.step, st, failures, out.Undone))
	}
	if among == len(done) {
		return
	}
	// What was not named, but had to go because of what was, and perhaps came again.
	told := make(map[object.Key]struct{}, len(all))
	for _, n := range all {
		told[n.key] = struct{}{}
	}
	for _, o := range out.Operations {
		if _, twice := told[o.Key]; twice || out.Undone && failures[o.Key] == (Failure{}) {
			continue
		}
		told[o.Key] = struct{}{}
		if st, _ := d.look(o.Key); st.State != Gone {
			out.Objects = append(out.Objects, doneOf(done[o.Key], st, failures, out.Undone))
		}
	}
}

func doneOf(step Step, st Status, failures map[object.Key]Failure, undone bool) Done {
	// It may be under way again already, and what was tried first is what counts.
	if f, failed := failures[st.Key]; failed && (undone || st.State != Applied && st.State != Gone) {
		st.State, st.Message, st.Reason = Failed, f.Message, f.Reason.String()
	}
	return Done{step, st}
}
