// SPDX-License-Identifier: Apache-2.0

// Accounting records on their way to servers. Each is in the durable log until a server has acknowledged it. Records of one session go one
// after the other.
package radius

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/subscriber"
)

// Kinds of records besides a session's.
const (
	kindOn  subscriber.RecordKind = 100
	kindOff subscriber.RecordKind = 101
)

// Keys in the table: records by their number, in order; NASs that have sent Accounting-On; and the last RadiusPolicy of each name that accounted.
const (
	recordPrefix = "a/"
	onPrefix     = "on/"
	policyPrefix = "p/"
)

// How long a policy waits after no server has answered: doubled each time, and spread by a tenth, so that many gateways do not ask a server that
// comes back at once (RFC 5080 section 2.2.1).
const (
	pauseFirst = time.Second
	pauseMost  = 30 * time.Second
)

// table is where records are kept: *durable.Table, but in tests.
type table interface {
	Put(records ...durable.Record) durable.Pending
	Get(key string) []byte
	Unsorted() []durable.Record
}

// record is a record in the spool. Its attributes are in the table.
type record struct {
	key     string
	policy  string
	session string
	kind    subscriber.RecordKind
	at      time.Time
	// The disk has it: it may be sent. A record that is sent before could come again with other counters after a crash.
	written bool
	// How often it is on its way to the disk: once more for each time that it changes.
	writing int
	// How many of Accounting-On and Accounting-Off its policy had entered before it.
	era uint64
	// It waits, or waited, for a server to return.
	waited bool
	// Its value while the table does not have it.
	held []byte
}

const recordVersion = 1

func (r *record) encode(all attributes) []byte {
	b := append(make([]byte, 0, 64+len(all)), recordVersion, byte(r.kind))
	b = binary.BigEndian.AppendUint64(b, uint64(r.at.UnixNano()))
	for _, text := range []string{r.policy, r.session} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	return append(b, all...)
}

func decodeRecord(key string, b []byte) (*record, attributes, error) {
	policy, session, all, err := partsOf(b)
	if err != nil {
		return nil, nil, err
	}
	return &record{key: key, policy: string(policy), session: string(session), kind: subscriber.RecordKind(b[1]),
		at: time.Unix(0, int64(binary.BigEndian.Uint64(b[2:]))), written: true, waited: true}, all, nil
}

// partsOf returns what follows the head of a record. It refers to the record.
func partsOf(b []byte) (policy, session []byte, all attributes, err error) {
	if len(b) < 10 || b[0] != recordVersion {
		return nil, nil, nil, errors.New("not a record of this version")
	}
	b = b[10:]
	for _, to := range []*[]byte{&policy, &session} {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return nil, nil, nil, errors.New("the record ends too soon")
		}
		*to, b = b[n:n+int(length)], b[n+int(length):]
	}
	return policy, session, attributes(b), nil
}

// announced is a NAS that accounts: the policy whose servers got its Accounting-On, and when, as text.
type announced struct{ policy, since string }

func (a announced) encode() []byte { return []byte(a.policy + "\x00" + a.since) }

// decodeAnnounced reads the policy alone from a record of an earlier version.
func decodeAnnounced(b []byte) announced {
	policy, since, _ := strings.Cut(string(b), "\x00")
	return announced{policy, since}
}

// line is the records of one session, the oldest first.
type line struct {
	records []*record
	busy    bool
	// It waits to be sent, in a queue of its policy.
	queued bool
}

func (l *line) has(kind subscriber.RecordKind) bool {
	for _, r := range l.records {
		if r.kind == kind {
			return true
		}
	}
	return false
}

// fifo is a queue that frees taken elements.
type fifo struct {
	all   []*line
	first int
}

func (q *fifo) push(l *line) { q.all, l.queued = append(q.all, l), true }

func (q *fifo) pop() *line {
	if q.first == len(q.all) {
		return nil
	}
	l := q.all[q.first]
	q.all[q.first], l.queued = nil, false
	if q.first++; q.first > 1024 && q.first > len(q.all)/2 {
		q.all, q.first = append([]*line(nil), q.all[q.first:]...), 0
	}
	return l
}

// outbox is the records of a policy.
type outbox struct {
	lines map[string]*line
	// Accounting-On and Accounting-Off. Each goes after all records that were entered before it, and before all that were entered after it.
	announce line
	// How many of them were entered, and records of sessions by the number that was entered before them.
	era  uint64
	left map[uint64]int
	// Lines whose first record goes after an announcement that waits.
	later []*line
	// Lines whose first record can be sent: at once, or as spoolRate allows.
	fresh, waited fifo
	busy          int
	// No server answers; until when nothing is tried, and how long the next time.
	paused bool
	until  time.Time
	pause  time.Duration
	tokens float64
	filled time.Time
}

// spool is all records. It is not for several goroutines.
type spool struct {
	table table
	next  uint64
	boxes map[string]*outbox
	count int
	// NASs that account.
	on map[nas]announced
	// Interim records that a later one replaced; records that the spool had already, and that it had no room for.
	superseded, repeated, refusals uint64
	// The values that the table has no room for while the disk refuses much, and the first refusal. It has each key once, with the last value: retry puts all of
	// it at once, and so its order is of no account.
	refused   []durable.Record
	refusedAt map[string]int
	full      durable.Pending
	// Calls written once the disk has a record. nil: records are not waited for.
	await func(*record, durable.Pending)
	// 0 to n-1, for the spread of pauses.
	chance func(n int) int
}

// newSpool reads the records of an earlier run. Unreadable records are named and stay.
func newSpool(t table) (*spool, []error) {
	s := &spool{table: t, boxes: map[string]*outbox{}, on: map[nas]announced{}, refusedAt: map[string]int{}, chance: rand.IntN}
	// Most records of the table are sessions'.
	ours := slices.DeleteFunc(t.Unsorted(), func(r durable.Record) bool {
		if key, is := strings.CutPrefix(r.Key, onPrefix); is {
			s.on[nasOf(key)] = decodeAnnounced(r.Value)
		}
		return !strings.HasPrefix(r.Key, recordPrefix)
	})
	slices.SortFunc(ours, func(a, b durable.Record) int { return strings.Compare(a.Key, b.Key) })
	var errs []error
	for _, kept := range ours {
		number := strings.TrimPrefix(kept.Key, recordPrefix)
		var n uint64
		r, _, err := decodeRecord(kept.Key, kept.Value)
		if err == nil {
			_, err = fmt.Sscanf(number, "%016x", &n)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", kept.Key, err))
			continue
		}
		s.next = max(s.next, n+1)
		s.enter(r)
	}
	return s, errs
}

func (s *spool) box(policy string) *outbox {
	b := s.boxes[policy]
	if b == nil {
		b = &outbox{lines: map[string]*line{}, left: map[uint64]int{}}
		s.boxes[policy] = b
	}
	return b
}

// enter puts a record into its line.
func (s *spool) enter(r *record) {
	s.count++
	b := s.box(r.policy)
	r.era = b.era
	if r.kind == kindOn || r.kind == kindOff {
		b.era++
		b.announce.records = append(b.announce.records, r)
		return
	}
	b.left[r.era]++
	l := b.lines[r.session]
	if l == nil {
		l = &line{}
		b.lines[r.session] = l
	}
	l.records = append(l.records, r)
	if len(l.records) == 1 && r.written && !l.queued {
		b.ready(l)
	}
}

// written lets a record be sent: the disk has it.
func (s *spool) written(r *record) {
	if r.written {
		return
	}
	if r.writing--; r.writing > 0 {
		return
	}
	r.written = true
	if b, l := s.lineOf(r); l != nil && l != &b.announce && len(l.records) > 0 && l.records[0] == r && !l.queued {
		b.ready(l)
	}
}

func (b *outbox) ready(l *line) {
	switch first := l.records[0]; {
	case len(b.announce.records) > 0 && b.announce.records[0].era < first.era:
		b.later, l.queued = append(b.later, l), true
	case first.waited:
		b.waited.push(l)
	default:
		b.fresh.push(l)
	}
}

// ends reports whether a Stop of a session waits.
func (s *spool) ends(session string) bool {
	for _, b := range s.boxes {
		if l := b.lines[session]; l != nil && l.has(subscriber.Stop) {
			return true
		}
	}
	return false
}

// starts reports whether a Start that was entered after the last announcement waits.
func (l *line) starts(b *outbox) bool {
	for _, r := range l.records {
		if r.kind == subscriber.Start && r.era == b.era {
			return true
		}
	}
	return false
}

// waiting returns the last record, unless it is under way; nil: there is none.
func (l *line) waiting() *record {
	if l == nil || len(l.records) == 1 && l.busy {
		return nil
	}
	return l.records[len(l.records)-1]
}

// add keeps a record, and more of the table with it. limit: beyond so many records an Interim-Update takes the place of one of its session
// that waits, if there is one.
func (s *spool) add(r *record, all attributes, limit int, more ...durable.Record) {
	b := s.box(r.policy)
	if l := b.lines[r.session]; l != nil && r.kind < kindOn {
		if l.has(subscriber.Stop) || r.kind == subscriber.Start && l.starts(b) {
			// The agent ended before the Manager had noted that it was accounted for.
			s.repeated++
			s.keep(more)
			return
		}
	}
	if r.kind == subscriber.Interim && s.count >= limit {
		if last := b.lines[r.session].waiting(); last != nil && last.kind == subscriber.Interim {
			s.superseded++
			last.at = r.at
			s.awaitWritten(last, s.write(last, last.encode(all), more...))
			return
		}
	}
	r.key = recordKey(s.next)
	s.next++
	r.waited = b.paused || b.waited.first < len(b.waited.all)
	pending := s.write(r, r.encode(all), more...)
	r.written = s.await == nil
	s.enter(r)
	s.awaitWritten(r, pending)
}

// awaitWritten lets a record be sent no sooner than the disk has it as it is now.
func (s *spool) awaitWritten(r *record, pending durable.Pending) {
	if s.await != nil {
		r.written = false
		r.writing++
		s.await(r, pending)
	}
}

// keep puts records of sessions into the table.
func (s *spool) keep(all []durable.Record) {
	if len(all) > 0 {
		s.put(all...)
	}
}

// put gives records to the table. Those that it has no room for, and all after them, wait for retry.
func (s *spool) put(all ...durable.Record) durable.Pending {
	if len(s.refused) == 0 {
		pending := s.table.Put(all...)
		if !errors.Is(pending.Refused(), durable.ErrFull) {
			return pending
		}
		s.full = pending
	}
	for _, r := range all {
		if at, there := s.refusedAt[r.Key]; there {
			s.refused[at] = r
			continue
		}
		s.refusedAt[r.Key] = len(s.refused)
		s.refused = append(s.refused, r)
	}
	return s.full
}

// retry gives the table what it had no room for. Once the disk has the result, it has all that was put before.
func (s *spool) retry() durable.Pending {
	pending := s.table.Put(s.refused...)
	if pending.Refused() == nil {
		s.refused = nil
		clear(s.refusedAt)
	}
	return pending
}

// recordKey is the prefix and 16 digits.
func recordKey(number uint64) string {
	const digits = "0123456789abcdef"
	b := append(make([]byte, 0, len(recordPrefix)+16), recordPrefix...)
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[number>>shift&15])
	}
	return string(b)
}

func (s *spool) write(r *record, value []byte, more ...durable.Record) durable.Pending {
	pending := s.put(append(more, durable.Record{Key: r.key, Value: value})...)
	r.held = nil
	if pending.Refused() != nil {
		r.held = value
	}
	return pending
}

// take returns a record to send now, or nil. rate: records a second of those that waited.
func (s *spool) take(policy string, rate int, now time.Time) (*record, attributes) {
	b := s.boxes[policy]
	if b == nil || b.paused && (now.Before(b.until) || b.busy > 0) {
		return nil, nil
	}
	for {
		l := b.choose(rate, now)
		if l == nil {
			return nil, nil
		}
		r := l.records[0]
		if !r.written {
			// It has changed since. It is in a queue again once the disk has it.
			continue
		}
		value := r.held
		if value == nil {
			value = s.table.Get(r.key)
		}
		_, _, all, err := partsOf(value)
		if err != nil {
			// This cannot happen: the spool's records were read or written by us.
			s.forget(b, l, r)
			continue
		}
		l.busy = true
		b.busy++
		return r, all
	}
}

func (b *outbox) choose(rate int, now time.Time) *line {
	if len(b.announce.records) > 0 {
		first := b.announce.records[0]
		if b.announce.busy {
			return nil
		}
		if b.left[first.era] == 0 {
			if !first.written {
				return nil
			}
			return &b.announce
		}
	}
	b.tokens = min(b.tokens+now.Sub(b.filled).Seconds()*float64(rate), max(float64(rate)/10, 1))
	b.filled = now
	if b.tokens >= 1 {
		if l := b.waited.pop(); l != nil {
			b.tokens--
			return l
		}
	}
	return b.fresh.pop()
}

func (s *spool) lineOf(r *record) (*outbox, *line) {
	b := s.box(r.policy)
	if r.kind >= kindOn {
		return b, &b.announce
	}
	return b, b.lines[r.session]
}

// delivered forgets a record that a server has acknowledged.
func (s *spool) delivered(r *record) {
	b, l := s.lineOf(r)
	b.busy--
	l.busy = false
	b.paused, b.pause = false, 0
	s.forget(b, l, r)
}

// forget takes the first record from a line.
func (s *spool) forget(b *outbox, l *line, r *record) {
	s.table.Put(durable.Record{Key: r.key})
	s.count--
	l.records[0] = nil
	l.records = l.records[1:]
	if l == &b.announce {
		later := b.later
		b.later = nil
		for _, l := range later {
			b.ready(l)
		}
		return
	}
	if b.left[r.era]--; b.left[r.era] == 0 {
		delete(b.left, r.era)
	}
	if len(l.records) == 0 {
		delete(b.lines, r.session)
		return
	}
	if l.records[0].written {
		b.ready(l)
	}
}

// failed keeps a record for later: no server answered.
func (s *spool) failed(r *record, now time.Time) {
	b, l := s.lineOf(r)
	b.busy--
	l.busy = false
	r.waited = true
	if l != &b.announce {
		b.waited.push(l)
	}
	if !b.paused || b.busy == 0 {
		b.pause = min(max(2*b.pause, pauseFirst), pauseMost)
		b.paused, b.until = true, now.Add(b.pause*9/10+b.pause*time.Duration(s.chance(201))/1000)
	}
	// Records that arrived while the servers became silent wait with the others.
	for {
		l := b.fresh.pop()
		if l == nil {
			return
		}
		l.records[0].waited = true
		b.waited.push(l)
	}
}

// records are how many wait.
func (b *outbox) records() int {
	n := len(b.announce.records)
	for _, of := range b.left {
		n += of
	}
	return n
}

// alive ends the pause: a server of the policy has answered, be it Status-Server. A record that still waits for another server delays no other record.
func (s *spool) alive(policy string) {
	if b := s.boxes[policy]; b != nil {
		b.paused, b.pause = false, 0
	}
}

// resume tries at once again: the policy's servers may be others.
func (s *spool) resume(policy string, now time.Time) {
	if b := s.boxes[policy]; b != nil && b.paused {
		b.until = now
	}
}

// memory is a table for an agent without a durable log.
type memory map[string][]byte

func (m memory) Put(records ...durable.Record) durable.Pending {
	for _, r := range records {
		if r.Value == nil {
			delete(m, r.Key)
		} else {
			m[r.Key] = r.Value
		}
	}
	return durable.Pending{}
}

func (m memory) Get(key string) []byte { return m[key] }

func (m memory) Unsorted() []durable.Record {
	var all []durable.Record
	for key, value := range m {
		all = append(all, durable.Record{Key: key, Value: value})
	}
	return all
}
