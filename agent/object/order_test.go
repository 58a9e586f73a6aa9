// SPDX-License-Identifier: Apache-2.0

package object

import (
	"slices"
	"testing"
)

func TestKindsComeAfterAllThatTheyCanName(t *testing.T) {
	ordered := slices.Clone(registry(t).Kinds())
	slices.SortFunc(ordered, func(a, b *Kind) int { return a.Rank - b.Rank })
	rank := map[string]int{}
	for i, k := range ordered {
		if k.Rank != i {
			t.Errorf("%s has rank %d, not %d", k.Name, k.Rank, i)
		}
		rank[k.Name] = i
		for _, named := range k.Named() {
			if at, before := rank[named.Name]; named != k && (!before || at >= i) {
				t.Errorf("%s comes before %s", k.Name, named.Name)
			}
		}
	}
	for _, pair := range [][2]string{{"Interface", "Neighbor"}, {"Interface", "Route"}, {"Neighbor", "Route"}, {"Route", "Session"}} {
		if rank[pair[0]] >= rank[pair[1]] {
			t.Errorf("%s comes after %s", pair[0], pair[1])
		}
	}
}

func TestAKindThatIsNotKnownIsAskedForOnce(t *testing.T) {
	r, asked := registry(t), 0
	r.AskFor(func() { asked++ })
	for _, name := range []string{"Session", "Nothing", "Nothing"} {
		if (r.Kind(name) == nil) != (name == "Nothing") {
			t.Errorf("%s is there", name)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	r.AskFor(func() { asked++ })
	if _, err := r.Lookup("nothings"); err == nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
