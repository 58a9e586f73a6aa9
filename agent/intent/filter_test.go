// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

func TestAQueryForNamesLooksAtTheseAlone(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFilter(registry, Query{Kinds: []string{"Session", "Acl", "Acl"}, Names: []string{"b", "a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[object.Key]string{
		{}:                             "[Acl/a Acl/b Session/a Session/b]",
		{Kind: "Acl", Name: "b"}:       "[Session/a Session/b]",
		{Kind: "Meter", Name: "x"}:     "[Session/a Session/b]",
		{Kind: "Session", Name: "aa"}:  "[Session/b]",
		{Kind: "Session", Name: "zoo"}: "[]",
	} {
		if got := fmt.Sprint(slices.Collect(f.named(after))); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
	all, err := NewFilter(registry, Query{Names: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(all.named(object.Key{})); len(got) != len(registry.Kinds()) || !slices.IsSortedFunc(got, object.Key.Compare) {
		t.Errorf("%v", got)
	}
}

func TestASelectorHoldsForTheLabelsItDescribes(t *testing.T) {
	labels := map[string]string{"city": "bonn", "tier": "", "a.b/c": "x=y"}
	for selector, want := range map[string]bool{
		"": true, "city": true, "!city": false, "city=bonn": true, "city == bonn": true, "city!=bonn": false, "city=koeln": false,
		"none": false, "!none": true, "none!=x": true, "none=": false, "tier=": true, "tier": true, "city=bonn,tier,!none": true,
		"city=bonn,tier=gold": false, "a.b/c=x=y": true,
	} {
		conditions, err := parseSelector(selector)
		if err != nil {
			t.Errorf("%q: %v", selector, err)
			continue
		}
		got := true
		for _, c := range conditions {
			got = got && c.holds(labels)
		}
		if got != want {
			t.Errorf("%q: %v, want %v", selector, got, want)
		}
	}
	for _, selector := range []string{",", "=", "=x", "!", "!=x", "a b=c", "a,", "!!a"} {
		if _, err := parseSelector(selector); err == nil {
			t.Errorf("%q is taken", selector)
		}
	}
}
