// SPDX-License-Identifier: Apache-2.0

// Package heap sets the pace of garbage collection. While very many objects are applied, or read when the agent
// starts, the heap grows fast, and frequent collections would scan mostly the same objects; so meanwhile the heap has
// room for them. While services work, as when subscribers dial in, garbage has more room, too. Otherwise collection is early, and unused
// memory is returned after such a time, so that an agent with many objects stays small.
package heap

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// GOGC, in percent: usually, and at least while objects are being applied.
	usualGOGC, busyGOGC = 90, 100
	// So many objects are many; each takes about so many bytes on its way, and all of them get at most so many.
	manyObjects = 10_000
	bytesOnWay  = 3 << 10
	maxRoom     = 1 << 30
	// Services work while so many bytes are allocated from one look to the next. Then garbage may be workGOGC percent of the heap or workRoom, the larger of both,
	// but only so much of the machine's available memory.
	lookEvery     = 250 * time.Millisecond
	workAllocated = 4 << 20
	workGOGC      = 200
	workRoom      = 128 << 20
	workPart      = 4
	// After so many looks at it, memory is given back. The runtime itself returns the memory of a shorter burst.
	longWork = 8
	// The minimum heap for which a percentage makes sense.
	minHeld = 4 << 20
	// The answer is on its way for a while after the work is done. To give back holds others up, so it waits until nothing was done, and little
	// was allocated, for as long again; but not for ever. The work of services shows in allocations only.
	giveBackAfter = time.Second
	giveBackUntil = time.Minute
	giveBackQuiet = 1 << 20
	// A start is over after so many seconds with few allocations, and at the latest after maxStart.
	startQuiet  = 16 << 20
	startQuiets = 3
	maxStart    = 2 * time.Minute
)

// Unknown is a number of objects that is not known yet. Room that is not needed costs nothing.
const Unknown = maxRoom / bytesOnWay

// Heap counts the objects that are under way.
type Heap struct {
	mu     sync.Mutex
	onWay  int
	before int
	// Of these, those that are applied; report is told when there are some, and when there are none any more.
	applied int
	report  func(many bool)
	giving  *time.Timer
	// Looks whether the start is over.
	starting *time.Timer
	// The last time of many objects under way.
	many  time.Time
	ended bool
	// Allocations until the latest look for a quiet moment.
	looked uint64
	// Looks whether services work, and the allocations until the look before.
	clock    *time.Timer
	lastLook uint64
	// At how many looks in a row they worked; 0: they do not.
	work int
	// When something was done with any, in nanoseconds since 1970.
	used atomic.Int64
	// The functions to return memory, to read the clock and to read allocations. Tests replace them.
	giveBack  func()
	now       func() time.Time
	allocated func() uint64
	// How many bytes the machine can give.
	available func() uint64
}

// New takes over. There is one heap, and so one Heap.
func New() *Heap {
	h := &Heap{report: func(bool) {}, before: debug.SetGCPercent(usualGOGC), giveBack: debug.FreeOSMemory, now: time.Now, allocated: allocated, available: available}
	h.lastLook = h.allocated()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = time.AfterFunc(lookEvery, h.look)
	return h
}

// look finds out whether services work.
func (h *Heap) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	h.clock.Reset(lookEvery)
	allocated := h.allocated()
	works := allocated-h.lastLook >= workAllocated
	h.lastLook = allocated
	switch {
	case works:
		if h.work++; h.work == 1 {
			h.makeRoom()
			if h.onWay == 0 {
				h.watch()
			}
		}
	case h.work > 0:
		long := h.work >= longWork
		h.work = 0
		h.calm(long)
	}
}

// available is the memory in bytes that the machine can give without swapping; 0: unknown.
func available() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("MemAvailable:"))
	kib, _, _ := bytes.Cut(rest, []byte("kB"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(kib)), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// Many makes f be called when very many objects begin to be applied, and when none are any more.
func (h *Heap) Many(f func(many bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report = f
}

// Grow makes room for so many objects that are applied. Call done afterwards.
func (h *Heap) Grow(objects int) (done func()) {
	h.used.Store(h.now().UnixNano())
	if objects < manyObjects {
		return func() {}
	}
	h.apply(1)
	h.grow(objects)
	return func() {
		h.apply(-1)
		h.shrink(objects)
	}
}

func (h *Heap) apply(more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.applied > 0
	h.applied += more
	if now := h.applied > 0; now != before {
		h.report(now)
	}
}

func (h *Heap) grow(objects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onWay += objects; h.onWay == objects && !h.ended {
		h.makeRoom()
		if h.work == 0 {
			h.watch()
		}
	}
}

// Start makes room for the objects that the agent reads at its start, until allocations become rare.
func (h *Heap) Start() {
	h.grow(Unknown)
	began, before, quiet := h.now(), h.allocated(), 0
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting = time.AfterFunc(time.Second, func() {
		now := h.allocated()
		if quiet++; now-before >= startQuiet {
			quiet = 0
		}
		before = now
		if quiet == startQuiets || h.now().Sub(began) > maxStart {
			h.shrink(Unknown)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ended {
			h.starting.Reset(time.Second)
		}
	})
}

// allocated is how many bytes were allocated ever.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// makeRoom allows as much garbage as the objects on their way will be, and services need. h.mu is held.
func (h *Heap) makeRoom() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	held := uint64(minHeld)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		held = max(held, sample[0].Value.Uint64())
	}
	room := min(uint64(h.onWay)*bytesOnWay, maxRoom)
	if h.work > 0 {
		room = max(room, min(max(held*workGOGC/100, workRoom), h.available()/workPart))
	}
	debug.SetGCPercent(int(max(busyGOGC, room*100/held)))
}

// busy reports whether the heap needs more room than usual. h.mu is held.
func (h *Heap) busy() bool { return h.onWay > 0 || h.work > 0 }

// calm makes the pace usual again once nothing needs room. give: memory is given back later. h.mu is held.
func (h *Heap) calm(give bool) {
	if h.busy() || h.ended {
		return
	}
	debug.SetGCPercent(usualGOGC)
	if !give {
		return
	}
	if h.giving != nil {
		h.giving.Stop()
	}
	h.many, h.looked = h.now(), h.allocated()
	h.giving = time.AfterFunc(giveBackAfter, h.quiet)
}

// watch measures the room again after each collection.
func (h *Heap) watch() {
	runtime.AddCleanup(&struct{ of *Heap }{h}, func(h *Heap) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.busy() && !h.ended {
			h.makeRoom()
			h.watch()
		}
	}, h)
}

func (h *Heap) shrink(objects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onWay -= objects; h.onWay == 0 {
		h.calm(true)
	}
}

// quiet returns unused memory while no growth is under way.
func (h *Heap) quiet() {
	h.mu.Lock()
	if h.onWay > 0 || h.ended {
		h.mu.Unlock()
		return
	}
	if h.work > 0 {
		h.giving.Reset(giveBackAfter)
		h.mu.Unlock()
		return
	}
	now, allocated := h.now(), h.allocated()
	works := now.Sub(time.Unix(0, h.used.Load())) < giveBackAfter || allocated-h.looked >= giveBackQuiet
	if h.looked = allocated; works && now.Sub(h.many) < giveBackUntil {
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
	for _, t := range []*time.Timer{h.giving, h.starting, h.clock} {
		if t != nil {
			t.Stop()
		}
	}
	debug.SetGCPercent(h.before)
}
