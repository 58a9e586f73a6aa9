// SPDX-License-Identifier: Apache-2.0

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
	e := entry(actionOf(changes), source)
	asked := e
	asked.setChanges(changes)
	outcome, err := i.Interface.Apply(ctx, source, changes, options)
	i.Log.finish(e, asked, outcome, err)
	return outcome, err
}

// actionOf is "delete" if the request has only deletions.
func actionOf(changes []object.Change) string {
	if len(changes) > 0 && !slices.ContainsFunc(changes, func(c object.Change) bool { return c.Object != nil }) {
		return "delete"
	}
	return "apply"
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

// Refuse records a request that was refused before it became a change.
func (l *Log) Refuse(action string, source intent.Source, changes []object.Change, outcome Outcome, err error) {
	if action == "apply" {
		action = actionOf(changes)
	}
	e := entry(action, source)
	e.Outcome, e.Problem = outcome, problem(err)
	e.setChanges(changes)
	l.Write(e)
}

// problem leaves out details that name content of objects: the audit log holds callers and actions only.
func problem(err error) string {
	var conflicts *intent.Conflicts
	if !errors.As(err, &conflicts) {
		return err.Error()
	}
	brief := &intent.Conflicts{All: slices.Clone(conflicts.All)}
	for i := range brief.All {
		brief.All[i].Requested, brief.All[i].Held = "", ""
	}
	return brief.Error()
}

func entry(action string, source intent.Source) Entry {
	return Entry{Time: time.Now(), Action: action, Owner: source.Owner, Who: source.Who, From: source.From, Why: source.Why}
}

func (e *Entry) setChanges(changes []object.Change) {
	e.Count = len(changes)
	for _, c := range changes[:min(len(changes), maxObjects)] {
		step := "put"
		if c.Object == nil {
			step = "delete"
		}
		e.Objects = append(e.Objects, Change{Kind: c.Key.Kind, Name: c.Key.Name, Step: step})
	}
}

func (e *Entry) setObjects(objects []intent.Done) {
	e.Count = len(objects)
	for _, o := range objects[:min(len(objects), maxObjects)] {
		e.Objects = append(e.Objects, Change{Kind: o.Status.Key.Kind, Name: o.Status.Key.Name, Step: o.Step.String(), State: strings.ToLower(o.Status.State.String())})
	}
}

// Undone records that the agent undid an unconfirmed revision.
func (l *Log) Undone(u intent.Undoing) {
	e := entry("undo", u.Source)
	e.Undoes, e.Revision, e.Outcome = u.Revision, u.Made, Done
	e.setObjects(u.Objects)
	switch {
	case u.Problem != nil:
		e.Outcome, e.Problem = Refused, u.Problem.Error()
	case len(u.Left) > 0:
		e.Outcome, e.Problem = InPart, (&intent.NotUndone{Revision: u.Revision, Left: u.Left}).Error()
	}
	l.Write(e)
}

// finish records the outcome, or the request if there is no outcome.
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
	e.setObjects(outcome.Objects)
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
