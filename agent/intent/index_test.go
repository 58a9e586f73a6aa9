// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/object"
)

func TestAnOrderHasEveryKeyOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var o order
	there, gone := map[object.Key]struct{}{}, map[object.Key]struct{}{}
	any := func() object.Key {
		kind := []string{"Acl", "Port", "Session", "SessionX"}[random.IntN(4)]
		return object.Key{Kind: kind, Name: []string{"a", "subscriber-", "x/", ""}[random.IntN(4)] + fmt.Sprint(random.IntN(3000))}
	}
	isGone := func(k object.Key) bool { _, is := gone[k]; return is }
	left := 0
	for round := range 200 {
		var added keys
		for range random.IntN(300) {
			k := any()
			added.add(k)
			there[k] = struct{}{}
			delete(gone, k)
		}
		if round > 100 {
			for k := range there {
				if random.IntN(8) == 0 {
					delete(there, k)
					gone[k] = struct{}{}
				}
			}
		}
		before := o
		listed := slices.Collect(before.after(object.Key{}))
		o = o.with(&added, len(there), isGone)
		if again := slices.Collect(before.after(object.Key{})); !slices.Equal(listed, again) {
			t.Fatal("an order that somebody still has changed")
		}
		all := slices.Collect(o.after(object.Key{}))
		if !slices.IsSortedFunc(all, object.Key.Compare) || len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Fatal("not in order, or not each once")
		}
		if o.most != before.most {
			goneToo := len(all) - len(there)
			if goneToo > len(there)+minLate {
				t.Fatalf("%d keys of %d are of what is gone", goneToo, len(all))
			}
			if round > 100 && goneToo == 0 {
				left++
			}
		}
		live := slices.DeleteFunc(slices.Clone(all), isGone)
		if sorted := slices.SortedFunc(maps.Keys(there), object.Key.Compare); !slices.Equal(live, sorted) {
			t.Fatalf("there are %d keys, not %d, or in another order", len(live), len(sorted))
		}
		for range 20 {
			k := any()
			at, found := slices.BinarySearchFunc(all, k, object.Key.Compare)
			if found {
				at++
			}
			if got := slices.Collect(o.after(k)); !slices.Equal(got, all[at:]) {
				t.Fatalf("%d keys come after %s, not %d", len(got), k, len(all)-at)
			}
		}
	}
	if left == 0 {
		t.Error("what is gone was never left out")
	}
}
