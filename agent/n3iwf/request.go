// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"maps"
	"slices"

	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/qosflow"
)

// Requests of the core for PDU sessions (TS 38.413 section 8.2), and what the N3IWF tells it of them.

func (u *ue) setupRequest(m *ngap.PDUSessionResourceSetupRequest) {
	u.setRates(m.UEAggregateMaximumBitRate)
	var items []setupItem
	for _, i := range m.PDUSessionResourceSetupListSUReq {
		items = append(items, setupItem{uint8(i.PDUSessionID), i.PDUSessionResourceSetupRequestTransfer, i.PDUSessionNASPDU})
	}
	u.setUp(items, m.NASPDU, setupResponse)
}

func setupResponse(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID, results []setupResult) any {
	return &ngap.PDUSessionResourceSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran,
		PDUSessionResourceSetupListSURes: listOf(results, true, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceSetupItemSURes {
			return ngap.PDUSessionResourceSetupItemSURes{PDUSessionID: id, PDUSessionResourceSetupResponseTransfer: transfer}
		}),
		PDUSessionResourceFailedToSetupListSURes: listOf(results, false, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceFailedToSetupItemSURes {
			return ngap.PDUSessionResourceFailedToSetupItemSURes{PDUSessionID: id, PDUSessionResourceSetupUnsuccessfulTransfer: transfer}
		})}
}

// setUp sets up PDU session resources, sends the AMF the answer, and the UE the NAS messages of the request and of the sessions.
func (u *ue) setUp(items []setupItem, nas []byte, answer func(ngap.AMFUENGAPID, ngap.RANUENGAPID, []setupResult) any) {
	u.setup(items, func(results []setupResult) {
		for _, r := range results {
			if p := u.sessions[r.id]; r.ok && p != nil {
				p.answered = true
			}
		}
		u.settled = u.up && !u.gone && u.core != nil
		u.save()
		u.saveNAS()
		u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any { return answer(amf, ran, results) })
		u.downlink(nas)
		for _, r := range results {
			u.downlink(r.nas)
		}
	})
}

// listOf are items of the sessions that are set up, or of those that are not.
func listOf[T any](results []setupResult, ok bool, item func(ngap.PDUSessionID, []byte) T) (list []T) {
	for _, r := range results {
		if r.ok == ok {
			list = append(list, item(ngap.PDUSessionID(r.id), r.transfer))
		}
	}
	return list
}

// releaseCommand releases PDU sessions. The answer has what they carried.
func (u *ue) releaseCommand(m *ngap.PDUSessionResourceReleaseCommand) {
	released := map[uint8]*pduSession{}
	for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
		if p := u.sessions[uint8(item.PDUSessionID)]; p != nil {
			released[p.id] = p
		}
	}
	removeAll(released, true, func() {
		u.save()
		u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			answer := &ngap.PDUSessionResourceReleaseResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
			for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
				answer.PDUSessionResourceReleasedListRelRes = append(answer.PDUSessionResourceReleasedListRelRes, ngap.PDUSessionResourceReleasedItemRelRes{
					PDUSessionID: item.PDUSessionID, PDUSessionResourceReleaseResponseTransfer: releasedTransfer(released[uint8(item.PDUSessionID)])})
			}
			return answer
		})
		u.downlink(m.NASPDU)
	})
}

// modifyRequest changes PDU sessions (TS 23.502 section 4.12.6). The answer is sent when all child SAs are changed.
func (u *ue) modifyRequest(m *ngap.PDUSessionResourceModifyRequest) {
	results := make([]setupResult, len(m.PDUSessionResourceModifyListModReq))
	left := len(results)
	for i, item := range m.PDUSessionResourceModifyListModReq {
		u.modify(item, func(transfer []byte, ok bool) {
			results[i] = setupResult{uint8(item.PDUSessionID), ok, transfer, item.NASPDU}
			if left--; left > 0 {
				return
			}
			u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
				return &ngap.PDUSessionResourceModifyResponse{AMFUENGAPID: amf, RANUENGAPID: ran,
					PDUSessionResourceModifyListModRes: listOf(results, true, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceModifyItemModRes {
						return ngap.PDUSessionResourceModifyItemModRes{PDUSessionID: id, PDUSessionResourceModifyResponseTransfer: transfer}
					}),
					PDUSessionResourceFailedToModifyListModRes: listOf(results, false, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceFailedToModifyItemModRes {
						return ngap.PDUSessionResourceFailedToModifyItemModRes{PDUSessionID: id, PDUSessionResourceModifyUnsuccessfulTransfer: transfer}
					})}
			})
			for _, r := range results {
				u.downlink(r.nas)
			}
		})
	}
}

// modify changes a PDU session, after changes of it that are under way. done gets the transfer of the answer.
func (u *ue) modify(item ngap.PDUSessionResourceModifyItemModReq, done func(transfer []byte, ok bool)) {
	p := u.sessions[uint8(item.PDUSessionID)]
	if p == nil || !p.busy {
		u.modifySession(p, item, done)
		return
	}
	if len(p.queued) < maxQueued {
		p.queued = append(p.queued, func() { u.modifySession(p, item, done) })
		return
	}
	cause := ngap.CauseRadioNetworkInteractionWithOtherProcedure
	transfer, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
	done(transfer, false)
}

func (u *ue) modifySession(p *pduSession, item ngap.PDUSessionResourceModifyItemModReq, done func(transfer []byte, ok bool)) {
	refuse := func(cause ngap.CauseRadioNetwork) {
		transfer, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
		done(transfer, false)
	}
	if p == nil || p.removed || u.gone {
		refuse(ngap.CauseRadioNetworkUnknownPDUSessionID)
		return
	}
	var m ngap.PDUSessionResourceModifyRequestTransfer
	faults, err := ngap.DecodeTransfer(item.PDUSessionResourceModifyRequestTransfer, &m)
	if err != nil || slices.ContainsFunc(faults, func(f per.Fault) bool { return f.Criticality == per.Reject || f.Kind != per.NotUnderstood }) {
		refuse(ngap.CauseRadioNetworkUnspecified)
		return
	}
	flows := maps.Clone(p.flows)
	var changed []qosflow.Flow
	var answered []ngap.QosFlowAddOrModifyResponseItem
	for i := range m.QosFlowAddOrModifyRequestList {
		f := &m.QosFlowAddOrModifyRequestList[i]
		if f.QosFlowIdentifier < 0 || f.QosFlowIdentifier > 63 {
			refuse(ngap.CauseRadioNetworkUnspecified)
			return
		}
		if f.QosFlowLevelQosParameters != nil {
			changed = append(changed, qosflow.Of(f.QosFlowIdentifier, f.QosFlowLevelQosParameters))
		} else if _, known := flows[uint8(f.QosFlowIdentifier)]; !known {
			refuse(ngap.CauseRadioNetworkUnkownQosFlowID)
			return
		}
		answered = append(answered, ngap.QosFlowAddOrModifyResponseItem{QosFlowIdentifier: f.QosFlowIdentifier})
	}
	for _, f := range m.QosFlowToReleaseList {
		delete(flows, uint8(f.QosFlowIdentifier))
	}
	refused := p.admit(flows, changed)
	answered = slices.DeleteFunc(answered, func(a ngap.QosFlowAddOrModifyResponseItem) bool {
		return slices.ContainsFunc(refused, func(r ngap.QosFlowWithCauseItem) bool { return r.QosFlowIdentifier == a.QosFlowIdentifier })
	})
	if len(flows) == 0 {
		refuse(ngap.CauseRadioNetworkUnspecified)
		return
	}
	before := p.parameters
	for i := range m.ULNGUUPTNLModifyList {
		if !p.setFar(&m.ULNGUUPTNLModifyList[i].ULNGUUPTNLInformation) {
			p.parameters = before
			refuse(ngap.CauseRadioNetworkUnspecified)
			return
		}
	}
	p.setRates(m.PDUSessionAggregateMaximumBitRate)
	p.flows = flows
	p.reserve()
	u.share(p)
	p.busy = true
	p.regroup(func(err error) {
		if err == nil || p.removed {
			defer p.idle()
		}
		if err != nil && !p.removed {
			// The session stays as it was.
			u.s.Log.Info("a PDU session cannot be modified", "name", p.name(), "error", err)
			p.parameters = before
			p.reserve()
			u.share(p)
			p.regroup(func(error) { p.idle() })
		}
		if err != nil || p.removed {
			refuse(ngap.CauseRadioNetworkRadioResourcesNotAvailable)
			return
		}
		p.count(func() {
			transfer, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyResponseTransfer{QosFlowAddOrModifyResponseList: answered,
				QosFlowFailedToAddOrModifyList: refused, SecondaryRATUsageInformation: p.report()})
			if err != nil {
				refuse(ngap.CauseRadioNetworkUnspecified)
				return
			}
			u.save()
			done(transfer, true)
		})
	})
}

// lostChild: the UE closed a child SA of a PDU session (TS 23.502 section 4.12.7).
func (u *ue) lostChild(p *pduSession) {
	u.s.Log.Info("a UE closes a child SA", "name", p.name())
	cause := ngap.CauseRadioNetworkRadioConnectionWithUeLost
	p.giveUp(ngap.PDUSessionResourceNotifyReleasedTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
}

// refusedTunnel: a UPF does not know the tunnel of a PDU session (TS 23.527 section 5.3.3). The UE asks for another one when it needs it.
func (s *serving) refusedTunnel(end gtpu.RemoteEnd) {
	p := s.ends[end]
	if p == nil || p.removed || p.u.gone {
		return
	}
	s.Log.Warn("the UPF does not know the tunnel of a PDU session", "name", p.name(), "upf", end.Address.String())
	cause, received := ngap.CauseTransportTransportResourceUnavailable, ngap.UserPlaneErrorIndicatorGTPUErrorIndicationReceived
	p.giveUp(ngap.PDUSessionResourceNotifyReleasedTransfer{Cause: ngap.Cause{Transport: &cause}, UserPlaneErrorIndicator: &received})
}

// giveUp ends the user plane of a PDU session. The AMF gets PDU SESSION RESOURCE NOTIFY, with what the session carried.
func (p *pduSession) giveUp(why ngap.PDUSessionResourceNotifyReleasedTransfer) {
	p.remove(true, func() {
		p.u.save()
		p.u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			why.SecondaryRATUsageInformation = p.report()
			transfer, err := ngap.EncodeTransfer(&why)
			if err != nil {
				p.u.s.Log.Error("a transfer cannot be encoded", "error", err)
			}
			return &ngap.PDUSessionResourceNotify{AMFUENGAPID: amf, RANUENGAPID: ran, PDUSessionResourceReleasedListNot: []ngap.PDUSessionResourceReleasedItemNot{{
				PDUSessionID: ngap.PDUSessionID(p.id), PDUSessionResourceNotifyReleasedTransfer: transfer}}}
		})
	})
}
