package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
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
