// SPDX-License-Identifier: Apache-2.0

// Package reconciletest has data planes for tests: one that is as particular as the real one, and one that keeps everything.
package reconciletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

const (
	noEntry = 2
	busy    = 16
	exists  = 17
	noSpace = 28
)

var errGone = errors.New("connection reset")

// Plane behaves as the data plane: it refuses objects that name missing ones, objects that claim what another has,
// and the deletion of objects in use.
type Plane struct {
	registry *object.Registry
	// Held while anything below is used.
	sync.Mutex
	objects  map[object.Key]*object.Object
	specs    map[object.Key][]byte
	owners   map[object.Key]string
	users    map[object.Key]int
	holdings *object.Holdings[object.Key]
	// The operations, in order.
	log []string
	// Chances in a thousand that an object is refused, and that a request ends with an error.
	Refuse, Drop int
	Random       *rand.Rand
	// Called before each request. Locked while it is set.
	Before func()
	// Objects that are always refused, and with which error (ENOSPC).
	Never map[object.Key]bool
	Code  int32
	// Objects that are not made, nor those that were put with them, until their channel is readable. Locked while it
	// is changed.
	Slow map[object.Key]<-chan struct{}
	// Objects that another needs without naming them.
	Needs map[object.Key]object.Key
	// How many were refused, and the requests that were made.
	Refused, Requests int

	// The number of changes of all clients, and the callback of the latest connection.
	mark    reconcile.Mark
	changed func(reconcile.Change)
}

// NewPlane returns an empty data plane.
func NewPlane(r *object.Registry) *Plane {
	return &Plane{
		registry: r, objects: map[object.Key]*object.Object{}, specs: map[object.Key][]byte{}, owners: map[object.Key]string{}, users: map[object.Key]int{},
		holdings: object.NewHoldings(object.Key.Compare), Never: map[object.Key]bool{}, Code: noSpace,
		Slow: map[object.Key]<-chan struct{}{}, mark: reconcile.Mark{Boot: 1, Generation: 1},
	}
}

func (p *Plane) chance(thousandths int) bool {
	return p.Random != nil && p.Random.IntN(1000) < thousandths
}

func (p *Plane) request(ctx context.Context) error {
	p.Lock()
	p.Requests++
	before := p.Before
	p.Unlock()
	if before != nil {
		before()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return nil
}

// Put implements reconcile.Plane.
func (p *Plane) Put(ctx context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	p.Lock()
	var slow <-chan struct{}
	for _, o := range objects {
		if s := p.Slow[o.Key]; s != nil {
			slow = s
		}
	}
	p.Unlock()
	if slow == nil {
		answered(p.put(ctx, objects))
		p.tell()
		return
	}
	go func() {
		<-slow
		answered(p.put(ctx, objects))
		p.tell()
	}()
}

func (p *Plane) put(ctx context.Context, objects []reconcile.Object) ([]reconcile.Result, error) {
	if err := p.request(ctx); err != nil {
		return nil, err
	}
	p.Lock()
	defer p.Unlock()
	var results []reconcile.Result
	for _, o := range objects {
		if p.chance(p.Drop) {
			return nil, errGone
		}
		r := p.Set(o)
		if r.Code != 0 {
			p.Refused++
		}
		results = append(results, r)
	}
	if p.chance(p.Drop) {
		return nil, errGone
	}
	return results, nil
}

// Set puts one object, as Put does. The lock is held.
func (p *Plane) Set(packed reconcile.Object) reconcile.Result {
	k := packed.Key
	o, err := p.registry.New(k.Kind, k.Name, nil, []byte(packed.Spec))
	if err != nil {
		return reconcile.Result{Code: 22, Message: err.Error()}
	}
	if p.Never[k] || p.chance(p.Refuse) {
		return reconcile.Result{Code: p.Code, Message: k.String() + ": no room"}
	}
	for _, ref := range p.registry.References(o) {
		if p.objects[ref.To] == nil && !ref.Builtin {
			return reconcile.Result{Code: noEntry, Message: k.String() + ": " + ref.Field + ": no " + ref.To.String()}
		}
	}
	if needed, ok := p.Needs[k]; ok && p.objects[needed] == nil {
		return reconcile.Result{Code: noEntry, Message: k.String() + ": no " + needed.String()}
	}
	for _, c := range p.registry.Claims(o) {
		if holder, taken := p.holdings.Holder(k, c.Mark()); taken {
			return reconcile.Result{Code: exists, Message: holder.String() + " has " + c.String()}
		}
	}
	old := p.objects[k]
	if old != nil && p.registry.Kind(k.Kind).Replaces(old.Spec, o.Spec) {
		return reconcile.Result{Code: 22, Message: k.String() + ": cannot change in place"}
	}
	p.Forget(k)
	p.mark.Generation++
	p.objects[k], p.specs[k], p.owners[k] = o, []byte(packed.Spec), packed.Owner
	for _, ref := range p.registry.References(o) {
		p.users[ref.To]++
	}
	for _, c := range p.registry.Claims(o) {
		p.holdings.Take(k, c.Mark())
	}
	verb := "create"
	if old != nil {
		verb = "update"
	}
	p.log = append(p.log, verb+" "+k.String())
	return reconcile.Result{}
}

// Forget takes an object away. The lock is held.
func (p *Plane) Forget(k object.Key) {
	o := p.objects[k]
	if o == nil {
		return
	}
	for _, ref := range p.registry.References(o) {
		p.users[ref.To]--
	}
	for _, c := range p.registry.Claims(o) {
		p.holdings.Release(k, c.Mark())
	}
	p.mark.Generation++
	delete(p.objects, k)
	delete(p.specs, k)
	delete(p.owners, k)
}

// Watch implements reconcile.Plane.
func (p *Plane) Watch(ctx context.Context, changed func(reconcile.Change)) (reconcile.Mark, error) {
	if err := p.request(ctx); err != nil {
		return reconcile.Mark{}, err
	}
	p.Lock()
	defer p.Unlock()
	p.changed = changed
	return p.mark, nil
}

// tell reports the number of changes, after an answer.
func (p *Plane) tell() {
	p.Lock()
	defer p.Unlock()
	if p.changed != nil {
		p.changed(reconcile.Change{Generation: p.mark.Generation})
	}
}

// Meddle carries out another client's changes, acceptable or not, and reports them.
func (p *Plane) Meddle(changes ...reconcile.Change) {
	p.Lock()
	defer p.Unlock()
	for _, c := range changes {
		if c.Lost {
			p.changed(c)
			continue
		}
		p.Forget(c.Key)
		if !c.Deleted {
			if r := p.Set(reconcile.Object{Key: c.Key, Spec: string(c.Spec)}); r.Code != 0 {
				panic(r.Message)
			}
		}
		c.Generation = p.mark.Generation
		p.changed(c)
	}
}

// Delete implements reconcile.Plane.
func (p *Plane) Delete(ctx context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	answered(p.delete(ctx, keys))
	p.tell()
}

func (p *Plane) delete(ctx context.Context, keys []object.Key) ([]reconcile.Result, error) {
	if err := p.request(ctx); err != nil {
		return nil, err
	}
	p.Lock()
	defer p.Unlock()
	var results []reconcile.Result
	for _, k := range keys {
		if p.chance(p.Drop) {
			return nil, errGone
		}
		switch {
		case p.objects[k] == nil:
			results = append(results, reconcile.Result{})
		case p.users[k] > 0 || p.needed(k):
			p.Refused++
			results = append(results, reconcile.Result{Code: busy, Message: k.String() + " is in use"})
		case p.Never[k] || p.chance(p.Refuse):
			results = append(results, reconcile.Result{Code: busy, Message: k.String() + ": not now"})
		default:
			var r reconcile.Result
			if p.owners[k] != "" {
				r.Final = []byte("counters of " + k.Name)
			}
			p.Forget(k)
			p.log = append(p.log, "delete "+k.String())
			results = append(results, r)
		}
	}
	return results, nil
}

// List implements reconcile.Plane.
func (p *Plane) List(ctx context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(yield func([]reconcile.Object, error) bool) {
		if err := p.request(ctx); err != nil {
			yield(nil, err)
			return
		}
		p.Lock()
		var all []reconcile.Object
		for k, spec := range p.specs {
			all = append(all, reconcile.Object{Key: k, Spec: string(spec), Owner: p.owners[k]})
		}
		fails := p.chance(p.Drop)
		p.Unlock()
		for page := range slices.Chunk(all, 1000) {
			if !yield(page, nil) {
				return
			}
		}
		if fails {
			yield(nil, errGone)
		}
	}
}

func (p *Plane) needed(k object.Key) bool {
	for user, needed := range p.Needs {
		if needed == k && p.objects[user] != nil {
			return true
		}
	}
	return false
}

// Restart forgets everything, as a data plane does that is started again.
func (p *Plane) Restart() {
	p.Lock()
	defer p.Unlock()
	p.objects, p.specs, p.users = map[object.Key]*object.Object{}, map[object.Key][]byte{}, map[object.Key]int{}
	p.owners = map[object.Key]string{}
	p.holdings = object.NewHoldings(object.Key.Compare)
	p.mark = reconcile.Mark{Boot: p.mark.Boot + 1, Generation: 1}
}

// TakeLog returns the operations since the last call.
func (p *Plane) TakeLog() []string {
	p.Lock()
	defer p.Unlock()
	log := p.log
	p.log = nil
	return log
}

// Differences returns the differences between the plane and the desired state.
func (p *Plane) Differences(objects map[object.Key]*object.Object) []string {
	p.Lock()
	defer p.Unlock()
	var found []string
	for k, o := range objects {
		if !ready(p.registry, objects, o) {
			continue // absent, or as it was before a change to need a missing object
		}
		spec, err := object.Pack(o.Spec)
		if err != nil {
			found = append(found, err.Error())
		} else if p.specs[k] == nil && p.objects[k] == nil {
			found = append(found, k.String()+" is missing")
		} else if !bytes.Equal(p.specs[k], spec) {
			found = append(found, k.String()+" is not as desired")
		}
	}
	for k := range p.objects {
		if objects[k] == nil && p.users[k] == 0 {
			found = append(found, k.String()+" is there, and has no owner and no user")
		}
	}
	slices.Sort(found)
	return found
}

// ready reports whether all that an object needs, directly or not, is desired.
func ready(r *object.Registry, objects map[object.Key]*object.Object, o *object.Object) bool {
	for _, ref := range r.References(o) {
		if ref.Builtin {
			continue
		}
		t := objects[ref.To]
		if t == nil || !ready(r, objects, t) {
			return false
		}
	}
	return true
}

// Describe returns "create Port/p" for each operation.
func Describe(ops []reconcile.Operation) []string {
	var all []string
	for _, op := range ops {
		all = append(all, fmt.Sprintf("%s %s", op.Action, op.Key))
	}
	return all
}

// Willing keeps everything and refuses nothing, so that a benchmark measures the Reconciler.
type Willing map[object.Key][]byte

// Part of reconcile.Plane.
func (p Willing) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	for _, o := range objects {
		p[o.Key] = []byte(o.Spec)
	}
	answered(make([]reconcile.Result, len(objects)), nil)
}

// Part of reconcile.Plane.
func (p Willing) Delete(_ context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	for _, k := range keys {
		delete(p, k)
	}
	answered(make([]reconcile.Result, len(keys)), nil)
}

// Part of reconcile.Plane.
func (p Willing) Watch(context.Context, func(reconcile.Change)) (reconcile.Mark, error) {
	return reconcile.Mark{}, nil
}

// Part of reconcile.Plane.
func (p Willing) List(context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(yield func([]reconcile.Object, error) bool) {
		var all []reconcile.Object
		for k, spec := range p {
			all = append(all, reconcile.Object{Key: k, Spec: string(spec)})
		}
		for page := range slices.Chunk(all, 10_000) {
			if !yield(page, nil) {
				return
			}
		}
	}
}
