// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestMistakesInAccessNodesAndAmfsAreNamed(t *testing.T) {
	var fields []string
	add := func(field, _, _, _ string) { fields = append(fields, field) }
	areas := []*api.TrackingArea{{Tac: 1, Slices: []*api.Slice{{Sst: 1, Sd: "010203"}, {Sst: 1, Sd: "1"}, {Sst: 1, Sd: "0x0102"}}}, {Tac: 1, Plmn: "1"}, {Tac: 1, Plmn: "1"}}
	checkAccessNode(&api.AccessNode{Plmn: "0010a", NodeName: "a_b", TrackingAreas: areas, LocalAddresses: []string{"192.0.2.1", "224.0.0.1", "192.0.2.1"}}, add)
	checkAmf(&api.Amf{Addresses: []string{"192.0.2.1", "192.0.2.1"}}, add)
	want := []string{"plmn", "nodeName", "localAddresses[1]", "localAddresses[2]", "trackingAreas[0].slices[1].sd", "trackingAreas[0].slices[2].sd",
		"trackingAreas[1].plmn", "trackingAreas[2].plmn", "trackingAreas[2]", "addresses[1]"}
	if !slices.Equal(fields, want) {
		t.Error(fields)
	}
	fields = nil
	checkAccessNode(&api.AccessNode{Plmn: "00101", NodeName: "agf bonn-1", TrackingAreas: areas[:0]}, add)
	if len(fields) > 0 {
		t.Error(fields)
	}
}
