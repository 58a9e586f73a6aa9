// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"errors"
	"slices"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Apply implements Interface.
func (d *Desired) Apply(ctx context.Context, source Source, changes []object.Change, options Options) (*Outcome, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	x, err := d.registry.ExamineLayers(changes)
	if err != nil {
		return nil, err
	}
	if err := d.turn(ctx, options); err != nil {
		return nil, err
	}
	p, revision, begun, err := d.commit(source, x, options)
	d.changing.Unlock()
	if err != nil {
		return nil, err
	}
	out, err := d.finish(ctx, p.request, p.opened, revision, begun, options)
	if !out.Undone {
		out.Joined = p.joined
	}
	return out, err
}

// commit checks, keeps and hands over. d.changing is held.
func (d *Desired) commit(source Source, x *object.Examined, options Options) (*prepared, Revision, work, error) {
	p, err := d.check(source, x, options, false)
	latest := Revision{Number: d.Revision()}
	if err != nil {
		return nil, latest, nil, err
	}
	if len(p.edits) == 0 {
		return p, latest, nil, nil
	}
	begun, revision, err := d.keep(p, source, options, 0, nil)
	return p, revision, begun, err
}

// check prepares a source's changes. try: they are not made. d.changing is held, d.mu is not: only a few objects at a time need it, so that
// producers hardly wait for a large change.
func (d *Desired) check(source Source, x *object.Examined, options Options, try bool) (*prepared, error) {
	if options.Plan != nil {
		if err := d.moved(options.Plan); err != nil {
			return nil, err
		}
	}
	if options.Complete {
		x = d.completed(source.Owner, x)
	}
	edits, request, err := d.edit(source, x, options)
	if err != nil {
		return nil, err
	}
	if options.Mode == AllOrNothing && !d.sites.connected(edits) {
		return nil, ErrDisconnected
	}
	p, err := d.decided(edits, request, options, try)
	if err != nil {
		return nil, err
	}
	p.joined = joinedBy(source.Owner, edits)
	if options.Plan != nil {
		if err := d.other(options.Plan, p); err != nil {
			d.takeBack(p)
			return nil, err
		}
	}
	return p, nil
}

// joinedBy returns the objects of other owners in which an owner gets fields.
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

// decided prepares the edits of a request. d.changing is held, d.mu is not.
func (d *Desired) decided(edits []Edit, request *request, options Options, try bool) (*prepared, error) {
	p, err := d.prepare(edits, options.Mode, try)
	if err != nil {
		return nil, err
	}
	p.request = request
	for i := range edits {
		e := &edits[i]
		n := &request.all[i]
		if n.key != e.Key {
			n = request.find(e.Key) // some change nothing
		}
		n.step = stepFrom(e.Before.merged(), e.After.merged())
	}
	return p, nil
}

// asked holds the objects of a request, in its order, each once.
type request struct {
	all   []named
	byKey object.Table[*named]
}

// named is an object of a request, with its edit and the results of data planes.
type named struct {
	key        object.Key
	step, done Step
	did        bool
}

// Key is for the table by key.
func (n *named) Key() object.Key { return n.key }

// newAsked keeps the first where one is named twice.
func newRequest(keys []object.Key) *request {
	a := &request{all: make([]named, len(keys))}
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

// find returns nil for an object that the request does not name.
func (a *request) find(k object.Key) *named { return a.byKey.Get(k) }

func stepFrom(before, after *object.StoredObject) Step {
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

// finish waits, undoes a failed all-or-nothing change, and returns the outcome. begun is nil if there was nothing to
// do.
func (d *Desired) finish(ctx context.Context, request *request, o *opened, revision Revision, begun work, options Options) (*Outcome, error) {
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
			out.Undone, err = true, errors.Join(err, o.unconfirmed())
		default:
			var waits error
			if out.ConfirmBy, waits = d.confirmBy(o); err == nil {
				err = waits
			}
		}
	}
	d.fillStatus(out, request)
	return out, err
}

// fillStatus sets the step and status of each object.
func (d *Desired) fillStatus(out *Outcome, request *request) {
	failures := make(map[object.Key]Failure, len(out.Failures))
	for _, f := range out.Failures {
		failures[f.Key] = f
	}
	// Objects that the request does not name, but that had to be deleted because of it, and perhaps made again.
	var beside []*named
	besides := map[object.Key]*named{}
	for i := range out.Operations {
		o := &out.Operations[i]
		n := request.find(o.Key)
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
	out.Objects = make([]Done, 0, len(request.all))
	// One each, mostly.
	owners := make([]Ownership, len(request.all))
	for from := 0; from < len(request.all); from += reportAtOnce {
		end := min(from+reportAtOnce, len(request.all))
		d.mu.RLock()
		for i := from; i < end; i++ {
			n := &request.all[i]
			st, stored := d.lookInto(n.key, owners[i:i:i+1])
			switch {
			case stored == nil:
			case n.step == Delete && st.Revision > out.Revision && !out.Undone:
				// A later change made the object again, perhaps before a data plane deleted it.
				st = Status{Key: n.key, State: Gone, Reason: reconcile.NotDesired.String(), Since: st.Since}
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
		// A service makes objects of its own meanwhile, such as the Punt of a server.
		if n.done == Create && d.isProduced(n.key) {
			continue
		}
		if st, _ := d.look(n.key); st.State != Gone {
			out.Objects = append(out.Objects, doneOf(n.done, st, failures, out.Undone))
		}
	}
}

// isProduced reports whether a service produces the object.
func (d *Desired) isProduced(k object.Key) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.records.Get(k).producedBy() != nil
}

// reportAtOnce is the number of objects for which the lock is held at once.
const reportAtOnce = 256

func doneOf(step Step, st Status, failures map[object.Key]Failure, undone bool) Done {
	// It may be under way again already; the first attempt counts.
	if len(failures) == 0 {
		return Done{step, st}
	}
	if f, failed := failures[st.Key]; failed && (undone || st.State != Applied && st.State != Gone) {
		st.State, st.Message, st.Reason = Failed, f.Message, f.Reason.String()
	}
	return Done{step, st}
}
