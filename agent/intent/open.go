// Revisions of which it is not known yet whether they stand: what undoing each of them would bring back, and until when.
//
// Several may be open at once, and change the same objects. What an owner says of an object is then a pile: what it said before, and
// above that what each of them made it say. Undoing the topmost brings back what is below it; undoing another takes it out of the
// pile, so that what is above comes to bring back what was below. What stands for good, because it never was open or was confirmed,
// ends the pile: nothing below it can come back.
package intent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
)

// opened is an open revision.
type opened struct {
	Open
	// What undoing it brings back; nil: that was not read yet. Desired.changing guards it.
	undoes map[object.Key]Undo

	// The rest is guarded by Desired.mu. Undoes it; nil: nobody does by himself yet.
	timer *time.Timer
	// Why it is undone, once it was tried; how long to wait until it is tried again, and why it could not be done.
	why     string
	backoff time.Duration
	problem string
	// What others stand in the way of.
	left []Left
	// Closed when it was undone.
	undone chan struct{}
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

// confirmable says whether somebody can say that it stands. d.mu is held.
func (o *opened) confirmable() bool { return !o.ConfirmBy.IsZero() || o.overdue() }

func (o *opened) overdue() bool { return o.InPart || o.why != "" }

// confirmBy returns until when a revision waits to be confirmed, or that it should have been undone by now.
func (d *Desired) confirmBy(o *opened) (time.Time, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case d.open[o.Revision] != o:
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
	var all []Unconfirmed
	for _, o := range d.open {
		if o.confirmable() {
			all = append(all, Unconfirmed{Revision: o.Revision, By: o.ConfirmBy, Overdue: o.overdue(), Problem: o.problem, Left: o.left})
		}
	}
	slices.SortFunc(all, func(a, b Unconfirmed) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}

// begin keeps in mind that a revision is open, from when it is kept. d.mu is held.
func (d *Desired) begin(open Open) *opened {
	o := &opened{Open: open, undone: make(chan struct{})}
	d.open[open.Revision] = o
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
		runs := !d.ended && d.open[o.Revision] == o
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

// openOnes returns the open revisions, the oldest first. d.changing is held.
func (d *Desired) openOnes() []*opened {
	if len(d.open) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(d.open), func(a, b *opened) int { return cmp.Compare(a.Revision, b.Revision) })
}

// undoesOf returns what undoing an open revision brings back, by object. d.changing is held.
func (d *Desired) undoesOf(o *opened) (map[object.Key]Undo, error) {
	if o.undoes != nil {
		return o.undoes, nil
	}
	// To read may take the store some time, which nobody else has to wait.
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
			u.kept = true
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

// changedBy returns the owners whose layers a revision made what they are now, or took away.
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

// overtaken returns what undoing open revisions brings back once a commit of sealed edits is kept. What was undone or is open itself leaves what
// is below it in the pile; what stands takes that away. d.changing is held.
func (d *Desired) overtaken(c *Commit, stands bool) ([]Undo, error) {
	type place struct {
		revision uint64
		key      object.Key
	}
	revised, already := c.Revised, make(map[place]struct{}, len(c.Revised))
	for _, u := range revised {
		already[place{u.Revision, u.Key}] = struct{}{}
	}
	for _, o := range d.openOnes() {
		if o.Revision == c.Closes && c.Leaves == nil {
			continue
		}
		undoes, err := d.undoesOf(o)
		if err != nil {
			return nil, err
		}
		for i := range c.Edits {
			e := &c.Edits[i]
			u, there := undoes[e.Key]
			if _, said := already[place{o.Revision, e.Key}]; !there || said {
				continue
			}
			owners := u.Owners
			if stands {
				owners = without(owners, changedBy(c.Revision.Number, e.Before, e.After))
			}
			if u.kept && len(owners) == len(u.Owners) {
				continue
			}
			u.Owners, u.kept = owners, true
			revised = append(revised, u)
		}
	}
	return revised, nil
}

func without(owners, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(owners), func(owner string) bool { return slices.Contains(taken, owner) })
}

// revise takes over what was kept. d.changing is held.
func (d *Desired) revise(revised []Undo) {
	for _, u := range revised {
		o := d.open[u.Revision]
		switch u.kept = true; {
		case o == nil || o.undoes == nil:
		case len(u.Owners) == 0:
			delete(o.undoes, u.Key)
		default:
			o.undoes[u.Key] = u
		}
	}
}

// stand lets an open revision stand: what older ones would bring back in place of it, they no longer do. d.changing is held.
func (d *Desired) stand(o *opened) error {
	var revised []Undo
	for _, older := range d.openOnes() {
		if older.Revision >= o.Revision {
			break
		}
		mine, err := d.undoesOf(o)
		if err != nil {
			return err
		}
		below, err := d.undoesOf(older)
		if err != nil {
			return err
		}
		for k, u := range below {
			if owners := without(u.Owners, mine[k].Owners); len(owners) < len(u.Owners) {
				u.Owners = owners
				revised = append(revised, u)
			}
		}
	}
	if err := d.settle(o, nil, revised); err != nil {
		return err
	}
	d.mu.Lock()
	gone := o.left
	d.close(o)
	d.mu.Unlock()
	d.tellLeft(gone)
	return nil
}

// settle keeps what is open of a revision; nil: nothing.
func (d *Desired) settle(o *opened, open *Open, revised []Undo) error {
	if err := d.config.Store.Settle(o.Revision, open, revised); err != nil {
		return fmt.Errorf("keeping that revision %d stands: %w", o.Revision, err)
	}
	d.revise(revised)
	return nil
}

// close forgets a revision that is not open any more. d.changing and d.mu are held.
func (d *Desired) close(o *opened) {
	delete(d.open, o.Revision)
	if o.timer != nil {
		o.timer.Stop()
	}
	if len(o.left) > 0 {
		d.listLeft()
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
	case d.open[o.Revision] != o || o.overdue():
		return nil
	case o.ConfirmBy.IsZero():
		return d.stand(o)
	}
	return d.reopen(o, Open{Revision: o.Revision, ConfirmBy: o.ConfirmBy})
}

// reopen keeps that something else is open of a revision. d.changing is held.
func (d *Desired) reopen(o *opened, open Open) error {
	if err := d.settle(o, &open, nil); err != nil {
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
	if revision == 0 {
		for r, o := range d.open {
			if o.confirmable() {
				revision = max(revision, r)
			}
		}
	}
	o := d.open[revision]
	waits := o != nil && o.confirmable()
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

// nothingToConfirm says what became of a revision that does not wait, 0: of none, and which others wait.
func (d *Desired) nothingToConfirm(revision uint64) error {
	if revision == 0 {
		return ErrNothingToConfirm
	}
	says, err := d.became(revision)
	if err != nil {
		return err
	}
	var others []string
	for _, u := range d.Unconfirmed() {
		others = append(others, strconv.FormatUint(u.Revision, 10))
	}
	if len(others) > 0 {
		says += "; those that wait to be confirmed: " + strings.Join(others, ", ")
	}
	return &settled{says}
}

// settled is an ErrNothingToConfirm that says why.
type settled struct{ says string }

func (s *settled) Error() string { return s.says }
func (s *settled) Unwrap() error { return ErrNothingToConfirm }

// became says why a revision does not wait to be confirmed.
func (d *Desired) became(revision uint64) (string, error) {
	found, err := d.History(revision+1, 1)
	if err != nil {
		return "", err
	}
	if latest := d.Revision(); revision > latest {
		return fmt.Sprintf("there is no revision %d; the latest is %d", revision, latest), nil
	}
	if len(found) == 0 || found[0].Number != revision {
		return fmt.Sprintf("revision %d is not kept any more", revision), nil
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
