package reconcile

import (
	"maps"
	"time"
)

// Measurements are what a Reconciler counted since it was made, and how it stands now. They cost the same however many objects
// there are.
type Measurements struct {
	// How many objects of each kind are in each state.
	Objects map[string]map[State]int
	// What the data plane was told, by what became of it.
	Operations map[Action]Results
	// From when something was wanted to when the data plane had it, of what was created or updated.
	Delays Histogram
	// What Options.Connected was told last; and whether what the data plane has is known at this moment.
	Connected, InSync bool
	// How often everything that the data plane has was listed, and how many objects were then not as they are wanted.
	Lists, Different uint64
	// How often another client changed an object of the data plane so that it was not as it is wanted.
	Drifted uint64
}

// Results count what became of operations.
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
	objects    map[string]*[Gone]int
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
	counts := m.objects[kind]
	if counts == nil {
		if m.objects == nil {
			m.objects = map[string]*[Gone]int{}
		}
		counts = &[Gone]int{}
		m.objects[kind] = counts
	}
	if before != Gone {
		counts[before]--
	}
	if after != Gone {
		counts[after]++
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

// Measure returns what was counted.
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
