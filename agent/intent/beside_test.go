// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/store"
)

// beside is a Desired without a data plane, so that all work stays queued, and a producer that makes an object between all parts of work that
// takes long: a lock that it needs and that is held would never be released.
type beside struct {
	*intent.Desired
	t        *testing.T
	producer *intent.Producer
	on       bool
	made     int
}

func newBeside(t *testing.T) *beside {
	b := &beside{t: t}
	d, err := intent.New(intent.Config{Registry: registry(t), Reconciler: reconcile.Options{Between: b.between}})
	must(t, err)
	b.Desired = d
	b.producer, err = d.Producer("beside")
	must(t, err)
	return b
}

func (b *beside) between() {
	if !b.on {
		return
	}
	b.on = false
	if !b.Free() {
		b.t.Fatal("a producer's lock is held")
	}
	work := b.producer.Produce(puts(made("Vrf", fmt.Sprint("v", b.made), &api.Vrf{})))
	if work.Close(); len(work.Refused) > 0 {
		b.t.Fatal(work.Refused)
	}
	b.made++
	b.on = true
}

// during returns how often the producer made an object during f.
func (b *beside) during(f func()) int {
	before := b.made
	b.on = true
	f()
	b.on = false
	return b.made - before
}

const besideMany = 5000

// subscribers are sessions from an outer VLAN on.
func subscribers(name string, vlan uint32, acl string) []object.Change {
	var all []*object.Object
	for i := range uint32(besideMany) {
		all = append(all, made("Session", fmt.Sprint(name, i), &api.Session{
			Access: &api.Access{Port: "p", OuterVlan: vlan + i/4000, InnerVlan: 1 + i%4000}, Policy: &api.Policy{AclUp: acl},
		}))
	}
	return puts(all...)
}

func removed(changes []object.Change) []object.Change {
	gone := slices.Clone(changes)
	for i := range gone {
		gone[i].Object = nil
	}
	return gone
}

func TestAProducerDoesNotWaitForPlansLargeChangesAndWalks(t *testing.T) {
	b := newBeside(t)
	apply(t, b.Desired, "test", puts(port("p"), acl("a"), acl("b")), intent.Options{Mode: intent.NoWait})
	service, err := b.Desired.Producer("pppoe")
	must(t, err)
	produce := func(changes []object.Change) {
		for some := range slices.Chunk(changes, 256) {
			work := service.Produce(some)
			if work.Close(); len(work.Refused) > 0 {
				t.Fatal(work.Refused[0])
			}
		}
	}
	produce(subscribers("queued", 1, "a"))
	all, changed := subscribers("s", 100, "a"), subscribers("s", 100, "b")
	plan := func(changes []object.Change, steps int) func() {
		return func() {
			p, err := b.Plan(as("test"), changes, intent.Options{})
			must(t, err)
			if len(p.Steps) != steps {
				t.Errorf("%d steps are planned", len(p.Steps))
			}
		}
	}
	change := func(changes []object.Change, options intent.Options) func() {
		options.Mode = intent.NoWait
		return func() { apply(t, b.Desired, "test", changes, options) }
	}
	for _, c := range []struct {
		sentence string
		does     func()
		atLeast  int
	}{
		{"a plan of one object beside a backlog", plan(puts(acl("c")), 1), besideMany / 1024},
		{"a plan of the loss of what the backlog needs", plan(removes(acl("a")), 1+besideMany), besideMany / 1024},
		{"a plan of many", plan(all, besideMany), besideMany / 256},
		{"many objects", change(all, intent.Options{}), besideMany / 256},
		{"a plan of many changes", plan(changed, besideMany), besideMany / 256},
		{"many changes", change(changed, intent.Options{}), besideMany / 256},
		{"a plan of many deletions", plan(removed(subscribers("s", 100, "b")[:besideMany/2]), besideMany/2), besideMany / 2 / 1024},
		{"many deletions", change(removed(subscribers("s", 100, "b")[:besideMany/2]), intent.Options{}), 2 * besideMany / 2 / 256},
		{"a look at all objects of an owner", change(puts(port("p"), acl("a"), acl("b")), intent.Options{Complete: true}), besideMany / 256},
		{"the end of a service's former life", func() {
			service.Close(intent.Never)
			if service, err = b.Desired.Producer("pppoe"); err != nil {
				t.Fatal(err)
			}
			produce(subscribers("queued", 1, "a")[:besideMany/2])
			service.Complete()
		}, besideMany / 2 / 256},
	} {
		if times := b.during(c.does); times < c.atLeast {
			t.Errorf("%s: the producer was let in %d times, not %d", c.sentence, times, c.atLeast)
		}
	}
	for name, here := range map[string]bool{"queued0": true, fmt.Sprint("queued", besideMany/2): false, "s0": false} {
		if _, there := b.Get(object.Key{Kind: "Session", Name: name}); there != here {
			t.Errorf("Session/%s is there: %t", name, there)
		}
	}
}

// A large change is put into the sets in parts, if no part needs what another one releases.
func TestALargeChangeMayExchangeKeysBetweenItsParts(t *testing.T) {
	b := newBeside(t)
	all := subscribers("s", 1, "")
	apply(t, b.Desired, "test", append(puts(port("p")), all...), intent.Options{Mode: intent.NoWait})
	// Each session takes the VLANs of the next one.
	rotated := slices.Clone(all)
	for i := range rotated {
		o := *rotated[i].Object
		o.Spec = all[(i+1)%len(all)].Object.Spec
		rotated[i].Object = &o
	}
	p, err := b.Plan(as("test"), rotated, intent.Options{})
	must(t, err)
	if len(p.Steps) != besideMany {
		t.Errorf("%d steps are planned", len(p.Steps))
	}
	apply(t, b.Desired, "test", rotated, intent.Options{Mode: intent.NoWait})
	// The last one of many is in conflict: none is changed, and all keep their claims.
	revision := b.Revision()
	wrong := append(subscribers("t", 100, ""), puts(session("last", "p", 1, ""))...)
	wrong[len(wrong)-1].Object.Spec.(*api.Session).Access.InnerVlan = 1
	for _, try := range []func() error{
		func() error { _, err := b.Plan(as("test"), wrong, intent.Options{}); return err },
		func() error {
			_, err := b.Apply(t.Context(), as("test"), wrong, intent.Options{Mode: intent.NoWait})
			return err
		},
	} {
		if errs := object.AllErrors(try()); len(errs) != 1 || errs[0].Object.Name != "last" {
			t.Errorf("errors %v", errs)
		}
	}
	if b.Revision() != revision {
		t.Error("it is a revision")
	}
	work := b.producer.Produce(subscribers("t", 100, ""))
	if work.Close(); len(work.Refused) > 0 {
		t.Errorf("%v is still reserved", work.Refused[0])
	}
	apply(t, b.Desired, "test", removed(all), intent.Options{Mode: intent.NoWait})
}

// lateFailure is a store whose commits fail after they were handed over, once it is on.
type lateFailure struct {
	intent.Store
	on bool
	// Called between both; nil: nothing.
	between func()
}

func (f *lateFailure) Commit(c *intent.Commit) error {
	if !f.on {
		return f.Store.Commit(c)
	}
	if c.Written != nil {
		c.Written()
	}
	if f.between != nil {
		f.between()
	}
	return errFull
}

func TestAChangeThatIsNotStoredReleasesNothing(t *testing.T) {
	r := registry(t)
	all := subscribers("s", 1, "")
	moved := subscribers("s", 100, "")
	// Two sessions exchange their VLANs, so that both changes are one.
	exchanged := []object.Change{all[0], all[1], all[2]}
	for i, spec := range []int{1, 0} {
		o := *all[i].Object
		o.Spec = all[spec].Object.Spec
		exchanged[i].Object = &o
	}
	exchanged[2].Object = nil
	// The interface's address is in a network of no session, and no VLAN is its.
	address := made("Interface", "i", &api.Interface{Vrf: "default", Addresses: []string{"192.0.2.1/24"}})
	network := made("Session", "n", &api.Session{Access: &api.Access{Port: "p", OuterVlan: 200}, Addresses: []string{"192.0.2.0/24"}})
	for _, c := range []struct {
		sentence string
		changes  []object.Change
		takes    []object.Change
	}{
		{"many deletions", removed(all), subscribers("t", 1, "")[:10]},
		{"a deletion", removed(all[:1]), subscribers("t", 1, "")[:1]},
		{"a deletion and an object of the same name", removed(all[:1]), subscribers("s", 300, "")[:1]},
		{"many that move", moved, subscribers("t", 1, "")[:10]},
		{"one that moves", moved[:1], subscribers("t", 1, "")[:1]},
		{"an exchange and a deletion", exchanged, subscribers("t", 1, "")[2:3]},
		{"an address and a network around it", removes(address), puts(network)},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			disk, err := store.Open(filepath.Join(t.TempDir(), "intent.db"), r)
			must(t, err)
			defer disk.Close()
			stored := &lateFailure{Store: disk}
			d, err := intent.New(intent.Config{Registry: r, Store: stored})
			must(t, err)
			apply(t, d, "test", append(puts(port("p"), address), all...), intent.Options{Mode: intent.NoWait})
			p, err := d.Producer("pppoe")
			must(t, err)
			produce := func() []intent.Refusal {
				work := p.Produce(c.takes)
				work.Close()
				return work.Refused
			}
			stored.on = true
			stored.between = func() {
				if refused := produce(); len(refused) != len(c.takes) {
					t.Errorf("during the sync, %d objects take a claim that may come back", len(c.takes)-len(refused))
				}
			}
			if _, err := d.Apply(t.Context(), as("test"), c.changes, intent.Options{Mode: intent.NoWait}); !errors.Is(err, errFull) {
				t.Fatal(err)
			}
			if refused := produce(); len(refused) != len(c.takes) {
				t.Errorf("after the failure, %d objects take a claim of another", len(c.takes)-len(refused))
			}
			if st, there := d.Get(c.changes[0].Key); !there || st.State != intent.Pending {
				t.Errorf("%s is %s", c.changes[0].Key, st.State)
			}
			// Once it is stored, the claims are free.
			stored.on = false
			apply(t, d, "test", c.changes, intent.Options{Mode: intent.NoWait})
			if refused := produce(); len(refused) > 0 {
				t.Errorf("%v is still reserved", refused[0])
			}
		})
	}
}
