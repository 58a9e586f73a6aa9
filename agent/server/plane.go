package server

import (
	"context"
	"iter"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// plane is one connection to the data plane, as the reconciler sees it. Each connection has its own, so that two can be told
// apart.
type plane struct {
	client *dataplane.Client
}

func (p *plane) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	all := make([]*api.Object, len(objects))
	for i, o := range objects {
		all[i] = &api.Object{Kind: o.Key.Kind, Name: o.Key.Name, Spec: o.Spec}
	}
	p.client.Put(all, func(results []*api.Result, err error) { answered(converted(results), err) })
}

func (p *plane) Delete(_ context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	all := make([]*api.ObjectName, len(keys))
	for i, k := range keys {
		all[i] = &api.ObjectName{Kind: k.Kind, Name: k.Name}
	}
	p.client.Delete(all, func(results []*api.Result, err error) { answered(converted(results), err) })
}

func converted(results []*api.Result) []reconcile.Result {
	all := make([]reconcile.Result, len(results))
	for i, r := range results {
		all[i] = reconcile.Result{Code: r.GetCode(), Message: r.GetMessage()}
	}
	return all
}

// Watch implements reconcile.Plane.
func (p *plane) Watch(ctx context.Context, told func(reconcile.Change)) (reconcile.Mark, error) {
	boot, generation, err := p.client.Changes(ctx, func(e *api.Event) {
		c := e.GetChanged()
		change := reconcile.Change{Generation: c.GetGeneration(), By: c.GetBy(), Lost: e.GetLost() > 0}
		switch o, d := c.GetObject(), c.GetDeleted(); {
		case o != nil:
			change.Key, change.Spec = object.Key{Kind: o.GetKind(), Name: o.GetName()}, o.GetSpec()
		case d != nil:
			change.Key, change.Deleted = object.Key{Kind: d.GetKind(), Name: d.GetName()}, true
		case c == nil && !change.Lost:
			return
		}
		told(change)
	})
	return reconcile.Mark{Boot: boot, Generation: generation}, err
}

func (p *plane) List(ctx context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(yield func([]reconcile.Object, error) bool) {
		for page, err := range p.client.Pages(ctx, "") {
			objects := make([]reconcile.Object, len(page))
			for i, o := range page {
				objects[i] = reconcile.Object{Key: object.Key{Kind: o.GetKind(), Name: o.GetName()}, Spec: o.GetSpec()}
			}
			if !yield(objects, err) {
				return
			}
		}
	}
}
