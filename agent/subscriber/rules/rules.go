// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of AddressPool, SubscriberProfile, LocalUser that annotations cannot express.
package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.AddressPool]{Check: checkAddressPool, Claims: claimAddresses, Apart: addressesOf, Local: gatewayOf},
	object.Rules[*api.LocalUser]{Check: checkLocalUser},
	object.Rules[*api.SubscriberProfile]{Check: checkSubscriberProfile, Warn: warnSubscriberProfile, Interrupts: Moves},
}

// ParseRange reads an address ("192.0.2.1"), a network ("192.0.2.0/24") or a range ("192.0.2.10-192.0.2.20"). Of a network, network is
// valid.
func ParseRange(written string) (first, last netip.Addr, network netip.Prefix, err error) {
	none := netip.Addr{}
	if from, to, is := strings.Cut(written, "-"); is {
		first, err = netip.ParseAddr(from)
		if err == nil {
			last, err = netip.ParseAddr(to)
		}
		switch {
		case err != nil:
			return none, none, network, fmt.Errorf("not a range of addresses")
		case first.Zone() != "" || last.Zone() != "" || first.Is4In6() || last.Is4In6():
			return none, none, network, fmt.Errorf("an address with a zone, or an IPv4 address in IPv6")
		case first.Is4() != last.Is4():
			return none, none, network, fmt.Errorf("addresses of two families")
		case last.Less(first):
			return none, none, network, fmt.Errorf("ends before it begins")
		}
		return first, last, network, nil
	}
	if strings.Contains(written, "/") {
		network, err = netip.ParsePrefix(written)
		switch {
		case err != nil || network.Addr().Is4In6():
			return none, none, netip.Prefix{}, fmt.Errorf("not a network")
		case network != network.Masked():
			return none, none, netip.Prefix{}, fmt.Errorf("bits are set after the prefix")
		}
		return network.Addr(), object.LastAddress(network), network, nil
	}
	first, err = netip.ParseAddr(written)
	if err != nil || first.Zone() != "" || first.Is4In6() {
		return none, none, network, fmt.Errorf("not an address")
	}
	return first, first, network, nil
}

const rangeAccepted = `an address, a network ("100.64.0.0/22") or a range ("100.64.0.10-100.64.0.99")`

func checkAddressPool(p *api.AddressPool, add object.Report) {
	four, known := false, false
	for i, written := range p.Ranges {
		field := "ranges[" + strconv.Itoa(i) + "]"
		first, last, network, err := ParseRange(written)
		if err != nil {
			add(field, err.Error(), object.Quote(written), rangeAccepted)
			continue
		}
		if !known {
			four, known = first.Is4(), true
		}
		switch what := object.NotForwarded(netip.PrefixFrom(first, first.BitLen())); {
		case first.Is4() != four:
			add(field, "of another family than ranges[0]", object.Quote(written), "a pool for each family")
		case what != "":
			add(field, "it is "+what, object.Quote(written), "unicast addresses")
		case p.PrefixLength != 0 && !first.Is4() && !network.IsValid():
			add(field, "not a network", object.Quote(written), "a network: with prefixLength the pool gives prefixes")
		case p.PrefixLength != 0 && network.IsValid() && int(p.PrefixLength) < network.Bits():
			add(field, "prefixLength is less than the length of the network", object.Quote(written), "a network of at most /"+strconv.Itoa(int(p.PrefixLength)))
		}
		for n, before := range p.Ranges[:i] {
			from, to, _, err := ParseRange(before)
			if err == nil && !last.Less(from) && !to.Less(first) {
				add(field, "overlaps ranges["+strconv.Itoa(n)+"]", object.Quote(written), "each address once")
			}
		}
	}
	if known && four && p.PrefixLength != 0 {
		add("prefixLength", "of use for IPv6 alone", strconv.Itoa(int(p.PrefixLength)), "to leave it out")
	}
	for i, written := range p.Excluded {
		first, _, _, err := ParseRange(written)
		switch {
		case err != nil:
			add("excluded["+strconv.Itoa(i)+"]", err.Error(), object.Quote(written), rangeAccepted)
		case known && first.Is4() != four:
			add("excluded["+strconv.Itoa(i)+"]", "of another family than ranges[0]", object.Quote(written), "addresses of the pool")
		}
	}
	if p.Gateway != "" {
		object.CheckHost("gateway", p.Gateway, add)
		if object.Family(p.Gateway) != "IPv4" || known && !four {
			add("gateway", "of use for IPv4 alone", object.Quote(p.Gateway), "to leave it out: IPv6 subscribers use our link-local address")
		}
	}
	for i, server := range p.Dns {
		object.CheckHost("dns["+strconv.Itoa(i)+"]", server, add)
	}
}

// poolAddresses returns the addresses that a pool of acceptable ranges gives, or has prefixes in: its ranges without what it excludes. Also the first and
// the last address of an IPv4 network count.
func poolAddresses(p *api.AddressPool) (all []object.HeldAddresses) {
	for i, written := range p.Ranges {
		if first, last, _, err := ParseRange(written); err == nil {
			all = append(all, object.HeldAddresses{First: first, Last: last, Text: written, Field: "ranges[" + strconv.Itoa(i) + "]"})
		}
	}
	for _, written := range append(slices.Clone(p.Excluded), p.Gateway) {
		first, last, _, err := ParseRange(written)
		if err != nil {
			continue
		}
		var rest []object.HeldAddresses
		for _, a := range all {
			if last.Less(a.First) || a.Last.Less(first) {
				rest = append(rest, a)
				continue
			}
			before, after := a, a
			before.Last, after.First = first.Prev(), last.Next()
			if a.First.Less(first) {
				rest = append(rest, before)
			}
			if last.Less(a.Last) {
				rest = append(rest, after)
			}
		}
		all = rest
	}
	return all
}

// poolsOf is what the pools of a VRF have parts of.
func poolsOf(p *api.AddressPool, first netip.Addr) string {
	family := "IPv6"
	if first.Is4() {
		family = "IPv4"
	}
	return "VRF " + orDefault(p.Vrf) + ", " + family + " addresses of pools"
}

func orDefault(vrf string) string {
	if vrf == "" {
		return "default"
	}
	return vrf
}

// claimAddresses claims the first address for the pool alone, and a part of the VRF's addresses.
func claimAddresses(p *api.AddressPool, c *object.Claimer) {
	all := poolAddresses(p)
	if len(all) == 0 {
		return
	}
	c.Apart = true
	least := slices.MinFunc(all, func(a, b object.HeldAddresses) int { return a.First.Compare(b.First) })
	c.Take(append(c.Words(""), poolsOf(p, least.First)...), "from "+least.First.String(), least.Field, -1)
}

// addressesOf are the pool's addresses, which no other pool of its VRF may have: which of the two has an address would depend on who asks first.
func addressesOf(p *api.AddressPool) *object.Shared {
	all := poolAddresses(p)
	if len(all) == 0 {
		return nil
	}
	return &object.Shared{Of: []string{poolsOf(p, all[0].First)}, Addresses: all, Noun: "the same VRF",
		Accepted: "addresses that no other pool of the VRF has, or that one of the two excludes"}
}

// gatewayOf is the gateway of the pool's subscribers.
func gatewayOf(p *api.AddressPool) []object.Held {
	gateway, err := netip.ParseAddr(p.Gateway)
	if err != nil {
		return nil
	}
	return []object.Held{{VRF: orDefault(p.Vrf), Prefix: netip.PrefixFrom(gateway, gateway.BitLen()), Field: "gateway", Element: -1}}
}

// BackEnds are the names of back ends that a profile may name, for authentication and for accounting.
var (
	authenticationBackEnds = []string{"radius", "local", core, "none"}
	accountingBackEnds     = []string{"radius", core}
)

// core is the back end whose sessions have tunnels to a 5G core.
const core = "core"

// ByCore reports whether a 5G core gives some, and all of the sessions of a profile.
func ByCore(p *api.SubscriberProfile) (some, all bool) {
	further := slices.Contains(p.Authorization, core)
	some = further || slices.Contains(p.Authentication, core)
	return some, further || some && len(p.Authentication) == 1
}

// Moves reports whether a change of a profile may move lines between BNG and AGF service. Their sessions end, and subscribers dial in anew.
func Moves(before, after *api.SubscriberProfile) bool {
	some, all := ByCore(before)
	someAfter, allAfter := ByCore(after)
	return some && !someAfter || !all && allAfter
}

// usernameWords are the placeholders of a profile's username.
var usernameWords = []string{"port", "outer", "inner", "mac", "circuit", "remote", "protocol"}

func checkSubscriberProfile(p *api.SubscriberProfile, add object.Report) {
	each := func(field string, names, accepted []string) {
		for i, name := range names {
			at := field + "[" + strconv.Itoa(i) + "]"
			switch {
			case !slices.Contains(accepted, name):
				add(at, "no such back end", object.Quote(name), strings.Join(accepted, ", "))
			case slices.Contains(names[:i], name):
				add(at, "duplicate back end", object.Quote(name), "each back end once")
			}
		}
	}
	each("authentication", p.Authentication, authenticationBackEnds)
	each("accounting", p.Accounting, accountingBackEnds)
	if i := slices.Index(p.Authentication, "none"); i >= 0 && i != len(p.Authentication)-1 {
		add("authentication["+strconv.Itoa(i)+"]", "back ends after it are never asked", object.Quote("none"), "none as the last one")
	}
	for _, of := range []struct {
		field string
		names []string
	}{{"ipv4Pools", p.Ipv4Pools}, {"ipv6Pools", p.Ipv6Pools}, {"delegatedPools", p.DelegatedPools}} {
		for i, name := range of.names {
			if slices.Contains(of.names[:i], name) {
				add(of.field+"["+strconv.Itoa(i)+"]", "duplicate pool", object.Quote(name), "each pool once")
			}
		}
	}
	for i, server := range p.Dns {
		object.CheckHost("dns["+strconv.Itoa(i)+"]", server, add)
	}
	if p.Gateway != "" {
		object.CheckHost("gateway", p.Gateway, add)
		if object.Family(p.Gateway) != "IPv4" {
			add("gateway", "not an IPv4 address", object.Quote(p.Gateway), "an IPv4 address")
		}
	}
	if problem := object.CheckTemplate(p.Username, usernameWords); problem != "" {
		add("username", problem, object.Quote(p.Username), "text with {"+strings.Join(usernameWords, "}, {")+"} in it; at most 128 characters")
	}
}

// warnSubscriberProfile: a QosProfile without a QosGroup is of use only to subscribers whose back end names a group.
func warnSubscriberProfile(p *api.SubscriberProfile, report object.Report) {
	for _, of := range []struct{ profile, group, up string }{
		{p.Policy.GetQosProfile(), p.Policy.GetQosGroup(), ""}, {p.Policy.GetQosProfileUp(), p.Policy.GetQosGroupUp(), "Up"},
	} {
		if of.profile != "" && of.group == "" {
			report("policy.qosGroup"+of.up, "missing beside policy.qosProfile"+of.up+": a subscriber has no queues unless its back end names a QosGroup", "",
				"the name of a QosGroup")
		}
	}
	if slices.Contains(p.Authentication, core) && p.Username == "" {
		report("username", "a PPPoE host chooses its own name, and nothing checks it before the core has it as the line's", "",
			"\"{port}:{outer}.{inner}\", or another back end in authentication, with the core in authorization")
	}
}

func checkLocalUser(u *api.LocalUser, add object.Report) {
	if len(u.Username) > 253 {
		add("username", "too long", strconv.Itoa(len(u.Username))+" bytes", "at most 253 bytes")
	}
	if len(u.Password) > 128 {
		add("password", "too long", "(secret)", "at most 128 bytes")
	}
	for _, of := range []struct{ field, written, family string }{
		{"ipv4Address", u.Ipv4Address, "IPv4"}, {"ipv6Address", u.Ipv6Address, "IPv6"},
	} {
		if of.written == "" {
			continue
		}
		object.CheckHost(of.field, of.written, add)
		if object.Family(of.written) != of.family {
			add(of.field, "not an "+of.family+" address", object.Quote(of.written), "an "+of.family+" address")
		}
	}
	for _, of := range []struct{ field, written string }{{"ipv6Prefix", u.Ipv6Prefix}, {"delegatedPrefix", u.DelegatedPrefix}} {
		if of.written != "" && object.Family(of.written) != "IPv6" {
			add(of.field, "not an IPv6 prefix", object.Quote(of.written), "an IPv6 prefix")
		}
	}
	for i, server := range u.Dns {
		object.CheckHost("dns["+strconv.Itoa(i)+"]", server, add)
	}
	for i, route := range u.Routes {
		if slices.Contains(u.Routes[:i], route) {
			add("routes["+strconv.Itoa(i)+"]", "duplicate network", object.Quote(route), "each network once")
		}
		if n, err := object.ParseNetwork(route); err == nil && n.Bits() == 0 {
			add("routes["+strconv.Itoa(i)+"]", "all addresses", object.Quote(route), "the networks behind the subscriber")
		}
	}
}
