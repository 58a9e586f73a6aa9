// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
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

func TestALineAndAnIMSIAreOfOneCoreSubscriber(t *testing.T) {
	r, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(spec string) (fields []string) {
		for _, c := range r.Claims(objecttest.Object(t, r, "CoreSubscriber", "a", spec)) {
			fields = append(fields, c.Field+": "+c.What)
		}
		return fields
	}
	want := []string{"line: CoreSubscriber line line-7", "imsi: IMSI 001010000000001"}
	if got := claims(`{line: line-7, imsi: "001010000000001", key: 00112233445566778899aabbccddeeff, opc: 62e75b8d6fa5bf46ec87a9276f9df54d}`); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
