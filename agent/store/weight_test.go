// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// sessions are as a BNG has them: with addresses, an ACL, meters and labels.
func sessions(t testing.TB, r *object.Registry, n int) []object.Change {
	t.Helper()
	changes := []object.Change{
		object.Put(&object.Object{Kind: "Port", Name: "access", Spec: &api.Port{Device: "net_null0"}}),
		object.Put(&object.Object{Kind: "Acl", Name: "web", Spec: &api.Acl{}}),
		object.Put(&object.Object{Kind: "Meter", Name: "gold", Spec: &api.Meter{CommittedRate: 1e8, CommittedBurst: 1e6, ExcessBurst: 1e6}}),
	}
	for i := range n {
		spec, err := object.Pack(&api.Session{
			Access:    &api.Access{Port: "access", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)},
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&65535)},
			Policy:    &api.Policy{AclUp: "web", MeterUp: "gold", MeterDown: "gold"},
		})
		must(t, err)
		o, err := r.New("Session", fmt.Sprintf("subscriber-%d", i), map[string]string{"city": "bonn"}, spec)
		must(t, err)
		changes = append(changes, object.Put(o))
	}
	return changes
}

// forgetful accepts all objects and stores nothing: its memory is not the agent's.
type forgetful struct{ reconciletest.Willing }

func (forgetful) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	answered(make([]reconcile.Result, len(objects)), nil)
}

// BenchmarkMemoryOfSessions: the memory of a BNG's session in the agent, with its status and its record in a file.
func BenchmarkMemoryOfSessions(b *testing.B) {
	const count = 200_000
	for b.Loop() {
		s, err := Open(filepath.Join(b.TempDir(), "intent.db"), registry(b))
		must(b, err)
		d, err := intent.New(intent.Config{Registry: s.registry, Store: s})
		must(b, err)
		go d.Run(b.Context())
		d.Attach(b.Context(), forgetful{})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err = d.Apply(b.Context(), intent.Source{Owner: "test"}, sessions(b, s.registry, count), intent.Options{})
		must(b, err)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/count, "B/object")
		runtime.KeepAlive(d)
		must(b, s.Close())
	}
}
