// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

const dataplane = api.Plane_DATAPLANE

// transaction counts the remaining entries of one Apply. A nil transaction counts nothing.
type transaction struct {
	open       int
	done       chan struct{}
	ended      bool
	operations []*Operation
	failures   []Failure
	// End at the first failure.
	strict bool
	// The data plane went away.
	interrupted bool
}

// Failure is an object that the data plane refused.
type Failure struct {
	Key     object.Key
	Message string
	// Refused, or Unacceptable.
	Reason Reason
}

func newTransaction(strict bool) *transaction {
	return &transaction{done: make(chan struct{}), strict: strict}
}

func (t *transaction) enter() {
	if t != nil {
		t.open++
	}
}

func (t *transaction) leave() {
	if t == nil {
		return
	}
	if t.open--; t.open == 0 {
		t.end()
	}
}

func (t *transaction) end() {
	if t != nil && !t.ended {
		t.ended = true
		close(t.done)
	}
}

func (t *transaction) failed(f Failure) {
	if t == nil || t.ended {
		return
	}
	t.failures = append(t.failures, f)
	if t.strict {
		t.end()
	}
}

func (t *transaction) executed(op *Operation) {
	if t != nil && !t.ended {
		if t.operations == nil {
			t.operations = make([]*Operation, 0, t.open)
		}
		t.operations = append(t.operations, op)
	}
}
