package server

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// A filter is what an ObjectsQuery asks for.
type filter struct {
	registry     *object.Registry
	kinds, names []string
	conditions   []condition
}

// A condition on one label.
type condition struct {
	label, value string
	// Any value will do.
	any bool
	not bool
}

func newFilter(r *object.Registry, q *api.ObjectsQuery) (*filter, error) {
	for _, kind := range q.GetKinds() {
		if r.Kind(kind) == nil {
			return nil, status.Errorf(codes.InvalidArgument, "kinds: there is no kind %q", kind)
		}
	}
	conditions, err := parseSelector(q.GetSelector())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "selector: %v", err)
	}
	return &filter{registry: r, kinds: q.GetKinds(), names: q.GetNames(), conditions: conditions}, nil
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

// accepts never blocks.
func (f *filter) accepts(s reconcile.Status) bool {
	switch {
	case s.State == reconcile.Gone,
		len(f.kinds) > 0 && !slices.Contains(f.kinds, s.Key.Kind),
		len(f.names) > 0 && !slices.Contains(f.names, s.Key.Name):
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
