// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Punt that annotations cannot express.
package rules

import (
	"strconv"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.Punt]{Check: checkPunt},
}

func checkPunt(p *api.Punt, add object.Report) {
	ether.CheckVLANRanges(p.OuterVlans, p.InnerVlans, add)
	seen := map[api.PuntProtocol]bool{}
	for i, protocol := range p.Protocols {
		if seen[protocol] {
			add("protocols["+strconv.Itoa(i)+"]", "duplicate protocol", protocol.String(), "each protocol once")
		}
		seen[protocol] = true
	}
}
