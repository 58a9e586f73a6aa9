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

// Hindrance returns what keeps a version from serving although the data plane has it: the first of what it needs, at any depth, that
// is not as it is wanted; and whether the data plane answers.
func (r *Reconciler) Hindrance(v *Version) (hindering Status, hindered, connected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.graph.hindrance(v, 0)
	if e == nil {
		return Status{}, false, r.link != nil
	}
	return r.statusOf(e), true, r.link != nil
}

// No kind needs itself so deeply.
const deepest = 32

func (g *graph) hindrance(v *Version, depth int) *entry {
	if v == nil || depth > deepest {
		return nil
	}
	for _, k := range v.needs() {
		e := g.entries[k]
		if e == nil {
			continue // builtin, or what it names is only known to the data plane
		}
		if e.state != Applied && (e.kind == nil || !e.kind.IsBuiltin(k.Name)) {
			return e
		}
		if below := g.hindrance(e.want, depth+1); below != nil {
			return below
		}
	}
	return nil
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
	if r.link == nil && e.state != Gone && (e.kind == nil || e.kind.Plane == dataplane) {
		r.away(e, &s)
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

// away: there is no data plane, and what it had is not known to be there any more. r.mu is held.
func (r *Reconciler) away(e *entry, s *Status) {
	since := "; the data plane is away"
	if !r.lost.IsZero() {
		since += " since " + r.lost.UTC().Format(time.RFC3339)
	}
	switch {
	case e.state == Applied:
		s.State, s.Reason, s.Message = Unknown, NoDataplane, "was applied"+since
	case e.state != Failed && e.busy():
		s.Reason, s.Message = NoDataplane, waitsFor+"the data plane: not connected"
	default:
		s.Message += since
	}
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
