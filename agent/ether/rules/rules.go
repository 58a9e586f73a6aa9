// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Interface that annotations cannot express.
package rules

import (
	"net/netip"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// InterfaceType is a type of interface: the device or tunnel below it is an object.
type InterfaceType struct {
	// The field of Interface (api/interface.proto) that names the object.
	Field string
	// Object returns the name; "" of an interface of another type.
	Object func(*api.Interface) string
}

// interfaceTypes are all types. The first is the VLAN of a port.
type interfaceTypes []InterfaceType

// Rules returns the rules of the concept's kinds, with types of interfaces beside VLANs of ports. A type may have rules of Interface beside these.
func Rules(types ...InterfaceType) []object.KindRules {
	all := append(interfaceTypes{{"port", (*api.Interface).GetPort}}, types...)
	return []object.KindRules{
		object.Rules[*api.Interface]{Check: all.checkInterface, Claims: all.claimInterface, Owns: ownInterface, Networks: all.networksOf},
	}
}

func (all interfaceTypes) checkInterface(i *api.Interface, add object.Report) {
	CheckVLANs(i.OuterVlan, i.InnerVlan, "", add)
	if i.Port == "" && i.OuterVlan != 0 {
		add("outerVlan", "a VLAN without a port", strconv.Itoa(int(i.OuterVlan)), "a port, too; or no VLAN: a loopback")
	}
	is := ""
	for _, t := range all {
		name := t.Object(i)
		if name != "" && is != "" {
			add(t.Field, "an interface has one type", object.Quote(name), is+" or "+t.Field+", not both")
		} else if name != "" {
			is = t.Field
		}
	}
	if i.Unnumbered != "" && len(i.Addresses) > 0 {
		add("addresses", "an unnumbered interface has no addresses of its own", strconv.Itoa(len(i.Addresses)), "addresses or unnumbered, not both")
	}
	seen := map[netip.Addr]bool{}
	for n, a := range i.Addresses {
		p, _ := netip.ParsePrefix(a)
		if seen[p.Addr()] {
			add("addresses["+strconv.Itoa(n)+"]", "duplicate address", object.Quote(a), "each address once")
		}
		seen[p.Addr()] = true
		if problem, accepted := object.NotHostIn(p); problem != "" {
			add("addresses["+strconv.Itoa(n)+"]", problem, object.Quote(a), accepted)
		}
	}
}

// linked: the networks of the interface's addresses are reached by it. A loopback has no link.
func (all interfaceTypes) linked(i *api.Interface) bool {
	for _, t := range all {
		if t.Object(i) != "" {
			return true
		}
	}
	return false
}

func (all interfaceTypes) claimInterface(i *api.Interface, c *object.Claimer) {
	if i.Port != "" {
		// PPPoE sessions, and IPoE sessions that are known by their MAC, may be on the same VLAN.
		c.Take(AppendCircuit(c.Words(""), i.Port, i.OuterVlan, i.InnerVlan), "packets without a session", "port", -1)
	}
	linked := all.linked(i)
	var networks []netip.Prefix
	for n, a := range i.Addresses {
		p, err := netip.ParsePrefix(a)
		if err != nil || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			continue
		}
		c.Take(object.AppendDestination(c.Words(""), i.Vrf, netip.PrefixFrom(p.Addr(), p.Addr().BitLen())), "as our own address", "addresses", n)
		if linked && p.Bits() < p.Addr().BitLen() && !slices.Contains(networks, p.Masked()) {
			networks = append(networks, p.Masked())
			c.Take(object.AppendDestination(c.Words(""), i.Vrf, p.Masked()), "as a network of an interface", "addresses", n)
		}
	}
}

// ownInterface returns the interface's own addresses.
func ownInterface(i *api.Interface) []object.Held {
	var all []object.Held
	for n, a := range i.Addresses {
		if p, err := netip.ParsePrefix(a); err == nil && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			all = append(all, object.Held{VRF: object.VRFName(i.Vrf), Prefix: netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), Field: "addresses", Element: n})
		}
	}
	return all
}

// networksOf returns the networks that an interface directly reaches.
func (all interfaceTypes) networksOf(i *api.Interface) []object.Network {
	if !all.linked(i) {
		return nil
	}
	var networks []object.Network
	for _, a := range i.Addresses {
		p, err := netip.ParsePrefix(a)
		if err == nil && p.Bits() < p.Addr().BitLen() && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			networks = append(networks, object.Network{VRF: object.VRFName(i.Vrf), Prefix: p.Masked()})
		}
	}
	return networks
}
