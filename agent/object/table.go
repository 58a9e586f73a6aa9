// Where very many things are found by what they are called, or by what they claim: flat tables with open addressing. A map takes three
// times the memory, nearly all of it for keys that the things have anyway, and the garbage collector looks through all of it.
package object

import (
	"hash/maphash"
	"iter"
)

// Table finds things by their keys. The zero Table is empty. It is not for several goroutines at once, and may not be changed while it
// is ranged over.
type Table[T interface {
	comparable
	Key() Key
}] struct {
	// Of each place a part of the key's hash, 0 if it is free; and what is there. A thing is at the first place from hash modulo size on
	// that was free.
	hashes []uint32
	things []T
	count  int
}

// leastPlaces of a table with anything in it; of all places, at most 13 of 16 are taken.
const leastPlaces = 8

func crowded(count, places int) bool { return count*16 > places*13 }

func (k Key) hash() uint32 {
	h := uint32(maphash.String(seed, k.Name))
	// Few kinds, and hardly ever the same names: that much tells them apart.
	if n := len(k.Kind); n > 0 {
		h ^= uint32(k.Kind[0]) << 8 * uint32(n)
	}
	return max(1, h)
}

// Len returns how many things there are.
func (t *Table[T]) Len() int { return t.count }

// place is where something is, or would be put.
func (t *Table[T]) place(k Key, hash uint32) (at int, there bool) {
	last := len(t.hashes) - 1
	for at = int(hash) & last; t.hashes[at] != 0; at = (at + 1) & last {
		if t.hashes[at] == hash && t.things[at].Key() == k {
			return at, true
		}
	}
	return at, false
}

// Get returns what has a key, or the zero T.
func (t *Table[T]) Get(k Key) (found T) {
	if t.count == 0 {
		return found
	}
	if at, there := t.place(k, k.hash()); there {
		found = t.things[at]
	}
	return found
}

// Put puts something in, in place of what has the same key, and returns that, or the zero T.
func (t *Table[T]) Put(thing T) (before T) {
	t.grow(1)
	k := thing.Key()
	hash := k.hash()
	at, there := t.place(k, hash)
	if there {
		before = t.things[at]
	} else {
		t.hashes[at] = hash
		t.count++
	}
	t.things[at] = thing
	return before
}

// Delete takes something out, if it is there.
func (t *Table[T]) Delete(k Key) {
	if t.count == 0 {
		return
	}
	at, there := t.place(k, k.hash())
	if !there {
		return
	}
	t.count--
	vacate(at, len(t.hashes), func(i int) (home int, taken bool) { return int(t.hashes[i]), t.hashes[i] != 0 },
		func(to, from int) { t.hashes[to], t.things[to] = t.hashes[from], t.things[from] },
		func(i int) {
			var nothing T
			t.hashes[i], t.things[i] = 0, nothing
		})
}

// vacate frees a place, and has what follows move up where it would not be found any more.
func vacate(free, places int, look func(int) (home int, taken bool), move func(to, from int), clear func(int)) {
	last := places - 1
	for next := (free + 1) & last; ; next = (next + 1) & last {
		home, taken := look(next)
		if !taken {
			break
		}
		if (next-home)&last >= (next-free)&last {
			move(free, next)
			free = next
		}
	}
	clear(free)
}

// Reserve is called before so many are put in that may be others than those that are there, so that it need not grow again and again.
func (t *Table[T]) Reserve(more int) {
	if more > t.count {
		t.grow(more)
	}
}

// grow makes room for so many more.
func (t *Table[T]) grow(more int) {
	places := max(leastPlaces, len(t.hashes))
	for crowded(t.count+more, places) {
		places *= 2
	}
	if places == len(t.hashes) {
		return
	}
	hashes, things := t.hashes, t.things
	t.hashes, t.things = make([]uint32, places), make([]T, places)
	for i, hash := range hashes {
		if hash == 0 {
			continue
		}
		at := int(hash) & (places - 1)
		for t.hashes[at] != 0 {
			at = (at + 1) & (places - 1)
		}
		t.hashes[at], t.things[at] = hash, things[i]
	}
}

// All ranges over what is there, in no order.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i, hash := range t.hashes {
			if hash != 0 && !yield(t.things[i]) {
				return
			}
		}
	}
}

// holders finds who has something by its hash; the zero H is nobody.
type holders[H comparable] struct {
	places []holding[H]
	count  int
}

type holding[H comparable] struct {
	what   uint64
	holder H
}

func (h *holders[H]) place(what uint64) (at int, there bool) {
	var nobody H
	last := len(h.places) - 1
	for at = int(what) & last; h.places[at].holder != nobody; at = (at + 1) & last {
		if h.places[at].what == what {
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
	h.places[at] = holding[H]{what, holder}
}

// delete takes it from a holder, from nobody else.
func (h *holders[H]) delete(what uint64, holder H) {
	if h.count == 0 {
		return
	}
	at, there := h.place(what)
	if !there || h.places[at].holder != holder {
		return
	}
	h.count--
	var nobody H
	vacate(at, len(h.places), func(i int) (home int, taken bool) { return int(h.places[i].what), h.places[i].holder != nobody },
		func(to, from int) { h.places[to] = h.places[from] }, func(i int) { h.places[i] = holding[H]{} })
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
		at, _ := h.place(p.what)
		h.places[at] = p
	}
}
