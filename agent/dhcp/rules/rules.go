// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of DhcpRelay that annotations cannot express.
package rules

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	hqos "sluice.dev/sluice/agent/hqos/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.DhcpRelay]{Check: checkDhcpRelay, Claims: func(r *api.DhcpRelay, c *object.Claimer) { circuits(r).Claim(c) },
		Apart: func(r *api.DhcpRelay) *object.Shared { return circuits(r).Shared() }},
}

// circuits are those of a relay, with the protocols of its Punt.
func circuits(r *api.DhcpRelay) ether.Circuits {
	c := ether.Circuits{Port: r.Port, Outer: r.OuterVlans, Inner: r.InnerVlans}
	if slices.ContainsFunc(r.Servers, func(s string) bool { return object.Family(s) == "IPv4" }) {
		c.Protocols = append(c.Protocols, "DHCPv4")
	}
	if r.Uplink != "" || slices.ContainsFunc(r.Servers, func(s string) bool { return object.Family(s) == "IPv6" }) {
		c.Protocols = append(c.Protocols, "DHCPv6")
	}
	return c
}

func checkDhcpRelay(r *api.DhcpRelay, add object.Report) {
	ether.CheckVLANRanges(r.OuterVlans, r.InnerVlans, add)
	hqos.CheckPair(r.Policy.GetQosProfile(), r.Policy.GetQosGroup(), "", add)
	hqos.CheckPair(r.Policy.GetQosProfileUp(), r.Policy.GetQosGroupUp(), "Up", add)
	families := map[string]bool{}
	if len(r.Servers) == 0 && r.Uplink == "" {
		add("servers", object.Missing, "", "an address of a DHCP server, or uplink")
	}
	for i, server := range r.Servers {
		field := "servers[" + strconv.Itoa(i) + "]"
		object.CheckHost(field, server, add)
		if slices.Contains(r.Servers[:i], server) {
			add(field, "duplicate server", object.Quote(server), "each server once")
		}
		if a, err := netip.ParseAddr(server); err == nil && a.IsLinkLocalUnicast() {
			add(field, "a link-local address", object.Quote(server), "an address that the VRF routes")
		}
		families[object.Family(server)] = true
	}
	for _, of := range []struct{ field, address, family string }{
		{"giaddr", r.Giaddr, "IPv4"}, {"linkAddress", r.LinkAddress, "IPv6"},
	} {
		switch {
		case of.address == "" && r.Interface == "" && families[of.family]:
			add(of.field, object.Missing, "", "an "+of.family+" address of an Interface, or interface")
		case of.address == "":
		case object.Family(of.address) != of.family:
			add(of.field, "not an "+of.family+" address", object.Quote(of.address), "an "+of.family+" address")
		default:
			object.CheckHost(of.field, of.address, add)
			if a, err := netip.ParseAddr(of.address); err == nil && a.IsLinkLocalUnicast() {
				add(of.field, "a link-local address", object.Quote(of.address), "an address that servers can reach")
			}
		}
	}
	switch {
	case r.Uplink == "":
	case families["IPv6"]:
		add("uplink", "beside IPv6 servers", object.Quote(r.Uplink), "servers of IPv4, or no uplink: a lightweight relay agent sends to all servers of its link")
	case r.LinkAddress != "":
		add("linkAddress", "beside uplink", object.Quote(r.LinkAddress), "no linkAddress: a lightweight relay agent names no link")
	}
	if r.Profile != "" && r.Policy != nil {
		add("policy", "beside profile", "", "the policy of the SubscriberProfile")
	}
	checkOptionRules(r.Options, add)
	for _, of := range []struct{ field, template string }{{"circuitId", r.CircuitId}, {"remoteId", r.RemoteId}} {
		if problem := checkTemplate(of.template); problem != "" {
			add(of.field, problem, object.Quote(of.template), "text with {relay}, {port}, {outer}, {inner} and {mac} in it; at most 128 characters")
		}
	}
}

// checkOptionRules checks the rules for DHCPv4 options of a relay.
func checkOptionRules(rules []*api.DhcpOptionRule, add object.Report) {
	lengths := map[api.DhcpDirection]int{}
	for i, o := range rules {
		field := "options[" + strconv.Itoa(i) + "]"
		value, err := hex.DecodeString(o.Hex)
		switch {
		case o.Code >= 50 && o.Code <= 54:
			add(field+".code", "part of the exchange itself", strconv.Itoa(int(o.Code)), "another option than 50 to 54")
		case o.Code == 82:
			add(field+".code", "relay information", "82", "relayInformation")
		case o.Code == 61 && o.Direction == api.DhcpDirection_TO_CLIENT:
			add(field+".code", "the client's own in answers (RFC 6842)", "61", "another option, or direction to_server")
		case slices.ContainsFunc(rules[:i], func(other *api.DhcpOptionRule) bool { return other.Code == o.Code && other.Direction == o.Direction }):
			add(field+".code", "duplicate option", strconv.Itoa(int(o.Code)), "one rule for each option and direction")
		}
		switch {
		case o.Action == api.DhcpOptionAction_DROP_OPTION && (o.Text != "" || o.Hex != ""):
			add(field+".action", "a value for an option that is removed", "drop_option", "no text and no hex, or replace_option or set_option")
		case o.Action != api.DhcpOptionAction_DROP_OPTION && o.Text == "" && o.Hex == "":
			add(field+".text", object.Missing, "", "the option's value, as text or as hex")
		case o.Text != "" && o.Hex != "":
			add(field+".hex", "beside text", object.Quote(o.Hex), "one of text and hex")
		case err != nil || len(value) > 255:
			add(field+".hex", "not a value of an option", object.Quote(o.Hex), "an even number of hexadecimal digits, 510 at most")
		}
		if problem := checkTemplate(o.Text); problem != "" {
			add(field+".text", problem, object.Quote(o.Text), "text with {relay}, {port}, {outer}, {inner} and {mac} in it; at most 128 characters")
		}
		if lengths[o.Direction] += len(o.Text) + len(value); lengths[o.Direction] > 512 {
			add(field, "beyond 512 bytes with the rules before it", strconv.Itoa(lengths[o.Direction])+" bytes", "shorter values: an answer is one packet")
			return
		}
	}
}

// templateWords are the placeholders of the identifiers that a relay adds.
var templateWords = []string{"relay", "port", "outer", "inner", "mac"}

func checkTemplate(template string) string { return object.CheckTemplate(template, templateWords) }
