// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of IpoeServer that annotations cannot express.
package rules

import (
	"encoding/hex"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.IpoeServer]{Check: checkIpoeServer, Claims: func(s *api.IpoeServer, c *object.Claimer) { circuits(s).Claim(c) },
		Apart: func(s *api.IpoeServer) *object.Shared { return circuits(s).Shared() },
		// Sessions of circuits that the server has no more end.
		Interrupts: func(before, after *api.IpoeServer) bool { return !circuits(before).Within(circuits(after)) }},
}

// circuits are those of a server, with the protocols of its Punt.
func circuits(s *api.IpoeServer) ether.Circuits {
	c := ether.Circuits{Port: s.Port, Outer: s.OuterVlans, Inner: s.InnerVlans}
	is := func(m api.IpoeMethod) bool { return slices.Contains(s.Methods, m) }
	if len(s.Methods) == 0 || is(api.IpoeMethod_IPOE_DHCP4) {
		c.Protocols = append(c.Protocols, "DHCPv4")
	}
	if len(s.Methods) == 0 || is(api.IpoeMethod_IPOE_DHCP6) {
		c.Protocols = append(c.Protocols, "DHCPv6")
	}
	if len(s.Methods) == 0 || is(api.IpoeMethod_IPOE_DHCP6) || is(api.IpoeMethod_IPOE_FIRST_PACKET) || is(api.IpoeMethod_IPOE_SLAAC) {
		c.Protocols = append(c.Protocols, "neighbour discovery")
	}
	if is(api.IpoeMethod_IPOE_FIRST_PACKET) || is(api.IpoeMethod_IPOE_SLAAC) {
		c.Protocols = append(c.Protocols, "first packets")
	}
	return c
}

func checkIpoeServer(s *api.IpoeServer, add object.Report) {
	ether.CheckVLANRanges(s.OuterVlans, s.InnerVlans, add)
	for i, method := range s.Methods {
		if slices.Contains(s.Methods[:i], method) {
			add("methods["+strconv.Itoa(i)+"]", "duplicate method", method.String(), "each method once")
		}
	}
	if s.ServerAddress != "" {
		object.CheckHost("serverAddress", s.ServerAddress, add)
		if object.Family(s.ServerAddress) != "IPv4" {
			add("serverAddress", "not an IPv4 address", object.Quote(s.ServerAddress), "an IPv4 address")
		}
	}
	for i, route := range s.Routes {
		if object.Family(route) != "IPv4" {
			add("routes["+strconv.Itoa(i)+"]", "not an IPv4 network", object.Quote(route), "an IPv4 network")
		}
	}
	checkOptions(s.Options, add)
	if len(s.Domain) > 253 {
		add("domain", "too long", strconv.Itoa(len(s.Domain))+" characters", "at most 253 characters")
	}
}

// ownOption reports whether the server makes an option itself, and what to write instead.
func ownOption(code uint32) (instead string, own bool) {
	switch {
	case code == 1:
		return "prefixLength", true
	case code == 3:
		return "gateway of the AddressPool or SubscriberProfile", true
	case code == 6:
		return "dns of the AddressPool or SubscriberProfile", true
	case code == 15:
		return "domain", true
	case code == 26:
		return "mtu of the policy of the SubscriberProfile", true
	case code == 51:
		return "leaseTime", true
	case code == 54:
		return "serverAddress", true
	case code >= 50 && code <= 59, code == 61, code == 82:
		return "no option of the exchange itself", true
	case code == 121:
		return "routes", true
	}
	return "", false
}

func checkOptions(options []*api.IpoeOption, add object.Report) {
	length := 0
	for i, o := range options {
		field := "options[" + strconv.Itoa(i) + "]"
		value, err := hex.DecodeString(o.Hex)
		if instead, own := ownOption(o.Code); own {
			add(field+".code", "an option that the server makes itself", strconv.Itoa(int(o.Code)), instead)
		} else if slices.ContainsFunc(options[:i], func(other *api.IpoeOption) bool { return other.Code == o.Code }) {
			add(field+".code", "duplicate option", strconv.Itoa(int(o.Code)), "each option once")
		}
		if o.Hex != "" && (err != nil || len(value) > 255) {
			add(field+".hex", "not a value of an option", object.Quote(o.Hex), "an even number of hexadecimal digits, 510 at most")
		}
		if length += 2 + len(value); length > 512 {
			add(field, "beyond 512 bytes with the options before it", strconv.Itoa(length)+" bytes", "shorter values: an answer is one packet")
			return
		}
	}
}
