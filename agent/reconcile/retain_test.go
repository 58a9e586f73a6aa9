// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// The agent asks again and again, and usually no service has left anything.
func TestObjectsThatServicesLeftAreLookedForOnlyIfThereAreAny(t *testing.T) {
	registry, r := planner(t)
	var all []Desired
	for i := range 2 * scannedAtOnce {
		all = append(all, desiredOf(versionFor(t, registry, "Vrf", fmt.Sprint("v", i), &api.Vrf{})))
	}
	r.SetDesired(all, false).Close()
	walks := 0
	r.options.Between = func() { walks++ }
	if left := r.Retained(); len(left) != 0 || walks != 0 {
		t.Errorf("%v are left, after %d parts of a walk", left, walks)
	}
	g := r.graph
	v := versionFor(t, registry, "Vrf", "left", &api.Vrf{})
	g.observe([]Object{{Key: v.Key(), Spec: v.Spec(), Owner: "bgp"}})
	g.endListing()
	if left := r.Retained(); len(left) != 1 || left["bgp"] != 1 || walks == 0 {
		t.Errorf("%v are left, after %d parts of a walk", left, walks)
	}
	r.Release("bgp")
	if left := r.Retained(); len(left) != 0 {
		t.Errorf("%v are left after their release", left)
	}
}
