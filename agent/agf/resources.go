// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"

	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
)

// Receive implements n2.UE.
func (l *Line) Receive(message any) {
	if l.core == nil {
		return
	}
	switch m := message.(type) {
	case *ngap.DownlinkNASTransport:
		l.subscriberAMBR(m.UEAggregateMaximumBitRate)
		l.downlink(m.NASPDU)
	case *ngap.InitialContextSetupRequest:
		l.setUpContext(m)
	case *ngap.PDUSessionResourceSetupRequest:
		l.setUp(m)
	case *ngap.PDUSessionResourceModifyRequest:
		l.modifyResources(m)
	case *ngap.PDUSessionResourceReleaseCommand:
		l.releaseResources(m)
	case *ngap.UEContextModificationRequest:
		amf, ran := l.core.IDs()
		l.core.Send(&ngap.UEContextModificationResponse{AMFUENGAPID: amf, RANUENGAPID: ran})
		l.subscriberAMBR(m.UEAggregateMaximumBitRate)
		l.world.Save(l)
	case *ngap.LocationReportingControl:
		l.locate(m)
	case *ngap.RerouteNASRequest:
		l.reroute(m)
	}
}

// subscriberAMBR takes the subscriber's aggregate maximum bit rate.
func (l *Line) subscriberAMBR(a *ngap.UEAggregateMaximumBitRate) {
	if a == nil {
		return
	}
	ambr := nas.AMBR{Down: qosflow.Rate(a.UEAggregateMaximumBitRateDL), Up: qosflow.Rate(a.UEAggregateMaximumBitRateUL)}
	if ambr == l.ambr {
		return
	}
	l.ambr = ambr
	for _, s := range l.sessions {
		s.dirty = true
		s.report()
	}
}

// Lost implements n2.UE.
func (l *Line) Lost(reason string) { l.LostBy(n2.Loss{Kind: n2.AssociationLost, Reason: reason}) }

// LostBy implements n2.Informed: the context is gone.
func (l *Line) LostBy(loss n2.Loss) {
	l.core, l.suspended = nil, false
	// The core deregisters the line, or cannot serve it at all.
	final := loss.Kind == n2.Released && loss.Cause.Nas != nil && *loss.Cause.Nas != ngap.CauseNasNormalRelease
	switch l.state {
	case over, deregistered:
	case leaving:
		l.finish(nil, 0)
	case registering:
		l.failed(errors.New(loss.Reason), 0)
	case requesting:
		l.retryService()
	case updating:
		l.failed(errors.New(loss.Reason), 0)
	case registered:
		for _, s := range l.sessions {
			// Unfinished setups have to begin again.
			if s.state == establishing || s.state == releasing {
				s.again()
			}
		}
		switch {
		case final:
			l.end(errors.New(loss.Reason), 0)
		case len(l.sessions) == 0:
			l.finish(nil, 0)
		default:
			l.idle(l.world.Random(comeBack))
		}
	}
}

// Suspended implements n2.Retained: the association is lost, and the AMF may keep the context.
func (l *Line) Suspended() { l.suspended = true }

// Resumed implements n2.Retained.
func (l *Line) Resumed() {
	l.suspended = false
	l.world.Save(l)
	l.pump()
}

// locate takes LOCATION REPORTING CONTROL (section 8.12).
func (l *Line) locate(m *ngap.LocationReportingControl) {
	amf, ran := l.core.IDs()
	if answer := n2.LocationAnswer(m, amf, ran, l.location()); answer != nil {
		l.core.Send(answer)
	}
}

// reroute takes REROUTE NAS REQUEST (section 8.6.5): the initial message goes to an AMF of another set.
func (l *Line) reroute(m *ngap.RerouteNASRequest) {
	first := n2.InitialMessage(m)
	if first == nil || l.state != registering && l.state != updating && l.state != requesting {
		return
	}
	from := l.core.AMF()
	l.drop()
	// One reroute: AMFs that send the line to each other would go on for ever.
	if l.rerouted {
		l.unreachable(n2.ErrRerouted)
	} else if err := l.open(first.NASPDU, m, from); err != nil {
		l.unreachable(err)
	}
}
