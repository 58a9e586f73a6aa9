// Are all the objects together acceptable? Each change costs what the changed objects cost, however many there are.
package object

import (
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
	// Kinds whose objects can, through others, lead back to themselves.
	looping map[string]bool
}

// NewSet returns an empty set.
func NewSet(r *Registry) *Set {
	return &Set{registry: r, objects: map[Key]*Object{}, holdings: NewHoldings(), looping: r.loopingKinds()}
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
	var errs Errors
	named := make(map[Key]bool, len(changes))
	for _, c := range changes {
		if named[c.Key] {
			errs = append(errs, &Error{Object: c.Key, Problem: "there twice"})
		}
		named[c.Key] = true
		if c.Object != nil {
			errs = append(errs, s.registry.Check(c.Object)...)
		}
		if len(errs) >= errorLimit {
			break
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}

	old := make([]*Object, len(changes))
	for i, c := range changes {
		old[i] = s.objects[c.Key]
		s.remove(c.Key)
	}
	taken := 0
	undo = func() {
		for _, c := range changes[:taken] {
			s.remove(c.Key)
		}
		for i, o := range old {
			if o != nil {
				s.add(changes[i].Key, o)
			}
		}
	}
	for _, c := range changes {
		if c.Object != nil {
			errs = append(errs, s.add(c.Key, c.Object)...)
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
func (s *Set) add(k Key, o *Object) Errors {
	var errs Errors
	s.objects[k] = o
	for _, c := range s.registry.Claims(o) {
		if holder, taken := s.holdings.Holder(k, c); taken {
			errs = append(errs, &Error{Object: k, Field: c.Field, Problem: holder.String() + " already has " + c.String()})
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
			if !s.looping[ref.To.Kind] {
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
		if s.looping[c.Key.Kind] && len(errs) < errorLimit {
			visit(c.Key)
		}
	}
	return errs
}

// loopingKinds are those that refer, through others, to themselves.
func (r *Registry) loopingKinds() map[string]bool {
	to := map[string]map[string]bool{}
	var collect func(kind string, fs *Fields, seen map[*Fields]bool)
	collect = func(kind string, fs *Fields, seen map[*Fields]bool) {
		if seen[fs] {
			return
		}
		seen[fs] = true
		for _, f := range fs.List {
			if f.Ref != nil {
				to[kind][f.Ref.Name] = true
			} else if f.Fields != nil {
				collect(kind, f.Fields, seen)
			}
		}
	}
	for _, k := range r.kinds {
		to[k.Name] = map[string]bool{}
		collect(k.Name, k.Fields, map[*Fields]bool{})
	}
	looping := map[string]bool{}
	for _, k := range r.kinds {
		seen := map[string]bool{}
		next := []string{k.Name}
		for len(next) > 0 {
			kind := next[len(next)-1]
			next = next[:len(next)-1]
			for t := range to[kind] {
				if t == k.Name {
					looping[k.Name] = true
				}
				if !seen[t] {
					seen[t] = true
					next = append(next, t)
				}
			}
		}
	}
	return looping
}
