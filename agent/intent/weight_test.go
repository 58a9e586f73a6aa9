// SPDX-License-Identifier: Apache-2.0

// Memory of many objects: its size, and the part that each garbage collection scans.
package intent_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// forgetful takes everything and keeps nothing.
type forgetful struct{}

func (forgetful) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	answered(make([]reconcile.Result, len(objects)), nil)
}

func (forgetful) Delete(_ context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	answered(make([]reconcile.Result, len(keys)), nil)
}

func (forgetful) Watch(context.Context, func(reconcile.Change)) (reconcile.Mark, error) {
	return reconcile.Mark{}, nil
}

func (forgetful) List(context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(func([]reconcile.Object, error) bool) {}
}

// subscriber is a session as a BNG has them: with addresses, an ACL, meters and a label.
func subscriber(i int, mss uint32) object.Change {
	return object.Put(&object.Object{Kind: "Session", Name: fmt.Sprintf("subscriber-%d", i), Labels: map[string]string{"city": "bonn"},
		Spec: &api.Session{
			Access:    &api.Access{Port: "access", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)},
			Addresses: []string{fmt.Sprintf("100.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&65535)},
			Policy:    &api.Policy{AclUp: "web", MeterUp: "gold", MeterDown: "gold", Mss: mss},
		}})
}

func TestASessionWeighsLittleAndHasFewPointers(t *testing.T) {
	d, each := populated(t, 25_000)
	if each.bytes > 735 || each.scanned > 365 || each.objects > 4.1 {
		t.Errorf("a session takes %.0f bytes, of which %.0f may hold pointers, in %.2f allocations", each.bytes, each.scanned, each.objects)
	}
	runtime.KeepAlive(d)
}

// populated applies so many sessions, and returns the memory of each.
func populated(tb testing.TB, count int) (d *intent.Desired, each weight) {
	tb.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		tb.Fatal(err)
	}
	if d, err = intent.New(intent.Config{Registry: registry, Events: 1, Revisions: 1}); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(tb.Context()) }()
	tb.Cleanup(func() { <-ended })
	d.Attach(tb.Context(), forgetful{})
	apply := func(changes ...object.Change) {
		out, err := d.Apply(tb.Context(), intent.Source{Owner: "test"}, changes, intent.Options{})
		if err != nil || len(out.Failures) > 0 {
			tb.Fatal(err, out)
		}
	}
	apply(object.Put(&object.Object{Kind: "Port", Name: "access", Spec: &api.Port{Device: "net_null0"}}),
		object.Put(&object.Object{Kind: "Acl", Name: "web", Spec: &api.Acl{}}),
		object.Put(&object.Object{Kind: "Meter", Name: "gold", Spec: &api.Meter{CommittedRate: 1e8, CommittedBurst: 1e6, ExcessBurst: 1e6}}))
	before := weigh()
	changes := make([]object.Change, count)
	for i := range changes {
		changes[i] = subscriber(i, 0)
	}
	apply(changes...)
	changes = nil
	// History is forgotten with the next revision.
	apply(object.Put(&object.Object{Kind: "Acl", Name: "mail", Spec: &api.Acl{}}))
	after := weigh()
	n := float64(count)
	return d, weight{(after.bytes - before.bytes) / n, (after.scanned - before.scanned) / n, (after.objects - before.objects) / n}
}

// processor is the time that this process had of all processors, in seconds.
func processor() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// weight is memory in use: bytes, bytes that may hold pointers, and allocations.
type weight struct{ bytes, scanned, objects float64 }

func weigh() weight {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/heap/objects:objects"}}
	// The first collection may find memory that the second frees.
	runtime.GC()
	runtime.GC()
	metrics.Read(samples)
	return weight{float64(samples[0].Value.Uint64()), float64(samples[1].Value.Uint64()), float64(samples[2].Value.Uint64())}
}

// BenchmarkCollectionBesideSessions: the cost of a garbage collection with many sessions.
func BenchmarkCollectionBesideSessions(b *testing.B) {
	d, each := populated(b, 200_000)
	had := processor()
	for b.Loop() {
		runtime.GC()
	}
	b.ReportMetric((processor()-had)*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(each.bytes, "B/session")
	b.ReportMetric(each.scanned, "scanned-B/session")
	b.ReportMetric(each.objects, "objects/session")
	runtime.KeepAlive(d)
}

// BenchmarkOneChangeBesideSessions: allocations of one change.
func BenchmarkOneChangeBesideSessions(b *testing.B) {
	d, _ := populated(b, 20_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := d.Apply(b.Context(), intent.Source{Owner: "test"}, []object.Change{subscriber(i%20_000, 1000+uint32(i/20_000)%400)}, intent.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
