// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of AccessNode, Amf, CoreSubscriber that annotations cannot express.
package rules

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.AccessNode]{Check: checkAccessNode},
	object.Rules[*api.Amf]{Check: checkAmf},
	object.Rules[*api.CoreSubscriber]{Check: checkCoreSubscriber, Claims: claimIMSI},
}

func checkAccessNode(n *api.AccessNode, add object.Report) {
	checkPLMN("plmn", n.Plmn, add)
	printable := func(r rune) bool {
		return strings.ContainsRune(" '()+,-./:0123456789=?", r) || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if len(n.NodeName) > 150 || strings.ContainsFunc(n.NodeName, func(r rune) bool { return !printable(r) }) {
		add("nodeName", "not a RAN Node Name", object.Quote(n.NodeName), "at most 150 letters, digits, spaces and '()+,-./:=?")
	}
	families(n.LocalAddresses, "localAddresses", add)
	type area struct {
		tac  uint32
		plmn string
	}
	var seen []area
	for i, a := range n.TrackingAreas {
		at := "trackingAreas[" + strconv.Itoa(i) + "]"
		if a.Plmn != "" {
			checkPLMN(at+".plmn", a.Plmn, add)
		}
		this := area{a.Tac, a.Plmn}
		if slices.Contains(seen, this) {
			add(at, "duplicate tracking area", strconv.FormatUint(uint64(a.Tac), 10), "each tracking area once")
		}
		seen = append(seen, this)
		for j, s := range a.Slices {
			CheckSlice(at+".slices["+strconv.Itoa(j)+"]", s, add)
		}
	}
}

// CheckSlice reports a slice differentiator that is none.
func CheckSlice(at string, s *api.Slice, add object.Report) {
	if _, err := strconv.ParseUint(s.Sd, 16, 24); s.Sd != "" && (err != nil || len(s.Sd) != 6) {
		add(at+".sd", "not a slice differentiator", object.Quote(s.Sd), "six hexadecimal digits")
	}
}

func checkPLMN(field, plmn string, add object.Report) {
	if plmn == "" {
		return
	}
	if len(plmn) != 5 && len(plmn) != 6 || strings.Trim(plmn, "0123456789") != "" {
		add(field, "not a PLMN", object.Quote(plmn), `5 or 6 digits, such as "00101"`)
	}
}

// families: one address twice is a mistake, and so are addresses that no association can have.
func families(all []string, field string, add object.Report) {
	for i, a := range all {
		at := field + "[" + strconv.Itoa(i) + "]"
		object.CheckHost(at, a, add)
		if slices.Contains(all[:i], a) {
			add(at, "duplicate address", object.Quote(a), "each address once")
		}
	}
}

func checkAmf(a *api.Amf, add object.Report) {
	families(a.Addresses, "addresses", add)
}

// claimIMSI: a subscription is of one line.
func claimIMSI(s *api.CoreSubscriber, c *object.Claimer) {
	if s.Imsi != "" {
		c.Take(append(c.Words("IMSI "), s.Imsi...), "", "imsi", -1)
	}
}

func checkCoreSubscriber(c *api.CoreSubscriber, add object.Report) {
	digits := func(field, text string, least, most int) {
		if text != "" && (strings.Trim(text, "0123456789") != "" || len(text) < least || len(text) > most) {
			add(field, "not digits", object.Quote(text), strconv.Itoa(least)+" to "+strconv.Itoa(most)+" digits")
		}
	}
	digits("imsi", c.Imsi, 6, 15)
	digits("routingIndicator", c.RoutingIndicator, 1, 4)
	for _, of := range []struct{ field, text string }{{"key", c.Key}, {"opc", c.Opc}} {
		if octets, err := hex.DecodeString(of.text); of.text != "" && (err != nil || len(octets) != 16) {
			// A secret is not shown.
			add(of.field, "not a key", "", "32 hexadecimal digits")
		}
	}
	octets, err := hex.DecodeString(c.HomeNetworkKey)
	length := map[api.SuciScheme][]int{api.SuciScheme_NULL_SCHEME: {0}, api.SuciScheme_PROFILE_A: {32}, api.SuciScheme_PROFILE_B: {33, 65}}[c.Scheme]
	if err != nil || !slices.Contains(length, len(octets)) {
		add("homeNetworkKey", "not a public key of the scheme", object.Quote(c.HomeNetworkKey), "hexadecimal: 32 bytes with PROFILE_A, 33 or 65 with PROFILE_B, none with NULL_SCHEME")
	}
}
