// What is kept of an object: who says what about it, and what of that counts.
package intent

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Record is what everybody says of one object. It is never changed after it was made: a change is another Record.
type Record struct {
	// Of the latest change of any layer.
	Revision uint64
	// How often what counts has changed, and when it did last, in nanoseconds since the Unix epoch.
	Generation uint64
	Accepted   int64
	// The one that counts most first.
	Layers []Layer

	// What the reconciler is told: that of this record or, if what counts is not another, of one before.
	version *reconcile.Version
	// What several layers say together is in here from the beginning.
	own reconcile.Version
	// The layers, where there is one: nearly always.
	one [1]Layer
}

// alone makes a record of one layer.
func alone(l Layer) *Record {
	r := &Record{one: [1]Layer{l}}
	r.Layers = r.one[:]
	return r
}

// Key makes records be found by their keys.
func (r *Record) Key() object.Key { return r.Layers[0].Key() }

// Layer is what one owner says of an object.
type Layer struct {
	Owner string
	*object.Kept
	// Since when it says so; and when it took over from others of its priority, 0: it did not.
	Revision, Taken uint64
}

// layerOf returns what an owner says, or nil.
func (r *Record) layerOf(owner string) *Layer {
	if r == nil {
		return nil
	}
	for i := range r.Layers {
		if r.Layers[i].Owner == owner {
			return &r.Layers[i]
		}
	}
	return nil
}

// kept returns what counts, or nil.
func (r *Record) kept() *object.Kept {
	if r == nil || len(r.Layers) == 0 {
		return nil
	}
	if len(r.Layers) > 1 {
		return r.own.Kept
	}
	return r.Layers[0].Kept
}

// owner returns who counts most.
func (r *Record) owner() string {
	if r == nil || len(r.Layers) == 0 {
		return ""
	}
	return r.Layers[0].Owner
}

func (r *Record) revision() uint64 {
	if r == nil {
		return 0
	}
	return r.Revision
}

// Owner says how what an owner wants is treated.
type Owner struct {
	// Of several who say something of the same field, the highest counts. Usually 0.
	Priority int
	// What it wants is kept, but is no part of history: it comes and goes with subscribers.
	Unrecorded bool
}

// sortLayers puts what counts most first: the highest priority, then who took over last. Who is left then says nothing that another of
// them says differently, and those who were there first come first; one that has no revision yet was there last.
func (d *Desired) sortLayers(layers []Layer) {
	slices.SortStableFunc(layers, func(a, b Layer) int {
		return cmp.Or(cmp.Compare(d.config.Owners[b.Owner].Priority, d.config.Owners[a.Owner].Priority), cmp.Compare(b.Taken, a.Taken),
			cmp.Compare(a.Revision-1, b.Revision-1), cmp.Compare(a.Owner, b.Owner))
	})
}

// merge sorts the layers, and finds what they say together.
func (d *Desired) merge(r *Record) error {
	if r == nil || len(r.Layers) < 2 {
		return nil
	}
	d.sortLayers(r.Layers)
	var err error
	r.own.Kept, err = object.Merge(r.said())
	return err
}

// said returns what the layers say, the one that counts most first.
func (r *Record) said() []*object.Kept {
	if r == nil {
		return nil
	}
	said := make([]*object.Kept, len(r.Layers))
	for i, l := range r.Layers {
		said[i] = l.Kept
	}
	return said
}

// without returns the layers but for an owner's.
func (r *Record) without(owner string) []Layer {
	if r == nil {
		return nil
	}
	layers := make([]Layer, 0, len(r.Layers)+1)
	for _, l := range r.Layers {
		if l.Owner != owner {
			layers = append(layers, l)
		}
	}
	return layers
}

// Edit is a change of what is kept of one object. A nil Record: nobody says anything.
type Edit struct {
	Key           object.Key
	Before, After *Record
}

// effective says whether the change is one of what counts.
func (e *Edit) effective() bool {
	return !e.Before.kept().Equal(e.After.kept())
}

// Commit is a revision as it is kept, whole or not at all.
type Commit struct {
	Revision Revision
	Edits    []Edit
	// It is part of history.
	Recorded bool
	// If not nil, it is not known yet whether it stands: Load returns this until another takes its place, or it is closed.
	Open *Open
	// Of an open revision that this one undoes: what is open of it now. Nil: nothing, it is closed; Closes is its number, or 0.
	Closes  uint64
	Leaves  *Open
	Revised []Undo
	// Revisions of history before this one are forgotten, but for what is open. 0: not now.
	Oldest uint64
	// If not nil, a store that takes longer to make this outlast the machine than the process calls it, once, when it outlasts the
	// process, with which it would be found again. Commit may still return an error then: it will not be found, and must be taken back.
	Written func()
}

// Open is a revision that may still have to be undone.
type Open struct {
	Revision uint64
	// All of it or nothing was asked for, and it is not known yet which.
	Unfinished bool
	// If not zero: it is undone then.
	ConfirmBy time.Time
	// It was undone but for what others stood in the way of, and history says so.
	InPart bool
}

// Undo is what undoing an open revision brings back of one object. Where none is kept it is what was there before the revision, of those
// who said something else then; one is kept as soon as a later revision changes the object.
type Undo struct {
	Revision uint64
	Key      object.Key
	// Whose layers come to be as in Before again; who is not in there says nothing then. None: nothing of the object is undone.
	Owners []string
	Before *Record

	kept bool
}

// Store keeps what is wanted. Each method is one transaction: all of it is kept, or nothing.
type Store interface {
	// Load returns the number of the latest revision and what is open, and calls yield for each object. What is kept need not be examined.
	Load(yield func(object.Key, *Record) error) (latest uint64, open []Open, err error)
	Commit(c *Commit) error
	// Settle replaces what is open of a revision; nil: it stands. With that, undoing other revisions may bring back something else.
	Settle(revision uint64, open *Open, revised []Undo) error
	// Undoes calls yield with what was kept of what undoing an open revision brings back. Without a Commit or Settle that said so there is
	// none.
	Undoes(revision uint64, yield func(Undo) error) error
	// History returns at most limit revisions before one, the latest first.
	History(before uint64, limit int) ([]Revision, error)
	// Before calls yield with what was kept of each object that a revision changed, before it did. Nothing is known of revisions that
	// are no part of history, nor open.
	Before(revision uint64, yield func(object.Key, *Record) error) error
	// Knows says whether Meet was called with the name of a data plane, or with "".
	Knows(dataplane string) (bool, error)
	Meet(dataplane string) error
}
