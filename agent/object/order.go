// SPDX-License-Identifier: Apache-2.0

// The order of kinds: kinds come after the kinds that they need.
package object

import (
	"cmp"
	"slices"
	"strings"
)

// order gives each added kind its rank, behind those of the kinds that were there before, and finds the kinds whose objects can, through
// others, lead back to themselves.
//
// An object may need another although it does not name it: a route whose next hop is an address needs the interface whose network
// holds the address. Yet its kind can name that other kind. So a kind comes after all that its fields can lead to; and after those
// that lead to fewer kinds, so that the order is the same wherever it is made.
func (n *known) order(added []*Kind) {
	direct := map[*Kind][]*Kind{}
	for _, k := range n.kinds {
		direct[k] = appendNamedKinds(nil, k.Fields, map[*Fields]bool{})
	}
	reach := map[*Kind]int{}
	for _, k := range added {
		seen := map[*Kind]bool{}
		next := slices.Clone(direct[k])
		for len(next) > 0 {
			t := next[len(next)-1]
			next = next[:len(next)-1]
			if !seen[t] {
				seen[t] = true
				next = append(next, direct[t]...)
			}
		}
		k.looping = seen[k]
		delete(seen, k)
		reach[k] = len(seen)
	}
	slices.SortFunc(added, func(a, b *Kind) int {
		return cmp.Or(cmp.Compare(reach[a], reach[b]), strings.Compare(a.Name, b.Name))
	})
	first := len(n.ordered)
	n.ordered = append(n.ordered, added...)
	for i, k := range added {
		k.Rank, k.ordered = first+i, n.ordered
	}
}

// Named returns the kinds that fields of the kind refer to, some of them twice.
func (k *Kind) Named() []*Kind { return appendNamedKinds(nil, k.Fields, map[*Fields]bool{}) }

func appendNamedKinds(kinds []*Kind, fs *Fields, seen map[*Fields]bool) []*Kind {
	if seen[fs] {
		return kinds
	}
	seen[fs] = true
	for _, f := range fs.List {
		if f.Ref != nil {
			kinds = append(kinds, f.Ref)
		} else if f.Fields != nil {
			kinds = appendNamedKinds(kinds, f.Fields, seen)
		}
	}
	return kinds
}
