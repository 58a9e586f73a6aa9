// SPDX-License-Identifier: Apache-2.0

// Applying documents, if not all of their objects are acceptable.
package keyed

import (
	"context"
	"errors"
	"slices"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// apply applies all pending objects that are not refused. After an error their state is unknown, and they are tried
// again.
func (s *set) apply(ctx context.Context) error {
	s.mu.Lock()
	if len(s.refused) == 0 {
		// Read the revision before the attempt: changes of other owners during it are a reason to try again.
		s.triedRevision = s.Intent.Revision()
	}
	complete := s.complete && s.neverValid == 0 && s.held == 0
	var changes []object.Change
	if complete {
		changes = make([]object.Change, 0, len(s.holder))
		for k, d := range s.holder {
			changes = append(changes, object.Change{Key: k, Object: d.objects[k].object})
		}
	} else {
		changes = s.increment()
	}
	s.mu.Unlock()
	if len(changes) == 0 && !complete {
		return nil
	}
	slices.SortFunc(changes, func(a, b object.Change) int { return a.Key.Compare(b.Key) })
	if complete {
		done, err := s.applyComplete(ctx, changes)
		if err != nil || done {
			return err
		}
		s.mu.Lock()
		changes = s.increment()
		s.mu.Unlock()
	}
	return s.applySome(ctx, changes)
}

// increment returns the pending objects as changes. s.mu is held.
func (s *set) increment() []object.Change {
	changes := make([]object.Change, 0, len(s.pending))
	for k := range s.pending {
		switch o := s.desired(k); {
		case o != nil:
			changes = append(changes, object.Put(o))
		case s.accepted[k] != nil:
			changes = append(changes, object.Remove(k))
		default:
			// This process never applied the object. If an earlier one did, the complete update removes it.
			delete(s.pending, k)
			delete(s.refused, k)
		}
	}
	return changes
}

func (s *set) source(changes []object.Change) intent.Source {
	source := intent.Source{Owner: s.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range changes {
		d := s.holder[c.Key]
		switch {
		case d == nil:
		case source.Who == "":
			source.Who = d.key
		case source.Who != d.key:
			source.Who += " and others"
			return source
		}
		if i > 1000 {
			break
		}
	}
	return source
}

// applyComplete applies the complete set of objects. False: it cannot now, because the error is not about a single
// object.
func (s *set) applyComplete(ctx context.Context, changes []object.Change) (bool, error) {
	refused := map[object.Key]*object.Error{}
	for {
		_, err := s.Intent.Apply(ctx, s.source(changes), changes, intent.Options{Mode: intent.NoWait, Complete: true})
		if err == nil {
			s.accept(changes, refused)
			s.mu.Lock()
			s.complete = false
			// A complete update also removes objects that no document has any more.
			for k := range s.pending {
				if s.holder[k] == nil {
					delete(s.pending, k)
					delete(s.accepted, k)
				}
			}
			s.mu.Unlock()
			return true, nil
		}
		blamed, mine := s.blame(err, changes, refused)
		if !mine {
			return false, err
		}
		if len(blamed) == 0 {
			return false, nil
		}
		var rest []object.Change
		for _, c := range changes {
			reason := blamed[c.Key]
			if reason == nil {
				rest = append(rest, c)
				continue
			}
			refused[c.Key] = reason
			// It stays as it was. Applying the same is no change, so that it cannot be refused.
			if before := s.Intent.OwnLayer(s.Name, c.Key); before != nil {
				rest = append(rest, object.Put(before))
			}
		}
		changes = rest
	}
}

// applySome applies the changes that are not refused.
func (s *set) applySome(ctx context.Context, changes []object.Change) error {
	refused := map[object.Key]*object.Error{}
	for len(changes) > 0 {
		_, err := s.Intent.Apply(ctx, s.source(changes), changes, intent.Options{Mode: intent.NoWait})
		if err == nil {
			break
		}
		blamed, mine := s.blame(err, changes, refused)
		if !mine {
			return err
		}
		if len(blamed) == 0 {
			// It names none of these: the smaller halves show which it is.
			if len(changes) > 1 {
				s.accept(nil, refused)
				if err := s.applySome(ctx, changes[:len(changes)/2]); err != nil {
					return err
				}
				return s.applySome(ctx, changes[len(changes)/2:])
			}
			problem := object.AllErrors(err)[0]
			blamed[changes[0].Key] = &object.Error{Object: changes[0].Key, Problem: problem.Error()}
		}
		for k, e := range blamed {
			refused[k] = e
		}
		changes = slices.DeleteFunc(changes, func(c object.Change) bool { return blamed[c.Key] != nil })
	}
	s.accept(changes, refused)
	return nil
}

// blame finds the changes that an error is about, without those that were refused already. False: it is not about
// changes.
func (s *set) blame(err error, changes []object.Change, refused map[object.Key]*object.Error) (map[object.Key]*object.Error, bool) {
	about := map[object.Key]*object.Error{}
	var conflicts *intent.Conflicts
	mistakes := object.AllErrors(err)
	if errors.As(err, &conflicts) {
		for _, c := range conflicts.All {
			about[c.Key] = &object.Error{Object: c.Key, Field: c.Field, Problem: c.Problem(), Found: c.Requested, Accepted: c.Mend()}
		}
	} else if mistakes == nil {
		return nil, false
	}
	for _, m := range mistakes {
		if about[m.Object] == nil {
			about[m.Object] = m
		}
	}
	blamed := map[object.Key]*object.Error{}
	for _, c := range changes {
		if e := about[c.Key]; e != nil && refused[c.Key] == nil {
			blamed[c.Key] = e
		}
	}
	return blamed, true
}

// accept records the result of changes.
func (s *set) accept(changes []object.Change, refused map[object.Key]*object.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if c.Object == nil {
			delete(s.accepted, c.Key)
		} else {
			s.accepted[c.Key] = c.Object
		}
		if refused[c.Key] != nil {
			continue
		}
		delete(s.pending, c.Key)
		delete(s.refused, c.Key)
		if d := s.holder[c.Key]; d != nil {
			s.dirty[d.key] = struct{}{}
		}
	}
	for k, e := range refused {
		delete(s.pending, k)
		d := s.holder[k]
		if d == nil {
			// It belongs to another owner by now.
			delete(s.accepted, k)
			delete(s.refused, k)
			continue
		}
		located := *e
		located.File, located.Line = d.key, d.objects[k].line
		if old := s.refused[k]; old == nil || *old != located {
			s.Log.Warn("an object cannot be accepted", "key", keyText(d.key), "error", &located)
		}
		s.refused[k] = &located
		s.dirty[d.key] = struct{}{}
	}
}
