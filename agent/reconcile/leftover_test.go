// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strconv"
	"testing"
	"time"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

func TestLeftoversAreThoseThatStillAre(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	r := New(registry, Options{})
	g := newGraph(registry, time.Now, func(*entry) {})
	r.graph = g
	const all = 100_000
	var entries []*entry
	for i := range all {
		e := g.ensure(object.Key{Kind: "Route", Name: strconv.Itoa(i)})
		g.countLeftover(e, true)
		g.countLeftover(e, true)
		entries = append(entries, e)
	}
	if keys, number := r.NotDesired(0); len(keys) != all || number != all {
		t.Errorf("%d keys, number %d", len(keys), number)
	}
	if keys, _ := r.NotDesired(all); keys != nil {
		t.Errorf("%d keys of which the caller knows", len(keys))
	}
	for _, e := range entries[1:] {
		g.countLeftover(e, false)
	}
	// One comes and goes: the entries of the others go, too.
	for range 10 {
		g.countLeftover(entries[1], true)
		g.countLeftover(entries[1], false)
	}
	keys, _ := r.NotDesired(0)
	if len(keys) != 1 || keys[0] != entries[0].key || len(g.leftovers) > 2*leftoverSlack {
		t.Errorf("%d keys, %d numbers", len(keys), len(g.leftovers))
	}
	g.countLeftover(entries[0], false)
	if keys, _ := r.NotDesired(0); len(keys) != 0 || g.leftovers != nil {
		t.Errorf("%d keys, %d numbers, and nothing is left over", len(keys), len(g.leftovers))
	}
}
