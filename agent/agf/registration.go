// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"fmt"
	"time"

	"sluice.dev/sluice/agent/nas"
)

// Registration (TS 24.501 section 5.5.1) and configuration update (section 5.4.4).

const (
	followOn             = 8
	initialRegistration  = 1
	mobilityRegistration = 2
	noKey                = 7
)

func (l *Line) ksi() uint8 {
	if l.context != nil {
		return l.context.KSI
	}
	return noKey
}

func (l *Line) register() {
	if l.state == over {
		return
	}
	kind := uint8(initialRegistration)
	if l.state == registered {
		kind = mobilityRegistration
	}
	whole := &nas.RegistrationRequest{NASKSI: l.ksi(), FiveGSRegType: followOn | kind, FiveGSID: l.identity(), UESecCap: l.capability()}
	clear := *whole
	whole.FiveGMMCap = []byte{0}
	if s := l.settings.Slice; s != nil {
		slice := s.Octets()
		whole.NSSAI = append([]byte{byte(len(slice))}, slice...)
	}
	if kind == mobilityRegistration {
		whole.PDUSessStat = nas.StatusOf(l.active()...)
		if l.core == nil {
			whole.ULDataStat = whole.PDUSessStat
		}
	}
	l.state = registering
	if kind == mobilityRegistration {
		l.state = updating
	}
	l.stop(retry)
	l.moved = false
	err := l.begin(whole, func(container []byte) any { clear.NASContainer = container; return &clear })
	if err != nil {
		l.unreachable(err)
		return
	}
	l.set(t3510, t3510Time)
}

// unreachable: there is no AMF for a message. A line that is registered, or that has active subscribers, waits for
// one.
func (l *Line) unreachable(err error) {
	switch {
	case l.state == over:
	case l.state == leaving:
		l.finish(nil, 0)
	case l.state == updating || l.state == requesting:
		l.state = registered
		l.set(retry, noAMF)
	case l.established():
		l.state = deregistered
		l.set(retry, noAMF)
	default:
		l.end(err, 0)
	}
}

// established: a subscriber of the line is up.
func (l *Line) established() bool {
	for _, s := range l.sessions {
		if s.told {
			return true
		}
	}
	return false
}

func (l *Line) registered(m *nas.RegistrationAccept) {
	if l.state != registering && l.state != updating {
		return
	}
	mobility := l.state == updating
	l.stop(t3510, t3520)
	l.state, l.attempts, l.doubts = registered, 0, 0
	if d := nas.Timer2(m.Non3GPPDeregTimer); d != 0 {
		l.notice = d
	}
	if l.takeGUTI(m.GUTI) {
		l.uplink(&nas.RegistrationComplete{})
	}
	if mobility {
		l.reconcile(m.PDUSessStat)
	}
	l.world.Save(l)
	l.pump()
}

// reconcile: PDU sessions that the core does not have are set up again.
func (l *Line) reconcile(status []byte) {
	for _, s := range l.sessions {
		if s.state == active && !nas.HasSession(status, s.ID) {
			s.again()
		}
	}
}

// rejected ends a registration by the cause (sections 5.5.1.2.5 and 5.5.1.3.5).
func (l *Line) rejected(m *nas.RegistrationReject) {
	if l.state != registering && l.state != updating {
		return
	}
	cause := m.FiveGMMCause[0]
	if l.state == updating && (cause == causeIdentityUnknown || cause == causeDeregistered) {
		l.forget()
		l.register()
		return
	}
	err := fmt.Errorf("the core rejects the registration: %s", nas.MMCause(cause))
	l.stop(t3510)
	l.attempts++
	l.end(err, l.holdOf(cause, m.T3346, m.T3502))
}

// holdOf is how long a line that was rejected stays away.
func (l *Line) holdOf(cause uint8, t3346, t3502 []byte) time.Duration {
	switch cause {
	case causeIllegalUE, 6, 7, 11, 12, 13, 15, 27, 31, 72, 73, 74, 75, 76, 77, 78:
		// Nothing changes soon: illegal UE or ME, services, PLMN or tracking area not allowed.
		if l.unverified {
			return l.doubt()
		}
		return t3502Time
	case causeCongestion:
		if d := l.congestion(t3346); d != 0 {
			return d
		}
	}
	if d := nas.Timer2(t3502); d != 0 && l.attempts >= maxAttempts && !l.unverified {
		return d
	}
	return l.pause(0)
}

// congestion is T3346. The value of a message that any host may have sent does not count (sections 5.5.1.2.5 and 5.6.1.5).
func (l *Line) congestion(t3346 []byte) time.Duration {
	if l.unverified {
		return t3346Least + l.world.Random(t3346Range)
	}
	return nas.Timer2(t3346)
}

// doubt is T3247 (section 5.3.20.2): the USIM of a line that is rejected for good without integrity protection is invalid for some time only. That happens a number of times.
func (l *Line) doubt() time.Duration {
	if l.doubts++; l.doubts >= maxDoubts {
		return invalidTime
	}
	return t3247Least + l.world.Random(t3247Range)
}

// takeGUTI takes the 5G-GUTI of a message. One that is malformed counts as absent (section 7.7.1).
func (l *Line) takeGUTI(octets []byte) bool {
	if _, err := nas.GUTIOf(octets); err != nil {
		return false
	}
	l.guti = octets
	return true
}

// Moved: the line is at another place; the AMF gets a mobility registration update.
func (l *Line) Moved() {
	l.moved = true
	l.pump()
}

// configure takes a configuration update (section 5.4.4).
func (l *Line) configure(m *nas.ConfigurationUpdateCommand) {
	l.takeGUTI(m.GUTI)
	acknowledge, again := false, false
	if m.ConfigUpdateInd != nil {
		acknowledge, again = *m.ConfigUpdateInd&1 == 1, *m.ConfigUpdateInd&2 == 2
	}
	if acknowledge {
		l.uplink(&nas.ConfigurationUpdateComplete{})
	}
	l.world.Save(l)
	if again && l.state == registered {
		l.Moved()
	}
}
