// Taking back: what failed, what nobody confirmed, and what somebody wants to be as it was.
package intent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/agent/object"
)

// undo makes everything be wanted as before a revision, except for what somebody changed since.
func (d *Desired) undo(ctx context.Context, revision uint64, why string, wait bool) error {
	d.changing.Lock()
	edits, err := d.reversed(revision)
	var begun work
	if err == nil {
		begun, err = d.keepUndone(edits, revision, why)
	}
	d.changing.Unlock()
	if err != nil {
		return fmt.Errorf("undoing revision %d: %w", revision, err)
	}
	d.config.Log.Warn("a revision was undone", "revision", revision, "why", why)
	if begun == nil {
		return nil
	}
	if wait {
		select {
		case <-begun.Done():
		case <-ctx.Done():
		}
	}
	begun.Close()
	return nil
}

// keepUndone keeps the edits that undo a revision. d.changing is held.
func (d *Desired) keepUndone(edits []Edit, revision uint64, why string) (work, error) {
	d.mu.Lock()
	p, err := d.prepare(edits, NoWait)
	d.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("others made changes since: %w", err)
	}
	begun, _, err := d.keep(p, Source{Owner: "agent", Why: fmt.Sprintf("revision %d undone: %s", revision, why)}, Options{}, revision-1, revision)
	return begun, err
}

// reversed returns what takes a revision back: layers that say what they say since then. d.changing is held.
func (d *Desired) reversed(revision uint64) ([]Edit, error) {
	// What was deleted again since.
	type who struct {
		key   object.Key
		owner string
	}
	touched := map[who]struct{}{}
	for later := revision + 1; later <= d.Revision(); later++ {
		err := d.config.Store.Before(later, func(k object.Key, before *Record) error {
			if before != nil {
				for _, l := range before.Layers {
					touched[who{k, l.Owner}] = struct{}{}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var edits []Edit
	err := d.config.Store.Before(revision, func(k object.Key, before *Record) error {
		d.mu.RLock()
		now := d.records[k]
		d.mu.RUnlock()
		var layers []Layer
		changed := false
		if now != nil {
			for _, l := range now.Layers {
				if l.Revision != revision {
					layers = append(layers, l)
				} else {
					changed = true
				}
			}
		}
		if before != nil {
			for _, l := range before.Layers {
				present := now.layerOf(l.Owner)
				_, later := touched[who{k, l.Owner}]
				if present != nil && present.Revision == revision || present == nil && !later {
					l.Revision = 0
					layers = append(layers, l)
					changed = true
				}
			}
		}
		if !changed {
			return nil
		}
		after, err := d.recordOf(layers)
		edits = append(edits, Edit{Key: k, Before: now, After: after})
		return err
	})
	return edits, err
}

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
	return d.finish(ctx, p.named, made, begun, options)
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
	begun, made, err := d.keep(p, source, options, revision, 0)
	return p, made, begun, err
}

// returned prepares going back to records. d.mu is held.
func (d *Desired) returned(then map[object.Key]*Record, options Options) (*prepared, error) {
	var edits []Edit
	for k, was := range then {
		layers, differ := d.restored(d.records[k], was)
		if !differ {
			continue
		}
		after, err := d.recordOf(layers)
		if err != nil {
			return nil, err
		}
		edits = append(edits, Edit{Key: k, Before: d.records[k], After: after})
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.Key.Compare(b.Key) })
	return d.decided(edits, options)
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

// expect has a revision undone at that time.
func (d *Desired) expect(revision uint64, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.unconfirmed[revision] = time.AfterFunc(max(0, time.Until(at)), func() {
		d.mu.Lock()
		_, waits := d.unconfirmed[revision]
		delete(d.unconfirmed, revision)
		if waits = waits && !d.ended; waits {
			d.firing.Add(1)
		}
		d.mu.Unlock()
		if !waits {
			return
		}
		defer d.firing.Done()
		if err := d.undo(context.Background(), revision, "nobody confirmed it in time", false); err != nil {
			d.config.Log.Error("a revision that nobody confirmed could not be undone", "revision", revision, "error", err)
		}
	})
}

// Confirm implements Interface.
func (d *Desired) Confirm(source Source, revision uint64) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.Lock()
	if revision == 0 {
		for r := range d.unconfirmed {
			revision = max(revision, r)
		}
	}
	timer := d.unconfirmed[revision]
	delete(d.unconfirmed, revision)
	d.mu.Unlock()
	if timer == nil {
		return ErrNothingToConfirm
	}
	timer.Stop()
	if err := d.settle(revision, nil); err != nil {
		return err
	}
	d.config.Log.Info("a revision was confirmed", "revision", revision, "owner", source.Owner, "who", source.Who)
	return nil
}
