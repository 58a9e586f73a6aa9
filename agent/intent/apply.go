package intent

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	out, err := d.finish(ctx, p.asked, p.opened, revision, begun, options)
	if !out.Undone {
		out.Joined = p.joined
	}
	return out, err
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
	begun, revision, err := d.keep(p, source, options, 0, nil)
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
	edits, asked, err := d.edit(source, x, options)
	if err != nil {
		return nil, err
	}
	if options.Mode == AllOrNothing && !d.sites.connected(edits) {
		return nil, ErrDisconnected
	}
	p, err := d.decided(edits, asked, options)
	if err != nil {
		return nil, err
	}
	p.joined = joinedBy(source.Owner, edits)
	if options.Plan != nil {
		if err := d.other(options.Plan, p); err != nil {
			p.takeBack()
			return nil, err
		}
	}
	return p, nil
}

// joinedBy says which objects an owner comes to want that others want already.
func joinedBy(owner string, edits []Edit) Joined {
	j := Joined{Owner: owner}
	for i := range edits {
		e := &edits[i]
		if e.Before == nil || e.Before.layerOf(owner) != nil || e.After.layerOf(owner) == nil {
			continue
		}
		j.Objects++
		for _, l := range e.Before.Layers {
			if !slices.Contains(j.Besides, l.Owner) {
				j.Besides = append(j.Besides, l.Owner)
			}
		}
	}
	slices.Sort(j.Besides)
	return j
}

// decided prepares edits, which do what was asked for. d.mu is held.
func (d *Desired) decided(edits []Edit, asked *asked, options Options) (*prepared, error) {
	p, err := d.prepare(edits, options.Mode)
	if err != nil {
		return nil, err
	}
	p.asked = asked
	for i := range edits {
		e := &edits[i]
		n := &asked.all[i]
		if n.key != e.Key {
			n = asked.find(e.Key) // some change nothing
		}
		n.step = stepFrom(e.Before.kept(), e.After.kept())
	}
	return p, nil
}

// asked is what a caller named, in that order, each once.
type asked struct {
	all   []named
	byKey object.Table[*named]
}

// named is an object that a caller named, what its change does to what is wanted of it, and what data planes did then.
type named struct {
	key        object.Key
	step, done Step
	did        bool
}

// Key makes what is named be found by its key.
func (n *named) Key() object.Key { return n.key }

// newAsked keeps the first where one is named twice.
func newAsked(keys []object.Key) *asked {
	a := &asked{all: make([]named, len(keys))}
	a.byKey.Reserve(len(keys))
	for i, k := range keys {
		n := &a.all[i]
		n.key = k
		if first, _ := a.byKey.Put(n); first != nil {
			a.byKey.Put(first)
		}
	}
	return a
}

// find returns nil for what was not named.
func (a *asked) find(k object.Key) *named { return a.byKey.Get(k) }

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
func (d *Desired) finish(ctx context.Context, asked *asked, o *opened, revision Revision, begun work, options Options) (*Outcome, error) {
	out := &Outcome{Revision: revision.Number}
	var err error
	if begun != nil {
		// Of none that is not open.
		var undone <-chan struct{}
		if o != nil {
			undone = o.undone
		}
		if options.Mode != NoWait {
			select {
			case <-begun.Done():
			case <-undone:
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
			err = errors.Join(err, d.undo(ctx, o, unfinished, true))
			out.Undone = o.isUndone()
		default:
			err = d.done(o)
		}
		switch {
		case revision.ConfirmBy.IsZero(), out.Undone:
		case o.isUndone():
			out.Undone, err = true, errors.Join(err, fmt.Errorf("revision %d: %w", revision.Number, ErrUnconfirmed))
		default:
			var waits error
			if out.ConfirmBy, waits = d.confirmBy(o); err == nil {
				err = waits
			}
		}
	}
	d.tell(out, asked)
	return out, err
}

// tell says of each object what was done and how it stands with it.
func (d *Desired) tell(out *Outcome, asked *asked) {
	failures := make(map[object.Key]Failure, len(out.Failures))
	for _, f := range out.Failures {
		failures[f.Key] = f
	}
	// What was not named, but had to go because of what was, and perhaps came again.
	var beside []*named
	besides := map[object.Key]*named{}
	for i := range out.Operations {
		o := &out.Operations[i]
		n := asked.find(o.Key)
		if n == nil {
			if n = besides[o.Key]; n == nil {
				n = &named{key: o.Key}
				besides[o.Key], beside = n, append(beside, n)
			}
		}
		n.did = true
		switch {
		case o.Action == reconcile.Delete, n.done == Replace:
			n.done = Replace
		case o.Action == reconcile.Create:
			n.done = Create
		case n.done == Keep:
			n.done = Update
		}
	}
	out.Objects = make([]Done, 0, len(asked.all))
	// One each, mostly.
	owners := make([]Ownership, len(asked.all))
	for from := 0; from < len(asked.all); from += tellAtOnce {
		end := min(from+tellAtOnce, len(asked.all))
		d.mu.RLock()
		for i := from; i < end; i++ {
			n := &asked.all[i]
			st, wanted := d.lookInto(n.key, owners[i:i:i+1])
			switch {
			case wanted == nil:
			case n.did && (n.done == Replace || n.done == Create):
				n.step = n.done
			case n.step == Replace:
				// The data plane did not have it before, or still does.
				n.step = Update
			}
			out.Objects = append(out.Objects, doneOf(n.step, st, failures, out.Undone))
		}
		d.mu.RUnlock()
	}
	for _, n := range beside {
		if out.Undone && failures[n.key] == (Failure{}) {
			continue
		}
		if st, _ := d.look(n.key); st.State != Gone {
			out.Objects = append(out.Objects, doneOf(n.done, st, failures, out.Undone))
		}
	}
}

// tellAtOnce: others who want something do not wait until all is told.
const tellAtOnce = 256

func doneOf(step Step, st Status, failures map[object.Key]Failure, undone bool) Done {
	// It may be under way again already, and what was tried first is what counts.
	if len(failures) == 0 {
		return Done{step, st}
	}
	if f, failed := failures[st.Key]; failed && (undone || st.State != Applied && st.State != Gone) {
		st.State, st.Message, st.Reason = Failed, f.Message, f.Reason.String()
	}
	return Done{step, st}
}
