// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"flows of their own", "FlowProfile", "{rules: [{precedence: 1, qfi: 5, filters: [{protocol: udp, remotePorts: 5060, remote: 198.51.100.0/24}]}, {precedence: 255, qfi: 9}], flows: [{qfi: 5, dscp: ef, class: 1, priority: 5}]}", ""},
		{"two rules of one precedence", "FlowProfile", "{rules: [{qfi: 1}, {qfi: 2}]}", "rules[1].precedence: rules[0] has it already"},
		{"a rule where derived ones are", "FlowProfile", "{rules: [{precedence: 80}]}", "rules[0].precedence: reserved for rules that reflective QoS derives"},
		{"a rule of a QFI that there is not", "FlowProfile", "{rules: [{qfi: 64}]}", "rules[0].qfi: out of range"},
		{"one flow twice", "FlowProfile", "{flows: [{qfi: 1}, {qfi: 1}]}", "flows[1].qfi: duplicate QFI"},
		{"ends of two families", "FlowProfile", "{rules: [{filters: [{local: 10.0.0.0/8, remote: '2001:db8::/32'}]}]}", "rules[0].filters[0].remote: not of the family of local"},
		{"a port of anything", "FlowProfile", "{rules: [{filters: [{localPorts: 5}]}]}", "rules[0].filters[0].localPorts: ports of a protocol without ports"},
		{"a flow label of IPv4", "FlowProfile", "{rules: [{filters: [{local: 10.0.0.0/8, flowLabel: 5}]}]}", "rules[0].filters[0].flowLabel: only IPv6 has flow labels"},
		{"a security parameter index of TCP", "FlowProfile", "{rules: [{filters: [{protocol: tcp, spi: 5}]}]}", "rules[0].filters[0].spi: a security parameter index of a protocol that is not ESP"},
	})
}
