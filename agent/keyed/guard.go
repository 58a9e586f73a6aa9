// SPDX-License-Identifier: Apache-2.0

// A store that was emptied as a whole, or replaced by another, does not delete the configuration.
package keyed

import (
	"context"
	"fmt"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Marked is a Watch of a place where a mark can be stored beside the statuses. Deletion of documents leaves the mark.
// Loss of the whole place removes it: a database that was flushed or restored, a disk that is not mounted, an address
// that leads to another store.
type Marked interface {
	Marked(ctx context.Context) (bool, error)
	Mark(ctx context.Context) error
}

// Keys below the status prefix that are of no document.
const (
	// MarkKey is where the mark is.
	MarkKey = ".store"
	// heldKey has a status while objects that no document has are held.
	heldKey = ".held"
)

// MarkText explains the mark to readers of the store.
const MarkText = "Sluice knows this store by this mark. While it is missing, objects that are in no document are kept."

// settle takes documents as the complete set. Without the mark, missing objects that are in force are held.
func (n *engine) settle(ctx context.Context, watch Watch, documents []Document) error {
	place, guarded := watch.(Marked)
	if guarded {
		marked, err := place.Marked(ctx)
		if err != nil {
			return err
		}
		if !marked {
			n.take(documents)
			if lacking := n.lacking(documents); lacking > 0 {
				n.hold(lacking)
				return nil
			}
			if err := place.Mark(ctx); err != nil {
				n.Log.Warn("the store cannot be marked: should it be emptied, all that came from it goes away", "key", MarkKey, "error", err)
				guarded = false
			}
		}
	}
	n.hold(0)
	n.guarded = guarded
	n.replace(documents)
	return nil
}

// lacking counts the objects of this northbound that are in no document.
func (s *set) lacking(documents []Document) int {
	present := map[object.Key]struct{}{}
	s.mu.Lock()
	for _, d := range documents {
		if known := s.documents[d.Key]; known != nil {
			for k := range known.objects {
				present[k] = struct{}{}
			}
		}
	}
	s.mu.Unlock()
	lacking := 0
	for q := (intent.Query{Owner: s.Name, Limit: 10_000}); ; {
		page, err := s.Intent.List(q)
		if err != nil {
			// It has no selector and no page that could be wrong.
			s.Log.Error("the configuration cannot be listed", "error", err)
			return lacking
		}
		for _, o := range page.Objects {
			if _, there := present[o.Key]; !there && o.Object != nil {
				lacking++
			}
		}
		if q.After = page.Next; q.After == "" {
			return lacking
		}
	}
}

// hold notes how many objects are kept.
func (s *set) hold(objects int) {
	s.mu.Lock()
	before := s.held
	s.held = objects
	s.dirty[heldKey] = struct{}{}
	s.mu.Unlock()
	s.Counters.Held(objects)
	switch {
	case objects > 0 && before == 0:
		s.Log.Error("the store has lost its mark, and objects that came from it: they are kept until they are there again, or the mark is", "key", MarkKey,
			"objects", objects)
	case objects == 0 && before > 0:
		s.Log.Info("the store has what it lacked, or its mark: all of it counts again", "key", MarkKey)
	}
}

func (s *set) holding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held > 0
}

// heldStatus is the status of all objects that stay without a document. s.mu is held.
func (s *set) heldStatus() *Status {
	if s.held == 0 {
		return nil
	}
	return &Status{State: "Held", Objects: s.held, Applied: s.held, Mistakes: []Mistake{{
		Problem:  fmt.Sprintf("the store has lost its mark, and %d objects that came from it, which are kept", s.held),
		Accepted: "their documents; or the mark, " + MarkKey + ", and then they go away",
	}}}
}

// emptied reports whether documents disappeared together with the mark.
func (n *engine) emptied(ctx context.Context, watch Watch, some []Document) (bool, error) {
	place, ok := watch.(Marked)
	if !ok || !n.guarded {
		return false, nil
	}
	for _, d := range some {
		if d.Deleted {
			marked, err := place.Marked(ctx)
			return !marked, err
		}
	}
	return false, nil
}
