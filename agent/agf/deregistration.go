// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
)

// Deregistration (TS 24.501 section 5.5.2).

// Deregister ends the registration: the line has no subscriber any more.
func (l *Line) Deregister() {
	switch l.state {
	case leaving, over:
		return
	case deregistered, registering:
		// The AMF may have a context by now.
		l.giveUp()
		l.finish(nil, 0)
		return
	}
	l.stop(t3510, t3517, t3520, retry, notice)
	l.state, l.repeats = leaving, 0
	l.sendDeregistration()
}

// accessNon3GPP in the type of a deregistration.
const (
	accessNon3GPP          = 2
	reregistrationRequired = 4
)

func (l *Line) sendDeregistration() {
	request := &nas.UEDeregistrationRequest{NASKSI: l.ksi(), DeregistrationType: accessNon3GPP, FiveGSID: l.identity()}
	if l.connected() {
		l.uplink(request)
	} else if l.suspended {
		// The AMF gets to know when the association is back.
		l.giveUp()
		l.finish(nil, 0)
		return
	} else if err := l.begin(request, func([]byte) any { return request }); err != nil && !errors.Is(err, n2.ErrNoAMF) {
		l.finish(nil, 0)
		return
	}
	// Also without an AMF: one may be back by then.
	l.set(t3521, t3521Time)
}

// dismissed: the core deregisters the line (section 5.5.2.3).
func (l *Line) dismissed(m *nas.NetworkDeregistrationRequest) {
	l.uplink(&nas.NetworkDeregistrationAccept{})
	if l.state == leaving {
		return
	}
	if m.DeregistrationType&reregistrationRequired != 0 {
		l.forget()
		l.register()
		return
	}
	err, hold := errors.New("the core deregisters the line"), time.Duration(0)
	if m.FiveGMMCause != nil {
		cause := m.FiveGMMCause[0]
		err = fmt.Errorf("the core deregisters the line: %s", nas.MMCause(cause))
		hold = l.holdOf(cause, m.T3346, nil)
	}
	l.end(err, hold)
}
