// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestAFailedChangeKeepsTheObjectsThatTheSessionNames(t *testing.T) {
	keys := []object.Key{{Kind: "Meter", Name: "agf-1"}, {Kind: "FlowProfile", Name: "agf-2"}}
	r := &resource{before: slices.Clone(keys)}
	if got := r.unnamed(errNotForwarding); got != nil || !slices.Equal(r.before, keys) {
		t.Errorf("after a failed change, %v are released", got)
	}
	// The next change succeeds.
	if got := r.unnamed(nil); !slices.Equal(got, keys) || r.before != nil {
		t.Errorf("after a change, %v are released, and %v are kept", got, r.before)
	}
	r = &resource{before: slices.Clone(keys), removed: true}
	if got := r.unnamed(errNotForwarding); !slices.Equal(got, keys) {
		t.Errorf("after the end, %v are released", got)
	}
}

func TestErrorIndicationsAreAboutTheTunnelThatTheDataPlaneHas(t *testing.T) {
	s := &agf{ends: map[farEnd]tunnelOwner{}}
	r := &resource{g: &gateway{service: s}}
	upf := netip.MustParseAddr("192.0.2.2")
	first, second := farEndOf(upf, 7001), farEndOf(upf, 7002)
	if err := r.took(&api.Session{Vrf: "one"}, first, service.Result{Done: true}); err != nil || s.ends[first] != r {
		t.Fatal(err, s.ends)
	}
	// A change that the data plane refuses, or still waits with.
	for _, result := range []service.Result{{Err: errors.New("refused")}, {}} {
		if err := r.took(&api.Session{Vrf: "two"}, second, result); err == nil || s.ends[first] != r || len(s.ends) != 1 {
			t.Error(err, s.ends)
		}
	}
	if err := r.took(&api.Session{Vrf: "two"}, second, service.Result{Done: true}); err != nil || s.ends[second] != r || len(s.ends) != 1 {
		t.Error(err, s.ends)
	}
	// The same again is no change.
	if err := r.took(&api.Session{Vrf: "two"}, second, service.Result{}); err != nil {
		t.Error(err)
	}
	// Results after the end.
	r.removed = true
	s.moveEnd(r, &r.end, farEnd{})
	if err := r.took(&api.Session{Vrf: "one"}, first, service.Result{Done: true}); err != nil || len(s.ends) != 0 {
		t.Error(err, s.ends)
	}
}
