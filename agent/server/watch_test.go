// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// reported is a client's stream.
type reported struct {
	grpc.ServerStream
	changes chan *api.ObjectChange
}

func (s reported) Send(c *api.ObjectChange) error {
	s.changes <- c
	return nil
}

func TestAWatchThatBeginsWhileADataPlaneIsAwayGetsTheStatusWhenItIsBack(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { desired.Run(running); close(ended) }()
	defer func() { end(); <-ended }()
	plane := reconciletest.NewPlane(registry)
	connect := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(running)
		desired.Attach(ctx, plane)
		return cancel
	}
	red := &object.Object{Kind: "Vrf", Name: "red", Spec: &api.Vrf{}}
	stands := func(state intent.State) {
		t.Helper()
		for range 1000 {
			if st, _ := desired.Get(red.Key()); st.State == state {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("it is never %s", state)
	}
	// watch returns functions for the next changes, and for the last cursor.
	watch := func(cursor string) (next func(int) []string, last func() string) {
		stream := reported{changes: make(chan *api.ObjectChange, 100)}
		w := &watcher{server: &server{desired: desired, registry: registry}, from: cursor, stream: stream, reported: map[object.Key]intent.State{}}
		ctx, cancel := context.WithCancel(running)
		over := make(chan struct{})
		go func() { defer close(over); _ = w.follow(ctx) }()
		t.Cleanup(func() { cancel(); <-over })
		return func(count int) []string {
			t.Helper()
			var texts []string
			for range count {
				select {
				case c := <-stream.changes:
					text := c.GetChange().String()
					if d := c.GetDataplane(); d != nil {
						text = fmt.Sprintf("%s connected %v", d.GetName(), d.GetConnected())
					} else if c.GetObject() != nil {
						text += " " + c.GetObject().GetStatus().GetState().String()
					}
					if texts = append(texts, text); c.GetCursor() != "" {
						cursor = c.GetCursor()
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("told only %q", texts)
				}
			}
			return texts
		}, func() string { return cursor }
	}
	expect := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("told %q, not %q", got, want)
		}
	}

	away := connect()
	if _, err := desired.Apply(t.Context(), intent.Source{Owner: "test"}, []object.Change{{Key: red.Key(), Object: red}}, intent.Options{}); err != nil {
		t.Fatal(err)
	}
	stands(intent.Applied)
	away()
	stands(intent.Unknown)
	next, last := watch("")
	expect(next(2), "EXISTS UNKNOWN", "COMPLETE")
	away = connect()
	expect(next(2), "default connected true", "CHANGED APPLIED")
	stands(intent.Applied)
	away()
	expect(next(1), "default connected false")
	// The state Unknown may have been reported before.
	again, _ := watch(last())
	connect()
	expect(again(4), "default connected true", "AGAIN", "EXISTS APPLIED", "COMPLETE")
	expect(next(1), "default connected true")
}

func TestAWatchHasTheEventsOfServices(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	stream := reported{changes: make(chan *api.ObjectChange, 100)}
	w := &watcher{server: &server{desired: desired, registry: registry}, stream: stream, reported: map[object.Key]intent.State{}}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); _ = w.follow(ctx) }()
	defer func() { cancel(); <-over }()
	if c := <-stream.changes; c.GetChange() != api.ObjectChange_COMPLETE {
		t.Fatal(c)
	}
	desired.Report(&intent.ServiceEvent{Type: "toy", Kind: "Toy", Name: "car", State: "wound", Fields: []intent.EventField{{Name: "turns", Value: "7"}}, Text: "The toy car is wound"})
	c := <-stream.changes
	if s := c.GetService(); c.GetChange() != api.ObjectChange_SERVICE || c.GetCursor() == "" || s.GetType() != "toy" || s.GetKind() != "Toy" || s.GetName() != "car" ||
		s.GetState() != "wound" || s.GetText() != "The toy car is wound" || s.GetTime() == 0 || len(s.GetFields()) != 1 || s.GetFields()[0].GetName() != "turns" || s.GetFields()[0].GetValue() != "7" {
		t.Errorf("got %v", c)
	}
}
