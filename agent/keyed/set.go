// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"sync"

	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// set has all documents, their objects, and the objects that were accepted. One goroutine changes it; others read with mu held.
type set struct {
	northbound.Environment

	mu        sync.Mutex
	documents map[string]*document
	// The document that an object is taken from, and others that have it, too, in the order in which they came.
	holder map[object.Key]*document
	rivals map[object.Key][]*document

	// To be put in or taken out.
	pending map[object.Key]struct{}
	// The applied objects.
	accepted map[object.Key]*object.Object
	// Why something could not be put in.
	refused map[object.Key]*object.Error
	// A revision against which, or against a later one, each of these was tried.
	triedRevision uint64

	// A complete update is due, because an earlier process may have applied other objects. It is possible when each
	// document was valid at least once: the earlier objects of an unreadable document are unknown.
	complete   bool
	neverValid int
	listed     bool
	// The number of objects that are held although no document has them, because the place was emptied as a whole.
	// While there are any, no complete update is applied.
	held int

	// Documents whose status may be another.
	dirty map[string]struct{}
}

func newSet(e northbound.Environment) *set {
	return &set{Environment: e, documents: map[string]*document{}, holder: map[object.Key]*document{}, rivals: map[object.Key][]*document{},
		pending: map[object.Key]struct{}{}, accepted: map[object.Key]*object.Object{}, refused: map[object.Key]*object.Error{},
		dirty: map[string]struct{}{}}
}

func decimal(n int) string { return strconv.Itoa(n) }

// take takes documents that are there, and forgets none.
func (s *set) take(documents []Document) {
	// If two documents have the same object, the first key in order has it, whatever the order of the listing. If a
	// document is listed twice because it changed meanwhile, its later text stays last.
	slices.SortStableFunc(documents, func(a, b Document) int { return cmp.Compare(a.Key, b.Key) })
	s.put(documents)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listed {
		s.preferDesired()
	}
	s.listed, s.complete = true, true
}

// replace takes documents for all that there are.
func (s *set) replace(documents []Document) {
	there := make(map[string]struct{}, len(documents))
	for _, d := range documents {
		there[d.Key] = struct{}{}
	}
	s.mu.Lock()
	gone := make([]Document, 0, 8)
	for key := range s.documents {
		if _, still := there[key]; !still {
			gone = append(gone, Document{Key: key, Deleted: true})
		}
	}
	s.mu.Unlock()
	s.take(append(gone, documents...))
}

// preferDesired lets those documents keep an object that had it when the program ended. s.mu is held.
func (s *set) preferDesired() {
	for k, others := range s.rivals {
		layer := s.Intent.OwnLayer(s.Name, k)
		if layer == nil || s.holder[k].objects[k].object.Equal(layer) {
			continue
		}
		for i, d := range others {
			if d.objects[k].object.Equal(layer) {
				s.holder[k], others[i] = d, s.holder[k]
				break
			}
		}
	}
}

// put updates changed documents.
func (s *set) put(documents []Document) {
	// The latest of each key.
	latest := make(map[string]int, len(documents))
	for i, d := range documents {
		latest[d.Key] = i
	}
	if len(latest) < len(documents) {
		kept := make([]Document, 0, len(latest))
		for i, d := range documents {
			if latest[d.Key] == i {
				kept = append(kept, d)
			}
		}
		documents = kept
	}
	documents = slices.DeleteFunc(documents, func(d Document) bool {
		reserved := d.Key == MarkKey || d.Key == heldKey
		if reserved && !d.Deleted {
			s.Log.Warn("a document has a key that is kept for other things, and does not count", "key", keyText(d.Key))
		}
		return reserved
	})
	all := parse(s.Registry, documents, func(key string) (sum [sha256.Size]byte, known bool) {
		// No other goroutine writes to it, and this one waits.
		d := s.documents[key]
		if d == nil {
			return sum, false
		}
		return d.sum, true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	// Remove first, so that the next documents can claim the removed objects.
	for _, p := range all {
		if p.deleted {
			s.forget(p.key)
		}
	}
	for _, p := range all {
		if !p.deleted && !p.same {
			s.read(p)
		}
	}
}

// forget is about a document that is gone. s.mu is held.
func (s *set) forget(key string) {
	s.dirty[key] = struct{}{}
	d := s.documents[key]
	if d == nil {
		return
	}
	delete(s.documents, key)
	if !d.everValid {
		s.neverValid--
	}
	for k := range d.objects {
		s.release(d, k)
	}
}

// read processes a changed document. s.mu is held.
func (s *set) read(p parsed) {
	s.dirty[p.key] = struct{}{}
	d := s.documents[p.key]
	if d == nil {
		d = &document{key: p.key}
		s.documents[p.key] = d
		s.neverValid++
	}
	before := d.everValid
	differ := d.over(p)
	if d.everValid && !before {
		s.neverValid--
	}
	for _, k := range differ {
		if _, has := d.objects[k]; has {
			s.claim(d, k)
		} else {
			s.release(d, k)
		}
	}
	if len(d.mistakes) > 0 {
		slices.SortStableFunc(d.mistakes, byLine)
		s.Log.Warn("a document has mistakes; its last valid objects stay", "key", keyText(d.key), "mistakes", len(d.mistakes), "error", d.mistakes[0])
		s.Counters.Failed()
	}
}

// claim takes an object from a document, unless another has it. s.mu is held.
func (s *set) claim(d *document, k object.Key) {
	switch first := s.holder[k]; {
	case first == nil || first == d:
		s.holder[k] = d
		s.pending[k] = struct{}{}
		delete(s.refused, k)
	case !slices.Contains(s.rivals[k], d):
		s.rivals[k] = append(s.rivals[k], d)
		s.Log.Warn("an object is in two documents; the one that had it first counts", "kind", k.Kind, "name", k.Name, "key", keyText(d.key), "error", "it is in "+keyText(first.key)+", too")
	}
}

// release gives an object that a document no longer has to the next, if there is one. s.mu is held.
func (s *set) release(d *document, k object.Key) {
	others := s.rivals[k]
	if s.holder[k] != d {
		others = slices.DeleteFunc(others, func(other *document) bool { return other == d })
	} else {
		delete(s.holder, k)
		s.pending[k] = struct{}{}
		delete(s.refused, k)
		if len(others) > 0 {
			s.holder[k], others = others[0], others[1:]
			s.dirty[s.holder[k].key] = struct{}{}
		}
	}
	if len(others) == 0 {
		delete(s.rivals, k)
	} else {
		s.rivals[k] = others
	}
}

// desired returns the object of the documents, nil if no document has it. s.mu is held.
func (s *set) desired(k object.Key) *object.Object {
	if d := s.holder[k]; d != nil {
		return d.objects[k].object
	}
	return nil
}

// waiting reports whether another attempt is due.
func (s *set) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refused) > 0 || len(s.pending) > 0
}

// retryRefused tries all refused objects again, if the configuration has changed since.
func (s *set) retryRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Intent.Revision()
	if now == s.triedRevision {
		return
	}
	s.triedRevision = now
	for k := range s.refused {
		s.pending[k] = struct{}{}
	}
}

// touchAll makes all statuses be looked at. s.mu is held.
func (s *set) touchAll() {
	for key := range s.documents {
		s.dirty[key] = struct{}{}
	}
}
