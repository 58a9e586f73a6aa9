// SPDX-License-Identifier: Apache-2.0

// Package intent has the configuration and its status: the one interface that all northbounds use.
//
// Configuration is a sequence of immutable revisions. A Source submits changes. The package checks them together with the rest of the
// configuration, stores them with owner, user, time and reason, and hands them to the reconcilers of the data planes (package reconcile).
// Rollbacks and the undo of failed transactions are revisions, too; the configuration changes in no other way.
//
// An object may have several owners. Each has a layer: the fields that it set. An owner always applies its whole layer: it gives up a
// field that it had before and leaves out now, and a deletion gives up all of its fields. The object is the merge of its layers, and has to
// be valid as such; it is deleted when it has no layer. If several owners set a field, the value of the highest priority counts; when its
// owner gives it up, the next value returns. Two owners of the same priority that set different values are in conflict, unless one of them
// takes over; with the same value, both own the field.
//
// The status of an object has three conditions, each with a reason, a message and a time. Every change of them is an event in
// a log with a cursor: a reader resumes at its cursor, or gets an error that it is too late and has to list all objects again.
package intent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Interface is desired state as northbounds use it. All methods may be called at any time, by several goroutines,
// also while a data plane is slow or away; only Apply and Rollback wait for data planes. *Desired is the
// implementation.
type Interface interface {
	// Apply makes the changes on behalf of the source's owner, and waits as the options demand. Errors: object.Errors (not acceptable), *Conflicts,
	// *Waiting, *Moved, ErrDisconnected (all or nothing without a data plane), ErrUnconfirmed, *NotUndone, ctx's; after an error without an Outcome nothing was changed.
	// The changes and their objects must not be changed afterwards.
	Apply(ctx context.Context, source Source, changes []object.Change, options Options) (*Outcome, error)
	// Plan returns the effect of Apply, and changes nothing. Errors as Apply's.
	Plan(source Source, changes []object.Change, options Options) (*Plan, error)
	// Rollback restores the configuration of a revision, except objects of owners without history. It is a new revision. It also undoes
	// a later revision that waits for its confirmation. ErrNoRevision: the history does not have it (any more);
	// *Waiting: a revision that the rollback would not undo waits for its confirmation, or the rollback itself is to be confirmed or all or nothing.
	Rollback(ctx context.Context, source Source, revision uint64, options Options) (*Outcome, error)
	// Confirm confirms a revision with Options.ConfirmWithin, or one whose undo failed; 0: the one that waits.
	// ErrNothingToConfirm.
	Confirm(source Source, revision uint64) error
	// Unconfirmed returns the revision that waits to be confirmed, or to be undone, if one does.
	Unconfirmed() []Unconfirmed

	// History returns at most limit revisions before one (0: from the latest), the latest first.
	History(before uint64, limit int) ([]Revision, error)
	// Diff returns the difference between two revisions (from 0: the empty configuration; to 0: the current one). It hides the values of
	// secrets. ErrNoRevision.
	Diff(from, to uint64) ([]Difference, error)

	// Get returns the status of an object, and whether the configuration or a data plane has it.
	Get(k object.Key) (Status, bool)
	// Near returns the name of the one object of the kind whose name is much like one that no object has; empty: there is none, or several.
	Near(k object.Key) string
	// List returns a page of the objects that match, in order of kind and name.
	List(q Query) (*Page, error)
	// Owners returns the owners of an object, the highest priority first, with the fields of each.
	Owners(k object.Key) []Ownership
	// OwnLayer returns an owner's layer of an object, with its secrets, or nil. The owner may apply it again.
	OwnLayer(owner string, k object.Key) *object.Object
	// Needs returns the references of an object, NeededBy the references to it, without builtin objects.
	Needs(k object.Key) []Relation
	NeededBy(k object.Key) []Relation

	// Events returns a reader of events after the cursor; the zero Cursor: from now on. To follow everything: List,
	// then Events from the first Page.Cursor. ErrTooLate: list again.
	Events(from Cursor) (*Events, error)

	// Places returns the names of the data planes of an object.
	Places(k object.Key) []string

	// Revision is the number of the latest revision.
	Revision() uint64
	// Count returns the number of objects in each state.
	Count() map[State]int
	// Measure returns measurements by the name of the data plane. Its time does not depend on the number of objects.
	Measure() map[string]Measurements
}

// Source is where changes come from.
type Source struct {
	// The owner: "api", "files", "etcd", "pppoe". Never empty.
	Owner string
	// The user, a certificate's name, a file, a message's position. May be empty.
	Who string
	// The client's address. May be empty; it is not stored with the revision.
	From string
	// The user's reason. May be empty.
	Why string
}

// Mode is how Apply treats failures.
type Mode int

const (
	// BestEffort: objects are independent, and failed ones are tried again. Apply returns when each is Applied,
	// Failed or waits.
	BestEffort Mode = iota
	// AllOrNothing: with an unresolved reference, nothing is changed; if a data plane refuses an object, all changes are undone.
	AllOrNothing
	// NoWait: as BestEffort, but Apply returns when the changes are stored.
	NoWait
)

func (m Mode) String() string { return [...]string{"best effort", "all or nothing", "no wait"}[m] }

// Options of one Apply, Plan or Rollback. The zero value is best effort.
type Options struct {
	Mode Mode
	// If not 0, the revision is rolled back after that time unless it was confirmed, also if the program was started again meanwhile.
	ConfirmWithin time.Duration
	// The changes have all objects of the owner: it gives up its fields of all other objects.
	Complete bool
	// Take over fields that another owner of the same priority set to other values. The other's value stays below, and returns
	// when this owner gives the field up.
	Force bool
	// Revisions that objects must have, or the error is *Moved; 0: the object does not exist.
	Expect map[object.Key]uint64
	// The plan. If the objects that it changes, or those that they refer to, have changed since, or if the steps or their cost would
	// differ, the error is *Moved.
	Plan *Plan
}

// Outcome is the result of an Apply or Rollback.
type Outcome struct {
	// The revision that it made, or the latest if it changed nothing.
	Revision uint64
	// One for each change, in the same order; then others that had to be deleted because of those.
	Objects []Done
	// The operations on data planes, in order, and those that were refused.
	Operations []Operation
	Failures   []Failure
	// The configuration before the change is restored.
	Undone bool
	// If not zero: the revision is rolled back then unless it is confirmed before.
	ConfirmBy time.Time
	Joined    Joined
}

// Joined is the number of objects of other owners in which an owner gets fields, and the other owners, in order.
type Joined struct {
	Owner   string
	Objects int
	Besides []string
}

// Done is the result of one object.
type Done struct {
	Step Step
	// Without the object.
	Status Status
}

// Step is the change of an object, from the point of view of its owner.
type Step int

const (
	// Keep: nothing to do.
	Keep Step = iota
	Create
	Update
	// Replace: delete and create again.
	Replace
	Delete
)

var stepNames = [...]string{Keep: "keep", Create: "create", Update: "update", Replace: "replace", Delete: "delete"}

func (s Step) String() string { return stepNames[s] }

// Steps returns all of them.
func Steps() []Step {
	all := make([]Step, len(stepNames))
	for i := range all {
		all[i] = Step(i)
	}
	return all
}

// Revision is one change of the configuration.
type Revision struct {
	Number uint64
	Time   time.Time
	Source Source
	Mode   Mode
	// The number of objects that it changed, and the first of them.
	Changes int
	Objects []Changed `json:",omitempty"`
	// If not 0: it is a rollback to that revision.
	RollbackTo uint64
	// If not zero: it is rolled back then unless it is confirmed before.
	ConfirmBy time.Time
	// Of a rollback: the revisions that waited to be confirmed, and that it undid.
	Ended []uint64 `json:",omitempty"`
	// Of the agent's own: the revision that it undoes, 0: none; and whether it leaves some of that.
	Undoes       uint64 `json:",omitempty"`
	UndoesInPart bool   `json:",omitempty"`

	// Interface.History computes it; it is not stored.
	Standing Standing
}

// Changed is an object that a revision changed, and its step; Keep: only the owner changed.
type Changed struct {
	Step Step   `json:"s"`
	Kind string `json:"k"`
	Name string `json:"n"`
}

// MaxChanged is how many of them are kept with a revision.
const MaxChanged = 20

// Standing is the state of a revision that can be undone.
type Standing struct {
	// It waits to be confirmed, or to be undone. Then it is overdue: that could not be done yet, or not whole.
	Waits, Overdue bool
	// The latest revision that undid it, 0: none; and that left some of it.
	UndoneBy uint64
	InPart   bool
}

// Difference is how one object differs between two revisions.
type Difference struct {
	Key  object.Key
	Step Step
	// The owner whose value counts; empty: none.
	OwnerBefore, OwnerAfter string
	Fields                  []object.FieldChange
}

// Query selects objects. Empty: all.
type Query struct {
	Kinds, Names []string
	// "city=bonn,tier!=test,new,!old": all must hold.
	Selector string
	// "access.outerVlan=100,vrf!=red": all must hold.
	FieldSelector string
	// Only objects with fields of this owner.
	Owner string
	// At most 10,000; 0: 1,000.
	Limit int
	// From Page.Next.
	After string
}

// Page is a page of a list.
type Page struct {
	Objects []Status
	// Where the next page begins; empty: there is none.
	Next string
	// Of the time before this page was made.
	Cursor Cursor
}

// Relation is an object that another names, or is named by.
type Relation struct {
	// The field that names it.
	Field  string
	Status Status
}

// Types of package reconcile.
type (
	// State is the state of an object, as a word.
	State = reconcile.State
	// Failure is an object that a data plane refused.
	Failure = reconcile.Failure
	// Operation is one operation on a data plane, carried out or planned.
	Operation = reconcile.Operation
	// Impact is the effect of a change on traffic.
	Impact = reconcile.Impact
	// Measurements are counters and times of operations.
	Measurements = reconcile.Measurements
)

// The states.
const (
	Pending  = reconcile.Pending
	Applied  = reconcile.Applied
	Failed   = reconcile.Failed
	Deleting = reconcile.Deleting
	Gone     = reconcile.Gone
	Unknown  = reconcile.Unknown
)

// Errors to be tested with errors.Is.
var (
	// ErrDisconnected: the data plane has to answer and is not there.
	ErrDisconnected = reconcile.ErrDisconnected
	// ErrTooLate: events after the cursor are no longer available.
	ErrTooLate = errors.New("these events are no longer available: list all objects again")
	// ErrNoRevision: the history does not have the revision (any more, or yet).
	ErrNoRevision = errors.New("the history has no such revision")
	// ErrDiskFull: the store has no room for a change. Nothing was changed.
	ErrDiskFull = errors.New("the disk is full")
	// ErrNothingToConfirm: no revision waits for a confirmation.
	ErrNothingToConfirm = errors.New("no revision waits to be confirmed")
)

// Waiting refuses a change that is to be confirmed or all or nothing, or a rollback: a revision waits for its confirmation or undo.
type Waiting struct {
	Revision uint64
	// The rollback would leave it waiting.
	Rollback bool
}

func (w *Waiting) Error() string {
	if w.Rollback {
		return fmt.Sprintf("revision %d waits to be confirmed; confirm it first (sluice confirm %d), or go back to revision %d or before, which undoes it",
			w.Revision, w.Revision, w.Revision-1)
	}
	return fmt.Sprintf("revision %d waits to be confirmed: confirm it (sluice confirm %d) or undo it (sluice rollback %d) before another change with "+
		"confirmation or as all or nothing", w.Revision, w.Revision, w.Revision-1)
}

// Conflict is a field that two owners of the same priority set to different values, or the deletion of an object of which the owner has
// no fields.
type Conflict struct {
	Key object.Key
	// Of a list or a message that is owned as a whole, the first place in it where they differ; empty: the object is to be deleted.
	Field string
	// The owner of the change, and the owner of the field.
	Owner, Holder string
	// Both values, in the notation of YAML. Both empty: not known.
	Requested, Held string
}

func (c Conflict) String() string {
	return c.Key.String() + ": " + strings.TrimPrefix(c.Field+" "+c.Problem(), " ")
}

// Problem is String without the object and the field.
func (c Conflict) Problem() string {
	if c.Field == "" {
		return fmt.Sprintf("belongs to %s, and %s has no fields of it", c.Holder, c.Owner)
	}
	value := func(text string) string {
		if text == "" {
			return "left out"
		}
		return shortened(text)
	}
	if c.Held == "" && c.Requested == "" {
		return fmt.Sprintf("belongs to %s, and %s sets another value", c.Holder, c.Owner)
	}
	return fmt.Sprintf("belongs to %s (%s), and %s sets another value (%s)", c.Holder, value(c.Held), c.Owner, value(c.Requested))
}

// shortened keeps a list of a thousand elements from filling the screen.
func shortened(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// Mend returns the ways to resolve the conflict.
func (c Conflict) Mend() string {
	if c.Field == "" {
		return "deletion by its owner, " + c.Holder
	}
	return "the value of " + c.Holder + ", to leave the field out, or to take over (force)"
}

// Conflicts are the reasons why nothing was changed. Options.Force takes over fields.
type Conflicts struct{ All []Conflict }

// MaxConflicts is how many of them an error lists.
const MaxConflicts = 20

// Error has a line for each, and one that counts the rest.
func (c *Conflicts) Error() string {
	lines := make([]string, 0, MaxConflicts+1)
	for _, one := range c.All[:min(len(c.All), MaxConflicts)] {
		lines = append(lines, one.String())
	}
	if more := len(c.All) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Moved lists objects that differ from the caller's expectation.
type Moved struct {
	Objects []object.Key
	// Nothing changed meanwhile, but the changes differ from the plan. There may be no Objects then.
	Unplanned bool
}

func (m *Moved) Error() string {
	names := make([]string, 0, 4)
	for i, k := range m.Objects {
		if i == 3 {
			names = append(names, fmt.Sprintf("%d more", len(m.Objects)-3))
			break
		}
		names = append(names, k.String())
	}
	switch {
	case !m.Unplanned:
		return "changed meanwhile: " + strings.Join(names, ", ")
	case len(names) == 0:
		return "differs from the plan: its cost"
	}
	return "differs from the plan: " + strings.Join(names, ", ")
}
