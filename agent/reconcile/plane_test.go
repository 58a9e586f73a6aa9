package reconcile

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
)

const (
	noEntry = 2
	busy    = 16
	exists  = 17
	noSpace = 28
)

var errGone = errors.New("connection reset")

// mockPlane behaves as the data plane does: it refuses what names something that is not there, what takes what another has, and
// the deletion of what is in use.
type mockPlane struct {
	registry *object.Registry
	mu       sync.Mutex
	objects  map[object.Key]*object.Object
	specs    map[object.Key][]byte
	users    map[object.Key]int
	holdings *object.Holdings
	// What was done, in order.
	log []string
	// Chances in a thousand that an object is refused, and that a request ends with an error.
	refuse, drop int
	random       *rand.Rand
	// Called before each request.
	before func()
	// Objects that are always refused.
	never map[object.Key]bool
	// What an object needs although it does not name it.
	needs map[object.Key]object.Key
	// How many were refused, and the requests that were made.
	refused, requests int
}

func newMockPlane(r *object.Registry) *mockPlane {
	return &mockPlane{
		registry: r, objects: map[object.Key]*object.Object{}, specs: map[object.Key][]byte{}, users: map[object.Key]int{},
		holdings: object.NewHoldings(), never: map[object.Key]bool{},
	}
}

func (p *mockPlane) chance(thousandths int) bool {
	return p.random != nil && p.random.IntN(1000) < thousandths
}

func (p *mockPlane) request(ctx context.Context) error {
	p.mu.Lock()
	p.requests++
	p.mu.Unlock()
	if p.before != nil {
		p.before()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return nil
}

func (p *mockPlane) Put(ctx context.Context, objects []Object) ([]Result, error) {
	if err := p.request(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var results []Result
	for _, o := range objects {
		if p.chance(p.drop) {
			return nil, errGone
		}
		r := p.put(o)
		if r.Code != 0 {
			p.refused++
		}
		results = append(results, r)
	}
	if p.chance(p.drop) {
		return nil, errGone
	}
	return results, nil
}

func (p *mockPlane) put(packed Object) Result {
	k := packed.Key
	o, err := p.registry.New(k.Kind, k.Name, nil, packed.Spec)
	if err != nil {
		return Result{22, err.Error()}
	}
	if p.never[k] || p.chance(p.refuse) {
		return Result{noSpace, k.String() + ": no room"}
	}
	for _, ref := range p.registry.References(o) {
		if p.objects[ref.To] == nil && !ref.Builtin {
			return Result{noEntry, k.String() + ": " + ref.Field + ": no " + ref.To.String()}
		}
	}
	if needed, ok := p.needs[k]; ok && p.objects[needed] == nil {
		return Result{noEntry, k.String() + ": no " + needed.String()}
	}
	for _, c := range p.registry.Claims(o) {
		if holder, taken := p.holdings.Holder(k, c); taken {
			return Result{exists, holder.String() + " has " + c.String()}
		}
	}
	old := p.objects[k]
	if old != nil && p.registry.Kind(k.Kind).Replaces(old.Spec, o.Spec) {
		return Result{22, k.String() + ": cannot change in place"}
	}
	p.forget(k)
	p.objects[k], p.specs[k] = o, packed.Spec
	for _, ref := range p.registry.References(o) {
		p.users[ref.To]++
	}
	for _, c := range p.registry.Claims(o) {
		p.holdings.Take(k, c)
	}
	verb := "create"
	if old != nil {
		verb = "update"
	}
	p.log = append(p.log, verb+" "+k.String())
	return Result{}
}

func (p *mockPlane) forget(k object.Key) {
	o := p.objects[k]
	if o == nil {
		return
	}
	for _, ref := range p.registry.References(o) {
		p.users[ref.To]--
	}
	for _, c := range p.registry.Claims(o) {
		p.holdings.Release(k, c)
	}
	delete(p.objects, k)
	delete(p.specs, k)
}

func (p *mockPlane) Delete(ctx context.Context, keys []object.Key) ([]Result, error) {
	if err := p.request(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var results []Result
	for _, k := range keys {
		if p.chance(p.drop) {
			return nil, errGone
		}
		switch {
		case p.objects[k] == nil:
			results = append(results, Result{})
		case p.users[k] > 0 || p.needed(k):
			p.refused++
			results = append(results, Result{busy, k.String() + " is in use"})
		case p.never[k] || p.chance(p.refuse):
			results = append(results, Result{busy, k.String() + ": not now"})
		default:
			p.forget(k)
			p.log = append(p.log, "delete "+k.String())
			results = append(results, Result{})
		}
	}
	return results, nil
}

func (p *mockPlane) List(ctx context.Context) iter.Seq2[[]Object, error] {
	return func(yield func([]Object, error) bool) {
		if err := p.request(ctx); err != nil {
			yield(nil, err)
			return
		}
		p.mu.Lock()
		var all []Object
		for k, spec := range p.specs {
			all = append(all, Object{k, slices.Clone(spec)})
		}
		fails := p.chance(p.drop)
		p.mu.Unlock()
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

func (p *mockPlane) needed(k object.Key) bool {
	for user, needed := range p.needs {
		if needed == k && p.objects[user] != nil {
			return true
		}
	}
	return false
}

// restart forgets everything, as a data plane does that is started again.
func (p *mockPlane) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects, p.specs, p.users = map[object.Key]*object.Object{}, map[object.Key][]byte{}, map[object.Key]int{}
	p.holdings = object.NewHoldings()
}

func (p *mockPlane) takeLog() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

// differences says how the plane differs from what is wanted.
func (p *mockPlane) differences(wanted map[object.Key]*object.Object) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for k, o := range wanted {
		if !ready(p.registry, wanted, o) {
			continue // absent, or as it was before somebody changed it to need what is not there
		}
		spec, err := object.Pack(o.Spec)
		if err != nil {
			found = append(found, err.Error())
		} else if p.specs[k] == nil && p.objects[k] == nil {
			found = append(found, k.String()+" is missing")
		} else if !bytes.Equal(p.specs[k], spec) {
			found = append(found, k.String()+" is not as wanted")
		}
	}
	for k := range p.objects {
		if wanted[k] == nil && p.users[k] == 0 {
			found = append(found, k.String()+" is there, although nobody wants or uses it")
		}
	}
	slices.Sort(found)
	return found
}

// ready says whether everything that an object needs, and that needs, is wanted.
func ready(r *object.Registry, wanted map[object.Key]*object.Object, o *object.Object) bool {
	for _, ref := range r.References(o) {
		if ref.Builtin {
			continue
		}
		t := wanted[ref.To]
		if t == nil || !ready(r, wanted, t) {
			return false
		}
	}
	return true
}

func describe(ops []Operation) []string {
	var all []string
	for _, op := range ops {
		all = append(all, fmt.Sprintf("%s %s", op.Action, op.Key))
	}
	return all
}

// willingPlane keeps everything and refuses nothing, so that a benchmark measures the Reconciler.
type willingPlane map[object.Key][]byte

func (p willingPlane) Put(_ context.Context, objects []Object) ([]Result, error) {
	for _, o := range objects {
		p[o.Key] = o.Spec
	}
	return make([]Result, len(objects)), nil
}

func (p willingPlane) Delete(_ context.Context, keys []object.Key) ([]Result, error) {
	for _, k := range keys {
		delete(p, k)
	}
	return make([]Result, len(keys)), nil
}

func (p willingPlane) List(context.Context) iter.Seq2[[]Object, error] {
	return func(yield func([]Object, error) bool) {
		var all []Object
		for k, spec := range p {
			all = append(all, Object{k, slices.Clone(spec)})
		}
		for page := range slices.Chunk(all, 10_000) {
			if !yield(page, nil) {
				return
			}
		}
	}
}
