// SPDX-License-Identifier: Apache-2.0

// The status of objects.
package reconcile

import (
	"time"

	"sluice.dev/sluice/agent/object"
)

// Get returns the status of an object. Gone: it has no owner, and the data plane does not have it.
func (r *Reconciler) Get(k object.Key) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status(k)
}

// Blocker returns the object that keeps a version from serving although the data plane has it: the first needed
// object, at any depth, that is not in its desired state; and the reason if the data plane's state is unknown:
// NoDataplane, NotCompared or NoReason.
func (r *Reconciler) Blocker(v *Version) (blocker Status, blocked bool, absence Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.graph.blocker(v, 0)
	if e == nil {
		return Status{}, false, r.absence()
	}
	return r.statusOf(e), true, r.absence()
}

// absence is the reason why the data plane's state is unknown. r.mu is held.
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

func (g *graph) blocker(v *Version, depth int) *entry {
	if v == nil || depth > deepest {
		return nil
	}
	for _, e := range g.resolve(v).entries {
		if e == nil {
			continue // builtin, or an object that only the data plane knows
		}
		if e.state != Applied && (e.kind == nil || !e.kind.IsBuiltin(e.key.Name)) {
			return e
		}
		if below := g.blocker(e.desired, depth+1); below != nil {
			return below
		}
	}
	return nil
}

// NotDesired returns the objects that only the data plane has: Deleting ones and leftovers of services; in no order,
// some of them twice; and a number that changes when more come. If the caller has that number already, it returns no
// objects.
func (r *Reconciler) NotDesired(known uint64) ([]object.Key, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known == r.graph.deletions {
		return nil, known
	}
	keys := make([]object.Key, 0, r.graph.left)
	for _, n := range r.graph.leftovers {
		if r.graph.isLeftover(n) {
			keys = append(keys, r.graph.entries.At(n).key)
		}
	}
	return keys, r.graph.deletions
}

func (r *Reconciler) status(k object.Key) Status {
	if e := r.graph.entries.Get(k); e != nil {
		return r.statusOf(e)
	}
	return Status{Key: k, State: Gone}
}

func (r *Reconciler) statusOf(e *entry) Status {
	s := Status{Key: e.key, State: e.state, Reason: e.reason, Message: e.message}
	if e.reason.waits() {
		rest := e.meanwhile()
		s.Message = waitsFor + e.message + rest
		if e.waits != nil && e.waits.missing != nil {
			s.Missing = &Missing{Key: e.waits.missing.Key, Field: e.waits.missing.Field, rest: rest}
		}
	}
	if r.absence() != NoReason && e.state != Gone && (e.kind == nil || e.kind.Plane == dataplane) {
		r.away(e, &s)
	}
	if e.since != 0 {
		s.Since = time.Unix(0, e.since)
	}
	if e.desired != nil && !e.desired.builtin() {
		s.Desired = e.desired
	}
	if e.have != nil {
		s.Observed = e.have.Generation
	}
	return s
}

// away: there is no data plane, or its state was not compared yet. Its objects are not known to be there any more.
// r.mu is held.
func (r *Reconciler) away(e *entry, s *Status) {
	since, waits := "; the data plane is away", "not connected"
	if r.link != nil {
		since, waits = "; its observed state is being read", "its observed state is being read"
	} else if !r.lost.IsZero() {
		since += " since " + r.lost.UTC().Format(time.RFC3339)
	}
	switch {
	case e.state == Applied:
		s.State, s.Reason, s.Message, s.Missing = Unknown, r.absence(), "was applied"+since, nil
	case e.state != Failed && e.busy():
		s.Reason, s.Message, s.Missing = r.absence(), waitsFor+"the data plane: "+waits, nil
	default:
		s.Message += since
		if s.Missing != nil {
			s.Missing.rest += since
		}
	}
}

// Messages of a waiting object: the object that it waits for, and the data plane's present object.
const (
	waitsFor   = "waits for "
	isAbsent   = "; not in the data plane"
	isAsBefore = "; the data plane still has it as it was before"
)

// waits reports whether an entry with this reason waits for another object.
func (r Reason) waits() bool {
	return r == WaitsForObject || r == WaitsForFailed || r == WaitsForClaim || r == InUse
}

// meanwhile describes the data plane's present object of a waiting entry.
func (e *entry) meanwhile() string {
	switch {
	case e.state == Deleting:
		return ""
	case e.have == nil:
		return isAbsent
	}
	return isAsBefore
}

// Settled reports whether all desired state is applied, or waits for missing objects.
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
