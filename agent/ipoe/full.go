// SPDX-License-Identifier: Apache-2.0
// A line that has all its clients: a new one takes the place of one that is silent, for example that of a CPE that was exchanged.

package ipoe

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	// A client keeps its place for so long after a message of it: two clients that both ask do not replace each other again and again.
	placeTime = 30 * time.Second
	// A client whose session carries no packet from it for so long is silent.
	silenceTime = 5 * time.Second
	// Clients of a line that are listened to at once.
	listenedAtOnce = 16
)

// contest is a client's wait for the place of another one on its line, or for its own on another line. There is at most one on a line.
type contest struct {
	line    lineKey
	key     clientKey
	began   time.Time
	waiting [kinds]*message
	// Sessions of the clients that may be gone: the one without a message for the longest time first.
	sessions []place
	// Packets that the sessions had carried when it began, by Session; nil: not known yet.
	before map[string]uint64
	// No client was silent: the line is left alone until the timer is due.
	lost bool
	deadline.Timer
}

// place is a client's session: its Acct-Session-Id, and the Session object.
type place struct{ id, session string }

// Listen reads how many packets Sessions of a data plane have carried from their subscribers. The result goes to Listened.
type Listen struct {
	Dataplane string
	Sessions  []string
	of        *contest
	// A client without a lease, in place of a contest.
	idle *client
}

func (Listen) action() {}

// challenge begins or continues the wait of a new client on a full line, or of a client whose MAC has a session on another line. It returns the
// reason why the client does not wait; "": it waits.
func (m *Machine) challenge(s *server, line lineKey, key clientKey, kind int, msg *message) (limit string) {
	full, others := "too-many-clients", m.ofLine[line]
	if elsewhere := m.clients[key]; elsewhere != nil {
		full, others = "another-line", []*client{elsewhere}
	}
	one := m.contests[line]
	switch {
	case s.spec.OnFullCircuit == api.FullCircuit_REFUSE_NEW_CLIENT:
		return full
	case one != nil && (one.lost || one.key != key):
		return full
	case one != nil:
		one.waiting[kind] = msg
		return ""
	}
	var silent []*client
	for _, c := range others {
		if c.phase == up && !m.now.Before(c.heard.Add(placeTime)) && c.lease.Session != "" {
			silent = append(silent, c)
		}
	}
	if len(silent) == 0 {
		return full
	}
	slices.SortStableFunc(silent, func(a, b *client) int { return a.heard.Compare(b.heard) })
	one = &contest{line: line, key: key, began: m.now}
	one.waiting[kind] = msg
	for _, c := range silent[:min(len(silent), listenedAtOnce)] {
		one.sessions = append(one.sessions, place{c.id, c.lease.Session})
	}
	m.contests[line] = one
	m.contestTimers.Set(one, m.now.Add(silenceTime))
	m.listen(one)
	return ""
}

func (m *Machine) listen(one *contest) {
	a := Listen{Dataplane: one.key.dataplane, of: one}
	for _, p := range one.sessions {
		a.Sessions = append(a.Sessions, p.session)
	}
	m.do(a)
}

func (m *Machine) endContest(one *contest) {
	if m.contests[one.line] == one {
		delete(m.contests, one.line)
	}
	m.contestTimers.Remove(one)
}

// tickContests ends contests that were lost, and listens a second time.
func (m *Machine) tickContests() {
	for one, due := m.contestTimers.Due(m.now); due; one, due = m.contestTimers.Due(m.now) {
		m.contestTimers.Remove(one)
		if one.lost || one.before == nil || m.now.Sub(one.began) >= patience {
			m.endContest(one)
			continue
		}
		m.contestTimers.Set(one, one.began.Add(patience))
		m.listen(one)
	}
}

// Listened takes the packets that sessions have carried, by Session; nil: they are not known.
func (m *Machine) Listened(a Listen, packets map[string]uint64, now time.Time) []Action {
	m.now = now
	if a.idle != nil {
		m.lookedAt(a.idle, a.Sessions[0], packets)
		return m.done()
	}
	one := a.of
	if m.contests[one.line] != one || one.lost {
		return nil
	}
	switch {
	case packets == nil:
		m.endContest(one)
	case one.before == nil:
		one.before = packets
	case now.Sub(one.began) >= silenceTime:
		m.decide(one, packets)
	}
	return m.done()
}

// decide gives the new client the place of one that was silent.
func (m *Machine) decide(one *contest, packets map[string]uint64) {
	s := m.serverOf(one.key.circuit)
	elsewhere := m.clients[one.key]
	if s == nil || elsewhere != nil && elsewhere.line == one.line {
		m.endContest(one)
		return
	}
	if elsewhere != nil || len(m.ofLine[one.line]) >= s.most {
		i := slices.IndexFunc(one.sessions, func(p place) bool {
			c := m.byID[p.id]
			before, known := one.before[p.session]
			now, knownNow := packets[p.session]
			return c != nil && c.phase == up && c.heard.Before(one.began) && known && knownNow && before == now
		})
		if i < 0 {
			one.lost, one.waiting = true, [kinds]*message{}
			m.contestTimers.Set(one, m.now.Add(refusalTime))
			return
		}
		m.end(m.byID[one.sessions[i].id], subscriber.PortPreempted)
	}
	m.endContest(one)
	for kind, msg := range one.waiting {
		if msg == nil {
			continue
		}
		if c, limit := m.client(s, one.key, kind, msg); c != nil {
			m.serve(s, c, kind, msg)
		} else if limit != "" {
			m.do(Count{names[kind], "", limit})
		}
	}
}
