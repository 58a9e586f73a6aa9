// SPDX-License-Identifier: Apache-2.0

// Volatile objects: objects of services, such as sessions, routes, neighbours and security associations.
package intent

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Producer writes the volatile objects of one life of a service. They live in memory: no revision, no history, no disk. The data plane keeps the
// service's name with each, so that they survive a restart of the agent until the service calls Complete. A Producer may be used by
// several goroutines.
type Producer struct {
	desired *Desired
	name    string

	life *reconcile.Origin

	// Guarded by Desired.mu. The service lives.
	open bool
	// Ends the objects of a service that is gone.
	grace *time.Timer
}

var (
	// ErrProducerExists is the error of a second Producer of one name.
	ErrProducerExists = errors.New("the service runs already")
	// ErrProducerClosed is the error of a change by a service that has ended.
	ErrProducerClosed = errors.New("the service has ended")
)

// Producer registers a service. If it was there before in this process, its objects are still there; Complete deletes those that
// it does not produce again.
func (d *Desired) Producer(name string) (*Producer, error) {
	if name == "" {
		return nil, errNoOwner
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, owner := d.config.Owners[name]; owner || name == agentOwner {
		return nil, fmt.Errorf("service %s: configuration has an owner of that name", name)
	}
	if before := d.producers[name]; before != nil {
		if before.open {
			return nil, fmt.Errorf("service %s: %w", name, ErrProducerExists)
		}
		if before.grace != nil {
			before.grace.Stop()
		}
	}
	p := &Producer{desired: d, name: name, open: true, life: &reconcile.Origin{Service: name}}
	d.producers[name] = p
	return p, nil
}

// Waits returns why an object is not Applied, in a sentence; empty: it is.
func (p *Producer) Waits(k object.Key) string {
	s, _ := p.desired.look(k)
	return s.Message
}

// produces reports whether the record belongs to any run of the service. Desired.mu is held.
func (p *Producer) produces(r *Record) bool {
	o := r.producedBy()
	return o != nil && o.Service == p.name
}

// Name returns the service's name, which is the owner of its objects.
func (p *Producer) Name() string { return p.name }

// Refusal is a change of a volatile object that was not made.
type Refusal struct {
	Key object.Key
	Err error
}

// Production is the result of Produce.
type Production struct {
	// Changes that were not made. All others were.
	Refused []Refusal
	work    work
	desired []reconcile.Desired
}

// Done is closed when data planes have carried out all that they can now.
func (p *Production) Done() <-chan struct{} { return p.work.Done() }

// Close must be called once. It returns the operations that data planes carried out, with the last state of deleted
// objects (Operation.Final), and their refusals. Interrupted: a data plane is away; the rest follows when it is back.
func (p *Production) Close() (done []Operation, failures []Failure, interrupted bool) {
	return p.work.Close()
}

// Part is the result of the changes in one data plane.
type Part struct {
	work    *reconcile.Work
	desired []reconcile.Desired
}

// Done and Close are as a Production's.
func (p *Part) Done() <-chan struct{} { return p.work.Done() }

// Close returns operations that must not be changed.
func (p *Part) Close() (done []*Operation, failures []Failure, interrupted bool) {
	return p.work.End()
}

// Keys are the changes that concern the data plane, in the order in which they were produced. Operation.Place counts them.
func (p *Part) Keys() iter.Seq[object.Key] {
	return func(yield func(object.Key) bool) {
		for i := range p.desired {
			if !yield(p.desired[i].Key) {
				return
			}
		}
	}
}

// Parts returns the Production by data plane. Each of them must be closed once, instead of the Production.
func (p *Production) Parts() []*Part {
	if one, single := p.work.(*reconcile.Work); single {
		return []*Part{{one, p.desired}}
	}
	all := p.work.(*works)
	var parts []*Part
	for i, part := range all.parts {
		parts = append(parts, &Part{part, all.desired[i]})
	}
	return parts
}

// refuseRounds is how often a batch is checked again without the objects that are not acceptable, before each is checked alone.
const refuseRounds = 8

// Produce makes the changes, each of another object and by itself. The objects must not be changed afterwards. It waits for nothing.
func (p *Producer) Produce(changes []object.Change) *Production {
	out := &Production{}
	x := p.examine(changes, out)
	d := p.desired
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.open {
		for _, k := range x.Keys {
			out.Refused = append(out.Refused, Refusal{k, ErrProducerClosed})
		}
		x = &object.Examined{}
	}
	p.own(x, out)
	x = p.placed(x, out)
	out.desired = p.hand(x)
	out.work = d.sites.setDesired(out.desired, false)
	return out
}

// examine checks each object by itself.
func (p *Producer) examine(changes []object.Change, out *Production) *object.Examined {
	for len(changes) > 0 {
		x, err := p.desired.registry.Examine(changes)
		if err == nil {
			return x
		}
		wrong := out.refuse(err)
		if len(wrong) == 0 {
			break
		}
		changes = slices.DeleteFunc(slices.Clone(changes), func(c object.Change) bool { return wrong[c.Key] })
	}
	return &object.Examined{}
}

// refuse notes the mistakes of an error by object.
func (p *Production) refuse(err error) map[object.Key]bool {
	wrong := map[object.Key]bool{}
	for _, m := range object.AllErrors(err) {
		if !wrong[m.Object] {
			wrong[m.Object] = true
			p.Refused = append(p.Refused, Refusal{m.Object, m})
		}
	}
	return wrong
}

// own leaves out changes without effect, and refuses objects of other owners. d.mu is held.
func (p *Producer) own(x *object.Examined, out *Production) {
	d, here := p.desired, 0
	refuse := func(k object.Key, problem string) {
		out.Refused = append(out.Refused, Refusal{k, &object.Error{Object: k, Problem: problem, Accepted: "objects that service " + p.name + " produces"}})
	}
	for i, k := range x.Keys {
		stored, r := x.Objects[i], d.records.Get(k)
		switch {
		case r != nil && !p.produces(r):
			refuse(k, "belongs to "+r.owner())
		case r == nil && stored == nil:
		case r == nil && d.sites.has(k):
			refuse(k, "configuration is about to create or delete it")
		case stored != nil && d.sites.placesOf(stored) == 0:
			out.Refused = append(out.Refused, Refusal{k, d.sites.unplaced(stored)})
		case r != nil && stored != nil && r.own.Origin == p.life && r.merged().Equal(stored):
		default:
			x.Keys[here], x.Objects[here] = k, stored
			here++
		}
	}
	x.Keys, x.Objects = x.Keys[:here], x.Objects[:here]
}

// placed refuses objects that conflict with other objects. The sets then have the rest. d.mu is held.
func (p *Producer) placed(x *object.Examined, out *Production) *object.Examined {
	for range refuseRounds {
		err := p.desired.sites.apply(x)
		if err == nil {
			return x
		}
		wrong := out.refuse(err)
		rest := &object.Examined{}
		for i, k := range x.Keys {
			if !wrong[k] {
				rest.Keys, rest.Objects = append(rest.Keys, k), append(rest.Objects, x.Objects[i])
			}
		}
		if len(rest.Keys) == len(x.Keys) {
			break
		}
		x = rest
	}
	fit := &object.Examined{}
	for i, k := range x.Keys {
		one := &object.Examined{Keys: x.Keys[i : i+1], Objects: x.Objects[i : i+1]}
		if err := p.desired.sites.apply(one); err != nil {
			out.Refused = append(out.Refused, Refusal{k, err})
			continue
		}
		fit.Keys, fit.Objects = append(fit.Keys, k), append(fit.Objects, x.Objects[i])
	}
	return fit
}

// hand makes the records. d.mu is held.
func (p *Producer) hand(x *object.Examined) []reconcile.Desired {
	d, now := p.desired, time.Now().UnixNano()
	desired := make([]reconcile.Desired, len(x.Keys))
	for i, k := range x.Keys {
		desired[i].Key = k
		if x.Objects[i] == nil {
			d.records.Delete(k)
			d.index.added.add(k)
			continue
		}
		r := alone(Layer{Owner: p.name, StoredObject: x.Objects[i]})
		r.own.Origin, r.Accepted, r.Generation = p.life, now, 1
		if before, _ := d.records.Put(r); before == nil {
			d.index.added.add(k)
		} else {
			r.Generation = before.Generation + 1
		}
		r.version = versionOf(r)
		desired[i].Version = r.version
	}
	return desired
}

// Complete reports that the service has produced all its objects. Objects of an earlier run of the service that are
// not among them are deleted.
func (p *Producer) Complete() {
	d := p.desired
	lives := func() bool { return p.open }
	p.forget(lives, func(r *Record) bool { return r.own.Origin != p.life })
	d.mu.RLock()
	complete := lives()
	d.mu.RUnlock()
	if complete {
		d.sites.release(p.name)
	}
}

// forgetAtOnce is how many objects are deleted while other producers wait.
const forgetAtOnce = 256

// forget deletes the service's objects that match, as long as it may: a few at a time, those first that need others. d.mu is not held.
func (p *Producer) forget(may func() bool, match func(*Record) bool) {
	d := p.desired
	var old []object.Key
	d.eachRecord(func(r *Record) {
		if p.produces(r) && match(r) {
			old = append(old, r.Key())
		}
	})
	slices.SortStableFunc(old, func(a, b object.Key) int { return d.registry.Kind(b.Kind).Rank - d.registry.Kind(a.Kind).Rank })
	for some := range slices.Chunk(old, forgetAtOnce) {
		d.pass()
		if !p.forgetSome(some, may, match) {
			return
		}
	}
}

// forgetSome deletes those of the objects that still match.
func (p *Producer) forgetSome(keys []object.Key, may func() bool, match func(*Record) bool) bool {
	d := p.desired
	d.mu.Lock()
	defer d.mu.Unlock()
	if !may() {
		return false
	}
	x := &object.Examined{}
	for _, k := range keys {
		if r := d.records.Get(k); p.produces(r) && match(r) {
			x.Keys, x.Objects = append(x.Keys, k), append(x.Objects, nil)
		}
	}
	// Deletions are always acceptable.
	if err := d.sites.apply(x); err != nil {
		d.config.Log.Error("deleting volatile objects", "service", p.name, "error", err)
		return false
	}
	d.sites.setDesired(p.hand(x), false).Close()
	return true
}

// Close ends the service. Its objects stay for a grace time, within which it may be registered again.
func (p *Producer) Close(grace time.Duration) {
	d := p.desired
	d.mu.Lock()
	defer d.mu.Unlock()
	p.open = false
	if !d.ended {
		p.grace = time.AfterFunc(grace, p.expire)
	}
}

// expire deletes the objects of a service that did not come back. Each step looks whether it is back: a service that registers afterwards
// keeps what it produces.
func (p *Producer) expire() {
	d := p.desired
	gone := func() bool { return d.producers[p.name] == p }
	p.forget(gone, func(*Record) bool { return true })
	d.mu.Lock()
	over := gone()
	d.mu.Unlock()
	if over {
		d.sites.release(p.name)
		d.config.Log.Warn("a service did not come back; its objects are deleted", "service", p.name)
	}
}

// Unclaimed returns the services of which data planes have objects that no service here produces, and how many objects.
func (d *Desired) Unclaimed() map[string]int {
	all := map[string]int{}
	for _, s := range d.sites {
		for owner, count := range s.plane.Retained() {
			all[owner] += count
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name, p := range d.producers {
		if p.open {
			delete(all, name)
		}
	}
	return all
}

// Release deletes a service's objects from data planes, unless the service runs here.
func (d *Desired) Release(service string) {
	d.mu.RLock()
	p := d.producers[service]
	runs := p != nil && p.open
	d.mu.RUnlock()
	if !runs {
		d.sites.release(service)
	}
}

// produced is the error of an owner of configuration that changes a service's object.
func (d *Desired) produced(k object.Key, r *Record) *object.Error {
	if d.config.MadeFor != nil {
		if of, known := d.config.MadeFor(k); known {
			return &object.Error{Object: k, Problem: "is a volatile object of service " + r.producedBy().Service + " for " + of.String(), Accepted: "a change or deletion of " + of.String()}
		}
	}
	return &object.Error{Object: k, Problem: "is a volatile object of service " + r.producedBy().Service, Accepted: "a change by that service"}
}
