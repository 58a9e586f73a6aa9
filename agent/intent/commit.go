// SPDX-License-Identifier: Apache-2.0

// A commit: changes are checked, stored, and handed to the reconcilers.
package intent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// prepared is a change that is acceptable. The sets have it already, except for deletions that come later, and unless it is only tried;
// Desired.takeBack undoes that.
type prepared struct {
	edits []Edit
	// The indexes of edits that change the merged spec.
	effective []int
	// Other changes cannot take the keys and claims that this one releases, until it is stored or taken back.
	placed placed
	// Deletions that are made in the sets when the change is stored.
	later   *object.Examined
	request *request
	// The open revision of this change, if it is one.
	opened *opened
	// The open revisions that it ends.
	ends   []*opened
	joined Joined
}

// undoing is the part of a commit that undoes an open revision, or a part of it.
type undoing struct {
	closes uint64
	// The rest that stays open; nil: nothing.
	leaves *Open
	// The changed undo records of open revisions.
	revised []Undo
	// Called when the commit is stored, before the events of its edits. d.mu is held.
	whenStored func()
}

// completed adds to the changes the deletion of all other objects of the owner. d.changing is held, d.mu is not.
func (d *Desired) completed(owner string, x *object.Examined) *object.Examined {
	named := make(map[object.Key]struct{}, len(x.Keys))
	for _, k := range x.Keys {
		named[k] = struct{}{}
	}
	var more []object.Key
	d.eachRecord(func(r *Record) {
		k := r.Key()
		if _, there := named[k]; !there && r.producedBy() == nil && r.layerOf(owner) != nil {
			more = append(more, k)
		}
	})
	slices.SortFunc(more, object.Key.Compare)
	return &object.Examined{Keys: slices.Concat(x.Keys, more), Objects: slices.Concat(x.Objects, make([]*object.StoredObject, len(more)))}
}

// edit computes the edits of a source's changes, and leaves out changes without effect. d.changing is held, d.mu is not: the records of
// configuration stay as they are.
func (d *Desired) edit(source Source, x *object.Examined, options Options) ([]Edit, *request, error) {
	var mistakes object.Errors
	var conflicts []Conflict
	var moved []object.Key
	edits := make([]Edit, 0, len(x.Keys))
	request := newRequest(x.Keys)
	for i, k := range x.Keys {
		if request.find(k) != &request.all[i] {
			mistakes = append(mistakes, &object.Error{Object: k, Problem: "duplicate object", Accepted: "each object once"})
			continue
		}
		before, stored := d.recordFor(k), x.Objects[i]
		if before.producedBy() != nil {
			mistakes = append(mistakes, d.produced(k, before))
			continue
		}
		if before == nil && stored != nil && options.Expect == nil {
			edits = append(edits, Edit{Key: k, After: alone(Layer{Owner: source.Owner, StoredObject: stored})})
			continue
		}
		if revision, expected := options.Expect[k]; expected && revision != before.revision() {
			moved = append(moved, k)
			continue
		}
		own := before.layerOf(source.Owner)
		same := own != nil && stored != nil && (own.SameLayer(stored) || len(before.Layers) == 1 && own.SameShownLayer(stored))
		switch {
		case same && (!options.Force || len(before.Layers) == 1), stored == nil && before == nil:
			continue
		case stored == nil && own == nil:
			conflicts = append(conflicts, Conflict{Key: k, Owner: source.Owner, Holder: before.owner()})
			continue
		}
		layers := before.without(source.Owner)
		if stored != nil {
			layer := Layer{Owner: source.Owner, StoredObject: stored}
			if own != nil {
				layer.Taken = own.Taken
			}
			contested := d.contested(k, layers, own, layer)
			switch {
			case len(contested) == 0 && same:
				continue
			case len(contested) > 0 && !options.Force:
				conflicts = append(conflicts, contested...)
				continue
			case len(contested) > 0:
				layer.Taken = d.next()
			}
			layers = append(layers, layer)
		}
		after, err := d.recordOf(layers)
		if err != nil {
			return nil, nil, err
		}
		edits = append(edits, Edit{Key: k, Before: before, After: after})
	}
	switch {
	case len(mistakes) > 0:
		return nil, nil, mistakes
	case len(moved) > 0:
		return nil, nil, &Moved{Objects: moved}
	case len(conflicts) > 0:
		return nil, nil, &Conflicts{conflicts}
	}
	return edits, request, nil
}

// contested returns the fields in which a new layer contradicts others of the same priority without having taken over
// from them. own is its owner's layer until now; nil: none.
func (d *Desired) contested(k object.Key, others []Layer, own *Layer, layer Layer) []Conflict {
	var all []Conflict
	for _, l := range others {
		if d.config.Owners[l.Owner].Priority != d.config.Owners[layer.Owner].Priority {
			continue
		}
		taken := map[string]struct{}{}
		if own != nil && own.Taken > l.Taken {
			for _, c := range own.Contradicts(l.StoredObject) {
				taken[c.Path] = struct{}{}
			}
		}
		for _, c := range layer.Contradicts(l.StoredObject) {
			if _, already := taken[c.Path]; !already {
				all = append(all, Conflict{Key: k, Field: c.Field, Owner: layer.Owner, Holder: l.Owner, Requested: c.Mine, Held: c.Theirs})
			}
		}
	}
	return all
}

// recordOf makes a record of layers; nil if there are none.
func (d *Desired) recordOf(layers []Layer) (*Record, error) {
	if len(layers) == 0 {
		return nil, nil
	}
	if len(layers) == 1 {
		return alone(layers[0]), nil
	}
	r := &Record{Layers: layers}
	return r, d.merge(r)
}

// prepare checks edits against the configuration. The sets have them afterwards, until takeBack is called. try: the sets do not have them
// afterwards. d.changing is held, d.mu is not.
func (d *Desired) prepare(edits []Edit, mode Mode, try bool) (*prepared, error) {
	p := &prepared{edits: edits, effective: make([]int, 0, len(edits))}
	x := &object.Examined{Keys: make([]object.Key, 0, len(edits)), Objects: make([]*object.StoredObject, 0, len(edits))}
	var unknown []*object.StoredObject
	for i := range edits {
		e := &edits[i]
		if !e.effective() {
			continue
		}
		p.effective = append(p.effective, i)
		stored := e.After.merged()
		x.Keys = append(x.Keys, e.Key)
		x.Objects = append(x.Objects, stored)
		if stored != nil && !stored.Examined() {
			unknown = append(unknown, stored)
		}
	}
	var nowhere object.Errors
	for _, stored := range x.Objects {
		if stored != nil && d.sites.placesOf(stored) == 0 {
			nowhere = append(nowhere, d.sites.unplaced(stored))
		}
	}
	if len(nowhere) > 0 {
		return nil, nowhere
	}
	// Examine objects of history, merged objects, and objects that are valid only when merged.
	if err := d.registry.ExamineStored(unknown); err != nil {
		return nil, attributed(err, edits)
	}
	var err error
	if p.placed, p.later, err = d.place(x, try); err != nil {
		return nil, attributed(err, edits)
	}
	if mode == AllOrNothing {
		if err := d.complete(x); err != nil {
			d.takeBack(p)
			return nil, err
		}
	}
	return p, nil
}

// attributed adds the owners to mistakes in objects with several owners.
func attributed(err error, edits []Edit) error {
	mistakes := object.AllErrors(err)
	if mistakes == nil {
		return err
	}
	about := make(map[object.Key]*Edit, len(edits))
	for i := range edits {
		about[edits[i].Key] = &edits[i]
	}
	all := make(object.Errors, len(mistakes))
	for i, m := range mistakes {
		all[i] = m
		if e := about[m.Object]; e != nil && e.After != nil && (len(e.After.Layers) > 1 || e.Before.layerOf(e.After.owner()) != nil && len(e.Before.Layers) > 1) {
			all[i] = attribute(m, e)
		}
	}
	return all
}

func attribute(m *object.Error, e *Edit) *object.Error {
	var owners, holders, fields []string
	for i, layer := range object.Layers(e.After.stored()) {
		owners = append(owners, e.After.Layers[i].Owner)
		for _, s := range layer {
			fields = append(fields, s.Field)
		}
		if slices.ContainsFunc(layer, func(s object.OwnedField) bool { return !s.Overridden && object.Within(m.Field, s.Field) }) {
			holders = append(holders, e.After.Layers[i].Owner)
		}
	}
	mistake := *m
	switch {
	case len(holders) > 0:
		mistake.Problem += " (set by " + strings.Join(holders, " and ") + ")"
	case e.Before != nil && len(e.Before.Layers) > len(e.After.Layers):
		mistake.Problem += fmt.Sprintf(" (the object would only have fields of %s: %s)", strings.Join(owners, " and "),
			shortened(strings.Join(fields, ", ")))
		mistake.Found, mistake.Accepted = "", strings.Join(owners, " and ")+" deletes the object first"
	default:
		mistake.Problem += " (not set by " + strings.Join(owners, " or ") + ")"
	}
	return &mistake
}

// complete refuses changes with unresolved references. d.changing is held, d.mu is not.
func (d *Desired) complete(x *object.Examined) error {
	var mistakes object.Errors
	there := d.after(x)
	for i, stored := range x.Objects {
		if stored == nil || !d.sites.lacksAny(there, stored) {
			continue
		}
		for _, ref := range d.registry.References(stored.Object()) {
			if !ref.Builtin && d.sites.lacks(there, stored, ref.To) {
				mistakes = append(mistakes, &object.Error{Object: x.Keys[i], Field: ref.Field, Problem: "there is no " + ref.To.String(),
					Accepted: "an object that is there, where all or nothing is asked for"})
			}
		}
	}
	return append(mistakes, d.stranded(x)...).Or()
}

// stranded returns errors for deletions of objects that others need.
func (d *Desired) stranded(x *object.Examined) object.Errors {
	edited, users := make(map[object.Key]bool, len(x.Keys)), map[object.Key][]object.Key{}
	for i, k := range x.Keys {
		edited[k] = true
		if x.Objects[i] == nil {
			users[k] = nil
		}
	}
	if len(users) == 0 {
		return nil
	}
	d.eachRecord(func(r *Record) {
		k := r.Key()
		if r.version == nil || edited[k] {
			return
		}
		for needed := range r.version.Needs() {
			if _, gone := users[needed]; gone {
				users[needed] = append(users[needed], k)
			}
		}
	})
	var mistakes object.Errors
	for _, k := range x.Keys {
		by := users[k]
		if len(by) == 0 {
			continue
		}
		slices.SortFunc(by, object.Key.Compare)
		problem := by[0].String() + " needs it"
		if more := len(by) - 1; more > 0 {
			problem = fmt.Sprintf("%s and %d more need it", by[0], more)
		}
		mistakes = append(mistakes, &object.Error{Object: k, Problem: problem,
			Accepted: "with all or nothing, deletion of objects that no other object refers to"})
	}
	return mistakes
}

// seal gives the edits the number of a revision.
func (d *Desired) seal(p *prepared, revision uint64, at time.Time) {
	effective := map[int]bool{}
	if len(p.effective) < len(p.edits) {
		for _, i := range p.effective {
			effective[i] = true
		}
	}
	for i := range p.edits {
		e := &p.edits[i]
		if e.After == nil {
			continue
		}
		e.After.Revision = revision
		for n := range e.After.Layers {
			if e.After.Layers[n].Revision == 0 {
				e.After.Layers[n].Revision = revision
			}
		}
		if e.Before != nil {
			e.After.Generation, e.After.Accepted, e.After.version = e.Before.Generation, e.Before.Accepted, e.Before.version
		}
		if len(p.effective) == len(p.edits) || effective[i] {
			e.After.Generation++
			e.After.Accepted = at.UnixNano()
			e.After.version = versionOf(e.After)
		}
	}
}

// keep writes a prepared change down, and hands it over; u: it undoes another, nil: it does not. d.changing is held, d.mu is not.
func (d *Desired) keep(p *prepared, source Source, options Options, rollbackTo uint64, u *undoing) (work, Revision, error) {
	now := time.Now()
	d.mu.Lock()
	latest := d.revision
	revision := Revision{Number: d.next(), Time: now, Source: source, Mode: options.Mode, Changes: len(p.edits), RollbackTo: rollbackTo}
	if options.ConfirmWithin > 0 {
		revision.ConfirmBy = now.Add(options.ConfirmWithin)
	}
	if u != nil {
		revision.Undoes, revision.UndoesInPart = u.closes, u.leaves != nil
	}
	for _, o := range p.ends {
		revision.Ended = append(revision.Ended, o.Revision)
	}
	d.mu.Unlock()
	d.seal(p, revision.Number, now)
	revision.Objects = changedIn(p.edits)

	c := &Commit{Revision: revision, Edits: p.edits, Recorded: !d.config.Owners[source.Owner].Unrecorded,
		Oldest: oldest(revision.Number, uint64(d.config.Revisions)), Ends: revision.Ended}
	if options.Mode == AllOrNothing || options.ConfirmWithin > 0 {
		c.Open = &Open{Revision: revision.Number, Unfinished: options.Mode == AllOrNothing, ConfirmBy: revision.ConfirmBy}
		if options.ConfirmWithin > 0 {
			d.waitFor(c.Open, options.ConfirmWithin)
		}
	}
	if u != nil {
		c.Closes, c.Leaves, c.Revised = u.closes, u.leaves, u.revised
	}
	var err error
	var begun work
	if d.open != nil {
		c.Revised, err = d.overtaken(c)
	} else if u == nil && c.Open == nil {
		// Data planes carry it out during the sync of the disk. The caller gets the result after both.
		c.Written = func() { begun = d.handOver(p, revision.Number, false) }
	}
	if err == nil {
		err = d.config.Store.Commit(c)
		// A holder of the commit does not keep this memory in use.
		c.Written = nil
	}

	d.mu.Lock()
	if err != nil {
		defer d.mu.Unlock()
		if begun != nil {
			begun.Close()
			d.handBack(p, latest)
		}
		p.placed.undo()
		return nil, Revision{}, fmt.Errorf("storing the configuration: %w", err)
	}
	d.revise(c.Revised)
	if u != nil {
		u.whenStored()
	}
	for _, o := range p.ends {
		d.close(o)
		o.by = revision.Number
		close(o.undone)
	}
	if c.Open != nil {
		p.opened = d.begin(*c.Open)
	}
	if u != nil || len(p.ends) > 0 {
		begun = d.handOverAtOnce(p, revision.Number, options.Mode == AllOrNothing)
		d.freeAtOnce(p)
		d.mu.Unlock()
		return begun, revision, nil
	}
	d.mu.Unlock()
	if begun == nil {
		begun = d.handOver(p, revision.Number, options.Mode == AllOrNothing)
	}
	d.free(p)
	return begun, revision, nil
}

// changedIn names the first objects that edits change.
func changedIn(edits []Edit) []Changed {
	some := edits[:min(len(edits), MaxChanged)]
	all := make([]Changed, len(some))
	for i := range some {
		e := &some[i]
		all[i] = Changed{stepFrom(e.Before.merged(), e.After.merged()), e.Key.Kind, e.Key.Name}
	}
	return all
}

// next is the number of the next revision. d.mu is held.
func (d *Desired) next() uint64 { return max(d.revision, d.passed) + 1 }

// handOver makes a sealed change the current configuration: a few objects at a time, so that producers hardly wait. d.changing is held,
// d.mu is not.
func (d *Desired) handOver(p *prepared, revision uint64, strict bool) work {
	d.mu.Lock()
	d.revision = revision
	d.records.Reserve(len(p.edits))
	d.mu.Unlock()
	for some := range slices.Chunk(p.edits, recordsAtOnce) {
		d.pass()
		d.mu.Lock()
		d.recordEdits(some)
		d.mu.Unlock()
	}
	return d.sites.setDesired(p.desired(func(e *Edit) *Record { return e.After }), strict)
}

// handOverAtOnce is handOver for the end of open revisions, which no reader may see in part. d.mu is held.
func (d *Desired) handOverAtOnce(p *prepared, revision uint64, strict bool) work {
	d.revision = revision
	d.records.Reserve(len(p.edits))
	d.recordEdits(p.edits)
	return d.sites.setDesired(p.desired(func(e *Edit) *Record { return e.After }), strict)
}

// recordEdits sets the records that edits make. d.mu is held.
func (d *Desired) recordEdits(edits []Edit) {
	for i := range edits {
		e := &edits[i]
		if e.After != nil && e.Before == nil {
			d.index.added.add(e.Key)
		}
		d.record(e.Key, e.After)
	}
}

// handBack is the end of a change that was handed over and is not kept; latest: the revision before. d.mu is held.
func (d *Desired) handBack(p *prepared, latest uint64) {
	// A reader may have seen it: no other revision gets its number.
	d.passed, d.revision = d.revision, latest
	for i := range p.edits {
		e := &p.edits[i]
		if e.After == nil && e.Before != nil {
			d.index.added.add(e.Key)
		}
		d.record(e.Key, e.Before)
	}
	d.sites.setDesired(p.desired(func(e *Edit) *Record { return e.Before }), false).Close()
}

// record sets the record of an object; nil: deletes it. d.mu is held.
func (d *Desired) record(k object.Key, r *Record) {
	if r == nil {
		d.records.Delete(k)
		return
	}
	d.records.Put(r)
}

// desired converts the records of one side of the edits for the reconciler.
func (p *prepared) desired(side func(*Edit) *Record) []reconcile.Desired {
	desired := make([]reconcile.Desired, len(p.effective))
	for n, i := range p.effective {
		desired[n].Key = p.edits[i].Key
		if r := side(&p.edits[i]); r != nil {
			desired[n].Version = r.version
		}
	}
	return desired
}

// oldest is the first revision of history after this one. Old revisions are deleted several at a time, which is
// cheaper than one by one; in between it is 0.
func oldest(revision, stored uint64) uint64 {
	if revision <= stored || revision%max(1, stored/32) != 0 {
		return 0
	}
	return revision - stored + 1
}

var errNoOwner = errors.New("a source without an owner")
