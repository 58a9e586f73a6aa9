package reconcile

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Attach gives the Reconciler a connection to the data plane, in place of any that it had; it lists what is there and repairs the
// difference. Nothing is asked of it after ctx ends.
func (r *Reconciler) Attach(ctx context.Context, plane Plane) {
	l := &link{Plane: plane, context: ctx}
	r.mu.Lock()
	r.drop(r.link)
	r.link, r.inSync = l, false
	r.mu.Unlock()
	context.AfterFunc(ctx, func() { r.detach(l) })
	r.wakeUp()
}

// Detach tells that there is no connection any more.
func (r *Reconciler) Detach() { r.detach(nil) }

// detach takes away a connection; nil: whichever there is.
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

// connection returns the connection, and whether everything is to be listed there: not before what is under way is done.
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
		until, set = r.retries.next()
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

// begin finds out what the data plane has. Where it is as it was when the connection before was lost, that is known.
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

// repair lists everything that the data plane has.
func (r *Reconciler) repair(ctx context.Context, l *link) error {
	listed := map[object.Key][]byte{}
	for page, err := range l.List(ctx) {
		if err != nil {
			return fmt.Errorf("listing objects: %w", err)
		}
		for _, o := range page {
			listed[o.Key] = o.Spec
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != l {
		return nil
	}
	r.compared(l)
	r.graph.tick()
	different := r.graph.observe(listed)
	r.graph.measured.lists++
	r.graph.measured.different += uint64(different)
	r.retries = nil
	r.inSync = true
	r.options.Log.Info("read what the data plane has", "objects", len(listed), "different", different)
	if different > 0 && !r.graph.wantsAny() {
		r.options.Log.Warn("nothing is wanted, so all that the data plane has is deleted", "objects", len(listed))
	}
	return nil
}

// compared: it is known what the data plane has. r.mu is held.
func (r *Reconciler) compared(l *link) {
	if !l.compared && r.options.Connected != nil {
		r.options.Connected(true)
	}
	l.compared = true
}

// work does what can be done now. It returns false if there was nothing.
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
	for _, e := range r.retries.due(time.Now()) {
		if r.graph.entries.Get(e.key) == e {
			r.graph.enqueue(e, nil)
		}
	}
	if l.allSlow() {
		l.take(r.graph.next())
		r.takeFailures()
	}
	batches := l.load(r.options.Batch)
	if len(batches) == 0 && !l.allSlow() && r.graph.hasMore() && !l.asked() {
		batches = append(batches, l.probe())
	}
	r.mu.Unlock()
	for _, b := range batches {
		l.send(b, r.wakeUp)
	}
	return len(arrived) > 0 || len(batches) > 0, nil
}

// land tells what became of what was asked, and what others changed. An error is one of the connection; what is under way beside it is
// waited for, and nothing else begun. r.mu is held.
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
		s.entry.cause.executed(s.operation)
		r.graph.settle(s, b.results[i])
	}
	if b.meddled {
		r.inSync = false
	}
}

// drop: nobody knows what became of what was asked of a connection that is gone, unless the data plane says that it changed nothing since
// it was heard of last. r.mu is held.
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
			r.resumable = false // what was answered after it says nothing about it
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

// takeFailures has what failed tried again after a while, unless it is decided about before. r.mu is held.
func (r *Reconciler) takeFailures() {
	for _, f := range r.graph.failures {
		if !f.entry.busy() && !final(f.result.Code) {
			r.retries.add(f.entry, time.Now().Add(r.backoff(f.entry.failures-1)))
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

// retries are entries to try again, the earliest first.
type retries []retry

type retry struct {
	at    time.Time
	entry *entry
}

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at.Before(r[j].at) }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

func (r *retries) add(e *entry, at time.Time) {
	e.retryAt = at.UnixNano()
	heap.Push(r, retry{at, e})
}

func (r retries) next() (time.Time, bool) {
	if len(r) == 0 {
		return time.Time{}, false
	}
	return r[0].at, true
}

func (r *retries) due(now time.Time) []*entry {
	var due []*entry
	for len(*r) > 0 && !(*r)[0].at.After(now) {
		// One that failed again since has a later turn.
		if next := heap.Pop(r).(retry); next.entry.retryAt == next.at.UnixNano() {
			due = append(due, next.entry)
		}
	}
	return due
}
