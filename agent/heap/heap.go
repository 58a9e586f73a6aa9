// Package heap says how often garbage is collected. When very many objects are put in at once, or read when the agent starts, what it
// holds grows fast, and each collection looks mostly at what the one before looked at; so meanwhile there is room for that many. Else it is
// done early, and after such a time what was taken too much is given back, so that an agent with many objects stays small.
package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Percent of what is held that may be garbage before it is collected: usually, and at least while there are objects on their way.
	thrifty, generous = 90, 100
	// So many objects are many; each takes about so many bytes on its way, and all of them get at most so many.
	manyObjects = 10_000
	bytesOnWay  = 3 << 10
	mostRoom    = 1 << 30
	// What is held at the least, for a percentage to make sense.
	leastHeld = 4 << 20
	// The answer is on its way for a while after the work is done. To give back holds others up, so it waits until nothing was done for as
	// long again; but not for ever.
	giveBackAfter = time.Second
	giveBackUntil = time.Minute
)

// Unknown is a number of objects that is not known yet. Room that is not needed costs nothing.
const Unknown = mostRoom / bytesOnWay

// Heap counts the objects that are under way.
type Heap struct {
	mu     sync.Mutex
	onWay  int
	before int
	giving *time.Timer
	// When there were many objects on their way last.
	many  time.Time
	ended bool
	// When something was done with any, in nanoseconds since 1970.
	used atomic.Int64
	// What gives back, and what time it is; others in tests.
	giveBack func()
	now      func() time.Time
}

// New takes over. There is one heap, and so one Heap.
func New() *Heap {
	return &Heap{before: debug.SetGCPercent(thrifty), giveBack: debug.FreeOSMemory, now: time.Now}
}

// Grow is called before something is done with so many objects, and what it returns, afterwards.
func (h *Heap) Grow(objects int) (done func()) {
	h.used.Store(h.now().UnixNano())
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
func (h *Heap) makeRoom() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	held := uint64(leastHeld)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		held = max(held, sample[0].Value.Uint64())
	}
	room := min(uint64(h.onWay)*bytesOnWay, mostRoom)
	debug.SetGCPercent(int(max(generous, room*100/held)))
}

// watch has the room measured anew after each collection.
func (h *Heap) watch() {
	runtime.AddCleanup(&struct{ of *Heap }{h}, func(h *Heap) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.onWay > 0 && !h.ended {
			h.makeRoom()
			h.watch()
		}
	}, h)
}

func (h *Heap) shrink(objects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onWay -= objects; h.onWay == 0 && !h.ended {
		debug.SetGCPercent(thrifty)
		if h.giving != nil {
			h.giving.Stop()
		}
		h.many = h.now()
		h.giving = time.AfterFunc(giveBackAfter, h.quiet)
	}
}

// quiet gives back what was taken too much, if nothing is going on.
func (h *Heap) quiet() {
	h.mu.Lock()
	if h.onWay > 0 || h.ended {
		h.mu.Unlock()
		return
	}
	if now := h.now(); now.Sub(time.Unix(0, h.used.Load())) < giveBackAfter && now.Sub(h.many) < giveBackUntil {
		h.giving.Reset(giveBackAfter)
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	h.giveBack()
}

// End makes everything be as it was before.
func (h *Heap) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.giving != nil {
		h.giving.Stop()
	}
	debug.SetGCPercent(h.before)
}
