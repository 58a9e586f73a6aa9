// SPDX-License-Identifier: Apache-2.0

// A table of very many items by key: flat, with open addressing. A map takes three times the memory, nearly all of it
// for keys that the items have anyway, and the garbage collector scans all of it.
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
	shards [shards]slots
	// By their numbers less one. Those that are free are given to others, the last that became so first.
	pages [][]T
	free  []Number
	given int
}

// shards are parts of a table that grow independently: moving a million items at once would delay other requests
// noticeably. For the same reason items are in pages of so many.
const (
	shards   = 64
	pageBits = 12
	page     = 1 << pageBits
)

// manyMore are worth making room for at once.
const manyMore = 1 << 10

// inShard is how many of so many are in one shard, hardly ever more.
func inShard(all int) int { return all/shards + all/shards/16 }

// slots are a shard of a table.
type slots struct {
	places []slot
	count  int
}

// slot is where a thing is found: the first from its hash modulo the size on that was free. Number 0: it is free.
type slot struct {
	hash   uint32
	number Number
}

// Number identifies an item while it is in the table, and the item that replaces it there. 0: none.
type Number uint32

// minPlaces of a table with anything in it; of all places, at most 13 of 16 are taken.
const minPlaces = 8

func crowded(count, places int) bool { return count*16 > places*13 }

// roomFor returns how many places so many need, where there are some already.
func roomFor(count, places int) int {
	places = max(minPlaces, places)
	for crowded(count, places) {
		places *= 2
	}
	return places
}

func (k Key) hash() uint32 {
	h := uint32(maphash.String(seed, k.Name))
	// There are few kinds, and names hardly ever repeat between them: this suffices as a hash.
	if n := len(k.Kind); n > 0 {
		h ^= uint32(k.Kind[0]) << 8 * uint32(n)
	}
	return h
}

// Len returns how many things there are.
func (t *Table[T]) Len() int { return t.given - len(t.free) }

// At returns the thing that a number stands for.
func (t *Table[T]) At(n Number) T { return *t.at(n) }

func (t *Table[T]) at(n Number) *T { return &t.pages[(n-1)>>pageBits][(n-1)%page] }

// Compare orders numbers by the keys of their items.
func (t *Table[T]) Compare(a, b Number) int { return t.At(a).Key().Compare(t.At(b).Key()) }

func (t *Table[T]) shard(hash uint32) *slots { return &t.shards[hash>>26%shards] }

// place is where something is, or would be put.
func (t *Table[T]) place(s *slots, k Key, hash uint32) (at int, there bool) {
	last := len(s.places) - 1
	for at = int(hash) & last; s.places[at].number != 0; at = (at + 1) & last {
		if s.places[at].hash == hash && t.At(s.places[at].number).Key() == k {
			return at, true
		}
	}
	return at, false
}

// Number returns the number of the item with a key, or 0.
func (t *Table[T]) Number(k Key) Number {
	if t.Len() == 0 {
		return 0
	}
	hash := k.hash()
	s := t.shard(hash)
	if s.count == 0 {
		return 0
	}
	at, _ := t.place(s, k, hash)
	return s.places[at].number
}

// Get returns the item with a key, or the zero T.
func (t *Table[T]) Get(k Key) (found T) {
	if n := t.Number(k); n != 0 {
		found = t.At(n)
	}
	return found
}

// Put adds an item or replaces the one with its key. It returns the replaced item, or the zero T, and the number.
func (t *Table[T]) Put(thing T) (before T, n Number) {
	k := thing.Key()
	hash := k.hash()
	s := t.shard(hash)
	s.grow(1)
	at, there := t.place(s, k, hash)
	if there {
		n = s.places[at].number
		before, *t.at(n) = t.At(n), thing
		return before, n
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		n = t.next()
	}
	*t.at(n) = thing
	s.places[at] = slot{hash, n}
	s.count++
	return before, n
}

// next gives out another number. The first page grows: most tables are small.
func (t *Table[T]) next() Number {
	var nothing T
	if t.given%page == 0 {
		t.pages = append(t.pages, nil)
		if t.given > 0 {
			t.pages[t.given>>pageBits] = make([]T, 0, page)
		}
	}
	last := &t.pages[t.given>>pageBits]
	*last = append(*last, nothing)
	t.given++
	return Number(t.given)
}

// Delete takes something out, if it is there.
func (t *Table[T]) Delete(k Key) {
	hash := k.hash()
	s := t.shard(hash)
	if s.count == 0 {
		return
	}
	at, there := t.place(s, k, hash)
	if !there {
		return
	}
	var nothing T
	n := s.places[at].number
	*t.at(n) = nothing
	t.free = append(t.free, n)
	s.count--
	vacate(at, len(s.places), func(i int) (home int, taken bool) { return int(s.places[i].hash), s.places[i].number != 0 },
		func(to, from int) { s.places[to] = s.places[from] }, func(i int) { s.places[i] = slot{} })
}

// vacate frees a place, and moves up following items that would not be found any more.
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
	if more < manyMore || more <= t.Len() {
		return
	}
	each := inShard(more)
	for i := range t.shards {
		t.shards[i].grow(each)
	}
}

// grow makes room for so many more.
func (s *slots) grow(more int) {
	count := roomFor(s.count+more, len(s.places))
	if count == len(s.places) {
		return
	}
	before := s.places
	s.places = make([]slot, count)
	for _, p := range before {
		if p.number == 0 {
			continue
		}
		at := int(p.hash) & (count - 1)
		for s.places[at].number != 0 {
			at = (at + 1) & (count - 1)
		}
		s.places[at] = p
	}
}

// All ranges over the items, in no order.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		var nothing T
		for _, things := range t.pages {
			for _, thing := range things {
				if thing != nothing && !yield(thing) {
					return
				}
			}
		}
	}
}

// Some returns up to so many items whose numbers come after one, and the number to go on after; 0: there are no more. Unlike All, it may be
// called again after the table has changed: items that were put in meanwhile may be among them or not.
func (t *Table[T]) Some(after Number, most int) (some []T, next Number) {
	var nothing T
	last := min(int(after)+most, t.given)
	for n := int(after) + 1; n <= last; n++ {
		if thing := t.At(Number(n)); thing != nothing {
			some = append(some, thing)
		}
	}
	if last < t.given {
		next = Number(last)
	}
	return some, next
}
