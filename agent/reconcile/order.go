// In which order what can be done at once is done.
package reconcile

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// ordered has beside a step what it is sorted by: the rank, and the first of its name that not all of them have in common.
type ordered struct {
	rank  int
	first uint64
	step  *step
}

// sortWave brings deletions before all else, what needs much before what needs little, and what is put the other way round; what is of
// one kind in the order of its names.
func (g *graph) sortWave() {
	if len(g.wave) < 2 {
		return
	}
	common := len(g.wave[0].Key.Name)
	for _, s := range g.wave[1:] {
		common = commonPrefix(g.wave[0].Key.Name[:common], s.Key.Name)
	}
	order := make([]ordered, len(g.wave))
	for i, s := range g.wave {
		order[i] = ordered{g.rank(s.entry), beginning(s.Key.Name[common:]), s}
		if s.put == nil {
			order[i].rank = -1 - order[i].rank
		}
	}
	slices.SortFunc(order, func(a, b ordered) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		if a.first != b.first {
			return cmp.Compare(a.first, b.first)
		}
		return cmp.Or(strings.Compare(a.step.Key.Name, b.step.Key.Name), strings.Compare(a.step.Key.Kind, b.step.Key.Kind))
	})
	for i := range order {
		g.wave[i] = order[i].step
	}
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// beginning is less where a name is less, or the same where it may be.
func beginning(name string) uint64 {
	var b [8]byte
	copy(b[:], name)
	return binary.BigEndian.Uint64(b[:])
}
