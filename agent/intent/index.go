// The keys of what may be there, in order: as one text, in which each says how much of the one before it begins with, and how it goes on.
package intent

import (
	"encoding/binary"
	"iter"
	"slices"
	"sort"

	"sluice.dev/sluice/agent/object"
)

// index is the keys of what may be there, in order. Some of them may be gone.
type index struct {
	// It is not changed any more: others are put in its place.
	sorted *keys
	// In no order.
	added keys
	// What is known of what nobody wants, of each site.
	unwanted []uint64
}

// add takes note of a key.
func (i *index) add(k object.Key) { i.added.add(k) }

// settle puts what was added in its place.
func (i *index) settle() {
	added := slices.SortedFunc(i.added.after(object.Key{}), object.Key.Compare)
	if i.sorted != nil && len(added) == 0 {
		return
	}
	merged := &keys{}
	put := func(k object.Key) {
		if merged.count == 0 || k.Kind != merged.kind || k.Name != string(merged.name) {
			merged.add(k)
		}
	}
	for k := range i.sorted.after(object.Key{}) {
		for len(added) > 0 && added[0].Compare(k) < 0 {
			put(added[0])
			added = added[1:]
		}
		put(k)
	}
	for _, k := range added {
		put(k)
	}
	i.sorted, i.added = merged, keys{}
}

// keys is a list of keys.
type keys struct {
	text []byte
	// Where each run of so many begins, of which the first is said whole.
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
