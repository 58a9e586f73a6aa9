// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestOptionsOfAServerAreChecked(t *testing.T) {
	for _, c := range []struct {
		sentence string
		options  []*api.IpoeOption
		fields   []string
	}{
		{"two options", []*api.IpoeOption{{Code: 43, Hex: "0104c0000235"}, {Code: 66, Hex: "61"}}, nil},
		{"a long option", []*api.IpoeOption{{Code: 43, Hex: strings.Repeat("00", 255)}}, nil},
		{"an option of the server", []*api.IpoeOption{{Code: 51, Hex: "00000e10"}}, []string{"options[0].code"}},
		{"routes", []*api.IpoeOption{{Code: 66, Hex: "61"}, {Code: 121, Hex: "00"}}, []string{"options[1].code"}},
		{"an option twice", []*api.IpoeOption{{Code: 66, Hex: "61"}, {Code: 66, Hex: "62"}}, []string{"options[1].code"}},
		{"no digits", []*api.IpoeOption{{Code: 66, Hex: "tftp"}}, []string{"options[0].hex"}},
		{"half a byte", []*api.IpoeOption{{Code: 66, Hex: "616"}}, []string{"options[0].hex"}},
		{"a value that is too long", []*api.IpoeOption{{Code: 43, Hex: strings.Repeat("00", 256)}}, []string{"options[0].hex"}},
		{"options that are too long together", []*api.IpoeOption{{Code: 43, Hex: strings.Repeat("00", 255)}, {Code: 66, Hex: strings.Repeat("00", 255)}}, []string{"options[1]"}},
	} {
		var fields []string
		checkIpoeServer(&api.IpoeServer{Options: c.options}, func(field, _, _, _ string) { fields = append(fields, field) })
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: %v", c.sentence, fields)
		}
	}
}
