// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"a GRE tunnel", "GreTunnel", "{localAddress: 10.0.0.1, remoteAddress: 10.0.0.2, children: [{tunnel: a}, {tunnel: b, qfis: [1, 5]}]}", ""},
		{"a GRE tunnel between families", "GreTunnel", "{localAddress: 10.0.0.1, remoteAddress: '2001:db8::2', children: [{tunnel: a}]}", "remoteAddress: not of the family of localAddress"},
		{"a GRE tunnel with two default children", "GreTunnel", "{localAddress: 10.0.0.1, remoteAddress: 10.0.0.2, children: [{tunnel: a}, {tunnel: b}]}", "children[1].qfis: children[0] has no QFIs either"},
		{"a GRE tunnel with a QFI twice", "GreTunnel", "{localAddress: 10.0.0.1, remoteAddress: 10.0.0.2, children: [{tunnel: a, qfis: [1]}, {tunnel: b, qfis: [2, 1]}]}", "children[1].qfis[1]: duplicate QFI"},
		{"a GRE tunnel with a child twice", "GreTunnel", "{localAddress: 10.0.0.1, remoteAddress: 10.0.0.2, children: [{tunnel: a, qfis: [1]}, {tunnel: a}]}", "children[1].tunnel: duplicate tunnel"},
	})
}
