// SPDX-License-Identifier: Apache-2.0

// The keys of objects, in order, with prefix compression: each entry holds the length of the prefix that it shares
// with the entry before it, and the rest.
package intent

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"
	"sync"

	"sluice.dev/sluice/agent/object"
)

// index holds the keys of objects, in order. Some of the objects may be gone.
type index struct {
	// Guarded by Desired.mu. In no order.
	added keys

	// Held while the added keys are sorted. It may be held for long, Desired.mu may not.
	settling sync.Mutex
	order    order
	// Status of objects that the configuration does not have, for each site.
	notDesired []uint64
}

// order is keys in order. It is not changed any more.
type order struct {
	// Nearly all keys; and later additions, so that an addition does not rewrite all of them.
	most *keys
	late []object.Key
}

// So much of all may have come later.
const (
	latePart = 16
	minLate  = 1024
)

// with returns the order with added keys, which are in no order. If it is made anew, it leaves out gone keys,
// provided that there are more of them than live ones.
func (o order) with(added *keys, live int, gone func(object.Key) bool) order {
	if added.count == 0 && o.most != nil {
		return o
	}
	late := slices.Concat(o.late, slices.Collect(added.after(object.Key{})))
	slices.SortFunc(late, object.Key.Compare)
	o.late = slices.Compact(late)
	if o.most != nil && len(o.late) <= max(minLate, o.most.count/latePart) {
		return o
	}
	if o.most != nil && o.most.count+len(o.late) <= 2*live+minLate {
		gone = func(object.Key) bool { return false }
	}
	most := &keys{}
	for k := range o.after(object.Key{}) {
		if !gone(k) {
			most.add(k)
		}
	}
	return order{most: most}
}

// after ranges over the keys that come after one, or over all.
func (o order) after(k object.Key) iter.Seq[object.Key] {
	return func(yield func(object.Key) bool) {
		late := o.late
		if at, found := slices.BinarySearchFunc(late, k, object.Key.Compare); found {
			late = late[at+1:]
		} else {
			late = late[at:]
		}
		for k := range o.most.after(k) {
			for len(late) > 0 && late[0].Compare(k) < 0 {
				if !yield(late[0]) {
					return
				}
				late = late[1:]
			}
			if len(late) > 0 && late[0] == k {
				late = late[1:]
			}
			if !yield(k) {
				return
			}
		}
		for _, k := range late {
			if !yield(k) {
				return
			}
		}
	}
}

// ordered returns the keys of objects, some of which may be gone.
func (d *Desired) ordered() order {
	i := &d.index
	i.settling.Lock()
	defer i.settling.Unlock()
	notDesired, at := d.sites.notDesired(i.notDesired)
	i.notDesired = at
	d.mu.Lock()
	added, live := i.added, d.records.Len()
	i.added = keys{}
	d.mu.Unlock()
	for _, k := range notDesired {
		added.add(k)
	}
	i.order = i.order.with(&added, live, func(k object.Key) bool {
		st, _ := d.look(k)
		return st.State == Gone
	})
	return i.order
}

// keys is a list of keys.
type keys struct {
	text []byte
	// The starts of runs of this length, whose first key is stored whole.
	runs  []uint32
	count int
	// Of the last.
	kind string
	name []byte
}

const runLength = 32

func (l *keys) add(k object.Key) {
	if l.count%runLength == 0 {
		l.runs, l.kind, l.name = append(l.runs, uint32(len(l.text))), "", l.name[:0]
	}
	same := 0
	if k.Kind == l.kind {
		for same < min(len(k.Name), len(l.name)) && k.Name[same] == l.name[same] {
			same++
		}
		l.text = append(l.text, 0)
	} else {
		l.text = append(binary.AppendUvarint(l.text, uint64(len(k.Kind))), k.Kind...)
	}
	l.text = binary.AppendUvarint(l.text, uint64(same))
	l.text = append(binary.AppendUvarint(l.text, uint64(len(k.Name)-same)), k.Name[same:]...)
	l.count++
	l.kind, l.name = k.Kind, append(l.name[:0], k.Name...)
}

// after ranges over the keys; where they are in order, over those that come after one.
func (l *keys) after(k object.Key) iter.Seq[object.Key] {
	return func(yield func(object.Key) bool) {
		if l == nil || l.count == 0 {
			return
		}
		from := 0
		if k != (object.Key{}) {
			// The last run that does not begin behind it.
			from = max(0, sort.Search(len(l.runs), func(i int) bool {
				first, _ := cutKey(l.text[l.runs[i]:], object.Key{})
				return first.Compare(k) > 0
			})-1)
		}
		for run := from; run < len(l.runs); run++ {
			end := len(l.text)
			if run+1 < len(l.runs) {
				end = int(l.runs[run+1])
			}
			rest := l.text[l.runs[run]:end]
			for next := (object.Key{}); len(rest) > 0; {
				next, rest = cutKey(rest, next)
				if (k == object.Key{} || next.Compare(k) > 0) && !yield(next) {
					return
				}
			}
		}
	}
}

// cutKey takes off the key that follows another.
func cutKey(text []byte, before object.Key) (k object.Key, rest []byte) {
	k.Kind = before.Kind
	kind, text := cutUvarint(text)
	if kind > 0 {
		k.Kind, text = string(text[:kind]), text[kind:]
	}
	same, text := cutUvarint(text)
	more, text := cutUvarint(text)
	k.Name = before.Name[:same] + string(text[:more])
	return k, text[more:]
}

func cutUvarint(b []byte) (v int, rest []byte) {
	n, bytes := binary.Uvarint(b)
	return int(n), b[bytes:]
}
