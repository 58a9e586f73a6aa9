// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// place returns a directory for a store, in memory if possible: a killed process does not lose unsynced data.
func place(t testing.TB) string {
	t.Helper()
	directory, err := os.MkdirTemp("/dev/shm", "store-test-")
	if err != nil {
		return filepath.Join(t.TempDir(), "intent.db")
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return filepath.Join(directory, "intent.db")
}

// copied copies a store's files as they are, and returns where the copy is.
func copied(t testing.TB, path string) string {
	t.Helper()
	to := place(t)
	for _, end := range []string{"", ".key", ".journal"} {
		from, err := os.Open(path + end)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		copy, err := os.OpenFile(to+end, os.O_WRONLY|os.O_CREATE, 0o600)
		must(t, err)
		// Most of it may be a hole.
		part := make([]byte, len(zeros))
		for at := int64(0); ; {
			n, err := from.Read(part)
			if err == io.EOF {
				must(t, copy.Truncate(at))
				break
			}
			must(t, err)
			if !bytes.Equal(part[:n], zeros[:n]) {
				_, err = copy.WriteAt(part[:n], at)
				must(t, err)
			}
			at += int64(n)
		}
		must(t, errors.Join(from.Close(), copy.Close()))
	}
	return to
}

// contentOf is the complete content of a store.
func contentOf(t testing.TB, s *Store) string {
	t.Helper()
	all := &strings.Builder{}
	write := func(what string, k object.Key, r *intent.Record) error {
		fmt.Fprintf(all, "%s %s", what, k)
		if r != nil {
			fmt.Fprintf(all, " %d %d %d", r.Revision, r.Generation, r.Accepted)
			for _, l := range r.Layers {
				fmt.Fprintf(all, " %s %d %d %v %q", l.Owner, l.Revision, l.Taken, l.Labels(), l.Spec())
			}
		}
		fmt.Fprintln(all)
		return nil
	}
	latest, open, err := s.Load(func(k object.Key, r *intent.Record) error { return write("is", k, r) })
	must(t, err)
	history, err := s.History(0, 1<<30)
	must(t, err)
	fmt.Fprintln(all, latest, open, history)
	of := func(revision uint64) {
		must(t, s.Before(revision, func(k object.Key, r *intent.Record) error { return write(fmt.Sprint("before ", revision), k, r) }))
	}
	for _, r := range history {
		of(r.Number)
	}
	for _, o := range open {
		of(o.Revision)
		must(t, s.Undoes(o.Revision, func(u intent.Undo) error { return write(fmt.Sprint("undoes ", u.Revision, u.Owners), u.Key, u.Before) }))
	}
	return all.String()
}

// reopened opens a copy of a store's files, and returns its content.
func reopened(t testing.TB, path string) string {
	t.Helper()
	s := opened(t, copied(t, path))
	defer func() { must(t, s.let()) }()
	return contentOf(t, s)
}

// operations generates operations of all kinds, one after the other.
type operations struct {
	random  *rand.Rand
	records map[string]*intent.Record
	latest  uint64
	open    []uint64
}

// next returns the next operation.
func (b *operations) next() func(s *Store) error {
	undo := func() []intent.Undo {
		var all []intent.Undo
		for _, r := range b.open {
			all = append(all, intent.Undo{Revision: r, Key: key("o1"), Owners: []string{"test"}, Before: record("o1", r, "test")})
		}
		return all
	}
	if len(b.open) > 0 && b.random.IntN(8) == 0 {
		r := b.open[0]
		if b.random.IntN(3) == 0 {
			return func(s *Store) error { return s.Settle(r, &intent.Open{Revision: r, InPart: true}, undo()) }
		}
		b.open = b.open[1:]
		revised := undo()
		return func(s *Store) error { return s.Settle(r, nil, revised) }
	}
	b.latest++
	count, words := 1+b.random.IntN(3), b.random.IntN(9)
	if b.random.IntN(20) == 0 {
		words = 1000
	}
	switch b.random.IntN(20) {
	case 0:
		count = 0
	case 1:
		count = small + 1
	case 2:
		count = small
	}
	c := commit(b.latest)
	for _, i := range b.random.Perm(80)[:count] {
		name := fmt.Sprint("o", i)
		e := edit(name, b.records[name], nil)
		if e.Before == nil || b.random.IntN(3) > 0 {
			e.After = record(name, b.latest, "test", strings.Repeat("word ", words))
		}
		b.records[name] = e.After
		c.Edits = append(c.Edits, e)
	}
	c.Recorded = b.random.IntN(5) > 0
	if b.random.IntN(6) == 0 {
		c.Open = &intent.Open{Revision: b.latest, ConfirmBy: time.Unix(17, 0)}
		b.open = append(b.open, b.latest)
	} else if len(b.open) > 1 && b.random.IntN(4) == 0 {
		c.Closes, b.open = b.open[0], b.open[1:]
		c.Revised = undo()
	}
	if b.latest > 20 && b.latest%5 == 0 {
		c.Oldest = b.latest - 20
	}
	return func(s *Store) error { return s.Commit(c) }
}

func TestCommitsSurviveAKillAtAnyPoint(t *testing.T) {
	for _, pages := range []int64{1, 5, 500} {
		t.Run(fmt.Sprintf("%d pages in each half", pages), func(t *testing.T) {
			b := operations{random: rand.New(rand.NewPCG(1, uint64(pages))), records: map[string]*intent.Record{}}
			plain := opened(t, place(t))
			defer func() { must(t, plain.Close()) }()
			plain.journal.size = 0 // all goes to the trees
			s := opened(t, place(t))
			s.journal.size = pages * journalPage
			for i := range 100 {
				d := b.next()
				must(t, d(plain))
				must(t, d(s))
				s.background.Wait()
				if got, want := reopened(t, s.path), contentOf(t, plain); got != want {
					t.Fatalf("deed %d: a copy tells\n%s\nnot\n%s", i, got, want)
				}
				switch b.random.IntN(20) {
				case 0:
					if got, want := contentOf(t, s), contentOf(t, plain); got != want {
						t.Fatalf("deed %d: it tells\n%s\nnot\n%s", i, got, want)
					}
				case 1:
					must(t, s.let())
					s = opened(t, s.path)
					s.journal.size = pages * journalPage
				case 2:
					must(t, s.Close())
					if _, err := os.Stat(journalPath(s.path)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("a closed store has a journal: %v", err)
					}
					s = opened(t, s.path)
					s.journal.size = pages * journalPage
				}
			}
			must(t, s.Close())
			if got, want := reopened(t, s.path), contentOf(t, plain); got != want {
				t.Errorf("closed, it tells\n%s\nnot\n%s", got, want)
			}
		})
	}
}

// numbered commits a small change of one object, which takes so many pages.
func numbered(number uint64, pages int) *intent.Commit {
	return commit(number, edit("a", nil, record("a", number, "test", strings.Repeat("x", 40+(pages-1)*journalPage/2))))
}

func latest(t testing.TB, s *Store) uint64 {
	t.Helper()
	all, latest, _ := loaded(t, s)
	if latest > 0 && (all["a"] == nil || all["a"].Revision != latest) {
		t.Errorf("at revision %d there is %+v", latest, all["a"])
	}
	return latest
}

func TestWhileOneHalfIsFoldedTheOtherIsWritten(t *testing.T) {
	s := opened(t, place(t))
	s.journal.size = 2 * journalPage
	s.folding.Lock()
	for i := range uint64(4) {
		must(t, s.Commit(numbered(i+1, 1)))
	}
	if s.sealed == nil || s.journal.at != s.journal.size {
		t.Fatalf("at %d of a half, and %v", s.journal.at, s.sealed)
	}
	again := opened(t, copied(t, s.path))
	if n := latest(t, again); n != 4 {
		t.Errorf("killed, it was at revision %d", n)
	}
	must(t, again.Close())
	kept := make(chan error)
	go func() { kept <- s.Commit(numbered(5, 1)) }()
	s.folding.Unlock()
	must(t, <-kept)
	if n := latest(t, s); n != 5 {
		t.Errorf("it is at revision %d", n)
	}
	must(t, s.Close())
}

func TestASmallCommitLeavesTheTreesAlone(t *testing.T) {
	s := opened(t, place(t))
	before := s.db.Stats().TxStats
	for i := range uint64(100) {
		must(t, s.Commit(numbered(i+1, 1)))
	}
	after := s.db.Stats().TxStats
	if n := after.GetWrite() - before.GetWrite(); n != 0 {
		t.Errorf("%d writes", n)
	}
	if is, err := os.Stat(journalPath(s.path)); err != nil || is.Size() > 2*journalHalf || is.Mode().Perm() != 0o600 {
		t.Errorf("the journal is %+v, %v", is, err)
	}
	if n := latest(t, s); n != 100 {
		t.Errorf("at revision %d", n)
	}
	must(t, s.Close())
}

func TestManySmallCommitsSurviveFoldingAndAKill(t *testing.T) {
	s := opened(t, place(t))
	const all = 5*journalHalf/journalPage/2 + 10
	for n := range uint64(all) {
		must(t, s.Commit(numbered(n+1, 1)))
	}
	again := opened(t, copied(t, s.path))
	if n := latest(t, again); n != all {
		t.Errorf("killed, it was at revision %d, not %d", n, all)
	}
	must(t, again.Close())
	if is, err := os.Stat(journalPath(s.path)); err != nil || is.Size() != 2*journalHalf {
		t.Errorf("the journal is %+v, %v", is, err)
	}
	must(t, s.Close())
	again = opened(t, s.path)
	if n := latest(t, again); n != all {
		t.Errorf("closed, it was at revision %d, not %d", n, all)
	}
	must(t, again.Close())
}

func TestLongAndShortEntriesAreStoredInOrder(t *testing.T) {
	s := opened(t, place(t))
	content := 0
	for n := range uint64(200) {
		pages := 1
		if n%3 == 1 {
			pages = 1 + int(n)/4
		}
		must(t, s.Commit(numbered(n+1, pages)))
		if content = len(slices.Concat(s.journal.pending...)); len(s.journal.pending) > content/contentPiece*2+2 {
			t.Fatalf("%d pieces for %d bytes", len(s.journal.pending), content)
		}
	}
	if content < 10*contentPiece {
		t.Fatalf("only %d bytes", content)
	}
	if n := latest(t, s); n != 200 {
		t.Errorf("it is at revision %d", n)
	}
	// The pieces are written again.
	for n := range uint64(200) {
		must(t, s.Commit(numbered(n+201, 1+int(n)/4)))
	}
	if n := latest(t, s); n != 400 {
		t.Errorf("it is at revision %d", n)
	}
	must(t, s.Close())
}

func TestTheFileIsAsLongAsItGetsBeforeCommitsNeedIt(t *testing.T) {
	s := opened(t, place(t))
	length := func() int64 {
		s.background.Wait()
		is, err := os.Stat(journalPath(s.path))
		must(t, err)
		return is.Size()
	}
	if n := length(); n != 0 {
		t.Errorf("before anything is kept it has %d bytes", n)
	}
	for n, want := range []int64{journalHalf, 2 * journalHalf, 2 * journalHalf} {
		must(t, s.Commit(numbered(uint64(n)+1, 1)))
		if is := length(); is != want {
			t.Errorf("after commit %d it has %d bytes, not %d", n+1, is, want)
		}
	}
	must(t, s.Close())
}

// Close does not wait for a longer file.
func TestACloseDoesNotWaitForALongerFile(t *testing.T) {
	s := opened(t, place(t))
	s.closing.Store(true)
	must(t, s.Commit(numbered(1, 1)))
	s.background.Wait()
	is, err := os.Stat(journalPath(s.path))
	must(t, err)
	if is.Size() != journalAhead {
		t.Errorf("it has %d bytes", is.Size())
	}
	must(t, s.Close())
	s = opened(t, s.path)
	if n := latest(t, s); n != 1 {
		t.Errorf("it is at revision %d", n)
	}
	must(t, s.Close())
}

// changed returns a copy of a store whose journal is changed.
func changed(t testing.TB, path string, change func(b []byte) []byte) string {
	t.Helper()
	to := copied(t, path)
	content, err := os.ReadFile(journalPath(to))
	must(t, err)
	must(t, os.WriteFile(journalPath(to), change(content), 0o600))
	return to
}

func TestAnEntryThatIsNotWholeWasNotKept(t *testing.T) {
	s := opened(t, place(t))
	defer func() { must(t, s.Close()) }()
	for i := range uint64(3) {
		must(t, s.Commit(numbered(i+1, 1)))
	}
	from, pending := int(s.journal.at), len(slices.Concat(s.journal.pending...))
	old := copied(t, s.path)
	must(t, s.Commit(numbered(4, 3)))
	to, end := int(s.journal.at), from+headLength+len(slices.Concat(s.journal.pending...))-pending
	if to-from < 3*journalPage {
		t.Fatalf("the entry has only %d bytes", to-from)
	}
	before, err := os.ReadFile(journalPath(old))
	must(t, err)
	check := func(what string, change func(b []byte) []byte, allowed ...uint64) {
		t.Helper()
		again := opened(t, changed(t, s.path, change))
		n := latest(t, again)
		if !slices.Contains(allowed, n) {
			t.Errorf("%s: at revision %d", what, n)
		}
		// It goes on, and is killed once more.
		must(t, again.Commit(numbered(n+1, 2)))
		third := opened(t, copied(t, again.path))
		if m := latest(t, third); m != n+1 {
			t.Errorf("%s: then at revision %d after %d", what, m, n)
		}
		must(t, third.Close())
		must(t, again.Close())
	}
	for at := from; at < to; at += 397 {
		n := uint64(3)
		if at >= end {
			n = 4
		}
		check(fmt.Sprintf("written up to byte %d", at-from), func(b []byte) []byte { copy(b[at:to], before[at:to]); return b }, 3, n)
		check(fmt.Sprintf("written from byte %d on", at-from), func(b []byte) []byte { copy(b[from:at], before[from:at]); return b }, 3, 4)
		check(fmt.Sprintf("cut off at byte %d", at-from), func(b []byte) []byte { return b[:at] }, 3, n)
	}
	for i := range 3 {
		at := from + i*journalPage
		check(fmt.Sprintf("all but page %d", i), func(b []byte) []byte { clear(b[at : at+journalPage]); return b }, 3)
	}
}

func TestADamagedJournalIsRefused(t *testing.T) {
	s := opened(t, place(t))
	defer func() { must(t, s.Close()) }()
	for i := range uint64(4) {
		must(t, s.Commit(numbered(i+1, 1)))
	}
	for i := range int(s.journal.at/journalPage) - 1 {
		for _, at := range []int{0, epochLength, epochLength + 7, epochLength + 8, epochLength + 12, headLength - 1, headLength + 9, headLength + 200} {
			path := changed(t, s.path, func(b []byte) []byte { b[i*journalPage+at] ^= 4; return b })
			for range 2 {
				if _, err := Open(path, registry(t)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), journalPath(path)) {
					t.Errorf("byte %d of entry %d: %v", at, i+1, err)
				}
			}
		}
	}
	for _, c := range []struct {
		sentence string
		damage   func(b []byte) []byte
	}{
		{"a changed letter", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("bonn"), []byte("bohn")) }},
		{"a page of zeros", func(b []byte) []byte { clear(b[journalPage : 2*journalPage]); return b }},
		{"pages exchanged for one another", func(b []byte) []byte { copy(b[journalPage:], b[2*journalPage:3*journalPage]); return b }},
	} {
		path := changed(t, s.path, c.damage)
		if _, err := Open(path, registry(t)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", c.sentence, err)
		}
	}
}

func TestAJournalGoesWithItsStoreOnly(t *testing.T) {
	s := opened(t, place(t))
	must(t, s.Commit(numbered(1, 1)))
	must(t, s.Close())
	early := copied(t, s.path)
	s = opened(t, s.path)
	must(t, s.Commit(numbered(2, 1)))
	must(t, s.let())
	later := s.path
	journal, err := os.ReadFile(journalPath(s.path))
	must(t, err)

	refused := func(path string, parts ...string) {
		t.Helper()
		for range 2 {
			_, err := Open(path, registry(t))
			if !errors.Is(err, ErrJournal) {
				t.Fatal(err)
			}
			for _, part := range append(parts, journalPath(path)) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
		}
	}
	is := func(path string, n uint64) {
		t.Helper()
		s := opened(t, path)
		if m := latest(t, s); m != n {
			t.Errorf("at revision %d, not %d", m, n)
		}
		must(t, s.Close())
	}
	// An earlier copy, and an empty directory, with the journal of later commits.
	must(t, os.WriteFile(journalPath(early), journal, 0o600))
	refused(early, "goes with another store", "move this file away")
	must(t, os.Remove(journalPath(early)))
	is(early, 1)
	fresh := place(t)
	must(t, os.WriteFile(journalPath(fresh), journal, 0o600))
	refused(fresh, "goes with another store")
	must(t, os.Remove(journalPath(fresh)))
	is(fresh, 0)

	// The first half could not be written, so that the entries are in the second half.
	s = opened(t, copied(t, early))
	s.closing.Store(true) // nothing is written beside
	f := &failing{journalFile: s.journal.file, syncs: syscall.EIO}
	s.journal.file = f
	if err := s.Commit(numbered(2, 1)); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.syncs = nil
	must(t, s.Commit(numbered(2, 1)))
	must(t, s.let())
	second, err := os.ReadFile(journalPath(s.path))
	must(t, err)
	if !bytes.Equal(second[:headLength], zeros[:headLength]) || len(second) <= journalHalf {
		t.Errorf("%d bytes, the first of which are %x", len(second), second[:headLength])
	}
	must(t, os.WriteFile(journalPath(fresh), second, 0o600))
	refused(fresh, "goes with another store")
	is(s.path, 2)

	// Without it.
	alone := copied(t, later)
	must(t, os.Remove(journalPath(alone)))
	refused(alone, "is missing", "make an empty file")
	must(t, os.WriteFile(journalPath(alone), nil, 0o600))
	is(alone, 1)

	// Killed just before folded entries were removed: at the opening, and at the closing.
	s = opened(t, later)
	must(t, os.WriteFile(journalPath(s.path), journal, 0o600))
	is(copied(t, s.path), 2)
	must(t, s.let())
	must(t, os.WriteFile(journalPath(s.path), journal, 0o600))
	for range 3 {
		killed := &Store{path: s.path, registry: s.registry}
		killed.db, err = bolt.Open(s.path, 0o600, nil)
		must(t, err)
		must(t, killed.db.Update(func(tx *bolt.Tx) error {
			state, old, err := killed.replay(tx)
			must(t, err)
			return killed.openJournal(tx, state, old)
		}))
		must(t, killed.let())
	}
	is(copied(t, s.path), 2)
	s = opened(t, s.path)
	must(t, s.Commit(numbered(3, 1)))
	journal, err = os.ReadFile(journalPath(s.path))
	must(t, err)
	must(t, s.Close())
	must(t, os.WriteFile(journalPath(s.path), journal, 0o600))
	is(s.path, 3)
}

func TestAnObjectThatLooksLikeAnEntryIsNone(t *testing.T) {
	// Valid as the value of a label, and as the head of an entry of an unknown epoch.
	const head = "fbcaaaaaAAAAAAAAAAAAAAAAAAAAAAAAwXjW"
	if len(head) != headLength || crc32.Checksum([]byte(head[:headLength-4]), castagnoli) != binary.BigEndian.Uint32([]byte(head[headLength-4:])) {
		t.Fatal("that is no head")
	}
	looks := func(number uint64, padding int) *intent.Commit {
		labels := map[string]string{"a": strings.Repeat("x", padding)}
		for i := range 400 {
			labels[fmt.Sprintf("l%03d", i)] = head
		}
		kept, err := kinds().NewStored(key("a"), labels, nil, nil)
		must(t, err)
		r := &intent.Record{Revision: number, Layers: []intent.Layer{{Owner: "test", Revision: number, StoredObject: kept}}}
		return commit(number, edit("a", nil, r))
	}
	is := func(what, path string, n uint64) {
		t.Helper()
		for range 2 {
			s, err := Open(path, registry(t))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if m := latest(t, s); m != n {
				t.Errorf("%s: at revision %d, not %d", what, m, n)
			}
			must(t, s.let())
		}
	}
	aligned := 0
	for padding := range 42 {
		s := opened(t, place(t))
		must(t, s.Commit(looks(1, padding)))
		end := int(s.journal.at)
		content, err := os.ReadFile(journalPath(s.path))
		must(t, err)
		for at := journalPage; at < end; at += journalPage {
			if bytes.HasPrefix(content[at:], []byte(head)) {
				aligned++
			}
		}
		is("the last", copied(t, s.path), 1)
		is("torn", changed(t, s.path, func(b []byte) []byte { b[headLength+9] ^= 4; return b }), 0)
		is("its head not written", changed(t, s.path, func(b []byte) []byte { clear(b[:journalPage]); return b }), 0)
		_, err = s.History(0, 1)
		must(t, err)
		is("folded", copied(t, s.path), 1)
		must(t, s.Commit(numbered(2, 1)))
		is("folded, and another behind it", copied(t, s.path), 2)
		_, err = s.History(0, 1)
		must(t, err)
		must(t, s.Commit(numbered(3, 1)))
		is("overwritten in part", copied(t, s.path), 3)
		must(t, s.Close())
	}
	if aligned == 0 {
		t.Error("none was at the begin of a page")
	}
}

func TestHistoryIsReadWhileItIsMade(t *testing.T) {
	s := opened(t, place(t))
	s.journal.size = 3 * journalPage
	ended := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for last := uint64(0); ; {
				found, err := s.History(0, 1)
				if err != nil || len(found) > 0 && found[0].Number < last {
					t.Errorf("after revision %d: %+v, error %v", last, found, err)
					return
				}
				if len(found) > 0 {
					last = found[0].Number
					before := 0
					err := s.Before(last, func(object.Key, *intent.Record) error { before++; return nil })
					if err != nil || before != 1 {
						t.Errorf("revision %d changed %d objects, error %v", last, before, err)
					}
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		}()
	}
	for i := range uint64(500) {
		must(t, s.Commit(numbered(i+1, 1+int(i%2))))
		if found, err := s.History(0, 1); i%50 == 0 && (err != nil || found[0].Number != i+1) {
			t.Errorf("at revision %d: %+v, error %v", i+1, found, err)
		}
	}
	close(ended)
	readers.Wait()
	must(t, s.Close())
}
