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

func (p *plane) Put(ctx context.Context, objects []reconcile.Object) ([]reconcile.Result, error) {
	all := make([]*api.Object, len(objects))
	for i, o := range objects {
		all[i] = &api.Object{Kind: o.Key.Kind, Name: o.Key.Name, Spec: o.Spec}
	}
	results, err := p.client.Put(ctx, all)
	return converted(results), err
}

func (p *plane) Delete(ctx context.Context, keys []object.Key) ([]reconcile.Result, error) {
	all := make([]*api.ObjectName, len(keys))
	for i, k := range keys {
		all[i] = &api.ObjectName{Kind: k.Kind, Name: k.Name}
	}
	results, err := p.client.Delete(ctx, all)
	return converted(results), err
}

func converted(results []*api.Result) []reconcile.Result {
	all := make([]reconcile.Result, len(results))
	for i, r := range results {
		all[i] = reconcile.Result{Code: r.GetCode(), Message: r.GetMessage()}
	}
	return all
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
