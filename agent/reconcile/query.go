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
// is not as it is wanted; and why nothing is known of the data plane: NoDataplane, NotCompared or NoReason.
func (r *Reconciler) Hindrance(v *Version) (hindering Status, hindered bool, absence Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.graph.hindrance(v, 0)
	if e == nil {
		return Status{}, false, r.absence()
	}
	return r.statusOf(e), true, r.absence()
}

// absence says why nothing is known of the data plane, if so. r.mu is held.
func (r *Reconciler) absence() Reason {
	switch {
	case r.link == nil:
		return NoDataplane
	case !r.link.compared:
		return NotCompared
	}
	return NoReason
}

// No kind needs itself so deeply.
const deepest = 32

func (g *graph) hindrance(v *Version, depth int) *entry {
	if v == nil || depth > deepest {
		return nil
	}
	for _, e := range g.resolve(v).entries {
		if e == nil {
			continue // builtin, or what it names is only known to the data plane
		}
		if e.state != Applied && (e.kind == nil || !e.kind.IsBuiltin(e.key.Name)) {
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
	if e := r.graph.entries.Get(k); e != nil {
		return r.statusOf(e)
	}
	return Status{Key: k, State: Gone}
}

func (r *Reconciler) statusOf(e *entry) Status {
	s := Status{Key: e.key, State: e.state, Reason: e.reason, Message: e.message}
	if r.absence() != NoReason && e.state != Gone && (e.kind == nil || e.kind.Plane == dataplane) {
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

// away: there is no data plane, or what it has was not compared yet, and what it had is not known to be there any more. r.mu is held.
func (r *Reconciler) away(e *entry, s *Status) {
	since, waits := "; the data plane is away", "not connected"
	if r.link != nil {
		since, waits = "; what the data plane has is being read", "what it has is being read"
	} else if !r.lost.IsZero() {
		since += " since " + r.lost.UTC().Format(time.RFC3339)
	}
	switch {
	case e.state == Applied:
		s.State, s.Reason, s.Message = Unknown, r.absence(), "was applied"+since
	case e.state != Failed && e.busy():
		s.Reason, s.Message = r.absence(), waitsFor+"the data plane: "+waits
	default:
		s.Message += since
	}
}

// Settled says whether everything that is wanted is done, or waits for something that is not there.
func (r *Reconciler) Settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.graph.entries.All() {
		if e.open() || e.failures > 0 {
			return false
		}
	}
	return r.inSync
}
