// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// program is the state of a Desired with a store on disk between two starts.
type program struct {
	*intent.Desired
	t     *testing.T
	path  string
	store *Store
	stop  func()
	// Ends it as SIGKILL does: the store is not closed.
	kill func()
}

func started(t *testing.T, path string, owners map[string]intent.Owner) *program {
	t.Helper()
	p := &program{t: t, path: path, store: opened(t, path)}
	d, err := intent.New(intent.Config{Registry: p.store.registry, Store: p.store, Owners: owners, Revisions: 20})
	must(t, err)
	p.Desired = d
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	end := func(closes func() error) {
		cancel()
		<-ended
		must(t, closes())
		p.stop, p.kill = func() {}, func() {}
	}
	p.stop = func() { end(p.store.Close) }
	p.kill = func() { end(p.store.let) }
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *program) restart(owners map[string]intent.Owner) *program {
	p.stop()
	return started(p.t, p.path, owners)
}

func vrf(name, description string) object.Change {
	return object.Put(&object.Object{Kind: "Vrf", Name: name, Spec: &api.Vrf{Description: description}})
}

func gone(name string) object.Change { return object.Remove(object.Key{Kind: "Vrf", Name: name}) }

func (p *program) apply(owner string, o intent.Options, changes ...object.Change) uint64 {
	p.t.Helper()
	out, err := p.Apply(context.Background(), intent.Source{Owner: owner, Who: "me"}, changes, o)
	must(p.t, err)
	return out.Revision
}

// has checks the configured objects: "name: description (owner)".
func (p *program) has(want ...string) {
	p.t.Helper()
	if got := p.state(); !slices.Equal(got, want) {
		p.t.Errorf("configured is %q, not %q", got, want)
	}
}

func (p *program) state() []string {
	page, err := p.List(intent.Query{})
	must(p.t, err)
	var all []string
	for _, s := range page.Objects {
		all = append(all, fmt.Sprintf("%s: %s (%s)", s.Key.Name, s.Object.Spec.(*api.Vrf).Description, s.Owner))
	}
	return all
}

func TestEachRevisionCanBeSeenAndGoneBackTo(t *testing.T) {
	p := started(t, filepath.Join(t.TempDir(), "intent.db"), map[string]intent.Owner{"pppoe": {Unrecorded: true}})
	p.apply("api", intent.Options{}, vrf("a", "one"), vrf("b", "one"))
	p.apply("api", intent.Options{}, vrf("a", "two"), gone("b"), vrf("c", "two"))
	p.apply("pppoe", intent.Options{}, vrf("s", "subscriber"))
	p.apply("api", intent.Options{}, vrf("b", "four"))
	p = p.restart(map[string]intent.Owner{"pppoe": {Unrecorded: true}})

	diff := func(from, to uint64) (all []string) {
		t.Helper()
		found, err := p.Diff(from, to)
		must(t, err)
		for _, d := range found {
			all = append(all, fmt.Sprintf("%s %s %s: %q to %q", d.Step, d.Key.Name, d.Fields[0].Field, d.Fields[0].Before, d.Fields[0].After))
		}
		return all
	}
	for _, c := range []struct {
		from, to uint64
		want     []string
	}{
		{1, 2, []string{`update a description: "one" to "two"`, `delete b description: "one" to ""`, `create c description: "" to "two"`}},
		{2, 1, []string{`update a description: "two" to "one"`, `create b description: "" to "one"`, `delete c description: "two" to ""`}},
		{2, 0, []string{`create b description: "" to "four"`}},
		{1, 4, []string{`update a description: "one" to "two"`, `update b description: "one" to "four"`, `create c description: "" to "two"`}},
		{4, 0, nil},
	} {
		if got := diff(c.from, c.to); !slices.Equal(got, c.want) {
			t.Errorf("from revision %d to %d: %q, not %q", c.from, c.to, got, c.want)
		}
	}
	if _, err := p.Diff(1, 9); !errors.Is(err, intent.ErrNoRevision) {
		t.Errorf("a revision that is not there yet: %v", err)
	}
	out, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, 1, intent.Options{})
	must(t, err)
	if out.Revision != 5 || len(out.Objects) != 3 {
		t.Errorf("outcome %+v", out)
	}
	p.has("a: one (api)", "b: one (api)", "s: subscriber (pppoe)")
	history, err := p.History(0, 10)
	must(t, err)
	if len(history) != 4 || history[0].RollbackTo != 1 || history[1].Number != 4 || history[3].Source.Who != "me" {
		t.Errorf("history %+v", history)
	}
	out, err = p.Rollback(context.Background(), intent.Source{Owner: "api"}, 4, intent.Options{})
	must(t, err)
	if out.Revision != 6 {
		t.Errorf("outcome %+v", out)
	}
	p.has("a: two (api)", "b: four (api)", "c: two (api)", "s: subscriber (pppoe)")
}

func TestARollbackToADeletedRevisionIsRefused(t *testing.T) {
	p := started(t, filepath.Join(t.TempDir(), "intent.db"), nil)
	for i := range 30 {
		p.apply("api", intent.Options{}, vrf("a", fmt.Sprint(i+1)))
	}
	if _, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, 5, intent.Options{}); !errors.Is(err, intent.ErrNoRevision) {
		t.Errorf("error %v", err)
	}
	_, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, 15, intent.Options{})
	must(t, err)
	p.has("a: 15 (api)")
}

func TestAnUnconfirmedRevisionIsUndone(t *testing.T) {
	eventually := func(p *program, want ...string) {
		t.Helper()
		for range 1000 {
			if slices.Equal(p.state(), want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		p.has(want...)
	}
	soon, late := intent.Options{ConfirmWithin: 20 * time.Millisecond}, intent.Options{ConfirmWithin: time.Hour}
	api := intent.Source{Owner: "api"}
	p := started(t, filepath.Join(t.TempDir(), "intent.db"), nil)
	p.apply("api", intent.Options{}, vrf("a", "one"), vrf("b", "one"))
	p.apply("api", soon, vrf("a", "two"), gone("b"), vrf("c", "two"))
	eventually(p, "a: one (api)", "b: one (api)")

	first := p.apply("api", late, vrf("a", "three"), vrf("c", "three"))
	must(t, p.Confirm(api, first))
	if err := p.Confirm(api, first); !errors.Is(err, intent.ErrNothingToConfirm) {
		t.Errorf("confirmed twice: %v", err)
	}
	p.apply("api", soon, vrf("a", "four"), vrf("c", "four"), gone("b"))
	p.apply("api", intent.Options{}, vrf("c", "by another"))
	eventually(p, "a: three (api)", "b: one (api)", "c: by another (api)")

	p.apply("api", intent.Options{ConfirmWithin: 30 * time.Second}, vrf("a", "five"))
	p = p.restart(nil)
	p.has("a: five (api)", "b: one (api)", "c: by another (api)")
	must(t, p.Confirm(api, 0))
	p.apply("api", intent.Options{ConfirmWithin: time.Millisecond}, vrf("a", "six"))
	p = p.restart(nil)
	eventually(p, "a: five (api)", "b: one (api)", "c: by another (api)")
}

func TestTheNextOwnersValueComesBack(t *testing.T) {
	owners := map[string]intent.Owner{"operator": {Priority: 10}}
	p := started(t, filepath.Join(t.TempDir(), "intent.db"), owners)
	conflict := func(owner string, c object.Change, holder, field string) {
		t.Helper()
		var conflicts *intent.Conflicts
		_, err := p.Apply(context.Background(), intent.Source{Owner: owner}, []object.Change{c}, intent.Options{})
		if !errors.As(err, &conflicts) || conflicts.All[0].Owner != owner || conflicts.All[0].Holder != holder || conflicts.All[0].Field != field {
			t.Errorf("error %v", err)
		}
	}
	p.apply("files", intent.Options{}, vrf("a", "of files"))
	conflict("api", vrf("a", "of api"), "files", "description")
	conflict("api", gone("a"), "files", "")
	p.apply("operator", intent.Options{}, vrf("a", "of operator"))
	p.has("a: of operator (operator)")
	p.apply("files", intent.Options{}, vrf("a", "of files again"))
	p.has("a: of operator (operator)")
	p = p.restart(owners)
	p.apply("operator", intent.Options{}, gone("a"))
	p.has("a: of files again (files)")
	p.apply("api", intent.Options{Force: true}, vrf("a", "of api"))
	p.has("a: of api (api)")
	conflict("files", vrf("a", "of files a third time"), "api", "description")
	p = p.restart(owners)
	p.apply("api", intent.Options{Complete: true}, vrf("b", "of api"))
	p.has("a: of files again (files)", "b: of api (api)")
	p.apply("other", intent.Options{}, vrf("b", "of api"))
	p.apply("api", intent.Options{}, gone("b"))
	p.has("a: of files again (files)", "b: of api (other)")
}

func TestOnlyObjectsOfTheExpectedRevisionAreChanged(t *testing.T) {
	p := started(t, filepath.Join(t.TempDir(), "intent.db"), nil)
	a := object.Key{Kind: "Vrf", Name: "a"}
	refused := func(expected uint64) {
		t.Helper()
		_, err := p.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{vrf("a", "new")},
			intent.Options{Expect: map[object.Key]uint64{a: expected}})
		var moved *intent.Moved
		if !errors.As(err, &moved) || !slices.Equal(moved.Objects, []object.Key{a}) {
			t.Errorf("error %v", err)
		}
	}
	refused(7)
	first := p.apply("api", intent.Options{Expect: map[object.Key]uint64{a: 0}}, vrf("a", "one"))
	refused(0)
	plan, err := p.Plan(intent.Source{Owner: "api"}, []object.Change{vrf("a", "planned")}, intent.Options{})
	must(t, err)
	second := p.apply("api", intent.Options{Expect: map[object.Key]uint64{a: first}}, vrf("a", "two"))
	refused(first)
	_, err = p.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{vrf("a", "planned")}, intent.Options{Plan: plan})
	var moved *intent.Moved
	if !errors.As(err, &moved) {
		t.Errorf("a plan of revision %d at revision %d: %v", plan.Revision, second, err)
	}
	p.has("a: two (api)")
}
