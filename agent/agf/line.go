// SPDX-License-Identifier: Apache-2.0

// Package agf registers lines of today's homes (FN-RG) with a 5G core (TS 23.316 section 7.2.1.3): the gateway speaks NAS for a line, and
// asks for a PDU session for each of its subscriber sessions.
//
//	line.go            the line and its state; how it ends
//	registration.go    5GMM (TS 24.501 section 5): registration, mobility update, configuration update
//	request.go         service request
//	deregistration.go  deregistration from each side
//	authentication.go  authentication and security mode
//	timer.go           timers of 5GMM, and what happens when they end
//	identity.go        identities and capabilities
//	message.go         NAS messages out and in
//	session.go         5GSM: PDU sessions (TS 24.501 section 6)
//	resources.go       NGAP messages about the line (TS 38.413 section 8)
//	router.go          router discovery: the prefix of a PDU session with IPv6
//	setup.go           NGAP: resources of PDU sessions are set up
//	modification.go    NGAP: they are modified and released
//	record.go          what outlives the agent
//	service.go         the back end "core" of subscriber profiles
//
// A Line is a state machine without I/O: it acts on a World.
package agf

import (
	"time"

	"sluice.dev/sluice/agent/aka"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
)

// Core is a line's context at an AMF: a *n2.Context.
type Core interface {
	IDs() (ngap.AMFUENGAPID, ngap.RANUENGAPID)
	AMF() string
	TAI() ngap.TAI
	PLMN() nas.PLMN
	Send(message any)
	// RefusedNAS counts a NAS message that the line does not take.
	RefusedNAS(why n2.NASRefusal)
	// Release asks the AMF to release the context, and closes it. Close leaves that to the AMF.
	Release()
	Close()
}

// World is the environment of a line. No method calls the line back before it returns.
type World interface {
	// Open makes a context at an AMF: one of the AMF set of a Reroute, if it is not nil; otherwise the one of the GUTI, or any that serves the line.
	Open(l *Line, guti *nas.GUTI, to *n2.Reroute) (Core, error)
	Now() time.Time
	// Alarm: Tick is called at a time; the zero time: never.
	Alarm(l *Line, at time.Time)
	// Save: the content of the line's record has changed.
	Save(l *Line)
	// Over: the line is deregistered and has no PDU session; why is nil if it asks for none. hold: the next registration waits so long.
	Over(l *Line, why error, hold time.Duration)
	// Uplink sends an IP packet into the tunnel of a PDU session.
	Uplink(s *Session, packet []byte)
	// Random is below n.
	Random(n time.Duration) time.Duration
}

// Subscription identifies a line that the core authenticates itself: a SUPI with credentials.
type Subscription struct {
	PLMN nas.PLMN
	MSIN string
	// The object that has the credentials: "CoreSubscriber/home-7".
	Name string
	// Card is of the credentials: other ones begin with another sequence number.
	Card string
	aka.USIM
	nas.Concealment
}

func (s *Subscription) supi() string { return string(s.PLMN) + s.MSIN }

// Settings of a line.
type Settings struct {
	// Global line identifier without its operator part, and the realm of the SUCI.
	Line, Realm string
	Slice       *nas.SNSSAI
	// The PEI (TS 23.316 section 4.7.7).
	MAC [6]byte
	// Nil: the gateway vouches for the line, and NAS has null algorithms (TS 33.501 section 7B.3).
	Subscription *Subscription
	// Of its Agf, and the marks by 5QI that follow from them.
	Markings []*api.FiveQiMark
	Marks    map[uint32]qosflow.Mark
	// The HFC node of a line of a cable network; "": it is wireline.
	HFCNode string
}

// state is of 5GMM (TS 24.501 section 5.1.3.2.1).
type state uint8

const (
	deregistered state = iota
	// Initial registration.
	registering
	registered
	// Registration for a mobility update.
	updating
	// Service request.
	requesting
	// Deregistration by the line.
	leaving
	over
)

// Causes of 5GMM (TS 24.501 section 9.11.3.2).
const (
	causeIllegalUE       = 3
	causeIdentityUnknown = 9
	causeDeregistered    = 10
	causeMAC             = 20
	causeSynch           = 21
	causeCongestion      = 22
	causeMismatch        = 23
	causeSecurityMode    = 24
	causeNon5G           = 26
	causeKSIInUse        = 71
	causeMandatory       = 96
	causeUnknownType     = 97
	causeNotForwarded    = 90
	causeProtocol        = 111
)

// Line is a line. Its methods are called one at a time.
type Line struct {
	settings Settings
	world    World

	state     state
	core      Core
	suspended bool
	timers    [timers]time.Time
	attempts  int
	// The core refused a PDU session of a line that has no other one: why, how long the line waits, and how often in a row.
	refused    error
	refusedFor time.Duration
	refusals   int
	// The error of the core's authentication.
	challenge error
	// Rejections for good without integrity protection, in a row.
	doubts int
	// The message that is processed is not integrity protected, and could be: the line has credentials.
	unverified bool
	// How often the request of T3521 was sent.
	repeats int
	context *nas.SecurityContext
	// Of an authentication whose SECURITY MODE COMMAND is still to come.
	fresh *freshKeys
	peer  *aka.Peer
	// The whole initial message that was sent last, for SECURITY MODE COMPLETE.
	initial []byte
	guti    []byte
	// The initial message was rerouted.
	rerouted bool
	notice   time.Duration
	// The line moved: inform the AMF.
	moved    bool
	sessions map[uint8]*Session
	// Of the subscriber, in bit/s; 0: absent.
	ambr    nas.AMBR
	lastPTI uint8
}

// NewLine makes a line that is deregistered. It registers when it has a PDU session to set up.
func NewLine(s Settings, w World) *Line {
	return &Line{settings: s, world: w, notice: noticeTime, sessions: map[uint8]*Session{}}
}

// end ends the line: its PDU sessions have failed.
func (l *Line) end(err error, hold time.Duration) {
	if l.state == over {
		return
	}
	for _, s := range l.sessions {
		s.remove(err)
	}
	l.finish(err, hold)
}

// finish: the line is deregistered here, whatever the core's state.
func (l *Line) finish(why error, hold time.Duration) {
	if l.state == over {
		return
	}
	if why == nil {
		why, hold = l.refused, l.refusedFor
	}
	l.state = over
	l.timers = [timers]time.Time{}
	l.drop()
	l.world.Alarm(l, time.Time{})
	l.world.Over(l, why, hold)
}

func (l *Line) drop() {
	if l.core != nil {
		l.core.Close()
	}
	l.core, l.suspended = nil, false
}

// giveUp: the AMF does not answer, or its answer cannot be used.
func (l *Line) giveUp() {
	if l.core != nil {
		l.core.Release()
	}
	l.core, l.suspended = nil, false
}

// forget: the line is deregistered, and keeps its PDU sessions to set them up again.
func (l *Line) forget() {
	l.drop()
	l.state, l.guti, l.context, l.fresh, l.peer = deregistered, nil, nil, nil, nil
	l.stop(t3510, t3517, t3520, t3521, retry, notice)
	for _, s := range l.sessions {
		s.again()
	}
}

// connected: signalling with the AMF can go on.
func (l *Line) connected() bool { return l.core != nil && !l.suspended }

// pump starts pending procedures: registration, a mobility update, setup and release of PDU sessions.
func (l *Line) pump() {
	switch {
	case l.state == deregistered && l.timers[retry].IsZero():
		l.register()
	case l.state != registered || l.suspended:
	case l.core == nil:
		if l.timers[retry].IsZero() {
			l.requestService()
		}
	case l.moved:
		l.register()
	default:
		for _, s := range l.sessions {
			switch {
			case s.left && s.state != releasing:
				// Its subscriber session ended before a restart.
				s.Release()
			case s.state == pending:
				s.establish()
			}
		}
	}
}

// Mark marks the packets of the line's QoS flows in another way.
func (l *Line) Mark(markings []*api.FiveQiMark, marks map[uint32]qosflow.Mark) {
	before := l.settings.Marks
	l.settings.Markings, l.settings.Marks = markings, marks
	for _, s := range l.sessions {
		for _, f := range s.flows {
			s.dirty = s.dirty || marks[f.FiveQI] != before[f.FiveQI]
		}
		s.report()
	}
	l.world.Save(l)
}

var _ n2.UE = (*Line)(nil)
