// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// State is how it stands with an object.
type State uint8

const (
	// Pending: it waits for another object, for its turn, or for the data plane.
	Pending State = iota
	// Applied: the data plane has its desired state.
	Applied
	// Failed: the data plane refused it; it is tried again, unless that would be no use.
	Failed
	// Deleting: it has no owner any more, but the data plane still has it.
	Deleting
	// Gone: it has no owner and the data plane does not have it.
	Gone
	// Unknown: it was Applied, and the data plane is away since, or is back and not compared yet.
	Unknown
)

var stateNames = [...]string{Pending: "Pending", Applied: "Applied", Failed: "Failed", Deleting: "Deleting", Gone: "Gone", Unknown: "Unknown"}

func (s State) String() string { return stateNames[s] }

// States returns all of them.
func States() []State {
	all := make([]State, len(stateNames))
	for i := range all {
		all[i] = State(i)
	}
	return all
}

// Reason is why an object is in its State, in a word.
type Reason uint8

const (
	// Nothing is known yet.
	NoReason Reason = iota
	// Applied: the data plane has the desired state.
	InStep
	// Gone: it has no owner.
	NotDesired
	// It is to be decided about, or is being done.
	WaitsForTurn
	InProgress
	BeingReplaced
	// Something that it names is not there, or failed; something that it takes, another still has.
	WaitsForObject
	WaitsForFailed
	WaitsForClaim
	// It has to go, and others still use it.
	InUse
	// The data plane refused it; because of something else, so that it is tried again soon.
	Refused
	TriedAgain
	// The data plane refused it, and would again: it is tried again when it, or an object that it names, changes.
	Unacceptable
	// Another client changed it in the data plane; it is repaired.
	Drifted
	// There is no data plane.
	NoDataplane
	// There is a data plane, and its state is not known yet.
	NotCompared
)

func (r Reason) String() string {
	return [...]string{"Unknown", "InStep", "NotDesired", "WaitsForTurn", "InProgress", "BeingReplaced", "WaitsForObject", "WaitsForFailed",
		"WaitsForClaim", "InUse", "Refused", "TriedAgain", "Unacceptable", "Drifted",
		"NoDataplane", "NotCompared"}[r]
}

// Status is how it stands with one object in a data plane.
type Status struct {
	Key   object.Key
	State State
	// Why, in a word; and, if it is not Applied, in a sentence.
	Reason  Reason
	Message string
	// The missing object that it waits for.
	Missing *Missing
	Since   time.Time
	// Desired state; nil while it is Deleting or Gone.
	Desired *Version
	// The generation of the desired state that the data plane has; 0: none. While the data plane's state is unknown:
	// the last known one.
	Observed uint64
}

// Missing is a missing object that another waits for.
type Missing struct {
	Key object.Key
	// The field that names it; empty: none does.
	Field string
	// The rest of the status message.
	rest string
}

func (m *Missing) String() string { return m.named() + ", which is not there" }

func (m *Missing) named() string {
	if m.Field == "" {
		return m.Key.String()
	}
	return m.Key.String() + " (" + m.Field + ")"
}

// OnlyIn is String for an object that exists in other data planes.
func (m *Missing) OnlyIn(others []string) string {
	return m.named() + ", which is only in " + strings.Join(others, ", ")
}

// StatusOnlyIn is the Message of a Status for an object that exists in other data planes.
func (m *Missing) StatusOnlyIn(others []string) string { return waitsFor + m.OnlyIn(others) + m.rest }

// Action is an operation on an object.
type Action int

const (
	Create Action = iota
	Update
	Delete
)

func (a Action) String() string {
	switch a {
	case Create:
		return "create"
	case Update:
		return "update"
	}
	return "delete"
}

// Operation is one thing that is done, or would be.
type Operation struct {
	Action Action
	Key    object.Key
	// The reason in words: "in the desired state", "Port/access is replaced".
	Reason string
	// Of an Update, and of the Delete of a replacement: the differing fields.
	Fields []object.FieldChange
	// A Delete that a Create follows, or that Create.
	Replacing bool
	// Of a planned operation that has to wait: "Acl/web, which is not there".
	WaitsFor string
	// That, if it is not there.
	Missing *Missing
	// Of a planned operation: its impact.
	Impact Impact
	// Of a Delete that was done: Result.Final.
	Final []byte
	// Of an operation for one of the changes of a Work: its place among them. For other objects it has no meaning.
	Place int
	// Where, if there are several; a Reconciler knows only one.
	Dataplane string
}

// Impact is the effect of a change on forwarded packets.
type Impact int

const (
	// NoImpact: no packet is lost.
	NoImpact Impact = iota
	// BriefInterruption: packets are lost until the data plane is done with it.
	BriefInterruption
	// Outage: packets are lost until desired state changes.
	Outage
)

var impactNames = [...]string{NoImpact: "none", BriefInterruption: "brief interruption", Outage: "outage"}

func (i Impact) String() string { return impactNames[i] }

// Impacts returns all of them.
func Impacts() []Impact {
	all := make([]Impact, len(impactNames))
	for i := range all {
		all[i] = Impact(i)
	}
	return all
}
