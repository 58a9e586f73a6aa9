package intent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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
	// How many revisions (1,000; up to a thirtieth more) and events (65,536) are kept.
	Revisions, Events int
	// Those that there are (one, called "default").
	Dataplanes []Dataplane
	// Of the reconcilers.
	Reconciler reconcile.Options
	// Nil, or says why an object does not serve in a data plane that has it as it is wanted: a word and a sentence, both empty if it
	// does. It must be quick, and not ask Desired.
	Hindrance func(dataplane string, kept *object.Kept) (reason, message string)
	// How long to wait before what could not be undone is tried again for the first time (a second).
	UndoAgain time.Duration
	// If not nil, called with what was undone without anybody asking for it.
	Undone func(Undoing)
}

// Desired is what is wanted, and who makes it so. It implements Interface.
type Desired struct {
	config   Config
	registry *object.Registry
	sites    sites
	log      *eventLog

	// Held from checking a change until it is wanted, so that revisions are kept in their order.
	changing sync.Mutex

	mu       sync.RWMutex
	records  object.Table[*Record]
	revision uint64
	// The number of the latest that was wanted for a moment and not kept.
	passed uint64
	// Revisions of which it is not known yet whether they stand.
	open map[uint64]*opened

	index index
	// Why objects are not as they should be because they could not be undone. Nil: there are none.
	left atomic.Pointer[map[object.Key]string]
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
	if config.UndoAgain <= 0 {
		config.UndoAgain = time.Second
	}
	if config.Events <= 0 {
		config.Events = 1 << 16
	}
	d := &Desired{
		config: config, registry: config.Registry,
		open: map[uint64]*opened{}, log: newEventLog(config.Events),
	}
	if len(config.Dataplanes) == 0 {
		config.Dataplanes = []Dataplane{{Name: "default"}}
	}
	if len(config.Dataplanes) > mostSites {
		return nil, fmt.Errorf("%d data planes; accepted: at most %d", len(config.Dataplanes), mostSites)
	}
	for _, plane := range config.Dataplanes {
		options := config.Reconciler
		if options.Log == nil {
			options.Log = config.Log
		}
		options.Log = options.Log.With("dataplane", plane.Name)
		options.Changed = func(s reconcile.Status) { d.log.publish(logStatus(s)) }
		options.Connected = func(is bool) { d.log.publish(logged{rare: &rare{plane: &DataplaneChange{plane.Name, is}}}) }
		d.sites = append(d.sites, &site{plane, reconcile.New(config.Registry, options), object.NewSet(config.Registry)})
	}
	if err := d.load(); err != nil {
		return nil, fmt.Errorf("what was kept: %w", err)
	}
	return d, nil
}

// load wants what was wanted when the program ended, but for what was not finished then.
func (d *Desired) load() error {
	x := &object.Examined{}
	latest, open, err := d.config.Store.Load(func(k object.Key, r *Record) error {
		if err := d.merge(r); err != nil {
			return err
		}
		d.records.Put(r)
		if kept := r.kept(); kept != nil {
			x.Kept = append(x.Kept, kept)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.revision = latest
	if err = d.registry.ExamineKept(x.Kept); err != nil {
		return err
	}
	x.Keys = make([]object.Key, len(x.Kept))
	for i, kept := range x.Kept {
		x.Keys[i] = kept.Key()
	}
	if _, err = d.sites.apply(x); err != nil {
		return err
	}
	wants := make([]reconcile.Want, len(x.Keys))
	for i, k := range x.Keys {
		r := d.records.Get(k)
		r.version = versionOf(r)
		wants[i] = reconcile.Want{Key: k, Version: r.version}
	}
	for _, k := range d.known() {
		d.index.added.add(k)
	}
	d.sites.want(wants, false).Close()
	d.config.Log.Info("read what is wanted", "objects", len(wants), "revision", latest)
	d.mu.Lock()
	for _, o := range open {
		d.begin(o)
	}
	d.mu.Unlock()
	// What cannot be undone now keeps nobody from starting: it is tried again.
	for _, o := range slices.Backward(open) {
		if o.Unfinished {
			d.mu.RLock()
			cut := d.open[o.Revision]
			d.mu.RUnlock()
			d.overdue(cut, cutOff)
		}
	}
	return nil
}

// known returns the keys of all records, in no order. d.mu is held.
func (d *Desired) known() []object.Key {
	keys := make([]object.Key, 0, d.records.Len())
	for r := range d.records.All() {
		keys = append(keys, r.Key())
	}
	return keys
}

// versionOf makes what a reconciler is told of a record. It is part of the record.
func versionOf(r *Record) *reconcile.Version {
	r.own = reconcile.Version{Kept: r.kept(), Revision: r.Revision, Generation: r.Generation}
	return &r.own
}

// Run makes the data plane be what is wanted until ctx ends. What waits to be confirmed then is undone by the next that is made from
// the same store.
func (d *Desired) Run(ctx context.Context) {
	d.sites.run(ctx)
	d.mu.Lock()
	d.ended = true
	for _, o := range d.open {
		if o.timer != nil {
			o.timer.Stop()
		}
	}
	d.mu.Unlock()
	d.firing.Wait()
}

// Attach gives Desired a connection to its first data plane, in place of any that it had. Nothing is asked of it after ctx ends.
func (d *Desired) Attach(ctx context.Context, plane reconcile.Plane) {
	d.sites[0].plane.Attach(ctx, plane)
}

// AttachTo is Attach for a data plane by its name.
func (d *Desired) AttachTo(ctx context.Context, name string, plane reconcile.Plane) error {
	s, err := d.sites.named(name)
	if err == nil {
		s.plane.Attach(ctx, plane)
	}
	return err
}

// Detach tells that there is no connection to the first data plane any more.
func (d *Desired) Detach() { d.sites[0].plane.Detach() }

// DetachFrom is Detach for a data plane by its name.
func (d *Desired) DetachFrom(name string) {
	if s, err := d.sites.named(name); err == nil {
		s.plane.Detach()
	}
}

// Revision implements Interface.
func (d *Desired) Revision() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.revision
}

// Settled says whether everything that is wanted is done, or waits for something that is not there. It looks at every object.
func (d *Desired) Settled() bool {
	return !slices.ContainsFunc(d.sites, func(s *site) bool { return !s.plane.Settled() })
}

// Count implements Interface. With several data planes it looks at every object.
func (d *Desired) Count() map[State]int {
	if len(d.sites) == 1 {
		return d.sites[0].plane.Count()
	}
	d.mu.RLock()
	keys := d.known()
	d.mu.RUnlock()
	unwanted, _ := d.sites.unwanted(nil)
	counts := map[State]int{}
	told := make(map[object.Key]struct{}, len(keys))
	for _, k := range append(keys, unwanted...) {
		if _, twice := told[k]; !twice {
			told[k] = struct{}{}
			s, _ := d.look(k)
			counts[s.State]++
		}
	}
	delete(counts, Gone)
	return counts
}

// Measure implements Interface. An object counts at each data plane that it goes to.
func (d *Desired) Measure() map[string]Measurements {
	all := make(map[string]Measurements, len(d.sites))
	for _, s := range d.sites {
		all[s.Name] = s.plane.Measure()
	}
	return all
}
