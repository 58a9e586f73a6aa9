// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of N3iwf that annotations cannot express.
package rules

import (
	"net/netip"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.N3Iwf]{Check: checkN3iwf},
}

// maxChildren are the child SAs of a PDU session for 5QIs of their own.
const maxChildren = 16

func checkN3iwf(n *api.N3Iwf, add object.Report) {
	object.CheckHost("localAddress", n.LocalAddress, add)
	object.CheckHost("nasAddress", n.NasAddress, add)
	object.CheckHost("coreAddress", n.CoreAddress, add)
	rules.CheckProposals("proposals", message.ProtocolIKE, n.Proposals, add)
	rules.CheckProposals("espProposals", message.ProtocolESP, n.EspProposals, add)
	var families []string
	for i, a := range n.UserPlaneAddresses {
		field := "userPlaneAddresses[" + strconv.Itoa(i) + "]"
		object.CheckHost(field, a, add)
		if slices.Contains(families, object.Family(a)) {
			add(field, "a second address of its family", object.Quote(a), "one address of each family")
		}
		families = append(families, object.Family(a))
	}
	nas, _ := netip.ParseAddr(n.NasAddress)
	var pools []netip.Prefix
	for i, text := range n.InnerPools {
		field := "innerPools[" + strconv.Itoa(i) + "]"
		p, err := object.ParseNetwork(text)
		if err != nil {
			continue
		}
		if p.Contains(nas) {
			add(field, "it contains nasAddress", object.Quote(text), "a network without it: UEs get these addresses")
		}
		if p.IsSingleIP() {
			add(field, "it has no address for a UE", object.Quote(text), "a network of several addresses: the first one is no UE's")
		}
		if at := slices.IndexFunc(pools, p.Overlaps); at >= 0 {
			add(field, "it overlaps innerPools["+strconv.Itoa(at)+"]", object.Quote(text), "networks without common addresses")
		}
		pools = append(pools, p)
		if !slices.Contains(families, object.Family(p.Addr().String())) {
			add(field, "no user-plane address of its family", object.Quote(text), "an address of the family in userPlaneAddresses")
		}
	}
	if nas.IsValid() && len(pools) > 0 && !slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Addr().Is4() == nas.Is4() }) {
		add("nasAddress", "no UE has an address of its family", object.Quote(n.NasAddress), "an address of the family of one of innerPools")
	}
	if at := slices.Index(n.UserPlaneAddresses, n.NasAddress); at >= 0 {
		add("userPlaneAddresses["+strconv.Itoa(at)+"]", "it is nasAddress", object.Quote(n.NasAddress), "an address of its own: selectors tell NAS from user planes")
	}
	var marked, own []uint32
	for i, m := range n.Markings {
		if slices.Contains(marked, m.FiveQi) {
			add("markings["+strconv.Itoa(i)+"].fiveQi", "duplicate 5QI", strconv.FormatUint(uint64(m.FiveQi), 10), "each 5QI once")
		}
		marked = append(marked, m.FiveQi)
	}
	for i, fiveQI := range n.ChildFiveQis {
		field := "childFiveQis[" + strconv.Itoa(i) + "]"
		if i == maxChildren {
			add(field, "too many", "", "at most "+strconv.Itoa(maxChildren))
		}
		if slices.Contains(own, fiveQI) {
			add(field, "duplicate 5QI", strconv.FormatUint(uint64(fiveQI), 10), "each 5QI once")
		}
		own = append(own, fiveQI)
	}
}
