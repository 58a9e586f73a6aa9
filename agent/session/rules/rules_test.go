// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules(), []objecttest.Case{
		{"an inner VLAN alone", "Session", "{access: {port: p, innerVlan: 1}}", "access.innerVlan: an inner VLAN without an outer one"},
		{"a session without access", "Session", "{}", "access: missing"},
		{"a subscriber's loopback address", "Session", "{access: {port: p}, addresses: [127.0.0.1/32]}",
			"addresses[0]: nothing is forwarded to it: it is loopback (RFC 1122)"},
		{"a subscriber's multicast addresses", "Session", "{access: {port: p}, addresses: ['ff00::/8']}", "addresses[0]: nothing is forwarded to it: it is multicast (RFC 4291)"},
		{"any source of a PDU session", "Session", "{access: {port: p, pduSessionId: 1}, policy: {anySource: true}}", "policy.anySource: sessions with an access.pduSessionId are distinguished by their source"},
		{"a PDU session that there is not", "Session", "{access: {port: p, pduSessionId: 16}}", "access.pduSessionId: out of range"},
		{"a prefix twice", "Session", "{access: {port: p}, addresses: [100.64.0.1/32, 100.64.0.1/32]}", "addresses[1]: duplicate prefix"},
		{"all addresses", "Session", "{access: {port: p}, addresses: ['::/0']}", "addresses[0]: all addresses: found \"::/0\"; accepted: the subscriber's own"},
		{"a session on a GRE tunnel and a VLAN", "Session", "{access: {greTunnel: g, outerVlan: 5}}", "access.outerVlan: an access by access.greTunnel has none"},
		{"a session on nothing", "Session", "{access: {outerVlan: 5}}", "access.port: missing"},
		{"more prefixes than fit", "Session", "{access: {port: p}, addresses: [" + strings.Repeat("10.0.0.0/8,", 65) + "]}", "addresses: wrong number of elements"},
	})
}
