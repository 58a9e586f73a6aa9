// SPDX-License-Identifier: Apache-2.0

// References between the data plane's objects: nearly all name the same few objects, so a reference costs no more
// than a pointer.
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

// used reports whether any entry names this one.
func (g *graph) used(t *entry) bool {
	if g.asks != nil {
		g.asks.users(t.key)
	}
	return t.users.count() > 0
}

func (e *entry) names(t *entry) bool { return e.have.names(t.key) }

// usersOf returns the entries that name an entry; it may return one more than once.
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
	if t.users == nil {
		t.users = &users{}
	}
	u := t.users
	u.all = append(u.all, e.number)
	u.named++
}

// unuse: e, whose present version names t, is about to change.
func (g *graph) unuse(e, t *entry) {
	u := t.users
	u.named--
	// Release deleted entries.
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

// resolved holds the keys that a version names, and their entries: nil where there is none.
type resolved struct {
	named   string
	keys    []object.Key
	entries []*entry
}

// resolve returns them, until entries change. Similar objects name the same ones: the last result is cached.
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
