// SPDX-License-Identifier: Apache-2.0
// Changes of sessions that are up: CoA.

package subscriber

import (
	"errors"
	"fmt"
	"reflect"

	"sluice.dev/sluice/agent/service"
)

// Change implements Manager.
func (m *manager) Change(which []Match, change Grant, done func(int, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	matching, err := m.selected(which, func(s *session) bool { return s.state == up })
	if err == nil && len(matching) == 0 {
		err = ErrNoSession
	}
	if err != nil {
		m.later(func() { done(0, err) })
		return
	}
	if change.Redirect != "" && change.Redirect != Clear && m.portalOf(change.Redirect) == "" {
		m.later(func() { done(0, fmt.Errorf("%w: %s", ErrNoPortal, change.Redirect)) })
		return
	}
	if err := m.checkQos(matching, &change); err != nil {
		m.later(func() { done(0, err) })
		return
	}
	c := &pendingChange{left: len(matching), done: done}
	for _, s := range matching {
		of := changedSession{session: s, before: s.connection.Grant, interval: change.InterimInterval != 0}
		s.connection.Grant = merged(of.before, change)
		of.after = s.connection.Grant
		if of.interval {
			s.interim = interimAfter(m.now(), m.times(s))
		}
		m.apply(s, func(r service.Result) { m.changeDone(c, &of, r) })
		m.schedule(s)
	}
}

// pendingChange is a Change whose results are not all known.
type pendingChange struct {
	left    int
	changed []*changedSession
	errs    []error
	// Those of these sessions.
	kept pendings
	done func(int, error)
}

// answer calls done once the disk has the sessions as they are: a server that has its answer does not ask again after a restart of the agent. If
// the disk refuses them, they get their earlier grant back.
func (m *manager) answer(c *pendingChange, count int, err error) {
	m.afterRecords(c.kept, func(disk error) {
		if err != nil || disk == nil {
			m.later(func() { c.done(count, errors.Join(err, disk)) })
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.takeBack(c, func() { m.later(func() { c.done(0, disk) }) })
	})
}

// changedSession is a session of a Change, with its grant before and after. interval: the change has an InterimInterval.
type changedSession struct {
	*session
	before, after Grant
	interval      bool
}

// changeDone takes the data plane's result for one session. RFC 5176 section 2.2: a CoA-Request changes all matching sessions, or none.
func (m *manager) changeDone(c *pendingChange, s *changedSession, r service.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := r.Err
	if err == nil && !r.Done {
		err = fmt.Errorf("%w: %s %s", ErrNotChanged, s.lease.Session, r.Waits)
	}
	switch {
	case err != nil && s.state == up:
		// The data plane keeps the session as it was, and so do we.
		m.undo(s, nil)
		fallthrough
	case err != nil:
		c.errs = append(c.errs, err)
	default:
		c.changed = append(c.changed, s)
	}
	if s.state == up {
		c.kept.add(m.keep(s.session))
	}
	if c.left--; c.left > 0 {
		return
	}
	if len(c.errs) == 0 {
		m.answer(c, len(c.changed), nil)
		return
	}
	err = errors.Join(c.errs...)
	m.takeBack(c, func() { m.answer(c, 0, err) })
}

// takeBack gives the sessions that were changed their earlier grant, and calls then, with m.mu held, when the data plane has it. m.mu is held.
func (m *manager) takeBack(c *pendingChange, then func()) {
	c.left = 1
	restored := func(service.Result) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if c.left--; c.left == 0 {
			then()
		}
	}
	for _, s := range c.changed {
		if s.state == up {
			c.left++
			m.undo(s, func(r service.Result) {
				if r.Err != nil {
					m.log.Warn("the data plane refuses a change of a subscriber's session", "session", s.lease.Session, "error", r.Err)
				}
				restored(r)
			})
			c.kept.add(m.keep(s.session))
		}
	}
	m.later(func() { restored(service.Result{}) })
}

// undo restores the grant of before a change. Fields that a later change set stay.
func (m *manager) undo(s *changedSession, result func(service.Result)) {
	now, before, after := reflect.ValueOf(&s.connection.Grant).Elem(), reflect.ValueOf(&s.before).Elem(), reflect.ValueOf(&s.after).Elem()
	for i := range now.NumField() {
		if reflect.DeepEqual(now.Field(i).Interface(), after.Field(i).Interface()) {
			now.Field(i).Set(before.Field(i))
		}
	}
	if s.interval {
		s.interim = interimAfter(m.now(), m.times(s.session))
	}
	m.apply(s.session, result)
	m.schedule(s.session)
}

// checkQos returns an error if the change names queues that a session would not have. A core's flows without a QosGroup have their limits, and no
// guaranteed rates.
func (m *manager) checkQos(matching []*session, change *Grant) error {
	if change.QosProfile == "" && change.QosGroup == "" && change.QosProfileUp == "" && change.QosGroupUp == "" {
		return nil
	}
	for _, s := range matching {
		g := merged(s.connection.Grant, *change)
		a := allowedBy(&g, m.profiles[or(g.Profile, s.connection.Profile)])
		if object := a.unpaired(change); object != "" && g.Core == nil {
			return fmt.Errorf("%w: %s of %s", ErrUnpairedQos, object, s.lease.Session)
		}
	}
	return nil
}

// merged is a grant with the changes of a CoA.
func merged(g, change Grant) Grant {
	set := func(to *string, value string) {
		if value != "" {
			*to = value
		}
	}
	for _, of := range []struct {
		meter *string
		rate  *Rate
		to    Rate
	}{{&g.MeterUp, &g.RateUp, change.RateUp}, {&g.MeterDown, &g.RateDown, change.RateDown}} {
		if of.to != (Rate{}) {
			*of.meter, *of.rate = "", of.to
		}
	}
	set(&g.MeterUp, change.MeterUp)
	set(&g.MeterDown, change.MeterDown)
	set(&g.ACLUp, change.ACLUp)
	set(&g.ACLDown, change.ACLDown)
	set(&g.QosProfile, change.QosProfile)
	set(&g.QosGroup, change.QosGroup)
	set(&g.QosProfileUp, change.QosProfileUp)
	set(&g.QosGroupUp, change.QosGroupUp)
	set(&g.FlowProfile, change.FlowProfile)
	set(&g.Redirect, change.Redirect)
	set(&g.Profile, change.Profile)
	g.SessionTimeout, g.IdleTimeout = or(change.SessionTimeout, g.SessionTimeout), or(change.IdleTimeout, g.IdleTimeout)
	g.InterimInterval = or(change.InterimInterval, g.InterimInterval)
	g.MSS, g.MTU = or(change.MSS, g.MSS), or(change.MTU, g.MTU)
	if change.Core != nil {
		g.Core = change.Core
	}
	if len(change.Routes) > 0 {
		g.Routes = change.Routes
	}
	if len(change.Class) > 0 {
		g.Class = change.Class
	}
	if len(change.State) > 0 {
		g.State = change.State
	}
	return g
}
