package reconcile

import (
	"time"

	"sluice.dev/sluice/agent/object"
)

// State is how it stands with an object.
type State uint8

const (
	// Pending: it waits for another object, for its turn, or for the data plane.
	Pending State = iota
	// Applied: the data plane has it as it is wanted.
	Applied
	// Failed: the data plane refused it; it is tried again, unless that would be no use.
	Failed
	// Deleting: nobody wants it any more, but the data plane still has it.
	Deleting
	// Gone: nobody wants it and the data plane does not have it.
	Gone
	// Unknown: it was Applied, and the data plane is away since, or is back and not compared yet.
	Unknown
)

func (s State) String() string {
	switch s {
	case Pending:
		return "Pending"
	case Applied:
		return "Applied"
	case Failed:
		return "Failed"
	case Deleting:
		return "Deleting"
	case Unknown:
		return "Unknown"
	}
	return "Gone"
}

// Reason is why an object is in its State, in a word.
type Reason uint8

const (
	// Nothing is known yet.
	NoReason Reason = iota
	// Applied: the data plane has what is wanted.
	InStep
	// Gone: nobody wants it.
	NotWanted
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
	// The data plane refused it, and would again: it is tried again when it, or what it names, is another.
	Unacceptable
	// Somebody else changed it in the data plane; it is put right.
	Drifted
	// There is no data plane.
	NoDataplane
	// There is one, and what it has is not known yet.
	NotCompared
)

func (r Reason) String() string {
	return [...]string{"Unknown", "InStep", "NotWanted", "WaitsForTurn", "InProgress", "BeingReplaced", "WaitsForObject", "WaitsForFailed",
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
	Since   time.Time
	// As it is wanted; nil while it is Deleting or Gone.
	Wanted *Version
	// Which generation of what was wanted the data plane has; 0: none.
	Observed uint64
}

// Action is what is done with an object.
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
	// Why, in words: "wanted", "Port/access is replaced".
	Reason string
	// Of an Update, and of the Delete of a replacement: what differs.
	Fields []object.FieldChange
	// A Delete that a Create follows, or that Create.
	Replacing bool
	// Of what is planned and cannot be done yet: "Acl/web, which is not there".
	WaitsFor string
	// Of what is planned: what it costs.
	Impact Impact
	// Where, if there are several; a Reconciler knows only one.
	Dataplane string
}

// Impact is what a change costs those whose packets are on their way.
type Impact int

const (
	// NoImpact: no packet is lost.
	NoImpact Impact = iota
	// BriefInterruption: packets are lost until the data plane is done with it.
	BriefInterruption
	// Outage: packets are lost until somebody wants something else.
	Outage
)

func (i Impact) String() string { return [...]string{"none", "brief interruption", "outage"}[i] }
