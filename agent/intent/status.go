// SPDX-License-Identifier: Apache-2.0

// The status of objects.
package intent

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Status is the status of one object.
type Status struct {
	Key   object.Key
	State State
	// Why it is not Applied, in a sentence; and that in a word.
	Message, Reason string
	Since           time.Time
	// The merged object, without secrets. Nil while it is Deleting or Gone.
	Object *object.Object
	// The owner of the highest priority, and the revision of the latest change of any layer.
	Owner    string
	Revision uint64
	// The number of changes of the object, and the change that the data plane has, 0: none. While the state is Unknown: had when it was last connected.
	Generation, Observed uint64
	// When that generation was put in.
	Accepted time.Time
	// The owners of layers, the highest precedence first.
	Owners []Ownership
	// Why it does not serve although it is Applied.
	NotReady NotReady
	// The reason why the undo of a revision left the object as it is; empty: none did.
	NotUndone string
}

// Of reports whether an owner has a layer of the object.
func (s *Status) Of(owner string) bool {
	return s.Owner == owner || slices.ContainsFunc(s.Owners, func(o Ownership) bool { return o.Owner == owner })
}

// Ownership is one owner's layer of an object.
type Ownership struct {
	Owner    string
	Priority int
	Revision uint64
	// Only from Owners.
	Fields []object.OwnedField
}

// The types and statuses of conditions, in order.
var (
	ConditionTypes    = [...]string{"Accepted", "Applied", "Ready"}
	ConditionStatuses = [...]string{"True", "False", "Unknown"}
)

// NotReady is why an object does not serve although data planes have it; the zero value: it serves.
type NotReady struct {
	// A word and a sentence.
	Reason, Message string
	// Since when; zero: as long as the object is applied.
	Since time.Time
	// It is outside of the configuration: a link, a peer, a server, a data plane that is away. The object serves once that is there.
	External bool
}

// Condition is one thing that holds or does not.
type Condition struct {
	// One of ConditionTypes.
	Type string
	// Neither: it does not hold. Unknown: the data plane that would say so is away.
	Holds, Unknown bool
	// A word such as "WaitsForObject", and a sentence.
	Reason, Message string
	// Since when.
	Time time.Time
	// The reason is outside of the configuration: see NotReady.
	External bool
}

// Status is one of ConditionStatuses.
func (c *Condition) Status() string {
	switch {
	case c.Holds:
		return ConditionStatuses[0]
	case c.Unknown:
		return ConditionStatuses[2]
	}
	return ConditionStatuses[1]
}

// Conditions are Accepted: it is valid; Applied: the data plane has its desired state; Ready: it is applied, so are
// the objects that it needs, and the data plane answers.
func (s *Status) Conditions() [3]Condition {
	accepted := Condition{Type: ConditionTypes[0], Holds: true, Reason: "Valid", Time: s.Accepted}
	applied := Condition{Type: ConditionTypes[1], Holds: s.State == Applied, Unknown: s.State == Unknown, Reason: s.Reason, Message: s.Message, Time: s.Since}
	ready := applied
	ready.Type = ConditionTypes[2]
	if s.State == Applied && s.NotReady.Message != "" {
		ready.Holds, ready.Reason, ready.Message, ready.External = false, s.NotReady.Reason, s.NotReady.Message, s.NotReady.External
		if !s.NotReady.Since.IsZero() {
			ready.Time = s.NotReady.Since
		}
	}
	if s.NotUndone != "" {
		accepted.Reason, accepted.Message = "NotUndone", s.NotUndone
	}
	if s.Generation == 0 {
		accepted.Holds, accepted.Reason, accepted.Time = false, "NotDesired", s.Since
	}
	return [3]Condition{accepted, applied, ready}
}
