// What follows from changes by themselves, found out once although several need it, and on all processors.
package object

import (
	"runtime"
	"sync"
)

// Examined are changes that are acceptable, each by itself.
type Examined struct {
	Keys []Key
	// As they are to be; nil where an object is deleted.
	Kept []*Kept
}

// Claims returns how many claims there are.
func (x *Examined) Claims() int {
	n := 0
	for _, k := range x.Kept {
		if k != nil {
			n += len(k.Marks)
		}
	}
	return n
}

// Below this, to start goroutines costs more than they save.
const examineAlone = 512

// Examine checks each change by itself; Errors say what is wrong. The changes' objects are not looked at any more afterwards.
func (r *Registry) Examine(changes []Change) (*Examined, error) {
	x := &Examined{Keys: make([]Key, len(changes)), Kept: make([]*Kept, len(changes))}
	parts := max(1, min(runtime.GOMAXPROCS(0), len(changes)/examineAlone))
	wrong := make([]Errors, parts)
	var others sync.WaitGroup
	for i := range parts {
		from, to := i*len(changes)/parts, (i+1)*len(changes)/parts
		if i == parts-1 {
			wrong[i] = r.examine(x, changes, from, to)
			continue
		}
		others.Add(1)
		go func() {
			defer others.Done()
			wrong[i] = r.examine(x, changes, from, to)
		}()
	}
	others.Wait()
	var errs Errors
	for _, more := range wrong {
		errs = append(errs, more...)
	}
	return x, errs.Or()
}

// examine stops at the limit of errors.
func (r *Registry) examine(x *Examined, changes []Change, from, to int) (errs Errors) {
	c := newChecker(r)
	var needs []Key
	room := make([]byte, 0, 4096)
	for i := from; i < to && len(errs) < errorLimit; i++ {
		x.Keys[i] = changes[i].Key
		o := changes[i].Object
		if o == nil {
			continue
		}
		if wrong := c.check(o); len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		var err error
		if x.Kept[i], room, err = r.kept(o, room); err != nil {
			errs = append(errs, &Error{Object: o.Key(), Problem: err.Error()})
			continue
		}
		needs = r.explore(x.Kept[i], o, needs)
	}
	return errs
}
