// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/durable/durabletest"
)

func open(t *testing.T, directory string) *Log {
	t.Helper()
	l, err := Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func table(t *testing.T, l *Log, name string) *Table {
	t.Helper()
	table, err := l.Table(name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newest(t *testing.T, directory string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(directory, "*"+suffix))
	if err != nil || len(all) == 0 {
		t.Fatal("there is no segment", err)
	}
	return all[len(all)-1]
}

func TestTheLatestValueOfEachKeyIsThereAfterARestart(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases, records := table(t, l, "leases"), table(t, l, "accounting")
	for _, p := range []Pending{
		leases.Put(Record{"a", []byte("1")}, Record{"b", []byte("2")}),
		leases.Put(Record{"a", []byte("3")}),
		leases.Put(Record{Key: "b"}),
		records.Put(Record{"a", []byte{}}),
	} {
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, directory)
	defer l.Close()
	all := table(t, l, "leases").All()
	if len(all) != 1 || all[0].Key != "a" || string(all[0].Value) != "3" {
		t.Errorf("leases: %v", all)
	}
	if all := table(t, l, "accounting").All(); len(all) != 1 || all[0].Key != "a" || len(all[0].Value) != 0 {
		t.Errorf("accounting: %v", all)
	}
}

func TestALogThatEndsAnywhereWithinItsLastEntryHasAllEntriesBeforeIt(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	if err := leases.Put(Record{"first", []byte("kept")}).Wait(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	if err := leases.Put(Record{"last", bytes.Repeat([]byte("x"), 40)}).Wait(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	all, err := os.ReadFile(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	for end := len(whole); end < len(all); end++ {
		again := t.TempDir()
		if err := os.WriteFile(filepath.Join(again, filepath.Base(newest(t, directory))), all[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		l := open(t, again)
		if got := table(t, l, "leases").All(); len(got) != 1 || got[0].Key != "first" {
			t.Fatalf("cut at %d: %v", end, got)
		}
		// And it goes on from there.
		if err := table(t, l, "leases").Put(Record{"next", nil}, Record{"other", []byte("1")}).Wait(); err != nil {
			t.Fatal(err)
		}
		l.Close()
		l = open(t, again)
		if got := table(t, l, "leases").All(); len(got) != 2 {
			t.Fatalf("cut at %d and written again: %v", end, got)
		}
		l.Close()
	}
}

func TestDamageBeforeTheLastEntryIsAnErrorThatNamesTheFileAndTheByte(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	for _, key := range []string{"a", "b", "c"} {
		if err := leases.Put(Record{key, []byte("value")}).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	path := newest(t, directory)
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range 2 * headLength {
		damaged := bytes.Clone(all)
		damaged[at] ^= 1
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Open(directory)
		if !errors.Is(err, ErrDamaged) || !bytes.Contains([]byte(err.Error()), []byte(path+" at byte 0")) {
			t.Errorf("damage at byte %d: %v", at, err)
		}
	}
}

func TestALogOfSupersededRecordsIsCompactedAndLosesNone(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	var group sync.WaitGroup
	for w := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			table, err := l.Table(fmt.Sprint("table-", w))
			if err != nil {
				t.Error(err)
				return
			}
			value := bytes.Repeat([]byte{byte(w)}, 4096)
			for i := range 1500 {
				p := table.Put(Record{fmt.Sprint(i % 10), append(value, byte(i))})
				if i%100 == 0 {
					if err := p.Wait(); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	group.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 3*compactAt {
		t.Errorf("the log has %d bytes for 160 KiB of records", info.Size())
	}
	l = open(t, directory)
	defer l.Close()
	for w := range 4 {
		all := table(t, l, fmt.Sprint("table-", w)).All()
		if len(all) != 10 {
			t.Fatalf("table %d has %d records", w, len(all))
		}
		for i, r := range all {
			if want := byte(1490 + i); r.Value[len(r.Value)-1] != want {
				t.Errorf("table %d, key %s: the value is not the latest", w, r.Key)
			}
		}
	}
}

// A kill leaves the segment before a compaction, or the beginning of the new one. Deleted records do not come back, at once or after later compactions.
func TestWhatAKillLeavesOfACompactionDoesNotBringRecordsBack(t *testing.T) {
	directory := t.TempDir()
	value := make([]byte, ValueLimit)
	for round := range 3 {
		l := open(t, directory)
		leases := table(t, l, "leases")
		var before string
		var left []byte
		l.packing = func() {
			var err error
			before = l.path(l.segment)
			if left, err = os.ReadFile(before); err != nil {
				t.Error(err)
			}
		}
		if err := leases.Put(Record{"ended", []byte("1")}, Record{"kept", []byte("1")}).Wait(); err != nil {
			t.Fatal(err)
		}
		// Its end comes with the batch that is compacted, or earlier.
		if round > 0 {
			if err := leases.Put(Record{Key: "ended"}).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		for left == nil {
			if err := leases.Put(Record{"large", value}, Record{Key: "ended"}).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		unfinished := l.path(l.segment+1) + ".new"
		for path, b := range map[string][]byte{before: left, unfinished: left[:len(left)/2]} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			l = open(t, directory)
			if all := table(t, l, "leases").All(); len(all) != 2 || all[0].Key != "kept" || all[1].Key != "large" {
				t.Fatalf("round %d: %d records: %s", round, len(all), all[0].Key)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if files, err := os.ReadDir(directory); err != nil || len(files) != 1 {
				t.Fatalf("round %d: %v, %v", round, files, err)
			}
		}
	}
}

// A disk that neither takes records nor refuses them.
func TestADiskThatHangsFillsNoMemoryAndIsTold(t *testing.T) {
	l := open(t, t.TempDir())
	l.slow = time.Millisecond
	leases := table(t, l, "leases")
	// A pipe without a reader, in place of the file.
	reader, hung, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	file := l.file
	l.file = hung
	l.mu.Unlock()
	value := make([]byte, ValueLimit)
	count := 0
	for ; count < 2*refusedLimit/ValueLimit; count++ {
		p := leases.Put(Record{fmt.Sprint(count), value})
		if err := p.Refused(); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Error(err)
			}
			break
		}
		if count == 0 {
			l.mu.Lock()
			p.batch.urge()
			l.mu.Unlock()
		}
	}
	if most := refusedLimit/ValueLimit + 1; count > most {
		t.Errorf("%d records of %d bytes wait", count, len(value))
	}
	for end := time.Now().Add(20 * time.Second); l.Waiting() < count*len(value); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("of %d records, %d bytes wait", count, l.Waiting())
		}
	}
	// The disk takes what it has to, again.
	l.mu.Lock()
	l.file = file
	l.mu.Unlock()
	reader.Close()
	for end := time.Now().Add(20 * time.Second); l.Waiting() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes wait", l.Waiting())
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if again := open(t, l.directory); len(table(t, again, "leases").All()) != count {
		t.Errorf("%d records of %d", len(table(t, again, "leases").All()), count)
	}
}

func TestRecordsAreReadAndPutWhileTheLogIsCompacted(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	var meanwhile []Pending
	l.packing = func() {
		meanwhile = append(meanwhile, leases.Put(Record{"during", []byte("1")}, Record{Key: "before"}))
		if got := leases.Get("during"); string(got) != "1" {
			t.Errorf("found %q", got)
		}
	}
	if err := leases.Put(Record{"before", []byte("1")}).Wait(); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, ValueLimit)
	for range compactAt/ValueLimit + 2 {
		if err := leases.Put(Record{"large", value}).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(meanwhile) == 0 {
		t.Fatal("the log was not compacted")
	}
	for _, p := range meanwhile {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	l = open(t, directory)
	defer l.Close()
	if all := table(t, l, "leases").All(); len(all) != 2 || all[0].Key != "during" || all[1].Key != "large" {
		t.Errorf("%d records", len(all))
	}
}

func TestRecordsBeyondTheLimitsAreRefused(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	if _, err := l.Table(""); !errors.Is(err, ErrLimit) {
		t.Errorf("a table without a name: %v", err)
	}
	leases := table(t, l, "leases")
	for _, r := range []Record{{Key: ""}, {Key: string(make([]byte, KeyLimit+1))}, {"a", make([]byte, ValueLimit+1)}} {
		if err := leases.Put(r).Wait(); !errors.Is(err, ErrLimit) {
			t.Errorf("a key of %d bytes, a value of %d: %v", len(r.Key), len(r.Value), err)
		}
	}
}

func TestTheRestOfAFailedWriteIsCutOffBeforeTheNextOne(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	if err := leases.Put(Record{"a", []byte("1")}).Wait(); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	usable := l.file
	l.file = readOnly
	if err := leases.Put(Record{"b", []byte("2")}).Wait(); err == nil {
		t.Fatal("a file that is only for reading was written")
	}
	// Part of the entry reached the disk.
	if _, err := usable.Write(appendEntry(nil, "leases", "b", []byte("2"), true)[:headLength+3]); err != nil {
		t.Fatal(err)
	}
	l.file = usable
	if err := leases.Put(Record{"c", []byte("3")}).Wait(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = open(t, directory)
	defer l.Close()
	if all := table(t, l, "leases").All(); len(all) != 3 {
		t.Errorf("%v", all)
	}
}

// batchAtEnd returns a segment whose last batch is one Put of three records, and where that batch begins.
func batchAtEnd(t *testing.T, size int) (segment []byte, at int) {
	t.Helper()
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	if err := leases.Put(Record{"first", []byte("kept")}).Wait(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("x"), size)
	if err := leases.Put(Record{"a", value}, Record{"b", value}, Record{"c", value}).Wait(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	all, err := os.ReadFile(newest(t, directory))
	if err != nil {
		t.Fatal(err)
	}
	return all, len(before)
}

// first reports whether a log of this segment has the first record alone, also after it was opened and written once more.
func first(t *testing.T, what string, segment []byte) {
	t.Helper()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "00000000000000000001.log"), segment, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(directory)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := table(t, l, "leases").All(); len(got) != 1 || got[0].Key != "first" {
		t.Fatalf("%s: %d records", what, len(got))
	}
	if err := table(t, l, "leases").Put(Record{"next", []byte("1")}).Wait(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = open(t, directory)
	defer l.Close()
	if got := table(t, l, "leases").All(); len(got) != 2 {
		t.Fatalf("%s, and written again: %d records", what, len(got))
	}
}

func TestOfALastPutThatIsNotWholeNoRecordIsKept(t *testing.T) {
	all, at := batchAtEnd(t, 20)
	for end := at; end < len(all); end++ {
		first(t, fmt.Sprint("cut at ", end), all[:end])
	}
	// Pages of a batch reach the disk in any order.
	const page = 4096
	all, at = batchAtEnd(t, 3*page)
	for from := at; from < len(all); from += page {
		holed := bytes.Clone(all)
		clear(holed[from:min(from+page, len(holed))])
		first(t, fmt.Sprint("a hole at ", from), holed)
	}
}

func TestASegmentOfAnEarlierReleaseIsReadAndWrittenOn(t *testing.T) {
	directory := t.TempDir()
	old := packed([]current{{"leases", "a", []byte("1")}, {"leases", "b", []byte("2")}})
	if err := os.WriteFile(filepath.Join(directory, "00000000000000000001.log"), append(old, old[:headLength+4]...), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, directory)
	if err := table(t, l, "leases").Put(Record{Key: "a"}, Record{"c", []byte("3")}).Wait(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = open(t, directory)
	defer l.Close()
	if got := table(t, l, "leases").All(); len(got) != 2 || got[0].Key != "b" || got[1].Key != "c" {
		t.Errorf("%v", got)
	}
}

func TestRecordsThatTheDiskRefusesAreWrittenWithTheNextOnes(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	// A pipe is written and cannot be synced.
	reader, unsynced, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer unsynced.Close()
	for what, file := range map[string]*os.File{"a full disk": full, "a failed sync": unsynced} {
		directory := t.TempDir()
		l := open(t, directory)
		leases := table(t, l, "leases")
		if err := leases.Put(Record{"first", []byte("1")}).Wait(); err != nil {
			t.Fatal(err)
		}
		use := func(file *os.File) (before *os.File) {
			l.mu.Lock()
			defer l.mu.Unlock()
			before, l.file = l.file, file
			return before
		}
		l.retry = 10 * time.Millisecond
		usable := use(file)
		if err := leases.Put(Record{"a", []byte("1")}, Record{"b", []byte("2")}).Wait(); err == nil {
			t.Fatalf("%s: the records are on the disk", what)
		}
		use(usable)
		// An attempt may be on its way to the other file.
		for end := time.Now().Add(20 * time.Second); ; {
			err := leases.Put(Record{"c", []byte("3")}).Wait()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the record is not written after 20 seconds: %v", what, err)
			}
		}
		l.Close()
		l = open(t, directory)
		if all := table(t, l, "leases").All(); len(all) != 4 {
			t.Errorf("after %s: %v", what, all)
		}
		l.Close()
	}
}

func TestAFullDiskThatHasRoomAgainGetsAllRecordsByItself(t *testing.T) {
	directory, grow := durabletest.SmallDisk(t)
	l := open(t, directory)
	l.retry = 10 * time.Millisecond
	leases := table(t, l, "leases")
	value := make([]byte, 1<<10)
	refused := 0
	for i := range 200 {
		if leases.Put(Record{fmt.Sprint(i), value}).Wait() != nil {
			refused++
		}
	}
	if refused == 0 || l.Waiting() < refused*len(value) {
		t.Fatal("a disk of 64 kB has 200 kB:", refused, l.Waiting())
	}
	// Nothing is put any more.
	grow()
	waiting := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.refused) > 0 || l.writing
	}
	for end := time.Now().Add(20 * time.Second); waiting(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 20 seconds %d bytes wait for a disk with room: %v", l.Waiting(), table(t, l, "leases").Put(Record{"0", value}).Wait())
		}
	}
	// As after a kill.
	if again := open(t, directory); len(table(t, again, "leases").All()) != 200 {
		t.Error(len(table(t, again, "leases").All()))
	}
	l.Close()
}

func TestALogThatCannotBeCompactedTakesRecordsAllTheSame(t *testing.T) {
	directory := t.TempDir()
	l := open(t, directory)
	leases := table(t, l, "leases")
	// The next segment cannot be made.
	if err := os.Mkdir(l.path(l.segment+1)+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	value := make([]byte, ValueLimit)
	for range compactAt/ValueLimit + 4 {
		if err := leases.Put(Record{"a", value}).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	l = open(t, directory)
	defer l.Close()
	if all := table(t, l, "leases").All(); len(all) != 1 || len(all[0].Value) != ValueLimit {
		t.Error(len(all))
	}
}

func FuzzAnySegmentIsReadOrRefused(f *testing.F) {
	f.Add(packed([]current{{"leases", "a", []byte("1")}, {"leases", "b", nil}}))
	batch := (&Log{}).newBatch().bytes
	batch = appendEntry(appendEntry(batch, "leases", "a", []byte("1"), true), "leases", "a", nil, false)
	seal(batch)
	f.Add(batch)
	f.Fuzz(func(t *testing.T, segment []byte) {
		directory := t.TempDir()
		if err := os.WriteFile(filepath.Join(directory, "00000000000000000001.log"), segment, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(directory)
		if err != nil {
			return
		}
		if err := table(t, l, "t").Put(Record{"k", []byte("v")}).Wait(); err != nil {
			t.Error(err)
		}
		l.Close()
		if l, err = Open(directory); err != nil {
			t.Fatal("it was read, and is refused after a record was added:", err)
		}
		l.Close()
	})
}

func TestAppendsThatNobodyWaitsForAreOneBatch(t *testing.T) {
	directory := t.TempDir()
	log, err := Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	log.gather = time.Hour
	table, err := log.Table("one")
	if err != nil {
		t.Fatal(err)
	}
	first := table.Put(Record{"a", []byte("1")})
	// The writer takes the batch as soon as it may.
	for range 100 {
		runtime.Gosched()
	}
	second := table.Put(Record{"b", []byte("2")})
	if first.batch != second.batch {
		t.Error("two batches")
	}
	// A caller that waits does not wait for the hour, and neither does the end.
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	table.Put(Record{"c", []byte("3")})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	table, _ = again.Table("one")
	if all := table.All(); len(all) != 3 {
		t.Error(all)
	}
}
