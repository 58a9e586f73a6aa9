// SPDX-License-Identifier: Apache-2.0

// Package parallel sets how many goroutines run at once (GOMAXPROCS). Usually a few do: the work of services comes in small pieces, and to wake
// another thread for each costs more than the piece. When there is much work, as many run as there are processors, or more: those that work on very
// many objects, or collect garbage, have a processor for 10 ms and more, and meanwhile others read the answers of data planes.
package parallel

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// Goroutines that run at once: usually at most, and at least when there is much work. The kernel divides the processors among them.
	few, leastMany = 2, 4
	// How often the CPU time of the process is read. There is much work when that is this part of a processor at so many looks in a row, and no more when it
	// is less at so many.
	lookEvery       = 250 * time.Millisecond
	muchWork, looks = 1.25, 2
	lessWork, calm  = 1.0, 8
)

// Parallel is the limit of this process.
type Parallel struct {
	mu sync.Mutex
	// Very many objects are on their way.
	objects bool
	many    bool
	ended   bool
	// Looks in a row after which the limit may change.
	count int
	// The CPU time and the time of the latest look.
	used   time.Duration
	looked time.Time
	clock  *time.Timer
	// Tests replace them.
	cpu func() time.Duration
	now func() time.Time
	set func(many bool)
}

// New sets the limit from now on, unless the environment sets it. There is much work at first.
func New() *Parallel {
	p := &Parallel{many: true, cpu: cpu, now: time.Now, set: set}
	if os.Getenv("GOMAXPROCS") != "" {
		p.ended = true
		return p
	}
	p.set(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used, p.looked = p.cpu(), p.now()
	p.clock = time.AfterFunc(lookEvery, p.tick)
	return p
}

// set sets the limit of the process.
func set(many bool) {
	// As many as the process has processors, by its affinity and its control group.
	runtime.SetDefaultGOMAXPROCS()
	switch all := runtime.GOMAXPROCS(0); {
	case many && all < leastMany:
		runtime.GOMAXPROCS(leastMany)
	case !many && all > few:
		runtime.GOMAXPROCS(few)
	}
}

// cpu is the CPU time of the process.
func cpu() time.Duration {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// Objects reports whether very many objects are on their way.
func (p *Parallel) Objects(many bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects, p.count = many, 0
	if many {
		p.change(true)
	}
}

// change sets the limit. p.mu is held.
func (p *Parallel) change(many bool) {
	if p.ended || many == p.many {
		return
	}
	p.many, p.count = many, 0
	p.set(many)
}

func (p *Parallel) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.look()
		p.clock.Reset(lookEvery)
	}
}

// look changes the limit if the CPU time since the latest looks says so. p.mu is held.
func (p *Parallel) look() {
	used, now := p.cpu(), p.now()
	share := float64(used-p.used) / float64(max(now.Sub(p.looked), 1))
	p.used, p.looked = used, now
	enough := looks
	if p.many {
		enough = calm
	}
	if p.many && (p.objects || share >= lessWork) || !p.many && share < muchWork {
		p.count = 0
		return
	}
	if p.count++; p.count == enough {
		p.change(!p.many)
	}
}

// End stops the looks. The limit stays.
func (p *Parallel) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.clock != nil {
		p.clock.Stop()
	}
}
