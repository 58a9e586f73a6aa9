// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

func radioCause(c ngap.CauseRadioNetwork) ngap.Cause { return ngap.Cause{RadioNetwork: &c} }
func protocolCause(c ngap.CauseProtocol) ngap.Cause  { return ngap.Cause{Protocol: &c} }
func miscCause(c ngap.CauseMisc) ngap.Cause          { return ngap.Cause{Misc: &c} }

// CauseText is a cause as the specification names it.
func CauseText(c *ngap.Cause) string {
	switch {
	case c == nil:
		return "no cause"
	case c.RadioNetwork != nil:
		return "radio network: " + c.RadioNetwork.String()
	case c.Transport != nil:
		return "transport: " + c.Transport.String()
	case c.Nas != nil:
		return "NAS: " + c.Nas.String()
	case c.Protocol != nil:
		return "protocol: " + c.Protocol.String()
	case c.Misc != nil:
		return "misc: " + c.Misc.String()
	}
	return "unknown cause"
}

// maxDiagnostics is maxnoofErrors (section 9.3.1.3).
const maxDiagnostics = 256

func diagnostics(p *ngap.PDU) *ngap.CriticalityDiagnostics {
	code, triggering, criticality := ngap.ProcedureCode(p.Procedure), ngap.TriggeringMessage(p.Outcome), p.Criticality
	d := &ngap.CriticalityDiagnostics{ProcedureCode: &code, TriggeringMessage: &triggering, ProcedureCriticality: &criticality}
	for _, f := range p.Faults {
		if f.Criticality == per.Ignore || len(d.IEsCriticalityDiagnostics) == maxDiagnostics {
			continue
		}
		kind := ngap.TypeOfErrorNotUnderstood
		if f.Kind == per.Missing {
			kind = ngap.TypeOfErrorMissing
		}
		d.IEsCriticalityDiagnostics = append(d.IEsCriticalityDiagnostics, ngap.CriticalityDiagnosticsIEItem{
			IECriticality: ngap.Criticality(f.Criticality), IEID: ngap.ProtocolIEID(f.ID), TypeOfError: kind})
	}
	return d
}

// examine applies section 10.3 to the faults of a message: whether the message is carried out, and the cause to report; nil: none.
func examine(p *ngap.PDU) (carryOut bool, report *ngap.Cause) {
	carryOut = true
	for _, f := range p.Faults {
		var cause ngap.Cause
		switch {
		case f.Kind == per.Misplaced:
			cause = protocolCause(ngap.CauseProtocolAbstractSyntaxErrorFalselyConstructedMessage)
			carryOut = false
		case f.Criticality == per.Reject:
			cause = protocolCause(ngap.CauseProtocolAbstractSyntaxErrorReject)
			carryOut = false
		case f.Criticality == per.Notify:
			cause = protocolCause(ngap.CauseProtocolAbstractSyntaxErrorIgnoreAndNotify)
		default:
			// Without a mandatory IE there is nothing to carry out, but for those that only say why, or how much.
			carryOut = carryOut && (f.Kind != per.Missing || f.ID == ngap.IDCause || f.ID == ngap.IDRelativeAMFCapacity)
			continue
		}
		if report == nil || !carryOut {
			report = &cause
		}
	}
	return carryOut, report
}

// rejection is the unsuccessful outcome of a procedure that is not carried out because of the faults of its first message (sections 10.3.4.1 and 10.3.5), and
// its stream. Nil: the procedure has none, or the message lacks what the outcome needs.
func (s *Service) rejection(a *amf, pdu *ngap.PDU, cause ngap.Cause) (answer any, stream uint16) {
	if a.phase != ready {
		return nil, 0
	}
	lacks := func(id uint16) bool {
		return slices.ContainsFunc(pdu.Faults, func(f per.Fault) bool { return f.ID == id && f.Kind != per.NotUnderstood })
	}
	// The identity of the procedure is for ERROR INDICATION alone (section 9.3.1.3).
	d := &ngap.CriticalityDiagnostics{IEsCriticalityDiagnostics: diagnostics(pdu).IEsCriticalityDiagnostics}
	known := func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) bool {
		c := a.ues[int64(ran)]
		return !lacks(ngap.IDAMFUENGAPID) && !lacks(ngap.IDRANUENGAPID) && c != nil && (!c.known || c.amfID == int64(amf))
	}
	switch m := pdu.Value.(type) {
	case *ngap.AMFConfigurationUpdate:
		return &ngap.AMFConfigurationUpdateFailure{Cause: cause, CriticalityDiagnostics: d}, 0
	case *ngap.HandoverRequest:
		if !lacks(ngap.IDAMFUENGAPID) {
			return &ngap.HandoverFailure{AMFUENGAPID: m.AMFUENGAPID, Cause: cause, CriticalityDiagnostics: d}, 0
		}
	case *ngap.InitialContextSetupRequest:
		if known(m.AMFUENGAPID, m.RANUENGAPID) {
			return &ngap.InitialContextSetupFailure{AMFUENGAPID: m.AMFUENGAPID, RANUENGAPID: m.RANUENGAPID, Cause: cause, CriticalityDiagnostics: d},
				s.streamOf(a, int64(m.RANUENGAPID))
		}
	case *ngap.UEContextModificationRequest:
		if known(m.AMFUENGAPID, m.RANUENGAPID) {
			return &ngap.UEContextModificationFailure{AMFUENGAPID: m.AMFUENGAPID, RANUENGAPID: m.RANUENGAPID, Cause: cause, CriticalityDiagnostics: d},
				s.streamOf(a, int64(m.RANUENGAPID))
		}
	}
	return nil, 0
}

// receive takes a message of an AMF. Called with the lock.
func (s *Service) receive(a *amf, octets []byte, now time.Time) {
	a.counts.received++
	pdu, err := ngap.Decode(octets)
	if err != nil {
		a.counts.unreadable++
		s.undecoded(a, err)
		return
	}
	s.messages.WithLabelValues(a.name, "in", pdu.Name()).Inc()
	carryOut, report := examine(pdu)
	if report != nil && pdu.Procedure != ngap.ProcedureErrorIndication {
		s.Log.Warn("an AMF sends a message with faults", "amf", a.name, "message", pdu.Name(), "faults", len(pdu.Faults))
		if answer, of := s.rejection(a, pdu, *report); answer != nil && !carryOut {
			s.send(a, of, answer)
		} else if pdu.Outcome == ngap.Initiating || carryOut {
			s.indicate(a, pdu, report)
		}
	}
	supply(pdu)
	if !carryOut {
		if pdu.Procedure == ngap.ProcedureNGSetup && a.phase == settingUp {
			s.abandon(a, "the AMF's answer to NG SETUP REQUEST has faults", now)
		}
		return
	}
	if a.phase == settingUp {
		s.answered(a, pdu, now)
		return
	}
	if a.phase == ready {
		s.carryOut(a, pdu, now)
	}
}

// indicate reports the faults of a message; those of a UE's message with its identifiers and on its stream (section 8.7.5).
func (s *Service) indicate(a *amf, pdu *ngap.PDU, cause *ngap.Cause) {
	m := &ngap.ErrorIndication{Cause: cause, CriticalityDiagnostics: diagnostics(pdu)}
	has := func(id uint16) bool {
		return !slices.ContainsFunc(pdu.Faults, func(f per.Fault) bool { return f.ID == id && f.Kind == per.Missing })
	}
	var stream uint16
	if theirs := amfID(pdu.Value); theirs != nil && has(ngap.IDAMFUENGAPID) {
		m.AMFUENGAPID = theirs
	}
	if id := ranID(pdu.Value); id != nil && has(ngap.IDRANUENGAPID) {
		m.RANUENGAPID, stream = id, s.streamOf(a, int64(*id))
	}
	s.send(a, stream, m)
}

// supply sets what a message lacks without being worthless: an AMF that does not say its capacity has the largest.
func supply(pdu *ngap.PDU) {
	for _, f := range pdu.Faults {
		if f.Kind != per.Missing {
			continue
		}
		switch m := pdu.Value.(type) {
		case *ngap.NGSetupResponse:
			if f.ID == ngap.IDRelativeAMFCapacity {
				m.RelativeAMFCapacity = 255
			}
		case *ngap.NGReset:
			if f.ID == ngap.IDCause {
				m.Cause = miscCause(ngap.CauseMiscUnspecified)
			}
		case *ngap.UEContextReleaseCommand:
			if f.ID == ngap.IDCause {
				m.Cause = miscCause(ngap.CauseMiscUnspecified)
			}
		}
	}
}

// undecoded reports a message that cannot be read (sections 10.2 and 10.3.4).
func (s *Service) undecoded(a *amf, err error) {
	s.messages.WithLabelValues(a.name, "in", "undecoded").Inc()
	s.Log.Warn("an AMF sends a message that cannot be read", "amf", a.name, "error", err)
	cause := protocolCause(ngap.CauseProtocolTransferSyntaxError)
	var failure *ngap.ProcedureError
	var d *ngap.CriticalityDiagnostics
	if errors.As(err, &failure) {
		if errors.Is(err, ngap.ErrUnknownProcedure) {
			switch failure.Criticality {
			case ngap.Reject:
				cause = protocolCause(ngap.CauseProtocolAbstractSyntaxErrorReject)
			case ngap.Notify:
				cause = protocolCause(ngap.CauseProtocolAbstractSyntaxErrorIgnoreAndNotify)
			default:
				return
			}
		}
		d = diagnostics(&ngap.PDU{Outcome: failure.Outcome, Procedure: failure.Procedure, Criticality: failure.Criticality})
		if failure.Procedure == ngap.ProcedureErrorIndication {
			return
		}
	}
	s.send(a, 0, &ngap.ErrorIndication{Cause: &cause, CriticalityDiagnostics: d})
}

// answered takes the answer to NG SETUP REQUEST (section 8.7.1).
func (s *Service) answered(a *amf, pdu *ngap.PDU, now time.Time) {
	switch m := pdu.Value.(type) {
	case *ngap.NGSetupResponse:
		if err := a.setUp(m, now); err != nil {
			s.abandon(a, "NG SETUP RESPONSE: "+err.Error(), now)
			return
		}
		s.Log.Info("an AMF is ready", "amf", a.name, "capacity", a.capacity)
		s.resume(a, m.UERetentionInformation != nil)
		s.reassess()
		s.touched(a)
	case *ngap.NGSetupFailure:
		s.abandon(a, "NG SETUP FAILURE: "+CauseText(&m.Cause), now)
		if m.TimeToWait != nil && int(*m.TimeToWait) < len(timesToWait) {
			a.due = now.Add(timesToWait[*m.TimeToWait])
		}
	case *ngap.ErrorIndication:
		// The AMF could not take NG SETUP REQUEST (section 10.3.4).
		if m.AMFUENGAPID != nil || m.RANUENGAPID != nil || m.CriticalityDiagnostics != nil && m.CriticalityDiagnostics.ProcedureCode != nil && *m.CriticalityDiagnostics.ProcedureCode != ngap.ProcedureNGSetup {
			return
		}
		s.abandon(a, "the AMF answers NG SETUP REQUEST by ERROR INDICATION: "+CauseText(m.Cause), now)
	default:
		// NG setup comes before all else (sections 8.7.1.1 and 10.4).
		if pdu.Outcome == ngap.Initiating {
			cause := protocolCause(ngap.CauseProtocolMessageNotCompatibleWithReceiverState)
			s.indicate(a, pdu, &cause)
		}
	}
}

var timesToWait = [...]time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, time.Minute}

// carryOut takes a message of a ready AMF.
func (s *Service) carryOut(a *amf, pdu *ngap.PDU, now time.Time) {
	switch m := pdu.Value.(type) {
	case *ngap.AMFConfigurationUpdate:
		s.update(a, m, now)
	case *ngap.RANConfigurationUpdateFailure:
		// It keeps what it had (section 8.7.2.3).
		s.Log.Warn("an AMF refuses the tracking areas or the name of the AccessNode", "amf", a.name, "cause", CauseText(&m.Cause))
		if m.TimeToWait != nil && int(*m.TimeToWait) < len(timesToWait) {
			a.announce = now.Add(timesToWait[*m.TimeToWait])
		}
	case *ngap.AMFStatusIndication:
		s.unavailable(a, m)
		s.Log.Info("an AMF announces that GUAMIs become unavailable", "amf", a.name)
		s.touched(a)
	case *ngap.OverloadStart:
		a.start(m)
		s.Log.Warn("an AMF is overloaded", "amf", a.name, "reduction", a.refusal(nil, ngap.RRCEstablishmentCauseMoSignalling), "slices", len(a.overloaded))
		s.touched(a)
	case *ngap.OverloadStop:
		a.overload, a.overloaded = nil, nil
		s.Log.Info("an AMF is not overloaded any more", "amf", a.name)
		s.touched(a)
	case *ngap.NGReset:
		s.reset(a, m)
	case *ngap.NGResetAcknowledge:
		s.resetDone(a)
	case *ngap.ErrorIndication:
		s.Log.Warn("an AMF reports an error", "amf", a.name, "cause", CauseText(m.Cause))
		s.erroneous(a, m)
	case *ngap.HandoverRequest:
		// Lines do not move between nodes (TS 29.413 section 5.1).
		s.send(a, 0, &ngap.HandoverFailure{AMFUENGAPID: m.AMFUENGAPID, Cause: radioCause(ngap.CauseRadioNetworkHoTargetNotAllowed)})
	case *ngap.TraceStart:
		s.send(a, s.streamOf(a, int64(m.RANUENGAPID)), &ngap.TraceFailureIndication{AMFUENGAPID: m.AMFUENGAPID, RANUENGAPID: m.RANUENGAPID,
			NGRANTraceID: m.TraceActivation.NGRANTraceID, Cause: miscCause(ngap.CauseMiscUnspecified)})
	case *ngap.UEContextReleaseCommand:
		s.releaseCommand(a, pdu, m)
	default:
		if id := ranID(pdu.Value); id != nil {
			s.forUE(a, pdu, id)
		}
	}
}

const maxGUAMIs = 256

func (s *Service) update(a *amf, m *ngap.AMFConfigurationUpdate, now time.Time) {
	if err := a.update(m); err != nil {
		s.send(a, 0, &ngap.AMFConfigurationUpdateFailure{Cause: protocolCause(ngap.CauseProtocolSemanticError)})
		return
	}
	answer := &ngap.AMFConfigurationUpdateAcknowledge{}
	s.associate(a, m, answer)
	s.send(a, 0, answer)
	s.dissociate(a, m, now)
	s.reassess()
	s.touched(a)
}

// reset ends contexts (section 8.7.4.2.1).
func (s *Service) reset(a *amf, m *ngap.NGReset) {
	answer := &ngap.NGResetAcknowledge{}
	loss := Loss{Kind: Reset, Cause: m.Cause, Reason: "NG RESET: " + CauseText(&m.Cause)}
	if m.ResetType.NGInterface != nil {
		// The owner of the context may open another one in this call.
		for _, c := range slices.Collect(maps.Values(a.ues)) {
			s.ended(c, loss)
		}
	}
	var byAMF map[int64]*Context
	for _, item := range m.ResetType.PartOfNGInterface {
		var c *Context
		switch {
		case item.RANUENGAPID != nil:
			c = a.ues[int64(*item.RANUENGAPID)]
		case item.AMFUENGAPID != nil:
			if byAMF == nil {
				// A list may have 65,536 items.
				byAMF = make(map[int64]*Context, len(a.ues))
				for _, one := range a.ues {
					if one.known {
						byAMF[one.amfID] = one
					}
				}
			}
			c = byAMF[int64(*item.AMFUENGAPID)]
		}
		if c != nil {
			s.ended(c, loss)
		}
		answer.UEAssociatedLogicalNGConnectionList = append(answer.UEAssociatedLogicalNGConnectionList, item)
	}
	s.Log.Warn("an AMF resets", "amf", a.name, "cause", CauseText(&m.Cause))
	s.send(a, 0, answer)
}

// contextOf is the context with either identifier.
func (a *amf) contextOf(ran *ngap.RANUENGAPID, theirs *ngap.AMFUENGAPID) *Context {
	if ran != nil {
		return a.ues[int64(*ran)]
	}
	for _, c := range a.ues {
		if theirs != nil && c.known && c.amfID == int64(*theirs) {
			return c
		}
	}
	return nil
}

// ranID is the RAN UE NGAP ID of a message that is of a UE.
func ranID(message any) *ngap.RANUENGAPID {
	switch m := message.(type) {
	case *ngap.DownlinkNASTransport:
		return &m.RANUENGAPID
	case *ngap.InitialContextSetupRequest:
		return &m.RANUENGAPID
	case *ngap.PDUSessionResourceSetupRequest:
		return &m.RANUENGAPID
	case *ngap.PDUSessionResourceModifyRequest:
		return &m.RANUENGAPID
	case *ngap.PDUSessionResourceModifyConfirm:
		return &m.RANUENGAPID
	case *ngap.PDUSessionResourceReleaseCommand:
		return &m.RANUENGAPID
	case *ngap.UEContextModificationRequest:
		return &m.RANUENGAPID
	case *ngap.LocationReportingControl:
		return &m.RANUENGAPID
	case *ngap.RerouteNASRequest:
		return &m.RANUENGAPID
	}
	return nil
}

// amfID is the AMF UE NGAP ID of a message, if it has one.
func amfID(message any) *ngap.AMFUENGAPID {
	switch m := message.(type) {
	case *ngap.DownlinkNASTransport:
		return &m.AMFUENGAPID
	case *ngap.InitialContextSetupRequest:
		return &m.AMFUENGAPID
	case *ngap.PDUSessionResourceSetupRequest:
		return &m.AMFUENGAPID
	case *ngap.PDUSessionResourceModifyRequest:
		return &m.AMFUENGAPID
	case *ngap.PDUSessionResourceModifyConfirm:
		return &m.AMFUENGAPID
	case *ngap.PDUSessionResourceReleaseCommand:
		return &m.AMFUENGAPID
	case *ngap.UEContextModificationRequest:
		return &m.AMFUENGAPID
	case *ngap.LocationReportingControl:
		return &m.AMFUENGAPID
	case *ngap.RerouteNASRequest:
		return m.AMFUENGAPID
	}
	return nil
}

// forUE gives a message to the UE that it is of. A first message teaches the AMF's identifier (section 10.6).
func (s *Service) forUE(a *amf, pdu *ngap.PDU, id *ngap.RANUENGAPID) {
	if id == nil {
		return
	}
	c := a.ues[int64(*id)]
	theirs := amfID(pdu.Value)
	if c == nil {
		c = s.takeOver(a, *id, theirs)
	}
	if c == nil {
		one, closed := a.closed[int64(*id)]
		if closed && !one.releasing && theirs != nil {
			// The UE went before the AMF's first message.
			one.releasing = true
			a.closed[int64(*id)] = one
			s.send(a, s.streamOf(a, int64(*id)), releaseRequest(int64(*theirs), int64(*id)))
			return
		}
		// An answer to a message from before the context was closed may still come.
		if pdu.Procedure == ngap.ProcedureErrorIndication || pdu.Procedure == ngap.ProcedureDownlinkNASTransport && closed {
			return
		}
		cause := radioCause(ngap.CauseRadioNetworkUnknownLocalUENGAPID)
		s.send(a, 0, &ngap.ErrorIndication{AMFUENGAPID: theirs, RANUENGAPID: id, Cause: &cause})
		return
	}
	if theirs != nil {
		if c.known && int64(*theirs) != c.amfID {
			s.inconsistent(a, c, theirs)
			return
		}
		if !c.known {
			c.amfID, c.known = int64(*theirs), true
			s.keep(c)
		}
	}
	c.learn(pdu.Value)
	if m, ok := pdu.Value.(*ngap.UEContextModificationRequest); ok && m.NewAMFUENGAPID != nil {
		c.amfID = int64(*m.NewAMFUENGAPID)
		s.keep(c)
	}
	if c.ue == nil {
		// Its owner is still to come.
		if len(c.waiting) < maxWaiting {
			c.waiting = append(c.waiting, pdu.Value)
		}
		return
	}
	s.give(c, pdu.Value)
}

// inconsistent ends a context for which the AMF uses another identifier than before (section 10.6).
func (s *Service) inconsistent(a *amf, c *Context, theirs *ngap.AMFUENGAPID) {
	cause, ran := radioCause(ngap.CauseRadioNetworkInconsistentRemoteUENGAPID), ngap.RANUENGAPID(c.ranID)
	s.send(a, s.streamOf(a, c.ranID), &ngap.ErrorIndication{AMFUENGAPID: theirs, RANUENGAPID: &ran, Cause: &cause})
	s.lose(c, Loss{Kind: Reset, Cause: cause, Reason: "the AMF uses another AMF UE NGAP ID"})
}

// give gives a message to the UE of a context.
func (s *Service) give(c *Context, message any) {
	s.guarded(c, func() { c.ue.Receive(message) })
}

// guarded keeps a mistake in a UE's handling of a message from ending the agent: it costs the UE its context.
func (s *Service) guarded(c *Context, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("a UE's handling of a message panicked; its context ends", "amf", c.amfName, "error", p, "stack", string(debug.Stack()))
			s.lose(c, Loss{Kind: Reset, Cause: miscCause(ngap.CauseMiscUnspecified), Reason: "an error of the gateway"})
		}
	}()
	f()
}

// erroneous takes ERROR INDICATION: a context whose identifiers the AMF does not know is released on each side without a message (section 10.6).
func (s *Service) erroneous(a *amf, m *ngap.ErrorIndication) {
	if m.RANUENGAPID == nil || m.Cause == nil || m.Cause.RadioNetwork == nil {
		return
	}
	switch *m.Cause.RadioNetwork {
	case ngap.CauseRadioNetworkUnknownLocalUENGAPID, ngap.CauseRadioNetworkInconsistentRemoteUENGAPID:
	default:
		return
	}
	c := a.ues[int64(*m.RANUENGAPID)]
	if c == nil || m.AMFUENGAPID != nil && c.known && int64(*m.AMFUENGAPID) != c.amfID {
		// Of a context from before.
		return
	}
	s.ended(c, Loss{Kind: Reset, Cause: *m.Cause, Reason: "the AMF does not know the context: " + CauseText(m.Cause)})
}

// releaseCommand ends a context (section 8.3.3). It is complete at once, unless the UE has something to add: the gateway has no radio to tear down.
func (s *Service) releaseCommand(a *amf, pdu *ngap.PDU, m *ngap.UEContextReleaseCommand) {
	c := a.contextOf(nil, m.UENGAPIDs.AMFUENGAPID)
	if pair := m.UENGAPIDs.UENGAPIDPair; pair != nil {
		if c = a.contextOf(&pair.RANUENGAPID, nil); c == nil {
			c = s.takeOver(a, pair.RANUENGAPID, &pair.AMFUENGAPID)
		}
		if c != nil && c.known && c.amfID != int64(pair.AMFUENGAPID) {
			s.inconsistent(a, c, &pair.AMFUENGAPID)
			return
		}
		if c != nil && !c.known {
			c.amfID, c.known = int64(pair.AMFUENGAPID), true
		}
	}
	if pair := m.UENGAPIDs.UENGAPIDPair; c == nil && pair != nil && !a.closed[int64(pair.RANUENGAPID)].until.IsZero() {
		// It was closed here before.
		s.reopen(a, int64(pair.RANUENGAPID))
		s.send(a, s.streamOf(a, int64(pair.RANUENGAPID)), &ngap.UEContextReleaseComplete{AMFUENGAPID: pair.AMFUENGAPID, RANUENGAPID: pair.RANUENGAPID})
		return
	}
	if c == nil {
		cause := radioCause(ngap.CauseRadioNetworkUnknownLocalUENGAPID)
		s.send(a, 0, &ngap.ErrorIndication{Cause: &cause, CriticalityDiagnostics: diagnostics(&ngap.PDU{Procedure: pdu.Procedure, Criticality: pdu.Criticality})})
		return
	}
	answer := &ngap.UEContextReleaseComplete{AMFUENGAPID: ngap.AMFUENGAPID(c.amfID), RANUENGAPID: ngap.RANUENGAPID(c.ranID)}
	complete := func() {
		// Not after the association is lost.
		if !c.gone && c.amf == a {
			s.send(a, s.streamOf(a, c.ranID), answer)
			s.ended(c, Loss{Kind: Released, Cause: m.Cause, Reason: "the AMF releases the context: " + CauseText(&m.Cause)})
		}
	}
	if ue, can := c.ue.(Completing); can {
		s.guarded(c, func() { ue.Complete(answer, complete) })
		return
	}
	complete()
}

// ---- UE contexts

// UE is a subscriber with a context at an AMF. Its methods are called one at a time, with the service's lock: they must not block, and use
// the Context alone.
type UE interface {
	// Receive takes a message, such as *ngap.DownlinkNASTransport.
	Receive(message any)
	// Lost is the last that is called: the context is gone.
	Lost(reason string)
}

// Completing is a UE that fills fields of UE CONTEXT RELEASE COMPLETE, such as its location and its PDU sessions. It calls done at once, or later under Do:
// until then the context lasts.
type Completing interface {
	Complete(m *ngap.UEContextReleaseComplete, done func())
}

// Informed is a UE that needs the cause of the end of its context: LostBy is called in place of Lost. It comes back with an initial message.
type Informed interface {
	LostBy(loss Loss)
}

// Retained is a UE whose context may outlive its association (TS 38.413 section 8.7.1, UE Retention Information). While it is suspended,
// nothing can be sent. Then Resumed is called, or LostBy.
type Retained interface {
	Suspended()
	Resumed()
}

// LossKind is how a context ended.
type LossKind uint8

const (
	// Released: UE CONTEXT RELEASE COMMAND.
	Released LossKind = iota + 1
	// AssociationLost: the AMF cannot be reached, or did not keep the context.
	AssociationLost
	// Reset: NG RESET, or an error.
	Reset
)

// Loss is the end of a context.
type Loss struct {
	Kind   LossKind
	Cause  ngap.Cause
	Reason string
}

// maxWaiting messages are kept for an owner of a context that has not come back yet.
const maxWaiting = 16

// Context is a UE's at an AMF. Its methods are for Receive, and for calls under Do.
type Context struct {
	service *Service
	// Nil: the Amf object is still to come after a restart.
	amf     *amf
	amfName string
	// Nil: its owner is still to come after a restart.
	ue      UE
	waiting []any
	ranID   int64
	amfID   int64
	known   bool
	gone    bool
	// The association is lost, and the context may be kept.
	suspended bool
	// The association is lost, or the AMF is about to leave: the next message goes to an AMF that takes the context over.
	unbound bool
	// Of the AMF's messages; zero: they had none yet.
	guami guami
	// INITIAL CONTEXT SETUP REQUEST came.
	settled bool
	// Its UE went meanwhile.
	left bool
}

// IDs are the identifiers of the UE for messages. The AMF's is 0 before its first message.
func (c *Context) IDs() (ngap.AMFUENGAPID, ngap.RANUENGAPID) {
	return ngap.AMFUENGAPID(c.amfID), ngap.RANUENGAPID(c.ranID)
}

// AMF is the name of the Amf object.
func (c *Context) AMF() string { return c.amfName }

// node is the AccessNode; nil: it does not exist, or not yet.
func (c *Context) node() *api.AccessNode {
	if c.amf == nil {
		return nil
	}
	return c.service.nodes[c.amf.node]
}

// PLMN of the access node.
func (c *Context) PLMN() nas.PLMN { return nas.PLMN(c.node().GetPlmn()) }

// TAI is the tracking area of the access node that UEs are in.
func (c *Context) TAI() ngap.TAI {
	n := c.node()
	t := ngap.TAI{TAC: tac(0)}
	plmn := nas.PLMN(n.GetPlmn())
	if areas := n.GetTrackingAreas(); len(areas) > 0 {
		t.TAC = tac(areas[0].Tac)
		if areas[0].Plmn != "" {
			plmn = nas.PLMN(areas[0].Plmn)
		}
	}
	t.PLMNIdentity, _ = plmn.Octets()
	return t
}

// Send sends a message of the UE, always on the same stream: the AMF gets them in order.
func (c *Context) Send(message any) {
	if c.unbound {
		c.bind()
	}
	if !c.gone && !c.suspended {
		c.service.send(c.amf, c.service.streamOf(c.amf, c.ranID), message)
	}
}

func releaseRequest(amf, ran int64) *ngap.UEContextReleaseRequest {
	return &ngap.UEContextReleaseRequest{AMFUENGAPID: ngap.AMFUENGAPID(amf), RANUENGAPID: ngap.RANUENGAPID(ran),
		Cause: radioCause(ngap.CauseRadioNetworkReleaseDueToNgranGeneratedReason)}
}

// Release asks the AMF to release the context, and closes it. While the association is lost, that waits for the AMF: it may keep the context.
func (c *Context) Release() {
	if c.gone {
		return
	}
	if c.known && c.suspended {
		c.ue, c.left = nil, true
		return
	}
	if c.known {
		c.Send(releaseRequest(c.amfID, c.ranID))
	}
	c.Close()
}

// Close forgets the context: the AMF releases it by itself, or does not know of it. One that has not answered yet is asked to release it when it does.
func (c *Context) Close() { c.close(false) }

// close forgets the context. confirmed: the AMF has it no longer. Otherwise the record stays until the AMF confirms it or the time is over.
func (c *Context) close(confirmed bool) {
	if c.gone {
		return
	}
	c.gone = true
	s := c.service
	delete(s.orphans, c.ranID)
	if c.amf != nil {
		delete(c.amf.ues, c.ranID)
		c.amf.closed[c.ranID] = closedContext{until: time.Now().Add(closedTime), releasing: c.known, confirmed: confirmed, recorded: c.known && !confirmed}
	}
	if confirmed || c.amf == nil {
		s.ids.settle(c.ranID)
		if c.known {
			s.forget(c.ranID)
		}
	}
}

// ended: the AMF has the context no longer.
func (s *Service) ended(c *Context, loss Loss) {
	if !c.gone {
		c.close(true)
		s.inform(c, loss)
	}
}

// lose ends a context that the AMF may still have.
func (s *Service) lose(c *Context, loss Loss) {
	if !c.gone {
		c.close(false)
		s.inform(c, loss)
	}
}

// inform tells the UE that its context is gone. It is the last that the UE hears, whatever happens.
func (s *Service) inform(c *Context, loss Loss) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("a UE's handling of its end panicked", "error", p, "stack", string(debug.Stack()))
		}
	}()
	switch ue := c.ue.(type) {
	case nil:
	case Informed:
		ue.LostBy(loss)
	default:
		c.ue.Lost(loss.Reason)
	}
}

// streamOf: stream 0 is for messages of no UE (TS 38.412 section 7).
func (s *Service) streamOf(a *amf, ranID int64) uint16 {
	if a.out < 2 {
		return 0
	}
	return 1 + uint16(ranID%int64(a.out-1))
}

// newRanID is free in all AMFs of the gateway.
func (s *Service) newRanID() int64 {
	for {
		id := s.ids.take(s.Log)
		used := s.orphans[id] != nil
		for _, a := range s.amfs {
			used = used || a.ues[id] != nil || !a.closed[id].until.IsZero()
		}
		if !used {
			return id
		}
		s.ids.settle(id)
	}
}
