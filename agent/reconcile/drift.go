// What other clients do to the data plane is put right at once, object by object, and reported.
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
	// So often an object is put right at once; then ever later, because somebody else wants it to be so.
	driftsAtOnce = 3
	// More are forgotten when they are old.
	driftsKept = 1000
)

// meddled takes note of what another client did. r.mu is held.
func (r *Reconciler) meddled(l *link, c Change) {
	if c.Lost {
		r.options.Log.Warn("the data plane told less than others changed")
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
		return // what is under way comes after it
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
		r.retries.add(e, time.Now().Add(r.backoff(n-driftsAtOnce)))
	} else {
		r.graph.enqueue(e, nil)
	}
}

// drifted counts how often that happened to an object in a row.
func (r *Reconciler) drifted(k object.Key) int32 {
	now := time.Now()
	old := func(_ object.Key, d drift) bool { return now.Sub(d.at) > 2*r.options.MaxBackoff }
	if len(r.drifts) >= driftsKept {
		maps.DeleteFunc(r.drifts, old)
	}
	d, known := r.drifts[k]
	if !known && len(r.drifts) >= driftsKept {
		// So many at once are not somebody's mistake: nothing more is put right at once.
		return driftsAtOnce + 1
	}
	if old(k, d) {
		d.count = 0
	}
	d = drift{d.count + 1, now}
	r.drifts[k] = d
	return d.count
}

// meddled takes note of what the data plane has because of somebody else. It returns the entry if that is not what is wanted.
func (g *graph) meddled(c Change, by string) *entry {
	k, e := c.Key, g.entries.Get(c.Key)
	kind := g.registry.Kind(k.Kind)
	builtin := kind != nil && kind.IsBuiltin(k.Name)
	if e == nil && (c.Deleted || builtin && len(c.Spec) == 0) {
		return nil
	}
	e = g.ensure(k)
	switch {
	case c.Deleted && e.have == nil, !c.Deleted && e.have.says(c.Spec):
		return nil
	case c.Deleted:
		g.setHave(e, nil)
	case e.want.says(c.Spec):
		g.setHave(e, e.want)
	default:
		g.setHave(e, g.unpack(k, c.Spec))
	}
	if builtin && e.want == nil {
		e.want = g.builtin(k)
	}
	e.failures, e.warned, e.replacing = 0, false, false
	g.compare(e)
	message := by + " changed it in the data plane"
	switch {
	case e.inStep() || e.want == nil && e.have == nil:
		g.enqueue(e, nil)
		return nil
	case e.want == nil:
		g.mark(e, Deleting, Drifted, by+" put it into the data plane, and nobody wants it")
	case c.Deleted:
		g.mark(e, Pending, Drifted, by+" deleted it from the data plane")
	default:
		g.mark(e, Pending, Drifted, message)
	}
	return e
}
