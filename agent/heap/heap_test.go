package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// percent reads what is set.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestThereIsRoomForManyObjectsUntilAllAreDoneAndAfterwardsAllIsAsBefore(t *testing.T) {
	before := percent()
	h := New()
	is := func(when string, holds bool) {
		t.Helper()
		if !holds {
			t.Errorf("%s: %d percent", when, percent())
		}
	}
	is("usually", percent() == thrifty)
	few := h.Grow(manyObjects - 1)
	is("with few objects", percent() == thrifty)
	one, two := h.Grow(manyObjects), h.Grow(Unknown)
	is("with many", percent() >= generous)
	runtime.GC()
	is("after a collection", percent() >= generous)
	few()
	two()
	is("while some are on their way", percent() >= generous)
	one()
	is("when all are done", percent() == thrifty)
	h.End()
	is("at the end", percent() == before)
}

func TestMemoryIsGivenBackInAQuietMomentAndElseAfterALongTime(t *testing.T) {
	h := New()
	defer h.End()
	now, given := time.Unix(1e9, 0), 0
	h.now, h.giveBack = func() time.Time { return now }, func() { given++ }
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
	if after(giveBackAfter) != 1 {
		t.Error("it was not given back in a quiet moment")
	}
	many()
	now = now.Add(giveBackUntil - giveBackAfter)
	h.Grow(1)()
	if after(giveBackAfter/2) != 1 {
		t.Error("it was given back again while there were changes")
	}
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
