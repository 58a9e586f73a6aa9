// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
)

// Resources of PDU sessions are modified and released (TS 38.413 sections 8.2.2 and 8.2.3).

// modifyResources takes PDU SESSION RESOURCE MODIFY REQUEST (section 8.2.3).
func (l *Line) modifyResources(m *ngap.PDUSessionResourceModifyRequest) {
	amf, ran := l.core.IDs()
	answer := &ngap.PDUSessionResourceModifyResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
	for _, item := range m.PDUSessionResourceModifyListModReq {
		transfer, cause := l.modifyResource(item.PDUSessionID, item.PDUSessionResourceModifyRequestTransfer)
		if transfer != nil {
			answer.PDUSessionResourceModifyListModRes = append(answer.PDUSessionResourceModifyListModRes, ngap.PDUSessionResourceModifyItemModRes{
				PDUSessionID: item.PDUSessionID, PDUSessionResourceModifyResponseTransfer: transfer})
			continue
		}
		transfer, _ = ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
		answer.PDUSessionResourceFailedToModifyListModRes = append(answer.PDUSessionResourceFailedToModifyListModRes,
			ngap.PDUSessionResourceFailedToModifyItemModRes{PDUSessionID: item.PDUSessionID, PDUSessionResourceModifyUnsuccessfulTransfer: transfer})
	}
	l.core.Send(answer)
	for _, item := range m.PDUSessionResourceModifyListModReq {
		l.downlink(item.NASPDU)
		if s := l.session(item.PDUSessionID); s != nil && len(item.NASPDU) == 0 {
			s.report()
		}
	}
	l.share()
	l.world.Save(l)
}

func (l *Line) modifyResource(id ngap.PDUSessionID, octets []byte) (transfer []byte, cause ngap.CauseRadioNetwork) {
	s := l.session(id)
	if s == nil || s.state != active {
		return nil, ngap.CauseRadioNetworkUnknownPDUSessionID
	}
	var m ngap.PDUSessionResourceModifyRequestTransfer
	if !decodes(octets, &m) {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	answer := &ngap.PDUSessionResourceModifyResponseTransfer{}
	flows := map[uint8]qosflow.Flow{}
	for qfi, f := range s.flows {
		flows[qfi] = f
	}
	for i := range m.QosFlowAddOrModifyRequestList {
		item := &m.QosFlowAddOrModifyRequestList[i]
		failed := func(cause ngap.CauseRadioNetwork) {
			answer.QosFlowFailedToAddOrModifyList = append(answer.QosFlowFailedToAddOrModifyList,
				ngap.QosFlowWithCauseItem{QosFlowIdentifier: item.QosFlowIdentifier, Cause: ngap.Cause{RadioNetwork: &cause}})
		}
		if item.QosFlowIdentifier < 0 || item.QosFlowIdentifier > 63 {
			failed(ngap.CauseRadioNetworkUnkownQosFlowID)
			continue
		}
		qfi := uint8(item.QosFlowIdentifier)
		_, exists := flows[qfi]
		switch {
		case item.QosFlowLevelQosParameters != nil:
			flows[qfi] = qosflow.Of(item.QosFlowIdentifier, item.QosFlowLevelQosParameters)
		case !exists:
			failed(ngap.CauseRadioNetworkUnkownQosFlowID)
			continue
		}
		answer.QosFlowAddOrModifyResponseList = append(answer.QosFlowAddOrModifyResponseList, ngap.QosFlowAddOrModifyResponseItem{QosFlowIdentifier: item.QosFlowIdentifier})
	}
	for _, item := range m.QosFlowToReleaseList {
		if item.QosFlowIdentifier >= 0 && item.QosFlowIdentifier <= 63 {
			delete(flows, uint8(item.QosFlowIdentifier))
		}
	}
	if len(flows) == 0 {
		return nil, ngap.CauseRadioNetworkUnkownQosFlowID
	}
	if len(m.ULNGUUPTNLModifyList) > 0 {
		remote, teid, ok := s.tunnelOf(&m.ULNGUUPTNLModifyList[0].ULNGUUPTNLInformation)
		if !ok {
			return nil, ngap.CauseRadioNetworkUnspecified
		}
		s.remote, s.teid = remote, teid
		answer.DLNGUUPTNLInformation = s.own()
		answer.ULNGUUPTNLInformation = &m.ULNGUUPTNLModifyList[0].ULNGUUPTNLInformation
	}
	transfer, err := ngap.EncodeTransfer(answer)
	if err != nil {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	s.flows, s.dirty = flows, true
	s.takeAMBR(m.PDUSessionAggregateMaximumBitRate)
	return transfer, 0
}

// releaseResources processes PDU SESSION RESOURCE RELEASE COMMAND (section 8.2.2). The NAS message in it decides
// whether the PDU session is released, too.
func (l *Line) releaseResources(m *ngap.PDUSessionResourceReleaseCommand) {
	amf, ran := l.core.IDs()
	answer := &ngap.PDUSessionResourceReleaseResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
	for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
		transfer, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceReleaseResponseTransfer{})
		answer.PDUSessionResourceReleasedListRelRes = append(answer.PDUSessionResourceReleasedListRelRes, ngap.PDUSessionResourceReleasedItemRelRes{
			PDUSessionID: item.PDUSessionID, PDUSessionResourceReleaseResponseTransfer: transfer})
	}
	l.core.Send(answer)
	if len(m.NASPDU) > 0 {
		l.downlink(m.NASPDU)
		return
	}
	for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
		// Without NAS the session stays, and its user plane is gone until a service request brings it back (TS 23.502 section 4.3.7).
		if s := l.session(item.PDUSessionID); s != nil && s.state == active && l.state == registered {
			l.requestService()
			return
		}
	}
}
