// What is wanted, and how it stands with it.
package reconcile

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Get returns how it stands with an object, and whether anybody wants it or the data plane has it.
func (r *Reconciler) Get(k object.Key) (Status, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status(k)
	return s, s.State != Gone
}

func (r *Reconciler) status(k object.Key) Status {
	if e := r.graph.entries[k]; e != nil {
		return r.statusOf(e)
	}
	return Status{Key: k, State: Gone}
}

func (r *Reconciler) statusOf(e *entry) Status {
	s := Status{Key: e.key, State: e.state, Message: e.message}
	if r.link == nil && e.busy() && (e.state == Pending || e.state == Deleting) {
		s.Message = waitsFor + "the data plane: not connected"
	}
	if e.since != 0 {
		s.Since = time.Unix(0, e.since)
	}
	if e.want != nil && !e.want.builtin {
		s.Object, s.Owner, s.Revision = e.want.object, e.want.owner, e.want.revision
	}
	return s
}

// List returns at most limit objects that accept likes, in order of kind and name, from the first that follows `after`; and
// where the next page begins, or the zero Key if there is none. accept may be nil; it must not call the Reconciler.
func (r *Reconciler) List(after object.Key, limit int, accept func(Status) bool) ([]Status, object.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sortedAt != r.graph.generation {
		r.sortedKeys = r.sortedKeys[:0]
		for k := range r.graph.entries {
			r.sortedKeys = append(r.sortedKeys, k)
		}
		slices.SortFunc(r.sortedKeys, object.Key.Compare)
		r.sortedAt = r.graph.generation
	}
	from, found := slices.BinarySearchFunc(r.sortedKeys, after, object.Key.Compare)
	if found {
		from++
	}
	var page []Status
	for _, k := range r.sortedKeys[from:] {
		e := r.graph.entries[k]
		if e.state == Gone {
			continue
		}
		s := r.statusOf(e)
		if accept != nil && !accept(s) {
			continue
		}
		if len(page) == limit {
			return page, page[limit-1].Key
		}
		page = append(page, s)
	}
	return page, object.Key{}
}

// Needs returns how it stands with what an object names; Gone: it is not there. NeededBy returns those that name an object. Each
// says which field names the other. Both leave builtin objects out.
func (r *Reconciler) Needs(o *object.Object) []Relation {
	r.mu.Lock()
	defer r.mu.Unlock()
	var needs []Relation
	for _, ref := range r.registry.References(o) {
		if !ref.Builtin {
			needs = append(needs, Relation{ref.Field, r.status(ref.To)})
		}
	}
	return needs
}

// Relation is an object that another names, or is named by.
type Relation struct {
	Field  string
	Status Status
}

// NeededBy: see Needs. It looks at every object.
func (r *Reconciler) NeededBy(k object.Key) []Relation {
	r.mu.Lock()
	defer r.mu.Unlock()
	var by []Relation
	for _, e := range r.graph.entries {
		if e.want == nil || !slices.Contains(e.want.refs, k) {
			continue
		}
		for _, ref := range r.registry.References(e.want.object) {
			if ref.To == k {
				by = append(by, Relation{ref.Field, r.statusOf(e)})
				break
			}
		}
	}
	slices.SortFunc(by, func(a, b Relation) int { return a.Status.Key.Compare(b.Status.Key) })
	return by
}

// Revision returns the number of the latest change.
func (r *Reconciler) Revision() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

// Count returns how many objects are in each state.
func (r *Reconciler) Count() map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[State]int{}
	for _, e := range r.graph.entries {
		counts[e.state]++
	}
	delete(counts, Gone)
	return counts
}
