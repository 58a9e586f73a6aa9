// How something else comes to be wanted: checked, kept, and handed over to whoever makes it so.
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

// prepared is a change that is acceptable. The set has it already; takeBack undoes that.
type prepared struct {
	edits []Edit
	// Those of edits that change what counts.
	effective []int
	takeBack  func()
	asked     *asked
	// The revision that it became, if that is open.
	opened *opened
	joined Joined
}

// undoing is what is kept with the edits that undo an open revision, or some of it.
type undoing struct {
	closes uint64
	// What is left open of it; nil: nothing.
	leaves *Open
	// What undoing it and others brings back from then on.
	revised []Undo
	// Called when that is kept, before anybody is told of the edits. d.mu is held.
	kept func()
}

// completed adds to the changes the deletion of whatever else the owner wants. d.mu is held.
func (d *Desired) completed(owner string, x *object.Examined) *object.Examined {
	named := make(map[object.Key]struct{}, len(x.Keys))
	for _, k := range x.Keys {
		named[k] = struct{}{}
	}
	var more []object.Key
	for r := range d.records.All() {
		k := r.Key()
		if _, there := named[k]; !there && r.layerOf(owner) != nil {
			more = append(more, k)
		}
	}
	slices.SortFunc(more, object.Key.Compare)
	return &object.Examined{Keys: slices.Concat(x.Keys, more), Kept: slices.Concat(x.Kept, make([]*object.Kept, len(more)))}
}

// edit works out what a source's changes do to what is kept, and leaves out what they do not change. d.mu is held.
func (d *Desired) edit(source Source, x *object.Examined, options Options) ([]Edit, *asked, error) {
	var mistakes object.Errors
	var conflicts []Conflict
	var moved []object.Key
	edits := make([]Edit, 0, len(x.Keys))
	asked := newAsked(x.Keys)
	for i, k := range x.Keys {
		if asked.find(k) != &asked.all[i] {
			mistakes = append(mistakes, &object.Error{Object: k, Problem: "there twice", Accepted: "each object once"})
			continue
		}
		before, kept := d.records.Get(k), x.Kept[i]
		if before == nil && kept != nil && options.Expect == nil {
			edits = append(edits, Edit{Key: k, After: alone(Layer{Owner: source.Owner, Kept: kept})})
			continue
		}
		if want, told := options.Expect[k]; told && want != before.revision() {
			moved = append(moved, k)
			continue
		}
		own := before.layerOf(source.Owner)
		same := own != nil && kept != nil && (own.Says(kept) || len(before.Layers) == 1 && own.Restates(kept))
		switch {
		case same && (!options.Force || len(before.Layers) == 1), kept == nil && before == nil:
			continue
		case kept == nil && own == nil:
			conflicts = append(conflicts, Conflict{Key: k, Owner: source.Owner, Holder: before.owner()})
			continue
		}
		layers := before.without(source.Owner)
		if kept != nil {
			layer := Layer{Owner: source.Owner, Kept: kept}
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
	return edits, asked, nil
}

// contested returns what a new layer says differently from others of the same priority, and has not taken over from them. Own is what its
// owner says until now, nil: nothing.
func (d *Desired) contested(k object.Key, others []Layer, own *Layer, layer Layer) []Conflict {
	var all []Conflict
	for _, l := range others {
		if d.config.Owners[l.Owner].Priority != d.config.Owners[layer.Owner].Priority {
			continue
		}
		taken := map[string]struct{}{}
		if own != nil && own.Taken > l.Taken {
			for _, c := range own.Contradicts(l.Kept) {
				taken[c.Path] = struct{}{}
			}
		}
		for _, c := range layer.Contradicts(l.Kept) {
			if _, already := taken[c.Path]; !already {
				all = append(all, Conflict{Key: k, Field: c.Field, Owner: layer.Owner, Holder: l.Owner, Wanted: c.Mine, Held: c.Theirs})
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

// prepare checks edits against all that is wanted. The set has them afterwards, until takeBack is called. d.mu is held.
func (d *Desired) prepare(edits []Edit, mode Mode) (*prepared, error) {
	p := &prepared{edits: edits, effective: make([]int, 0, len(edits))}
	x := &object.Examined{Keys: make([]object.Key, 0, len(edits)), Kept: make([]*object.Kept, 0, len(edits))}
	var unknown []*object.Kept
	for i := range edits {
		e := &edits[i]
		if !e.effective() {
			continue
		}
		p.effective = append(p.effective, i)
		kept := e.After.kept()
		x.Keys = append(x.Keys, e.Key)
		x.Kept = append(x.Kept, kept)
		if kept != nil && !kept.Examined() {
			unknown = append(unknown, kept)
		}
	}
	var nowhere object.Errors
	for _, kept := range x.Kept {
		if kept != nil && d.sites.placesOf(kept) == 0 {
			nowhere = append(nowhere, d.sites.unplaced(kept))
		}
	}
	if len(nowhere) > 0 {
		return nil, nowhere
	}
	// What comes from history, what several say together, and what is not acceptable unless others say more.
	if err := d.registry.ExamineKept(unknown); err != nil {
		return nil, attributed(err, edits)
	}
	var err error
	if p.takeBack, err = d.sites.apply(x); err != nil {
		return nil, attributed(err, edits)
	}
	if mode == AllOrNothing {
		if err := d.complete(x); err != nil {
			p.takeBack()
			return nil, err
		}
	}
	return p, nil
}

// attributed says of mistakes in objects that several want, or wanted, whose they are.
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
	for i, said := range object.Layers(e.After.said()) {
		owners = append(owners, e.After.Layers[i].Owner)
		for _, s := range said {
			fields = append(fields, s.Field)
		}
		if slices.ContainsFunc(said, func(s object.Said) bool { return !s.Overridden && object.Within(m.Field, s.Field) }) {
			holders = append(holders, e.After.Layers[i].Owner)
		}
	}
	told := *m
	switch {
	case len(holders) > 0:
		told.Problem += " (said by " + strings.Join(holders, " and ") + ")"
	case e.Before != nil && len(e.Before.Layers) > len(e.After.Layers):
		told.Problem += fmt.Sprintf(" (only %s would still say something of the object: %s)", strings.Join(owners, " and "),
			shortened(strings.Join(fields, ", ")))
		told.Found, told.Accepted = "", "that "+strings.Join(owners, " and ")+" gives that up before"
	default:
		told.Problem += " (not said by " + strings.Join(owners, " or ") + ")"
	}
	return &told
}

// complete refuses changes that would have to wait for something that nobody wants.
func (d *Desired) complete(x *object.Examined) error {
	var mistakes object.Errors
	for i, kept := range x.Kept {
		if kept == nil || !d.sites.lacksAny(kept) {
			continue
		}
		for _, ref := range d.registry.References(kept.Object()) {
			if !ref.Builtin && d.sites.lacks(kept, ref.To) {
				mistakes = append(mistakes, &object.Error{Object: x.Keys[i], Field: ref.Field, Problem: "there is no " + ref.To.String(),
					Accepted: "an object that is there, where all or nothing is asked for"})
			}
		}
	}
	return append(mistakes, d.stranded(x)...).Or()
}

// stranded says which deletions would leave others without what they need.
func (d *Desired) stranded(x *object.Examined) object.Errors {
	edited, users := make(map[object.Key]bool, len(x.Keys)), map[object.Key][]object.Key{}
	for i, k := range x.Keys {
		edited[k] = true
		if x.Kept[i] == nil {
			users[k] = nil
		}
	}
	if len(users) == 0 {
		return nil
	}
	for r := range d.records.All() {
		k := r.Key()
		if r.version == nil || edited[k] {
			continue
		}
		for needed := range r.version.Needs() {
			if _, gone := users[needed]; gone && d.sites.lacks(r.version.Kept, needed) {
				users[needed] = append(users[needed], k)
			}
		}
	}
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
			Accepted: "a deletion of what nobody needs, where all or nothing is asked for"})
	}
	return mistakes
}

// seal gives the edits the number of a revision. d.mu is held.
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
	d.seal(p, revision.Number, now)
	d.mu.Unlock()

	c := &Commit{Revision: revision, Edits: p.edits, Recorded: !d.config.Owners[source.Owner].Unrecorded,
		Oldest: oldest(revision.Number, uint64(d.config.Revisions))}
	if options.Mode == AllOrNothing || options.ConfirmWithin > 0 {
		c.Open = &Open{Revision: revision.Number, Unfinished: options.Mode == AllOrNothing, ConfirmBy: revision.ConfirmBy}
	}
	if u != nil {
		c.Closes, c.Leaves, c.Revised = u.closes, u.leaves, u.revised
	}
	var err error
	var begun work
	if len(d.open) > 0 {
		c.Revised, err = d.overtaken(c, u == nil && c.Open == nil)
	} else if u == nil && c.Open == nil {
		// Data planes do it while the disk makes it last. Whoever asked is told when both are done.
		c.Written = func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			begun = d.handOver(p, revision.Number, false)
		}
	}
	if err == nil {
		err = d.config.Store.Commit(c)
		// Who holds on to the commit does not hold on to all this.
		c.Written = nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		if begun != nil {
			begun.Close()
			d.handBack(p, latest)
		}
		p.takeBack()
		return nil, Revision{}, fmt.Errorf("keeping what is wanted: %w", err)
	}
	d.revise(c.Revised)
	if u != nil {
		u.kept()
	}
	if c.Open != nil {
		p.opened = d.begin(*c.Open)
	}
	if begun == nil {
		begun = d.handOver(p, revision.Number, options.Mode == AllOrNothing)
	}
	return begun, revision, nil
}

// next is the number of the next revision. d.mu is held.
func (d *Desired) next() uint64 { return max(d.revision, d.passed) + 1 }

// handOver has a sealed change be what is wanted. d.mu is held.
func (d *Desired) handOver(p *prepared, revision uint64, strict bool) work {
	d.revision = revision
	d.records.Reserve(len(p.edits))
	for i := range p.edits {
		e := &p.edits[i]
		if e.After != nil && e.Before == nil {
			d.index.added.add(e.Key)
		}
		d.record(e.Key, e.After)
	}
	return d.sites.want(p.wants(func(e *Edit) *Record { return e.After }), strict)
}

// handBack is the end of a change that was handed over and is not kept; latest: the revision before. d.mu is held.
func (d *Desired) handBack(p *prepared, latest uint64) {
	// Somebody may have seen it: no other gets its number.
	d.passed, d.revision = d.revision, latest
	for i := range p.edits {
		e := &p.edits[i]
		if e.After == nil && e.Before != nil {
			d.index.added.add(e.Key)
		}
		d.record(e.Key, e.Before)
	}
	d.sites.want(p.wants(func(e *Edit) *Record { return e.Before }), false).Close()
}

// record has what is wanted of an object be this; nil: nothing. d.mu is held.
func (d *Desired) record(k object.Key, r *Record) {
	if r == nil {
		d.records.Delete(k)
		return
	}
	d.records.Put(r)
}

// wants is what a reconciler is told of the records on one side of the edits.
func (p *prepared) wants(side func(*Edit) *Record) []reconcile.Want {
	wants := make([]reconcile.Want, len(p.effective))
	for n, i := range p.effective {
		wants[n].Key = p.edits[i].Key
		if r := side(&p.edits[i]); r != nil {
			wants[n].Version = r.version
		}
	}
	return wants
}

// oldest is the first revision of history when there is this one. Old ones are forgotten some together, which is less work than each alone
// with the one that takes its place; until then it is 0.
func oldest(revision, kept uint64) uint64 {
	if revision <= kept || revision%max(1, kept/32) != 0 {
		return 0
	}
	return revision - kept + 1
}

var errNoOwner = errors.New("a source without an owner")
