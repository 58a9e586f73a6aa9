// How it stands with what is wanted.
package reconcile

import (
	"maps"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Get returns how it stands with an object. Gone: nobody wants it, and the data plane does not have it.
func (r *Reconciler) Get(k object.Key) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status(k)
}

// Unwanted returns what is Deleting, in no order, and a number that is another when more of it came. If the caller has that number
// already, nothing is returned.
func (r *Reconciler) Unwanted(known uint64) ([]object.Key, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known == r.graph.deletions {
		return nil, known
	}
	return slices.Collect(maps.Keys(r.graph.unwanted)), r.graph.deletions
}

func (r *Reconciler) status(k object.Key) Status {
	if e := r.graph.entries[k]; e != nil {
		return r.statusOf(e)
	}
	return Status{Key: k, State: Gone}
}

func (r *Reconciler) statusOf(e *entry) Status {
	s := Status{Key: e.key, State: e.state, Reason: e.reason, Message: e.message}
	if r.link == nil && e.busy() && (e.state == Pending || e.state == Deleting) {
		s.Reason, s.Message = NoDataplane, waitsFor+"the data plane: not connected"
	}
	if e.since != 0 {
		s.Since = time.Unix(0, e.since)
	}
	if e.want != nil && !e.want.builtin {
		s.Wanted = e.want
	}
	if e.have != nil {
		s.Observed = e.have.Generation
	}
	return s
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

// Settled says whether everything that is wanted is done, or waits for something that is not there.
func (r *Reconciler) Settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.graph.entries {
		if e.open() || e.failures > 0 {
			return false
		}
	}
	return r.inSync
}
