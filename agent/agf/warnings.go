// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/object"
)

// addressesOf are those of an Interface in the default VRF, where the ends of GTP-U tunnels are.
func addressesOf(o *object.Object) (all []netip.Addr) {
	if o == nil {
		return nil
	}
	spec, is := o.Spec.(*api.Interface)
	if !is || object.VRFName(spec.GetVrf()) != object.VRFName("") {
		return nil
	}
	for _, text := range spec.GetAddresses() {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Addr())
		}
	}
	return all
}

// Warnings implements service.Warner: lines and 5G residential gateways that an Interface cuts off with its addresses.
func (s *agf) Warnings(k object.Key, o *object.Object) (all []string) {
	if k.Kind != "Interface" {
		return nil
	}
	s.mu.Lock()
	gone := slices.Clone(s.addresses[k.Name])
	// The N2 interface is in the network of the host, which may be that of a port's twin.
	nodes := map[netip.Addr]map[string]bool{}
	for name, n := range s.nodes {
		for _, text := range n.GetLocalAddresses() {
			if a, err := netip.ParseAddr(text); err == nil && n.GetN3IwfId() == 0 {
				if nodes[a] == nil {
					nodes[a] = map[string]bool{}
				}
				nodes[a][name] = true
			}
		}
	}
	agfs := maps.Clone(s.agfs)
	s.mu.Unlock()
	now := addressesOf(o)
	gone = slices.DeleteFunc(gone, func(a netip.Addr) bool { return slices.Contains(now, a) })
	if len(gone) == 0 {
		return nil
	}
	s.do(func() {
		for _, a := range gone {
			sessions := 0
			for _, m := range s.members {
				if m.session != nil && m.session.demand.Address == a {
					sessions++
				}
			}
			for g := range s.gateways.all {
				for _, r := range g.sessions {
					if !r.removed && r.local == a {
						sessions++
					}
				}
			}
			if sessions > 0 {
				all = append(all, fmt.Sprintf("cuts off %s of lines, whose end of GTP-U is %s", command.Plural(sessions, "PDU session", "PDU sessions"), a))
			}
			lines := 0
			for _, one := range s.lines {
				if of := agfs[one.agf]; of != nil && nodes[a][of.Node] {
					lines++
				}
			}
			if lines > 0 {
				all = append(all, fmt.Sprintf("cuts off %s from the core: %s is the N2 address", command.Plural(lines, "line", "lines"), a))
			}
		}
	})
	return all
}
