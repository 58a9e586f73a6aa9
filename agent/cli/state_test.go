// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
)

func TestARowHasTheValuesOfListsInItsElement(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	reply := &api.AgfLines{Lines: []*api.AgfLine{
		{Name: "access:100.7", State: "registered", Amf: "core", Sessions: []*api.AgfPduSession{
			{Id: 1, Addresses: []string{"100.64.9.7", "2001:db8::/64"}}, {Id: 2, Addresses: []string{"100.64.9.8"}}}},
		{Name: "access:100.8", State: "refused", Reason: "PLMN not allowed"},
	}}
	st := registry.StateOf((&api.AgfLinesQuery{}).ProtoReflect().Descriptor().FullName())
	var b strings.Builder
	if err := (&program{registry: registry}).stateTable(&b, "", st, reply.ProtoReflect(), nil); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, row := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	want := "NAME STATE AMF PDU SESSIONS ADDRESSES REASON\n" +
		"access:100.7 registered core 1 2 100.64.9.7 2001:db8::/64 100.64.9.8 -\n" +
		"access:100.8 refused - - - PLMN not allowed"
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("%s", got)
	}
}
