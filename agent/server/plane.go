// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"iter"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// plane is one connection to the data plane, for the reconciler. Each connection has its own, so that two can be told
// apart.
type plane struct {
	client *dataplane.Client
}

func (p *plane) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	all := make([]dataplane.Packed, len(objects))
	for i := range objects {
		o := &objects[i]
		all[i] = dataplane.Packed{Kind: o.Key.Kind, Name: o.Key.Name, Spec: o.Spec, Owner: o.Owner}
	}
	p.client.Put(all, func(results []dataplane.Result, err error) { answered(converted(results), err) })
}

func (p *plane) Delete(_ context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	all := make([]dataplane.Packed, len(keys))
	for i, k := range keys {
		all[i] = dataplane.Packed{Kind: k.Kind, Name: k.Name}
	}
	p.client.Delete(all, func(results []dataplane.Result, err error) { answered(converted(results), err) })
}

func converted(results []dataplane.Result) []reconcile.Result {
	all := make([]reconcile.Result, len(results))
	for i, r := range results {
		all[i] = reconcile.Result(r)
	}
	return all
}

// Watch implements reconcile.Plane.
func (p *plane) Watch(ctx context.Context, changed func(reconcile.Change)) (reconcile.Mark, error) {
	boot, generation, err := p.client.Changes(ctx, func(e *api.Event) {
		c := e.GetChanged()
		change := reconcile.Change{Generation: c.GetGeneration(), By: c.GetBy(), Lost: e.GetLost() > 0}
		switch o, d := c.GetObject(), c.GetDeleted(); {
		case o != nil:
			change.Key, change.Spec, change.Owner = object.Key{Kind: o.GetKind(), Name: o.GetName()}, o.GetSpec(), o.GetOwner()
		case d != nil:
			change.Key, change.Deleted = object.Key{Kind: d.GetKind(), Name: d.GetName()}, true
		case c == nil && !change.Lost:
			return
		}
		changed(change)
	})
	return reconcile.Mark{Boot: boot, Generation: generation}, err
}

func (p *plane) List(ctx context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(yield func([]reconcile.Object, error) bool) {
		var objects []reconcile.Object
		for page, err := range p.client.Listing(ctx) {
			objects = objects[:0]
			for i := range page {
				o := &page[i]
				objects = append(objects, reconcile.Object{Key: object.Key{Kind: o.Kind, Name: o.Name}, Spec: o.Spec, Owner: o.Owner})
			}
			if !yield(objects, err) {
				return
			}
		}
	}
}
