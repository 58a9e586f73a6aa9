// SPDX-License-Identifier: Apache-2.0

// Objects that a service produces and that outlive it: the data plane keeps the service's name with them.
package reconcile

import "sluice.dev/sluice/agent/object"

// Release deletes the service's objects in the data plane that the service does not produce (any more). Until it is
// called, objects of an earlier run of the service stay as they are.
func (r *Reconciler) Release(owner string) {
	r.mu.Lock()
	_, already := r.graph.released[owner]
	r.graph.released[owner] = struct{}{}
	r.mu.Unlock()
	if already {
		return
	}
	r.eachEntry(func(e *entry) {
		if e.desired != nil && e.desired.retained() && e.desired.owner() == owner {
			r.graph.setDesired(e.key, nil, nil)
		}
	})
	r.wakeUp()
}

// eachEntry calls f with each entry, in no order, and locks r.mu for a few at a time. Those that come meanwhile may be among them or not.
func (r *Reconciler) eachEntry(f func(*entry)) {
	for next, more := object.Number(0), true; more; more = next != 0 {
		r.mu.Lock()
		r.graph.tick()
		var some []*entry
		some, next = r.graph.entries.Some(next, scannedAtOnce)
		for _, e := range some {
			f(e)
		}
		r.mu.Unlock()
		r.pass()
	}
}

// pass is called between the parts of what takes long.
func (r *Reconciler) pass() {
	if r.options.Between != nil {
		r.options.Between()
	}
}

// Retained returns how many objects of each service stay in the data plane although the service does not produce them.
func (r *Reconciler) Retained() map[string]int {
	count := map[string]int{}
	r.mu.Lock()
	none := r.graph.left == 0
	r.mu.Unlock()
	if none {
		return count // all that is in the data plane alone is a leftover
	}
	r.eachEntry(func(e *entry) {
		if e.desired != nil && e.desired.retained() {
			count[e.desired.owner()]++
		}
	})
	return count
}

// origin is the origin of objects that were found in the data plane with the name of a service.
func (g *graph) origin(owner string) *Origin {
	if owner == "" {
		return nil
	}
	o := g.origins[owner]
	if o == nil {
		o = &Origin{Service: owner, retained: true}
		g.origins[owner] = o
	}
	return o
}

// retain leaves an object in the data plane that a service owns and has not released, if it has no other owner.
// Its object is listed like one that is being deleted: no configuration says it.
func (g *graph) retain(e *entry) {
	if e.have == nil || e.have.StoredObject == nil || e.have.owner() == "" || e.desired != nil && !e.desired.retained() {
		return
	}
	if g.mayStay(e.have.owner()) {
		e.desired = e.have
	}
}

// mayStay reports whether objects of an owner that were found in the data plane stay there although no service
// produces them now.
func (g *graph) mayStay(owner string) bool {
	_, released := g.released[owner]
	return owner != "" && !released
}
