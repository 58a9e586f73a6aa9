// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"fmt"
	"time"

	"sluice.dev/sluice/agent/nas"
)

// Service request (TS 24.501 section 5.6.1).

const serviceTypeData = 1

func (l *Line) requestService() {
	if l.guti == nil || l.context == nil {
		l.forget()
		l.register()
		return
	}
	tmsi := append([]byte{0xf0 | nas.IdentitySTMSI}, l.guti[5:]...)
	whole := &nas.ServiceRequest{ServiceType: serviceTypeData, NASKSI: l.ksi(), FiveGSID: tmsi}
	clear := *whole
	whole.PDUSessStat = nas.StatusOf(l.active()...)
	whole.ULDataStat = whole.PDUSessStat
	l.state = requesting
	l.stop(retry)
	if err := l.begin(whole, func(container []byte) any { clear.NASContainer = container; return &clear }); err != nil {
		l.unreachable(err)
		return
	}
	l.set(t3517, t3517Time)
}

// active are the identities of PDU sessions that the core has.
func (l *Line) active() (all []uint8) {
	for _, s := range l.sessions {
		if s.state == active {
			all = append(all, s.ID)
		}
	}
	return all
}

// retryService: T3517 ended, or the context did (section 5.6.1.7).
func (l *Line) retryService() {
	l.stop(t3517)
	l.giveUp()
	l.state = registered
	l.attempts++
	after := t3511Time
	if l.attempts >= maxAttempts {
		l.attempts, after = 0, t3525Time
	}
	l.idle(after)
}

// idle: the line has no context at an AMF, and comes back after a while. Until the non-3GPP de-registration timer ends, the core keeps it.
func (l *Line) idle(after time.Duration) {
	if l.timers[notice].IsZero() {
		l.set(notice, l.notice)
	}
	l.set(retry, after)
	l.world.Save(l)
}

func (l *Line) served(m *nas.ServiceAccept) {
	if l.state != requesting {
		return
	}
	l.stop(t3517)
	l.state, l.attempts = registered, 0
	l.reconcile(m.PDUSessStat)
	l.world.Save(l)
	l.pump()
}

func (l *Line) notServed(m *nas.ServiceReject) {
	if l.state != requesting {
		return
	}
	l.stop(t3517)
	cause := m.FiveGMMCause[0]
	switch cause {
	case causeIdentityUnknown, causeDeregistered:
		l.forget()
		l.register()
	case causeCongestion:
		l.state = registered
		l.drop()
		wait := l.congestion(m.T3346)
		if wait == 0 {
			wait = t3525Time
		}
		l.idle(wait)
	default:
		l.attempts++
		l.end(fmt.Errorf("the core rejects the service request: %s", nas.MMCause(cause)), l.holdOf(cause, m.T3346, nil))
	}
}
