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
	objects  Table[*Kept]
	// By the numbers of objects.
	holdings *Holdings[Number]
	owned    owned
}

// NewSet returns an empty set.
func NewSet(r *Registry) *Set {
	s := &Set{registry: r, owned: owned{}}
	s.holdings = NewHoldings(s.objects.Compare)
	return s
}

// Get returns an object, or nil.
func (s *Set) Get(k Key) *Kept { return s.objects.Get(k) }

// Len returns how many objects there are.
func (s *Set) Len() int { return s.objects.Len() }

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
	s.objects.Reserve(len(x.Keys))
	s.holdings.Reserve(x.Claims())

	old := make([]*Kept, len(x.Keys))
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
		switch o := x.Kept[i]; {
		case len(deleted) > 0 && deleted[k], o == nil && s.objects.Get(k) != nil:
			errs = append(errs, &Error{Object: k, Problem: "there twice", Accepted: "each object once"})
		case o == nil:
			deleted[k] = true
		default:
			errs = append(errs, s.add(o)...)
		}
		taken++
		if len(errs) >= MistakesMost {
			break
		}
	}
	if len(errs) == 0 {
		errs = s.loops(x.Keys)
	}
	if len(errs) > 0 {
		undo()
		return nil, errs
	}
	return undo, nil
}

func (s *Set) remove(o *Kept) {
	number := s.objects.Number(o.Key())
	for m := range o.Marks() {
		s.holdings.Release(number, m)
	}
	if o.kind.rules.owns != nil {
		s.owned.release(o)
	}
	s.objects.Delete(o.Key())
}

// add takes what the object claims as far as it is free.
func (s *Set) add(o *Kept) (errs Errors) {
	before, number := s.objects.Put(o)
	if before != nil {
		s.objects.Put(before)
		return Errors{{Object: o.Key(), Problem: "there twice", Accepted: "each object once"}}
	}
	var told Number
	for m := range o.Marks() {
		has, taken := s.holdings.Holder(number, m)
		if !taken {
			s.holdings.Take(number, m)
			continue
		}
		if has == told && o.finds(apart) {
			continue
		}
		holder := s.objects.At(has)
		if c, really := o.Disputed(m, holder); really {
			errs = append(errs, &Error{Object: o.Key(), Field: c.Field, Problem: holder.Key().String() + " already has " + c.String()})
			told = has
		}
	}
	if o.finds(apart) {
		errs = append(errs, s.overlapping(o, number)...)
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
	for _, k := range changed {
		if s.registry.mayLoop(k.Kind) && len(errs) < MistakesMost {
			visit(k)
		}
	}
	return errs
}

// fieldNaming returns the first field of an object that names another.
func (r *Registry) fieldNaming(o *Kept, to Key) string {
	for _, ref := range r.References(o.Object()) {
		if ref.To == to {
			return ref.Field
		}
	}
	return ""
}

func (r *Registry) mayLoop(kind string) bool {
	k := r.byName[kind]
	return k != nil && k.looping
}
