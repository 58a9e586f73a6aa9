// Who names whom, of what the data plane has: a few are named by nearly all, and so each costs no more than a pointer.
package reconcile

import (
	"slices"

	"sluice.dev/sluice/agent/object"
)

// users are entries that, as the data plane has them, name another.
type users struct {
	// Some are there although they do not name it any more, or twice: to find one, all would have to be looked at.
	all []*entry
	// How many do.
	named int
}

func (u *users) count() int {
	if u == nil {
		return 0
	}
	return u.named
}

func (e *entry) names(t *entry) bool { return e.have != nil && slices.Contains(e.have.needs(), t.key) }

// live returns who names the entry whose users they are; some may be there twice.
func (u *users) live(t *entry) []*entry {
	if u == nil {
		return nil
	}
	live := make([]*entry, 0, u.named)
	for _, e := range u.all {
		if e.names(t) {
			live = append(live, e)
		}
	}
	return live
}

// any returns one of them; there has to be one.
func (u *users) any(t *entry) *entry {
	return u.all[slices.IndexFunc(u.all, func(e *entry) bool { return e.names(t) })]
}

// use: e names t from now on.
func (g *graph) use(e, t *entry) {
	g.remember(t)
	if t.users == nil {
		t.users = &users{}
	}
	u := t.users
	u.all = append(u.all, e)
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
		u.all = inOrder(slices.DeleteFunc(u.live(t), func(other *entry) bool { return other == e }))
	}
}

// resolved remembers which entries were looked for last: objects that are alike name the same ones.
type resolved struct {
	needs   []object.Key
	entries []*entry
}

// resolve returns the entries of keys, nil where there is none, until it is called again or there are other entries.
func (g *graph) resolve(needs []object.Key) []*entry {
	r := &g.named
	if len(needs) == 0 {
		return nil
	}
	if len(needs) == len(r.needs) && &needs[0] == &r.needs[0] {
		return r.entries
	}
	r.needs, r.entries = needs, r.entries[:0]
	for _, k := range needs {
		r.entries = append(r.entries, g.entries.Get(k))
	}
	return r.entries
}

func (g *graph) add(e *entry) {
	g.entries.Put(e)
	g.named = resolved{}
}

func (g *graph) remove(k object.Key) {
	g.entries.Delete(k)
	g.named = resolved{}
}
