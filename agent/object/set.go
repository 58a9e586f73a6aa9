// Are all the objects together acceptable? Each change costs what the changed objects cost, however many there are.
package object

import (
	"maps"
	"strings"
)

// Change makes an object be wanted, or no longer be wanted.
type Change struct {
	Key Key
	// Nil: it is deleted.
	Object *Object
}

// Put is a change that makes an object be wanted.
func Put(o *Object) Change { return Change{o.Key(), o} }

// Remove is a change that makes an object be no longer wanted.
func Remove(k Key) Change { return Change{Key: k} }

// Set is a set of objects that are acceptable together. An object may name others that are not there (yet). A Set is not for
// several goroutines at once.
type Set struct {
	registry *Registry
	objects  map[Key]*Object
	holdings *Holdings
}

// NewSet returns an empty set.
func NewSet(r *Registry) *Set {
	return &Set{registry: r, objects: map[Key]*Object{}, holdings: NewHoldings()}
}

// Get returns an object, or nil.
func (s *Set) Get(k Key) *Object { return s.objects[k] }

// Len returns how many objects there are.
func (s *Set) Len() int { return len(s.objects) }

// Each calls yield for every object, in no order, until it returns false.
func (s *Set) Each(yield func(*Object) bool) {
	for _, o := range s.objects {
		if !yield(o) {
			return
		}
	}
}

// Apply makes all the changes, or none of them if the outcome would not be acceptable: then the Errors say why. The changes
// are checked as a whole: what one object gives up, another may take. `undo` makes all of them undone, as long as no other change
// was made since.
func (s *Set) Apply(changes []Change) (undo func(), err error) {
	x, err := s.registry.Examine(changes)
	if err != nil {
		return nil, err
	}
	return s.ApplyExamined(x)
}

// ApplyExamined is Apply for changes that were examined already.
func (s *Set) ApplyExamined(x *Examined) (undo func(), err error) {
	changes := x.Changes
	if more := len(changes); more > len(s.objects) && more > 1000 {
		// Room at once, instead of doubling it again and again.
		larger := make(map[Key]*Object, len(s.objects)+more)
		maps.Copy(larger, s.objects)
		s.objects = larger
	}
	s.holdings.Reserve(x.Claims())

	old := make([]*Object, len(changes))
	for i, c := range changes {
		old[i] = s.objects[c.Key]
		s.remove(c.Key)
	}
	var errs Errors
	taken := 0
	undo = func() {
		for _, c := range changes[:taken] {
			s.remove(c.Key)
		}
		for i, o := range old {
			if o != nil {
				s.add(changes[i].Key, o, s.registry.Claims(o))
			}
		}
	}
	deleted := map[Key]bool{}
	for i, c := range changes {
		switch {
		case s.objects[c.Key] != nil || deleted[c.Key]:
			errs = append(errs, &Error{Object: c.Key, Problem: "there twice"})
		case c.Object == nil:
			deleted[c.Key] = true
		default:
			errs = append(errs, s.add(c.Key, c.Object, x.Facts[i].Claims)...)
		}
		taken++
		if len(errs) >= errorLimit {
			break
		}
	}
	if len(errs) == 0 {
		errs = s.loops(changes)
	}
	if len(errs) > 0 {
		undo()
		return nil, errs
	}
	return undo, nil
}

func (s *Set) remove(k Key) {
	o := s.objects[k]
	if o == nil {
		return
	}
	for _, c := range s.registry.Claims(o) {
		s.holdings.Release(k, c)
	}
	delete(s.objects, k)
}

// add takes what the object claims as far as it is free.
func (s *Set) add(k Key, o *Object, claims []Claim) Errors {
	var errs Errors
	s.objects[k] = o
	for _, c := range claims {
		if holder, taken := s.holdings.Holder(k, c); taken {
			what := c.String()
			if s.holdings.all[c.What] == holder {
				what = c.What
			}
			errs = append(errs, &Error{Object: k, Field: c.Field, Problem: holder.String() + " already has " + what})
			continue
		}
		s.holdings.Take(k, c)
	}
	return errs
}

// loops finds changed objects that need themselves.
func (s *Set) loops(changes []Change) Errors {
	var errs Errors
	const open, done = 1, 2
	state := map[Key]int{}
	var trail []Key
	var visit func(k Key)
	visit = func(k Key) {
		o := s.objects[k]
		if o == nil || state[k] == done {
			return
		}
		state[k] = open
		trail = append(trail, k)
		for _, ref := range s.registry.References(o) {
			if !s.registry.mayLoop(ref.To.Kind) {
				continue
			}
			if state[ref.To] != open {
				visit(ref.To)
				continue
			}
			from := len(trail) - 1
			for trail[from] != ref.To {
				from--
			}
			var names []string
			for _, k := range trail[from:] {
				names = append(names, k.String())
			}
			names = append(names, ref.To.String())
			errs = append(errs, &Error{Object: k, Field: ref.Field, Problem: "objects need one another in a circle: " + strings.Join(names, ", ")})
		}
		trail = trail[:len(trail)-1]
		state[k] = done
	}
	for _, c := range changes {
		if s.registry.mayLoop(c.Key.Kind) && len(errs) < errorLimit {
			visit(c.Key)
		}
	}
	return errs
}

func (r *Registry) mayLoop(kind string) bool {
	k := r.byName[kind]
	return k != nil && k.looping
}
