package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Intent is an intent.Interface of which each change is written down.
type Intent struct {
	intent.Interface
	Log *Log
}

// Apply implements intent.Interface.
func (i *Intent) Apply(ctx context.Context, source intent.Source, changes []object.Change, options intent.Options) (*intent.Outcome, error) {
	e := entry("apply", source)
	asked := e
	asked.asked(changes)
	outcome, err := i.Interface.Apply(ctx, source, changes, options)
	i.Log.finish(e, asked, outcome, err)
	return outcome, err
}

// Rollback implements intent.Interface.
func (i *Intent) Rollback(ctx context.Context, source intent.Source, revision uint64, options intent.Options) (*intent.Outcome, error) {
	e := entry("rollback", source)
	e.To = revision
	outcome, err := i.Interface.Rollback(ctx, source, revision, options)
	i.Log.finish(e, e, outcome, err)
	return outcome, err
}

// Confirm implements intent.Interface.
func (i *Intent) Confirm(source intent.Source, revision uint64) error {
	e := entry("confirm", source)
	e.Revision, e.Outcome = revision, Done
	err := i.Interface.Confirm(source, revision)
	if err != nil {
		e.Outcome, e.Problem = Refused, err.Error()
	}
	i.Log.Write(e)
	return err
}

// Refuse writes down what was refused before it could become a change.
func (l *Log) Refuse(action string, source intent.Source, changes []object.Change, outcome Outcome, err error) {
	e := entry(action, source)
	e.Outcome, e.Problem = outcome, problem(err)
	e.asked(changes)
	l.Write(e)
}

// problem leaves out what others say: the log tells who did what, not what objects hold.
func problem(err error) string {
	var conflicts *intent.Conflicts
	if !errors.As(err, &conflicts) {
		return err.Error()
	}
	brief := &intent.Conflicts{All: slices.Clone(conflicts.All)}
	for i := range brief.All {
		brief.All[i].Wanted, brief.All[i].Held = "", ""
	}
	return brief.Error()
}

func entry(action string, source intent.Source) Entry {
	return Entry{Time: time.Now(), Action: action, Owner: source.Owner, Who: source.Who, From: source.From, Why: source.Why}
}

func (e *Entry) asked(changes []object.Change) {
	e.Count = len(changes)
	for _, c := range changes[:min(len(changes), mostObjects)] {
		step := "put"
		if c.Object == nil {
			step = "delete"
		}
		e.Objects = append(e.Objects, Change{Kind: c.Key.Kind, Name: c.Key.Name, Step: step})
	}
}

func (e *Entry) did(objects []intent.Done) {
	e.Count = len(objects)
	for _, o := range objects[:min(len(objects), mostObjects)] {
		e.Objects = append(e.Objects, Change{Kind: o.Status.Key.Kind, Name: o.Status.Key.Name, Step: o.Step.String(), State: strings.ToLower(o.Status.State.String())})
	}
}

// Undone writes down what the agent did by itself about a revision that does not stand.
func (l *Log) Undone(u intent.Undoing) {
	e := entry("undo", u.Source)
	e.Undoes, e.Revision, e.Outcome = u.Revision, u.Made, Done
	e.did(u.Objects)
	switch {
	case u.Problem != nil:
		e.Outcome, e.Problem = Refused, u.Problem.Error()
	case len(u.Left) > 0:
		e.Outcome, e.Problem = InPart, (&intent.NotUndone{Revision: u.Revision, Left: u.Left}).Error()
	}
	l.Write(e)
}

// finish writes down what became of it; or, if nothing did, what was asked for.
func (l *Log) finish(e, asked Entry, outcome *intent.Outcome, err error) {
	if outcome == nil {
		e = asked
		e.Outcome = Refused
	}
	if err != nil {
		e.Problem = problem(err)
	}
	if outcome == nil {
		l.Write(e)
		return
	}
	e.Revision, e.Outcome = outcome.Revision, Unchanged
	if slices.ContainsFunc(outcome.Objects, func(o intent.Done) bool { return o.Step != intent.Keep }) {
		e.Outcome = Done
	}
	e.did(outcome.Objects)
	switch {
	case outcome.Undone:
		e.Outcome = Undone
		if e.Problem == "" && len(outcome.Failures) > 0 {
			e.Problem = outcome.Failures[0].Key.String() + ": " + outcome.Failures[0].Message
		}
	case err != nil:
		e.Outcome = Interrupted
	}
	l.Write(e)
}
