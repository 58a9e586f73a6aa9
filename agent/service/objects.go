// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

const (
	// Changes within this time form one batch: the usual time, and the time while a service writes much. A batch
	// costs the agent and the data plane as much as several changes.
	gather, gatherMuch = time.Millisecond, 5 * time.Millisecond
	// A batch of so many is much.
	muchAtOnce = 3
	// So many changes are not gathered any longer, and are handed over at once: other services wait meanwhile.
	gatherLimit = 256
	// The time after which the result of a slow data plane is reported as unknown. The change still takes effect.
	resultTimeout = 30 * time.Second
)

// Result is the result of a change of a volatile object.
type Result struct {
	// Why the change was refused, by the checks or by a data plane; nil: it is done, or waits for another object or a data plane.
	Err error
	// Of a deletion that a data plane has carried out: the object's last counters, as the packed message that its kind counts in; else nil.
	Final []byte
	// Done means that every data plane concerned has carried out the change.
	Done bool
	// The reason why an object that is neither refused nor Done waits: "waits for Acl/web, which is not there".
	Waits string

	// A data plane has not carried it out.
	undone bool
}

// Objects writes the volatile objects of a service. Its methods may be called by several goroutines; none waits.
type Objects struct {
	producer *intent.Producer

	mu      sync.Mutex
	changes []object.Change
	results []func(Result)
	timer   *time.Timer
	writing bool
	// The life of the service has ended.
	closed bool
	// Of the batch before: how many changes it had.
	latest int
	// Batches, and results that are still to come.
	work inProgress
	// The goroutine that hands over.
	handing sync.WaitGroup

	// The keys of a batch, for the goroutine that writes.
	seen map[object.Key]struct{}
}

func newObjects(p *intent.Producer) *Objects {
	return &Objects{producer: p, seen: make(map[object.Key]struct{}, gatherLimit)}
}

// Put creates or replaces the object. The caller must not change it afterwards. result, if not nil, is called once.
func (o *Objects) Put(one *object.Object, result func(Result)) {
	o.add(object.Put(one), result)
}

// Delete deletes an object. result, if not nil, is called once.
func (o *Objects) Delete(k object.Key, result func(Result)) {
	o.add(object.Remove(k), result)
}

func (o *Objects) add(c object.Change, result func(Result)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		if result != nil {
			o.work.begin()
			go func() {
				defer o.work.end()
				result(Result{Err: intent.ErrProducerClosed})
			}()
		}
		return
	}
	o.changes, o.results = append(o.changes, c), append(o.results, result)
	switch {
	case o.writing:
	case len(o.changes) >= gatherLimit:
		o.start()
	case len(o.changes) > 1:
	case o.timer == nil:
		o.timer = time.AfterFunc(o.window(), o.gathered)
	default:
		o.timer.Reset(o.window())
	}
}

// gathered starts a batch when its window ends.
func (o *Objects) gathered() {
	o.mu.Lock()
	idle := !o.writing && len(o.changes) > 0
	if idle {
		o.begin()
	}
	o.mu.Unlock()
	if idle {
		o.run()
	}
}

// window is how long changes are gathered. o.mu is held.
func (o *Objects) window() time.Duration {
	if o.latest >= muchAtOnce {
		return gatherMuch
	}
	return gather
}

// start begins a batch. o.mu is held.
func (o *Objects) start() {
	o.begin()
	go o.run()
}

// begin is called before run. o.mu is held.
func (o *Objects) begin() {
	if o.timer != nil {
		o.timer.Stop()
	}
	o.writing = true
	o.work.begin()
	o.handing.Add(1)
}

func (o *Objects) run() {
	defer o.work.end()
	defer o.handing.Done()
	for o.write() {
	}
}

// write hands over one batch. It returns false if there is none.
func (o *Objects) write() bool {
	o.mu.Lock()
	changes, results := o.changes, o.results
	if len(changes) == 0 {
		o.writing = false
		o.mu.Unlock()
		return false
	}
	o.latest = len(changes)
	// The next batch is about as large.
	o.changes, o.results = make([]object.Change, 0, len(changes)), make([]func(Result), 0, len(results))
	o.mu.Unlock()
	for len(changes) > 0 {
		n := o.distinct(changes)
		o.report(o.producer.Produce(changes[:n]), changes[:n], results[:n])
		changes, results = changes[n:], results[n:]
	}
	return true
}

// distinct returns how many of the changes, from the first, are of different objects.
func (o *Objects) distinct(changes []object.Change) int {
	clear(o.seen)
	for i := range changes[:min(len(changes), gatherLimit)] {
		o.seen[changes[i].Key] = struct{}{}
		if len(o.seen) == i {
			return i
		}
	}
	return min(len(changes), gatherLimit)
}

// report waits for the data planes and calls the result functions. It reports the results of one data plane without
// waiting for another one, which may be away.
func (o *Objects) report(made *intent.Production, changes []object.Change, results []func(Result)) {
	answered := slices.ContainsFunc(results, func(r func(Result)) bool { return r != nil })
	b := &outcomes{producer: o.producer, changes: changes, results: results, is: make([]Result, len(changes)), left: make([]uint8, len(changes))}
	for _, r := range made.Refused {
		if i := b.find(r.Key); i >= 0 {
			b.is[i].Err = r.Err
		}
	}
	parts := made.Parts()
	places := make([][]int, len(parts))
	for i, p := range parts {
		places[i] = b.places(p)
		for _, n := range places[i] {
			b.left[n]++
		}
	}
	// No data plane is concerned: the object is refused now, or was before.
	var others []int
	for i, left := range b.left {
		if left == 0 {
			others = append(others, i)
		}
	}
	for i, p := range parts {
		o.work.begin()
		go func() {
			defer o.work.end()
			patience := time.NewTimer(resultTimeout)
			defer patience.Stop()
			select {
			case <-p.Done():
			case <-patience.C:
			}
			done, failures, _ := p.Close()
			if answered {
				b.take(places[i], done, failures)
			}
		}()
	}
	if answered && len(others) > 0 {
		o.work.begin()
		go func() {
			defer o.work.end()
			b.notify(others)
		}()
	}
}

// inProgress counts work. Unlike with a sync.WaitGroup, work may begin while its end is awaited.
type inProgress struct {
	mu    sync.Mutex
	count int
	// Closed when the count is 0 again.
	done chan struct{}
}

func (p *inProgress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == 0 {
		p.done = make(chan struct{})
	}
	p.count++
}

func (p *inProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count--; p.count == 0 {
		close(p.done)
	}
}

// idle returns a channel that is closed when there is no work.
func (p *inProgress) idle() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		close(p.done)
	}
	return p.done
}

// outcomes holds the results of a batch of changes.
type outcomes struct {
	producer *intent.Producer
	changes  []object.Change
	results  []func(Result)

	mu sync.Mutex
	is []Result
	// Data planes that have not answered yet, by change.
	left []uint8
}

// find returns the place of an object's change; less than 0: it has none.
func (b *outcomes) find(k object.Key) int {
	return slices.IndexFunc(b.changes, func(c object.Change) bool { return c.Key == k })
}

// places returns where the changes that concern a data plane are among all of them. Both are in one order.
func (b *outcomes) places(p *intent.Part) []int {
	places := make([]int, 0, len(b.changes))
	at := 0
	for k := range p.Keys() {
		for b.changes[at].Key != k {
			at++
		}
		places = append(places, at)
		at++
	}
	return places
}

// take stores the results of one data plane for the changes at these places.
func (b *outcomes) take(places []int, done []*intent.Operation, failures []intent.Failure) {
	b.mu.Lock()
	carried := make([]bool, len(places))
	for _, op := range done {
		if op.Place >= len(places) || b.changes[places[op.Place]].Key != op.Key {
			continue // it was carried out because of a change, and is none
		}
		n := places[op.Place]
		if len(op.Final) > 0 {
			b.is[n].Final = op.Final
		}
		// The deletion that is part of a replacement is not a result by itself.
		carried[op.Place] = carried[op.Place] || (b.changes[n].Object == nil) == (op.Action == reconcile.Delete)
	}
	for _, f := range failures {
		if n := b.find(f.Key); n >= 0 {
			b.is[n].Err = &object.Error{Object: f.Key, Problem: f.Message}
		}
	}
	last := make([]int, 0, len(places))
	for i, n := range places {
		// Else it was so already, waits for another object, or the data plane is away.
		b.is[n].Done = carried[i] && (b.is[n].Done || !b.is[n].undone)
		b.is[n].undone = !b.is[n].Done
		if b.left[n]--; b.left[n] == 0 {
			last = append(last, n)
		}
	}
	b.mu.Unlock()
	b.notify(last)
}

// notify calls the result functions of changes that all data planes have answered.
func (b *outcomes) notify(places []int) {
	for _, n := range places {
		if b.results[n] == nil {
			continue
		}
		b.mu.Lock()
		r := b.is[n]
		b.mu.Unlock()
		r.undone = false
		if r.Err != nil {
			r = Result{Err: r.Err}
		} else if c := &b.changes[n]; !r.Done && c.Object != nil {
			r.Waits = b.producer.Waits(c.Key)
		}
		b.results[n](r)
	}
}

// Flush returns when all that was written before is handed over and reported.
func (o *Objects) Flush(ctx context.Context) error {
	o.mu.Lock()
	if !o.writing && len(o.changes) > 0 {
		o.start()
	}
	o.mu.Unlock()
	select {
	case <-o.work.idle():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close ends the writing with the life of the service: it returns when all that was written before is handed over, and refuses later changes.
func (o *Objects) close() {
	o.mu.Lock()
	o.closed = true
	if !o.writing && len(o.changes) > 0 {
		o.start()
	}
	o.mu.Unlock()
	o.handing.Wait()
}

// Complete reports that the service has written all its objects. Data planes then delete objects of an earlier run of
// the service that are not among them.
func (o *Objects) Complete(ctx context.Context) error {
	if err := o.Flush(ctx); err != nil {
		return err
	}
	o.producer.Complete()
	return nil
}
