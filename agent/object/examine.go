// SPDX-License-Identifier: Apache-2.0

// Properties of changes by themselves, computed once for all users, and on all processors.
package object

import (
	"runtime"
	"slices"
	"sync"
)

// Examined are changes that are acceptable, each by itself.
type Examined struct {
	Keys []Key
	// The new objects; nil where an object is deleted.
	Objects []*StoredObject
}

// Claims returns how many claims there are.
func (x *Examined) Claims() int {
	n := 0
	for _, k := range x.Objects {
		if k != nil {
			n += k.Claims()
		}
	}
	return n
}

// Below this, to start goroutines costs more than they save.
const alone = 512

// InParts calls f for consecutive parts of so many things, on all processors at once if they are many, and returns when all are done.
func InParts(count int, f func(from, to int)) {
	parts := max(1, min(runtime.GOMAXPROCS(0), count/alone))
	var others sync.WaitGroup
	for i := range parts - 1 {
		others.Add(1)
		go func() {
			defer others.Done()
			f(i*count/parts, (i+1)*count/parts)
		}()
	}
	f((parts-1)*count/parts, count)
	others.Wait()
}

// Examine checks each change by itself, and returns Errors. It does not use the changes' objects afterwards.
func (r *Registry) Examine(changes []Change) (*Examined, error) { return r.examineAll(changes, false) }

// ExamineLayers is Examine for layers. It does not examine a layer that is valid only when merged with others.
func (r *Registry) ExamineLayers(changes []Change) (*Examined, error) {
	return r.examineAll(changes, true)
}

func (r *Registry) examineAll(changes []Change, layers bool) (*Examined, error) {
	x := &Examined{Keys: make([]Key, len(changes)), Objects: make([]*StoredObject, len(changes))}
	errs := examineInParts(len(changes), func(from, to int) Errors { return r.examine(x, changes, from, to, layers) })
	return x, errs.Or()
}

// examineInParts returns the errors of each part, in their order.
func examineInParts(count int, examine func(from, to int) Errors) Errors {
	type part struct {
		from  int
		wrong Errors
	}
	var mu sync.Mutex
	var parts []part
	InParts(count, func(from, to int) {
		if wrong := examine(from, to); len(wrong) > 0 {
			mu.Lock()
			defer mu.Unlock()
			parts = append(parts, part{from, wrong})
		}
	})
	slices.SortFunc(parts, func(a, b part) int { return a.from - b.from })
	var errs Errors
	for _, p := range parts {
		errs = append(errs, p.wrong...)
	}
	return errs
}

// examine stops at the limit of errors.
func (r *Registry) examine(x *Examined, changes []Change, from, to int, part bool) (errs Errors) {
	c := newChecker(r)
	c.part = part
	var claims Claimer
	room := make([]byte, 0, 512)
	for i := from; i < to && len(errs) < MaxMistakes; i++ {
		x.Keys[i] = changes[i].Key
		o := changes[i].Object
		if o == nil {
			continue
		}
		var stored *StoredObject
		if k := c.kind(o.Kind); k != nil && k.describes(o.Spec) {
			var err error
			if stored, room, err = k.stored(o, room); err != nil {
				errs = append(errs, &Error{Object: o.Key(), Problem: err.Error()})
				continue
			}
		}
		if wrong := c.stored(o, stored); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		if !c.lacks {
			stored.explore(o, c.needs, &claims)
		}
		// Share the words of stored objects instead of those of each client's objects.
		x.Keys[i], x.Objects[i] = stored.Key(), stored
	}
	return errs
}
