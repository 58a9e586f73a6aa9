// SPDX-License-Identifier: Apache-2.0

// Plan: the effects of a change, before it is applied.
package intent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Plan is the effect of changes, provided that data planes refuse nothing.
type Plan struct {
	// The latest revision when it was made.
	Revision uint64
	// The operations on data planes, in order; and operations that have to wait. Of waiting objects with Replacing,
	// only the deletion is carried out.
	Operations, Waiting []Operation
	// That as a person thinks of it: one step for each object.
	Steps []PlannedStep

	// The worst impact of the steps.
	Impact reconcile.Impact
	// The state of the changed objects, and of the objects that they need, at that time.
	Basis  []Basis
	Joined Joined
}

// PlannedStep is one thing that would be done.
type PlannedStep struct {
	Step   Step
	Key    object.Key
	Fields []object.FieldChange
	// Why, where the fields do not say it: "Port/access is replaced".
	Why string
	// Not empty: the object becomes part of the configuration, and waits for another one: "Acl/web, which is not there". A Replace only takes the
	// object out of the data plane until then.
	WaitsFor string
	// The worst of the operations for it, in that data plane; or that of what its service does.
	Impact reconcile.Impact

	dataplane string
}

// Basis is how it stood with an object when something was planned.
type Basis struct {
	Key object.Key
	// The revision of its latest change, and the generation that the data plane had.
	Revision, Observed uint64
	// A digest of the layer that the source changes, including secrets; empty: no change.
	Digest string
}

// Plan implements Interface.
func (d *Desired) Plan(source Source, changes []object.Change, options Options) (*Plan, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	x, err := d.registry.ExamineLayers(changes)
	if err != nil {
		return nil, err
	}
	// No other change is committed between check and plan. Producers go on.
	d.changing.Lock()
	defer d.changing.Unlock()
	p, err := d.check(source, x, options, true)
	if err != nil {
		return nil, err
	}
	return d.planOf(p), nil
}

// planOf returns the effect of a prepared change. d.changing is held, d.mu is not.
func (d *Desired) planOf(p *prepared) *Plan {
	plan := &Plan{Revision: d.Revision(), Joined: p.joined}
	desired := make([]reconcile.Desired, len(p.effective))
	relabelled := map[object.Key][]object.FieldChange{}
	for n, i := range p.effective {
		e := &p.edits[i]
		desired[n].Key = e.Key
		before, after := e.Before.merged(), e.After.merged()
		if after != nil {
			desired[n].Version = versionOf(e.After)
		}
		if before != nil && after != nil {
			if labels := object.DiffLabels(before.Labels(), after.Labels()); len(labels) > 0 {
				relabelled[e.Key] = labels
			}
		}
	}
	plan.Operations, plan.Waiting = d.sites.plan(desired, d.after(p.changes()))
	ofAgent := d.stepsOfAgent(p)
	for _, s := range ofAgent {
		delete(relabelled, s.Key)
	}
	plan.Steps = append(d.stepsIn(plan, relabelled), ofAgent...)
	type there struct {
		dataplane string
		key       object.Key
	}
	worst := map[there]reconcile.Impact{}
	for _, o := range plan.Operations {
		plan.Impact = max(plan.Impact, o.Impact)
		at := there{o.Dataplane, o.Key}
		worst[at] = max(worst[at], o.Impact)
	}
	looked, digests := map[object.Key]struct{}{}, make(map[object.Key]string, len(p.edits))
	for i := range p.edits {
		e := &p.edits[i]
		looked[e.Key], digests[e.Key] = struct{}{}, e.layersDigest()
		if stored := e.After.merged(); stored != nil {
			for k := range stored.Needs() {
				looked[k] = struct{}{}
			}
		}
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		s.Impact = max(s.Impact, worst[there{s.dataplane, s.Key}])
		plan.Impact = max(plan.Impact, s.Impact)
		looked[s.Key] = struct{}{}
	}
	for _, k := range slices.SortedFunc(maps.Keys(looked), object.Key.Compare) {
		basis := d.basisOf(k)
		basis.Digest = digests[k]
		plan.Basis = append(plan.Basis, basis)
	}
	return plan
}

// stepsOfAgent returns the steps for objects that no data plane sees: services of the agent follow them.
func (d *Desired) stepsOfAgent(p *prepared) []PlannedStep {
	var steps []PlannedStep
	for _, i := range p.effective {
		e := &p.edits[i]
		if kind := d.registry.Kind(e.Key.Kind); kind == nil || kind.Plane != api.Plane_AGENT {
			continue
		}
		s := PlannedStep{Step: Update, Key: e.Key}
		switch before, after := e.Before.merged(), e.After.merged(); {
		case after == nil:
			s.Step = Delete
		case before == nil:
			s.Step = Create
		default:
			s.Fields = before.Diff(after)
			if before.Interrupts(after) {
				s.Impact = reconcile.BriefInterruption
			}
		}
		steps = append(steps, s)
	}
	return steps
}

func (d *Desired) basisOf(k object.Key) Basis {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return Basis{Key: k, Revision: d.records.Get(k).revision(), Observed: d.sites.get(k).Observed}
}

// layersDigest is a digest of the changed layers. The edit is not sealed yet.
func (e *Edit) layersDigest() string {
	h := sha256.New()
	write := func(text string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		io.WriteString(h, text)
	}
	if e.After != nil {
		for _, l := range e.After.Layers {
			if l.Revision != 0 {
				continue
			}
			labels := l.Labels()
			write("says " + l.Owner)
			write(l.Spec())
			write(strconv.Itoa(len(labels)))
			for _, label := range slices.Sorted(maps.Keys(labels)) {
				write(label)
				write(labels[label])
			}
			for _, field := range l.Empty() {
				write(field)
			}
		}
	}
	if e.Before != nil {
		for _, l := range e.Before.Layers {
			if e.After.layerOf(l.Owner) == nil {
				write("takes back " + l.Owner)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// moved returns an error if the state that a plan is based on has changed. d.changing is held, d.mu is not.
func (d *Desired) moved(p *Plan) error {
	var moved []object.Key
	for _, then := range p.Basis {
		if now := d.basisOf(then.Key); now.Revision != then.Revision || now.Observed != then.Observed {
			moved = append(moved, then.Key)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	slices.SortFunc(moved, object.Key.Compare)
	return &Moved{Objects: moved}
}

// other returns an error if a change would do something else than its plan. d.changing is held, d.mu is not.
func (d *Desired) other(then *Plan, p *prepared) error {
	now := d.planOf(p)
	unlike := map[object.Key]struct{}{}
	digests := make(map[object.Key]string, len(then.Basis))
	for _, b := range then.Basis {
		digests[b.Key] = b.Digest
	}
	for _, b := range now.Basis {
		if b.Digest != digests[b.Key] {
			unlike[b.Key] = struct{}{}
		}
		delete(digests, b.Key)
	}
	for k, digest := range digests {
		if digest != "" {
			unlike[k] = struct{}{}
		}
	}
	firstDifference(then.Operations, now.Operations, unlike, func(o Operation) object.Key { return o.Key }, func(a, b Operation) bool {
		return a.Dataplane == b.Dataplane && a.Key == b.Key && a.Action == b.Action && a.Replacing == b.Replacing && a.Impact == b.Impact
	})
	firstDifference(then.Steps, now.Steps, unlike, func(s PlannedStep) object.Key { return s.Key }, func(a, b PlannedStep) bool {
		return a.Step == b.Step && a.Key == b.Key && a.Why == b.Why && a.WaitsFor == b.WaitsFor && a.Impact == b.Impact &&
			slices.EqualFunc(a.Fields, b.Fields, func(a, b object.FieldChange) bool {
				// The step has the impact.
				a.Interrupts, b.Interrupts = false, false
				return a == b
			})
	})
	if len(unlike) == 0 && then.Impact == now.Impact {
		return nil
	}
	return &Moved{Objects: slices.SortedFunc(maps.Keys(unlike), object.Key.Compare), Unplanned: true}
}

// firstDifference adds the first of which two plans differ.
func firstDifference[T any](a, b []T, into map[object.Key]struct{}, key func(T) object.Key, same func(a, b T) bool) {
	for i := range max(len(a), len(b)) {
		if i < len(a) && i < len(b) && same(a[i], b[i]) {
			continue
		}
		if i < len(a) {
			into[key(a[i])] = struct{}{}
		}
		if i < len(b) {
			into[key(b[i])] = struct{}{}
		}
		return
	}
}

// stepsIn returns the steps of each data plane.
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
			step.Why, step.dataplane = strings.TrimSuffix("in "+s.Name+": "+step.Why, ": "), s.Name
			delete(relabelled, step.Key)
			steps = append(steps, step)
		}
	}
	return steps
}

// stepsOf combines operations for people: a deletion and the creation that follows are one step.
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
			// The creation that follows is the step, with its reason.
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
		if _, counted := replaced[o.Key]; counted {
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
