// What became of what was done, and what the data plane has.
package reconcile

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// settle tells how a step went.
func (g *graph) settle(s *step, r Result) {
	e := s.entry
	g.remember(e)
	s.settled = true
	e.flying = false
	if !g.simulating {
		g.measured.operation(s.Action, r)
	}
	switch {
	case r.Code == 0:
		g.succeeded++
		e.failures = 0
		e.replacing = s.put == nil && e.want != nil
		g.setHave(e, s.put)
		g.compare(e)
		if len(g.condemned) > 0 {
			g.appeal(e)
		}
		if e.inStep() {
			if e.wantedAt != 0 && !g.simulating {
				g.measured.took(time.Duration(g.at - e.wantedAt))
			}
			g.arrived(e)
		} else if s.put == nil && e.want == nil {
			g.mark(e, Gone, NotWanted, "")
			g.forget(e)
		} else {
			e.again = true
		}
	case e.again && s.want != e.want:
		// It was refused what nobody wants any more: that is no failure of what is wanted now.
	case !passing(r.Code):
		g.fail(e, s.Action, r)
	case !e.again:
		g.refuse(e, s.Action, r)
		g.wake(e)
		return
	}
	g.settled(e)
}

// lost: nobody knows whether a step was done. The entry is decided about again after everything was listed.
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

// observe takes note of everything that the data plane has. It returns in how many objects that differs from what is wanted.
func (g *graph) observe(listed map[object.Key][]byte) (different int) {
	var gone []*entry
	for e := range g.entries.All() {
		if _, there := listed[e.key]; !there && e.have != nil && (e.kind == nil || e.kind.Plane == dataplane) {
			gone = append(gone, e)
		}
	}
	for _, e := range gone {
		g.setHave(e, nil)
	}
	g.reserve(len(listed), 2*len(listed))
	for k, spec := range listed {
		e := g.entries.Get(k)
		builtin := false
		if kind := g.registry.Kind(k.Kind); kind != nil {
			builtin = kind.IsBuiltin(k.Name)
		}
		if builtin && len(spec) == 0 && (e == nil || e.want == nil) {
			continue
		}
		e = g.ensure(k)
		switch {
		case e.have.says(spec):
		case e.want.says(spec):
			g.setHave(e, e.want)
		default:
			g.setHave(e, g.unpack(k, spec))
		}
		if builtin && e.want == nil {
			e.want = g.builtin(k)
		}
	}
	all := slices.AppendSeq(make([]*entry, 0, g.entries.Len()), g.entries.All())
	for _, e := range all {
		e.failures, e.warned, e.replacing = 0, false, false
		g.compare(e)
		if !e.inStep() && !(e.have == nil && e.want == nil) && (e.kind == nil || e.kind.Plane == dataplane) {
			different++
		}
		if !e.inStep() || e.state != Applied {
			g.enqueue(e, nil)
		}
	}
	return different
}

// unpack returns what the data plane has, as far as that can be read.
func (g *graph) unpack(k object.Key, spec []byte) *Version {
	o, err := g.registry.Explore(k, spec)
	if err != nil {
		return &Version{}
	}
	return &Version{Kept: o}
}
