// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func TestADataPlaneThatIsAwayDoesNotKeepAnothersObjectsFromBeingDone(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry, Dataplanes: []intent.Dataplane{{Name: "bonn"}, {Name: "ulm"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { desired.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	// Ulm is away.
	if err := desired.AttachTo(ctx, "bonn", reconciletest.NewPlane(registry)); err != nil {
		t.Fatal(err)
	}
	producer, err := desired.Producer("lines")
	if err != nil {
		t.Fatal(err)
	}
	objects := newObjects(producer)
	acl := func(name, dataplane string) *object.Object {
		o := &object.Object{Kind: "Acl", Name: name, Spec: &api.Acl{}}
		if dataplane != "" {
			o.Labels = map[string]string{intent.DataplaneLabel: dataplane}
		}
		return o
	}
	type outcomes struct {
		name string
		Result
	}
	results := make(chan outcomes, 8)
	report := func(name string) func(Result) { return func(r Result) { results <- outcomes{name, r} } }
	check := func(what string) {
		t.Helper()
		for range 3 {
			select {
			case r := <-results:
				if r.Err != nil || r.Done != (r.name == "bonn") {
					t.Errorf("%s %s: %+v", what, r.name, r.Result)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("never")
			}
		}
	}
	// They are written together.
	objects.mu.Lock()
	objects.writing = true
	objects.mu.Unlock()
	for _, name := range []string{"ulm", "", "bonn"} {
		objects.Put(acl("of-"+name+"x", name), report(name))
	}
	objects.mu.Lock()
	objects.start()
	objects.mu.Unlock()
	check("put")
	for _, name := range []string{"bonn", "ulm", ""} {
		objects.Delete(object.Key{Kind: "Acl", Name: "of-" + name + "x"}, report(name))
	}
	if err := objects.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	check("deleted")
}

func TestEachChangeOfABatchGetsItsOwnResult(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { desired.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	plane := reconciletest.NewPlane(registry)
	if err := desired.AttachTo(ctx, "default", plane); err != nil {
		t.Fatal(err)
	}
	producer, err := desired.Producer("lines")
	if err != nil {
		t.Fatal(err)
	}
	objects := newObjects(producer)
	session := func(i int, vlan uint32) *object.Object {
		return &object.Object{Kind: "Session", Name: fmt.Sprint("s-", i), Spec: &api.Session{Access: &api.Access{Port: "p", OuterVlan: vlan}}}
	}
	port := &object.Object{Kind: "Port", Name: "p", Spec: &api.Port{Device: "net_null0"}}
	const count = 600 // several batches
	results := make([]Result, count)
	batch := func(change func(i int, report func(Result))) {
		t.Helper()
		objects.handing.Wait() // the batch before reports first, and ends then
		objects.mu.Lock()
		objects.writing = true
		objects.mu.Unlock()
		for i := range count {
			change(i, func(r Result) { results[i] = r })
		}
		objects.mu.Lock()
		objects.start()
		objects.mu.Unlock()
		if err := objects.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for !desired.Settled() {
		time.Sleep(time.Millisecond)
	}
	there := make(chan Result, 1)
	objects.Put(session(count, 4000), func(r Result) { there <- r })
	if r := <-there; r.Err != nil || r.Done || !strings.HasPrefix(r.Waits, "waits for Port/p") {
		t.Fatalf("a session without its port: %+v", r)
	}
	objects.Put(port, func(r Result) { there <- r })
	if r := <-there; !r.Done {
		t.Fatalf("the port: %+v", r)
	}
	// One in seven is not acceptable, and one in five follows itself.
	name := func(i int) int {
		if i%5 == 1 {
			return i - 1
		}
		return i
	}
	batch(func(i int, report func(Result)) {
		vlan := uint32(1 + i)
		if i%7 == 3 {
			vlan = 5000
		}
		objects.Put(session(name(i), vlan), report)
	})
	for i, r := range results {
		// The first of two may be overtaken by the second.
		if done := i%7 != 3; r.Done != done && (r.Done || i%5 != 0) || (r.Err != nil) == done {
			t.Errorf("%d: %+v", i, r)
		}
	}
	batch(func(i int, report func(Result)) {
		objects.Delete(object.Key{Kind: "Session", Name: fmt.Sprint("s-", count-1-i)}, report)
	})
	for i, r := range results {
		// The objects of the data plane.
		n := count - 1 - i
		had := name(n) == n && (n%7 != 3 || n%5 == 0)
		if want := fmt.Sprint("counters of s-", n); r.Err != nil || r.Done != had || string(r.Final) != want && had || len(r.Final) > 0 && !had {
			t.Errorf("%d: %+v", n, r)
		}
	}
}

func TestALifeThatEndsHandsOverWhatItWroteAndWritesNothingMore(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	acl := func(name string) *object.Object { return &object.Object{Kind: "Acl", Name: name, Spec: &api.Acl{}} }
	var e Environment
	life := make(chan struct{})
	host := New([]Definition{{Name: "lines", New: func(of Environment) (Service, error) {
		e = of
		return lasting{life}, nil
	}}})
	host.config = Config{Registry: registry, Intent: desired, Log: slog.New(slog.DiscardHandler), Grace: time.Hour}
	ended := make(chan error)
	go func() { ended <- host.services[0].live(t.Context()) }()
	<-life
	// It is gathered with later changes, which do not come.
	e.Objects.Put(acl("early"), nil)
	life <- struct{}{}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	before := e.Objects
	next, err := desired.Producer("lines")
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan Result, 1)
	before.Put(acl("late"), func(r Result) { late <- r })
	if r := <-late; !errors.Is(r.Err, intent.ErrProducerClosed) {
		t.Errorf("a change of a life that has ended: %+v", r)
	}
	is := func(name string) bool {
		_, there := desired.Get(object.Key{Kind: "Acl", Name: name})
		return there
	}
	if !is("early") || is("late") {
		t.Errorf("early %t, late %t", is("early"), is("late"))
	}
	next.Complete()
}

// lasting is a Service that reports that it runs, and runs until it is called once more.
type lasting struct{ life chan struct{} }

func (l lasting) Run(context.Context) error {
	l.life <- struct{}{}
	<-l.life
	return nil
}
