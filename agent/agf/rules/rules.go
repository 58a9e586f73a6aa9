// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Agf that annotations cannot express.
package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	n2 "sluice.dev/sluice/agent/n2/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.Agf]{Check: checkAgf, Local: localAddress},
}

// localAddress is our end of tunnels to UPFs.
func localAddress(a *api.Agf) []object.Held {
	address, err := netip.ParseAddr(a.CoreAddress)
	if err != nil || address.IsLinkLocalUnicast() {
		return nil
	}
	return []object.Held{{VRF: object.VRFName(""), Prefix: netip.PrefixFrom(address, address.BitLen()), Field: "coreAddress", Element: -1}}
}

func checkAgf(a *api.Agf, add object.Report) {
	object.CheckHost("coreAddress", a.CoreAddress, add)
	if a.Dnn != "" && (len(a.Dnn) > 99 || slices.ContainsFunc(strings.Split(a.Dnn, "."), func(label string) bool { return label == "" || len(label) > 63 })) {
		add("dnn", "not a data network name", object.Quote(a.Dnn), "labels of 1 to 63 characters, at most 99 characters")
	}
	if a.Slice != nil {
		n2.CheckSlice("slice", a.Slice, add)
	}
	if a.DelegatedPrefixLength != 0 && a.PduSessionType == api.PduSessionType_IPV4 {
		add("delegatedPrefixLength", "a prefix for the home without IPv6", strconv.Itoa(int(a.DelegatedPrefixLength)), "pduSessionType IPV6 or IPV4V6, or no length")
	}
	var marked []uint32
	for i, m := range a.Markings {
		if slices.Contains(marked, m.FiveQi) {
			add("markings["+strconv.Itoa(i)+"].fiveQi", "duplicate 5QI", strconv.FormatUint(uint64(m.FiveQi), 10), "each 5QI once")
		}
		marked = append(marked, m.FiveQi)
	}
}
