// SPDX-License-Identifier: Apache-2.0

// The order of steps that are possible at once.
package reconcile

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// ordered is a step with its sort key: the rank, and the start of its name after the common prefix.
type ordered struct {
	rank  int
	first uint64
	step  *step
}

// sortWave sorts deletions first, kinds that need much before kinds that need little; then puts, the other way round;
// steps of one kind by name.
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
