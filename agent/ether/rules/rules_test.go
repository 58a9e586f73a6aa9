// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules(InterfaceType{"ipsecTunnel", (*api.Interface).GetIpsecTunnel}), []objecttest.Case{
		{"an interface's inner VLAN alone", "Interface", "{port: p, innerVlan: 1}", "innerVlan: an inner VLAN without an outer one"},
		{"a network's own address", "Interface", "{port: p, addresses: [192.0.2.0/24]}",
			"addresses[0]: the network's own address: found \"192.0.2.0/24\"; accepted: another address in 192.0.2.0/24"},
		{"an IPv6 network's own address", "Interface", "{port: p, addresses: [192.0.2.1/24, '2001:db8::/64']}", "addresses[1]: the network's own address"},
		{"a network's broadcast address", "Interface", "{port: p, addresses: [192.0.2.255/24]}", "addresses[0]: the network's broadcast address"},
		{"the first of two addresses", "Interface", "{port: p, addresses: [192.0.2.0/31, '2001:db8::/127']}", ""},
		{"a single address that ends in zero", "Interface", "{addresses: [192.0.2.0/32, '2001:db8::/128']}", ""},
		{"a loopback address", "Interface", "{addresses: [127.0.0.1/8]}", "addresses[0]: it is loopback (RFC 1122)"},
		{"an IPv6 loopback address", "Interface", "{addresses: ['::1/128']}", "addresses[0]: it is the loopback address (RFC 4291)"},
		{"a reserved address", "Interface", "{addresses: [240.0.0.1/32]}", "addresses[0]: it is reserved (RFC 1112)"},
		{"link-local addresses", "Interface", "{port: p, addresses: [169.254.0.1/16, 'fe80::1/64']}", ""},
		{"a VLAN of no port", "Interface", "{outerVlan: 1}", "outerVlan: a VLAN without a port"},
		{"a port that is a tunnel", "Interface", "{port: p, ipsecTunnel: t}", "ipsecTunnel: an interface has one type"},
	})
}

func TestEachVLANIsInAListOnce(t *testing.T) {
	for _, c := range []struct {
		outer, inner []string
		field        string
	}{
		{[]string{"100-199", "200", "300-301"}, []string{"1-4094"}, ""},
		{[]string{"100-199", "150"}, nil, "outerVlans[1]"},
		{[]string{"7"}, []string{"1", "2-9", "5-20"}, "innerVlans[2]"},
		{[]string{"7"}, []string{"5", "5", "5"}, "innerVlans[1] innerVlans[2]"},
		{nil, []string{"5"}, "innerVlans"},
	} {
		var fields []string
		CheckVLANRanges(c.outer, c.inner, func(field, _, _, _ string) { fields = append(fields, field) })
		if got := strings.Join(fields, " "); got != c.field {
			t.Errorf("%v %v: %q, and not %q", c.outer, c.inner, got, c.field)
		}
	}
}
