// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"time"
)

// Measurements are the counters of a Reconciler, and its present state. Their cost does not depend on the number of
// objects.
type Measurements struct {
	// How many objects of each kind are in each state.
	Objects map[string]map[State]int
	// Operations on the data plane, by result.
	Operations map[Action]Results
	// Time from the change of desired state until the data plane has it, of created and updated objects.
	Delays Histogram
	// The last value that Options.Connected received; and whether the observed state is known at this moment.
	Connected, InSync bool
	// How often all objects of the data plane were listed, and how many of them differed from their desired state.
	Lists, Different uint64
	// How often another client changed an object away from its desired state.
	Drifted uint64
}

// Results count operations by result.
type Results struct {
	// Done; refused by the data plane; the connection broke before the answer.
	Done, Refused, Unknown uint64
}

// Histogram counts times by how long they are.
type Histogram struct {
	Count uint64
	Sum   time.Duration
	// How many were at most so long.
	AtMost map[time.Duration]uint64
}

// The upper ends of a histogram's buckets.
var delayBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute,
}

// measured is what a graph counts.
type measured struct {
	objects map[string]*[Gone]int
	// The kind that was counted last, and its counts.
	kind       string
	counts     *[Gone]int
	operations [Delete + 1]Results
	delays     [len(delayBounds) + 1]uint64
	delay      time.Duration

	lists, different, drifted uint64
}

// moved: an object is in another state.
func (m *measured) moved(kind string, before, after State) {
	if before == after {
		return
	}
	if m.counts == nil || m.kind != kind {
		m.kind, m.counts = kind, m.objects[kind]
	}
	if m.counts == nil {
		if m.objects == nil {
			m.objects = map[string]*[Gone]int{}
		}
		m.counts = &[Gone]int{}
		m.objects[kind] = m.counts
	}
	if before != Gone {
		m.counts[before]--
	}
	if after != Gone {
		m.counts[after]++
	}
}

func (m *measured) operation(a Action, r Result) {
	if r.Code == 0 {
		m.operations[a].Done++
	} else {
		m.operations[a].Refused++
	}
}

func (m *measured) took(d time.Duration) {
	bucket := 0
	for bucket < len(delayBounds) && d > delayBounds[bucket] {
		bucket++
	}
	m.delays[bucket]++
	m.delay += d
}

// Measure returns the counters.
func (r *Reconciler) Measure() Measurements {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &r.graph.measured
	out := Measurements{Objects: map[string]map[State]int{}, Operations: map[Action]Results{}, Connected: r.absence() == NoReason, InSync: r.inSync,
		Lists: m.lists, Different: m.different, Drifted: m.drifted, Delays: Histogram{Sum: m.delay, AtMost: map[time.Duration]uint64{}}}
	for kind, counts := range m.objects {
		out.Objects[kind] = map[State]int{}
		for state, n := range counts {
			out.Objects[kind][State(state)] = n
		}
		out.Objects[kind][Unknown] = 0
		if k := r.registry.Kind(kind); r.absence() != NoReason && (k == nil || k.Plane == dataplane) {
			out.Objects[kind][Applied], out.Objects[kind][Unknown] = 0, counts[Applied]
		}
	}
	for action, results := range m.operations {
		out.Operations[Action(action)] = results
	}
	for i, n := range m.delays {
		out.Delays.Count += n
		if i < len(delayBounds) {
			out.Delays.AtMost[delayBounds[i]] = out.Delays.Count
		}
	}
	return out
}

// Count returns how many objects are in each state.
func (r *Reconciler) Count() map[State]int {
	counts := map[State]int{}
	for _, states := range r.Measure().Objects {
		for state, n := range states {
			counts[state] += n
		}
	}
	maps.DeleteFunc(counts, func(_ State, n int) bool { return n == 0 })
	return counts
}
