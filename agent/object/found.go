// SPDX-License-Identifier: Apache-2.0

// Properties of an object by itself, computed once and stored with it: the objects that it names, and its claims.
package object

import (
	"encoding/binary"
	"iter"
)

// The properties in an object's text: a byte of flags; the number of claims, and each claim's mark; then, for each
// object that it names, the rank of the kind and the name.
const (
	// It was looked for.
	examined = 1 << iota
	// It holds networks in which there may be no address of ours.
	wide
	// It has a part of something, and networks that others with a part of that may not have.
	apart
)

// hasPart is the bit of a mark behind which there is the mark of the part.
const hasPart = 1 << 63

// explore computes the properties. o is the content of k, and needs are the objects that it names: each once, without
// builtin ones.
func (k *StoredObject) explore(o *Object, needs []Key, c *Claimer) {
	c.marks, c.Wide, c.Apart = c.marks[:0], false, false
	k.kind.claim(o.Spec, c)
	holds := byte(examined)
	if c.Wide {
		holds |= wide
	}
	if c.Apart {
		holds |= apart
	}
	room := append(append(c.room[:0], k.text[:k.found]...), holds)
	room = binary.AppendUvarint(room, uint64(len(c.marks)))
	for _, m := range c.marks {
		if m.part == 0 {
			room = binary.LittleEndian.AppendUint64(room, m.what)
		} else {
			room = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(room, m.what|hasPart), m.part)
		}
	}
	for _, to := range needs {
		room = appendWord(binary.AppendUvarint(room, uint64(k.kind.rankOf(to.Kind))), to.Name)
	}
	k.text, c.room = string(room), room
}

// rankOf returns the rank of another kind, by its name.
func (k *Kind) rankOf(name string) int {
	for rank, other := range k.ordered {
		if other.Name == name {
			return rank
		}
	}
	return 0
}

// Examined reports whether the needs and claims are known.
func (k *StoredObject) Examined() bool { return k.finds(examined) }

// finds reports whether something was found to hold.
func (k *StoredObject) finds(what byte) bool {
	return int(k.found) < len(k.text) && k.text[k.found]&what != 0
}

// claims returns the number of claims, and the text behind it.
func (k *StoredObject) claims() (count int, marks string) {
	if k == nil || !k.Examined() {
		return 0, ""
	}
	n, bytes := uvarint(k.text[k.found+1:])
	return int(n), k.text[int(k.found)+1+bytes:]
}

// Claims returns how many claims it has.
func (k *StoredObject) Claims() int {
	count, _ := k.claims()
	return count
}

// Marks ranges over its claims. A nil object has none.
func (k *StoredObject) Marks() iter.Seq[Mark] {
	return func(yield func(Mark) bool) {
		count, rest := k.claims()
		for range count {
			var m Mark
			if m, rest = cutMark(rest); !yield(m) {
				return
			}
		}
	}
}

func cutMark(s string) (m Mark, rest string) {
	if m.what = fixed64(s); m.what&hasPart == 0 {
		return m, s[8:]
	}
	return Mark{m.what &^ hasPart, fixed64(s[8:])}, s[16:]
}

// fixed64 is binary.LittleEndian.Uint64 of a string.
func fixed64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Named is the text of the names of objects that it needs: equal texts mean equal needs.
func (k *StoredObject) Named() string {
	count, rest := k.claims()
	for range count {
		_, rest = cutMark(rest)
	}
	return rest
}

// Needs ranges over the objects that it names, except builtin ones: each once.
func (k *StoredObject) Needs() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for rest := k.Named(); rest != ""; {
			var to Key
			if to, rest = k.cutNeed(rest); !yield(to) {
				return
			}
		}
	}
}

func (k *StoredObject) cutNeed(s string) (to Key, rest string) {
	rank, bytes := uvarint(s)
	to.Kind = k.kind.ordered[rank].Name
	to.Name, rest = cutWord(s[bytes:])
	return to, rest
}

// Names reports whether it names another object.
func (k *StoredObject) Names(other Key) bool {
	for to := range k.Needs() {
		if to == other {
			return true
		}
	}
	return false
}
