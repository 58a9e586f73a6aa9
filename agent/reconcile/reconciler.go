package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Intent is an object as it is kept: who wants it, since which revision. Object nil: it is no longer wanted.
type Intent struct {
	Key      object.Key
	Object   *object.Object
	Owner    string
	Revision uint64
}

// Store keeps what is wanted. Each method is one transaction: all of it is kept, or nothing.
type Store interface {
	// Save keeps the intents.
	Save(intents []Intent) error
	// Begin keeps the intents, and how to take them back if the program ends before End is called with that revision: what is
	// still of that revision gets what undo says.
	Begin(revision uint64, intents, undo []Intent) error
	// End makes the intents of a revision stand, after those of undo were kept.
	End(revision uint64, undo []Intent) error
}

// Options of a Reconciler. Zero values mean what is in brackets.
type Options struct {
	// Where what is wanted is kept (nowhere).
	Store Store
	Log   *slog.Logger
	// The most objects in one request (1,024).
	Batch int
	// Before what failed is tried again: at first (100 ms) and, doubling, at most (30 s).
	MinBackoff, MaxBackoff time.Duration
}

// ErrDisconnected is returned where the data plane has to answer and is not there.
var ErrDisconnected = errors.New("no connection to the data plane")

// Reconciler makes a data plane be what its callers want. All methods may be called at any time, also while the data plane is
// slow; none but Apply waits for it.
type Reconciler struct {
	registry *object.Registry
	options  Options

	// Held from checking a change until it is wanted, so that revisions are kept in their order.
	changing sync.Mutex

	mu            sync.Mutex
	set           *object.Set
	graph         *graph
	revision      uint64
	link          *link // nil: there is no connection
	inSync        bool  // everything was listed on this connection, and nothing is unknown since
	transactions  map[*transaction]struct{}
	subscriptions map[*Subscription]struct{}
	retries       retries
	sortedKeys    []object.Key
	sortedAt      uint64

	kick chan struct{}
}

// New returns a Reconciler that wants nothing yet and has no data plane.
func New(registry *object.Registry, options Options) *Reconciler {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.Batch <= 0 {
		options.Batch = 1024
	}
	if options.MinBackoff <= 0 {
		options.MinBackoff = 100 * time.Millisecond
	}
	if options.MaxBackoff <= 0 {
		options.MaxBackoff = 30 * time.Second
	}
	r := &Reconciler{
		registry: registry, options: options, set: object.NewSet(registry),
		transactions: map[*transaction]struct{}{}, subscriptions: map[*Subscription]struct{}{},
		kick: make(chan struct{}, 1),
	}
	r.graph = newGraph(registry, time.Now, r.changed)
	r.graph.generation = 1
	return r
}

// Load wants what was wanted when the program ended. Call it once, before anything else. Errors mean that what was kept is not
// acceptable (any more); then nothing is wanted.
func (r *Reconciler) Load(intents []Intent) error {
	changes := make([]object.Change, len(intents))
	for i, intent := range intents {
		changes[i] = object.Put(intent.Object)
	}
	x, err := r.registry.Examine(changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.set.ApplyExamined(x)
	}
	if err != nil {
		return fmt.Errorf("what was kept is not acceptable: %w", err)
	}
	r.graph.reserve(len(intents), x.Claims())
	for i, intent := range intents {
		r.revision = max(r.revision, intent.Revision)
		r.graph.setWant(changes[i].Key, newVersion(intent.Object, x.Facts[i], intent.Owner, intent.Revision), nil)
	}
	r.wakeUp()
	return nil
}

// changed tells subscribers. r.mu is held.
func (r *Reconciler) changed(e *entry) {
	if len(r.subscriptions) == 0 {
		return
	}
	event := Event{Status: r.statusOf(e)}
	for s := range r.subscriptions {
		s.publish(event)
	}
}

func (r *Reconciler) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
