// Package reconcile makes a data plane be what is wanted: it orders what has to be done by what needs what, holds what is not
// ready, tries again what failed, replaces what cannot change in place, and repairs only the difference when a data plane
// comes back. It knows no kind by name.
package reconcile

import (
	"context"
	"iter"

	"sluice.dev/sluice/agent/object"
)

// Object is an object as a data plane keeps it.
type Object struct {
	Key  object.Key
	Spec []byte // as object.Pack makes it
}

// Result is how one thing went.
type Result struct {
	// 0, or a Linux errno.
	Code int32
	// What is wrong, in a sentence.
	Message string
}

// Plane is one connection to a data plane. Its methods are called one at a time, but several puts and deletes may be under way.
//
// What was asked is carried out in that order, but for an object that takes long to make ready: what is asked after it and does not
// concern it is done, and answered, first. Each answer is told once, in the order in which they come, by whatever reads them, which is
// not held up. An error means that nobody knows what was done: everything is listed and compared again.
type Plane interface {
	// Put creates objects, or replaces what they say, in order, each by itself. One result for each. Of none: what was asked before is
	// done when it is answered, or takes long.
	Put(ctx context.Context, objects []Object, answered func([]Result, error))
	// Delete deletes objects in order, each by itself. Deleting what is not there succeeds.
	Delete(ctx context.Context, keys []object.Key, answered func([]Result, error))
	// Watch is called first, and returns how the data plane stands. From then on it is told what other clients change, in one order with
	// answers, and as these; and, without a key, how many changes there were by then.
	Watch(ctx context.Context, told func(Change)) (Mark, error)
	// List returns everything that is there, in pages. An error ends it.
	List(ctx context.Context) iter.Seq2[[]Object, error]
}

// Mark is a moment of a data plane: which of its lives, and how many changes of objects there were in it. If it is the same again, so are
// the objects. Generation 0: that is not known.
type Mark struct{ Boot, Generation uint64 }

// Change is what another client did to an object.
type Change struct {
	// How many changes there were then.
	Generation uint64
	// Who did it; empty: that is not known.
	By      string
	Key     object.Key
	Spec    []byte
	Deleted bool
	// Changes are missing: everything has to be listed.
	Lost bool
}
