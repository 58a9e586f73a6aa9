// Who has what of that which only one may have.
package object

import (
	"maps"
	"slices"
)

// Holdings says who has what. The zero H is nobody.
type Holdings[H comparable] struct {
	all   holders[H]
	parts map[uint64]shared[H]
	order func(a, b H) int
}

// shared is who has parts of something. Mostly that is one, which is kept without a map of its own.
type shared[H comparable] struct {
	part   uint64
	holder H
	// All of them, as soon as they are several.
	several map[uint64]H
}

func (s shared[H]) of(part uint64) (H, bool) {
	if s.several != nil {
		holder, taken := s.several[part]
		return holder, taken
	}
	if s.part == part {
		return s.holder, true
	}
	var nobody H
	return nobody, false
}

// NewHoldings returns Holdings in which nobody has anything. The order decides who is told of several holders.
func NewHoldings[H comparable](order func(a, b H) int) *Holdings[H] {
	return &Holdings[H]{parts: map[uint64]shared[H]{}, order: order}
}

// Reserve makes room for so many more.
func (h *Holdings[H]) Reserve(more int) { h.all.reserve(more) }

// Holder returns somebody else who has something that the claim excludes.
func (h *Holdings[H]) Holder(claimant H, m Mark) (H, bool) {
	if holder, taken := h.all.get(m.what); taken && holder != claimant {
		return holder, true
	}
	if len(h.parts) == 0 {
		return h.nobody()
	}
	parts, there := h.parts[m.what]
	if m.part != 0 || !there || parts.several == nil {
		part := m.part
		if part == 0 {
			part = parts.part
		}
		holder, taken := parts.of(part)
		return holder, there && taken && holder != claimant
	}
	var first H
	found := false
	for _, holder := range parts.several {
		if holder != claimant && (!found || h.order(holder, first) < 0) {
			first, found = holder, true
		}
	}
	return first, found
}

func (h *Holdings[H]) nobody() (nobody H, taken bool) { return nobody, false }

// Sharers returns who has parts of something.
func (h *Holdings[H]) Sharers(m Mark) []H {
	parts, there := h.parts[m.what]
	switch {
	case !there:
		return nil
	case parts.several == nil:
		return []H{parts.holder}
	}
	return slices.SortedFunc(maps.Values(parts.several), h.order)
}

// Take gives the claimant what it claims. Nobody else may have it.
func (h *Holdings[H]) Take(claimant H, m Mark) {
	if m.part == 0 {
		h.all.put(m.what, claimant)
		return
	}
	parts, there := h.parts[m.what]
	switch {
	case parts.several != nil:
		parts.several[m.part] = claimant
		return
	case there && parts.part != m.part:
		parts.several = map[uint64]H{parts.part: parts.holder, m.part: claimant}
	default:
		parts.part, parts.holder = m.part, claimant
	}
	h.parts[m.what] = parts
}

// Release takes it away again, if the claimant has it, and says whether it had.
func (h *Holdings[H]) Release(claimant H, m Mark) bool {
	if m.part == 0 {
		return h.all.delete(m.what, claimant)
	}
	parts, there := h.parts[m.what]
	if holder, taken := parts.of(m.part); !there || !taken || holder != claimant {
		return false
	}
	delete(parts.several, m.part)
	if len(parts.several) == 0 {
		delete(h.parts, m.what)
	}
	return true
}

// holders finds who has something by its hash; the zero H is nobody.
type holders[H comparable] struct {
	places []holding[H]
	count  int
}

// holding has what in halves: so a holder that is a number leaves no room beside it.
type holding[H comparable] struct {
	what   [2]uint32
	holder H
}

func (x *holding[H]) hash() uint64 { return uint64(x.what[1])<<32 | uint64(x.what[0]) }

func (h *holders[H]) place(what uint64) (at int, there bool) {
	var nobody H
	last := len(h.places) - 1
	for at = int(what) & last; h.places[at].holder != nobody; at = (at + 1) & last {
		if h.places[at].hash() == what {
			return at, true
		}
	}
	return at, false
}

func (h *holders[H]) get(what uint64) (holder H, taken bool) {
	if h.count == 0 {
		return holder, false
	}
	if at, there := h.place(what); there {
		return h.places[at].holder, true
	}
	return holder, false
}

func (h *holders[H]) put(what uint64, holder H) {
	h.grow(1)
	at, there := h.place(what)
	if !there {
		h.count++
	}
	h.places[at] = holding[H]{[2]uint32{uint32(what), uint32(what >> 32)}, holder}
}

// delete takes it from a holder, from nobody else.
func (h *holders[H]) delete(what uint64, holder H) bool {
	if h.count == 0 {
		return false
	}
	at, there := h.place(what)
	if !there || h.places[at].holder != holder {
		return false
	}
	h.count--
	var nobody H
	vacate(at, len(h.places), func(i int) (home int, taken bool) { return int(h.places[i].hash()), h.places[i].holder != nobody },
		func(to, from int) { h.places[to] = h.places[from] }, func(i int) { h.places[i] = holding[H]{} })
	return true
}

func (h *holders[H]) reserve(more int) {
	if more > h.count {
		h.grow(more)
	}
}

func (h *holders[H]) grow(more int) {
	places := max(leastPlaces, len(h.places))
	for crowded(h.count+more, places) {
		places *= 2
	}
	if places == len(h.places) {
		return
	}
	var nobody H
	before := h.places
	h.places = make([]holding[H], places)
	for _, p := range before {
		if p.holder == nobody {
			continue
		}
		at, _ := h.place(p.hash())
		h.places[at] = p
	}
}
