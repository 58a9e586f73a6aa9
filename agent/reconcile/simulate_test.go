// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

// versionFor makes a version of an object.
func versionFor(t *testing.T, r *object.Registry, kind, name string, spec proto.Message) *Version {
	t.Helper()
	packed, err := proto.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := r.Explore(object.Key{Kind: kind, Name: name}, packed)
	if err != nil {
		t.Fatal(err)
	}
	return &Version{StoredObject: kept}
}

func planner(t *testing.T) (*object.Registry, *Reconciler) {
	t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return registry, New(registry, Options{})
}

func desiredOf(v *Version) Desired { return Desired{Key: v.Key(), Version: v} }

// A data plane with objects of other clients may have two objects with the same claim.
func TestAPlanLeavesEachClaimWithItsHolder(t *testing.T) {
	registry, r := planner(t)
	g := r.graph
	var entries []*entry
	for _, name := range []string{"a", "b"} {
		v := versionFor(t, registry, "Port", name, &api.Port{Device: "eth0"})
		e := g.ensure(v.Key())
		g.setDesired(v.Key(), v, nil)
		g.setHave(e, v)
		entries = append(entries, e)
	}
	a, b := entries[0], entries[1]
	holder := func() object.Number {
		for m := range a.have.Marks() {
			if has, taken := g.holdings.Holder(object.Number(0), m); taken {
				return has
			}
		}
		return object.Number(0)
	}
	if holder() != a.number {
		t.Fatalf("%d has it", holder())
	}
	for _, e := range []*entry{b, a} {
		if planned, _ := r.Plan([]Desired{{Key: e.key}}); len(planned) != 1 || planned[0].Action != Delete {
			t.Errorf("planned %v", planned)
		}
		if holder() != a.number {
			t.Errorf("after a plan without %d, %d has it, not %d", e.number, holder(), a.number)
		}
	}
}

func TestAPlanLeavesTheLockToProducers(t *testing.T) {
	const backlog = 20_000
	registry, r := planner(t)
	acl := versionFor(t, registry, "Acl", "a", &api.Acl{})
	port := versionFor(t, registry, "Port", "p", &api.Port{Device: "net_null"})
	queued := []Desired{desiredOf(acl), desiredOf(port)}
	for i := range uint32(backlog) {
		queued = append(queued, desiredOf(versionFor(t, registry, "Session", fmt.Sprint("s", i), &api.Session{
			Access: &api.Access{Port: "p", OuterVlan: 1 + i/4000, InnerVlan: 1 + i%4000}, Policy: &api.Policy{AclUp: "a"},
		})))
	}
	r.SetDesired(queued, false).Close()
	for _, c := range []struct {
		sentence         string
		want             Desired
		planned, waiting int
		few              bool
	}{
		{"what the backlog does not concern", desiredOf(versionFor(t, registry, "Acl", "b", &api.Acl{})), 1, 0, true},
		{"a session beside those of the backlog", desiredOf(versionFor(t, registry, "Session", "one", &api.Session{
			Access: &api.Access{Port: "p", OuterVlan: 4000, InnerVlan: 7}, Policy: &api.Policy{AclUp: "a"},
		})), 1, 0, true},
		{"the loss of what all of them need", Desired{Key: acl.Key()}, backlog + 1, backlog, false},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			parts, copied := 0, 0
			busy := false
			r.options.Between = func() {
				if busy {
					return
				}
				busy = true
				defer func() { busy = false }()
				parts++
				if !r.mu.TryLock() {
					t.Fatal("a plan holds the lock")
				}
				r.mu.Unlock()
				// A producer's call.
				r.SetDesired([]Desired{desiredOf(versionFor(t, registry, "Vrf", fmt.Sprint("v", parts), &api.Vrf{}))}, false).Close()
			}
			defer func() { r.options.Between = nil }()
			planned, waiting := r.Plan([]Desired{c.want})
			if len(planned) != c.planned || len(waiting) != c.waiting {
				t.Errorf("%d operations, and %d wait", len(planned), len(waiting))
			}
			if parts < backlog/scannedAtOnce {
				t.Errorf("the lock was free %d times", parts)
			}
			r.options.Between = nil
			if copied = len(r.newSnapshot([]Desired{c.want}).all); c.few && copied > 10 {
				t.Errorf("%d entries were copied", copied)
			}
		})
	}
}
