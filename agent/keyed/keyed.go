// SPDX-License-Identifier: Apache-2.0

// Package keyed is the northbound that holds documents under keys, wherever they are: a driver (packages files, etcd, redis) lists
// them, follows them and writes statuses, and everything else is here.
//
// A document is what `sluice apply` reads: any number of objects, in YAML or JSON. The documents together are the
// complete configuration of this northbound. A document with mistakes does not affect others: its valid objects
// apply, its other objects stay as they were, and none of its objects is deleted until the mistake is gone. An object
// belongs to one document. A second document with the same object has a mistake until the first one drops the object.
package keyed

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"sluice.dev/sluice/agent/northbound"
)

// Driver reads and watches the documents of a store. One goroutine calls List, another one Statuses and WriteStatuses.
type Driver interface {
	// List returns all documents, and a watch of all later changes.
	List(ctx context.Context) ([]Document, Watch, error)
	// Statuses returns the keys that have a status.
	Statuses(ctx context.Context) ([]string, error)
	// WriteStatuses writes statuses. After an error it is called again with the same statuses, or later ones.
	WriteStatuses(ctx context.Context, updates []StatusUpdate) error
}

// Watch follows documents. After any error everything is listed again.
type Watch interface {
	// Next waits for changes and returns them. ErrListAgain: the watch lost changes, and all documents must be listed
	// again.
	Next(ctx context.Context) ([]Document, error)
	Close()
}

// ErrListAgain asks for a list at once.
var ErrListAgain = errors.New("everything is to be listed again")

// Document is the content of a key.
type Document struct {
	Key  string
	Text []byte
	// The key was deleted.
	Deleted bool
	// It is there, but cannot be read.
	Err error
}

// StatusUpdate is the new status of a document.
type StatusUpdate struct {
	Key string
	// Nil: the document does not exist (any more), and its status is removed.
	Status *Status
}

// How long things take.
type pace struct {
	// Time between attempts to reach the driver, and between attempts to apply refused objects.
	least, most time.Duration
	// A burst of changes is one revision if they come within linger of each other, and for no longer than burst.
	linger, burst time.Duration
	// The time between writes of statuses; and the time after which the objects of a data plane that is away have the status unknown.
	statuses, unknown time.Duration
}

var defaultPace = pace{least: 100 * time.Millisecond, most: 5 * time.Second, linger: 10 * time.Millisecond, burst: 200 * time.Millisecond,
	statuses: 100 * time.Millisecond, unknown: 5 * time.Second}

// Run serves until ctx ends.
func Run(ctx context.Context, e northbound.Environment, d Driver) {
	newEngine(e, d, defaultPace).run(ctx)
}

type engine struct {
	northbound.Environment
	driver Driver
	pace   pace
	*set
	statusWriter *statusWriter
	// Something happened to an object that was refused.
	again chan struct{}
	// The place had or got the mark at the last listing.
	guarded bool
}

func newEngine(e northbound.Environment, d Driver, p pace) *engine {
	s := newSet(e)
	return &engine{Environment: e, driver: d, pace: p, set: s, statusWriter: newStatusWriter(e, d, s, p), again: make(chan struct{}, 1)}
}

func (n *engine) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, f := range []func(context.Context){n.serve, n.statusWriter.run, n.follow} {
		all.Add(1)
		go func() {
			defer all.Done()
			f(ctx)
		}()
	}
	all.Wait()
}

// serve lists and follows until ctx ends.
func (n *engine) serve(ctx context.Context) {
	wait, lost := n.pace.least, false
	for ctx.Err() == nil {
		err := n.listen(ctx, func(documents int) {
			if lost {
				n.Log.Info("it answers again", "documents", documents)
			}
			wait, lost = n.pace.least, false
			n.Counters.Connected(true)
			n.Counters.Received(documents)
		})
		if ctx.Err() != nil || errors.Is(err, ErrListAgain) {
			continue
		}
		if !lost {
			n.Log.Warn("it does not answer; its objects stay, and the agent tries again", "error", err)
		} else {
			n.Log.Debug("it does not answer", "error", err, "again", wait)
		}
		lost = true
		n.Counters.Connected(false)
		n.Counters.Failed()
		pause(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, n.pace.most)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// listen lists once, and follows until something is wrong.
func (n *engine) listen(ctx context.Context, working func(documents int)) error {
	documents, watch, err := n.driver.List(ctx)
	if err != nil {
		return err
	}
	defer watch.Close()
	working(len(documents))
	n.Log.Debug("listed", "documents", len(documents))
	if err := n.settle(ctx, watch, documents); err != nil {
		return err
	}
	n.statusWriter.listed(documents)

	ctx, cancel := context.WithCancel(ctx)
	changes, failed := make(chan []Document), make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			some, err := watch.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case changes <- some:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	retry := retry{least: n.pace.least, most: n.pace.most}
	for {
		if err := n.apply(ctx); err != nil {
			n.Log.Warn("the configuration could not be stored; trying again", "error", err)
			retry.soon()
		}
		n.statusWriter.wake()
		var later, look <-chan time.Time
		if n.waiting() {
			later = time.After(retry.next())
		}
		held := n.holding()
		if held {
			look = time.After(10 * n.pace.least)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case some := <-changes:
			some = n.gather(ctx, some, changes)
			n.Counters.Received(len(some))
			if emptied, err := n.emptied(ctx, watch, some); err != nil {
				return err
			} else if emptied || held {
				return ErrListAgain
			}
			n.put(some)
			retry.soon()
		case <-n.again:
			// Several things often happen at once.
			pause(ctx, n.pace.linger)
			n.retryRefused()
			retry.soon()
		case <-later:
			n.retryRefused()
		case <-look:
			if marked, err := watch.(Marked).Marked(ctx); err != nil {
				return err
			} else if marked {
				return ErrListAgain
			}
		}
	}
}

// gather waits for the end of a burst.
func (n *engine) gather(ctx context.Context, some []Document, more <-chan []Document) []Document {
	end := time.After(n.pace.burst)
	for {
		select {
		case others := <-more:
			some = append(some, others...)
		case <-time.After(n.pace.linger):
			return some
		case <-end:
			return some
		case <-ctx.Done():
			return some
		}
	}
}

// retry returns the time of the next attempt for refused objects when no event triggers one.
type retry struct{ least, most, wait time.Duration }

func (r *retry) soon() { r.wait = 0 }

func (r *retry) next() time.Duration {
	r.wait = min(max(2*r.wait, 2*r.least), r.most)
	return r.wait
}
