// SPDX-License-Identifier: Apache-2.0

// Checks of all objects together. The cost of a change depends on the changed objects, not on the number of objects.
package object

import (
	"strings"
)

// Change puts an object into the configuration, or deletes it.
type Change struct {
	Key Key
	// Nil: it is deleted.
	Object *Object
}

// Put is a change that puts an object into the configuration.
func Put(o *Object) Change { return Change{o.Key(), o} }

// Remove is a change that deletes an object.
func Remove(k Key) Change { return Change{Key: k} }

// Set is a set of objects that are acceptable together. An object may name others that are not there (yet). A Set is not for
// several goroutines at once.
type Set struct {
	registry *Registry
	objects  Table[*StoredObject]
	// By the numbers of objects.
	holdings *Holdings[Number]
	owned    owned
	// Objects whose claims are reserved (ApplyReserving); nil: none.
	releasing *Set
}

// NewSet returns an empty set.
func NewSet(r *Registry) *Set {
	s := &Set{registry: r, owned: owned{}}
	s.holdings = NewHoldings(s.objects.Compare)
	return s
}

// Get returns an object, or nil.
func (s *Set) Get(k Key) *StoredObject { return s.objects.Get(k) }

// Len returns how many objects there are.
func (s *Set) Len() int { return s.objects.Len() }

// Apply makes all the changes, or none of them if the result is not acceptable: then it returns Errors. The changes
// are checked as a whole: one object may take what another releases. `undo` undoes all of them, as long as no other
// change was made since.
func (s *Set) Apply(changes []Change) (undo func(), err error) {
	x, err := s.registry.Examine(changes)
	if err != nil {
		return nil, err
	}
	return s.ApplyExamined(x)
}

// ApplyExamined is Apply for changes that were examined already.
func (s *Set) ApplyExamined(x *Examined) (undo func(), err error) {
	undo, _, err = s.apply(x, s.reserved)
	return undo, err
}

// ApplyReserving is ApplyExamined for changes that may be undone after other changes. Until undo or done is called, ApplyExamined refuses objects
// with a key or a claim that these changes release. ApplyReserving accepts them: the caller undoes such changes in reverse order.
func (s *Set) ApplyReserving(x *Examined) (undo, done func(), err error) {
	back, before, err := s.apply(x, func(*StoredObject) Errors { return nil })
	if err != nil {
		return nil, nil, err
	}
	var released []*StoredObject
	for i, o := range before {
		if o == nil || x.Objects[i] != nil && x.Objects[i].KeepsClaims(o) {
			continue
		}
		if s.releasing == nil {
			s.releasing = NewSet(s.registry)
		}
		s.releasing.add(o)
		released = append(released, o)
	}
	done = func() {
		for _, o := range released {
			s.releasing.remove(o)
		}
		if s.releasing != nil && s.releasing.Len() == 0 {
			s.releasing = nil
		}
	}
	return func() { done(); back() }, done, nil
}

// Reserves reports whether an object of a key was changed or deleted by ApplyReserving, and may come back.
func (s *Set) Reserves(k Key) bool { return s.releasing != nil && s.releasing.Get(k) != nil }

// reserved returns errors for keys and claims of o that are reserved.
func (s *Set) reserved(o *StoredObject) Errors {
	switch {
	case s.releasing == nil:
		return nil
	case s.Reserves(o.Key()):
		return Errors{{Object: o.Key(), Problem: "another change of it is not stored yet", Accepted: "one change after the other"}}
	}
	defer s.releasing.remove(o)
	return s.releasing.add(o)
}

// apply makes the changes, and returns the objects that were there before. check returns further errors for an object that is added.
func (s *Set) apply(x *Examined, check func(*StoredObject) Errors) (undo func(), before []*StoredObject, err error) {
	s.objects.Reserve(len(x.Keys))
	s.holdings.Reserve(x.Claims())

	old := make([]*StoredObject, len(x.Keys))
	if s.objects.Len() > 0 {
		for i, k := range x.Keys {
			if old[i] = s.objects.Get(k); old[i] != nil {
				s.remove(old[i])
			}
		}
	}
	var errs Errors
	taken := 0
	undo = func() {
		for _, k := range x.Keys[:taken] {
			if o := s.objects.Get(k); o != nil {
				s.remove(o)
			}
		}
		for _, o := range old {
			if o != nil {
				s.add(o)
			}
		}
	}
	deleted := map[Key]bool{}
	for i, k := range x.Keys {
		switch o := x.Objects[i]; {
		case len(deleted) > 0 && deleted[k], o == nil && s.objects.Get(k) != nil:
			errs = append(errs, &Error{Object: k, Problem: "duplicate object", Accepted: "each object once"})
		case o == nil:
			deleted[k] = true
		default:
			errs = append(append(errs, check(o)...), s.add(o)...)
		}
		taken++
		if len(errs) >= MaxMistakes {
			break
		}
	}
	if len(errs) == 0 {
		errs = s.loops(x.Keys)
	}
	if len(errs) > 0 {
		undo()
		return nil, nil, errs
	}
	return undo, old, nil
}

func (s *Set) remove(o *StoredObject) {
	number := s.objects.Number(o.Key())
	for m := range o.Marks() {
		s.holdings.Release(number, m)
	}
	if o.kind.rules.owns != nil {
		s.owned.release(o)
	}
	s.objects.Delete(o.Key())
}

// add takes the object's claims that are free.
func (s *Set) add(o *StoredObject) (errs Errors) {
	before, number := s.objects.Put(o)
	if before != nil {
		s.objects.Put(before)
		return Errors{{Object: o.Key(), Problem: "duplicate object", Accepted: "each object once"}}
	}
	var reported Number
	for m := range o.Marks() {
		has, taken := s.holdings.Claim(number, m)
		if !taken || has == reported && o.finds(apart) {
			continue
		}
		holder := s.objects.At(has)
		if c, really := o.Disputed(m, holder); really {
			errs = append(errs, &Error{Object: o.Key(), Field: c.Field, Problem: holder.Key().String() + " already has " + strings.TrimPrefix(c.String(), o.Key().Kind+" ")})
			reported = has
		}
	}
	if o.finds(apart) {
		errs = append(errs, s.overlapping(o, number, reported)...)
	}
	if o.finds(wide) {
		errs = append(errs, s.intruded(o)...)
	}
	if o.kind.rules.owns != nil {
		errs = append(errs, s.intruding(o, number)...)
		s.owned.take(o)
	}
	return errs
}

// loops finds changed objects that need themselves.
func (s *Set) loops(changed []Key) Errors {
	var errs Errors
	const open, done = 1, 2
	state := map[Key]int{}
	var trail []Key
	var visit func(k Key)
	visit = func(k Key) {
		o := s.objects.Get(k)
		if o == nil || state[k] == done {
			return
		}
		state[k] = open
		trail = append(trail, k)
		for to := range o.Needs() {
			if !s.registry.mayLoop(to.Kind) {
				continue
			}
			if state[to] != open {
				visit(to)
				continue
			}
			from := len(trail) - 1
			for trail[from] != to {
				from--
			}
			var names []string
			for _, k := range trail[from:] {
				names = append(names, k.String())
			}
			names = append(names, to.String())
			errs = append(errs, &Error{Object: k, Field: s.registry.fieldNaming(o, to), Problem: "objects need one another in a circle: " + strings.Join(names, ", ")})
		}
		trail = trail[:len(trail)-1]
		state[k] = done
	}
	kind, may := "", false
	for _, k := range changed {
		if k.Kind != kind {
			kind, may = k.Kind, s.registry.mayLoop(k.Kind)
		}
		if may && len(errs) < MaxMistakes {
			visit(k)
		}
	}
	return errs
}

// KeepsClaims reports whether an object that replaces another one has all of its claims, so that no other object can take any of them if the other
// one comes back.
func (k *StoredObject) KeepsClaims(before *StoredObject) bool {
	if k.kind.rules.owns != nil {
		return false
	}
	for m := range before.Marks() {
		has := false
		for mine := range k.Marks() {
			has = has || mine == m
		}
		if !has {
			return false
		}
	}
	return true
}

// fieldNaming returns the first field of an object that names another.
func (r *Registry) fieldNaming(o *StoredObject, to Key) string {
	for _, ref := range r.References(o.Object()) {
		if ref.To == to {
			return ref.Field
		}
	}
	return ""
}

// MayLoop reports whether objects of a kind may need one another in a circle.
func (r *Registry) MayLoop(kind string) bool { return r.mayLoop(kind) }

func (r *Registry) mayLoop(kind string) bool {
	k := r.kind(kind)
	return k != nil && k.looping
}
