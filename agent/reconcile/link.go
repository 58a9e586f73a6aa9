// SPDX-License-Identifier: Apache-2.0

// Operations that were sent on one connection and are not answered yet.
package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sluice.dev/sluice/agent/object"
)

const (
	// An object of so many bytes goes alone: it may take long, and others would have to wait for the answer.
	large = 64 << 10
	// A request has hardly more bytes, unless it is of one object.
	batchBytes = 1 << 20
	// The maximum under way: of slow objects, and of all others. It is less than the amount at which the data plane
	// stops reading.
	largeAloft, largeBytes = 8, 10 << 20
	restAloft, restBytes   = 16, 4 << 20
)

// link is a connection to the data plane. The plane is not used after the context ends. The Reconciler guards it,
// except for arrivals.
type link struct {
	Plane
	context context.Context
	// Steps to send, in this order; slow ones have an order of their own, so that no other step waits for them here.
	rest, large []*step
	// Unanswered batches, in the order of sending.
	air []*batch
	// An answer was an error: everything will be listed.
	broken error
	// The plane reports changes of other clients.
	watched bool
	// The observed state is known, or was once.
	compared bool

	mu      sync.Mutex
	arrived []arrival
	missed  bool
}

// arrival is an answer to a batch, or a change of another client.
type arrival struct {
	batch  *batch
	change Change
}

// So many changes may wait to be looked at.
const mostArrivals = 1 << 14

// batch is one request. Without steps it is a probe: when it is answered, unanswered requests before it are slow.
type batch struct {
	steps []*step
	bytes int
	large bool
	// All of it are puts of services' objects: they name all that they need.
	produced bool
	// A later one was answered first.
	slow     bool
	answered bool
	// Another client changed one of several objects meanwhile: the last writer is unknown.
	meddled bool
	results []Result
	err     error
}

func (s *step) bytes() int {
	if s.put == nil {
		return len(s.Key.Name)
	}
	return len(s.put.Spec()) + len(s.Key.Name)
}

// take queues steps.
func (l *link) take(wave []*step) {
	for _, s := range wave {
		if s.bytes() >= large {
			l.large = append(l.large, s)
		} else {
			l.rest = append(l.rest, s)
		}
	}
}

// allSlow reports whether only slow batches are under way.
func (l *link) allSlow() bool {
	return len(l.rest) == 0 && !slices.ContainsFunc(l.air, func(b *batch) bool { return !b.slow })
}

// ahead says whether more may be decided about although not everything is answered: what is under way are objects that services produce. A
// data plane carries out in order what it is sent.
func (l *link) ahead() bool {
	waits := func(b *batch) bool { return !b.slow && len(b.steps) > 0 && !b.produced }
	return len(l.rest) == 0 && len(l.large) == 0 && !slices.ContainsFunc(l.air, waits)
}

// probing reports whether a probe is under way.
func (l *link) probing() bool {
	return slices.ContainsFunc(l.air, func(b *batch) bool { return len(b.steps) == 0 })
}

// unsent returns unsent steps, and clears them.
func (l *link) unsent() []*step {
	steps := append(l.large, l.rest...)
	l.large, l.rest = nil, nil
	return steps
}

// load returns the requests that there is room for. They are under way then.
func (l *link) load(most int) []*batch {
	var load []*batch
	aloft := map[bool]int{}
	bytes := map[bool]int{}
	for _, b := range l.air {
		aloft[b.large]++
		bytes[b.large] += b.bytes
	}
	for len(l.large) > 0 {
		b := &batch{steps: l.large[:1:1], bytes: l.large[0].bytes(), large: true}
		if aloft[true] > 0 && (aloft[true] >= largeAloft || bytes[true]+b.bytes > largeBytes) {
			break
		}
		aloft[true]++
		bytes[true] += b.bytes
		l.large = l.large[1:]
		load = append(load, b)
	}
	for len(l.rest) > 0 && aloft[false] < restAloft && bytes[false] < restBytes {
		b := &batch{produced: true}
		end := 0
		for end < len(l.rest) && end < most && (end == 0 || b.bytes < batchBytes && sameBatch(l.rest[0], l.rest[end])) {
			b.bytes += l.rest[end].bytes()
			b.produced = b.produced && l.rest[end].put != nil && l.rest[end].put.owner() != ""
			end++
		}
		b.steps, l.rest = l.rest[:end:end], l.rest[end:]
		aloft[false]++
		bytes[false] += b.bytes
		load = append(load, b)
	}
	// Release sent steps.
	if len(l.rest) == 0 {
		l.rest = nil
	}
	if len(l.large) == 0 {
		l.large = nil
	}
	l.air = append(l.air, load...)
	return load
}

func sameBatch(a, b *step) bool {
	return (a.put == nil) == (b.put == nil) && a.Key.Kind == b.Key.Kind
}

// probe is under way when it is returned.
func (l *link) probe() *batch {
	b := &batch{}
	l.air = append(l.air, b)
	return b
}

// send sends a batch to the plane, and calls report after the answer.
func (l *link) send(b *batch, report func()) {
	ctx := l.context
	answered := func(results []Result, err error) {
		if err == nil && len(results) != len(b.steps) {
			err = fmt.Errorf("%d results for %d objects", len(results), len(b.steps))
		}
		if err != nil && len(b.steps) > 0 {
			err = fmt.Errorf("%s of %d objects, the first %s: %w", b.steps[0].Action, len(b.steps), b.steps[0].Key, err)
		}
		b.results, b.err = results, err
		l.mu.Lock()
		l.arrived = append(l.arrived, arrival{batch: b})
		l.mu.Unlock()
		report()
	}
	switch {
	case ctx.Err() != nil:
		answered(nil, ctx.Err())
	case len(b.steps) > 0 && b.steps[0].put == nil:
		keys := make([]object.Key, len(b.steps))
		for i, s := range b.steps {
			keys[i] = s.Key
		}
		l.Delete(ctx, keys, answered)
	default:
		objects := make([]Object, len(b.steps))
		for i, s := range b.steps {
			objects[i] = Object{s.Key, s.put.Spec(), s.put.owner()}
		}
		l.Put(ctx, objects, answered)
	}
}

// watch has changes arrive.
func (l *link) watch(ctx context.Context, report func()) (Mark, error) {
	return l.Watch(ctx, func(c Change) {
		l.mu.Lock()
		if l.missed = l.missed || len(l.arrived) >= mostArrivals; !l.missed {
			l.arrived = append(l.arrived, arrival{change: c})
		}
		l.mu.Unlock()
		report()
	})
}

// arrivals returns the arrivals since the last call, in their order.
func (l *link) arrivals() []arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	arrived := l.arrived
	if l.missed {
		arrived = append(arrived, arrival{change: Change{Lost: true}})
	}
	l.arrived, l.missed = nil, false
	return arrived
}

// carrying returns the request under way that an entry is in.
func (l *link) carrying(e *entry) *batch {
	for _, b := range l.air {
		if slices.ContainsFunc(b.steps, func(s *step) bool { return s.entry == e }) {
			return b
		}
	}
	return nil
}

// land takes note of an answer.
func (l *link) land(b *batch) {
	at := slices.Index(l.air, b)
	for _, before := range l.air[:at] {
		before.slow = true
	}
	b.answered = true
	l.air = slices.Delete(l.air, at, at+1)
}
