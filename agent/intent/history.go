// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"maps"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// History implements Interface.
func (d *Desired) History(before uint64, limit int) ([]Revision, error) {
	// A revision that is settled meanwhile counts as waiting.
	waiting, _ := d.waiting()
	found, err := d.revisions(before, limit)
	if err != nil || len(found) == 0 {
		return found, err
	}
	later, latest := d.waiting()
	maps.Copy(waiting, later)
	undoes := map[uint64]Standing{}
	note := func(page []Revision) {
		for _, r := range page {
			if _, known := undoes[r.Undoes]; r.Undoes != 0 && !known {
				undoes[r.Undoes] = Standing{UndoneBy: r.Number, InPart: r.UndoesInPart}
			}
			for _, ended := range r.Ended {
				undoes[ended] = Standing{UndoneBy: r.Number}
			}
		}
	}
	// The later ones come first, and count.
	const most = 1000
	for next, end := uint64(0), before == 0; !end; {
		page, err := d.revisions(next, most)
		if err != nil {
			return nil, err
		}
		note(page)
		end = len(page) < most || page[len(page)-1].Number <= before
		if !end {
			next = page[len(page)-1].Number
		}
	}
	note(found)
	for i := range found {
		r := &found[i]
		r.Standing = undoes[r.Number]
		open, waits := waiting[r.Number]
		switch {
		case r.Standing.UndoneBy != 0 && !r.Standing.InPart:
		case waits:
			r.Standing.Waits, r.Standing.Overdue = true, open.Overdue
			if !open.Overdue {
				// It may have another time since the agent was started again.
				r.ConfirmBy = open.By
			}
		case r.Number > latest:
			// It is stored already, and not visible yet.
			r.Standing.Waits = !r.ConfirmBy.IsZero()
		}
	}
	return found, nil
}

// waiting returns which revisions can be confirmed, and the latest revision.
func (d *Desired) waiting() (map[uint64]Unconfirmed, uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := map[uint64]Unconfirmed{}
	if o := d.open; o != nil {
		if o.confirmable() {
			all[o.Revision] = Unconfirmed{Revision: o.Revision, By: o.ConfirmBy, Overdue: o.overdue()}
		}
	}
	return all, d.revision
}

// revisions returns them as they are kept.
func (d *Desired) revisions(before uint64, limit int) ([]Revision, error) {
	found, err := d.config.Store.History(before, limit)
	if err != nil {
		return nil, fmt.Errorf("reading history: %w", err)
	}
	return found, nil
}

// recordsAt returns, for each object that has changed since a revision, its record at that revision; nil: the object did not exist.
func (d *Desired) recordsAt(revision uint64) (map[object.Key]*Record, error) {
	then := map[object.Key]*Record{}
	oldest, before := uint64(0), uint64(0)
	for {
		page, err := d.revisions(before, 100)
		if err != nil {
			return nil, err
		}
		for _, r := range page {
			oldest = r.Number
			if r.Number <= revision {
				return then, d.isKept(revision)
			}
			// The older ones come later, and count.
			err := d.config.Store.Before(r.Number, func(k object.Key, before *Record) error {
				then[k] = before
				return d.merge(before)
			})
			if err != nil {
				return nil, fmt.Errorf("reading revision %d: %w", r.Number, err)
			}
		}
		if len(page) < 100 {
			break
		}
		before = oldest
	}
	if revision == 0 && oldest <= 1 {
		return then, nil
	}
	return nil, fmt.Errorf("revision %d: %w", revision, ErrNoRevision)
}

// isKept: a revision that is not there yet cannot be gone back to.
func (d *Desired) isKept(revision uint64) error {
	if revision > d.Revision() {
		return fmt.Errorf("revision %d: %w", revision, ErrNoRevision)
	}
	return nil
}

// Diff implements Interface.
func (d *Desired) Diff(from, to uint64) ([]Difference, error) {
	// Nothing may change between the two.
	d.changing.Lock()
	defer d.changing.Unlock()
	before, err := d.recordsAt(from)
	if err != nil {
		return nil, err
	}
	after := map[object.Key]*Record{}
	if to != 0 {
		if after, err = d.recordsAt(to); err != nil {
			return nil, err
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	fill := func(into, other map[object.Key]*Record) {
		for k := range other {
			if _, there := into[k]; !there {
				into[k] = d.records.Get(k)
			}
		}
	}
	fill(before, after)
	fill(after, before)
	var all []Difference
	for k, b := range before {
		a := after[k]
		was, is := b.merged(), a.merged()
		diff := Difference{Key: k, Step: stepFrom(was, is), OwnerBefore: b.owner(), OwnerAfter: a.owner()}
		if diff.Step == Keep && diff.OwnerBefore == diff.OwnerAfter {
			continue
		}
		diff.Fields = was.Diff(is)
		all = append(all, diff)
	}
	slices.SortFunc(all, func(a, b Difference) int { return a.Key.Compare(b.Key) })
	return all, nil
}
