// SPDX-License-Identifier: Apache-2.0

// Results of steps, and the observed state of the data plane.
package reconcile

import (
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// settle takes the result of a step.
func (g *graph) settle(s *step, r Result) {
	e := s.entry
	s.settled = true
	e.flying = false
	if !g.simulating {
		g.measured.operation(s.Action, r)
	}
	switch {
	case r.Code == 0:
		g.succeeded++
		e.failures = 0
		e.replacing = s.put == nil && e.desired != nil
		g.setHave(e, s.put)
		g.compare(e)
		if len(g.condemned) > 0 {
			g.appeal(e)
		}
		if e.inStep() {
			if e.desiredAt != 0 && !g.simulating {
				g.measured.took(time.Duration(g.at - e.desiredAt))
			}
			g.arrived(e)
		} else if s.put == nil && e.desired == nil {
			g.mark(e, Gone, NotDesired, "")
			g.forget(e)
		} else {
			e.again = true
		}
	case e.again && s.desired != e.desired:
		// The refused version has no owner any more: the present version did not fail.
	case !passing(r.Code):
		g.fail(e, s.Action, r)
	case !e.again:
		g.refuse(e, s.Action, r)
		g.wake(e)
		return
	}
	g.settled(e)
}

// lost: it is unknown whether a step was done. The entry is decided again after the next list of observed objects.
func (g *graph) lost(s *step) {
	if !s.settled {
		g.measured.operations[s.Action].Unknown++
	}
	s.settled = true
	s.entry.flying = false
	s.entry.again = true
	g.settled(s.entry)
}

func (g *graph) settled(e *entry) {
	if e.again {
		e.again = false
		// Enter before leaving, so that the transaction does not end in between.
		g.enqueue(e, nil)
		if !g.simulating {
			e.cause.leave()
		}
		g.wake(e)
		return
	}
	g.wake(e)
	g.rest(e)
}

// beginListing is called before everything that the data plane has is observed.
func (g *graph) beginListing() {
	for e := range g.entries.All() {
		e.listed = false
	}
}

// observe records a page of the data plane's objects.
func (g *graph) observe(page []Object) {
	// Objects of the page that differ from the earlier observed state and from the desired state. Those in `read` are unpacked now. Those in
	// `listed` belong to a service, which most likely produces them again without a change.
	var read, listed []int
	entries := make([]*entry, len(page))
	for i := range page {
		at := &page[i]
		e := g.entries.Get(at.Key)
		if len(at.Spec) == 0 && (e == nil || e.desired == nil) && g.isBuiltin(at.Key) {
			if e != nil {
				e.listed = true
			}
			continue
		}
		if e == nil {
			e = g.ensure(at.Key)
		}
		e.listed = true
		entries[i] = e
		switch {
		case e.have.says(at.Spec, at.Owner) || e.desired.says(at.Spec, at.Owner):
		case g.mayStay(at.Owner) && e.kind != nil:
			listed = append(listed, i)
		default:
			read = append(read, i)
		}
	}
	found := make([]Version, len(read)+len(listed))
	kept := object.NewListed(len(listed), func(i int) (*object.Kind, string, string) {
		at := &page[listed[i]]
		return entries[listed[i]].kind, at.Key.Name, at.Spec
	})
	claims := 0
	object.InParts(len(read), func(from, to int) {
		for i := from; i < to; i++ {
			found[i].StoredObject = g.explore(page[read[i]].Key, page[read[i]].Spec)
		}
	})
	for i := range read {
		if found[i].StoredObject != nil {
			claims += found[i].Claims()
		}
	}
	for i := range kept {
		found[len(read)+i].StoredObject = &kept[i]
	}
	g.reserve(len(page), claims)
	versions := make([]*Version, len(page))
	for n, i := range slices.Concat(read, listed) {
		found[n].Origin = g.origin(page[i].Owner)
		versions[i] = &found[n]
	}
	for i, e := range entries {
		if e == nil {
			continue
		}
		switch v := versions[i]; {
		case v != nil:
			// The name must not keep the page in memory, nor a version that the desired state replaces.
			if v.StoredObject == nil {
				e.key.Name = strings.Clone(e.key.Name)
			} else if e.desired == nil || e.desired.retained() {
				e.key = v.Key()
			}
			g.setHave(e, v)
		case e.desired.says(page[i].Spec, page[i].Owner) && !e.have.says(page[i].Spec, page[i].Owner):
			g.setHave(e, e.desired)
		}
		g.retain(e)
		if e.desired == nil && g.isBuiltin(e.key) {
			e.desired = g.builtin(e.key)
		}
	}
}

// endListing ends a listing after the last page. It returns how many objects differ from the desired state.
func (g *graph) endListing() (different int) {
	var gone []*entry
	for e := range g.entries.All() {
		if !e.listed && e.have != nil && (e.kind == nil || e.kind.Plane == dataplane) {
			gone = append(gone, e)
		}
	}
	for _, e := range gone {
		g.setHave(e, nil)
	}
	if len(gone) > 0 {
		// Deleted objects had claims of objects that took their places.
		for e := range g.entries.All() {
			if e.have != nil {
				g.takeClaims(e)
			}
		}
	}
	for e := range g.entries.All() {
		e.failures, e.warned, e.replacing = 0, false, false
		g.compare(e)
		if !e.inStep() && !(e.have == nil && e.desired == nil) && (e.kind == nil || e.kind.Plane == dataplane) {
			different++
		}
		switch {
		case e.desired != nil && e.desired == e.have && e.desired.retained() && !e.open() && e.waits == nil:
			// There is nothing to decide: an object that it needs, and that has to go, queues it.
			g.mark(e, Applied, InStep, "")
		case !e.inStep() || e.state != Applied:
			g.enqueue(e, nil)
		}
	}
	return different
}

// study reads objects that were found in the data plane. No step is taken before: some of them may need or claim
// things of other entries.
func (g *graph) study() {
	if g.unread == 0 {
		return
	}
	var all []*entry
	for e := range g.entries.All() {
		if e.have.unread() {
			all = append(all, e)
		}
	}
	g.studySome(all)
}

// studySome is study for some unread entries.
func (g *graph) studySome(all []*entry) {
	found := make([]*Version, len(all))
	object.InParts(len(all), func(from, to int) {
		for i := from; i < to; i++ {
			found[i] = &Version{Origin: all[i].have.Origin, StoredObject: g.explore(all[i].key, all[i].have.Spec())}
		}
	})
	for i, e := range all {
		g.replaceFound(e, found[i])
		g.setHave(e, found[i])
		if found[i].StoredObject == nil {
			g.compare(e)
			g.enqueue(e, nil)
		}
	}
}

// replaceFound is called before an unread entry gets another version. If that stays because it was found, its needs
// must be known from now on: v has them, as far as they can be read.
func (g *graph) replaceFound(e *entry, v *Version) {
	if e.desired != e.have {
		return
	}
	if e.desired = nil; v.StoredObject != nil {
		e.desired, e.key = v, v.Key()
	} else {
		e.key.Name = strings.Clone(e.key.Name)
	}
}

// unpack returns what the data plane has, as far as that can be read.
func (g *graph) unpack(k object.Key, spec, owner string) *Version {
	return &Version{Origin: g.origin(owner), StoredObject: g.explore(k, spec)}
}

// explore may be called by several goroutines at once.
func (g *graph) explore(k object.Key, spec string) *object.StoredObject {
	o, err := g.registry.Explore(k, []byte(spec))
	if err != nil {
		return nil
	}
	return o
}

func (g *graph) isBuiltin(k object.Key) bool {
	kind := g.registry.Kind(k.Kind)
	return kind != nil && kind.IsBuiltin(k.Name)
}
