// SPDX-License-Identifier: Apache-2.0

// Accounting records from the Manager into the spool, and from the spool to servers.
package radius

import (
	"context"
	"errors"
	"slices"
	"time"
	"unique"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/subscriber"
)

// Account implements subscriber.Accountant.
func (s *radius) Account(r subscriber.Record) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, announced := s.accountant(&r)
	if p == nil {
		if r.Kind == subscriber.Stop {
			s.spool.keep(s.sessions.end(r.ID))
		}
		return
	}
	if !announced && s.refuse(p, &r) {
		return
	}
	if !announced && r.Kind != subscriber.Start && !s.spool.ends(r.ID) {
		// The agent was killed after the Manager had kept the session, and before the log had its Start; or Accounting-Off ended the session.
		start := r
		start.Kind, start.At, start.Cause = subscriber.Start, r.Since, 0
		s.spool.add(&record{policy: p.name, session: r.ID, kind: start.Kind, at: start.At}, p.accountingAttributes(&start), s.limit(p))
	}
	// Together: a session that is known has its Start in the log, and one that is forgotten its Stop.
	s.spool.add(&record{policy: p.name, session: r.ID, kind: r.Kind, at: r.At}, p.accountingAttributes(&r), s.limit(p), s.sessions.account(p, s.spool.on[p.nas].since, &r)...)
	s.carryOut(s.pump(now))
}

// Resume implements subscriber.Resumer: a session whose Start is not in the log gets it.
func (s *radius) Resume(r subscriber.Record) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, announced := s.accountant(&r)
	if p == nil || announced || s.spool.ends(r.ID) || s.refuse(p, &r) {
		return
	}
	s.spool.add(&record{policy: p.name, session: r.ID, kind: subscriber.Start, at: r.Since}, p.accountingAttributes(&r), s.limit(p), s.sessions.account(p, s.spool.on[p.nas].since, &r)...)
	s.carryOut(s.pump(now))
}

// accountant returns the policy that a record goes to; nil: none. announced: it had the session's Start, and no Accounting-Off since. s.mu is
// held.
func (s *radius) accountant(r *subscriber.Record) (p *policy, announced bool) {
	if p = s.policyOf(r.Profile); p != nil && len(p.spec.Accounting) == 0 {
		p = nil
	}
	w, known := s.sessions.byID[r.ID]
	if !known || w.account == (unique.Handle[account]{}) {
		return p, known
	}
	of := w.account.Value()
	on, accounts := s.spool.on[of.nas]
	if announced = accounts && on.since == of.since; !announced && (p != nil || r.Kind != subscriber.Stop) {
		return p, false
	}
	// The servers that had its Start get its Stop, be it after Accounting-Off: it has the counters.
	same := s.accounting(of.policy)
	if same == nil {
		return p, false
	}
	if same.nas != of.nas {
		with := *same
		with.nas = of.nas
		same = &with
	}
	return same, true
}

// sendWritten sends records once the disk has them, and not before: of a record that the server has and the disk has not, a killed agent would
// send another one. It also calls what waits for the disk.
func (s *radius) sendWritten(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		all := s.unwritten
		s.unwritten = nil
		s.mu.Unlock()
		if refused(all) && !s.awaitDisk(ctx) {
			return
		}
		s.guarded(func() { s.sendAll(all) })
		for _, u := range all {
			if u.then != nil {
				s.guarded(u.then)
			}
		}
	}
}

// sendAll sends records that the disk has.
func (s *radius) sendAll(all []unwritten) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range all {
		if u.record != nil {
			s.spool.written(u.record)
		}
	}
	s.carryOut(s.pump(time.Now()))
}

// refuses reports whether the disk may take records later. Records beyond the limits of the log are never on the disk.
func refuses(err error) bool { return err != nil && !errors.Is(err, durable.ErrLimit) }

// refused waits for records, and reports whether the disk may take one of them later. Each counts by itself: one that is beyond the limits of the
// log says nothing of the disk.
func refused(all []unwritten) (any bool) {
	for _, u := range all {
		any = refuses(u.pending.Wait()) || any
	}
	return any
}

// awaitDisk returns once the disk has all records up to now. false: the service ends.
func (s *radius) awaitDisk(ctx context.Context) bool {
	again := time.NewTicker(diskAgain)
	defer again.Stop()
	for {
		s.mu.Lock()
		pending := s.spool.retry()
		s.mu.Unlock()
		if !refuses(pending.Wait()) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// onDisk calls f, without s.mu, once the disk has all records up to now. After the end of the service it calls nothing.
func (s *radius) onDisk(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await(unwritten{pending: s.spool.table.Put(), then: f})
}

// await has sendWritten wait for a record. s.mu is held.
func (s *radius) await(u unwritten) {
	s.unwritten = append(s.unwritten, u)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pump sends records while there is room. s.mu is held.
func (s *radius) pump(now time.Time) (actions []action) {
	if s.ended {
		return nil
	}
	for p := range s.accountants() {
		if s.behind(p) {
			continue
		}
		rate := int(p.spec.SpoolRate)
		if rate == 0 {
			rate = defaultSpoolRate
		}
		box := s.spool.boxes[p.name]
		for box != nil && len(p.accounting) > 0 && (box.paused || room(p.accounting, now)) {
			r, all := s.spool.take(p.name, rate, now)
			if r == nil {
				break
			}
			actions = append(actions, s.deliver(p.name, r, all, now)...)
		}
	}
	return actions
}

// behind reports whether another policy of the same NAS has an announcement for a server of this one. s.mu is held.
func (s *radius) behind(p *policy) bool {
	on := s.spool.on[p.nas].policy
	box := s.spool.boxes[on]
	if on == p.name || box == nil || !box.announce.has(kindOn) {
		return false
	}
	other := s.accounting(on)
	return other != nil && slices.ContainsFunc(p.accounting, func(o choice) bool {
		return slices.ContainsFunc(other.accounting, func(also choice) bool { return also.endpoint == o.endpoint })
	})
}

// deliver submits a record.
func (s *radius) deliver(name string, r *record, all attributes, now time.Time) []action {
	x := &exchange{code: AccountingRequest, at: r.at, attributes: all, choices: func() []choice {
		if p := s.accounting(name); p != nil {
			return p.accounting
		}
		return nil
	}}
	x.done = func(reply packet, _ *endpoint) {
		// s.mu is held.
		if reply == nil {
			s.spool.failed(r, time.Now())
			if p := s.accounting(name); p != nil && slices.ContainsFunc(p.accounting, func(o choice) bool { return !o.dead && o.replied.After(x.began) }) {
				// A server answered others meanwhile, or came back: only this record is lost.
				s.spool.alive(name)
			}
			return
		}
		s.spool.delivered(r)
	}
	return s.client.submit(x, now)
}
