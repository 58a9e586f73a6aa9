// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestMistakesOfAnAgfNameTheirField(t *testing.T) {
	marks := []*api.FiveQiMark{{FiveQi: 1}, {FiveQi: 9}, {FiveQi: 1}}
	for _, c := range []struct {
		spec *api.Agf
		want []string
	}{
		{&api.Agf{CoreAddress: "192.0.2.1", Dnn: "internet.example", Slice: &api.Slice{Sst: 1, Sd: "010203"}, PduSessionType: api.PduSessionType_IPV4V6, DelegatedPrefixLength: 56,
			Markings: marks[:2]}, nil},
		{&api.Agf{CoreAddress: "224.0.0.1"}, []string{"coreAddress"}},
		{&api.Agf{CoreAddress: "2001:db8::1", Dnn: "a..b", Slice: &api.Slice{Sst: 1, Sd: "xyz"}, Markings: marks, DelegatedPrefixLength: 56},
			[]string{"dnn", "slice.sd", "delegatedPrefixLength", "markings[2].fiveQi"}},
		{&api.Agf{CoreAddress: "192.0.2.1", Dnn: strings.Repeat("a", 64)}, []string{"dnn"}},
	} {
		var got []string
		checkAgf(c.spec, func(field, _, _, _ string) { got = append(got, field) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %q", c.spec, got)
		}
	}
}

func TestTheCoreAddressIsToBeAnInterfaces(t *testing.T) {
	held := localAddress(&api.Agf{CoreAddress: "2001:db8::1"})
	if len(held) != 1 || held[0].VRF != "default" || held[0].Prefix.String() != "2001:db8::1/128" || held[0].Path() != "coreAddress" {
		t.Errorf("%+v", held)
	}
	if held := localAddress(&api.Agf{CoreAddress: "fe80::1"}); held != nil {
		t.Errorf("%+v", held)
	}
}
