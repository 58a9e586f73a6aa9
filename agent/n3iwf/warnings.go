// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/object"
)

// Warnings implements service.Warner: UEs that a change of an N3iwf disconnects, and those that an Interface cuts off with its addresses.
func (s *serving) Warnings(k object.Key, o *object.Object) (all []string) {
	there := false
	s.verdicts.Range(func(_, _ any) bool {
		there = true
		return false
	})
	if !there || k.Kind != "N3iwf" && k.Kind != "Interface" {
		return nil
	}
	texts := make(chan []string, 1)
	s.post(func() {
		if k.Kind == "Interface" {
			texts <- s.cutOff(k.Name, addressesOf(o))
			return
		}
		var found []string
		if ends := s.endedBy(k, o); len(ends) > 0 {
			found = append(found, "disconnects "+command.Plural(len(ends), "UE", "UEs"))
		}
		texts <- found
	})
	select {
	case all = <-texts:
	case <-time.After(foretold):
		// It is not known.
	}
	return all
}

// endedBy are the UEs that end when an N3iwf becomes o; nil: when it is deleted.
func (s *serving) endedBy(k object.Key, o *object.Object) (ends []*ue) {
	before, after := s.instances[k.Name], &instance{}
	if o != nil {
		after.spec, _ = o.Spec.(*api.N3Iwf)
		after.plane = o.Labels["dataplane"]
		_ = after.addresses()
	}
	if before == nil {
		return nil
	}
	for u := range before.ues {
		if !u.gone && (after.spec == nil || after.ends(before, u)) {
			ends = append(ends, u)
		}
	}
	return ends
}

// cutOff says which N3iwfs with UEs lose an address when an Interface has others.
func (s *serving) cutOff(name string, after interfaceAddresses) (all []string) {
	before, kept := s.interfaces[name], s.interfaces
	if len(before.all) == 0 {
		return nil
	}
	s.interfaces = map[string]interfaceAddresses{}
	for other, addresses := range kept {
		s.interfaces[other] = addresses
	}
	s.interfaces[name] = after
	defer func() { s.interfaces = kept }()
	goes := func(vrf string, a netip.Addr) bool {
		return before.vrf == vrf && slices.Contains(before.all, a) && !s.has(vrf, a)
	}
	for _, of := range s.ordered() {
		in := s.instances[of]
		if in == nil {
			continue
		}
		var lost []string
		local, _ := netip.ParseAddr(in.spec.LocalAddress)
		for _, one := range []struct {
			field, vrf string
			a          netip.Addr
		}{{"localAddress", in.spec.Vrf, local}, {"nasAddress", in.spec.InnerVrf, in.nas}, {"coreAddress", in.spec.CoreVrf, in.core}} {
			if goes(object.VRFName(one.vrf), one.a) {
				lost = append(lost, one.field+" "+one.a.String())
			}
		}
		// The N2 interface is in the network of the host, which may be that of a port's twin.
		for _, text := range s.nodes[in.spec.Node].GetLocalAddresses() {
			if a, err := netip.ParseAddr(text); err == nil && goes(before.vrf, a) {
				lost = append(lost, "N2 address "+text)
			}
		}
		up := 0
		for u := range in.ues {
			if u.up && !u.gone {
				up++
			}
		}
		if len(lost) > 0 && up > 0 {
			all = append(all, fmt.Sprintf("cuts off %s of N3iwf/%s, which has %s", command.Plural(up, "UE", "UEs"), of, strings.Join(lost, ", ")))
		}
	}
	return all
}
