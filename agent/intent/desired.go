// SPDX-License-Identifier: Apache-2.0

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

// Config of Desired. The defaults of zero values are in brackets.
type Config struct {
	Registry *object.Registry
	// The store of the configuration (default: in memory).
	Store Store
	Log   *slog.Logger
	// Owners with a priority or other settings.
	Owners map[string]Owner
	// How many revisions (1,000; up to a thirtieth more) and events (65,536) are kept.
	Revisions, Events int
	// The data planes (one, called "default").
	Dataplanes []Dataplane
	// Of the reconcilers.
	Reconciler reconcile.Options
	// Returns the reason why an applied object does not serve: a word and a sentence, both empty if it serves. It
	// must return fast, and not call Desired. It may be nil.
	NotReady func(dataplane string, stored *object.StoredObject) NotReady
	// Returns the configured object for which a service made a volatile one, for errors. It must return fast, and not call Desired. It may be nil.
	MadeFor func(k object.Key) (object.Key, bool)
	// How long to wait before the first repetition of a failed undo (a second).
	UndoAgain time.Duration
	// Which start of the machine this is, and the time since then (the kernel's).
	Boot func() (boot string, since time.Duration)
	// If not nil, called with each undo that the agent does by itself.
	Undone func(Undoing)
}

// Desired is the configuration with its reconcilers. It implements Interface.
type Desired struct {
	config   Config
	registry *object.Registry
	sites    sites
	log      *eventLog

	// Held from the check of a change until it is committed, so that revisions are stored in order.
	changing sync.Mutex

	mu       sync.RWMutex
	records  object.Table[*Record]
	revision uint64
	// The number of the latest revision that was visible for a moment and could not be stored.
	passed uint64
	// Revisions of which it is not known yet whether they stand.
	open *opened

	index     index
	producers map[string]*Producer
	// Why objects are not as they should be because they could not be undone. Nil: there are none.
	left atomic.Pointer[map[object.Key]string]
	// Timers that have fired.
	firing sync.WaitGroup
	ended  bool
}

var _ Interface = (*Desired)(nil)

// New returns a Desired with the configuration of its store. An object.Errors means that the stored configuration is not acceptable (any more).
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
	if config.Boot == nil {
		config.Boot = bootClock
	}
	if config.Events <= 0 {
		config.Events = 1 << 16
	}
	d := &Desired{
		config: config, registry: config.Registry,
		log: newEventLog(config.Events), producers: map[string]*Producer{},
	}
	if len(config.Dataplanes) == 0 {
		config.Dataplanes = []Dataplane{{Name: "default"}}
	}
	if len(config.Dataplanes) > maxSites {
		return nil, fmt.Errorf("%d data planes; accepted: at most %d", len(config.Dataplanes), maxSites)
	}
	for _, plane := range config.Dataplanes {
		options := config.Reconciler
		if options.Log == nil {
			options.Log = config.Log
		}
		options.Log = options.Log.With("dataplane", plane.Name)
		options.Changed = func(s reconcile.Status, at int64) {
			e := logStatus(s)
			e.time = at
			d.log.publish(e)
		}
		options.Connected = func(is bool) { d.log.publish(logged{rare: &rare{plane: &DataplaneChange{plane.Name, is}}}) }
		d.sites = append(d.sites, &site{plane, reconcile.New(config.Registry, options), object.NewSet(config.Registry)})
	}
	if err := d.load(); err != nil {
		return nil, fmt.Errorf("the stored configuration: %w", err)
	}
	return d, nil
}

// load reads the stored configuration, and finds changes that the last run did not finish.
func (d *Desired) load() error {
	x := &object.Examined{}
	latest, open, err := d.config.Store.Load(func(k object.Key, r *Record) error {
		if err := d.merge(r); err != nil {
			return err
		}
		d.records.Put(r)
		if stored := r.merged(); stored != nil {
			x.Objects = append(x.Objects, stored)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.revision = latest
	if err = d.registry.ExamineStored(x.Objects); err != nil {
		return err
	}
	x.Keys = make([]object.Key, len(x.Objects))
	for i, stored := range x.Objects {
		x.Keys[i] = stored.Key()
	}
	if err = d.sites.apply(x); err != nil {
		return err
	}
	desired := make([]reconcile.Desired, len(x.Keys))
	for i, k := range x.Keys {
		r := d.records.Get(k)
		r.version = versionOf(r)
		desired[i] = reconcile.Desired{Key: k, Version: r.version}
	}
	for _, k := range d.known() {
		d.index.added.add(k)
	}
	d.sites.setDesired(desired, false).Close()
	d.config.Log.Info("configuration read", "objects", len(desired), "revision", latest)
	for len(open) > 1 {
		// An older release had several.
		d.config.Log.Warn("a revision that waited to be confirmed stands, because a later one waits, too", "revision", open[0].Revision)
		if err := d.config.Store.Settle(open[0].Revision, nil, nil); err != nil {
			return err
		}
		open = open[1:]
	}
	for _, o := range open {
		if !d.resume(&o) {
			if err := d.config.Store.Settle(o.Revision, &o, nil); err != nil {
				d.config.Log.Warn("the new start of the time to confirm a revision cannot be stored", "revision", o.Revision, "error", err)
			}
		}
		d.mu.Lock()
		cut := d.begin(o)
		d.mu.Unlock()
		if o.Unfinished {
			// A failed undo does not prevent the start: the agent tries again.
			d.overdue(cut, cutOff)
		}
	}
	return nil
}

// pass is called between the parts of what takes long.
func (d *Desired) pass() {
	if between := d.config.Reconciler.Between; between != nil {
		between()
	}
}

// recordsAtOnce is how many records are looked at while producers wait.
const recordsAtOnce = 1024

// eachRecord calls f with each record, in no order, and locks d.mu for a few at a time. Those that come or go meanwhile may be among them
// or not.
func (d *Desired) eachRecord(f func(*Record)) {
	for next, more := object.Number(0), true; more; more = next != 0 {
		d.pass()
		d.mu.RLock()
		var some []*Record
		some, next = d.records.Some(next, recordsAtOnce)
		for _, r := range some {
			f(r)
		}
		d.mu.RUnlock()
	}
}

// recordFor returns the record of an object, or nil. d.mu is not held.
func (d *Desired) recordFor(k object.Key) *Record {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.records.Get(k)
}

// known returns the keys of all records, in no order. d.mu is not held.
func (d *Desired) known() []object.Key {
	var keys []object.Key
	d.eachRecord(func(r *Record) { keys = append(keys, r.Key()) })
	return keys
}

// versionOf returns the reconciler's form of a record. It is part of the record.
func versionOf(r *Record) *reconcile.Version {
	r.own = reconcile.Version{StoredObject: r.merged(), Revision: r.Revision, Generation: r.Generation, Origin: r.own.Origin}
	return &r.own
}

// Run reconciles the data planes until ctx ends. A revision that waits for its confirmation then is undone by the next Desired from
// the same store.
func (d *Desired) Run(ctx context.Context) {
	d.sites.run(ctx)
	d.mu.Lock()
	d.ended = true
	if o := d.open; o != nil && o.timer != nil {
		o.timer.Stop()
	}
	d.mu.Unlock()
	d.firing.Wait()
}

// Attach gives Desired a connection to its first data plane, in place of an earlier one. The plane is not used after
// ctx ends.
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

// Detach reports that the connection to the first data plane has ended.
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

// Settled returns whether every object is applied, or waits for an object that does not exist. It looks at every object.
func (d *Desired) Settled() bool {
	return !slices.ContainsFunc(d.sites, func(s *site) bool { return !s.plane.Settled() })
}

// Count implements Interface. With several data planes it looks at every object.
func (d *Desired) Count() map[State]int {
	if len(d.sites) == 1 {
		return d.sites[0].plane.Count()
	}
	keys := d.known()
	notDesired, _ := d.sites.notDesired(nil)
	counts := map[State]int{}
	published := make(map[object.Key]struct{}, len(keys))
	for _, k := range append(keys, notDesired...) {
		if _, again := published[k]; !again {
			published[k] = struct{}{}
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
