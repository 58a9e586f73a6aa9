// Package intent is what everybody wants, and what became of it: the one interface that all northbounds are written against.
//
// Desired state is a chain of immutable revisions. A Source puts changes in; they are checked together with everything else that
// is wanted, kept with who, when and why, and then carried out by the data planes' reconcilers (package reconcile). Nothing else
// changes what is wanted: rolling back, or taking back a transaction that failed, is a revision too.
//
// Several owners may want the same object. Each has a layer: the fields that it says something of. What an owner applies is its whole
// layer: a field that it said something of before and leaves out now is given up, and to delete the object is to give up all of them.
// The object is what the layers say together, and has to be acceptable as such; it is gone when nobody says anything of it. Of a
// field that several owners say something of, the value of the highest priority counts; when it is given up, the next one's comes back.
// Two owners of the same priority that say different things of a field are in conflict, unless one of them takes over; of the same
// value, both are owners.
//
// How it stands with an object are three conditions, each with a reason, a message and a time. Every change of them is an event in
// a log with a cursor: a reader resumes where it was, or is told that it is too late and has to list everything again.
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

// Interface is what a northbound needs. All methods may be called at any time, by several goroutines, also while a data plane is
// slow or away; only Apply and Rollback wait for data planes. *Desired is the implementation.
type Interface interface {
	// Apply makes the source's owner want the changes, and waits as options say. Errors: object.Errors (not acceptable), *Conflicts,
	// *Moved, ErrDisconnected (all or nothing without a data plane), ErrUnconfirmed, *NotUndone, ctx's; after an error without an Outcome nothing was changed.
	// The changes and their objects must not be changed afterwards.
	Apply(ctx context.Context, source Source, changes []object.Change, options Options) (*Outcome, error)
	// Plan says what Apply would do, and changes nothing. Errors as Apply's.
	Plan(source Source, changes []object.Change, options Options) (*Plan, error)
	// Rollback makes everything be wanted that was wanted at a revision, except what owners without history put in. It is a new
	// revision. ErrNoRevision: that is not kept (any more).
	Rollback(ctx context.Context, source Source, revision uint64, options Options) (*Outcome, error)
	// Confirm makes a revision stand that was applied with Options.ConfirmWithin, or that could not be undone; 0: the latest of those.
	// What it changed is kept also when older ones that wait are undone. ErrNothingToConfirm.
	Confirm(source Source, revision uint64) error
	// Unconfirmed returns the revisions that wait to be confirmed, or to be undone, the oldest first.
	Unconfirmed() []Unconfirmed

	// History returns at most limit revisions before one (0: from the latest), the latest first.
	History(before uint64, limit int) ([]Revision, error)
	// Diff says how what was wanted at one revision (0: nothing was) differs from what was wanted at another (0: now). Of secrets it only
	// says that they differ. ErrNoRevision.
	Diff(from, to uint64) ([]Difference, error)

	// Get returns how it stands with an object, and whether anybody wants it or a data plane has it.
	Get(k object.Key) (Status, bool)
	// Near returns the name of the one object of the kind whose name is much like one that no object has; empty: there is none, or several.
	Near(k object.Key) string
	// List returns a page of the objects that match, in order of kind and name.
	List(q Query) (*Page, error)
	// Owners returns everybody who says something of an object, the one who counts most first, and what each says of its fields.
	Owners(k object.Key) []Ownership
	// Said returns what an owner says of an object, with its secrets, or nil: for the owner, to say it again.
	Said(owner string, k object.Key) *object.Object
	// Needs returns what an object names, NeededBy what names it, builtin objects left out.
	Needs(k object.Key) []Relation
	NeededBy(k object.Key) []Relation

	// Events returns a reader of what happens after the cursor; the zero Cursor: from now on. To follow everything: List, then Events
	// from the first Page.Cursor. ErrTooLate: list again.
	Events(from Cursor) (*Events, error)

	// Places returns the names of the data planes that an object which is wanted goes to.
	Places(k object.Key) []string

	// Revision is the number of the latest revision.
	Revision() uint64
	// Count returns how many objects are in each state.
	Count() map[State]int
	// Measure returns what there is to measure, by the name of the data plane. It is quick, however many objects there are.
	Measure() map[string]Measurements
}

// Source is where changes come from.
type Source struct {
	// On whose behalf: "api", "files", "etcd", "pppoe". Never empty.
	Owner string
	// Who asked: a user, a certificate's name, a file, a message's position. May be empty.
	Who string
	// Where they asked from: an address. May be empty; it is not kept with the revision.
	From string
	// Why, in the words of whoever asked. May be empty.
	Why string
}

// Mode says how Apply treats failures.
type Mode int

const (
	// BestEffort: each object stands by itself, and what failed is tried again. Apply returns when each is Applied, Failed or waits.
	BestEffort Mode = iota
	// AllOrNothing: if an object names something that nobody wants, nothing is changed; if a data plane refuses any, all changes are
	// undone.
	AllOrNothing
	// NoWait: as BestEffort, but Apply returns when the changes are kept.
	NoWait
)

func (m Mode) String() string { return [...]string{"best effort", "all or nothing", "no wait"}[m] }

// Options of one Apply, Plan or Rollback. The zero value is best effort.
type Options struct {
	Mode Mode
	// If not 0, the revision is rolled back after that time unless it was confirmed, also if the program was started again meanwhile.
	ConfirmWithin time.Duration
	// The changes are all that the owner wants: whatever else it wanted, it no longer does.
	Complete bool
	// Where another owner of the same priority says something else of a field, take over. The other's value stays below, and comes back
	// when this owner's is given up.
	Force bool
	// Revisions that objects must have, or the error is *Moved; 0: nobody wants it.
	Expect map[object.Key]uint64
	// What was planned. If the objects that it touches, or those that they need, are no longer as they were then, or if something else
	// would be said or done, or at another cost, the error is *Moved.
	Plan *Plan
}

// Outcome is what became of an Apply or Rollback.
type Outcome struct {
	// The revision that it made, or the latest if it changed nothing.
	Revision uint64
	// One for each change, in the same order; then others that had to be deleted because of those.
	Objects []Done
	// What data planes were told, in that order, and what they refused.
	Operations []Operation
	Failures   []Failure
	// Everything is wanted as it was before.
	Undone bool
	// If not zero: the revision is rolled back then unless it is confirmed before.
	ConfirmBy time.Time
	Joined    Joined
}

// Joined is how many objects an owner wants besides others, who wanted them before, and who these are, in order.
type Joined struct {
	Owner   string
	Objects int
	Besides []string
}

// Done is what was done about one object.
type Done struct {
	Step Step
	// Without the object.
	Status Status
}

// Step is what is done with an object, from the point of view of who wants it.
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

func (s Step) String() string {
	return [...]string{"keep", "create", "update", "replace", "delete"}[s]
}

// Revision is a link of the chain.
type Revision struct {
	Number uint64
	Time   time.Time
	Source Source
	Mode   Mode
	// How many objects it changed.
	Changes int
	// If not 0: it makes everything be as it was at that revision.
	RollbackTo uint64
	// If not zero: it is rolled back then unless it is confirmed before.
	ConfirmBy time.Time

	// Interface.History says it; it is not kept.
	Standing Standing
}

// Standing is what became of a revision that could be undone.
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
	// Whose value counts; empty: nobody's.
	OwnerBefore, OwnerAfter string
	Fields                  []object.FieldChange
}

// Query says which objects. Empty: all.
type Query struct {
	Kinds, Names []string
	// "city=bonn,tier!=test,new,!old": all must hold.
	Selector string
	// Of those who say something about it.
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

// What data planes do and say, in the words of package reconcile.
type (
	// State is how it stands with an object, in a word.
	State = reconcile.State
	// Failure is an object that a data plane refused.
	Failure = reconcile.Failure
	// Operation is one thing that a data plane is told, or would be.
	Operation = reconcile.Operation
	// Impact is what a change costs.
	Impact = reconcile.Impact
	// Measurements are numbers about what is done.
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
	// ErrTooLate: events after the cursor are no longer kept.
	ErrTooLate = errors.New("these events are no longer kept: list everything again")
	// ErrNoRevision: a revision is not kept (any more), or is not there yet.
	ErrNoRevision = errors.New("no such revision is kept")
	// ErrNothingToConfirm: no revision waits for that.
	ErrNothingToConfirm = errors.New("no revision waits to be confirmed")
)

// Conflict is a field that two owners of the same priority say something different of, or an object to be deleted of which the owner
// says nothing.
type Conflict struct {
	Key object.Key
	// Of a list or a message that is owned as a whole, the first place in it where they differ; empty: the object is to be deleted.
	Field string
	// Who asked, and who has it.
	Owner, Holder string
	// What the two say, as a person would write it. Both empty: not told.
	Wanted, Held string
}

func (c Conflict) String() string {
	return c.Key.String() + ": " + strings.TrimPrefix(c.Field+" "+c.Problem(), " ")
}

// Problem is String without the object and the field.
func (c Conflict) Problem() string {
	if c.Field == "" {
		return fmt.Sprintf("belongs to %s, and %s says nothing of it that could be taken back", c.Holder, c.Owner)
	}
	value := func(text string) string {
		if text == "" {
			return "left out"
		}
		return shortened(text)
	}
	if c.Held == "" && c.Wanted == "" {
		return fmt.Sprintf("belongs to %s, and %s wants something else", c.Holder, c.Owner)
	}
	return fmt.Sprintf("belongs to %s (%s), and %s wants something else (%s)", c.Holder, value(c.Held), c.Owner, value(c.Wanted))
}

// shortened keeps a list of a thousand elements from filling the screen.
func shortened(text string) string {
	const most = 80
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// Mend says what whoever asked can do about it.
func (c Conflict) Mend() string {
	if c.Field == "" {
		return "to delete it on behalf of " + c.Holder
	}
	return "what " + c.Holder + " wants, to leave it out, or to take over (force)"
}

// Conflicts are why nothing was changed. Options.Force would take over fields.
type Conflicts struct{ All []Conflict }

// MostConflicts is how many of them are told.
const MostConflicts = 20

// Error has a line for each, and one that counts those that are not told.
func (c *Conflicts) Error() string {
	lines := make([]string, 0, MostConflicts+1)
	for _, one := range c.All[:min(len(c.All), MostConflicts)] {
		lines = append(lines, one.String())
	}
	if more := len(c.All) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Moved says what is no longer as the caller believed.
type Moved struct {
	Objects []object.Key
	// Nothing changed, but what is asked for is not what the plan says. There may be no Objects then.
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
		return "not as the plan says: what it costs"
	}
	return "not as the plan says: " + strings.Join(names, ", ")
}
