// Plan: what would be done, before it is.
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
	// Not empty: it becomes wanted, but is not done before something else is: "Acl/web, which is not there". A Replace only takes the
	// object out of the data plane until then.
	WaitsFor string
	// The worst of the operations for it, in that data plane.
	Impact reconcile.Impact

	dataplane string
}

// Basis is how it stood with an object when something was planned.
type Basis struct {
	Key object.Key
	// Of the latest change of what is wanted of it; and which generation of that the data plane had.
	Revision, Observed uint64
	// A digest of what the source says of it now that it did not say before, secrets too; empty: nothing.
	Said string
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
	plan := &Plan{Revision: d.revision, Joined: p.joined}
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
	looked, said := map[object.Key]struct{}{}, make(map[object.Key]string, len(p.edits))
	for i := range p.edits {
		e := &p.edits[i]
		looked[e.Key], said[e.Key] = struct{}{}, e.said()
		if kept := e.After.kept(); kept != nil {
			for k := range kept.Needs() {
				looked[k] = struct{}{}
			}
		}
	}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		s.Impact = worst[there{s.dataplane, s.Key}]
		looked[s.Key] = struct{}{}
	}
	for _, k := range slices.SortedFunc(maps.Keys(looked), object.Key.Compare) {
		basis := d.basisOf(k)
		basis.Said = said[k]
		plan.Basis = append(plan.Basis, basis)
	}
	return plan
}

func (d *Desired) basisOf(k object.Key) Basis {
	return Basis{Key: k, Revision: d.records.Get(k).revision(), Observed: d.sites.get(k).Observed}
}

// said is a digest of what owners say other than before. The edit is not sealed yet.
func (e *Edit) said() string {
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

// moved says what is no longer as it was when a plan was made. d.mu is held.
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

// other says what of a plan would not be done as it says, or would be done beside it. d.mu is held.
func (d *Desired) other(then *Plan, p *prepared) error {
	now := d.planOf(p)
	unlike := map[object.Key]struct{}{}
	said := make(map[object.Key]string, len(then.Basis))
	for _, b := range then.Basis {
		said[b.Key] = b.Said
	}
	for _, b := range now.Basis {
		if b.Said != said[b.Key] {
			unlike[b.Key] = struct{}{}
		}
		delete(said, b.Key)
	}
	for k, digest := range said {
		if digest != "" {
			unlike[k] = struct{}{}
		}
	}
	firstUnlike(then.Operations, now.Operations, unlike, func(o Operation) object.Key { return o.Key }, func(a, b Operation) bool {
		return a.Dataplane == b.Dataplane && a.Key == b.Key && a.Action == b.Action && a.Replacing == b.Replacing && a.Impact == b.Impact
	})
	firstUnlike(then.Steps, now.Steps, unlike, func(s PlannedStep) object.Key { return s.Key }, func(a, b PlannedStep) bool {
		return a.Step == b.Step && a.Key == b.Key && a.Why == b.Why && a.WaitsFor == b.WaitsFor && a.Impact == b.Impact &&
			slices.EqualFunc(a.Fields, b.Fields, func(a, b object.FieldChange) bool {
				// What it costs is said of the step.
				a.Interrupts, b.Interrupts = false, false
				return a == b
			})
	})
	if len(unlike) == 0 && then.Impact == now.Impact {
		return nil
	}
	return &Moved{Objects: slices.SortedFunc(maps.Keys(unlike), object.Key.Compare), Unplanned: true}
}

// firstUnlike adds the first of which two plans differ.
func firstUnlike[T any](a, b []T, into map[object.Key]struct{}, key func(T) object.Key, same func(a, b T) bool) {
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
			step.Why, step.dataplane = strings.TrimSuffix("in "+s.Name+": "+step.Why, ": "), s.Name
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
