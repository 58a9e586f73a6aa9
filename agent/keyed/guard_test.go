// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"context"
	"testing"
)

// markable is a watch of a place that can be marked.
type markable struct{ *watch }

func (m markable) Marked(context.Context) (bool, error) {
	m.place.mu.Lock()
	defer m.place.mu.Unlock()
	if m.place.away {
		return false, errAway
	}
	return m.place.marked, nil
}

func (m markable) Mark(context.Context) error {
	m.place.mu.Lock()
	defer m.place.mu.Unlock()
	m.place.marked = true
	return nil
}

func (p *place) isMarked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marked
}

// flush removes everything without events.
func (p *place) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.documents)
	clear(p.statuses)
	p.marked = false
}

func newMarkedBed(t *testing.T) *bed {
	b := newBed(t)
	b.place.markable = true
	b.place.put("a", acl("red", "1"))
	b.place.put("b", acl("green", "2"))
	b.start()
	b.applied("a", "b")
	b.until("it is marked", b.place.isMarked)
	return b
}

func (b *bed) held(objects int) {
	b.Helper()
	b.until("so many are held", func() bool {
		s := b.place.status(heldKey)
		held := 0
		if s != nil && s.State == "Held" {
			held = s.Objects
		}
		return held == objects && b.counters.Read().Held == objects
	})
}

func TestObjectsOfAnEmptiedPlaceAreHeldUntilTheyAreBack(t *testing.T) {
	b := newMarkedBed(t)
	b.place.leave()
	b.place.flush()
	b.place.come()
	b.held(2)
	// A restarted agent knows only the stored configuration.
	b.end()
	b.start()
	b.held(2)
	b.place.put("c", acl("blue", "3"))
	b.applied("c")
	b.ports("1", "red")
	b.ports("2", "green")
	b.place.put("a", acl("red", "7"))
	b.held(1)
	b.ports("7", "red")
	if b.place.isMarked() {
		t.Error("it is marked although something is lacking")
	}
	b.place.put("b", acl("green", "2"))
	b.held(0)
	b.until("it is marked", b.place.isMarked)
	b.place.put("b", "")
	b.ports("", "green")
}

func TestObjectsOfAnEmptiedPlaceAreDeletedOnceTheMarkIsBack(t *testing.T) {
	b := newMarkedBed(t)
	b.place.leave()
	b.place.flush()
	b.place.come()
	b.held(2)
	b.place.mu.Lock()
	b.place.marked = true
	b.place.mu.Unlock()
	b.ports("", "red", "green")
	b.held(0)
}

func TestDocumentsThatGoTogetherWithTheMarkAreKept(t *testing.T) {
	b := newMarkedBed(t)
	b.place.mu.Lock()
	b.place.marked = false
	b.place.mu.Unlock()
	b.place.put("a", "")
	b.held(1)
	b.ports("1", "red")
	b.ports("2", "green")
}

func TestAMarkIsNoDocument(t *testing.T) {
	b := newMarkedBed(t)
	b.place.put(MarkKey, acl("blue", "3"))
	b.place.put(heldKey, acl("blue", "3"))
	b.place.put("a", acl("red", "7"))
	b.applied("a")
	if p := b.port("blue"); p != "" {
		t.Errorf("it counts: %s", p)
	}
	if s := b.place.status(MarkKey); s != nil {
		t.Errorf("the mark has a status: %s", s.JSON())
	}
}
