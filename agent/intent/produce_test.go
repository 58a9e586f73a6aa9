// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func subscriberOn(vlan uint32) *object.Object {
	return made("Session", fmt.Sprint("s-", vlan), &api.Session{Access: &api.Access{Port: "p", OuterVlan: vlan}})
}

func producer(t *testing.T, d *intent.Desired, name string) *intent.Producer {
	t.Helper()
	p, err := d.Producer(name)
	must(t, err)
	return p
}

// produce makes the changes and waits until the data plane has them.
func produce(t *testing.T, p *intent.Producer, changes ...object.Change) ([]reconcile.Operation, []intent.Refusal) {
	t.Helper()
	out := p.Produce(changes)
	select {
	case <-out.Done():
	case <-t.Context().Done():
		t.Fatal("it takes too long")
	}
	done, failures, _ := out.Close()
	if len(failures) > 0 {
		t.Fatal(failures)
	}
	return done, out.Refused
}

func applied(t *testing.T, d *intent.Desired, objects ...*object.Object) {
	t.Helper()
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Put(o))
	}
	_, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, changes, intent.Options{})
	must(t, err)
}

func until(t *testing.T, sentence string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + sentence)
		}
	}
}

func TestAVolatileObjectIsAppliedAndIsNoRevision(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	applied(t, d, port("p"))
	before := d.Revision()
	plane.TakeLog()
	p := producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(7)))
	if got := plane.TakeLog(); !slices.Equal(got, []string{"create Session/s-7"}) {
		t.Errorf("did %q", got)
	}
	st, there := d.Get(object.Key{Kind: "Session", Name: "s-7"})
	if !there || st.State != intent.Applied || st.Owner != "pppoe" || len(st.Owners) != 1 || st.Owners[0].Owner != "pppoe" {
		t.Errorf("status %+v", st)
	}
	if d.Revision() != before {
		t.Error("it is a revision")
	}
	page, err := d.List(intent.Query{Kinds: []string{"Session"}, Owner: "pppoe"})
	must(t, err)
	if len(page.Objects) != 1 {
		t.Errorf("listed are %d", len(page.Objects))
	}
	done, _ := produce(t, p, object.Remove(object.Key{Kind: "Session", Name: "s-7"}))
	if len(done) != 1 || string(done[0].Final) != "counters of s-7" {
		t.Errorf("done %+v", done)
	}
	if _, there := d.Get(object.Key{Kind: "Session", Name: "s-7"}); there {
		t.Error("it is still there")
	}
}

func TestAVolatileObjectIsRefusedForChangeByConfiguration(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	applied(t, d, port("p"))
	produce(t, producer(t, d, "pppoe"), object.Put(subscriberOn(7)))
	for sentence, change := range map[string]object.Change{
		"changed": object.Put(made("Session", "s-7", &api.Session{Access: &api.Access{Port: "p", OuterVlan: 8}})),
		"deleted": object.Remove(object.Key{Kind: "Session", Name: "s-7"}),
	} {
		_, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{change}, intent.Options{Force: true})
		if err == nil || !strings.Contains(err.Error(), "Session/s-7: is a volatile object of service pppoe") {
			t.Errorf("%s: error %v", sentence, err)
		}
	}
}

func TestARefusedChangeOfAVolatileObjectNamesTheObjectThatItIsMadeFor(t *testing.T) {
	d, _, _ := running(t, intent.Config{MadeFor: func(k object.Key) (object.Key, bool) {
		return object.Key{Kind: "PppoeServer", Name: "access"}, k.Name == "s-7"
	}})
	applied(t, d, port("p"))
	produce(t, producer(t, d, "pppoe"), object.Put(subscriberOn(7)))
	_, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Remove(object.Key{Kind: "Session", Name: "s-7"})}, intent.Options{})
	if want := "Session/s-7: is a volatile object of service pppoe for PppoeServer/access; accepted: a change or deletion of PppoeServer/access"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}

func TestAnOutcomeNamesNoObjectThatAServiceMakesMeanwhile(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	p := producer(t, d, "pppoe")
	p.Produce([]object.Change{object.Put(subscriberOn(7))})
	session := object.Key{Kind: "Session", Name: "s-7"}
	until(t, "the session waits for its port", func() bool { st, _ := d.Get(session); return st.State == intent.Pending })
	out, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(port("p"))}, intent.Options{})
	must(t, err)
	until(t, "the session follows its port", func() bool { st, _ := d.Get(session); return st.State == intent.Applied })
	if len(out.Objects) != 1 || out.Objects[0].Status.Key != (object.Key{Kind: "Port", Name: "p"}) {
		t.Errorf("outcome %+v", out.Objects)
	}
	if got := plane.TakeLog(); !slices.Equal(got, []string{"create Port/p", "create Session/s-7"}) {
		t.Errorf("did %q", got)
	}
}

func TestAnUnacceptableObjectIsRefusedByItself(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	applied(t, d, port("p"), subscriberOn(5))
	p, other := producer(t, d, "pppoe"), producer(t, d, "dhcp")
	produce(t, other, object.Put(subscriberOn(6)))
	twice := subscriberOn(7)
	twice.Name = "twin"
	_, refused := produce(t, p,
		object.Put(subscriberOn(5)), // configuration's
		object.Put(subscriberOn(6)), // another service's
		object.Put(subscriberOn(7)),
		object.Put(twice), // the same circuit
		object.Put(made("Session", "wrong", &api.Session{Access: &api.Access{Port: "p", OuterVlan: 5000}})),
		object.Put(subscriberOn(8)),
	)
	var all []string
	for _, r := range refused {
		all = append(all, r.Key.Name)
	}
	slices.Sort(all)
	if !slices.Equal(all, []string{"s-5", "s-6", "twin", "wrong"}) {
		t.Errorf("refused %v", refused)
	}
	for _, name := range []string{"s-7", "s-8"} {
		if st, _ := d.Get(object.Key{Kind: "Session", Name: name}); st.State != intent.Applied || st.Owner != "pppoe" {
			t.Errorf("%s: %+v", name, st)
		}
	}
	_ = plane
	if _, err := d.Producer("pppoe"); !errors.Is(err, intent.ErrProducerExists) {
		t.Errorf("a second service of one name: %v", err)
	}
}

func TestObjectsStayOverARestartOfTheAgentUntilTheirServiceIsComplete(t *testing.T) {
	r := registry(t)
	d, plane, _ := running(t, intent.Config{Registry: r})
	applied(t, d, port("p"))
	produce(t, producer(t, d, "pppoe"), object.Put(subscriberOn(1)), object.Put(subscriberOn(2)), object.Put(subscriberOn(3)))
	plane.TakeLog()

	// Another agent with the same configuration, and no memory of the sessions.
	d = again(t, r, plane, port("p"))
	if got := plane.TakeLog(); len(got) > 0 {
		t.Fatalf("the new agent did %q", got)
	}
	until(t, "a session of the earlier agent is listed as its service's", func() bool {
		page, err := d.List(intent.Query{Kinds: []string{"Session"}})
		must(t, err)
		return len(page.Objects) == 3 && page.Objects[0].Owner == "pppoe" && page.Objects[0].State == intent.Applied
	})
	if got := d.Unclaimed(); got["pppoe"] != 3 {
		t.Errorf("left over: %v", got)
	}
	p := producer(t, d, "pppoe")
	changed := subscriberOn(2)
	changed.Spec.(*api.Session).Policy = &api.Policy{Mss: 1300}
	produce(t, p, object.Put(subscriberOn(1)), object.Put(changed))
	if got := plane.TakeLog(); !slices.Equal(got, []string{"update Session/s-2"}) {
		t.Errorf("the service did %q", got)
	}
	p.Complete()
	until(t, "what it did not produce again is gone", func() bool {
		_, there := d.Get(object.Key{Kind: "Session", Name: "s-3"})
		return !there
	})
	if got := plane.TakeLog(); !slices.Equal(got, []string{"delete Session/s-3"}) {
		t.Errorf("completing did %q", got)
	}
}

func TestObjectsOfAServiceThatDoesNotRunStayUntilTheyAreForsaken(t *testing.T) {
	r := registry(t)
	d, plane, _ := running(t, intent.Config{Registry: r})
	applied(t, d, port("p"))
	produce(t, producer(t, d, "pppoe"), object.Put(subscriberOn(1)))
	d = again(t, r, plane, port("p"))
	plane.TakeLog()
	until(t, "it is known what is left over", func() bool { return d.Unclaimed()["pppoe"] == 1 })
	d.Release("pppoe")
	until(t, "it is gone", func() bool { return slices.Equal(plane.TakeLog(), []string{"delete Session/s-1"}) })
}

func TestAServiceThatEndsAndComesBackWithinTheGraceTimeFindsItsObjects(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	applied(t, d, port("p"))
	p := producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(1)), object.Put(subscriberOn(2)))
	plane.TakeLog()
	p.Close(time.Hour)
	p = producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(1)))
	if got := plane.TakeLog(); len(got) > 0 {
		t.Errorf("did %q", got)
	}
	p.Complete()
	until(t, "only what was produced again is there", func() bool {
		return slices.Equal(plane.TakeLog(), []string{"delete Session/s-2"})
	})
	p.Close(time.Millisecond)
	until(t, "after the grace time everything is gone", func() bool {
		return slices.Equal(plane.TakeLog(), []string{"delete Session/s-1"})
	})
}

func TestVolatileObjectsAreRepairedAndComeBackWithTheDataPlane(t *testing.T) {
	d, plane, unlink := running(t, intent.Config{})
	applied(t, d, port("p"))
	p := producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(1)))
	plane.TakeLog()
	plane.Meddle(reconcile.Change{By: "somebody", Key: object.Key{Kind: "Session", Name: "s-1"}, Deleted: true})
	until(t, "it is put right", func() bool { return slices.Contains(plane.TakeLog(), "create Session/s-1") })
	unlink()
	plane.Restart()
	link, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	d.Attach(link, plane)
	until(t, "it is there again", func() bool { return slices.Contains(plane.TakeLog(), "create Session/s-1") })
}

func TestRollbackLeavesVolatileObjectsAlone(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	applied(t, d, port("p"))
	to := d.Revision()
	applied(t, d, subscriberOn(9))
	_, err := d.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Remove(object.Key{Kind: "Session", Name: "s-9"})}, intent.Options{})
	must(t, err)
	p := producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(9)), object.Put(subscriberOn(1)))
	plane.TakeLog()
	for _, revision := range []uint64{to, to + 1} {
		if _, err := d.Rollback(t.Context(), intent.Source{Owner: "api"}, revision, intent.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := plane.TakeLog(); len(got) > 0 {
		t.Errorf("did %q", got)
	}
}

func TestASessionIsAppliedWhileRoutesWithoutEndAreWaiting(t *testing.T) {
	d, plane, _ := running(t, intent.Config{})
	applied(t, d, port("p"), made("Interface", "wan", &api.Interface{Port: "p", OuterVlan: 4000, Addresses: []string{"192.0.2.1/24"}}))
	routes := producer(t, d, "frr")
	var changes []object.Change
	const count = 30_000
	for i := range count {
		changes = append(changes, object.Put(made("Route", fmt.Sprint("r-", i), &api.Route{Prefix: fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255),
			NextHops: []*api.NextHop{{Address: "192.0.2.9"}}})))
	}
	plane.TakeLog()
	out := routes.Produce(changes)
	produce(t, producer(t, d, "pppoe"), object.Put(subscriberOn(1)))
	before := slices.Index(plane.TakeLog(), "create Session/s-1")
	if before < 0 || before > count/2 {
		t.Errorf("%d routes were made before the session", before)
	}
	<-out.Done()
	if _, failures, _ := out.Close(); len(failures) > 0 || len(out.Refused) > 0 {
		t.Error(failures, out.Refused)
	}
}

// again is a new agent for a data plane, with these objects as its configuration.
func again(t *testing.T, r *object.Registry, plane *reconciletest.Plane, objects ...*object.Object) *intent.Desired {
	t.Helper()
	d, err := intent.New(intent.Config{Registry: r})
	must(t, err)
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Put(o))
	}
	_, err = d.Apply(t.Context(), intent.Source{Owner: "api"}, changes, intent.Options{Mode: intent.NoWait})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	link, unlink := context.WithCancel(context.Background())
	t.Cleanup(unlink)
	d.Attach(link, plane)
	until(t, "the data plane is compared", d.Settled)
	return d
}

// onWarning calls a function at each warning.
type onWarning struct {
	slog.Handler
	call func(message string)
}

func (h onWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.call(r.Message)
	}
	return nil
}

func TestAServiceThatComesBackAsItsGraceTimeEndsKeepsWhatItProduces(t *testing.T) {
	var d *intent.Desired
	back := make(chan error, 1)
	// The service registers again in the moment in which its objects are given up.
	d, plane, _ := running(t, intent.Config{Log: slog.New(onWarning{slog.DiscardHandler, func(message string) {
		if !strings.Contains(message, "did not come back") {
			return
		}
		p, err := d.Producer("pppoe")
		if err == nil {
			p.Produce([]object.Change{object.Put(subscriberOn(2))}).Close()
		}
		back <- err
	}})})
	applied(t, d, port("p"))
	p := producer(t, d, "pppoe")
	produce(t, p, object.Put(subscriberOn(1)))
	p.Close(time.Millisecond)
	must(t, <-back)
	var log []string
	until(t, "the data plane has the objects of the new life only", func() bool {
		log = append(log, plane.TakeLog()...)
		return slices.Contains(log, "delete Session/s-1") && slices.Contains(log, "create Session/s-2")
	})
	if !has(d, 2) || slices.Contains(log, "delete Session/s-2") {
		t.Error("what the service produced after it came back was deleted")
	}
}

// has reports whether the session of a VLAN is desired.
func has(d *intent.Desired, vlan uint32) bool {
	_, is := d.Get(object.Key{Kind: "Session", Name: fmt.Sprint("s-", vlan)})
	return is
}

func TestALifeOfAServiceThatHasEndedChangesNothingMore(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	applied(t, d, port("p"))
	before := producer(t, d, "pppoe")
	produce(t, before, object.Put(subscriberOn(1)))
	before.Close(time.Hour)
	now := producer(t, d, "pppoe")
	// The life before writes and completes late.
	_, refused := produce(t, before, object.Put(subscriberOn(2)), object.Remove(object.Key{Kind: "Session", Name: "s-1"}))
	if len(refused) != 2 || !errors.Is(refused[0].Err, intent.ErrProducerClosed) {
		t.Errorf("refused: %v", refused)
	}
	before.Complete()
	if !has(d, 1) || has(d, 2) {
		t.Error("a life that has ended changed objects")
	}
	now.Complete()
	until(t, "the life that is now did not produce s-1", func() bool { return !has(d, 1) })
}
