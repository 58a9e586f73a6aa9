// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// percent reads GOGC.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestThereIsRoomForManyObjectsUntilAllAreDoneAndAfterwardsAllIsAsBefore(t *testing.T) {
	before := percent()
	h := New()
	var reports []bool
	h.Many(func(many bool) { reports = append(reports, many) })
	is := func(when string, holds bool) {
		t.Helper()
		if !holds {
			t.Errorf("%s: %d percent", when, percent())
		}
	}
	is("usually", percent() == usualGOGC)
	few := h.Grow(manyObjects - 1)
	is("with few objects", percent() == usualGOGC)
	one, two := h.Grow(manyObjects), h.Grow(Unknown)
	is("with many", percent() >= busyGOGC)
	runtime.GC()
	is("after a collection", percent() >= busyGOGC)
	few()
	two()
	is("while some are on their way", percent() >= busyGOGC)
	one()
	is("when all are done", percent() == usualGOGC)
	if !slices.Equal(reports, []bool{true, false}) {
		t.Errorf("reported: %v", reports)
	}
	h.End()
	is("at the end", percent() == before)
}

func TestMemoryIsGivenBackInAQuietMomentAndElseAfterALongTime(t *testing.T) {
	h := New()
	defer h.End()
	now, given := time.Unix(1e9, 0), 0
	bytes := uint64(0)
	h.now, h.giveBack, h.allocated = func() time.Time { return now }, func() { given++ }, func() uint64 { return bytes }
	many := func() {
		h.Grow(manyObjects)()
		h.giving.Stop()
	}
	after := func(d time.Duration) int {
		now = now.Add(d)
		h.quiet()
		h.giving.Stop()
		return given
	}
	many()
	for range 5 {
		now = now.Add(giveBackAfter / 2)
		h.Grow(1)()
		if after(giveBackAfter/2) != 0 {
			t.Fatal("it was given back while there were changes")
		}
	}
	for range 5 {
		bytes += giveBackQuiet
		if after(giveBackAfter) != 0 {
			t.Fatal("it was given back while services worked")
		}
	}
	if after(giveBackAfter) != 1 {
		t.Error("it was not given back in a quiet moment")
	}
	many()
	now = now.Add(giveBackUntil - giveBackAfter)
	h.Grow(1)()
	if after(giveBackAfter/2) != 1 {
		t.Error("it was given back again while there were changes")
	}
	bytes += giveBackQuiet
	h.Grow(1)()
	if after(giveBackAfter/2) != 2 {
		t.Error("it was not given back after a long time with changes")
	}
	done := h.Grow(manyObjects)
	if after(2*giveBackUntil) != 2 {
		t.Error("it was given back while many objects are on their way")
	}
	done()
}

func TestAStartHasRoomUntilLittleIsAllocated(t *testing.T) {
	h := New()
	defer h.End()
	h.giveBack = func() {}
	var bytes atomic.Uint64
	h.allocated = bytes.Load
	h.now = func() time.Time { return time.Unix(0, 0) }
	h.Many(func(bool) { t.Error("a start has a report") })
	h.Start()
	if now := percent(); now <= busyGOGC {
		t.Errorf("%d%% while the agent starts", now)
	}
	look := func() {
		h.mu.Lock()
		timer := h.starting
		h.mu.Unlock()
		timer.Reset(0)
	}
	for end := time.Now().Add(10 * time.Second); percent() > busyGOGC; time.Sleep(time.Millisecond) {
		look()
		if time.Now().After(end) {
			t.Fatal("the start never ends")
		}
	}
	if now := percent(); now != usualGOGC {
		t.Errorf("%d%% after the start", now)
	}
}

func TestGarbageHasRoomWhileServicesWork(t *testing.T) {
	h := New()
	defer h.End()
	h.clock.Stop()
	now, given := time.Unix(1e9, 0), 0
	var bytes uint64
	h.now, h.giveBack, h.allocated = func() time.Time { return now }, func() { given++ }, func() uint64 { return bytes }
	h.available = func() uint64 { return 1 << 40 }
	look := func(allocated uint64) int {
		bytes += allocated
		h.lastLook = bytes - allocated
		h.look()
		h.clock.Stop()
		return percent()
	}
	if now := look(workAllocated - 1); now != usualGOGC {
		t.Errorf("%d%% while little is allocated", now)
	}
	if now := look(workAllocated); now < workGOGC {
		t.Errorf("%d%% while services work", now)
	}
	runtime.GC()
	h.Grow(manyObjects)()
	if now := look(workAllocated); now < workGOGC {
		t.Errorf("%d%% after a collection and a change of many objects", now)
	}
	if now := look(0); now != usualGOGC || h.giving != nil {
		t.Errorf("%d%% after short work, memory is given back: %v", now, h.giving != nil)
	}
	for range longWork {
		look(workAllocated)
	}
	if now := look(0); now != usualGOGC || h.giving == nil {
		t.Fatalf("%d%% after long work, memory is given back: %v", now, h.giving != nil)
	}
	now = now.Add(time.Hour)
	look(workAllocated)
	if h.quiet(); given != 0 || !h.giving.Stop() {
		t.Errorf("memory was given back %d times while services work again, or never will be", given)
	}
	look(0)
	h.giving.Stop()
	if h.quiet(); given != 1 {
		t.Error("memory was not given back")
	}
	h.available = func() uint64 { return 0 }
	if now := look(workAllocated); now != busyGOGC {
		t.Errorf("%d%% on a machine without memory", now)
	}
}

func TestTheMachineSaysHowMuchMemoryItHas(t *testing.T) {
	if free := available(); free < 1<<20 {
		t.Errorf("%d bytes", free)
	}
}
