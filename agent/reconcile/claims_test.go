// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

func TestAnObjectThatReplacesAnotherHasItsClaims(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	g := newGraph(registry, time.Now, func(*entry) {})
	spec, err := object.Pack(&api.Session{Access: &api.Access{Port: "p", OuterVlan: 7}})
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) *entry {
		g.beginListing()
		g.observe([]Object{{Key: object.Key{Kind: "Session", Name: name}, Spec: string(spec)}})
		g.endListing()
		return g.entries.Get(object.Key{Kind: "Session", Name: name})
	}
	list("before")
	now := list("after")
	for m := range now.have.Marks() {
		if holder, taken := g.holdings.Holder(0, m); !taken || holder != now.number {
			t.Errorf("the claim is of %d, not of %d", holder, now.number)
		}
	}
	if now.have.Claims() == 0 {
		t.Error("it claims nothing")
	}
}
