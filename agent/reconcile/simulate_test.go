package reconcile

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// A data plane that somebody else filled may have two objects that claim the same.
func TestWhatIsOnlyTriedLeavesEachClaimWithWhoHasIt(t *testing.T) {
	r, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	g := newGraph(r, time.Now, func(*entry) {})
	spec, err := proto.Marshal(&api.Port{Device: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	var entries []*entry
	for _, name := range []string{"a", "b"} {
		k := object.Key{Kind: "Port", Name: name}
		kept, err := r.Explore(k, spec)
		if err != nil {
			t.Fatal(err)
		}
		e := g.ensure(k)
		g.setHave(e, &Version{Kept: kept})
		entries = append(entries, e)
	}
	a, b := entries[0], entries[1]
	holder := func() object.Number {
		for m := range a.have.marks() {
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
		g.simulate(func() { g.setHave(e, nil) })
		if holder() != a.number {
			t.Errorf("once it was tried without %d, %d has it, not %d", e.number, holder(), a.number)
		}
	}
}
