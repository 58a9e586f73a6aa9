// How often garbage is collected. When very many objects are put in at once, or read when the agent starts, what it holds grows fast, and
// each collection looks mostly at what the one before looked at; so meanwhile there is room for that many. Else it is done early, and
// after such a time what was taken too much is given back, so that an agent with many objects stays small.
package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

const (
	// Percent of what is held that may be garbage before it is collected; 100 is usual.
	thrifty = 60
	// So many objects are many; each takes about so many bytes on its way, and all of them get at most so many.
	manyObjects = 10_000
	bytesOnWay  = 3 << 10
	mostRoom    = 512 << 20
	// What is held at the least, for a percentage to make sense.
	leastHeld = 4 << 20
	// The answer is on its way for a while after the work is done.
	giveBackAfter = time.Second
)

// heap counts the objects that are under way.
type heap struct {
	mu     sync.Mutex
	onWay  int
	before int
	giving *time.Timer
	ended  bool
}

func newHeap() *heap { return &heap{before: debug.SetGCPercent(thrifty)} }

// grow is called before something is done with so many objects, and what it returns, afterwards.
func (h *heap) grow(objects int) (done func()) {
	if objects < manyObjects {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onWay += objects; h.onWay == objects && !h.ended {
		h.makeRoom()
		h.watch()
	}
	return func() { h.shrink(objects) }
}

// makeRoom allows as much garbage as the objects on their way will be. h.mu is held.
func (h *heap) makeRoom() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	held := uint64(leastHeld)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		held = max(held, sample[0].Value.Uint64())
	}
	room := min(uint64(h.onWay)*bytesOnWay, mostRoom)
	debug.SetGCPercent(int(max(thrifty, room*100/held)))
}

// watch has the room measured anew after each collection.
func (h *heap) watch() {
	runtime.AddCleanup(&struct{ of *heap }{h}, func(h *heap) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.onWay > 0 && !h.ended {
			h.makeRoom()
			h.watch()
		}
	}, h)
}

func (h *heap) shrink(objects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onWay -= objects; h.onWay == 0 && !h.ended {
		debug.SetGCPercent(thrifty)
		if h.giving != nil {
			h.giving.Stop()
		}
		h.giving = time.AfterFunc(giveBackAfter, debug.FreeOSMemory)
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

// growing is an intent.Interface that says how many objects are under way.
type growing struct {
	intent.Interface
	heap *heap
}

// Apply implements intent.Interface.
func (g growing) Apply(ctx context.Context, source intent.Source, changes []object.Change, options intent.Options) (*intent.Outcome, error) {
	defer g.heap.grow(len(changes))()
	return g.Interface.Apply(ctx, source, changes, options)
}
