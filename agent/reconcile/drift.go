// SPDX-License-Identifier: Apache-2.0

// Drift: changes of other clients are repaired at once, object by object, and reported.
package reconcile

import (
	"maps"
	"time"

	"sluice.dev/sluice/agent/object"
)

// drift is how often in a row others changed an object, and when they did so last.
type drift struct {
	count int32
	at    time.Time
}

const (
	// An object is repaired at once so often; then with growing delays, because another client insists.
	driftsAtOnce = 3
	// More are forgotten when they are old.
	maxDrifts = 1000
)

// meddled records a change of another client. r.mu is held.
func (r *Reconciler) meddled(l *link, c Change) {
	if c.Lost {
		r.options.Log.Warn("the data plane lost events of other clients' changes")
		r.inSync = false
		return
	}
	r.known.Generation = max(r.known.Generation, c.Generation)
	if c.Key == (object.Key{}) || !r.inSync {
		return // everything is going to be listed
	}
	if e := r.graph.entries.Get(c.Key); e != nil && e.flying {
		switch b := l.carrying(e); {
		case b == nil:
			r.inSync = false // it was decided about, and is not sent yet
		case len(b.steps) > 1:
			b.meddled = true
		}
		return // operations under way come after it
	}
	by := c.By
	if by == "" {
		by = "another client"
	}
	e := r.graph.meddled(c, by)
	if e == nil {
		return
	}
	r.graph.measured.drifted++
	r.options.Log.Warn("another client changed an object in the data plane", "kind", c.Key.Kind, "name", c.Key.Name, "who", by)
	if n := r.drifted(c.Key); n > driftsAtOnce {
		r.retryAt(e, time.Now().Add(r.backoff(n-driftsAtOnce)))
	} else {
		r.graph.enqueue(e, nil)
	}
}

// drifted counts how often that happened to an object in a row.
func (r *Reconciler) drifted(k object.Key) int32 {
	now := time.Now()
	old := func(_ object.Key, d drift) bool { return now.Sub(d.at) > 2*r.options.MaxBackoff }
	if len(r.drifts) >= maxDrifts {
		maps.DeleteFunc(r.drifts, old)
	}
	d, known := r.drifts[k]
	if !known && len(r.drifts) >= maxDrifts {
		// So many changes at once are no accident: stop repairing at once.
		return driftsAtOnce + 1
	}
	if old(k, d) {
		d.count = 0
	}
	d = drift{d.count + 1, now}
	r.drifts[k] = d
	return d.count
}

// meddled records an object that another client changed. It returns the entry if that differs from the desired state.
func (g *graph) meddled(c Change, by string) *entry {
	k, e, spec := c.Key, g.entries.Get(c.Key), string(c.Spec)
	builtin := g.isBuiltin(k)
	if e == nil && (c.Deleted || builtin && len(c.Spec) == 0) {
		return nil
	}
	e = g.ensure(k)
	switch {
	case c.Deleted && e.have == nil, !c.Deleted && e.have.says(spec, c.Owner):
		return nil
	case c.Deleted:
		g.setHave(e, nil)
	case e.desired.says(spec, c.Owner):
		g.setHave(e, e.desired)
	default:
		g.setHave(e, g.unpack(k, spec, c.Owner))
	}
	if builtin && e.desired == nil {
		e.desired = g.builtin(k)
	}
	e.failures, e.warned, e.replacing = 0, false, false
	g.compare(e)
	message := by + " changed it in the data plane"
	switch {
	case e.inStep() || e.desired == nil && e.have == nil:
		g.enqueue(e, nil)
		return nil
	case e.desired == nil:
		g.mark(e, Deleting, Drifted, by+" created it in the data plane, and it has no owner")
	case c.Deleted:
		g.mark(e, Pending, Drifted, by+" deleted it from the data plane")
	default:
		g.mark(e, Pending, Drifted, message)
	}
	return e
}
