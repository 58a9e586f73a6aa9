// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/subscriber"
)

func spoolOf(t testing.TB, table table) *spool {
	t.Helper()
	s, errs := newSpool(table)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return s
}

func (s *spool) enterTest(session string, kind subscriber.RecordKind) {
	s.add(&record{policy: "home", session: session, kind: kind, at: began}, attributes{typeAcctSessionID, 3, session[0]}, 1000)
}

func TestRecordsOfASessionGoOneAfterTheOther(t *testing.T) {
	s := spoolOf(t, memory{})
	for _, session := range []string{"a", "b"} {
		s.enterTest(session, subscriber.Start)
		s.enterTest(session, subscriber.Stop)
	}
	first, _ := s.take("home", 1000, began)
	second, _ := s.take("home", 1000, began)
	if first.session != "a" || second.session != "b" || first.kind != subscriber.Start {
		t.Fatal(first, second)
	}
	if more, _ := s.take("home", 1000, began); more != nil {
		t.Fatal("a Stop before its Start is acknowledged")
	}
	s.delivered(second)
	if next, _ := s.take("home", 1000, began); next == nil || next.session != "b" || next.kind != subscriber.Stop {
		t.Fatal(next)
	}
}

func TestEachRecordOutlivesTheAgentUntilItIsAcknowledged(t *testing.T) {
	directory := t.TempDir()
	start := func() (*spool, *durable.Log) {
		log, err := durable.Open(directory)
		if err != nil {
			t.Fatal(err)
		}
		table, err := log.Table("radius")
		if err != nil {
			t.Fatal(err)
		}
		return spoolOf(t, table), log
	}
	s, log := start()
	for i := range 20 {
		s.enterTest(fmt.Sprint("session-", i), subscriber.Start)
		s.enterTest(fmt.Sprint("session-", i), subscriber.Stop)
	}
	seen := map[string]int{}
	for range 7 {
		r, _ := s.take("home", 1000, began)
		seen[fmt.Sprint(r.session, r.kind)]++
		s.delivered(r)
	}
	log.Close()
	s, log = start()
	defer log.Close()
	if s.count != 33 {
		t.Fatalf("%d records after a restart", s.count)
	}
	// A Stop that the Manager accounts for again is there already.
	s.enterTest("session-19", subscriber.Stop)
	if s.count != 33 || s.repeated != 1 {
		t.Error("a Stop is accounted for twice")
	}
	now := began
	for s.count > 0 {
		now = now.Add(time.Second)
		for r, all := s.take("home", 10, now); r != nil; r, all = s.take("home", 10, now) {
			if r.kind == subscriber.Stop && seen[fmt.Sprint(r.session, subscriber.Start)] != 1 || len(all) != 3 {
				t.Error("out of order", r.session)
			}
			seen[fmt.Sprint(r.session, r.kind)]++
			s.delivered(r)
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d different records", len(seen))
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s %d times", name, n)
		}
	}
	if left := s.table.Unsorted(); len(left) != 0 {
		t.Error("records are left")
	}
}

func TestAfterAServerComesBackRecordsGoAtABoundedRateAndNewOnesFirst(t *testing.T) {
	s := spoolOf(t, memory{})
	now := began
	s.enterTest("first", subscriber.Start)
	r, _ := s.take("home", 100, now)
	s.failed(r, now)
	for i := range 500 {
		s.enterTest(fmt.Sprint("session-", i), subscriber.Start)
	}
	if r, _ := s.take("home", 100, now); r != nil {
		t.Fatal("it is tried at once")
	}
	now = now.Add(2 * time.Second)
	probe, _ := s.take("home", 100, now)
	if other, _ := s.take("home", 100, now); probe == nil || other != nil {
		t.Fatal("not one record alone asks whether a server is back")
	}
	s.delivered(probe)
	sent := 0
	for range 20 {
		now = now.Add(50 * time.Millisecond)
		for r, _ := s.take("home", 100, now); r != nil; r, _ = s.take("home", 100, now) {
			sent++
			s.delivered(r)
		}
	}
	if sent < 90 || sent > 120 {
		t.Errorf("%d records in a second", sent)
	}
	for s.count > 0 {
		now = now.Add(time.Second)
		for r, _ := s.take("home", 100, now); r != nil; r, _ = s.take("home", 100, now) {
			s.delivered(r)
		}
	}
	// With nothing that waited, there is no such rate.
	for i := range 500 {
		s.enterTest(fmt.Sprint("later-", i), subscriber.Start)
	}
	sent = 0
	for r, _ := s.take("home", 100, now); r != nil; r, _ = s.take("home", 100, now) {
		sent++
	}
	if sent != 500 {
		t.Errorf("%d of 500 new records", sent)
	}
}

func TestWhileNoServerAnswersOneRecordAsksAtGrowingIntervals(t *testing.T) {
	s := spoolOf(t, memory{})
	s.enterTest("first", subscriber.Start)
	now := began
	for i, c := range []struct {
		chance  int
		seconds float64
	}{{0, 0.9}, {200, 2.2}, {100, 4}, {0, 7.2}, {200, 17.6}, {100, 30}, {0, 27}, {200, 33}, {100, 30}} {
		s.chance = func(n int) int {
			if n != 201 {
				t.Error(n)
			}
			return c.chance
		}
		r, _ := s.take("home", 1000, now)
		if other, _ := s.take("home", 1000, now); r == nil || other != nil {
			t.Fatal("not one record", i, r, other)
		}
		s.failed(r, now)
		s.enterTest(fmt.Sprint("later-", i), subscriber.Start)
		pause := time.Duration(c.seconds * float64(time.Second))
		if early, _ := s.take("home", 1000, now.Add(pause-time.Millisecond)); early != nil {
			t.Errorf("pause %d is shorter than %v", i, pause)
		}
		now = now.Add(pause)
	}
	// A server answers while the record that asks waits for another one.
	asks, _ := s.take("home", 1000, now)
	if other, _ := s.take("home", 1000, now); asks == nil || other != nil {
		t.Fatal(asks, other)
	}
	s.alive("home")
	if other, _ := s.take("home", 1000, now); other == nil {
		t.Error("a record waits although a server has answered")
	}
	// The next outage begins with the shortest pause.
	s.failed(asks, now)
	if again, _ := s.take("home", 1000, now.Add(1100*time.Millisecond)); s.boxes["home"].pause != pauseFirst || again != nil {
		t.Error(s.boxes["home"].pause, again)
	}
}

func TestAFullSpoolKeepsStartAndStopAndTheLatestInterimRecord(t *testing.T) {
	s := spoolOf(t, memory{})
	enter := func(kind subscriber.RecordKind, at time.Time) {
		s.add(&record{policy: "home", session: "a", kind: kind, at: at}, attributes{typeAcctSessionID, 3, 'a'}, 2)
	}
	enter(subscriber.Start, began)
	for i := range 5 {
		enter(subscriber.Interim, began.Add(time.Duration(i)*time.Minute))
	}
	enter(subscriber.Stop, began.Add(time.Hour))
	if s.count != 3 || s.superseded != 4 {
		t.Fatal(s.count, s.superseded)
	}
	var kinds []subscriber.RecordKind
	var at time.Time
	for r, _ := s.take("home", 1000, began); r != nil; r, _ = s.take("home", 1000, began) {
		if r.kind == subscriber.Interim {
			at = r.at
		}
		kinds = append(kinds, r.kind)
		s.delivered(r)
	}
	if len(kinds) != 3 || !at.Equal(began.Add(4*time.Minute)) {
		t.Error(kinds, at)
	}
}

func TestEachSessionHasItsLatestInterimRecordInAFullSpool(t *testing.T) {
	s := spoolOf(t, memory{})
	enter := func(session string, kind subscriber.RecordKind, minute int) {
		s.add(&record{policy: "home", session: session, kind: kind, at: began.Add(time.Duration(minute) * time.Minute)}, attributes{typeAcctSessionID, 3, session[0]}, 2)
	}
	sent := func() string {
		r, _ := s.take("home", 1000, began)
		if r == nil {
			return ""
		}
		return fmt.Sprint(r.session, " ", r.kind, " ", r.at.Sub(began))
	}
	enter("a", subscriber.Start, 0)
	enter("b", subscriber.Start, 0)
	// None of "a" waits; of "b", the only one is under way.
	enter("a", subscriber.Interim, 1)
	enter("a", subscriber.Interim, 2)
	if got := sent(); got != "a 1 0s" {
		t.Fatal(got)
	}
	s.delivered(s.boxes["home"].lines["a"].records[0])
	enter("b", subscriber.Interim, 1)
	if got := []string{sent(), sent()}; !slices.Equal(got, []string{"b 1 0s", "a 2 2m0s"}) {
		t.Fatal(got)
	}
	for minute := 3; minute < 6; minute++ {
		enter("a", subscriber.Interim, minute)
	}
	s.delivered(s.boxes["home"].lines["a"].records[0])
	if got := sent(); got != "a 2 5m0s" {
		t.Error(got)
	}
	if s.count != 3 || s.superseded != 3 {
		t.Error(s.count, s.superseded)
	}
}

func TestAnInterimRecordThatChangesWaitsForTheDiskAgain(t *testing.T) {
	s := spoolOf(t, memory{})
	var waiting []*record
	s.await = func(r *record, _ durable.Pending) { waiting = append(waiting, r) }
	enter := func(minute int) {
		s.add(&record{policy: "home", session: "a", kind: subscriber.Interim, at: began.Add(time.Duration(minute) * time.Minute)}, attributes{typeAcctSessionID, 3, byte(minute)}, 1)
	}
	take := func() *record {
		r, _ := s.take("home", 1000, began)
		return r
	}
	enter(0)
	s.written(waiting[0])
	// It may be sent now, and is in a queue; then it changes, twice.
	enter(1)
	enter(2)
	if len(waiting) != 3 || waiting[2] != waiting[0] {
		t.Fatal(waiting)
	}
	s.written(waiting[1])
	if r := take(); r != nil {
		t.Fatal("the record is sent before the disk has its last change")
	}
	s.written(waiting[2])
	r := take()
	if r == nil || !r.at.Equal(began.Add(2*time.Minute)) {
		t.Fatal(r)
	}
	if more := take(); more != nil {
		t.Error("the record is sent twice at once")
	}
	s.delivered(r)
	// A change between the look into the queue and the disk's answer does not send it twice either.
	enter(3)
	s.written(waiting[3])
	enter(4)
	s.written(waiting[4])
	r = take()
	if r == nil || take() != nil {
		t.Fatal(r)
	}
	s.delivered(r)
	if s.count != 0 {
		t.Error(s.count)
	}
}

func TestAccountingOnGoesBeforeTheRecordsOfSessions(t *testing.T) {
	s := spoolOf(t, memory{})
	s.add(&record{policy: "home", session: "on", kind: kindOn, at: began}, attributes{40, 6, 0, 0, 0, 7}, 10)
	s.enterTest("a", subscriber.Start)
	on, _ := s.take("home", 1000, began)
	if r, _ := s.take("home", 1000, began); on.kind != kindOn || r != nil {
		t.Fatal("not before")
	}
	s.delivered(on)
	if r, _ := s.take("home", 1000, began); r == nil || r.session != "a" {
		t.Error("not after")
	}
}

// fullTable refuses all that is new.
type fullTable struct{ memory }

func (f fullTable) Put(...durable.Record) durable.Pending {
	// A key that is too long is refused at once, as a record is that there is no room for.
	return new(durable.Table).Put(durable.Record{Key: strings.Repeat("k", durable.KeyLimit+1)})
}

func TestARecordThatTheLogHasNoRoomForIsSentAllTheSame(t *testing.T) {
	s := spoolOf(t, fullTable{memory{}})
	s.enterTest("a", subscriber.Start)
	if r, all := s.take("home", 1000, began); r == nil || len(all) != 3 {
		t.Fatal(r, all)
	}
}

func TestARecordIsSentOnceTheDiskHasIt(t *testing.T) {
	table := memory{}
	s, _ := newSpool(table)
	var waiting []*record
	s.await = func(r *record, _ durable.Pending) { waiting = append(waiting, r) }
	now := time.Unix(1_800_000_000, 0)
	add := func(kind subscriber.RecordKind, session string) {
		s.add(&record{policy: "home", session: session, kind: kind, at: now}, attributes{1, 3, byte(kind)}, 100)
	}
	sent := func() string {
		r, _ := s.take("home", 1000, now)
		if r == nil {
			return ""
		}
		s.delivered(r)
		return fmt.Sprint(r.session, " ", r.kind)
	}
	add(kindOn, "on-1")
	add(subscriber.Start, "s-1")
	add(subscriber.Stop, "s-1")
	add(subscriber.Start, "s-2")
	if got := sent(); got != "" {
		t.Errorf("%s is sent before the disk has it", got)
	}
	// Out of order, as no batch does it: each record of a session still waits for the one before it.
	for _, step := range []struct {
		written int
		sent    []string
	}{{2, nil}, {3, nil}, {0, []string{"on-1 100", "s-2 1"}}, {1, []string{"s-1 1", "s-1 3"}}} {
		s.written(waiting[step.written])
		s.written(waiting[step.written])
		var got []string
		for one := sent(); one != ""; one = sent() {
			got = append(got, one)
		}
		if !slices.Equal(got, step.sent) {
			t.Errorf("with record %d on the disk %q is sent, not %q", step.written, got, step.sent)
		}
	}
	if s.count != 0 {
		t.Errorf("%d records are left", s.count)
	}
}
