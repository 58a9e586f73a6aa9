// How it stands with an object.
package intent

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Status is how it stands with one object.
type Status struct {
	Key   object.Key
	State State
	// Why it is not Applied, in a sentence; and that in a word.
	Message, Reason string
	Since           time.Time
	// As it is wanted: what all owners say, taken together, without what is secret. Nil while it is Deleting or Gone.
	Object *object.Object
	// Who counts most, and the revision of the latest change of what anybody says.
	Owner    string
	Revision uint64
	// Counts the changes of what is wanted; and which of them the data plane has, 0: none.
	Generation, Observed uint64
	// When that generation was put in.
	Accepted time.Time
	// Everybody who says something about it, the one that counts most first.
	Owners []Ownership
	// Why it does not serve although it is Applied; both empty: it does.
	Hindrance, HindranceReason string
	// Why it is wanted like this although a revision should have been undone; empty: it is not so.
	NotUndone string
}

// Of says whether an owner says something about the object.
func (s *Status) Of(owner string) bool {
	return s.Owner == owner || slices.ContainsFunc(s.Owners, func(o Ownership) bool { return o.Owner == owner })
}

// Ownership is who says what about an object.
type Ownership struct {
	Owner    string
	Priority int
	Revision uint64
	// Only from Owners.
	Fields []object.Said
}

// Condition is one thing that holds or does not.
type Condition struct {
	// "Accepted", "Applied" or "Ready".
	Type  string
	Holds bool
	// A word such as "WaitsForObject", and a sentence.
	Reason, Message string
	// Since when.
	Time time.Time
}

// Conditions are Accepted: it may be wanted; Applied: the data plane has it as it is wanted; Ready: and so it is with all that it
// needs, and the data plane answers.
func (s *Status) Conditions() [3]Condition {
	accepted := Condition{Type: "Accepted", Holds: true, Reason: "Valid", Time: s.Accepted}
	applied := Condition{Type: "Applied", Holds: s.State == Applied, Reason: s.Reason, Message: s.Message, Time: s.Since}
	ready := applied
	ready.Type = "Ready"
	if s.State == Applied && s.Hindrance != "" {
		ready.Holds, ready.Reason, ready.Message = false, s.HindranceReason, s.Hindrance
	}
	if s.NotUndone != "" {
		accepted.Reason, accepted.Message = "NotUndone", s.NotUndone
	}
	if s.Generation == 0 {
		accepted.Holds, accepted.Reason, accepted.Time = false, "NotWanted", s.Since
	}
	return [3]Condition{accepted, applied, ready}
}
