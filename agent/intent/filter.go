// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Filter is a Query that was read.
type Filter struct {
	registry *object.Registry
	query    Query
	// Of the query; empty: all.
	kinds, names map[string]struct{}
	conditions   []condition
	fields       []fieldCondition
}

// BadQuery is a Query that makes no sense.
type BadQuery struct {
	Problem string
	// It is well formed, but wrong for the kinds.
	Meaning bool
}

func (b *BadQuery) Error() string { return b.Problem }

// A condition on one label.
type condition struct {
	label, value string
	// Any value will do.
	any bool
	not bool
}

// NewFilter reads a Query. Its errors are *BadQuery.
func NewFilter(r *object.Registry, q Query) (*Filter, error) {
	for _, kind := range q.Kinds {
		if r.Kind(kind) == nil {
			return nil, &BadQuery{Problem: fmt.Sprintf("kinds: there is no kind %q", kind)}
		}
	}
	conditions, err := parseSelector(q.Selector)
	if err != nil {
		return nil, &BadQuery{Problem: fmt.Sprintf("selector: %v", err)}
	}
	fields, err := parseFieldSelector(r, q)
	if err != nil {
		return nil, &BadQuery{Problem: fmt.Sprintf("field selector: %v", err), Meaning: true}
	}
	return &Filter{registry: r, query: q, kinds: setOf(q.Kinds), names: setOf(q.Names), conditions: conditions, fields: fields}, nil
}

// A fieldCondition is a condition on one field.
type fieldCondition struct {
	value string
	not   bool
	// One of both, or the selectors.
	name, state bool
	// By kind. Objects of other kinds do not match.
	selectors map[string]*object.Selector
}

func parseFieldSelector(r *object.Registry, q Query) ([]fieldCondition, error) {
	if strings.TrimSpace(q.FieldSelector) == "" {
		return nil, nil
	}
	var all []fieldCondition
	for _, part := range strings.Split(q.FieldSelector, ",") {
		field, value, found := strings.Cut(part, "=")
		field, not := strings.CutSuffix(field, "!")
		field, value = strings.TrimSpace(field), strings.TrimSpace(strings.TrimPrefix(value, "="))
		if !found || field == "" {
			return nil, fmt.Errorf("%q is not a condition; accepted: FIELD=VALUE, FIELD!=VALUE", part)
		}
		c := fieldCondition{value: value, not: not}
		var err error
		switch field {
		case "metadata.name":
			c.name = true
		case "status.state":
			if c.state = true; !slices.ContainsFunc(reconcile.States(), c.isState) {
				err = fmt.Errorf("status.state: found %q; accepted: %s", value, stateNames())
			}
		default:
			c.selectors, err = selectors(r, q.Kinds, strings.TrimPrefix(field, "spec."), value)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// selectors returns those of the kinds (none: all kinds) that have the field. One must.
func selectors(r *object.Registry, kinds []string, field, value string) (map[string]*object.Selector, error) {
	all := map[string]*object.Selector{}
	var unknown *object.UnknownField
	var wrong error
	for _, k := range r.Kinds() {
		if len(kinds) > 0 && !slices.Contains(kinds, k.Name) {
			continue
		}
		s, err := k.Select(field, value)
		var is *object.UnknownField
		switch {
		case err == nil:
			all[k.Name] = s
		case !errors.As(err, &is):
			wrong = err
		case unknown == nil || unknown.Near == "":
			unknown = is
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case wrong != nil:
		return nil, wrong
	case len(kinds) == 1 || unknown.Near != "":
		return nil, unknown
	}
	return nil, fmt.Errorf("none of the kinds has a field %q", field)
}

func (c fieldCondition) isState(s State) bool { return strings.EqualFold(s.String(), c.value) }

func stateNames() string {
	var names []string
	for _, s := range reconcile.States() {
		names = append(names, strings.ToLower(s.String()))
	}
	return strings.Join(names, ", ")
}

func (c fieldCondition) holds(s Status) bool {
	switch {
	case c.name:
		return (s.Key.Name == c.value) != c.not
	case c.state:
		return c.isState(s.State) != c.not
	case s.Object == nil:
		return false
	}
	selector := c.selectors[s.Key.Kind]
	return selector != nil && selector.Matches(s.Object.Spec) != c.not
}

func setOf(all []string) map[string]struct{} {
	set := make(map[string]struct{}, len(all))
	for _, one := range all {
		set[one] = struct{}{}
	}
	return set
}

// named ranges over the keys of a query for names, in order, that come after one.
func (f *Filter) named(after object.Key) iter.Seq[object.Key] {
	kinds := slices.Sorted(maps.Keys(f.kinds))
	if len(kinds) == 0 {
		for _, k := range f.registry.Kinds() {
			kinds = append(kinds, k.Name)
		}
		slices.Sort(kinds)
	}
	names := slices.Sorted(maps.Keys(f.names))
	return func(yield func(object.Key) bool) {
		for _, kind := range kinds {
			for _, name := range names {
				if k := (object.Key{Kind: kind, Name: name}); k.Compare(after) > 0 && !yield(k) {
					return
				}
			}
		}
	}
}

func parseSelector(text string) ([]condition, error) {
	var all []condition
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		var c condition
		if label, value, ok := strings.Cut(part, "!="); ok {
			c = condition{label: label, value: value, not: true}
		} else if label, value, ok := strings.Cut(part, "="); ok {
			c = condition{label: label, value: strings.TrimPrefix(value, "=")}
		} else {
			label, not := strings.CutPrefix(part, "!")
			c = condition{label: label, any: true, not: not}
		}
		c.label, c.value = strings.TrimSpace(c.label), strings.TrimSpace(c.value)
		if c.label == "" || strings.ContainsAny(c.label, "!= ") {
			return nil, fmt.Errorf("%q is no condition; accepted: LABEL=VALUE, LABEL!=VALUE, LABEL, !LABEL", part)
		}
		all = append(all, c)
	}
	return all, nil
}

func (c condition) holds(labels map[string]string) bool {
	value, there := labels[c.label]
	return (there && (c.any || value == c.value)) != c.not
}

// Named reports whether the query is for objects of that kind and name.
func (f *Filter) Named(k object.Key) bool {
	return within(f.kinds, k.Kind) && within(f.names, k.Name)
}

// within: an empty set holds everything.
func within(set map[string]struct{}, word string) bool {
	_, there := set[word]
	return there || len(set) == 0
}

// Matches reports whether an object matches the query. Gone objects never do.
func (f *Filter) Matches(s Status) bool {
	switch {
	case s.State == Gone, !f.Named(s.Key), f.query.Owner != "" && !s.Of(f.query.Owner):
		return false
	case slices.ContainsFunc(f.fields, func(c fieldCondition) bool { return !c.holds(s) }):
		return false
	case s.Object == nil:
		// Builtin objects have no owner.
		if k := f.registry.Kind(s.Key.Kind); k != nil && k.IsBuiltin(s.Key.Name) {
			return false
		}
		return len(f.conditions) == 0
	}
	for _, c := range f.conditions {
		if !c.holds(s.Object.Labels) {
			return false
		}
	}
	return true
}
