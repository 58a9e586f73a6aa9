// SPDX-License-Identifier: Apache-2.0

// Holders of claims.
package object

import "slices"

// Holdings maps values to their holders: a flat table with open addressing, as Table. The zero H is no holder.
type Holdings[H comparable] struct {
	shards [shards]holders[H]
	order  func(a, b H) int
	// Further holders of parts of the same thing; the first one is in the table.
	beside map[uint64][]holding[H]
}

// holders finds the holder of a value by its hash.
type holders[H comparable] struct {
	places []holding[H]
	count  int
}

// holding has 16 bytes with a holder that is a number. Of a part there is half of its hash: few share one thing.
type holding[H comparable] struct {
	what   [2]uint32
	part   uint32
	holder H
}

// hasBeside is a bit of a mark that is free: other parts of that are taken, too.
const hasBeside = 1 << 63

// short differs for each part, and is 0 without a part.
func (m Mark) short() uint32 {
	if m.part == 0 {
		return 0
	}
	return max(1, uint32(m.part))
}

func (x *holding[H]) hash() uint64 { return (uint64(x.what[1])<<32 | uint64(x.what[0])) &^ hasBeside }

func (x *holding[H]) shared() bool { return x.what[1]&(hasBeside>>32) != 0 }

// excludes reports whether a mark reserves its value for one holder.
func (x *holding[H]) excludes(claimant H, part uint32) bool {
	return x.holder != claimant && (x.part == part || x.part == 0 || part == 0)
}

// NewHoldings returns empty Holdings. The order decides which of several holders is named.
func NewHoldings[H comparable](order func(a, b H) int) *Holdings[H] {
	return &Holdings[H]{order: order}
}

// Reserve makes room for so many more.
func (h *Holdings[H]) Reserve(more int) {
	if more < manyMore {
		return
	}
	each := inShard(more)
	for i := range h.shards {
		h.shards[i].grow(each)
	}
}

func (h *Holdings[H]) shard(what uint64) *holders[H] { return &h.shards[what>>56%shards] }

// Holder returns another object that has a claim which this claim excludes.
func (h *Holdings[H]) Holder(claimant H, m Mark) (holder H, taken bool) {
	x := h.shard(m.what).get(m.what)
	if x == nil {
		return holder, false
	}
	part := m.short()
	if x.excludes(claimant, part) {
		holder, taken = x.holder, true
	}
	if x.shared() && !(taken && x.part == 0) {
		for _, other := range h.beside[m.what] {
			if other.excludes(claimant, part) && (!taken || h.order(other.holder, holder) < 0) {
				holder, taken = other.holder, true
			}
		}
	}
	return holder, taken
}

// Sharers returns the holders of parts of a thing.
func (h *Holdings[H]) Sharers(m Mark) []H {
	x := h.shard(m.what).get(m.what)
	if x == nil {
		return nil
	}
	all := []holding[H]{*x}
	if x.shared() {
		all = append(all, h.beside[m.what]...)
	}
	var sharers []H
	for _, one := range all {
		if one.part != 0 {
			sharers = append(sharers, one.holder)
		}
	}
	slices.SortFunc(sharers, h.order)
	return sharers
}

// Claim gives the claimant its claim, or returns another object that has a claim which this one excludes.
func (h *Holdings[H]) Claim(claimant H, m Mark) (holder H, taken bool) {
	s := h.shard(m.what)
	s.grow(1)
	at, there := s.place(m.what)
	if !there {
		s.places[at] = newHolding(claimant, m)
		s.count++
		return holder, false
	}
	if holder, taken = h.Holder(claimant, m); !taken {
		h.Take(claimant, m)
	}
	return holder, taken
}

func newHolding[H comparable](claimant H, m Mark) holding[H] {
	return holding[H]{[2]uint32{uint32(m.what), uint32(m.what >> 32)}, m.short(), claimant}
}

// Take gives the claimant its claim. No other object may have it.
func (h *Holdings[H]) Take(claimant H, m Mark) {
	s := h.shard(m.what)
	s.grow(1)
	new := newHolding(claimant, m)
	at, there := s.place(m.what)
	switch x := &s.places[at]; {
	case !there:
		*x = new
		s.count++
	case x.part == new.part:
		x.holder = claimant
	default:
		if h.beside == nil {
			h.beside = map[uint64][]holding[H]{}
		}
		others := h.beside[m.what]
		if i := slices.IndexFunc(others, func(o holding[H]) bool { return o.part == new.part }); i >= 0 {
			others[i].holder = claimant
			return
		}
		h.beside[m.what] = append(others, new)
		x.what[1] |= hasBeside >> 32
	}
}

// Release removes the claimant's claim, and reports whether it had it.
func (h *Holdings[H]) Release(claimant H, m Mark) bool {
	s := h.shard(m.what)
	x := s.get(m.what)
	if x == nil {
		return false
	}
	part := m.short()
	if !x.shared() {
		if x.part != part || x.holder != claimant {
			return false
		}
		s.delete(m.what)
		return true
	}
	others := h.beside[m.what]
	if x.part == part {
		if x.holder != claimant {
			return false
		}
		x.part, x.holder = others[0].part, others[0].holder
		others = slices.Delete(others, 0, 1)
	} else {
		i := slices.IndexFunc(others, func(o holding[H]) bool { return o.part == part && o.holder == claimant })
		if i < 0 {
			return false
		}
		others = slices.Delete(others, i, i+1)
	}
	if h.beside[m.what] = others; len(others) == 0 {
		delete(h.beside, m.what)
		x.what[1] &^= hasBeside >> 32
	}
	return true
}

func (h *holders[H]) place(what uint64) (at int, there bool) {
	var none H
	last := len(h.places) - 1
	for at = int(what) & last; h.places[at].holder != none; at = (at + 1) & last {
		if h.places[at].hash() == what {
			return at, true
		}
	}
	return at, false
}

// get returns the holder of a value, or nil.
func (h *holders[H]) get(what uint64) *holding[H] {
	if h.count == 0 {
		return nil
	}
	if at, there := h.place(what); there {
		return &h.places[at]
	}
	return nil
}

// delete removes the entry.
func (h *holders[H]) delete(what uint64) {
	at, _ := h.place(what)
	h.count--
	var none H
	vacate(at, len(h.places), func(i int) (home int, taken bool) { return int(h.places[i].hash()), h.places[i].holder != none },
		func(to, from int) { h.places[to] = h.places[from] }, func(i int) { h.places[i] = holding[H]{} })
}

func (h *holders[H]) grow(more int) {
	places := roomFor(h.count+more, len(h.places))
	if places == len(h.places) {
		return
	}
	var none H
	before := h.places
	h.places = make([]holding[H], places)
	for _, p := range before {
		if p.holder == none {
			continue
		}
		at, _ := h.place(p.hash())
		h.places[at] = p
	}
}
