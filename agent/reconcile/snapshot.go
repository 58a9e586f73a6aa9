// SPDX-License-Identifier: Apache-2.0

// A plan is carried out on a graph of its own. It has copies of the entries that the change may concern: the changed objects, all that
// they need, the holders of their claims, and entries that wait for them or use them. They are copied a few at a time, so that
// producers and the data plane hardly wait for a plan, however much is queued and however large the change is.
package reconcile

import (
	"maps"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// copiedAtOnce is how many entries are copied while the lock is held, and scannedAtOnce how many are looked at.
const (
	copiedAtOnce  = 128
	scannedAtOnce = 1024
)

// snapshot is the part of a graph that a change may concern, as far as that is known. Entries that are copied at different times may
// contradict each other; the graph that is made of them does not.
type snapshot struct {
	r       *Reconciler
	desired []Desired
	// In the order in which they were found.
	all   []*found
	byKey map[object.Key]*found
	todo  []item
	// The data plane has had so many successes.
	succeeded uint64
	// Entries that are queued, under way or refused, by what they need.
	undecided map[object.Key][]*similar
	// Of the networks of copied interfaces and of next hops: how many interfaces have each.
	networks map[object.Network]int
	// Networks that the plan gives or takes, and whether all routes were looked through for these.
	moved   map[object.Network]struct{}
	through bool
}

// found is a copied entry.
type found struct {
	key object.Key
	// False: there is no entry.
	there bool
	entry entry
	// The step of an entry that is flying; nil: none.
	step *step
	// The object that it waits for.
	waits   bool
	waiting waiting
	on      object.Key
	refusal *refusal
	// Condemned entries that name it.
	condemned []*entry
	stranded  bool
	users     int
	// Those that wait for it, or will, were found; and those that use it.
	around, used bool
}

// item is something to be copied: an entry by its key, by itself, or by its number if it uses another.
type item struct {
	key    object.Key
	entry  *entry
	number object.Number
	uses   *entry
	// Waiters for the key, from one on; nil: from the first.
	waiters bool
	from    *waiting
}

// similar are entries that need the same.
type similar struct {
	entries []*entry
	taken   bool
}

// newSnapshot copies the entries of the desired objects and their references.
func (r *Reconciler) newSnapshot(desired []Desired) *snapshot {
	s := &snapshot{
		r: r, desired: desired, byKey: make(map[object.Key]*found, len(desired)), undecided: map[object.Key][]*similar{},
		networks: map[object.Network]int{}, moved: map[object.Network]struct{}{},
	}
	s.study()
	s.scan()
	for _, w := range desired {
		s.around(w.Key)
	}
	for from := 0; from < len(desired); from += copiedAtOnce {
		s.locked(func(g *graph) {
			for _, w := range desired[from:min(from+copiedAtOnce, len(desired))] {
				if w.Version != nil {
					s.needs(g, g.entries.Number(w.Key), w.Version)
				}
			}
		})
	}
	s.load()
	return s
}

// locked runs f, which is short, with the lock.
func (s *snapshot) locked(f func(g *graph)) {
	s.r.mu.Lock()
	f(s.r.graph)
	s.r.mu.Unlock()
	s.r.pass()
}

// study reads what was found in the data plane: only then is it known what needs what.
func (s *snapshot) study() {
	for next, more := object.Number(0), true; more; {
		s.locked(func(g *graph) {
			if g.unread == 0 {
				more = false
				return
			}
			var some, unread []*entry
			some, next = g.entries.Some(next, scannedAtOnce)
			for _, e := range some {
				if e.have.unread() {
					unread = append(unread, e)
				}
			}
			g.studySome(unread)
			more = next != 0
		})
	}
}

// scan groups the entries that are not decided about by what they need.
func (s *snapshot) scan() {
	var lists [][]*entry
	s.locked(func(g *graph) {
		s.succeeded = g.succeeded
		// Nothing is written to what these queues have now.
		lists = slices.Clone(g.queues)
		var others []*entry
		for _, steps := range [][]*step{g.aloft, g.wave} {
			for _, step := range steps {
				others = append(others, step.entry)
			}
		}
		for _, r := range g.refused {
			others = append(others, r.entry)
		}
		lists = append(lists, others)
	})
	groups := map[string]*similar{}
	for _, list := range lists {
		for len(list) > 0 {
			some := list[:min(len(list), scannedAtOnce)]
			list = list[len(some):]
			s.locked(func(*graph) {
				for _, e := range some {
					if e.desired == nil || e.desired.named() == "" {
						continue
					}
					group := groups[e.desired.named()]
					if group == nil {
						group = &similar{}
						groups[e.desired.named()] = group
						for k := range e.desired.needs() {
							s.undecided[k] = append(s.undecided[k], group)
						}
					}
					group.entries = append(group.entries, e)
				}
			})
		}
	}
}

// around asks for an entry and for those that wait for it, or will.
func (s *snapshot) around(k object.Key) {
	f := s.ask(k)
	if f.around {
		return
	}
	f.around = true
	s.todo = append(s.todo, item{key: k, waiters: true})
	for _, group := range s.undecided[k] {
		if !group.taken {
			group.taken = true
			for _, e := range group.entries {
				s.todo = append(s.todo, item{entry: e})
			}
		}
	}
}

// ask asks for an entry.
func (s *snapshot) ask(k object.Key) *found {
	f := s.byKey[k]
	if f == nil {
		f = &found{key: k}
		s.byKey[k], s.all = f, append(s.all, f)
		s.todo = append(s.todo, item{key: k})
	}
	return f
}

// load copies what was asked for, and what that needs.
func (s *snapshot) load() {
	for len(s.todo) > 0 {
		s.locked(func(g *graph) {
			var steps map[*entry]*step
			for n := 0; n < copiedAtOnce && len(s.todo) > 0; n++ {
				next := s.todo[0]
				s.todo = s.todo[1:]
				switch {
				case next.waiters:
					s.waitersFor(g, next)
				case next.uses != nil:
					if e := g.entries.At(next.number); e != nil && e.names(next.uses) {
						s.around(e.key)
					}
				case next.entry != nil:
					if e := next.entry; g.entries.Get(e.key) == e {
						s.around(e.key)
					}
				default:
					if e := g.entries.Get(next.key); e != nil {
						if e.flying && steps == nil {
							steps = g.unsettled()
						}
						s.copy(g, s.byKey[next.key], e, steps[e])
					}
				}
			}
		})
	}
}

// unsettled returns the steps that are not settled.
func (g *graph) unsettled() map[*entry]*step {
	steps := map[*entry]*step{}
	for _, some := range [][]*step{g.aloft, g.wave} {
		for _, s := range some {
			if !s.settled {
				steps[s.entry] = s
			}
		}
	}
	return steps
}

// waitersFor asks for some of the entries that wait for an object.
func (s *snapshot) waitersFor(g *graph, i item) {
	all := g.waiters[i.key]
	if all == nil {
		return
	}
	w := i.from
	if w == nil || w.entry.waits != w || w.all != all {
		w = all.first
	}
	for n := 0; w != nil; w = w.after {
		if n++; n > copiedAtOnce {
			s.todo = append(s.todo, item{key: i.key, waiters: true, from: w})
			return
		}
		s.around(w.key)
	}
}

// copy copies an entry, and asks for what it needs.
func (s *snapshot) copy(g *graph, f *found, e *entry, under *step) {
	f.there, f.entry, f.step = true, *e, under
	f.key, f.users = e.key, e.users.count()
	if e.have.unread() {
		f.entry.have = g.unpack(e.key, e.have.Spec(), e.have.owner())
		f.entry.have.Origin = e.have.Origin
		if e.desired == e.have {
			f.entry.desired = f.entry.have
		}
	}
	if w := e.waits; w != nil {
		f.waits, f.waiting, f.on = true, *w, w.all.on
		if f.on != anInterface {
			s.ask(f.on)
		}
	}
	if e.refusal != nil {
		refused := *e.refusal
		f.refusal = &refused
	}
	_, f.stranded = g.networks.stranded[e]
	f.condemned = slices.Collect(maps.Keys(g.condemned[e.key]))
	for _, c := range f.condemned {
		s.ask(c.key)
	}
	if f.entry.desired != nil {
		s.needs(g, e.number, f.entry.desired)
	}
	if f.entry.have != nil && f.entry.have != f.entry.desired {
		s.needs(g, e.number, f.entry.have)
	}
}

// needs asks for all that a version needs, and for the holders of its claims.
func (s *snapshot) needs(g *graph, number object.Number, v *Version) {
	for k := range v.needs() {
		s.ask(k)
	}
	for m := range v.Marks() {
		if holder, taken := g.holdings.Holder(number, m); taken {
			s.ask(g.entries.At(holder).key)
		}
	}
	for _, of := range v.networks() {
		s.networks[of] = g.networks.count[of]
	}
	vrf, floating, _ := v.nextHops()
	for _, h := range floating {
		for bits := range h.Address.BitLen() {
			p, err := h.Address.Prefix(bits)
			if err != nil {
				continue
			}
			of := object.Network{VRF: vrf, Prefix: p}
			if count := g.networks.count[of]; count > 0 {
				s.networks[of] = count
			}
		}
	}
}

// users asks for the users of an entry.
func (s *snapshot) users(k object.Key) {
	f := s.ask(k)
	if f.used {
		return
	}
	if f.used = true; f.there && f.users == 0 {
		return
	}
	s.locked(func(g *graph) {
		e := g.entries.Get(k)
		if e == nil || e.users == nil {
			return
		}
		for _, n := range e.users.all {
			s.todo = append(s.todo, item{number: n, uses: e})
		}
	})
}

// routes asks for the routes with next hops in networks that the plan gives or takes, or without any.
func (s *snapshot) routes() {
	within := func(v *Version) bool {
		vrf, floating, others := v.nextHops()
		return !others && slices.ContainsFunc(floating, func(h object.NextHop) bool {
			for of := range s.moved {
				if of.VRF == vrf && of.Prefix.Contains(h.Address) {
					return true
				}
			}
			return false
		})
	}
	for next, more := object.Number(0), true; more; more = next != 0 {
		s.locked(func(g *graph) {
			var some []*entry
			some, next = g.entries.Some(next, scannedAtOnce)
			for _, e := range some {
				if !e.kind.HasNextHops() {
					continue
				}
				if _, stranded := g.networks.stranded[e]; stranded || within(e.have) {
					s.around(e.key)
				}
			}
		})
	}
}

// graph returns a graph of the copies.
func (s *snapshot) graph() *graph {
	g := newGraph(s.r.registry, s.r.graph.now, func(*entry) {})
	g.simulating, g.succeeded = true, s.succeeded
	maps.Copy(g.networks.count, s.networks)
	g.entries.Reserve(len(s.all))
	entries, copies := make([]entry, len(s.all)), make([]*entry, len(s.all))
	for i, f := range s.all {
		if !f.there {
			continue
		}
		e := &entries[i]
		*e = f.entry
		e.users, e.waits, e.refusal, e.cause, e.retry, e.soon = nil, nil, nil, nil, nil, false
		copies[i] = e
		g.add(e)
	}
	for i, f := range s.all {
		e := copies[i]
		if e == nil {
			continue
		}
		if e.have != nil {
			g.attach(e)
		}
		if f.waits {
			s.line(g, e, f)
		}
		if f.stranded {
			g.networks.stranded[e] = struct{}{}
		}
		if f.refusal != nil {
			f.refusal.entry, e.refusal = e, f.refusal
			g.refused = append(g.refused, f.refusal)
		}
		switch {
		case e.flying && f.step != nil:
			g.aloft = append(g.aloft, &step{entry: e, put: f.step.put, desired: f.step.desired, operation: f.step.operation})
		case e.queued, e.flying:
			e.queued, e.flying = true, false
			g.queues[g.rank(e)] = append(g.queues[g.rank(e)], e)
		}
		for _, c := range f.condemned {
			if other := g.entries.Get(c.key); other != nil {
				if g.condemned[e.key] == nil {
					g.condemned[e.key] = map[*entry]struct{}{}
				}
				g.condemned[e.key][other] = struct{}{}
			}
		}
	}
	return g
}

// line has the copy of a waiting entry wait.
func (s *snapshot) line(g *graph, e *entry, f *found) {
	all := g.waiters[f.on]
	if all == nil {
		all = &waiters{on: f.on}
		g.waiters[f.on] = all
	}
	w := &waiting{entry: e, all: all, before: all.last, claim: f.waiting.claim, missing: f.waiting.missing}
	if all.last == nil {
		all.first = w
	} else {
		all.last.after = w
	}
	all.last, e.waits = w, w
}

// carryOut returns the operations of the desired objects, and those that have to wait. If it asks for more entries, they are not complete.
func (s *snapshot) carryOut() (planned, waiting []Operation) {
	g := s.graph()
	// First the operations under way, as if they succeeded.
	for _, under := range g.aloft {
		g.settle(under, Result{})
	}
	g.aloft = nil
	finish := func(each func(*step)) {
		for wave := g.next(); len(wave) > 0; wave = g.next() {
			for _, step := range wave {
				each(step)
				g.settle(step, Result{})
			}
			s.r.pass()
		}
	}
	finish(func(*step) {})
	keys := make([]object.Key, len(s.desired))
	before := map[object.Key]*Version{}
	t := newTransaction(false)
	g.asks = s
	for i, w := range s.desired {
		keys[i] = w.Key
		if was := s.byKey[w.Key].entry.desired; was != nil && !was.builtin() {
			before[w.Key] = was
		}
		g.setDesiredAt(i, w.Key, w.Version, t)
	}
	finish(func(step *step) { planned = append(planned, step.operation) })
	waiting = g.unfinished(planned, keys, before)
	g.weigh(planned)
	if len(s.moved) > 0 && !s.through {
		s.through = true
		s.routes()
	}
	return planned, waiting
}

// moves takes note of a network that the plan gives or takes.
func (s *snapshot) moves(of object.Network) {
	if _, known := s.moved[of]; !known {
		s.moved[of], s.through = struct{}{}, false
	}
}
