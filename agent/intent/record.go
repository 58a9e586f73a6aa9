// SPDX-License-Identifier: Apache-2.0

// The stored state of an object: the layers of its owners, and their merged spec.
package intent

import (
	"cmp"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Record holds all layers of one object. It is immutable: a change makes another Record.
type Record struct {
	// Of the latest change of any layer.
	Revision uint64
	// How often the merged spec has changed, and the time of the last change, in nanoseconds since the Unix epoch.
	Generation uint64
	Accepted   int64
	// The highest precedence first.
	Layers []Layer

	// The reconciler's form: of this record or, if the merged object is the same, of an earlier one.
	version *reconcile.Version
	// The merged spec of several layers is here from the beginning.
	own reconcile.Version
	// The layers, where there is one: nearly always.
	one [1]Layer
}

// producedBy returns the service that produces the object, or nil: it is configuration.
func (r *Record) producedBy() *reconcile.Origin {
	if r == nil {
		return nil
	}
	return r.own.Origin
}

// alone makes a record of one layer.
func alone(l Layer) *Record {
	r := &Record{one: [1]Layer{l}}
	r.Layers = r.one[:]
	return r
}

// Key makes records be found by their keys.
func (r *Record) Key() object.Key { return r.Layers[0].Key() }

// Layer is one owner's fields of an object.
type Layer struct {
	Owner string
	*object.StoredObject
	// The revision of the layer, and the revision in which it took over from others of its priority; 0: it did not.
	Revision, Taken uint64
}

// layerOf returns an owner's layer, or nil.
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

// merged returns the merged spec, or nil.
func (r *Record) merged() *object.StoredObject {
	if r == nil || len(r.Layers) == 0 {
		return nil
	}
	if len(r.Layers) > 1 {
		return r.own.StoredObject
	}
	return r.Layers[0].StoredObject
}

// owner returns the owner of the first layer.
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

// Owner has the settings of an owner.
type Owner struct {
	// If several layers set a field, the highest priority counts. Usually 0.
	Priority int
	// Its objects are stored, but are not part of the history: they come and go with subscribers.
	Unrecorded bool
}

// sortLayers sorts by precedence: the highest priority first, then the last that took over. The remaining layers do
// not contradict each other; they are in the order of their revisions, a new one last.
func (d *Desired) sortLayers(layers []Layer) {
	slices.SortStableFunc(layers, func(a, b Layer) int {
		return cmp.Or(cmp.Compare(d.config.Owners[b.Owner].Priority, d.config.Owners[a.Owner].Priority), cmp.Compare(b.Taken, a.Taken),
			cmp.Compare(a.Revision-1, b.Revision-1), cmp.Compare(a.Owner, b.Owner))
	})
}

// merge sorts the layers, and merges their fields.
func (d *Desired) merge(r *Record) error {
	if r == nil || len(r.Layers) < 2 {
		return nil
	}
	d.sortLayers(r.Layers)
	var err error
	r.own.StoredObject, err = object.Merge(r.stored())
	return err
}

// stored returns the layers' specs, the highest priority first.
func (r *Record) stored() []*object.StoredObject {
	if r == nil {
		return nil
	}
	layers := make([]*object.StoredObject, len(r.Layers))
	for i, l := range r.Layers {
		layers[i] = l.StoredObject
	}
	return layers
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

// Edit is a change of the record of one object. A nil Record: the object does not exist.
type Edit struct {
	Key           object.Key
	Before, After *Record
}

// effective reports whether the edit changes the merged spec.
func (e *Edit) effective() bool {
	return !e.Before.merged().Equal(e.After.merged())
}

// Commit is a revision as it is stored, whole or not at all.
type Commit struct {
	Revision Revision
	Edits    []Edit
	// It is part of history.
	Recorded bool
	// If not nil, the revision is unconfirmed: Load returns this until it is replaced or closed.
	Open *Open
	// Open revisions that this one ends: it goes back to before them.
	Ends []uint64
	// If this revision undoes an open one: the rest that stays open. Nil: nothing, it is closed; Closes is its
	// number, or 0.
	Closes  uint64
	Leaves  *Open
	Revised []Undo
	// Revisions of history before this one are deleted, except for open ones. 0: none now.
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
	// If not zero, the revision is undone at this time. After a restart the three fields below decide: the time of
	// day may have been set.
	ConfirmBy time.Time
	// How long it waits, from when: which start of the machine, and the time since that.
	Within time.Duration `json:",omitempty"`
	Boot   string        `json:",omitempty"`
	Begun  time.Duration `json:",omitempty"`
	// It was undone in part, because of conflicts with other owners. History shows this.
	InPart bool
}

// Undo is the state of one object that undoing an open revision restores. Without one, it is the state before the
// revision, of owners whose layers have changed since. One is stored as soon as a later revision changes the object.
type Undo struct {
	Revision uint64
	Key      object.Key
	// The owners whose layers are restored from Before. An owner without a layer there has none afterwards. No
	// owners: nothing of the object is undone.
	Owners []string
	Before *Record

	stored bool
}

// Store stores the configuration. Each method is one transaction: it stores all of it, or nothing.
type Store interface {
	// Load returns the number of the latest revision and the open revisions, and calls yield for each object. Stored
	// objects need no examination.
	Load(yield func(object.Key, *Record) error) (latest uint64, open []Open, err error)
	Commit(c *Commit) error
	// Settle replaces an open revision; nil: it is confirmed. revised are changed undo records of other revisions.
	Settle(revision uint64, open *Open, revised []Undo) error
	// Undoes calls yield with the undo records of an open revision. Only Commit and Settle write them.
	Undoes(revision uint64, yield func(Undo) error) error
	// History returns at most limit revisions before one, the latest first.
	History(before uint64, limit int) ([]Revision, error)
	// Before calls yield with each object of a revision as it was before it. It has only revisions of history and
	// open ones.
	Before(revision uint64, yield func(object.Key, *Record) error) error
	// IsKnown reports whether AddKnown was called with the name of a data plane, or with "".
	IsKnown(dataplane string) (bool, error)
	AddKnown(dataplane string) error
}
