// SPDX-License-Identifier: Apache-2.0

// The sets of acceptable objects, and how a change gets into them: a large one in parts, so that producers hardly wait for it.
package intent

import (
	"iter"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// placedAtOnce is how many objects are put into the sets while producers wait.
const placedAtOnce = 256

// changes returns the effective edits as changes of the sets.
func (p *prepared) changes() *object.Examined {
	x := &object.Examined{Keys: make([]object.Key, len(p.effective)), Objects: make([]*object.StoredObject, len(p.effective))}
	for n, i := range p.effective {
		x.Keys[n], x.Objects[n] = p.edits[i].Key, p.edits[i].After.merged()
	}
	return x
}

// after returns which data planes have which objects once changes are made. d.mu is not held.
func (d *Desired) after(x *object.Examined) after {
	changed := make(map[object.Key]*object.StoredObject, len(x.Keys))
	for i, k := range x.Keys {
		changed[k] = x.Objects[i]
	}
	return func(site int, k object.Key) bool {
		if stored, is := changed[k]; is {
			return d.sites.placesOf(stored).has(site)
		}
		d.mu.RLock()
		defer d.mu.RUnlock()
		return d.sites.now(site, k)
	}
}

// takeBack takes a prepared change out of the sets. d.mu is not held.
func (d *Desired) takeBack(p *prepared) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.placed.undo()
}

// placed ends the presence of a prepared change in the sets: one of both is called once. Desired.mu is held.
type placed struct {
	undo func()
	// The change is stored: other changes may take what it released.
	done func()
}

// nothingPlaced is of a change that the sets do not have.
var nothingPlaced = placed{func() {}, func() {}}

// place makes changes to the sets, or returns why they are not acceptable. Some deletions are left for later. try: the sets stay as they are.
// d.changing is held, d.mu is not.
func (d *Desired) place(x *object.Examined, try bool) (in placed, later *object.Examined, err error) {
	if len(x.Keys) > placedAtOnce && !slices.ContainsFunc(x.Keys, func(k object.Key) bool { return d.registry.MayLoop(k.Kind) }) {
		if try {
			if d.fits(x) {
				return nothingPlaced, nil, nil
			}
		} else if in, later, fit := d.placeInParts(x); fit {
			return in, later, nil
		}
	}
	in, err = d.placeSome(x, try)
	return in, nil, err
}

// placeSome is place for changes that are made at once.
func (d *Desired) placeSome(x *object.Examined, try bool) (in placed, err error) {
	d.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	var mistakes object.Errors
	for _, k := range x.Keys {
		// A service may have made it since the edits were computed.
		if r := d.records.Get(k); r.producedBy() != nil {
			mistakes = append(mistakes, d.produced(k, r))
		}
	}
	if len(mistakes) > 0 {
		return placed{}, mistakes
	}
	in.undo, in.done, err = d.sites.applyReserving(x)
	if err == nil && try {
		in.undo()
		in = nothingPlaced
	}
	return in, err
}

// fits reports whether changes are acceptable, one part after the other: to each other, and each part to what the sets have. Where it says
// no, a part may take what another one releases.
func (d *Desired) fits(x *object.Examined) bool {
	if len(d.sites) > 1 {
		return false
	}
	if _, err := object.NewSet(d.registry).ApplyExamined(x); err != nil {
		return false
	}
	for part := range parts(x) {
		if _, err := d.placeSome(part, true); err != nil {
			return false
		}
	}
	return true
}

// placeInParts makes changes in parts. Deletions are left for later, and other changes that release something are one part, the last: so a
// part can be taken back although a producer has made changes since. False: nothing is changed, and a part may need what another one
// releases.
func (d *Desired) placeInParts(x *object.Examined) (in placed, later *object.Examined, fit bool) {
	var takes, rest object.Examined
	later = &object.Examined{}
	d.mu.RLock()
	for i, k := range x.Keys {
		if i%recordsAtOnce == recordsAtOnce-1 {
			d.mu.RUnlock()
			d.mu.RLock()
		}
		to := &rest
		switch {
		case x.Objects[i] == nil:
			to = later
		case d.sites.onlyTakes(k, x.Objects[i]):
			to = &takes
		}
		to.Keys, to.Objects = append(to.Keys, k), append(to.Objects, x.Objects[i])
	}
	d.mu.RUnlock()
	var undo, done []func()
	in = placed{undo: func() { backward(undo) }, done: func() { backward(done) }}
	place := func(part *object.Examined) bool {
		some, err := d.placeSome(part, false)
		if err == nil {
			undo, done = append(undo, some.undo), append(done, some.done)
		}
		return err == nil
	}
	fit = true
	for part := range parts(&takes) {
		if fit = place(part); !fit {
			break
		}
	}
	if fit && len(rest.Keys) > 0 {
		fit = place(&rest)
	}
	if fit {
		return in, later, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	in.undo()
	return placed{}, nil, false
}

// delete makes deletions that were left for later, which are always acceptable. d.mu is held.
func (d *Desired) delete(part *object.Examined) {
	if err := d.sites.apply(part); err != nil {
		d.config.Log.Error("deleting objects", "error", err)
	}
}

// free lets other changes take what a stored change releases: a few objects at a time. d.changing is held, d.mu is not.
func (d *Desired) free(p *prepared) {
	for part := range parts(p.later) {
		d.pass()
		d.mu.Lock()
		d.delete(part)
		d.mu.Unlock()
	}
	d.mu.Lock()
	p.placed.done()
	d.mu.Unlock()
}

// freeAtOnce is free with d.mu held.
func (d *Desired) freeAtOnce(p *prepared) {
	for part := range parts(p.later) {
		d.delete(part)
	}
	p.placed.done()
}

// parts ranges over parts of changes; nil: none.
func parts(x *object.Examined) iter.Seq[*object.Examined] {
	return func(yield func(*object.Examined) bool) {
		if x == nil {
			return
		}
		for from := 0; from < len(x.Keys); from += placedAtOnce {
			to := min(from+placedAtOnce, len(x.Keys))
			if !yield(&object.Examined{Keys: x.Keys[from:to], Objects: x.Objects[from:to]}) {
				return
			}
		}
	}
}

// onlyTakes reports whether a change releases nothing that any object may have only once. Desired.mu is held.
func (all sites) onlyTakes(k object.Key, stored *object.StoredObject) bool {
	places := all.placesOf(stored)
	for i, s := range all {
		if before := s.set.Get(k); before != nil && (!places.has(i) || !stored.KeepsClaims(before)) {
			return false
		}
	}
	return true
}
