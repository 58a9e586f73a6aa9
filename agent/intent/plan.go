// Plan: what would be done, before it is.
package intent

import (
	"maps"
	"slices"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Plan is what applying changes would do, as if data planes refused nothing.
type Plan struct {
	// The latest revision when it was made.
	Revision uint64
	// What data planes would be told, in that order; and what of it could not be done yet. Of the latter those that are Replacing are
	// only taken out of the data plane.
	Operations, Waiting []Operation
	// That as a person thinks of it: one step for each object.
	Steps []PlannedStep

	// How the objects that it touches, and those that they need, were then.
	basis map[object.Key]basis
}

// PlannedStep is one thing that would be done.
type PlannedStep struct {
	Step   Step
	Key    object.Key
	Fields []object.FieldChange
	// Why, where the fields do not say it: "Port/access is replaced".
	Why string
	// Not empty: it becomes wanted, but is not done before something else is: "Acl/web, which is not there". A Replace only takes the
	// object out of the data plane until then.
	WaitsFor string
}

type basis struct {
	revision, observed uint64
}

// Plan implements Interface.
func (d *Desired) Plan(source Source, changes []object.Change, options Options) (*Plan, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	x, err := d.registry.Examine(changes)
	if err != nil {
		return nil, err
	}
	// So that nothing else becomes wanted between checking and planning.
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := d.check(source, x, options)
	if err != nil {
		return nil, err
	}
	defer p.takeBack()
	plan := &Plan{Revision: d.revision, basis: map[object.Key]basis{}}
	wants := make([]reconcile.Want, len(p.effective))
	relabelled := map[object.Key][]object.FieldChange{}
	for n, i := range p.effective {
		e := &p.edits[i]
		wants[n].Key = e.Key
		before, after := e.Before.object(), e.After.object()
		if after != nil {
			wants[n].Version = d.versionOf(e.After, e.facts)
		}
		if before != nil && after != nil {
			if labels := object.DiffLabels(before.Labels, after.Labels); len(labels) > 0 {
				relabelled[e.Key] = labels
			}
		}
	}
	plan.Operations, plan.Waiting = d.plane.Plan(wants)
	plan.Steps = stepsOf(plan.Operations, plan.Waiting, relabelled)
	for _, e := range p.edits {
		d.note(plan, e.Key)
		for _, k := range e.facts.Needs {
			d.note(plan, k)
		}
	}
	for _, s := range plan.Steps {
		d.note(plan, s.Key)
	}
	return plan, nil
}

// note takes down how it stands with an object. d.mu is held.
func (d *Desired) note(p *Plan, k object.Key) {
	p.basis[k] = d.basisOf(k)
}

func (d *Desired) basisOf(k object.Key) basis {
	return basis{d.records[k].revision(), d.plane.Get(k).Observed}
}

// moved says what is no longer as it was when a plan was made. d.mu is held.
func (d *Desired) moved(p *Plan) error {
	var moved []object.Key
	for k, then := range p.basis {
		if d.basisOf(k) != then {
			moved = append(moved, k)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, object.Key.Compare)
	return &Moved{moved}
}

// stepsOf tells operations as a person thinks of them: a deletion and the creation that follows are one.
func stepsOf(planned, waiting []reconcile.Operation, relabelled map[object.Key][]object.FieldChange) []PlannedStep {
	var steps []PlannedStep
	replaced := map[object.Key]PlannedStep{}
	waits := map[object.Key]string{}
	for _, o := range waiting {
		waits[o.Key] = o.WaitsFor
	}
	add := func(s PlannedStep) {
		if s.Step == Update || s.Step == Replace || s.WaitsFor != "" {
			s.Fields = slices.Concat(s.Fields, relabelled[s.Key])
			delete(relabelled, s.Key)
		}
		steps = append(steps, s)
	}
	for _, o := range planned {
		s := PlannedStep{Step: stepOf(o.Action), Key: o.Key, Fields: o.Fields}
		if o.Action == reconcile.Delete && o.Replacing {
			// It is told when it is created again, with what made that necessary.
			s.Step, s.Why, s.WaitsFor = Replace, o.Reason, waits[o.Key]
			replaced[o.Key] = s
			if s.WaitsFor == "" {
				continue
			}
		} else if before, there := replaced[o.Key]; there && o.Action == reconcile.Create {
			s = before
		}
		add(s)
	}
	for _, o := range waiting {
		if _, told := replaced[o.Key]; told {
			continue
		}
		s := PlannedStep{Step: stepOf(o.Action), Key: o.Key, Fields: o.Fields, WaitsFor: o.WaitsFor}
		if s.Step == Update {
			s.Why = o.Reason
		}
		add(s)
	}
	// Labels alone are no work for a data plane, but a change all the same.
	for _, k := range slices.SortedFunc(maps.Keys(relabelled), object.Key.Compare) {
		steps = append(steps, PlannedStep{Step: Update, Key: k, Fields: relabelled[k]})
	}
	return steps
}

func stepOf(a reconcile.Action) Step {
	switch a {
	case reconcile.Create:
		return Create
	case reconcile.Update:
		return Update
	}
	return Delete
}
