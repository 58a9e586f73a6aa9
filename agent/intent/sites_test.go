// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// towns is a Desired with two data planes.
func towns(t *testing.T, store intent.Store) (d *intent.Desired, bonn, ulm *reconciletest.Plane) {
	t.Helper()
	r := registry(t)
	d, err := intent.New(intent.Config{Registry: r, Store: store, Reconciler: reconcile.Options{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Dataplanes: []intent.Dataplane{{Name: "bonn", Labels: map[string]string{"town": "bonn"}}, {Name: "ulm", Labels: map[string]string{"town": "ulm"}}}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	bonn, ulm = reconciletest.NewPlane(r), reconciletest.NewPlane(r)
	must(t, d.AttachTo(ctx, "bonn", bonn))
	must(t, d.AttachTo(ctx, "ulm", ulm))
	return d, bonn, ulm
}

func in(o *object.Object, pairs ...string) *object.Object {
	o.Labels = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		o.Labels[pairs[i]] = pairs[i+1]
	}
	return o
}

func TestObjectsGoToTheDataPlanesThatTheirLabelsSay(t *testing.T) {
	d, bonn, ulm := towns(t, nil)
	samePort := func(name, town string) *object.Object {
		return in(made("Port", name, &api.Port{Device: "net_null0"}), "town", town)
	}
	// Devices are each data plane's own, so that two may have the same.
	apply(t, d, "test", puts(acl("both"), samePort("b", "bonn"), samePort("u", "ulm"), in(acl("there"), "dataplane", "ulm", "floor", "2")), intent.Options{})
	for _, c := range []struct {
		plane *reconciletest.Plane
		want  []string
	}{{bonn, []string{"put Acl both", "put Port b"}}, {ulm, []string{"put Acl both", "put Acl there", "put Port u"}}} {
		log := c.plane.TakeLog()
		for i := range log {
			log[i] = strings.NewReplacer("create", "put", "/", " ").Replace(log[i])
		}
		slices.Sort(log)
		if !slices.Equal(log, c.want) {
			t.Errorf("did %q, not %q", log, c.want)
		}
	}
	_, err := d.Apply(t.Context(), as("test"), puts(samePort("again", "ulm")), intent.Options{})
	if err == nil || !strings.Contains(err.Error(), "Port/u already has the DPDK device") {
		t.Errorf("two ports with the same device in one data plane: %v", err)
	}
	_, err = d.Apply(t.Context(), as("test"), puts(in(acl("there"), "dataplane", "paris")), intent.Options{})
	if err == nil || !strings.Contains(err.Error(), "there is no such data plane") || !strings.Contains(err.Error(), "bonn, ulm") {
		t.Errorf("a data plane that there is not: %v", err)
	}
}

func TestALabelMovesAnObjectToAnotherDataPlane(t *testing.T) {
	d, bonn, ulm := towns(t, nil)
	apply(t, d, "test", puts(in(acl("a"), "town", "bonn")), intent.Options{})
	plan, err := d.Plan(as("test"), puts(in(acl("a"), "town", "ulm")), intent.Options{})
	must(t, err)
	var planned []string
	for _, o := range plan.Operations {
		planned = append(planned, o.Dataplane+": "+o.Action.String()+" "+o.Key.String())
	}
	if want := []string{"bonn: delete Acl/a", "ulm: create Acl/a"}; !slices.Equal(planned, want) {
		t.Errorf("planned %q", planned)
	}
	apply(t, d, "test", puts(in(acl("a"), "town", "ulm")), intent.Options{})
	if there := ulm.Differences(map[object.Key]*object.Object{acl("a").Key(): acl("a")}); len(there) > 0 {
		t.Error(there)
	}
	if left := bonn.Differences(nil); len(left) > 0 {
		t.Error(left)
	}
	if st, _ := d.Get(acl("a").Key()); st.State != intent.Applied {
		t.Errorf("%+v", st)
	}
}

func TestASlowOrAbsentDataPlaneHoldsUpNoOther(t *testing.T) {
	d, bonn, _ := towns(t, nil)
	hang, free := make(chan struct{}), make(chan struct{})
	bonn.Lock()
	bonn.Before = func() {
		select {
		case hang <- struct{}{}:
		case <-free:
		}
		<-free
	}
	bonn.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		apply(t, d, "test", puts(in(acl("b"), "town", "bonn")), intent.Options{})
	}()
	<-hang
	out := apply(t, d, "test", puts(in(acl("u"), "town", "ulm")), intent.Options{Mode: intent.AllOrNothing})
	if st := out.Objects[0].Status; st.State != intent.Applied {
		t.Errorf("beside a slow one: %+v", st)
	}
	close(free)
	<-done

	d.DetachFrom("bonn")
	out = apply(t, d, "test", puts(in(acl("u2"), "town", "ulm"), in(acl("b2"), "town", "bonn"), acl("both")), intent.Options{})
	var states []string
	for _, o := range out.Objects {
		states = append(states, o.Status.Key.Name+" "+o.Status.State.String()+" "+o.Status.Message)
	}
	want := []string{"u2 Applied ", "b2 Pending bonn: waits for the data plane: not connected", "both Pending bonn: waits for the data plane: not connected"}
	if !slices.Equal(states, want) {
		t.Errorf("%q", states)
	}
	if _, err := d.Apply(t.Context(), as("test"), puts(acl("both2")), intent.Options{Mode: intent.AllOrNothing}); !errors.Is(err, intent.ErrDisconnected) {
		t.Errorf("all or nothing, also where no data plane answers: %v", err)
	}
	if st, _ := d.Get(acl("u").Key()); st.NotReady.Message != "" {
		t.Errorf("not ready because of another: %+v", st)
	}
}

func TestAFailureInOneDataPlaneUndoesAllOrNothingInAll(t *testing.T) {
	d, bonn, ulm := towns(t, nil)
	ulm.Lock()
	ulm.Never[acl("a").Key()] = true
	ulm.Unlock()
	out := apply(t, d, "test", puts(acl("a")), intent.Options{Mode: intent.AllOrNothing})
	if !out.Undone || len(out.Failures) != 1 || !strings.HasPrefix(out.Failures[0].Message, "ulm: ") {
		t.Errorf("%+v", out)
	}
	for end := time.Now().Add(10 * time.Second); len(bonn.Differences(nil)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(bonn.Differences(nil))
		}
	}
}

func TestAnObjectIsNotAppliedWhileOneOfItsDataPlanesIsAway(t *testing.T) {
	d, _, ulm := towns(t, nil)
	a := acl("a")
	apply(t, d, "test", puts(a), intent.Options{})
	ctx, end := context.WithCancel(t.Context())
	must(t, d.AttachTo(ctx, "ulm", ulm))
	end()
	for {
		if st, _ := d.Get(a.Key()); st.State == intent.Unknown && strings.HasPrefix(st.Message, "ulm: was applied; the data plane is away since ") {
			break
		}
		time.Sleep(time.Millisecond)
	}
}
