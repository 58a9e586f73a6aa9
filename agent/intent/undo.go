// SPDX-License-Identifier: Apache-2.0

// Undoing a revision: the configuration before it is restored, except objects that changed since.
package intent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// Reasons to undo a revision.
const (
	unconfirmed = "not confirmed in time"
	unfinished  = "a part of it failed"
	cutOff      = "the agent stopped before it was complete"
)

// The longest time between two attempts to undo the rest of a revision.
const undoneAgainWithin = time.Minute

// agentOwner is the owner of undo revisions.
const agentOwner = "agent"

// Undoing is the report of an undo.
type Undoing struct {
	// The agent, with the reason.
	Source Source
	// The revision that is undone, and the one that undoes it, 0: none yet.
	Revision, Made uint64
	// Objects that were restored, objects that were not, and an error of the store.
	Objects []Done
	Left    []Left
	Problem error
}

// NotUndone is the error of a revision whose undo failed or is not complete. The agent tries again.
type NotUndone struct {
	Revision uint64
	Left     []Left
	// Of the store.
	Problem error
}

func (n *NotUndone) Error() string {
	if n.Problem != nil {
		return fmt.Sprintf("revision %d is not undone yet: %v", n.Revision, n.Problem)
	}
	return fmt.Sprintf("revision %d is undone only in part; left as it is: %s", n.Revision, listed(n.Left))
}

func (n *NotUndone) Unwrap() error { return n.Problem }

// listed names as many as a person reads.
func listed(left []Left) string {
	const most = 10
	var names []string
	for _, l := range left[:min(len(left), most)] {
		names = append(names, l.String())
	}
	if more := len(left) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// overdue undoes a revision whose time is over.
func (d *Desired) overdue(o *opened, why string) {
	// The timer reports the error and tries again.
	_ = d.undo(context.Background(), o, why, false)
}

// undo restores the configuration before an open revision, as far as that is acceptable; it tries the rest again later. An error is a
// *NotUndone.
func (d *Desired) undo(ctx context.Context, o *opened, why string, wait bool) error {
	d.changing.Lock()
	if d.open != o || why == unconfirmed && o.ConfirmBy.IsZero() {
		d.changing.Unlock()
		return nil
	}
	begun, report, err := d.undoRevision(o, why)
	d.changing.Unlock()
	d.reportUndone(o, report, err)
	if begun == nil {
		return err
	}
	if wait {
		select {
		case <-begun.Done():
		case <-ctx.Done():
		}
	}
	begun.Close()
	return err
}

// undoRevision is undo; report is nil if there is none. d.changing is held.
func (d *Desired) undoRevision(o *opened, why string) (begun work, report *Undoing, err error) {
	first := o.why == "" && !o.InPart
	report = &Undoing{Source: Source{Owner: agentOwner}, Revision: o.Revision}
	edits, never, err := d.reversed(o)
	if err != nil {
		return nil, d.retryUndo(o, report, why, err, first), &NotUndone{Revision: o.Revision, Problem: err}
	}
	p, left := d.acceptable(edits)
	left = append(never, left...)
	slices.SortFunc(left, func(a, b Left) int { return a.Key.Compare(b.Key) })
	report.Left = left
	if len(left) > 0 && !first && o.InPart && len(p.edits) == 0 {
		// As it was when it was tried before, perhaps before the agent was started again.
		d.mu.Lock()
		o.why = why
		gone := o.left
		d.putOff(o, left, "")
		d.mu.Unlock()
		if !slices.Equal(gone, left) {
			d.reportLeft(slices.Concat(gone, left))
		}
		return nil, nil, &NotUndone{Revision: o.Revision, Left: left}
	}
	report.Source.Why = fmt.Sprintf("revision %d undone: %s", o.Revision, why)
	if len(left) > 0 {
		report.Source.Why = fmt.Sprintf("revision %d undone in part: %s; left as it is: %s", o.Revision, why, listed(left))
	}
	u, gone := d.undoing(o, left), o.left
	u.whenStored = func() {
		if len(left) > 0 {
			o.InPart, o.why = true, why
			d.putOff(o, left, "")
			return
		}
		d.close(o)
		close(o.undone)
	}
	begun, made, err := d.keep(p, report.Source, Options{}, o.Revision-1, u)
	if err != nil {
		return nil, d.retryUndo(o, report, why, err, first), &NotUndone{Revision: o.Revision, Problem: err}
	}
	report.Made = made.Number
	for _, e := range p.edits {
		st, _ := d.look(e.Key)
		report.Objects = append(report.Objects, Done{stepFrom(e.Before.merged(), e.After.merged()), st})
	}
	d.reportLeft(gone)
	if len(left) == 0 {
		return begun, report, nil
	}
	return begun, report, &NotUndone{Revision: o.Revision, Left: left}
}

// retryUndo schedules another attempt. The result is for the first failure. d.changing is held.
func (d *Desired) retryUndo(o *opened, report *Undoing, why string, err error, first bool) *Undoing {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.why = why
	d.putOff(o, o.left, err.Error())
	if !first {
		return nil
	}
	report.Source.Why = fmt.Sprintf("revision %d is to be undone: %s", o.Revision, why)
	report.Problem, report.Left = err, nil
	return report
}

// putOff has a revision undone later. d.mu is held.
func (d *Desired) putOff(o *opened, left []Left, problem string) {
	o.left, o.problem = left, cmp.Or(problem, listed(left))
	o.isDecided()
	d.listLeft()
	o.backoff = min(max(2*o.backoff, d.config.UndoAgain), undoneAgainWithin)
	d.later(o, o.backoff)
}

// reportUndone reports an undo to the listeners.
func (d *Desired) reportUndone(o *opened, report *Undoing, err error) {
	if report == nil {
		return
	}
	if report.Made != 0 {
		d.config.Log.Warn("a revision was undone", "revision", o.Revision, "why", report.Source.Why)
	}
	if err != nil {
		d.config.Log.Error("a revision that does not stand is still there; it is tried again", "revision", o.Revision, "error", err)
	}
	d.reportLeft(report.Left)
	if d.config.Undone != nil {
		d.config.Undone(*report)
	}
}

// listLeft gives each object the condition that it could not be undone. d.mu is held, so that objects and revision
// agree.
func (d *Desired) listLeft() {
	left := map[object.Key]string{}
	if o := d.open; o != nil {
		for _, l := range o.left {
			left[l.Key] = fmt.Sprintf("revision %d is to be undone, but %s", o.Revision, l.Problem)
		}
	}
	d.left.Store(&left)
}

// reportLeft reports objects that could not be restored, or that are restored now.
func (d *Desired) reportLeft(objects []Left) {
	for _, l := range objects {
		if s := d.sites.get(l.Key); s.State != Gone {
			d.log.publish(logStatus(s))
		}
	}
}

// reversed returns the edits that undo a revision; left are the objects that cannot be restored. d.changing is held.
func (d *Desired) reversed(o *opened) (edits []Edit, left []Left, err error) {
	undoes, err := d.undoesOf(o)
	if err != nil {
		return nil, nil, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for k, u := range undoes {
		now := d.records.Get(k)
		if now.producedBy() != nil {
			left = append(left, Left{k, d.produced(k, now).Problem})
			continue
		}
		layers, differ := now.without(""), false
		for _, owner := range u.Owners {
			was, is := u.Before.layerOf(owner), now.layerOf(owner)
			if was == nil && is == nil || was != nil && is != nil && was.SameLayer(is.StoredObject) && was.Taken == is.Taken {
				continue
			}
			differ = true
			layers = replaced(&Record{Layers: layers}, u.Before, owner)
		}
		if !differ {
			continue
		}
		for i := range layers {
			if slices.Contains(u.Owners, layers[i].Owner) {
				layers[i].Revision = 0
			}
		}
		after, err := d.recordOf(layers)
		if err != nil {
			left = append(left, Left{k, err.Error()})
			continue
		}
		edits = append(edits, Edit{Key: k, Before: now, After: after})
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.Key.Compare(b.Key) })
	return edits, left, nil
}

// replaced returns the layers of a record, with one owner's layer replaced by that of another record.
func replaced(r, by *Record, owner string) []Layer {
	layers := r.without(owner)
	if l := by.layerOf(owner); l != nil {
		layers = append(layers, *l)
	}
	return layers
}

// undoing returns the part of a commit that undoes a revision.
func (d *Desired) undoing(o *opened, left []Left) *undoing {
	u := &undoing{closes: o.Revision}
	if len(left) == 0 {
		return u
	}
	leaves := o.Open
	leaves.InPart = true
	u.leaves = &leaves
	stays := make(map[object.Key]struct{}, len(left))
	for _, l := range left {
		stays[l.Key] = struct{}{}
	}
	for k, one := range o.undoes {
		if _, there := stays[k]; !there {
			one.Owners = nil
		}
		u.revised = append(u.revised, one)
	}
	return u
}

// acceptable prepares the acceptable edits, and returns the errors of the others. d.changing is held, d.mu is not.
func (d *Desired) acceptable(edits []Edit) (*prepared, []Left) {
	var left []Left
	const rounds = 8
	for range rounds {
		p, err := d.prepare(edits, NoWait, false)
		if err == nil {
			return p, left
		}
		problems := map[object.Key]string{}
		for _, m := range object.AllErrors(err) {
			about := *m
			about.Object = object.Key{}
			problems[m.Object] = cmp.Or(problems[m.Object], about.Error())
		}
		rest := make([]Edit, 0, len(edits))
		for _, e := range edits {
			if problem, bad := problems[e.Key]; bad {
				left = append(left, Left{e.Key, problem})
			} else {
				rest = append(rest, e)
			}
		}
		if len(rest) == len(edits) {
			break
		}
		edits = rest
	}
	// The errors name other objects, or there are too many: try each edit by itself.
	var fit []Edit
	var back []*prepared
	for i := range edits {
		p, err := d.prepare(edits[i:i+1], NoWait, false)
		if err != nil {
			left = append(left, Left{edits[i].Key, err.Error()})
			continue
		}
		fit, back = append(fit, edits[i]), append(back, p)
	}
	for _, p := range slices.Backward(back) {
		d.takeBack(p)
	}
	p, err := d.prepare(fit, NoWait, false)
	if err != nil {
		for _, e := range fit {
			left = append(left, Left{e.Key, err.Error()})
		}
		p = &prepared{placed: nothingPlaced}
	}
	return p, left
}

// unconfirmed is the error for a caller that still waits for data planes when the revision is undone.
func (o *opened) unconfirmed() error {
	if o.by != 0 {
		return &rolledBack{o.Revision, o.by}
	}
	return fmt.Errorf("revision %d: %w", o.Revision, ErrUnconfirmed)
}

// rolledBack is an ErrUnconfirmed because of a rollback.
type rolledBack struct{ revision, by uint64 }

func (r *rolledBack) Error() string {
	return fmt.Sprintf("revision %d was undone by the rollback that is revision %d", r.revision, r.by)
}
func (r *rolledBack) Unwrap() error { return ErrUnconfirmed }

// ErrUnconfirmed: a revision was undone while its caller still waited for data planes.
var ErrUnconfirmed = errors.New(unconfirmed + "; the configuration before it is restored")
