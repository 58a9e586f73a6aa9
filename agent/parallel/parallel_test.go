// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"runtime"
	"testing"
	"time"
)

// fake is a Parallel with a clock and a CPU time of its own.
type fake struct {
	*Parallel
	used time.Duration
	time time.Time
}

func newFake() *fake {
	f := &fake{time: time.Unix(1e9, 0)}
	f.Parallel = &Parallel{many: true, looked: f.time, cpu: func() time.Duration { return f.used }, now: func() time.Time { return f.time },
		set: func(bool) {}}
	return f
}

// work is so many looks while the process uses so many processors.
func (f *fake) work(times int, processors float64) (many bool) {
	for range times {
		f.time = f.time.Add(lookEvery)
		f.used += time.Duration(processors * float64(lookEvery))
		f.look()
	}
	return f.many
}

func TestAFewGoroutinesRunAtOnceUntilThereIsMuchWork(t *testing.T) {
	f := newFake()
	if !f.work(calm-1, 0) {
		t.Error("few at the start")
	}
	if f.work(1, 0.9) {
		t.Error("many after the start")
	}
	if f.work(10, 1.2) {
		t.Error("many with little work")
	}
	if f.work(1, 2) || f.work(1, 0) || f.work(1, 2) {
		t.Error("many after a moment of work")
	}
	if !f.work(1, 2) {
		t.Error("few with much work")
	}
	if !f.work(calm-1, 0) || !f.work(1, 1.1) || !f.work(calm-1, 0) {
		t.Error("few after a moment without work")
	}
	if f.work(1, 0) {
		t.Error("many without work")
	}
}

func TestWhileVeryManyObjectsAreOnTheirWayManyGoroutinesRunAtOnce(t *testing.T) {
	f := newFake()
	f.work(calm, 0)
	f.Objects(true)
	if !f.many || !f.work(10*calm, 0) {
		t.Error("few with very many objects")
	}
	f.Objects(false)
	if !f.many || f.work(calm, 0) {
		t.Error("the objects are done")
	}
}

func TestTheLimitOfTheProcessChanges(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "")
	p := New()
	defer p.End()
	if now := runtime.GOMAXPROCS(0); now < leastMany {
		t.Errorf("%d at the start", now)
	}
	p.mu.Lock()
	p.change(false)
	p.mu.Unlock()
	if now := runtime.GOMAXPROCS(0); now > few {
		t.Errorf("%d, usually", now)
	}
	p.Objects(true)
	if now := runtime.GOMAXPROCS(0); now < leastMany {
		t.Errorf("%d with very many objects", now)
	}
}

func TestALimitOfTheEnvironmentStays(t *testing.T) {
	before := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "3")
	p := New()
	defer p.End()
	p.Objects(true)
	p.Objects(false)
	if now := runtime.GOMAXPROCS(0); now != 3 {
		t.Errorf("%d", now)
	}
}
