// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/heap"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// How often each size is measured: the median counts.
var mockSizes = []struct {
	name           string
	count, repeats int
}{{"1k", 1000, 31}, {"4k", 4000, 15}, {"16k", 16_000, 7}, {"64k", 64_000, 5}, {"1M", 1_000_000, 1}}

// willing accepts everything at once and stores nothing: the measured memory is the agent's.
type willing struct{}

func (willing) Put(_ context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	answered(make([]reconcile.Result, len(objects)), nil)
}

func (willing) Delete(_ context.Context, keys []object.Key, answered func([]reconcile.Result, error)) {
	answered(make([]reconcile.Result, len(keys)), nil)
}

func (willing) Watch(context.Context, func(reconcile.Change)) (reconcile.Mark, error) {
	return reconcile.Mark{}, nil
}

func (willing) List(context.Context) iter.Seq2[[]reconcile.Object, error] {
	return func(func([]reconcile.Object, error) bool) {}
}

func mocks(chosen *regexp.Regexp, say func(result)) error {
	registry, err := object.NewRegistry()
	if err != nil {
		return err
	}
	for _, size := range mockSizes {
		name := "reconcile-mock-" + size.name
		if !chosen.MatchString(name) {
			continue
		}
		var all []result
		for range size.repeats {
			r, err := mock(registry, size.count)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, r)
		}
		slices.SortFunc(all, func(a, b result) int { return int((a.Seconds - b.Seconds) * 1e9) })
		r := all[len(all)/2]
		r.Scenario, r.Objects, r.Store = name, size.count, "none"
		say(r)
	}
	return nil
}

// mock measures one Apply of so many sessions.
func mock(registry *object.Registry, count int) (result, error) {
	ctx, end := context.WithCancel(context.Background())
	d, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		end()
		return result{}, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { end(); <-ended }()
	d.Attach(ctx, willing{})
	source := intent.Source{Owner: "bench"}
	if _, err := d.Apply(ctx, source, puts(base()), intent.Options{}); err != nil {
		return result{}, err
	}
	before := live()
	objects := make([]*object.Object, count)
	for i := range objects {
		objects[i] = session(i, 0)
	}
	changes := puts(objects)
	// Garbage of an earlier run is not part of this run.
	debug.FreeOSMemory()
	// As the agent does it.
	memory := heap.New()
	defer memory.End()
	began, had := time.Now(), processor()
	done := memory.Grow(count)
	out, err := d.Apply(ctx, source, changes, intent.Options{})
	if err != nil {
		return result{}, err
	}
	done()
	r := result{Seconds: time.Since(began).Seconds(), AgentCPU: processor() - had}
	if n := d.Count()[intent.Applied]; n != count+len(base()) || len(out.Failures) > 0 {
		return r, fmt.Errorf("%d objects are applied, not %d", n, count+len(base()))
	}
	objects, changes, out = nil, nil, nil
	r.Bytes = (live() - before) / float64(count)
	runtime.KeepAlive(d)
	return r, nil
}

func puts(objects []*object.Object) []object.Change {
	changes := make([]object.Change, len(objects))
	for i, o := range objects {
		changes[i] = object.Put(o)
	}
	return changes
}

// live is the memory in use, in bytes.
func live() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// processor is the time that this process had of all processors, in seconds.
func processor() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
