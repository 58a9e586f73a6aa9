// SPDX-License-Identifier: Apache-2.0

// Rollback: restoring the configuration of a revision.
package intent

import (
	"context"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// Rollback implements Interface.
func (d *Desired) Rollback(ctx context.Context, source Source, revision uint64, options Options) (*Outcome, error) {
	if source.Owner == "" {
		return nil, errNoOwner
	}
	if err := d.turn(ctx, options); err != nil {
		return nil, err
	}
	p, made, begun, err := d.rollback(source, revision, options)
	d.changing.Unlock()
	if err != nil {
		return nil, err
	}
	return d.finish(ctx, p.request, p.opened, made, begun, options)
}

func (d *Desired) rollback(source Source, revision uint64, options Options) (*prepared, Revision, work, error) {
	then, err := d.recordsAt(revision)
	if err != nil {
		return nil, Revision{}, nil, err
	}
	ends, err := d.endedBy(revision)
	if err != nil {
		return nil, Revision{}, nil, err
	}
	p, err := d.returned(then, options)
	latest := Revision{Number: d.Revision()}
	if err != nil || len(p.edits) == 0 {
		return p, latest, nil, err
	}
	p.ends = ends
	begun, made, err := d.keep(p, source, options, revision, nil)
	if err == nil {
		for _, o := range ends {
			d.reportLeft(o.left)
		}
	}
	return p, made, begun, err
}

// endedBy returns the revision that waits, if going back to a revision undoes it. d.changing is held.
func (d *Desired) endedBy(revision uint64) ([]*opened, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	o := d.open
	if o == nil || !o.confirmable() {
		return nil, nil // all or nothing: it is done or undone at once, and no event of it comes in between
	}
	if o.Revision <= revision {
		return nil, &Waiting{Revision: o.Revision, Rollback: true}
	}
	return []*opened{o}, nil
}

// returned prepares going back to records. d.changing is held, d.mu is not.
func (d *Desired) returned(then map[object.Key]*Record, options Options) (*prepared, error) {
	var edits []Edit
	for k, was := range then {
		now := d.recordFor(k)
		if now.producedBy() != nil {
			continue
		}
		layers, differ := d.restored(now, was)
		if !differ {
			continue
		}
		after, err := d.recordOf(layers)
		if err != nil {
			return nil, err
		}
		edits = append(edits, Edit{Key: k, Before: now, After: after})
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.Key.Compare(b.Key) })
	keys := make([]object.Key, len(edits))
	for i, e := range edits {
		keys[i] = e.Key
	}
	return d.decided(edits, newRequest(keys), options, false)
}

// restored returns the layers that there were, but for those of owners that have no history: of these, the present ones.
func (d *Desired) restored(now, was *Record) (layers []Layer, differ bool) {
	if now != nil {
		for _, l := range now.Layers {
			if d.config.Owners[l.Owner].Unrecorded {
				layers = append(layers, l)
			} else if then := was.layerOf(l.Owner); then != nil && then.SameLayer(l.StoredObject) && then.Taken == l.Taken {
				layers = append(layers, l)
			} else {
				differ = true
			}
		}
	}
	if was != nil {
		for _, l := range was.Layers {
			if present := now.layerOf(l.Owner); !d.config.Owners[l.Owner].Unrecorded && (present == nil || !present.SameLayer(l.StoredObject) || present.Taken != l.Taken) {
				l.Revision = 0
				layers, differ = append(layers, l), true
			}
		}
	}
	return layers, differ
}
