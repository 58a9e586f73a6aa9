package reconcile

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Options of a Reconciler. Zero values mean what is in brackets.
type Options struct {
	Log *slog.Logger
	// Told whenever how it stands with an object changed (nobody). It must be quick, and must not call the Reconciler.
	Changed func(Status)
	// Told when the data plane is there and what it has is known, and when it is away again (nobody); like Changed.
	Connected func(bool)
	// The most objects in one request (1,024).
	Batch int
	// Before what failed is tried again: at first (100 ms) and, doubling, at most (30 s).
	MinBackoff, MaxBackoff time.Duration
}

// ErrDisconnected is returned where the data plane has to answer and is not there.
var ErrDisconnected = errors.New("no connection to the data plane")

// Reconciler makes one data plane be what is wanted of it. All methods may be called at any time, also while the data plane is
// slow; none waits for it. What it is told to want must be acceptable together.
type Reconciler struct {
	registry *object.Registry
	options  Options

	mu     sync.Mutex
	graph  *graph
	link   *link     // nil: there is no connection
	lost   time.Time // the connection before, if there was one
	inSync bool      // everything was listed on this connection, and nothing is unknown since
	// How the data plane stood when it was last heard of; and whether everything that it had then is known.
	known     Mark
	resumable bool
	// What others changed lately.
	drifts       map[object.Key]drift
	transactions map[*transaction]struct{}
	retries      retries

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
		registry: registry, options: options, drifts: map[object.Key]drift{}, transactions: map[*transaction]struct{}{}, kick: make(chan struct{}, 1),
	}
	r.graph = newGraph(registry, time.Now, r.changed)
	return r
}

// changed tells whoever wants to know. r.mu is held.
func (r *Reconciler) changed(e *entry) {
	if r.options.Changed != nil {
		r.options.Changed(r.statusOf(e))
	}
}

func (r *Reconciler) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}
