// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/binary"
	"net/netip"

	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/qosflow"
)

// Resources of PDU sessions are set up (TS 38.413 sections 8.2.1 and 8.3.1).

// setUpContext takes INITIAL CONTEXT SETUP REQUEST (section 8.3.1).
func (l *Line) setUpContext(m *ngap.InitialContextSetupRequest) {
	amf, ran := l.core.IDs()
	l.subscriberAMBR(m.UEAggregateMaximumBitRate)
	answer := &ngap.InitialContextSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
	var requested resources
	for _, item := range m.PDUSessionResourceSetupListCxtReq {
		requested.add(l, item.PDUSessionID, item.PDUSessionResourceSetupRequestTransfer)
	}
	for _, item := range requested.made {
		answer.PDUSessionResourceSetupListCxtRes = append(answer.PDUSessionResourceSetupListCxtRes, ngap.PDUSessionResourceSetupItemCxtRes(item))
	}
	for _, item := range requested.failed {
		answer.PDUSessionResourceFailedToSetupListCxtRes = append(answer.PDUSessionResourceFailedToSetupListCxtRes, ngap.PDUSessionResourceFailedToSetupItemCxtRes(item))
	}
	l.core.Send(answer)
	l.downlink(m.NASPDU)
	for _, item := range m.PDUSessionResourceSetupListCxtReq {
		l.downlink(item.NASPDU)
	}
	l.refresh(m.PDUSessionResourceSetupListCxtReq)
}

// resources of PDU sessions that a message requests: those that are set up, and those that are not.
type resources struct {
	made   []ngap.PDUSessionResourceSetupItemSURes
	failed []ngap.PDUSessionResourceFailedToSetupItemSURes
	seen   [256]bool
}

// add sets up the resource of a PDU session. A second one for the same PDU session is refused (section 8.2.1.4).
func (r *resources) add(l *Line, id ngap.PDUSessionID, request []byte) {
	transfer, ok := unsuccessful(ngap.CauseRadioNetworkMultiplePDUSessionIDInstances), false
	if !r.seen[uint8(id)] {
		transfer, ok = l.setUpResource(id, request)
	}
	r.seen[uint8(id)] = true
	if ok {
		r.made = append(r.made, ngap.PDUSessionResourceSetupItemSURes{PDUSessionID: id, PDUSessionResourceSetupResponseTransfer: transfer})
	} else {
		r.failed = append(r.failed, ngap.PDUSessionResourceFailedToSetupItemSURes{PDUSessionID: id, PDUSessionResourceSetupUnsuccessfulTransfer: transfer})
	}
}

// refresh reports their session's present tunnel to active subscribers.
func (l *Line) refresh(items []ngap.PDUSessionResourceSetupItemCxtReq) {
	for _, item := range items {
		if s := l.session(item.PDUSessionID); s != nil {
			s.report()
		}
	}
	l.world.Save(l)
}

// session by its identity in NGAP, which has more of them than NAS.
func (l *Line) session(id ngap.PDUSessionID) *Session {
	if id < 1 || id > 15 {
		return nil
	}
	return l.sessions[uint8(id)]
}

// setUp takes PDU SESSION RESOURCE SETUP REQUEST (section 8.2.1).
func (l *Line) setUp(m *ngap.PDUSessionResourceSetupRequest) {
	amf, ran := l.core.IDs()
	l.subscriberAMBR(m.UEAggregateMaximumBitRate)
	var requested resources
	for _, item := range m.PDUSessionResourceSetupListSUReq {
		requested.add(l, item.PDUSessionID, item.PDUSessionResourceSetupRequestTransfer)
	}
	l.core.Send(&ngap.PDUSessionResourceSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran,
		PDUSessionResourceSetupListSURes: requested.made, PDUSessionResourceFailedToSetupListSURes: requested.failed})
	l.downlink(m.NASPDU)
	for _, item := range m.PDUSessionResourceSetupListSUReq {
		l.downlink(item.PDUSessionNASPDU)
		if s := l.session(item.PDUSessionID); s != nil && s.told {
			s.report()
		}
	}
}

func unsuccessful(cause ngap.CauseRadioNetwork) []byte {
	octets, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceSetupUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
	return octets
}

// setUpResource takes a PDU session resource, and returns the transfer of the answer: with our end of the tunnel, or a cause.
func (l *Line) setUpResource(id ngap.PDUSessionID, octets []byte) (transfer []byte, ok bool) {
	refuse := func(cause ngap.CauseRadioNetwork) ([]byte, bool) { return unsuccessful(cause), false }
	s := l.session(id)
	if s == nil || s.state != establishing && s.state != active {
		return refuse(ngap.CauseRadioNetworkUnknownPDUSessionID)
	}
	var m ngap.PDUSessionResourceSetupRequestTransfer
	if !decodes(octets, &m) {
		return refuse(ngap.CauseRadioNetworkUnspecified)
	}
	kinds := map[ngap.PDUSessionType]uint8{ngap.PDUSessionTypeIpv4: nas.PDUSessionIPv4, ngap.PDUSessionTypeIpv6: nas.PDUSessionIPv6, ngap.PDUSessionTypeIpv4v6: nas.PDUSessionIPv4v6}
	remote, teid, tunnelled := s.tunnelOf(&m.ULNGUUPTNLInformation)
	s.otherFamily = !tunnelled && m.ULNGUUPTNLInformation.GTPTunnel != nil
	if !tunnelled || kinds[m.PDUSessionType]&^s.demand.Type != 0 || kinds[m.PDUSessionType] == 0 || len(m.QosFlowSetupRequestList) == 0 {
		return refuse(ngap.CauseRadioNetworkUnspecified)
	}
	flows := map[uint8]qosflow.Flow{}
	answer := &ngap.PDUSessionResourceSetupResponseTransfer{DLQosFlowPerTNLInformation: ngap.QosFlowPerTNLInformation{UPTransportLayerInformation: *s.own()}}
	for i := range m.QosFlowSetupRequestList {
		item := &m.QosFlowSetupRequestList[i]
		if item.QosFlowIdentifier < 0 || item.QosFlowIdentifier > 63 {
			return refuse(ngap.CauseRadioNetworkUnkownQosFlowID)
		}
		if _, twice := flows[uint8(item.QosFlowIdentifier)]; twice {
			return refuse(ngap.CauseRadioNetworkMultipleQosFlowIDInstances)
		}
		flows[uint8(item.QosFlowIdentifier)] = qosflow.Of(item.QosFlowIdentifier, &item.QosFlowLevelQosParameters)
		answer.DLQosFlowPerTNLInformation.AssociatedQosFlowList = append(answer.DLQosFlowPerTNLInformation.AssociatedQosFlowList,
			ngap.AssociatedQosFlowItem{QosFlowIdentifier: item.QosFlowIdentifier})
	}
	transfer, err := ngap.EncodeTransfer(answer)
	if err != nil {
		return refuse(ngap.CauseRadioNetworkUnspecified)
	}
	s.remote, s.teid, s.flows, s.tunnelled, s.dirty = remote, teid, flows, true, true
	s.takeAMBR(m.PDUSessionAggregateMaximumBitRate)
	return transfer, true
}

// decodes reads the content of an octet string; false: it has an error that refuses it (TS 38.413 section 10.3).
func decodes(octets []byte, into any) bool {
	faults, err := ngap.DecodeTransfer(octets, into)
	if err != nil {
		return false
	}
	for _, f := range faults {
		if f.Criticality == per.Reject || f.Kind != per.NotUnderstood {
			return false
		}
	}
	return true
}

// tunnelOf is the UPF's end of a tunnel, of the family of ours.
func (s *Session) tunnelOf(u *ngap.UPTransportLayerInformation) (netip.Addr, uint32, bool) {
	far := u.GTPTunnel
	if far == nil || len(far.GTPTEID) != 4 {
		return netip.Addr{}, 0, false
	}
	octets, bits := far.TransportLayerAddress.Octets, far.TransportLayerAddress.Count
	switch {
	case bits == 160 && s.demand.Address.Is4():
		// Both families: IPv4 first (TS 38.414 section 5.1).
		octets = octets[:4]
	case bits == 160:
		octets = octets[4:20]
	case bits != s.demand.Address.BitLen():
		return netip.Addr{}, 0, false
	}
	address, ok := netip.AddrFromSlice(octets)
	teid := binary.BigEndian.Uint32(far.GTPTEID)
	return address, teid, ok && teid != 0 && !address.IsUnspecified() && !address.IsMulticast()
}

// own is our end of the tunnel.
func (s *Session) own() *ngap.UPTransportLayerInformation {
	return &ngap.UPTransportLayerInformation{GTPTunnel: &ngap.GTPTunnel{
		TransportLayerAddress: per.BitString{Octets: s.demand.Address.AsSlice(), Count: s.demand.Address.BitLen()},
		GTPTEID:               binary.BigEndian.AppendUint32(nil, s.demand.TEID)}}
}

func (s *Session) takeAMBR(a *ngap.PDUSessionAggregateMaximumBitRate) {
	if a != nil {
		s.ambr = nas.AMBR{Down: qosflow.Rate(a.PDUSessionAggregateMaximumBitRateDL), Up: qosflow.Rate(a.PDUSessionAggregateMaximumBitRateUL)}
	}
}
