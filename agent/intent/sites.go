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

// Dataplane is a data plane that objects go to: all of them, but for those whose label "dataplane" names another, and for those that
// have a label in common with it and another value there.
type Dataplane struct {
	Name   string
	Labels map[string]string
}

// mostSites is how many data planes one agent drives.
const mostSites = 64

// site is one data plane: what may be wanted of it together, and who makes it so.
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

// placesOf says where an object goes. There is no place for nothing.
func (all sites) placesOf(kept *object.Kept) places {
	if kept == nil {
		return 0
	}
	if len(all) == 1 && len(all[0].Labels) == 0 {
		if name, said := kept.Label(DataplaneLabel); said && name != all[0].Name {
			return 0
		}
		return 1
	}
	labels := kept.Labels()
	var p places
	for i, s := range all {
		if s.takes(labels) {
			p |= 1 << i
		}
	}
	return p
}

func (s *site) takes(labels map[string]string) bool {
	if name, said := labels[DataplaneLabel]; said && name != s.Name {
		return false
	}
	for label, value := range s.Labels {
		if other, both := labels[label]; both && other != value {
			return false
		}
	}
	return true
}

// unplaced is what is wrong with an object that goes nowhere.
func (all sites) unplaced(kept *object.Kept) *object.Error {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	e := &object.Error{Object: kept.Key(), Field: "metadata.labels", Problem: "no data plane has such labels"}
	if name, said := kept.Label(DataplaneLabel); said {
		e.Field, e.Problem, e.Found, e.Accepted = "metadata.labels."+DataplaneLabel, "there is no such data plane", name, strings.Join(names, ", ")
		if slices.Contains(names, name) {
			e.Problem, e.Accepted = "the data plane that it names has other labels than it", ""
		}
	}
	return e
}

// apply makes changes to the sets of all sites, or to none.
func (all sites) apply(x *object.Examined) (undo func(), err error) {
	var undone []func()
	undo = func() {
		for _, f := range slices.Backward(undone) {
			f()
		}
	}
	for i, s := range all {
		here := x
		if len(all) > 1 {
			here = &object.Examined{}
			for n, kept := range x.Kept {
				if placed := all.placesOf(kept).has(i); placed {
					here.Keys, here.Kept = append(here.Keys, x.Keys[n]), append(here.Kept, kept)
				} else if s.set.Get(x.Keys[n]) != nil {
					here.Keys, here.Kept = append(here.Keys, x.Keys[n]), append(here.Kept, nil)
				}
			}
		}
		back, err := s.set.ApplyExamined(here)
		if err != nil {
			undo()
			return nil, err
		}
		undone = append(undone, back)
	}
	return undo, nil
}

// lacks says whether an object that is needed is not wanted wherever the one that needs it goes.
func (all sites) lacks(kept *object.Kept, needed object.Key) bool {
	p := all.placesOf(kept)
	for i, s := range all {
		if p.has(i) && s.set.Get(needed) == nil {
			return true
		}
	}
	return false
}

// lacksAny says whether there is something that an object needs and lacks.
func (all sites) lacksAny(kept *object.Kept) bool {
	for k := range kept.Needs() {
		if all.lacks(kept, k) {
			return true
		}
	}
	return false
}

// share is what of the wants concerns a site.
func (all sites) share(i int, wants []reconcile.Want) []reconcile.Want {
	if len(all) == 1 {
		return wants
	}
	var here []reconcile.Want
	for _, w := range wants {
		if w.Version != nil && all.placesOf(w.Version.Kept).has(i) {
			here = append(here, w)
		} else if all[i].plane.Get(w.Key).State != reconcile.Gone {
			here = append(here, reconcile.Want{Key: w.Key})
		}
	}
	return here
}

// connected says whether the data planes answer that these objects concern.
func (all sites) connected(edits []Edit) bool {
	var p places
	for i := range edits {
		p |= all.placesOf(edits[i].Before.kept()) | all.placesOf(edits[i].After.kept())
	}
	for i, s := range all {
		if p.has(i) && !s.plane.Connected() {
			return false
		}
	}
	return true
}

// work is what has to be done for one change, in one data plane or several.
type work interface {
	Done() <-chan struct{}
	Close() (done []Operation, failures []Failure, interrupted bool)
}

func (all sites) want(wants []reconcile.Want, strict bool) work {
	if len(all) == 1 {
		return all[0].plane.Want(wants, strict)
	}
	w := &works{done: make(chan struct{})}
	for i, s := range all {
		if here := all.share(i, wants); len(here) > 0 {
			w.parts, w.names = append(w.parts, s.plane.Want(here, strict)), append(w.names, s.Name)
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
	parts []*reconcile.Work
	names []string
	done  chan struct{}
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

func (all sites) plan(wants []reconcile.Want) (planned, waiting []Operation) {
	wanted := map[object.Key]*object.Kept{}
	if len(all) > 1 {
		for _, w := range wants {
			if w.Version != nil {
				wanted[w.Key] = w.Version.Kept
			}
		}
	}
	for i, s := range all {
		here := all.share(i, wants)
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
				if kept := wanted[w[n].Key]; kept != nil {
					w[n].WaitsFor = all.elsewhere(i, kept, w[n].WaitsFor)
				}
			}
		}
		planned, waiting = append(planned, p...), append(waiting, w...)
	}
	moved(planned)
	return planned, waiting
}

// moved: what leaves one data plane for another is not out for as long as somebody wants it so, but until it is there.
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

// elsewhere adds to what an object waits for in one data plane that it is in another.
func (all sites) elsewhere(at int, kept *object.Kept, waits string) string {
	for k := range kept.Needs() {
		before, after, names := strings.Cut(waits, k.String()+" ")
		_, after, absent := strings.Cut(after, ", which is not there")
		if !names || !absent || all[at].set.Get(k) != nil {
			continue
		}
		var others []string
		for i, s := range all {
			if i != at && s.set.Get(k) != nil {
				others = append(others, s.Name)
			}
		}
		if len(others) > 0 {
			field, _, _ := strings.Cut(strings.TrimPrefix(waits, before+k.String()), ", which is not there")
			return before + k.String() + field + ", which is only in " + strings.Join(others, ", ") + after
		}
	}
	return waits
}

// worse orders states by how much somebody should know of them.
var worse = map[State]int{Gone: 0, Applied: 1, Unknown: 2, Deleting: 3, Pending: 4, Failed: 5}

// get returns how it stands with an object in all data planes: where it stands worst.
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
		if one.Reason == reconcile.WaitsForObject && one.Wanted != nil {
			one.Message = all.elsewhere(i, one.Wanted.Kept, one.Message)
		}
		if one.Message != "" {
			one.Message = s.Name + ": " + one.Message
		}
		if sum.State == Gone {
			sum = one
			continue
		}
		observed, since, wanted := min(sum.Observed, one.Observed), sum.Since, sum.Wanted
		if one.Since.After(since) {
			since = one.Since
		}
		if one.Wanted != nil {
			wanted = one.Wanted
		}
		if worse[one.State] > worse[sum.State] {
			sum = one
		}
		sum.Observed, sum.Since, sum.Wanted = observed, since, wanted
	}
	return sum
}

// hindrance says why an object does not serve that all data planes have where it goes. What is found in it, beside what it needs, the
// caller may know.
func (all sites) hindrance(v *reconcile.Version, within func(dataplane string, kept *object.Kept) (reason, message string)) (reason, message string) {
	var p places
	if len(all) > 1 {
		p = all.placesOf(v.Kept)
	}
	for i, s := range all {
		if len(all) > 1 && !p.has(i) {
			continue
		}
		below, hindered, absence := s.plane.Hindrance(v)
		switch {
		case absence == reconcile.NoDataplane:
			reason, message = absence.String(), "the data plane is not connected"
		case absence != reconcile.NoReason:
			reason, message = absence.String(), "what the data plane has is being read"
		case hindered:
			reason, message = reconcile.WaitsForObject.String(), below.Key.String()+" is "+strings.ToLower(below.State.String())
			if below.Message != "" {
				message += ": " + below.Message
			}
		case within != nil:
			if reason, message = within(s.Name, v.Kept); reason == "" {
				continue
			}
		default:
			continue
		}
		if len(all) > 1 {
			message = s.Name + ": " + message
		}
		return reason, message
	}
	return "", ""
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

// unwanted returns what data planes have although nobody wants it, where that is more than what was known.
func (all sites) unwanted(known []uint64) ([]object.Key, []uint64) {
	var keys []object.Key
	now := make([]uint64, len(all))
	for i, s := range all {
		before := uint64(0)
		if i < len(known) {
			before = known[i]
		}
		var more []object.Key
		more, now[i] = s.plane.Unwanted(before)
		keys = append(keys, more...)
	}
	return keys, now
}
