package intent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Config of Desired. Zero values mean what is in brackets.
type Config struct {
	Registry *object.Registry
	// Where what is wanted is kept (in memory).
	Store Store
	Log   *slog.Logger
	// Those that are not like the others.
	Owners map[string]Owner
	// How many revisions (1,000) and events (65,536) are kept.
	Revisions, Events int
	// Of the reconcilers.
	Reconciler reconcile.Options
}

// Desired is what is wanted, and who makes it so. It implements Interface.
type Desired struct {
	config   Config
	registry *object.Registry
	plane    *reconcile.Reconciler
	log      *eventLog

	// Held from checking a change until it is wanted, so that revisions are kept in their order.
	changing sync.Mutex

	mu       sync.RWMutex
	set      *object.Set
	records  map[object.Key]*Record
	revision uint64
	// Revisions that are undone when their time is over.
	unconfirmed map[uint64]*time.Timer

	index index
	// Timers that have fired.
	firing sync.WaitGroup
	ended  bool
}

var _ Interface = (*Desired)(nil)

// New returns a Desired that wants what its store says. Those errors mean that what was kept is not acceptable (any more).
func New(config Config) (*Desired, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Store == nil {
		config.Store = newMemory()
	}
	if config.Revisions <= 0 {
		config.Revisions = 1000
	}
	if config.Events <= 0 {
		config.Events = 1 << 16
	}
	d := &Desired{
		config: config, registry: config.Registry, set: object.NewSet(config.Registry), records: map[object.Key]*Record{},
		unconfirmed: map[uint64]*time.Timer{}, log: newEventLog(config.Events),
	}
	options := config.Reconciler
	if options.Log == nil {
		options.Log = config.Log
	}
	options.Changed = d.log.publish
	d.plane = reconcile.New(config.Registry, options)
	if err := d.load(); err != nil {
		return nil, fmt.Errorf("what was kept: %w", err)
	}
	return d, nil
}

// load wants what was wanted when the program ended, but for what was not finished then.
func (d *Desired) load() error {
	x := &object.Examined{}
	latest, open, err := d.config.Store.Load(func(k object.Key, r *Record) error {
		d.sortLayers(r.Layers)
		d.records[k] = r
		if kept := r.kept(); kept != nil {
			x.Keys, x.Kept = append(x.Keys, k), append(x.Kept, kept)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.revision = latest
	if err = d.registry.ExamineKept(x.Kept); err == nil {
		_, err = d.set.ApplyExamined(x)
	}
	if err != nil {
		return err
	}
	wants := make([]reconcile.Want, len(x.Keys))
	for i, k := range x.Keys {
		r := d.records[k]
		r.version = versionOf(r)
		wants[i] = reconcile.Want{Key: k, Version: r.version}
	}
	d.index.add(slices.Collect(maps.Keys(d.records)))
	d.plane.Want(wants, false).Close()
	d.config.Log.Info("read what is wanted", "objects", len(wants), "revision", latest)
	for _, o := range open {
		if o.Unfinished {
			err = errors.Join(err, d.undo(context.Background(), o.Revision, "the agent ended before all of it was done", false))
		} else {
			d.expect(o.Revision, o.ConfirmBy)
		}
	}
	return err
}

func versionOf(r *Record) *reconcile.Version {
	return &reconcile.Version{Kept: r.kept(), Revision: r.Revision, Generation: r.Generation}
}

// Run makes the data plane be what is wanted until ctx ends. What waits to be confirmed then is undone by the next that is made from
// the same store.
func (d *Desired) Run(ctx context.Context) {
	d.plane.Run(ctx)
	d.mu.Lock()
	d.ended = true
	for _, t := range d.unconfirmed {
		t.Stop()
	}
	d.mu.Unlock()
	d.firing.Wait()
}

// Attach gives Desired a connection to the data plane, in place of any that it had. Nothing is asked of it after ctx ends.
func (d *Desired) Attach(ctx context.Context, plane reconcile.Plane) { d.plane.Attach(ctx, plane) }

// Detach tells that there is no connection any more.
func (d *Desired) Detach() { d.plane.Detach() }

// Revision implements Interface.
func (d *Desired) Revision() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.revision
}

// Settled says whether everything that is wanted is done, or waits for something that is not there. It looks at every object.
func (d *Desired) Settled() bool { return d.plane.Settled() }

// Count implements Interface.
func (d *Desired) Count() map[State]int { return d.plane.Count() }

// Measure implements Interface.
func (d *Desired) Measure() Measurements { return d.plane.Measure() }
