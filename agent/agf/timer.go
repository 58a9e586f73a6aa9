// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"fmt"
	"time"
)

// timer of 5GMM (TS 24.501 table 10.2.1). Those of 5GSM are of each PDU session.
type timer uint8

const (
	t3510  timer = iota // registration
	t3517               // service request
	t3520               // authentication failure
	t3521               // deregistration
	retry               // T3511, T3346, T3525, or the next attempt of an idle line
	notice              // the non-3GPP de-registration timer
	timers
)

const (
	t3502Time  = 12 * time.Minute
	t3510Time  = 15 * time.Second
	t3511Time  = 10 * time.Second
	t3517Time  = 15 * time.Second
	t3520Time  = 15 * time.Second
	t3521Time  = 15 * time.Second
	t3525Time  = time.Minute
	noticeTime = 54 * time.Minute
	// The default range of T3346, and that of T3247 (TS 24.008 section 11.2.2).
	t3346Least, t3346Range = 15 * time.Minute, 15 * time.Minute
	t3247Least, t3247Range = 30 * time.Minute, 30 * time.Minute
	// After so many rejections without integrity protection the USIM of a line is invalid until it is changed: this long, if it is not.
	maxDoubts   = 10
	invalidTime = 24 * time.Hour
	// After these attempts a line waits longer.
	maxAttempts = 5
	// Lines whose association is lost come back within this time.
	comeBack = 2 * time.Second
	// A line without an AMF tries again after this time.
	noAMF = 5 * time.Second
)

func (l *Line) set(t timer, after time.Duration) {
	l.timers[t] = l.world.Now().Add(after)
	l.alarm()
}

func (l *Line) stop(all ...timer) {
	for _, t := range all {
		l.timers[t] = time.Time{}
	}
	l.alarm()
}

// alarm is at the earliest of all timers.
func (l *Line) alarm() {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, t := range l.timers {
		sooner(t)
	}
	for _, s := range l.sessions {
		sooner(s.timer)
	}
	l.world.Alarm(l, at)
}

// Tick ends timers.
func (l *Line) Tick() {
	now := l.world.Now()
	for t := range timers {
		if at := l.timers[t]; !at.IsZero() && !at.After(now) {
			l.timers[t] = time.Time{}
			l.expire(t)
		}
	}
	for _, s := range l.sessions {
		if !s.timer.IsZero() && !s.timer.After(now) {
			s.timer = time.Time{}
			s.expire()
		}
	}
	l.alarm()
}

func (l *Line) expire(t timer) {
	switch t {
	case t3510:
		l.failed(errors.New("the core does not answer the registration (T3510)"), 0)
	case t3517:
		l.retryService()
	case t3520:
		l.failed(fmt.Errorf("the core does not authenticate again (T3520): %w", l.challenge), 0)
	case t3521:
		if l.repeats++; l.repeats < maxAttempts {
			l.sendDeregistration()
			return
		}
		l.giveUp()
		l.finish(nil, 0)
	case retry:
		switch {
		case l.state == deregistered:
			l.register()
		case l.state == registered && l.core == nil:
			l.requestService()
		default:
			l.pump()
		}
	case notice:
		// The core has forgotten the line (section 5.3.7). Its PDU sessions are set up anew.
		l.forget()
		l.register()
	}
}

// failed ends a registration: the next one waits.
func (l *Line) failed(err error, hold time.Duration) {
	mobility := l.state == updating
	l.stop(t3510, t3517, t3520)
	if mobility {
		// The line stays registered (section 5.5.1.3.7).
		l.state = registered
		l.attempts++
		l.giveUp()
		l.idle(l.pause(hold))
		return
	}
	l.attempts++
	hold = l.pause(hold)
	l.giveUp()
	l.end(err, hold)
}

// pause is the delay of the next attempt: T3511, or T3502 after some attempts, unless the core sets another.
func (l *Line) pause(hold time.Duration) time.Duration {
	switch {
	case hold != 0:
		return hold
	case l.attempts >= maxAttempts:
		return t3502Time
	}
	return t3511Time
}
