// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/durable/durabletest"
	"sluice.dev/sluice/agent/subscriber"
)

// fill makes the disk refuse records.
func (a *agent) fill() {
	a.t.Helper()
	others, err := a.log.Table("others")
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range 100 {
		others.Put(durable.Record{Key: fmt.Sprint(i), Value: make([]byte, 1<<10)})
	}
	a.refused()
}

// refused waits until the disk has refused all that was put until now.
func (a *agent) refused() {
	a.t.Helper()
	others, err := a.log.Table("others")
	if err == nil {
		err = others.Put().Wait()
	}
	if err == nil {
		a.t.Fatal("the disk is not full")
	}
}

func TestARecordIsNotSentWhileTheDiskIsFullAndOnceAfterwards(t *testing.T) {
	directory, grow := durabletest.SmallDisk(t)
	server := newAccountingServer(t)
	a := startAgent(t, directory, server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}, nil)
	server.got(t, a, 1)
	a.fill()
	a.accountFor(subscriber.Start, "s-1")
	a.accountFor(subscriber.Start, "s-2")
	a.accountFor(subscriber.Stop, "s-1")
	for range 3 {
		a.refused()
	}
	server.mu.Lock()
	if len(server.seen) > 0 {
		t.Error("sent before the disk has it:", server.seen)
	}
	server.mu.Unlock()
	grow()
	got := server.got(t, a, 3)
	slices.Sort(got)
	if want := []string{"start nas s-1", "start nas s-2", "stop nas s-1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// crowded refuses new records until it has room.
type crowded struct {
	*durable.Table
	full durable.Pending
	room bool
}

func (c *crowded) Put(all ...durable.Record) durable.Pending {
	if !c.room && slices.ContainsFunc(all, func(r durable.Record) bool { return r.Value != nil }) {
		return c.full
	}
	return c.Table.Put(all...)
}

// fullPending is the refusal of a log that has no room for more that waits.
func fullPending(t *testing.T) durable.Pending {
	t.Helper()
	directory, _ := durabletest.SmallDisk(t)
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	others, err := log.Table("others")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		pending := others.Put(durable.Record{Key: fmt.Sprint(i), Value: make([]byte, durable.ValueLimit)})
		if errors.Is(pending.Refused(), durable.ErrFull) {
			return pending
		}
		if i%32 == 31 && pending.Wait() == nil {
			t.Fatal("the disk is not full")
		}
	}
}

func newTable(t *testing.T) *durable.Table {
	t.Helper()
	log, err := durable.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	records, err := log.Table("radius")
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// crowdedSpool is a spool whose log has no room.
func crowdedSpool(t *testing.T) (*spool, *crowded) {
	t.Helper()
	c := &crowded{Table: newTable(t), full: fullPending(t)}
	return spoolOf(t, c), c
}

func TestRecordsThatTheLogHasNoRoomForAreInItInOrderOnceItHas(t *testing.T) {
	s, c := crowdedSpool(t)
	var waiting []*record
	s.await = func(r *record, _ durable.Pending) { waiting = append(waiting, r) }
	word := durable.Record{Key: sessionPrefix + "a", Value: []byte("word")}
	s.add(&record{policy: "home", session: "a", kind: subscriber.Start, at: began}, attributes{1, 3, 1}, 10, word)
	s.add(&record{policy: "home", session: "a", kind: subscriber.Stop, at: began}, attributes{1, 3, 2}, 10, durable.Record{Key: word.Key})
	if r, _ := s.take("home", 1000, began); r != nil || len(c.Unsorted()) != 0 {
		t.Fatal("sent, and the log does not have it")
	}
	if pending := s.retry(); !refuses(pending.Wait()) || len(s.refused) == 0 {
		t.Fatal("given up")
	}
	c.room = true
	if pending := s.retry(); pending.Wait() != nil || len(s.refused) != 0 {
		t.Fatal("not taken")
	}
	var keys []string
	for _, r := range c.All() {
		keys = append(keys, r.Key)
	}
	if want := []string{recordKey(0), recordKey(1)}; !slices.Equal(keys, want) {
		t.Fatalf("%q; the word of a session that ended is still there", keys)
	}
	for _, r := range waiting {
		s.written(r)
	}
	if r, all := s.take("home", 1000, began); r == nil || r.kind != subscriber.Start || len(all) != 3 {
		t.Error(r, all)
	}
}

func TestInterimRecordsDoNotFillTheMemoryWhileTheLogHasNoRoom(t *testing.T) {
	s, c := crowdedSpool(t)
	s.await = func(*record, durable.Pending) {}
	const limit = 2
	add := func(kind subscriber.RecordKind, value byte) {
		s.add(&record{policy: "home", session: "a", kind: kind, at: began}, attributes{1, 3, value}, limit)
	}
	add(subscriber.Start, 0)
	for i := range byte(100) {
		add(subscriber.Interim, i)
	}
	if len(s.refused) != limit {
		t.Errorf("%d records wait in memory", len(s.refused))
	}
	c.room = true
	if pending := s.retry(); pending.Wait() != nil || len(s.refused)+len(s.refusedAt) != 0 {
		t.Fatal("not taken")
	}
	if _, _, all, err := partsOf(c.Get(recordKey(1))); err != nil || all[2] != 99 {
		t.Error("not the last Interim record", all, err)
	}
}

func TestARecordBeyondTheLimitsOfTheLogHidesNoFullDisk(t *testing.T) {
	records := newTable(t)
	large := unwritten{pending: records.Put(durable.Record{Key: "a", Value: make([]byte, durable.ValueLimit+1)})}
	full := unwritten{pending: fullPending(t)}
	if refused([]unwritten{large}) || !refused([]unwritten{large, full}) || !refused([]unwritten{full, large}) {
		t.Error("records are sent before the disk has them, or wait for ever")
	}
}

func TestADisconnectIsAnsweredOnceTheFullDiskHasTheEnd(t *testing.T) {
	directory, grow := durabletest.SmallDisk(t)
	port := freePort(t)
	// As of a Manager whose sessions have ended, and whose disk refuses their ends.
	m := &manager{count: 1, err: errors.New("no space left on device")}
	a := startAgent(t, directory, &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}}, m)
	a.fill()
	answers := make(chan string, 1)
	go func() { answers <- radclient(t, port, "disconnect", "Acct-Session-Id = s-1\n") }()
	until(t, "the request", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.ended) > 0
	})
	a.refused()
	select {
	case out := <-answers:
		t.Fatal("answered while the disk does not have the end: ", out)
	default:
	}
	grow()
	select {
	case out := <-answers:
		if !strings.Contains(out, "Received Disconnect-ACK") {
			t.Error(out)
		}
	case <-time.After(60 * time.Second):
		t.Error("no answer")
	}
}

// The agent is killed again and again while the disk is full. Records on the disk come first, records that it refused come once the Manager has the sessions
// again, and nothing twice.
func TestRecordsComeOnceThoughTheAgentIsKilledOnAFullDisk(t *testing.T) {
	directory, grow := durabletest.SmallDisk(t)
	server := newAccountingServer(t)
	policy := &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}
	a := startAgent(t, directory, server.spec(), policy, nil)
	server.got(t, a, 1)
	server.setDeaf(true)
	at := time.Now()
	a.Account(accounted(subscriber.Start, "s-1", at))
	a.onDisk(func() {})
	until(t, "the first record is on the disk", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.unwritten) == 0 && a.spool.boxes["home"].lines["s-1"].records[0].written
	})
	a.fill()
	a.Account(accounted(subscriber.Start, "s-2", at))
	a.refused()
	// The log is closed while the disk refuses the record, as it is by a kill.
	for range 3 {
		a.stop()
		a = startAgent(t, directory, server.spec(), policy, nil)
		a.mu.Lock()
		count := a.spool.count
		a.mu.Unlock()
		if count != 1 {
			t.Fatalf("%d records", count)
		}
		a.fill()
		// The Manager has both sessions in its own log.
		for _, id := range []string{"s-1", "s-2"} {
			a.Resume(accounted(subscriber.Start, id, at))
		}
		a.refused()
	}
	server.setDeaf(false)
	grow()
	a.Account(accounted(subscriber.Stop, "s-1", at))
	a.Account(accounted(subscriber.Stop, "s-2", at))
	got := server.got(t, a, 4)
	if slices.Index(got, "start nas s-1") > slices.Index(got, "stop nas s-1") || slices.Index(got, "start nas s-2") > slices.Index(got, "stop nas s-2") {
		t.Errorf("out of order: %q", got)
	}
	slices.Sort(got)
	if want := []string{"start nas s-1", "start nas s-2", "stop nas s-1", "stop nas s-2"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
