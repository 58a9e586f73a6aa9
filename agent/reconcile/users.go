// Who names whom, of what the data plane has: a few are named by nearly all, and so each costs no more than a pointer.
package reconcile

import (
	"sluice.dev/sluice/agent/object"
)

// users are entries that, as the data plane has them, name another.
type users struct {
	// By their numbers. Some are there although they do not name it any more, or twice: to find one, all would have to be looked at.
	all []object.Number
	// How many do.
	named int
}

func (u *users) count() int {
	if u == nil {
		return 0
	}
	return u.named
}

func (e *entry) names(t *entry) bool { return e.have.names(t.key) }

// usersOf returns who names an entry; some may be there twice.
func (g *graph) usersOf(t *entry) []*entry {
	if t.users == nil {
		return nil
	}
	all := make([]*entry, 0, t.users.named)
	for _, n := range t.users.all {
		if e := g.entries.At(n); e != nil && e.names(t) {
			all = append(all, e)
		}
	}
	return all
}

// userOf returns one of them; there has to be one.
func (g *graph) userOf(t *entry) *entry {
	for _, n := range t.users.all {
		if e := g.entries.At(n); e != nil && e.names(t) {
			return e
		}
	}
	return nil
}

// use: e names t from now on.
func (g *graph) use(e, t *entry) {
	g.remember(t)
	if t.users == nil {
		t.users = &users{}
	}
	u := t.users
	u.all = append(u.all, e.number)
	u.named++
	if g.simulating {
		g.note(func() { u.all, u.named = u.all[:len(u.all)-1], u.named-1 })
	}
}

// unuse: e, which still has what names t, is about to have something else.
func (g *graph) unuse(e, t *entry) {
	u := t.users
	u.named--
	if g.simulating {
		g.note(func() { u.named++ })
		return
	}
	// What is gone is not held on to.
	if len(u.all) > 2*u.named+16 {
		live := inOrder(g.usersOf(t))
		u.all = u.all[:0]
		for _, other := range live {
			if other != e {
				u.all = append(u.all, other.number)
			}
		}
	}
}

// resolved is what a version names, and the entries of that: nil where there is none.
type resolved struct {
	named   string
	keys    []object.Key
	entries []*entry
}

// resolve returns that, until there are other entries. Objects that are alike name the same ones: what was looked for last is remembered.
func (g *graph) resolve(v *Version) resolved {
	named := v.named()
	if named == "" {
		return resolved{}
	}
	if named != g.named.named {
		r := resolved{named: named}
		for k := range v.needs() {
			r.keys, r.entries = append(r.keys, k), append(r.entries, g.entries.Get(k))
		}
		g.named = r
	}
	return g.named
}

func (g *graph) add(e *entry) {
	_, e.number = g.entries.Put(e)
	g.named = resolved{}
}

func (g *graph) remove(k object.Key) {
	g.entries.Delete(k)
	g.named = resolved{}
}
