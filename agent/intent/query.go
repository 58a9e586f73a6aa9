// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

const (
	defaultPage = 1000
	// LargestPage is the most objects in one page of a list.
	LargestPage = 10_000
)

// statusOf adds the owners to the status of an object in a data plane.
func (d *Desired) statusOf(s reconcile.Status) Status {
	if len(d.sites) > 1 {
		// In one of several data planes: the status of all of them counts.
		all, stored := d.look(s.Key)
		return all.with(stored)
	}
	d.mu.RLock()
	r := d.records.Get(s.Key)
	d.mu.RUnlock()
	return d.combined(s, r, nil).with(s.Desired)
}

// with adds the object, which takes longer than all else.
func (s Status) with(v *reconcile.Version) Status {
	if v != nil {
		s.Object = v.Shown()
	}
	return s
}

// combined leaves the object itself to fill, and uses the room for owners that it is given.
func (d *Desired) combined(s reconcile.Status, r *Record, room []Ownership) Status {
	st := Status{Key: s.Key, State: s.State, Message: s.Message, Reason: s.Reason.String(), Since: s.Since, Observed: s.Observed}
	if left := d.left.Load(); left != nil {
		st.NotUndone = (*left)[s.Key]
	}
	v := s.Desired
	if v == nil {
		return st
	}
	st.Owner, st.Revision, st.Generation = r.owner(), v.Revision, v.Generation
	if r == nil && v.Origin != nil {
		st.Owner = v.Origin.Service
	}
	if s.State == Applied {
		st.NotReady = d.sites.notReady(v, d.config.NotReady)
	}
	if r == nil || r.version != v {
		return st
	}
	// Options.Expect compares it, also if only the owner changed.
	st.Revision = r.Revision
	st.Accepted = time.Unix(0, r.Accepted)
	st.Owners = d.owners(r, room)
	return st
}

// Get implements Interface.
func (d *Desired) Get(k object.Key) (Status, bool) {
	s, v := d.look(k)
	if s = s.with(v); s.Object != nil {
		s.Object.Empty = d.explicitZeros(k)
	}
	return s, s.State != Gone
}

// explicitZeros returns the fields of an object whose explicit zero counts. They are part of the object when it is applied again.
func (d *Desired) explicitZeros(k object.Key) []string {
	d.mu.RLock()
	r := d.records.Get(k)
	d.mu.RUnlock()
	switch {
	case r == nil:
		return nil
	case len(r.Layers) == 1:
		return r.Layers[0].Empty()
	}
	return object.Empty(r.stored())
}

// Reveal returns an object's desired state with its secrets, or nil. It is for users of the secrets, such as
// protocols; for display, use Get, List and Events.
func (d *Desired) Reveal(k object.Key) *object.Object {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if stored := d.records.Get(k).merged(); stored != nil {
		return stored.Object()
	}
	return nil
}

// Owners implements Interface.
func (d *Desired) Owners(k object.Key) []Ownership {
	d.mu.RLock()
	r := d.records.Get(k)
	d.mu.RUnlock()
	if r == nil {
		return nil
	}
	layers := object.Layers(r.stored())
	all := d.owners(r, nil)
	for i := range all {
		all[i].Fields = layers[i]
	}
	return all
}

func (d *Desired) owners(r *Record, room []Ownership) []Ownership {
	all := slices.Grow(room, len(r.Layers))
	for i := range r.Layers {
		l := &r.Layers[i]
		all = append(all, Ownership{Owner: l.Owner, Revision: l.Revision})
		if len(d.config.Owners) > 0 {
			all[i].Priority = d.config.Owners[l.Owner].Priority
		}
	}
	return all
}

// OwnLayer implements Interface.
func (d *Desired) OwnLayer(owner string, k object.Key) *object.Object {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if l := d.records.Get(k).layerOf(owner); l != nil {
		return l.Object()
	}
	return nil
}

// look is Get with the record instead of the object.
func (d *Desired) look(k object.Key) (Status, *reconcile.Version) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.lookInto(k, nil)
}

// lookInto uses the room for owners that it is given. d.mu is held.
func (d *Desired) lookInto(k object.Key, room []Ownership) (Status, *reconcile.Version) {
	s, r := d.sites.get(k), d.records.Get(k)
	if s.State == Gone && r != nil && r.version != nil && d.sites.placesOf(r.merged()) == 0 {
		// It was accepted when there were other data planes.
		s = reconcile.Status{Key: k, State: Pending, Reason: reconcile.NoDataplane, Since: time.Unix(0, r.Accepted), Desired: r.version,
			Message: "waits for a data plane: none that there is may have it"}
	}
	return d.combined(s, r, room), s.Desired
}

// Places implements Interface.
func (d *Desired) Places(k object.Key) []string {
	d.mu.RLock()
	p := d.sites.placesOf(d.records.Get(k).merged())
	d.mu.RUnlock()
	var names []string
	for i, s := range d.sites {
		if p.has(i) {
			names = append(names, s.Name)
		}
	}
	return names
}

// List implements Interface.
func (d *Desired) List(q Query) (*Page, error) {
	f, err := NewFilter(d.registry, q)
	if err != nil {
		return nil, err
	}
	limit := min(q.Limit, LargestPage)
	if limit <= 0 {
		limit = defaultPage
	}
	var after object.Key
	if q.After != "" {
		kind, name, ok := strings.Cut(q.After, "/")
		if !ok {
			return nil, &BadQuery{Problem: fmt.Sprintf("page: %q was not given out by this agent", q.After)}
		}
		after = object.Key{Kind: kind, Name: name}
	}
	page := &Page{Cursor: d.log.end()}
	only := ""
	if len(q.Kinds) == 1 {
		// Keys are in the order of their kinds.
		if only = q.Kinds[0]; after.Kind < only {
			after = object.Key{Kind: only}
		}
	}
	keys := f.named(after)
	if len(q.Names) == 0 {
		keys = d.ordered().after(after)
	}
	for k := range keys {
		if only != "" && k.Kind > only {
			break
		}
		if !f.Named(k) {
			continue
		}
		s, there := d.Get(k)
		if !there || !f.Matches(s) {
			continue
		}
		if len(page.Objects) == limit {
			page.Next = page.Objects[limit-1].Key.String()
			break
		}
		page.Objects = append(page.Objects, s)
	}
	return page, nil
}

// Needs implements Interface.
func (d *Desired) Needs(k object.Key) []Relation {
	s, _ := d.Get(k)
	if s.Object == nil {
		return nil
	}
	var needs []Relation
	for _, ref := range d.registry.References(s.Object) {
		if !ref.Builtin {
			needed, _ := d.Get(ref.To)
			needs = append(needs, Relation{ref.Field, needed})
		}
	}
	return needs
}

// NeededBy implements Interface. It looks at every object.
func (d *Desired) NeededBy(k object.Key) []Relation {
	var users []*object.StoredObject
	d.eachRecord(func(r *Record) {
		if r.version != nil && r.version.Names(k) {
			users = append(users, r.version.StoredObject)
		}
	})
	slices.SortFunc(users, func(a, b *object.StoredObject) int { return a.Key().Compare(b.Key()) })
	var by []Relation
	for _, o := range users {
		for _, ref := range d.registry.References(o.Object()) {
			if ref.To == k {
				s, _ := d.Get(o.Key())
				by = append(by, Relation{ref.Field, s})
				break
			}
		}
	}
	return by
}
