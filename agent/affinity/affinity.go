// SPDX-License-Identifier: Apache-2.0

// Package affinity keeps the agent, and the processes that it starts, off the processors of workers. A worker that has a processor of its
// own polls it all the time: a thread of the agent there takes packets' time, and gets little.
package affinity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Affinity is that of a process.
type Affinity struct {
	mu sync.Mutex
	// The CPUs of the process at its start.
	usable unix.CPUSet
	// Of each data plane of this host.
	workers map[string][]uint32
	now     unix.CPUSet
}

// New reads the CPUs of the process.
func New() (*Affinity, error) {
	a := &Affinity{workers: map[string][]uint32{}}
	if err := unix.SchedGetaffinity(0, &a.usable); err != nil {
		return nil, fmt.Errorf("reading the processors of this process: %w", err)
	}
	a.now = a.usable
	return a, nil
}

// Avoid keeps all threads off the processors of a data plane's workers; none: the workers have no processors of their own. It returns the
// processors that are left. If none are left, it changes nothing and returns an error.
func (a *Affinity) Avoid(plane string, cores []uint32) ([]int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.workers[plane] = cores
	left := a.usable
	for _, of := range a.workers {
		for _, core := range of {
			left.Clear(int(core))
		}
	}
	if left.Count() == 0 {
		return listOf(&a.now), fmt.Errorf("workers have all processors that the agent may use (%v); start one of both with others", listOf(&a.usable))
	}
	if left != a.now {
		if err := setAll(&left); err != nil {
			return listOf(&a.now), err
		}
		a.now = left
	}
	return listOf(&left), nil
}

// setAll sets the affinity of each thread of this process and of the processes that it started. New threads and
// processes inherit it, so the loop ends when a pass finds no thread with another affinity.
func setAll(to *unix.CPUSet) error {
	for again := true; again; {
		again = false
		threads, err := threadsOf(os.Getpid())
		if err != nil {
			return fmt.Errorf("reading the threads of this process: %w", err)
		}
		for _, id := range threads {
			var has unix.CPUSet
			if unix.SchedGetaffinity(id, &has) != nil || has == *to {
				continue // It may have ended.
			}
			if err := unix.SchedSetaffinity(id, to); err == unix.ESRCH || err == unix.EPERM {
				continue // It has ended, or is of another user.
			} else if err != nil {
				return fmt.Errorf("setting the processors of a thread: %w", err)
			}
			again = true
		}
	}
	return nil
}

// threadsOf returns the threads of a process and of its descendants.
func threadsOf(process int) ([]int, error) {
	directory := fmt.Sprintf("/proc/%d/task", process)
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		all = append(all, id)
		// Each thread has the children that it started.
		children, err := os.ReadFile(filepath.Join(directory, e.Name(), "children"))
		if err != nil {
			continue // The thread has ended, or the kernel does not list children.
		}
		for _, word := range strings.Fields(string(children)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				continue
			}
			// A child may have ended.
			if of, err := threadsOf(child); err == nil {
				all = append(all, of...)
			}
		}
	}
	return all, nil
}

func listOf(s *unix.CPUSet) []int {
	var all []int
	for core := 0; len(all) < s.Count(); core++ {
		if s.IsSet(core) {
			all = append(all, core)
		}
	}
	return all
}
