// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of RadiusServer, RadiusPolicy that annotations cannot express.
package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.RadiusPolicy]{Check: checkRadiusPolicy},
	object.Rules[*api.RadiusServer]{Check: checkRadiusServer},
}

func checkRadiusServer(s *api.RadiusServer, add object.Report) {
	object.CheckHost("address", s.Address, add)
	if s.SourceAddress != "" {
		object.CheckHost("sourceAddress", s.SourceAddress, add)
		object.CheckSameFamily("sourceAddress", s.SourceAddress, "address", s.Address, "address", add)
	}
}

// radiusWords are the placeholders of a RadiusPolicy's templates.
var radiusWords = []string{
	"username", "mac", "mac-hyphens", "mac-plain", "dataplane", "port", "outer", "inner", "circuit-id", "remote-id", "service", "profile", "protocol",
}

func checkRadiusPolicy(p *api.RadiusPolicy, add object.Report) {
	for _, of := range []struct {
		field   string
		choices []*api.RadiusChoice
	}{{"authentication", p.Authentication}, {"accounting", p.Accounting}} {
		var names []string
		for i, c := range of.choices {
			if slices.Contains(names, c.Server) {
				add(of.field+"["+strconv.Itoa(i)+"].server", "duplicate server", object.Quote(c.Server), "each server once")
			}
			names = append(names, c.Server)
		}
	}
	for _, of := range []struct{ field, address, family string }{
		{"nasIpAddress", p.NasIpAddress, "IPv4"}, {"nasIpv6Address", p.NasIpv6Address, "IPv6"},
	} {
		if of.address != "" && object.Family(of.address) != of.family {
			add(of.field, "not an "+of.family+" address", object.Quote(of.address), "an "+of.family+" address")
		}
	}
	if len(p.NasIdentifier) > 253 {
		add("nasIdentifier", "too long", "", "at most 253 octets")
	}
	for _, of := range []struct{ field, template string }{
		{"userName", p.UserName}, {"nasPortId", p.NasPortId}, {"callingStationId", p.CallingStationId}, {"calledStationId", p.CalledStationId},
	} {
		if problem := object.CheckTemplate(of.template, radiusWords); problem != "" {
			add(of.field, problem, object.Quote(of.template), "text with {"+strings.Join(radiusWords, "}, {")+"} in it; at most 128 characters")
		}
	}
	for i, m := range p.Attributes {
		if m.Vendor == 0 && m.Type == 26 {
			add("attributes["+strconv.Itoa(i)+"].type", "Vendor-Specific itself", "26", "a vendor and its type, or another type")
		}
		if m.Vendor == 0 && m.Type == 80 {
			add("attributes["+strconv.Itoa(i)+"].type", "Message-Authenticator", "80", "another type")
		}
	}
	for i, c := range p.DynamicAuthorization.GetClients() {
		if prefix, err := netip.ParsePrefix(c.Addresses); err == nil && prefix.Addr().IsMulticast() {
			add("dynamicAuthorization.clients["+strconv.Itoa(i)+"].addresses", "multicast", object.Quote(c.Addresses), "unicast addresses")
		}
	}
}
