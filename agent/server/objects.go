// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// changes unpacks a client's changes. It checks the objects only if something else is wrong, to report all errors at
// once.
func (s *server) changes(c *api.Changes) ([]object.Change, error) {
	put := c.GetPut()
	all, wrong := make([]object.Change, len(put), len(put)+len(c.GetDelete())), make([]error, len(put))
	object.InParts(len(put), func(from, to int) {
		for n, i := range put[from:to] {
			o, err := s.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
			if wrong[from+n] = err; err == nil {
				o.Empty = slices.Sorted(slices.Values(i.GetEmpty()))
				all[from+n] = object.Put(o)
			}
		}
	})
	var mistakes object.Errors
	for n, err := range wrong {
		if err != nil && len(mistakes) < object.MaxMistakes {
			mistakes = append(mistakes, &object.Error{Object: object.Key{Kind: put[n].GetKind(), Name: put[n].GetName()}, Problem: err.Error()})
		}
	}
	for _, n := range c.GetDelete() {
		if s.registry.Kind(n.GetKind()) == nil {
			if len(mistakes) == object.MaxMistakes {
				break
			}
			mistakes = append(mistakes, &object.Error{Object: object.Key{Kind: n.GetKind(), Name: n.GetName()}, Problem: "there is no such kind"})
			continue
		}
		all = append(all, object.Remove(object.Key{Kind: n.GetKind(), Name: n.GetName()}))
	}
	if len(mistakes) > 0 {
		all = slices.DeleteFunc(all, func(c object.Change) bool { return c.Key == object.Key{} })
		for _, c := range all {
			if c.Object != nil && len(mistakes) < object.MaxMistakes {
				mistakes = append(mistakes, s.registry.CheckLayer(c.Object)...)
			}
		}
	}
	return all, mistakes.Or()
}

// source is the caller, with the owner of the change.
func source(ctx context.Context, owner, why string) intent.Source {
	s := intent.Source{Owner: owner, Why: why}
	usual := Owner
	if caller, remote := access.Of(ctx); remote {
		usual, s.Who, s.From = caller.Owner, caller.Name, caller.From
	} else {
		s.Who, s.From = who(ctx), "unix"
	}
	if owner == "" {
		s.Owner = usual
	}
	return s
}

// checkTexts checks the free texts of a caller: they are stored for ever, and shown at terminals.
func checkTexts(owner, why string) error {
	for _, c := range []struct {
		field, text string
		most        int
		plain       func(rune) bool
	}{
		{"owner", owner, 253, func(r rune) bool { return r > ' ' && r != '/' && unicode.IsPrint(r) }},
		{"why", why, 1000, unicode.IsPrint},
	} {
		if len(c.text) > c.most || !utf8.ValidString(c.text) || strings.IndexFunc(c.text, func(r rune) bool { return !c.plain(r) }) >= 0 {
			return &object.Error{Field: c.field, Problem: "not acceptable", Found: strconv.QuoteToASCII(c.text[:min(len(c.text), 80)]),
				Accepted: fmt.Sprintf("at most %d bytes on one line%s", c.most, map[bool]string{true: ", without spaces and /"}[c.field == "owner"])}
		}
	}
	return nil
}

// refuse audits a change that was refused before the check against the configuration.
func (s *server) refuse(action string, from intent.Source, changes []object.Change, err error) error {
	s.config.Audit.Refuse(action, from, changes, audit.Refused, err)
	return refusal(err)
}

func mode(allOrNothing, noWait bool) intent.Mode {
	switch {
	case allOrNothing:
		return intent.AllOrNothing
	case noWait:
		return intent.NoWait
	}
	return intent.BestEffort
}

// longestConfirmation bounds how long a revision may wait to be confirmed.
const longestConfirmation = 7 * 24 * time.Hour

func confirmWithin(nanoseconds int64) (time.Duration, error) {
	d := time.Duration(nanoseconds)
	if d < 0 || d > longestConfirmation {
		return 0, &intent.BadQuery{Problem: fmt.Sprintf("confirm_within: %s; accepted: 0 to %s", d, longestConfirmation)}
	}
	return d, nil
}

func options(c *api.Changes) (intent.Options, error) {
	if c.GetAllOrNothing() && c.GetNoWait() {
		return intent.Options{}, &intent.BadQuery{Problem: "all_or_nothing, no_wait: one of both"}
	}
	o := intent.Options{Mode: mode(c.GetAllOrNothing(), c.GetNoWait()), Force: c.GetForce(), Complete: c.GetComplete()}
	var err error
	if o.ConfirmWithin, err = confirmWithin(c.GetConfirmWithin()); err != nil {
		return o, err
	}
	for _, e := range c.GetExpect() {
		if o.Expect == nil {
			o.Expect = make(map[object.Key]uint64, len(c.GetExpect()))
		}
		o.Expect[object.Key{Kind: e.GetKind(), Name: e.GetName()}] = e.GetRevision()
	}
	if c.GetPlan() != nil {
		o.Plan = planFrom(c.GetPlan())
	}
	return o, nil
}

func (s *server) Plan(ctx context.Context, c *api.Changes) (*api.Planned, error) {
	if err := checkTexts(c.GetOwner(), c.GetWhy()); err != nil {
		return nil, refusal(err)
	}
	changes, err := s.changes(c)
	if err != nil {
		return nil, refusal(err)
	}
	options, err := options(c)
	if err != nil {
		return nil, refusal(err)
	}
	plan, err := s.desired.Plan(source(ctx, c.GetOwner(), c.GetWhy()), changes, options)
	if err != nil {
		return nil, refusal(err)
	}
	planned := plannedOf(plan)
	if planned.Warnings, err = s.unreachable(s.aboutAddresses(changes)); err != nil {
		return nil, refusal(err)
	}
	planned.Warnings = slices.Concat(planned.Warnings, s.useless(changes), s.sessionsEnd(source(ctx, c.GetOwner(), c.GetWhy()).Owner, changes))
	var away []string
	for _, l := range s.links {
		if link := l.client.Link(); !link.GetConnected() {
			why := link.GetError()
			if len(s.links) > 1 {
				why = l.name + ": " + why
			}
			away = append(away, why)
		}
	}
	planned.DataplaneAway = strings.Join(away, "; ")
	return planned, nil
}

func (s *server) Apply(ctx context.Context, c *api.Changes) (*api.Applied, error) {
	defer s.heap.Grow(len(c.GetPut()) + len(c.GetDelete()))()
	if err := checkTexts(c.GetOwner(), c.GetWhy()); err != nil {
		return nil, s.refuse("apply", source(ctx, "", ""), nil, err)
	}
	from := source(ctx, c.GetOwner(), c.GetWhy())
	changes, err := s.changes(c)
	if err != nil {
		return nil, s.refuse("apply", from, changes, err)
	}
	options, err := options(c)
	if err != nil {
		return nil, s.refuse("apply", from, changes, err)
	}
	// While many objects are applied, release all of them but those that may cause warnings.
	addresses, others := s.aboutAddresses(changes), slices.Concat(s.useless(changes), s.sessionsEnd(from.Owner, changes))
	outcome, err := s.desired.Apply(ctx, from, changes, options)
	if err != nil {
		return nil, refusal(err)
	}
	applied := appliedOf(outcome)
	if applied.Warnings, err = s.unreachable(addresses); err != nil {
		return nil, refusal(err)
	}
	applied.Warnings = slices.Concat(applied.Warnings, others, s.overridden(from.Owner, outcome))
	return applied, nil
}

func queryOf(q *api.ObjectsQuery) intent.Query {
	return intent.Query{Kinds: q.GetKinds(), Names: q.GetNames(), Selector: q.GetSelector(), Limit: int(min(q.GetLimit(), intent.LargestPage)),
		After: q.GetPage(), Owner: q.GetOwner(), FieldSelector: q.GetFieldSelector()}
}

func (s *server) Get(ctx context.Context, q *api.ObjectsQuery) (*api.IntentPage, error) {
	// A larger batch would delay new clients.
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	case <-ctx.Done():
		return nil, refusal(ctx.Err())
	}
	query := queryOf(q)
	if q.GetAsOwnerSays() {
		query.Owner = source(ctx, q.GetOwner(), "").Owner
	}
	found, err := s.desired.List(query)
	if err != nil {
		return nil, refusal(err)
	}
	page := &api.IntentPage{NextPage: found.Next}
	for _, st := range found.Objects {
		if q.GetAsOwnerSays() {
			layer := s.desired.OwnLayer(query.Owner, st.Key)
			if layer == nil {
				continue // released meanwhile
			}
			st.Object = s.registry.Redacted(layer)
		}
		if q.GetOwnedFields() {
			st.Owners = s.desired.Owners(st.Key)
		}
		o, err := s.objectOf(st)
		if err != nil {
			return nil, err
		}
		page.Objects = append(page.Objects, o)
	}
	return page, nil
}

func (s *server) Describe(_ context.Context, n *api.ObjectName) (*api.Description, error) {
	k := object.Key{Kind: n.GetKind(), Name: n.GetName()}
	st, there := s.desired.Get(k)
	if kind := s.registry.Kind(k.Kind); kind == nil || !there || st.Object == nil && kind.IsBuiltin(k.Name) {
		meant := ""
		if near := s.desired.Near(k); near != "" {
			meant = "; did you mean " + near + "?"
		}
		return nil, status.Errorf(codes.NotFound, "there is no %s %s%s", k.Kind, k.Name, meant)
	}
	if len(st.Owners) > 1 {
		st.Owners = s.desired.Owners(k)
	}
	o, err := s.objectOf(st)
	if err != nil {
		return nil, err
	}
	d := &api.Description{Object: o, Dataplanes: s.desired.Places(k)}
	relation := func(r intent.Relation) *api.Relation {
		return &api.Relation{Kind: r.Status.Key.Kind, Name: r.Status.Key.Name, Field: r.Field, Status: statusOf(r.Status)}
	}
	for _, r := range s.desired.Needs(k) {
		d.Needs = append(d.Needs, relation(r))
	}
	for _, r := range s.desired.NeededBy(k) {
		d.NeededBy = append(d.NeededBy, relation(r))
	}
	return d, nil
}

func (s *server) GetVersion(context.Context, *api.VersionQuery) (*api.Version, error) {
	counts := map[string]uint32{}
	for state, n := range s.desired.Count() {
		counts[strings.ToLower(stateOf(state).String())] = uint32(n)
	}
	v := &api.Version{Release: s.config.Release, Objects: counts}
	for _, l := range s.links {
		link := l.client.Link()
		link.Name, link.Labels = l.name, l.labels
		v.Dataplanes = append(v.Dataplanes, link)
	}
	v.Dataplane = v.Dataplanes[0]
	return v, nil
}
