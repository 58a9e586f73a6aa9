package intent

import (
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// Filter is a Query that was read.
type Filter struct {
	registry   *object.Registry
	query      Query
	conditions []condition
}

// BadQuery is a Query that makes no sense.
type BadQuery struct{ Problem string }

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
			return nil, &BadQuery{fmt.Sprintf("kinds: there is no kind %q", kind)}
		}
	}
	conditions, err := parseSelector(q.Selector)
	if err != nil {
		return nil, &BadQuery{fmt.Sprintf("selector: %v", err)}
	}
	return &Filter{registry: r, query: q, conditions: conditions}, nil
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

// Named says whether the query is for objects of that kind and name.
func (f *Filter) Named(k object.Key) bool {
	return (len(f.query.Kinds) == 0 || slices.Contains(f.query.Kinds, k.Kind)) &&
		(len(f.query.Names) == 0 || slices.Contains(f.query.Names, k.Name))
}

// Matches says whether the query is for an object. What is Gone never matches.
func (f *Filter) Matches(s Status) bool {
	switch {
	case s.State == Gone, !f.Named(s.Key), f.query.Owner != "" && !s.Of(f.query.Owner):
		return false
	case s.Object == nil:
		// What is always there was put in by nobody.
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
