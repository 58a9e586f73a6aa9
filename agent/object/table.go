// Where very many things are found by what they are called: a flat table with open addressing. A map takes three times the memory, nearly
// all of it for keys that the things have anyway, and the garbage collector looks through all of it.
package object

import (
	"hash/maphash"
	"iter"
	"slices"
)

// Table finds things by their keys. The zero Table is empty. It is not for several goroutines at once, and may not be changed while it
// is ranged over.
type Table[T interface {
	comparable
	Key() Key
}] struct {
	places []slot
	// By their numbers less one. Those that are free are given to others, the last that became so first.
	things []T
	free   []Number
}

// slot is where a thing is found: the first from its hash modulo the size on that was free. Number 0: it is free.
type slot struct {
	hash   uint32
	number Number
}

// Number stands for a thing as long as it is in a table, and so does what takes the place of the thing there. 0 stands for none.
type Number uint32

// leastPlaces of a table with anything in it; of all places, at most 13 of 16 are taken.
const leastPlaces = 8

func crowded(count, places int) bool { return count*16 > places*13 }

func (k Key) hash() uint32 {
	h := uint32(maphash.String(seed, k.Name))
	// Few kinds, and hardly ever the same names: that much tells them apart.
	if n := len(k.Kind); n > 0 {
		h ^= uint32(k.Kind[0]) << 8 * uint32(n)
	}
	return h
}

// Len returns how many things there are.
func (t *Table[T]) Len() int { return len(t.things) - len(t.free) }

// At returns the thing that a number stands for.
func (t *Table[T]) At(n Number) T { return t.things[n-1] }

// Compare orders numbers by the keys of what they stand for.
func (t *Table[T]) Compare(a, b Number) int { return t.At(a).Key().Compare(t.At(b).Key()) }

// place is where something is, or would be put.
func (t *Table[T]) place(k Key, hash uint32) (at int, there bool) {
	last := len(t.places) - 1
	for at = int(hash) & last; t.places[at].number != 0; at = (at + 1) & last {
		if t.places[at].hash == hash && t.At(t.places[at].number).Key() == k {
			return at, true
		}
	}
	return at, false
}

// Number returns the number of what has a key, or 0.
func (t *Table[T]) Number(k Key) Number {
	if t.Len() == 0 {
		return 0
	}
	at, _ := t.place(k, k.hash())
	return t.places[at].number
}

// Get returns what has a key, or the zero T.
func (t *Table[T]) Get(k Key) (found T) {
	if n := t.Number(k); n != 0 {
		found = t.At(n)
	}
	return found
}

// Put puts something in, in place of what has the same key, and returns that, or the zero T; and its number.
func (t *Table[T]) Put(thing T) (before T, n Number) {
	t.grow(1)
	k := thing.Key()
	hash := k.hash()
	at, there := t.place(k, hash)
	if there {
		n = t.places[at].number
		before, t.things[n-1] = t.At(n), thing
		return before, n
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.things[n-1] = thing
	} else {
		t.things = append(t.things, thing)
		n = Number(len(t.things))
	}
	t.places[at] = slot{hash, n}
	return before, n
}

// Delete takes something out, if it is there.
func (t *Table[T]) Delete(k Key) {
	if t.Len() == 0 {
		return
	}
	at, there := t.place(k, k.hash())
	if !there {
		return
	}
	var nothing T
	n := t.places[at].number
	t.things[n-1] = nothing
	t.free = append(t.free, n)
	vacate(at, len(t.places), func(i int) (home int, taken bool) { return int(t.places[i].hash), t.places[i].number != 0 },
		func(to, from int) { t.places[to] = t.places[from] }, func(i int) { t.places[i] = slot{} })
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
	if more <= t.Len() {
		return
	}
	t.grow(more)
	if fresh := more - len(t.free); fresh > 0 {
		t.things = slices.Grow(t.things, fresh)
	}
}

// grow makes room for so many more.
func (t *Table[T]) grow(more int) {
	count := max(leastPlaces, len(t.places))
	for crowded(t.Len()+more, count) {
		count *= 2
	}
	if count == len(t.places) {
		return
	}
	before := t.places
	t.places = make([]slot, count)
	for _, p := range before {
		if p.number == 0 {
			continue
		}
		at := int(p.hash) & (count - 1)
		for t.places[at].number != 0 {
			at = (at + 1) & (count - 1)
		}
		t.places[at] = p
	}
}

// All ranges over what is there, in no order.
func (t *Table[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		var nothing T
		for _, thing := range t.things {
			if thing != nothing && !yield(thing) {
				return
			}
		}
	}
}
