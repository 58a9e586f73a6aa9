package intent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/object"
)

func TestAnIndexHasEveryKeyOnceAndInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var i index
	there := map[object.Key]struct{}{}
	any := func() object.Key {
		kind := []string{"Acl", "Port", "Session", "SessionX"}[random.IntN(4)]
		return object.Key{Kind: kind, Name: []string{"a", "subscriber-", "x/", ""}[random.IntN(4)] + fmt.Sprint(random.IntN(3000))}
	}
	for range 40 {
		for range random.IntN(300) {
			k := any()
			i.add(k)
			there[k] = struct{}{}
		}
		i.settle()
		sorted := slices.SortedFunc(maps.Keys(there), object.Key.Compare)
		if got := slices.Collect(i.sorted.after(object.Key{})); !slices.Equal(got, sorted) {
			t.Fatalf("there are %d keys, not %d, or in another order", len(got), len(sorted))
		}
		for range 20 {
			k := any()
			at, found := slices.BinarySearchFunc(sorted, k, object.Key.Compare)
			if found {
				at++
			}
			if got := slices.Collect(i.sorted.after(k)); !slices.Equal(got, sorted[at:]) {
				t.Fatalf("%d keys come after %s, not %d", len(got), k, len(sorted)-at)
			}
		}
	}
}
