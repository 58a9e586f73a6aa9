// SPDX-License-Identifier: Apache-2.0

// Package reconcile brings a data plane to its desired state: it orders operations by references, holds objects that
// are not ready, retries failed ones, replaces objects that cannot change in place, and repairs only the difference
// when a data plane comes back. It knows no kind by name.
package reconcile

import (
	"context"
	"iter"

	"sluice.dev/sluice/agent/object"
)

// Object is an object as a data plane keeps it.
type Object struct {
	Key  object.Key
	Spec string // as object.Pack makes it
	// The service that produces the object; empty: configuration.
	Owner string
}

// Result is how one thing went.
type Result struct {
	// 0, or a Linux errno.
	Code int32
	// The problem, in a sentence.
	Message string
	// Of a Delete that succeeded: the last state of the object as its kind counts it, such as a session's totals. May be nil.
	Final []byte
}

// Plane is one connection to a data plane. Its methods are called one at a time, but several puts and deletes may be under way.
//
// The data plane carries out requests in their order. It answers later requests before an object that takes long to make ready, if they do not concern
// this object. The goroutine that reads answers calls the callback of each once, in the order of their arrival; a callback must not block. After an
// error it is unknown what was done: the reconciler lists and compares everything again.
type Plane interface {
	// Put creates or replaces objects, in order, each by itself. One result for each. Put of no objects is a probe:
	// the answer means that earlier requests are done or slow.
	Put(ctx context.Context, objects []Object, answered func([]Result, error))
	// Delete deletes objects in order, each by itself. Deleting a missing object succeeds.
	Delete(ctx context.Context, keys []object.Key, answered func([]Result, error))
	// Watch is called first, and returns the data plane's mark. From then on report receives the changes of
	// other clients, in one order with answers; and, without a key, the number of changes until then.
	Watch(ctx context.Context, report func(Change)) (Mark, error)
	// List returns everything that is there, in pages. An error ends it. The caller does not use a page after it requested the next.
	List(ctx context.Context) iter.Seq2[[]Object, error]
}

// Mark is a moment of a data plane: which of its lives, and how many changes of objects there were in it. If it is the same again, so are
// the objects. Generation 0: that is not known.
type Mark struct{ Boot, Generation uint64 }

// Change is another client's change of an object.
type Change struct {
	// How many changes there were then.
	Generation uint64
	// The client; empty: unknown.
	By    string
	Key   object.Key
	Spec  []byte
	Owner string
	// The object is gone.
	Deleted bool
	// Changes are missing: everything has to be listed.
	Lost bool
}
