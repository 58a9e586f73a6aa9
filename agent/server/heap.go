// How often garbage is collected. When very many objects are put in at once, or read when the agent starts, what it holds grows fast, and
// each collection looks mostly at what the one before looked at; so meanwhile it is done seldom. Else it is done early, and after such a
// time what was taken too much is given back, so that an agent with many objects stays small.
package server

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

const (
	// Percent of what is held that may be garbage before it is collected: with many objects under way, and else.
	generous, thrifty = 300, 60
	// So many objects are many.
	many = 10_000
	// The answer is on its way for a while after the work is done.
	after = time.Second
)

// heap counts who has many objects under way.
type heap struct {
	mu      sync.Mutex
	growing int
	before  int
	giving  *time.Timer
	ended   bool
}

func newHeap() *heap { return &heap{before: debug.SetGCPercent(thrifty)} }

// grow is called before something is done with so many objects, and what it returns, afterwards.
func (h *heap) grow(objects int) (done func()) {
	if objects < many {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.growing++; h.growing == 1 && !h.ended {
		debug.SetGCPercent(generous)
	}
	return h.shrink
}

func (h *heap) shrink() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.growing--; h.growing == 0 && !h.ended {
		debug.SetGCPercent(thrifty)
		if h.giving != nil {
			h.giving.Stop()
		}
		h.giving = time.AfterFunc(after, debug.FreeOSMemory)
	}
}

// end makes everything be as it was before.
func (h *heap) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.giving != nil {
		h.giving.Stop()
	}
	debug.SetGCPercent(h.before)
}

// growing is an intent.Interface that says when it has many objects under way.
type growing struct {
	intent.Interface
	heap *heap
}

// Apply implements intent.Interface.
func (g growing) Apply(ctx context.Context, source intent.Source, changes []object.Change, options intent.Options) (*intent.Outcome, error) {
	defer g.heap.grow(len(changes))()
	return g.Interface.Apply(ctx, source, changes, options)
}
