// Package keyed is the northbound that holds documents under keys, wherever they are: a driver (packages files, etcd, redis) lists
// them, follows them and writes statuses, and everything else is here.
//
// A document is what `sluice apply` reads: any number of objects, in YAML or JSON. All documents together are all that this northbound
// wants. One with mistakes disturbs no other: those of its objects that are acceptable count, the others stay as they were, and as
// long as there is a mistake nothing of it goes away. An object belongs to one document: where a second one has it, too, that is a
// mistake of the second, until the first no longer has it.
package keyed

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"sluice.dev/sluice/agent/northbound"
)

// Driver is where documents are. Its methods are called by two goroutines: List by one, Statuses and Tell by the other.
type Driver interface {
	// List returns all documents, and what becomes of them from that moment on.
	List(ctx context.Context) ([]Document, Watch, error)
	// Statuses returns the keys that have a status.
	Statuses(ctx context.Context) ([]string, error)
	// Tell writes statuses. After an error it is called again with the same, or later ones.
	Tell(ctx context.Context, told []Told) error
}

// Watch follows documents. After any error everything is listed again.
type Watch interface {
	// Next waits for changes, and returns those that are there. ErrListAgain: nothing is wrong, but what changed is not known.
	Next(ctx context.Context) ([]Document, error)
	Close()
}

// ErrListAgain asks for a list at once.
var ErrListAgain = errors.New("everything is to be listed again")

// Document is what is under a key.
type Document struct {
	Key  string
	Text []byte
	// There is none.
	Deleted bool
	// It is there, but cannot be read.
	Err error
}

// Told is the status of a document.
type Told struct {
	Key string
	// Nil: there is no such document (any more), and its status goes away.
	Status *Status
}

// How long things take.
type pace struct {
	// Between attempts to reach a driver, and between attempts at what was refused.
	least, most time.Duration
	// A burst of changes is one revision if they come within linger of each other, and for no longer than burst.
	linger, burst time.Duration
	// Between writing statuses; and how long a data plane is away before it is told of each document that what was applied is unknown.
	tell, unknown time.Duration
}

var usual = pace{least: 100 * time.Millisecond, most: 5 * time.Second, linger: 10 * time.Millisecond, burst: 200 * time.Millisecond,
	tell: 100 * time.Millisecond, unknown: 5 * time.Second}

// Run serves until ctx ends.
func Run(ctx context.Context, e northbound.Environment, d Driver) { newEngine(e, d, usual).run(ctx) }

type engine struct {
	northbound.Environment
	driver Driver
	pace   pace
	*set
	teller *teller
	// Something happened to an object that was refused.
	again chan struct{}
	// The place had the mark, or got it, when everything was listed last.
	guarded bool
}

func newEngine(e northbound.Environment, d Driver, p pace) *engine {
	s := newSet(e)
	return &engine{Environment: e, driver: d, pace: p, set: s, teller: newTeller(e, d, s, p), again: make(chan struct{}, 1)}
}

func (n *engine) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, f := range []func(context.Context){n.serve, n.teller.run, n.follow} {
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
			n.Log.Warn("it does not answer; what was wanted stays, and it is tried again", "error", err)
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
	n.teller.listed(documents)

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
			n.Log.Warn("what is wanted could not be kept; trying again", "error", err)
			retry.soon()
		}
		n.teller.wake()
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

// retry says when what was refused is tried again although nothing is known to have happened.
type retry struct{ least, most, wait time.Duration }

func (r *retry) soon() { r.wait = 0 }

func (r *retry) next() time.Duration {
	r.wait = min(max(2*r.wait, 2*r.least), r.most)
	return r.wait
}
