// Going back to what was wanted at a revision.
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
	d.changing.Lock()
	p, made, begun, err := d.rollback(source, revision, options)
	d.changing.Unlock()
	if err != nil {
		return nil, err
	}
	return d.finish(ctx, p.asked, p.opened, made, begun, options)
}

func (d *Desired) rollback(source Source, revision uint64, options Options) (*prepared, Revision, work, error) {
	then, err := d.recordsAt(revision)
	if err != nil {
		return nil, Revision{}, nil, err
	}
	d.mu.Lock()
	p, err := d.returned(then, options)
	latest := Revision{Number: d.revision}
	d.mu.Unlock()
	if err != nil || len(p.edits) == 0 {
		return p, latest, nil, err
	}
	begun, made, err := d.keep(p, source, options, revision, nil)
	return p, made, begun, err
}

// returned prepares going back to records. d.mu is held.
func (d *Desired) returned(then map[object.Key]*Record, options Options) (*prepared, error) {
	var edits []Edit
	for k, was := range then {
		layers, differ := d.restored(d.records.Get(k), was)
		if !differ {
			continue
		}
		after, err := d.recordOf(layers)
		if err != nil {
			return nil, err
		}
		edits = append(edits, Edit{Key: k, Before: d.records.Get(k), After: after})
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.Key.Compare(b.Key) })
	keys := make([]object.Key, len(edits))
	for i, e := range edits {
		keys[i] = e.Key
	}
	return d.decided(edits, newAsked(keys), options)
}

// restored returns the layers that there were, but for those of owners that have no history: of these, the present ones. d.mu is held.
func (d *Desired) restored(now, was *Record) (layers []Layer, differ bool) {
	if now != nil {
		for _, l := range now.Layers {
			if d.config.Owners[l.Owner].Unrecorded {
				layers = append(layers, l)
			} else if then := was.layerOf(l.Owner); then != nil && then.Says(l.Kept) && then.Taken == l.Taken {
				layers = append(layers, l)
			} else {
				differ = true
			}
		}
	}
	if was != nil {
		for _, l := range was.Layers {
			if present := now.layerOf(l.Owner); !d.config.Owners[l.Owner].Unrecorded && (present == nil || !present.Says(l.Kept) || present.Taken != l.Taken) {
				l.Revision = 0
				layers, differ = append(layers, l), true
			}
		}
	}
	return layers, differ
}
