// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"sluice.dev/sluice/agent/deadline"
)

// Attach gives the Reconciler a connection to the data plane, in place of an earlier one; it lists the objects and
// repairs the difference. The plane is not used after ctx ends.
func (r *Reconciler) Attach(ctx context.Context, plane Plane) {
	l := &link{Plane: plane, context: ctx}
	r.mu.Lock()
	r.drop(r.link)
	r.link, r.inSync = l, false
	r.mu.Unlock()
	context.AfterFunc(ctx, func() { r.detach(l) })
	r.wakeUp()
}

// Detach ends the use of the connection.
func (r *Reconciler) Detach() { r.detach(nil) }

// detach removes a connection; nil: the present one.
func (r *Reconciler) detach(l *link) {
	r.mu.Lock()
	if l != nil && r.link != l {
		r.mu.Unlock()
		return
	}
	if r.link != nil {
		r.lost = time.Now()
	}
	r.drop(r.link)
	r.link, r.inSync = nil, false
	for t := range r.transactions {
		r.interrupt(t)
	}
	r.mu.Unlock()
	r.wakeUp()
}

// Run talks to the data plane until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	failures := int32(0)
	var notBefore time.Time
	for ctx.Err() == nil {
		l, toList := r.connection()
		var err error
		worked := false
		if l != nil && !time.Now().Before(notBefore) {
			if toList {
				both, cancel := context.WithCancel(l.context)
				stop := context.AfterFunc(ctx, cancel)
				err = r.begin(both, l)
				stop()
				cancel()
			}
			if err == nil {
				worked, err = r.work(l)
			}
		}
		switch {
		case err != nil && ctx.Err() == nil:
			r.options.Log.Warn("the data plane does not answer as it should", "error", err)
			notBefore = time.Now().Add(r.backoff(failures))
			failures++
		case l == nil:
			failures, notBefore = 0, time.Time{}
		case err == nil && worked:
			failures = 0
			continue
		}
		r.pause(ctx, l, notBefore)
		if now, _ := r.connection(); now != l {
			failures, notBefore = 0, time.Time{}
		}
	}
	r.Detach()
}

// connection returns the connection, and whether everything is to be listed there: only after operations under way
// are done.
func (r *Reconciler) connection() (l *link, toList bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link, r.link != nil && !r.inSync && len(r.link.air) == 0
}

// pause waits until there may be something to do.
func (r *Reconciler) pause(ctx context.Context, l *link, notBefore time.Time) {
	var until time.Time
	set := false
	r.mu.Lock()
	if l != nil {
		until = r.retries.Next()
		set = !until.IsZero()
	}
	r.mu.Unlock()
	if now := time.Now(); notBefore.After(now) {
		until, set = notBefore, true
	}
	var timer <-chan time.Time
	if set {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-r.kick:
	case <-timer:
	}
}

// begin determines the observed state. It is known already if the data plane has not changed since the last
// connection.
func (r *Reconciler) begin(ctx context.Context, l *link) error {
	if !l.watched {
		mark, err := l.watch(ctx, r.wakeUp)
		if err != nil {
			return err
		}
		l.watched = true
		r.mu.Lock()
		same := r.link == l && r.resumable && mark.Generation != 0 && mark == r.known
		r.known, r.resumable = mark, false
		if same {
			r.inSync = true
			r.compared(l)
		}
		r.mu.Unlock()
		if same {
			r.options.Log.Info("the data plane has what it had before")
			return nil
		}
	}
	return r.repair(ctx, l)
}

// repair lists all objects of the data plane. It processes a page while the data plane makes the next, and other
// requests wait for one page at the most.
func (r *Reconciler) repair(ctx context.Context, l *link) error {
	// step runs f unless there is another connection by now.
	step := func(f func()) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.link != l {
			return false
		}
		r.graph.tick()
		f()
		return true
	}
	if !step(r.graph.beginListing) {
		return nil
	}
	count := 0
	for page, err := range l.List(ctx) {
		if err != nil {
			return fmt.Errorf("listing objects: %w", err)
		}
		count += len(page)
		if !step(func() { r.graph.observe(page) }) {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	step(func() {
		r.compared(l)
		different := r.graph.endListing()
		r.graph.measured.lists++
		r.graph.measured.different += uint64(different)
		r.retries.Clear()
		r.inSync = true
		r.options.Log.Info("read what the data plane has", "objects", count, "different", different)
		if different > 0 && !r.graph.anyDesired() {
			r.options.Log.Warn("the configuration is empty: all objects of the data plane are deleted", "objects", count)
		}
	})
	return nil
}

// compared: the observed state is known. r.mu is held.
func (r *Reconciler) compared(l *link) {
	if !l.compared && r.options.Connected != nil {
		r.options.Connected(true)
	}
	l.compared = true
}

// work carries out possible steps. It returns false if there were none.
func (r *Reconciler) work(l *link) (bool, error) {
	arrived := l.arrivals()
	r.mu.Lock()
	if r.link != l {
		another := r.link != nil
		r.mu.Unlock()
		return another, nil
	}
	r.graph.tick()
	err := r.land(l, arrived)
	if !r.inSync || err != nil {
		r.mu.Unlock()
		return len(arrived) > 0, err
	}
	now := time.Now()
	for again, due := r.retries.Due(now); due; again, due = r.retries.Due(now) {
		r.retries.Remove(again)
		if e := again.entry; r.graph.entries.Get(e.key) == e {
			r.graph.enqueue(e, nil)
		}
	}
	switch {
	case r.changing > 0: // its end wakes this up
	case l.allSlow():
		l.take(r.graph.next())
		r.takeFailures()
	case r.graph.anyQueued() && l.ahead():
		l.take(r.graph.beside())
	}
	batches := l.load(r.options.Batch)
	if len(batches) == 0 && !l.allSlow() && r.graph.hasMore() && !l.probing() {
		batches = append(batches, l.probe())
	}
	r.mu.Unlock()
	for _, b := range batches {
		l.send(b, r.wakeUp)
	}
	return len(arrived) > 0 || len(batches) > 0, nil
}

// land processes answers, and changes of other clients. An error is one of the connection; the other operations under
// way are awaited, and no new ones begun. r.mu is held.
func (r *Reconciler) land(l *link, arrived []arrival) error {
	for _, a := range arrived {
		if a.batch == nil {
			r.meddled(l, a.change)
		} else if !a.batch.answered { // nor dropped before
			r.answered(l, a.batch)
		}
	}
	r.takeFailures()
	if !r.inSync {
		r.lose(l.unsent())
	}
	if l.broken == nil || len(l.air) > 0 {
		return nil
	}
	err := l.broken
	l.broken = nil
	for t := range r.transactions {
		r.interrupt(t)
	}
	return err
}

func (r *Reconciler) answered(l *link, b *batch) {
	l.land(b)
	if b.err != nil {
		r.inSync = false
		if l.broken == nil {
			l.broken = b.err
		}
		r.lose(b.steps)
		return
	}
	for i, s := range b.steps {
		s.Final = b.results[i].Final
		s.Place = int(s.entry.place)
		s.entry.cause.executed(&s.operation)
		r.graph.settle(s, b.results[i])
	}
	if b.meddled {
		r.inSync = false
	}
}

// drop: the results of unanswered requests of a lost connection are unknown, unless the data plane has not changed
// since its last mark. r.mu is held.
func (r *Reconciler) drop(l *link) {
	if l == nil {
		return
	}
	r.graph.tick()
	if l.compared && r.options.Connected != nil {
		r.options.Connected(false)
	}
	r.resumable = r.inSync
	for _, b := range l.air {
		b.answered = true
		if b.slow || b.meddled {
			r.resumable = false // answers after it do not count
		}
		r.lose(b.steps)
	}
	l.air = nil
	r.lose(l.unsent())
}

func (r *Reconciler) lose(steps []*step) {
	for _, s := range steps {
		r.graph.lost(s)
	}
}

// takeFailures schedules retries of failed entries, unless they are decided about before. r.mu is held.
func (r *Reconciler) takeFailures() {
	for _, f := range r.graph.failures {
		if !f.entry.busy() && !final(f.result.Code) {
			r.retryAt(f.entry, time.Now().Add(r.backoff(int32(f.entry.failures)-1)))
		}
		r.options.Log.Warn("the data plane refused an object", "action", f.action.String(), "kind", f.entry.key.Kind, "name", f.entry.key.Name,
			"code", f.result.Code, "error", f.result.Message)
	}
	r.graph.failures = nil
}

// backoff doubles with each failure; some chance keeps many that failed together from coming back together.
func (r *Reconciler) backoff(failures int32) time.Duration {
	d := r.options.MaxBackoff
	if failures < 20 {
		d = min(d, r.options.MinBackoff<<max(failures, 0))
	}
	return d/2 + rand.N(d/2+1)
}

// retry is an entry that is tried again.
type retry struct {
	deadline.Timer
	entry *entry
}

// retryAt has an entry tried again, at that time only. r.mu is held.
func (r *Reconciler) retryAt(e *entry, at time.Time) {
	if e.retry == nil {
		e.retry = &retry{entry: e}
	}
	r.retries.Set(e.retry, at)
}
