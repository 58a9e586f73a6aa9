// SPDX-License-Identifier: Apache-2.0

// TS 38.413 section 8.7.3: AMF CONFIGURATION UPDATE with associations to add, to remove and to update. An association is that of an Amf object; those
// with the same AMF name are of the same AMF.

package n2

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// endOf are the addresses of an end of associations (TS 38.414 section 5.3: IPv4, IPv6 or both), and the port; 0: it names none.
func endOf(c *ngap.CPTransportLayerInformation) (all []netip.Addr, port uint16) {
	var b per.BitString
	switch {
	case c == nil:
	case c.EndpointIPAddress != nil:
		b = *c.EndpointIPAddress
	case c.EndpointIPAddressAndPort != nil && len(c.EndpointIPAddressAndPort.PortNumber) == 2:
		b, port = c.EndpointIPAddressAndPort.EndpointIPAddress, binary.BigEndian.Uint16(c.EndpointIPAddressAndPort.PortNumber)
	}
	octets := b.Octets
	if b.Count == 32 || b.Count == 160 {
		all, octets = append(all, netip.AddrFrom4([4]byte(octets))), octets[4:]
	}
	if b.Count == 128 || b.Count == 160 {
		all = append(all, netip.AddrFrom16([16]byte(octets)))
	}
	return all, port
}

// hasAny reports whether a list of addresses of an object has one of these.
func hasAny(texts []string, addresses []netip.Addr) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		address, err := netip.ParseAddr(text)
		return err == nil && slices.Contains(addresses, address)
	})
}

// portOf is the port of the AMF's end.
func (a *amf) portOf() uint16 {
	if a.spec.Port != 0 {
		return uint16(a.spec.Port)
	}
	return defaultPort
}

// associationWith is the Amf with the association of an AMF to an address, and from a local address; nil: there is none. local nil: any.
func (s *Service) associationWith(of *amf, remote, local *ngap.CPTransportLayerInformation) *amf {
	addresses, port := endOf(remote)
	for _, a := range append([]*amf{of}, s.pool(of.node, of.name)...) {
		if a.phase != ready || a.amfName != of.amfName || !hasAny(a.spec.Addresses, addresses) || port != 0 && port != a.portOf() {
			continue
		}
		if ours, _ := endOf(local); local == nil || len(s.nodes[a.node].GetLocalAddresses()) == 0 || hasAny(s.nodes[a.node].LocalAddresses, ours) {
			return a
		}
	}
	return nil
}

// use takes the usage and the weight of an association. One that is not for UEs, or without weight, gets no new ones.
func (a *amf) use(usage *ngap.TNLAssociationUsage, weight *ngap.TNLAddressWeightFactor) {
	if usage != nil {
		a.notForUEs = *usage == ngap.TNLAssociationUsageNonUe
	}
	if weight != nil {
		a.weightless = *weight == 0
	}
}

// takesUEs reports whether contexts may be opened at the AMF, or go there.
func (a *amf) takesUEs() bool { return a.phase == ready && !a.notForUEs && !a.weightless }

// associate adds and updates the associations of an AMF CONFIGURATION UPDATE, and fills in the answer. Those to add are there already, or are refused: an operator adds them.
func (s *Service) associate(a *amf, m *ngap.AMFConfigurationUpdate, answer *ngap.AMFConfigurationUpdateAcknowledge) {
	for i := range m.AMFTNLAssociationToAddList {
		item := &m.AMFTNLAssociationToAddList[i]
		if its := s.associationWith(a, &item.AMFTNLAssociationAddress, nil); its != nil {
			its.use(item.TNLAssociationUsage, &item.TNLAddressWeightFactor)
			answer.AMFTNLAssociationSetupList = append(answer.AMFTNLAssociationSetupList, ngap.AMFTNLAssociationSetupItem{AMFTNLAssociationAddress: item.AMFTNLAssociationAddress})
			s.touched(its)
			continue
		}
		answer.AMFTNLAssociationFailedToSetupList = append(answer.AMFTNLAssociationFailedToSetupList, ngap.TNLAssociationItem{
			TNLAssociationAddress: item.AMFTNLAssociationAddress, Cause: miscCause(ngap.CauseMiscOmIntervention)})
	}
	for i := range m.AMFTNLAssociationToUpdateList {
		item := &m.AMFTNLAssociationToUpdateList[i]
		if its := s.associationWith(a, &item.AMFTNLAssociationAddress, nil); its != nil {
			its.use(item.TNLAssociationUsage, item.TNLAddressWeightFactor)
			s.touched(its)
		}
	}
}

// dissociate shuts the associations down that the AMF removes, after the answer. The gateway asks again later: an Amf object has its association.
func (s *Service) dissociate(a *amf, m *ngap.AMFConfigurationUpdate, now time.Time) {
	for i := range m.AMFTNLAssociationToRemoveList {
		item := &m.AMFTNLAssociationToRemoveList[i]
		its := s.associationWith(a, &item.AMFTNLAssociationAddress, item.TNLAssociationTransportLayerAddressNGRAN)
		if its == nil {
			continue
		}
		assoc := its.assoc
		s.failed(its, "the AMF removes the association", now)
		its.due = now.Add(mostWait)
		assoc.Close()
	}
}
