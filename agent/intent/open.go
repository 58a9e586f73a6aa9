// SPDX-License-Identifier: Apache-2.0

// An unconfirmed revision: the objects that undoing it restores, and its deadline. One is open at a time. Objects
// that other revisions change meanwhile stay as those revisions set them.
package intent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// opened is an open revision.
type opened struct {
	Open
	// The objects that undoing it restores; nil: not read yet. Desired.changing guards it.
	undoes map[object.Key]Undo

	// Desired.mu guards the rest. The timer undoes the revision; nil: it has no timer yet.
	timer *time.Timer
	// Why it is undone, once it was tried; how long to wait until it is tried again, and why it could not be done.
	why     string
	backoff time.Duration
	problem string
	// Objects whose undoing conflicts with other owners.
	left []Left
	// Closed when it was undone; and the rollback that undid it, 0: none.
	undone chan struct{}
	by     uint64
	// Closed when it is open no more, or is overdue.
	decided chan struct{}
}

// Left is an object that could not be undone, and why.
type Left struct {
	Key     object.Key
	Problem string
}

func (l Left) String() string { return l.Key.String() + " (" + l.Problem + ")" }

// Unconfirmed is a revision that waits to be confirmed, or to be undone.
type Unconfirmed struct {
	Revision uint64
	// When it is undone. Zero: as soon as possible.
	By time.Time
	// It should be undone and is not, or not all of it: that is tried again and again.
	Overdue bool
	Problem string
	Left    []Left
}

// confirmable returns whether the revision can be confirmed. d.mu is held.
func (o *opened) confirmable() bool { return !o.ConfirmBy.IsZero() || o.overdue() }

func (o *opened) overdue() bool { return o.InPart || o.why != "" }

// confirmBy returns the deadline of a revision, or an error if it should have been undone by now.
func (d *Desired) confirmBy(o *opened) (time.Time, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case d.open != o:
		return time.Time{}, nil
	case o.InPart:
		return time.Time{}, &NotUndone{Revision: o.Revision, Left: o.left}
	case o.overdue():
		return time.Time{}, &NotUndone{Revision: o.Revision, Problem: errors.New(o.problem)}
	}
	return o.ConfirmBy, nil
}

// Unconfirmed implements Interface.
func (d *Desired) Unconfirmed() []Unconfirmed {
	d.mu.RLock()
	defer d.mu.RUnlock()
	o := d.open
	if o == nil || !o.confirmable() {
		return nil
	}
	return []Unconfirmed{{Revision: o.Revision, By: o.ConfirmBy, Overdue: o.overdue(), Problem: o.problem, Left: o.left}}
}

// turn locks d.changing for a change. A change that will be open waits for an all-or-nothing one to be done or
// undone, which is soon. While a revision waits to be confirmed, the change is refused with a *Waiting.
func (d *Desired) turn(ctx context.Context, options Options) error {
	for d.changing.Lock(); options.ConfirmWithin > 0 || options.Mode == AllOrNothing; d.changing.Lock() {
		d.mu.RLock()
		o := d.open
		waits := o != nil && o.confirmable()
		d.mu.RUnlock()
		if o == nil {
			return nil
		}
		d.changing.Unlock()
		if waits {
			return &Waiting{Revision: o.Revision}
		}
		select {
		case <-o.decided:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// begin keeps in mind that a revision is open, from when it is kept. d.mu is held.
func (d *Desired) begin(open Open) *opened {
	o := &opened{Open: open, undone: make(chan struct{}), decided: make(chan struct{})}
	d.open = o
	if !open.ConfirmBy.IsZero() {
		d.later(o, max(0, time.Until(open.ConfirmBy)))
	}
	return o
}

// later has a revision undone after a time. d.mu is held.
func (d *Desired) later(o *opened, wait time.Duration) {
	if o.timer != nil {
		o.timer.Stop()
	}
	if o.timer = nil; d.ended {
		return
	}
	o.timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		why := cmp.Or(o.why, unconfirmed)
		runs := !d.ended && d.open == o
		if runs {
			d.firing.Add(1)
		}
		d.mu.Unlock()
		if runs {
			defer d.firing.Done()
			d.overdue(o, why)
		}
	})
}

// undoesOf returns the undo records of an open revision, by object. d.changing is held.
func (d *Desired) undoesOf(o *opened) (map[object.Key]Undo, error) {
	if o.undoes != nil {
		return o.undoes, nil
	}
	// A read may take the store some time. Other callers do not wait for it.
	all := map[object.Key]Undo{}
	err := d.config.Store.Before(o.Revision, func(k object.Key, before *Record) error {
		all[k] = Undo{Revision: o.Revision, Key: k, Before: before}
		return nil
	})
	d.mu.RLock()
	for k, u := range all {
		u.Owners = changedBy(o.Revision, u.Before, d.records.Get(k))
		all[k] = u
	}
	d.mu.RUnlock()
	if err == nil {
		err = d.config.Store.Undoes(o.Revision, func(u Undo) error {
			u.stored = true
			all[u.Key] = u
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("reading what revision %d changed: %w", o.Revision, err)
	}
	maps.DeleteFunc(all, func(_ object.Key, u Undo) bool { return len(u.Owners) == 0 })
	o.undoes = all
	return all, nil
}

// changedBy returns the owners whose layers a revision changed or removed.
func changedBy(revision uint64, before, now *Record) []string {
	var owners []string
	if now != nil {
		for _, l := range now.Layers {
			if l.Revision == revision {
				owners = append(owners, l.Owner)
			}
		}
	}
	if before != nil && (now == nil || now.Revision == revision) {
		for _, l := range before.Layers {
			if now.layerOf(l.Owner) == nil {
				owners = append(owners, l.Owner)
			}
		}
	}
	return owners
}

// overtaken returns the undo records of the open revision after a commit of sealed edits: its changes are not undone.
// d.changing is held.
func (d *Desired) overtaken(c *Commit) ([]Undo, error) {
	o, revised := d.open, c.Revised
	if o.Revision == c.Closes || slices.Contains(c.Ends, o.Revision) {
		return revised, nil
	}
	undoes, err := d.undoesOf(o)
	if err != nil {
		return nil, err
	}
	for i := range c.Edits {
		e := &c.Edits[i]
		u, there := undoes[e.Key]
		if !there {
			continue
		}
		owners := without(u.Owners, changedBy(c.Revision.Number, e.Before, e.After))
		if u.stored && len(owners) == len(u.Owners) {
			continue
		}
		u.Owners, u.stored = owners, true
		revised = append(revised, u)
	}
	return revised, nil
}

func without(owners, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(owners), func(owner string) bool { return slices.Contains(taken, owner) })
}

// revise stores changed undo records. d.changing is held.
func (d *Desired) revise(revised []Undo) {
	for _, u := range revised {
		o := d.open
		switch u.stored = true; {
		case o == nil || o.Revision != u.Revision || o.undoes == nil:
		case len(u.Owners) == 0:
			delete(o.undoes, u.Key)
		default:
			o.undoes[u.Key] = u
		}
	}
}

// stand lets the open revision stand. d.changing is held.
func (d *Desired) stand(o *opened) error {
	if err := d.settle(o, nil); err != nil {
		return err
	}
	d.mu.Lock()
	gone := o.left
	d.close(o)
	d.mu.Unlock()
	d.reportLeft(gone)
	return nil
}

// settle stores the rest of an open revision; nil: nothing is open.
func (d *Desired) settle(o *opened, open *Open) error {
	if err := d.config.Store.Settle(o.Revision, open, nil); err != nil {
		return fmt.Errorf("keeping that revision %d stands: %w", o.Revision, err)
	}
	return nil
}

// close forgets a revision that is not open any more. d.changing and d.mu are held.
func (d *Desired) close(o *opened) {
	d.open = nil
	o.isDecided()
	if o.timer != nil {
		o.timer.Stop()
	}
	if len(o.left) > 0 {
		d.listLeft()
	}
}

// isDecided lets changes go on that wait for the revision. Desired.mu is held.
func (o *opened) isDecided() {
	select {
	case <-o.decided:
	default:
		close(o.decided)
	}
}

func (o *opened) isUndone() bool {
	select {
	case <-o.undone:
		return true
	default:
		return false
	}
}

// done is that all was done of a revision of which all or nothing was asked for.
func (d *Desired) done(o *opened) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	switch {
	case d.open != o || o.overdue():
		return nil
	case o.ConfirmBy.IsZero():
		return d.stand(o)
	}
	waits := o.Open
	waits.Unfinished = false
	return d.reopen(o, waits)
}

// reopen keeps that something else is open of a revision. d.changing is held.
func (d *Desired) reopen(o *opened, open Open) error {
	if err := d.settle(o, &open); err != nil {
		return err
	}
	d.mu.Lock()
	o.Open = open
	d.mu.Unlock()
	return nil
}

// Confirm implements Interface.
func (d *Desired) Confirm(source Source, revision uint64) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.RLock()
	o := d.open
	waits := o != nil && o.confirmable() && (revision == 0 || revision == o.Revision)
	if waits {
		revision = o.Revision
	}
	d.mu.RUnlock()
	if !waits {
		return d.nothingToConfirm(revision)
	}
	var err error
	if o.Unfinished && !o.overdue() {
		// It may still be refused by a data plane.
		if err = d.reopen(o, Open{Revision: revision, Unfinished: true}); err == nil {
			d.mu.Lock()
			if o.timer != nil {
				o.timer.Stop()
			}
			d.mu.Unlock()
		}
	} else {
		err = d.stand(o)
	}
	if err != nil {
		return err
	}
	d.config.Log.Info("a revision was confirmed", "revision", revision, "owner", source.Owner, "who", source.Who)
	return nil
}

// nothingToConfirm returns the error for a revision that does not wait, with its state and the revision that waits; 0: no revision waits.
func (d *Desired) nothingToConfirm(revision uint64) error {
	if revision == 0 {
		return ErrNothingToConfirm
	}
	says, err := d.became(revision)
	if err != nil {
		return err
	}
	for _, u := range d.Unconfirmed() {
		says += fmt.Sprintf("; revision %d waits to be confirmed", u.Revision)
	}
	return &settled{says}
}

// settled is an ErrNothingToConfirm with its reason.
type settled struct{ says string }

func (s *settled) Error() string { return s.says }
func (s *settled) Unwrap() error { return ErrNothingToConfirm }

// became returns the reason why a revision does not wait for its confirmation.
func (d *Desired) became(revision uint64) (string, error) {
	found, err := d.History(revision+1, 1)
	if err != nil {
		return "", err
	}
	if latest := d.Revision(); revision > latest {
		return fmt.Sprintf("there is no revision %d; the latest is %d", revision, latest), nil
	}
	if len(found) == 0 || found[0].Number != revision {
		return fmt.Sprintf("revision %d is no longer in the history", revision), nil
	}
	switch r := found[0]; {
	case r.Standing.UndoneBy != 0 && r.Standing.InPart:
		return fmt.Sprintf("revision %d was undone in part already, by revision %d, and the rest confirmed", revision, r.Standing.UndoneBy), nil
	case r.Standing.UndoneBy != 0:
		return fmt.Sprintf("revision %d was undone already, by revision %d", revision, r.Standing.UndoneBy), nil
	case !r.ConfirmBy.IsZero():
		return fmt.Sprintf("revision %d was confirmed already", revision), nil
	}
	return fmt.Sprintf("revision %d stands, and did not have to be confirmed", revision), nil
}
