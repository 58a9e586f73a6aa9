// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"log/slog"
	"runtime/debug"
	"sync"
)

// queue runs functions in one goroutine, in the order in which they were added. The caller of add may hold locks that the function needs.
type queue struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting []func()
	wake    *sync.Cond
	closed  bool
	done    chan struct{}
}

func newQueue(log *slog.Logger) *queue {
	q := &queue{log: log, done: make(chan struct{})}
	q.wake = sync.NewCond(&q.mu)
	go q.run()
	return q
}

func (q *queue) add(f func()) {
	q.mu.Lock()
	q.waiting = append(q.waiting, f)
	q.mu.Unlock()
	q.wake.Signal()
}

func (q *queue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		for len(q.waiting) == 0 && !q.closed {
			q.wake.Wait()
		}
		batch := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, f := range batch {
			q.guarded(f)
		}
	}
}

// guarded recovers from a panic in a callback, so that the others run.
func (q *queue) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			q.log.Error("a callback of a subscriber failed in a way it never should", "error", p, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// close returns when everything was run that was added before.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wake.Signal()
	<-q.done
}
