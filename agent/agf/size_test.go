// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/json"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/ngap"
)

// registered lines of a large gateway.
const manyLines = 100_000

// office is a World whose lines have records in a log, as in the service.
type office struct {
	plant
	table *durable.Table
	last  durable.Pending
}

func (o *office) Save(l *Line) {
	r := l.record()
	if len(r.Sessions) == 0 {
		return
	}
	octets, err := json.Marshal(&r)
	if err != nil {
		o.t.Fatal(err)
	}
	o.last = o.table.Put(durable.Record{Key: keyOf(l.settings.Line), Value: octets})
}

func openOffice(t testing.TB, directory string) (*office, *durable.Log) {
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	table, err := log.Table("agf")
	if err != nil {
		t.Fatal(err)
	}
	return &office{plant: plant{t: t, core: &coded{core: core{t: t, ran: 4}}}, table: table}, log
}

// processor is the time that this process had, user and system.
func processor(t testing.TB) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill registers lines with a PDU session each, and returns them.
func (o *office) fill(count int) []*Line {
	all := answers(o.t)
	lines := make([]*Line, count)
	for i := range lines {
		s := settings()
		s.Line = fmt.Sprintf("access:%d.%d", i/4000, i%4000)
		lines[i] = setUpLineOf(o.t, s, o, all)
	}
	if err := o.last.Wait(); err != nil {
		o.t.Fatal(err)
	}
	return lines
}

// loadAll makes the lines of the records of a log, each with its context at the AMF.
func (o *office) loadAll() []*Line {
	var lines []*Line
	for _, record := range o.table.All() {
		var r lineRecord
		if err := json.Unmarshal(record.Value, &r); err != nil {
			o.t.Fatal(err)
		}
		s := settings()
		s.Line = r.Line
		l, err := restore(&r, s, o)
		if err != nil {
			o.t.Fatal(err)
		}
		for _, session := range l.sessions {
			session.events = &user{}
		}
		l.attach(o.core)
		l.Resumed()
		lines = append(lines, l)
	}
	return lines
}

// BenchmarkManyLines registers 100,000 lines, and restarts with them: CPU of this process for a registration with NGAP and NAS both ways and its
// record in the log, the heap, and CPU for taking all lines over.
func BenchmarkManyLines(b *testing.B) {
	for b.Loop() {
		directory := b.TempDir()
		o, log := openOffice(b, directory)
		before, began := heap(), processor(b)
		lines := o.fill(manyLines)
		spent := processor(b) - began
		b.ReportMetric(float64(spent.Microseconds())/manyLines, "us/registration")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		runtime.KeepAlive(lines)
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
		o, log = openOffice(b, directory)
		began = processor(b)
		again := o.loadAll()
		b.ReportMetric((processor(b) - began).Seconds(), "s/restart")
		if len(again) != manyLines || o.core.octets != 0 {
			b.Fatalf("%d lines, %d octets sent", len(again), o.core.octets)
		}
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestLinesOfBeforeARestartSendNothing(t *testing.T) {
	directory := t.TempDir()
	o, log := openOffice(t, directory)
	before := o.fill(20)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	o, log = openOffice(t, directory)
	defer log.Close()
	after := o.loadAll()
	if len(after) != len(before) || o.core.octets != 0 {
		t.Fatalf("%d lines, %d octets sent", len(after), o.core.octets)
	}
	for _, l := range after {
		if l.state != registered || l.sessions[1].state != active {
			t.Errorf("%s: %d", l.settings.Line, l.state)
		}
		// A registered line answers the core with the counts of before.
		l.Receive(&ngap.UEContextModificationRequest{})
	}
	if o.core.octets == 0 {
		t.Error("the lines do not answer")
	}
}
