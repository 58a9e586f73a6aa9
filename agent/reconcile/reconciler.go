// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/object"
)

// Options of a Reconciler. The defaults of zero values are in brackets.
type Options struct {
	Log *slog.Logger
	// Called with each change of an object's status, and its time in nanoseconds since the Unix epoch (none). It must
	// return fast, and must not call the Reconciler.
	Changed func(s Status, at int64)
	// Called when the data plane is connected and its state known, and when it is away again (none); like Changed.
	Connected func(bool)
	// Called without locks between the parts of work that takes long (none).
	Between func()
	// The most objects in one request (1,024).
	Batch int
	// The delay before failed objects are tried again: at first (100 ms) and, doubling, at most (30 s).
	MinBackoff, MaxBackoff time.Duration
}

// ErrDisconnected is returned where the data plane has to answer and is not there.
var ErrDisconnected = errors.New("no connection to the data plane")

// Reconciler brings one data plane to its desired state. All methods may be called at any time, also while the data
// plane is slow; none waits for it. The desired objects must be acceptable together.
type Reconciler struct {
	registry *object.Registry
	options  Options

	mu     sync.Mutex
	graph  *graph
	link   *link     // nil: there is no connection
	lost   time.Time // the connection before, if there was one
	inSync bool      // everything was listed on this connection, and nothing is unknown since
	// The data plane's mark when it was last connected; and whether the state at that time is known.
	known     Mark
	resumable bool
	// Recent changes of other clients.
	drifts       map[object.Key]drift
	transactions map[*transaction]struct{}
	retries      deadline.Queue[*retry]
	// How many callers of SetDesired are at work: no steps are decided about until they are done.
	changing int

	kick chan struct{}
}

// New returns a Reconciler without desired state and without a data plane.
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
		registry: registry, options: options, drifts: map[object.Key]drift{}, transactions: map[*transaction]struct{}{}, kick: make(chan struct{}, 1),
	}
	r.graph = newGraph(registry, time.Now, r.changed)
	return r
}

// changed calls the listener. r.mu is held.
func (r *Reconciler) changed(e *entry) {
	if r.options.Changed != nil {
		r.options.Changed(r.statusOf(e), r.graph.at)
	}
}

func (r *Reconciler) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
