// Plan: what would be done, before it is.
package intent

import (
	"maps"
	"slices"
	"strings"

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

	// What it would cost: the worst of the operations.
	Impact reconcile.Impact
	// How the objects that it touches, and those that they need, were then.
	Basis []Basis
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
	// The worst of the operations for it.
	Impact reconcile.Impact
}

// Basis is how it stood with an object when something was planned.
type Basis struct {
	Key object.Key
	// Of the latest change of what is wanted of it; and which generation of that the data plane had.
	Revision, Observed uint64
}

// Plan implements Interface.
func (d *Desired) Plan(source Source, changes []object.Change, options Options) (*Plan, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	x, err := d.registry.ExamineSaid(changes)
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
	return d.planOf(p), nil
}

// planOf says what a prepared change would do. d.mu is held.
func (d *Desired) planOf(p *prepared) *Plan {
	plan := &Plan{Revision: d.revision}
	wants := make([]reconcile.Want, len(p.effective))
	relabelled := map[object.Key][]object.FieldChange{}
	for n, i := range p.effective {
		e := &p.edits[i]
		wants[n].Key = e.Key
		before, after := e.Before.kept(), e.After.kept()
		if after != nil {
			wants[n].Version = versionOf(e.After)
		}
		if before != nil && after != nil {
			if labels := object.DiffLabels(before.Labels(), after.Labels()); len(labels) > 0 {
				relabelled[e.Key] = labels
			}
		}
	}
	plan.Operations, plan.Waiting = d.sites.plan(wants)
	plan.Steps = d.stepsIn(plan, relabelled)
	worst := map[object.Key]reconcile.Impact{}
	for _, o := range plan.Operations {
		plan.Impact = max(plan.Impact, o.Impact)
		worst[o.Key] = max(worst[o.Key], o.Impact)
	}
	looked := map[object.Key]struct{}{}
	for _, e := range p.edits {
		looked[e.Key] = struct{}{}
		if kept := e.After.kept(); kept != nil {
			for _, k := range kept.Needs {
				looked[k] = struct{}{}
			}
		}
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		s.Impact = worst[s.Key]
		looked[s.Key] = struct{}{}
	}
	for _, k := range slices.SortedFunc(maps.Keys(looked), object.Key.Compare) {
		plan.Basis = append(plan.Basis, d.basisOf(k))
	}
	return plan
}

func (d *Desired) basisOf(k object.Key) Basis {
	return Basis{k, d.records[k].revision(), d.sites.get(k).Observed}
}

// moved says what is no longer as it was when a plan was made. d.mu is held.
func (d *Desired) moved(p *Plan) error {
	var moved []object.Key
	for _, then := range p.Basis {
		if d.basisOf(then.Key) != then {
			moved = append(moved, then.Key)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, object.Key.Compare)
	return &Moved{moved}
}

// other says what of a plan would not be done as it says, or would be done beside it. d.mu is held.
func (d *Desired) other(then *Plan, p *prepared) error {
	now := d.planOf(p)
	moved := map[object.Key]struct{}{}
	compare := func(a, b []Operation) {
		for i := range max(len(a), len(b)) {
			var x, y Operation
			if i < len(a) {
				x = a[i]
			}
			if i < len(b) {
				y = b[i]
			}
			if x.Dataplane == y.Dataplane && x.Key == y.Key && x.Action == y.Action && x.Replacing == y.Replacing {
				continue
			}
			for _, k := range []object.Key{x.Key, y.Key} {
				if k != (object.Key{}) {
					moved[k] = struct{}{}
				}
			}
			return
		}
	}
	compare(then.Operations, now.Operations)
	if len(moved) == 0 {
		return nil
	}
	return &Moved{slices.SortedFunc(maps.Keys(moved), object.Key.Compare)}
}

// stepsIn tells of each data plane what is done there.
func (d *Desired) stepsIn(p *Plan, relabelled map[object.Key][]object.FieldChange) []PlannedStep {
	if len(d.sites) == 1 {
		return stepsOf(p.Operations, p.Waiting, relabelled)
	}
	var steps []PlannedStep
	for i, s := range d.sites {
		here := func(all []Operation) []Operation {
			return slices.DeleteFunc(slices.Clone(all), func(o Operation) bool { return o.Dataplane != s.Name })
		}
		labels := map[object.Key][]object.FieldChange{}
		if i == len(d.sites)-1 {
			labels = relabelled
		}
		for _, step := range stepsOf(here(p.Operations), here(p.Waiting), labels) {
			step.Why = strings.TrimSuffix("in "+s.Name+": "+step.Why, ": ")
			delete(relabelled, step.Key)
			steps = append(steps, step)
		}
	}
	return steps
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
