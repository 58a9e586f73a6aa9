// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

const (
	// Sessions whose counters are asked for at once.
	pageLength = 1000
	// All counters are read in this time, so that little is lost when a data plane dies.
	pollInterval = time.Minute
	// Changes of a session's addresses within this time are in one Interim record.
	addressDelay = time.Second
	// How often an idle session is looked at within its timeout.
	idleLooks = 4
)

// plane is a connected data plane.
type plane struct {
	name   string
	client *dataplane.Client
	boot   uint64
}

func (m *manager) bootOf(s *session) uint64 {
	if p := m.planes[s.connection.Line.Dataplane]; p != nil {
		return p.boot
	}
	return 0
}

// delivery is a record on its way to a back end.
type delivery struct {
	record Record
	// Called when the back end has it; may be nil.
	taken func()
}

// account gives the session's back ends a record. taken is called when all of them have it.
func (m *manager) account(s *session, kind RecordKind, taken func()) {
	if len(s.accounting) == 0 {
		if taken != nil {
			m.later(taken)
		}
		return
	}
	r := m.record(s, kind)
	left := len(s.accounting)
	one := func() {
		// Deliveries are made one after the other.
		if left--; left == 0 && taken != nil {
			taken()
		}
	}
	for _, name := range s.accounting {
		m.deliver(name, delivery{r, one})
	}
}

// record is a session's record of now. m.mu is held.
func (m *manager) record(s *session, kind RecordKind) Record {
	t := s.total()
	r := Record{Kind: kind, At: m.now(), Since: s.since, Request: s.connection.Request, Grant: s.connection.Grant, Lease: s.lease,
		UpPackets: t.upPackets, UpBytes: t.upBytes, DownPackets: t.downPackets, DownBytes: t.downBytes}
	switch kind {
	case Start:
		r.At = s.since
	case Stop:
		r.At, r.Cause = s.end, s.cause
	}
	return r
}

// resume gives a back end the sessions of an earlier life. A session that has ended meanwhile has its Stop, which makes up for a lost Start as
// well. m.mu is held.
func (m *manager) resume(name string, c Accountant) {
	all := m.restored[name]
	delete(m.restored, name)
	to, is := c.(Resumer)
	if !is || len(all) == 0 {
		return
	}
	m.later(func() {
		for _, s := range all {
			m.mu.Lock()
			live, r := s.state == up, m.record(s, Start)
			m.mu.Unlock()
			if live {
				m.callbacks.guarded(func() { to.Resume(r) })
			}
		}
	})
}

// deliver gives a back end a record, or keeps it until the back end is there.
func (m *manager) deliver(name string, d delivery) {
	c := m.backEnds[name].accountant
	if c == nil {
		if d.record.Kind != Interim {
			m.undelivered[name] = append(m.undelivered[name], d)
		}
		return
	}
	m.later(func() {
		c.Account(d.record)
		d.taken()
	})
}

// interimAfter is when an interim record is due; the zero time: never.
func interimAfter(now time.Time, t times) time.Time {
	if t.interim <= 0 {
		return time.Time{}
	}
	// In this order: a back end may grant 2^32-1 seconds.
	spread := int64(t.interim) / 100 * int64(t.jitter)
	return now.Add(t.interim - time.Duration(spread/2) + time.Duration(rand.Int64N(spread+1)))
}

// readdressed has an Interim record made soon if the addresses are not those of before. It does not depend on an interval. m.mu is held.
func (m *manager) readdressed(s *session, before [4]netip.Prefix) {
	if len(s.accounting) == 0 || !s.addressesDue.IsZero() || s.held() == before {
		return
	}
	s.addressesDue = m.now().Add(addressDelay)
	m.schedule(s)
}

// schedule sets when the session is looked at next.
func (m *manager) schedule(s *session) {
	if s.state != up {
		return
	}
	t := m.times(s)
	var due time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	if t.sessionTimeout > 0 {
		sooner(s.since.Add(t.sessionTimeout))
	}
	switch {
	case t.interim <= 0:
		s.interim = time.Time{}
	case s.interim.IsZero():
		s.interim = interimAfter(m.now(), t)
	}
	sooner(s.interim)
	sooner(s.addressesDue)
	if t.idleTimeout > 0 {
		look := m.now().Add(max(t.idleTimeout/idleLooks, time.Second))
		if end := s.active.Add(t.idleTimeout); end.After(m.now()) && end.Before(look) {
			look = end
		}
		sooner(look)
	}
	m.timers.Set(s, due)
}

// tick looks at sessions that are due. It returns those whose counters have to be read first, by data plane.
func (m *manager) tick(now time.Time) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetAddresses(forgottenAtOnce)
	var read map[string][]string
	for s, due := m.timers.Due(now); due; s, due = m.timers.Due(now) {
		m.timers.Remove(s)
		if t := m.times(s); t.sessionTimeout > 0 && !s.since.Add(t.sessionTimeout).After(now) {
			m.terminate(s, SessionTimeout, "")
			continue
		}
		if read == nil {
			read = map[string][]string{}
		}
		read[s.connection.Line.Dataplane] = append(read[s.connection.Line.Dataplane], s.lease.Session)
	}
	return read
}

// look processes due sessions after an attempt to read their counters. fresh: they were read.
func (m *manager) look(names []string, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, name := range names {
		s := m.bySession[name]
		if s == nil || s.state != up {
			continue
		}
		t := m.times(s)
		if t.idleTimeout > 0 && fresh && !s.active.Add(t.idleTimeout).After(now) {
			m.terminate(s, IdleTimeout, "")
			continue
		}
		// An Interim record has the addresses, and one that has changed addresses stands for one of the interval that is due soon.
		due := func(at, by time.Time) bool { return !at.IsZero() && !at.After(by) }
		if changed := due(s.addressesDue, now); changed || due(s.interim, now) {
			if due(s.interim, now.Add(addressDelay)) {
				s.interim = interimAfter(now, t)
			}
			s.addressesDue = time.Time{}
			m.account(s, Interim, nil)
			m.keep(s)
		}
		m.schedule(s)
	}
}

// counted takes counters of a data plane.
func (m *manager) counted(boot uint64, all []*api.SessionCounters) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, c := range all {
		s := m.bySession[c.GetSession()]
		if s == nil || s.state != up {
			continue
		}
		s.count(trafficOf(c), boot)
		if t := s.total(); t != s.seen {
			s.seen, s.active = t, now
		}
	}
}

// read reads counters of sessions of one data plane, in pages.
func (m *manager) read(ctx context.Context, name string, sessions []string) {
	m.mu.Lock()
	p := m.planes[name]
	m.mu.Unlock()
	for len(sessions) > 0 && ctx.Err() == nil {
		n := min(len(sessions), pageLength)
		fresh := false
		if p != nil {
			answer, err := dataplane.Ask[*api.SessionCountersList](ctx, p.client, &api.SessionCountersQuery{Sessions: sessions[:n]})
			if fresh = err == nil; fresh {
				m.counted(p.boot, answer.GetSessions())
			}
		}
		m.look(sessions[:n], fresh)
		sessions = sessions[n:]
	}
}

// poll reads all counters of a data plane.
func (m *manager) poll(ctx context.Context, p *plane) error {
	q := &api.SessionCountersQuery{Limit: pageLength}
	for ctx.Err() == nil {
		answer, err := dataplane.Ask[*api.SessionCountersList](ctx, p.client, q)
		if err != nil {
			return err
		}
		m.counted(p.boot, answer.GetSessions())
		if q.Page = answer.GetNextPage(); q.Page == "" {
			return nil
		}
	}
	return ctx.Err()
}

// met ends sessions that were ending when the agent stopped: all counters of their data plane have been read.
func (m *manager) met(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		return
	}
	for s := range m.unfinished {
		if name == "" || s.connection.Line.Dataplane == name {
			m.finish(s, s.cause)
		}
	}
}

// String returns the cause's name of RFC 2866.
func (c Cause) String() string {
	names := [...]string{"", "user-request", "lost-carrier", "lost-service", "idle-timeout", "session-timeout", "admin-reset", "admin-reboot", "port-error",
		"nas-error", "nas-request", "nas-reboot", "port-unneeded", "port-preempted", "port-suspended", "service-unavailable", "callback", "user-error",
		"host-request"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}
