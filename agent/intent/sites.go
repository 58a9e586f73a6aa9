// SPDX-License-Identifier: Apache-2.0

// Several data planes, and which objects go where.
package intent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// DataplaneLabel is the label of an object that goes to the data plane of that name alone.
const DataplaneLabel = "dataplane"

// Dataplane is a data plane. All objects go to it, except for those whose label "dataplane" names another, and those
// that have one of its labels with another value.
type Dataplane struct {
	Name   string
	Labels map[string]string
}

// maxSites is how many data planes one agent drives.
const maxSites = 64

// site is one data plane: its objects and its reconciler.
type site struct {
	Dataplane
	plane *reconcile.Reconciler
	set   *object.Set
}

// sites are all data planes. Each has a graph and a worker of its own, so that none waits for another.
type sites []*site

// places is a set of sites, by their number.
type places uint64

func (p places) has(i int) bool { return p>>i&1 != 0 }

// placesOf returns the data planes of an object, none for nil.
func (all sites) placesOf(stored *object.StoredObject) places {
	if stored == nil {
		return 0
	}
	if len(all) == 1 && len(all[0].Labels) == 0 {
		if name, labelled := stored.Label(DataplaneLabel); labelled && name != all[0].Name {
			return 0
		}
		return 1
	}
	labels := stored.Labels()
	var p places
	for i, s := range all {
		if s.takes(labels) {
			p |= 1 << i
		}
	}
	return p
}

func (s *site) takes(labels map[string]string) bool {
	if name, labelled := labels[DataplaneLabel]; labelled && name != s.Name {
		return false
	}
	for label, value := range s.Labels {
		if other, both := labels[label]; both && other != value {
			return false
		}
	}
	return true
}

// unplaced is the error of an object without a data plane.
func (all sites) unplaced(stored *object.StoredObject) *object.Error {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	e := &object.Error{Object: stored.Key(), Field: "metadata.labels", Problem: "no data plane has such labels"}
	if name, labelled := stored.Label(DataplaneLabel); labelled {
		e.Field, e.Problem, e.Found, e.Accepted = "metadata.labels."+DataplaneLabel, "there is no such data plane", name, strings.Join(names, ", ")
		if slices.Contains(names, name) {
			e.Problem, e.Accepted = "the data plane that it names has other labels than it", ""
		}
	}
	return e
}

// apply makes changes to the sets of all sites, or to none.
func (all sites) apply(x *object.Examined) error {
	_, _, err := all.change(x, func(s *object.Set, x *object.Examined) (undo, done func(), err error) {
		undo, err = s.ApplyExamined(x)
		return undo, func() {}, err
	})
	return err
}

// applyReserving is apply, and keeps the claims that the changes release reserved until undo or done is called.
func (all sites) applyReserving(x *object.Examined) (undo, done func(), err error) {
	return all.change(x, (*object.Set).ApplyReserving)
}

func (all sites) change(x *object.Examined, apply func(*object.Set, *object.Examined) (undo, done func(), err error)) (undo, done func(), err error) {
	var undone, finished []func()
	undo = func() { backward(undone) }
	for i, s := range all {
		here := x
		if len(all) > 1 {
			here = &object.Examined{}
			for n, stored := range x.Objects {
				if placed := all.placesOf(stored).has(i); placed {
					here.Keys, here.Objects = append(here.Keys, x.Keys[n]), append(here.Objects, stored)
				} else if s.set.Get(x.Keys[n]) != nil {
					here.Keys, here.Objects = append(here.Keys, x.Keys[n]), append(here.Objects, nil)
				}
			}
		}
		back, end, err := apply(s.set, here)
		if err != nil {
			undo()
			return nil, nil, err
		}
		undone, finished = append(undone, back), append(finished, end)
	}
	return undo, func() { backward(finished) }, nil
}

// backward calls functions in reverse order.
func backward(all []func()) {
	for _, f := range slices.Backward(all) {
		f()
	}
}

// has returns whether an object belongs to any data plane, or a change that deletes it is not stored yet.
func (all sites) has(k object.Key) bool {
	return slices.ContainsFunc(all, func(s *site) bool { return s.set.Get(k) != nil || s.set.Reserves(k) })
}

// release ends the retention of a service's objects in data planes.
func (all sites) release(service string) {
	for _, s := range all {
		s.plane.Release(service)
	}
}

// after returns whether a data plane has an object once changes are made.
type after func(site int, k object.Key) bool

// lacks reports whether a needed object is missing in a data plane of the object that needs it.
func (all sites) lacks(there after, stored *object.StoredObject, needed object.Key) bool {
	p := all.placesOf(stored)
	for i := range all {
		if p.has(i) && !there(i, needed) {
			return true
		}
	}
	return false
}

// lacksAny reports whether there is something that an object needs and lacks.
func (all sites) lacksAny(there after, stored *object.StoredObject) bool {
	for k := range stored.Needs() {
		if all.lacks(there, stored, k) {
			return true
		}
	}
	return false
}

// share returns the objects of a site.
func (all sites) share(i int, desired []reconcile.Desired) []reconcile.Desired {
	if len(all) == 1 {
		return desired
	}
	var here []reconcile.Desired
	for _, w := range desired {
		if w.Version != nil && all.placesOf(w.Version.StoredObject).has(i) {
			here = append(here, w)
		} else if all[i].plane.Get(w.Key).State != reconcile.Gone {
			here = append(here, reconcile.Desired{Key: w.Key})
		}
	}
	return here
}

// connected reports whether the data planes answer that these objects concern.
func (all sites) connected(edits []Edit) bool {
	var p places
	for i := range edits {
		p |= all.placesOf(edits[i].Before.merged()) | all.placesOf(edits[i].After.merged())
	}
	for i, s := range all {
		if p.has(i) && !s.plane.Connected() {
			return false
		}
	}
	return true
}

// work is the work of one change, in one data plane or several.
type work interface {
	Done() <-chan struct{}
	Close() (done []Operation, failures []Failure, interrupted bool)
}

func (all sites) setDesired(desired []reconcile.Desired, strict bool) work {
	if len(all) == 1 {
		return all[0].plane.SetDesired(desired, strict)
	}
	w := &works{done: make(chan struct{})}
	for i, s := range all {
		if here := all.share(i, desired); len(here) > 0 {
			w.parts, w.names, w.desired = append(w.parts, s.plane.SetDesired(here, strict)), append(w.names, s.Name), append(w.desired, here)
		}
	}
	go func() {
		defer close(w.done)
		for _, part := range w.parts {
			<-part.Done()
		}
	}()
	return w
}

type works struct {
	parts   []*reconcile.Work
	names   []string
	desired [][]reconcile.Desired
	done    chan struct{}
}

func (w *works) Done() <-chan struct{} { return w.done }

func (w *works) Close() (done []Operation, failures []Failure, interrupted bool) {
	for i, part := range w.parts {
		ops, failed, broken := part.Close()
		for n := range ops {
			ops[n].Dataplane = w.names[i]
		}
		for n := range failed {
			failed[n].Message = w.names[i] + ": " + failed[n].Message
		}
		done, failures, interrupted = append(done, ops...), append(failures, failed...), interrupted || broken
	}
	return done, failures, interrupted
}

func (all sites) plan(desired []reconcile.Desired, there after) (planned, waiting []Operation) {
	for i, s := range all {
		here := all.share(i, desired)
		if len(here) == 0 {
			continue
		}
		p, w := s.plane.Plan(here)
		if len(all) > 1 {
			for n := range p {
				p[n].Dataplane = s.Name
			}
			for n := range w {
				w[n].Dataplane = s.Name
				if others := all.elsewhere(i, w[n].Missing, there); len(others) > 0 {
					w[n].WaitsFor = w[n].Missing.OnlyIn(others)
				}
			}
		}
		planned, waiting = append(planned, p...), append(waiting, w...)
	}
	moved(planned)
	return planned, waiting
}

// moved: an object that moves to another data plane is an outage only until the other has it, not until the configuration changes.
func moved(planned []Operation) {
	made := map[object.Key]string{}
	for _, o := range planned {
		if o.Action == reconcile.Create && !o.Replacing {
			made[o.Key] = o.Dataplane
		}
	}
	for i := range planned {
		o := &planned[i]
		if to, there := made[o.Key]; there && o.Action == reconcile.Delete && to != o.Dataplane {
			o.Impact = min(o.Impact, reconcile.BriefInterruption)
		}
	}
}

// elsewhere returns other data planes that have a missing object.
func (all sites) elsewhere(at int, missing *reconcile.Missing, there after) (others []string) {
	if missing == nil || there(at, missing.Key) {
		return nil
	}
	for i, s := range all {
		if i != at && there(i, missing.Key) {
			others = append(others, s.Name)
		}
	}
	return others
}

// now reports whether a data plane has an object. Desired.mu is held.
func (all sites) now(site int, k object.Key) bool { return all[site].set.Get(k) != nil }

// worse orders states by their severity.
var worse = map[State]int{Gone: 0, Applied: 1, Unknown: 2, Deleting: 3, Pending: 4, Failed: 5}

// get returns the worst status of an object in all data planes.
func (all sites) get(k object.Key) reconcile.Status {
	if len(all) == 1 {
		return all[0].plane.Get(k)
	}
	sum := reconcile.Status{Key: k, State: Gone}
	for i, s := range all {
		one := s.plane.Get(k)
		if one.State == Gone {
			continue
		}
		if others := all.elsewhere(i, one.Missing, all.now); len(others) > 0 {
			one.Message = one.Missing.StatusOnlyIn(others)
		}
		if one.Message != "" {
			one.Message = s.Name + ": " + one.Message
		}
		if sum.State == Gone {
			sum = one
			continue
		}
		observed, since, version := min(sum.Observed, one.Observed), sum.Since, sum.Desired
		if one.Since.After(since) {
			since = one.Since
		}
		if one.Desired != nil {
			version = one.Desired
		}
		if worse[one.State] > worse[sum.State] {
			sum = one
		}
		sum.Observed, sum.Since, sum.Desired = observed, since, version
	}
	return sum
}

// notReady returns the reason why an object does not serve although all its data planes have it. within returns the
// service's reasons.
func (all sites) notReady(v *reconcile.Version, within func(dataplane string, stored *object.StoredObject) NotReady) (why NotReady) {
	var p places
	if len(all) > 1 {
		p = all.placesOf(v.StoredObject)
	}
	for i, s := range all {
		if len(all) > 1 && !p.has(i) {
			continue
		}
		below, blocked, absence := s.plane.Blocker(v)
		switch {
		case absence == reconcile.NoDataplane:
			why = NotReady{Reason: absence.String(), Message: "the data plane is not connected", External: true}
		case absence != reconcile.NoReason:
			why = NotReady{Reason: absence.String(), Message: "its observed state is being read", External: true}
		case blocked:
			why = NotReady{Reason: reconcile.WaitsForObject.String(), Message: below.Key.String() + " is " + strings.ToLower(below.State.String()), Since: below.Since,
				// Of several data planes, another one may have it: a port is at one.
				External: len(all) > 1}
			if below.State == reconcile.Gone {
				why.Message = below.Key.String() + " does not exist"
			}
			if below.Message != "" {
				why.Message += ": " + below.Message
			}
		case within != nil:
			if why = within(s.Name, v.StoredObject); why.Reason == "" {
				continue
			}
		default:
			continue
		}
		if len(all) > 1 {
			why.Message = s.Name + ": " + why.Message
		}
		return why
	}
	return NotReady{}
}

func (all sites) run(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			s.plane.Run(ctx)
		}()
	}
	group.Wait()
}

// named returns a site; "" is the first.
func (all sites) named(name string) (*site, error) {
	for _, s := range all {
		if s.Name == name || name == "" {
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no data plane %q", name)
}

// notDesired returns objects of data planes that the configuration does not have, if they are more than were known.
func (all sites) notDesired(known []uint64) ([]object.Key, []uint64) {
	var keys []object.Key
	now := make([]uint64, len(all))
	for i, s := range all {
		before := uint64(0)
		if i < len(known) {
			before = known[i]
		}
		var more []object.Key
		more, now[i] = s.plane.NotDesired(before)
		keys = append(keys, more...)
	}
	return keys, now
}
