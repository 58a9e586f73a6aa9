// What follows from changes by themselves, found out once although several need it, and on all processors.
package object

import (
	"runtime"
	"slices"
	"sync"
)

// Examined are changes that are acceptable, each by itself.
type Examined struct {
	Changes []Change
	// Of the changes, in the same order; zero where an object is deleted.
	Facts []Facts
}

// Facts are what follows from one object.
type Facts struct {
	// As Pack makes it.
	Spec []byte
	// What it names, but for builtin objects; each once.
	Needs  []Key
	Claims []Claim

	errs Errors
}

// Claims returns how many claims there are.
func (x *Examined) Claims() int {
	n := 0
	for i := range x.Facts {
		n += len(x.Facts[i].Claims)
	}
	return n
}

// Below this, to start goroutines costs more than they save.
const examineAlone = 512

// Examine checks each change by itself; Errors say what is wrong. The changes must not be changed as long as the result is used.
func (r *Registry) Examine(changes []Change) (*Examined, error) {
	x := &Examined{Changes: changes, Facts: make([]Facts, len(changes))}
	part := len(changes)
	if part > examineAlone {
		part = max(examineAlone, (part+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	}
	var all sync.WaitGroup
	for from := part; from < len(changes); from += part {
		all.Add(1)
		go func() {
			defer all.Done()
			r.examine(x, from, min(from+part, len(changes)))
		}()
	}
	r.examine(x, 0, part)
	all.Wait()
	var errs Errors
	for i := range x.Facts {
		if errs = append(errs, x.Facts[i].errs...); len(errs) >= errorLimit {
			break
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return x, nil
}

// examine stops at the limit of errors.
func (r *Registry) examine(x *Examined, from, to int) {
	c := newChecker(r)
	var needs []Key
	wrong := 0
	for i := from; i < to && wrong < errorLimit; i++ {
		o, f := x.Changes[i].Object, &x.Facts[i]
		if o == nil {
			continue
		}
		if f.errs = c.check(o); len(f.errs) > 0 {
			wrong += len(f.errs)
			continue
		}
		var err error
		if f.Spec, err = Pack(o.Spec); err != nil {
			f.errs = Errors{{Object: o.Key(), Problem: err.Error()}}
			wrong++
			continue
		}
		if k := r.byName[o.Kind]; k.Fields.refs {
			needs = appendNeeds(needs[:0], k.Fields, o.Spec.ProtoReflect())
			f.Needs = slices.Clone(needs)
		}
		f.Claims = r.Claims(o)
	}
}

// FactsOf returns what follows from an object that need not be acceptable.
func (r *Registry) FactsOf(o *Object) (Facts, error) {
	spec, err := Pack(o.Spec)
	if err != nil {
		return Facts{}, err
	}
	f := Facts{Spec: spec, Claims: r.Claims(o)}
	if k := r.byName[o.Kind]; k != nil && k.Fields.refs && k.describes(o.Spec) {
		f.Needs = appendNeeds(nil, k.Fields, o.Spec.ProtoReflect())
	}
	return f, nil
}
