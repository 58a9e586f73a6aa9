package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// failing is a file that fails.
type failing struct {
	journalFile
	writes, syncs, wipes error
	// Before it fails.
	syncing func()
}

func (f *failing) WriteAt(b []byte, at int64) (int, error) {
	if f.wipes != nil && len(b) == headLength {
		return 0, f.wipes
	}
	if f.writes != nil && len(b) != headLength {
		// Some of it was.
		_, _ = f.journalFile.WriteAt(b[:len(b)/2], at)
		return len(b) / 2, f.writes
	}
	return f.journalFile.WriteAt(b, at)
}

func (f *failing) Sync() error {
	if f.syncs != nil {
		if f.syncing != nil {
			f.syncing()
		}
		return f.syncs
	}
	return f.journalFile.Sync()
}

func TestACommitThatCannotBeWrittenIsRefusedAndTheNextIsKept(t *testing.T) {
	full := syscall.ENOSPC
	for _, c := range []struct {
		sentence             string
		writes, syncs, wipes error
	}{{"no room", full, nil, nil}, {"not synced", nil, syscall.EIO, nil}, {"no room at all", full, nil, full}, {"not synced, nor taken back", nil, syscall.EIO, full}} {
		t.Run(c.sentence, func(t *testing.T) {
			s := opened(t, place(t))
			s.closing.Store(true) // nothing is written beside
			f := &failing{journalFile: s.journal.file}
			s.journal.file = f
			must(t, s.Commit(numbered(1, 1)))
			for n := range uint64(4) {
				f.writes, f.syncs, f.wipes = c.writes, c.syncs, c.wipes
				err := s.Commit(numbered(n+2, 2))
				if !errors.Is(err, full) && !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), journalPath(s.path)) {
					t.Fatalf("error %v", err)
				}
				f.writes, f.syncs, f.wipes = nil, nil, nil
				// Killed now, it may only be there if it could not be taken back.
				again := opened(t, copied(t, s.path))
				if m := latest(t, again); m != n+1 && (m != n+2 || c.wipes == nil) {
					t.Errorf("killed, it was at revision %d", m)
				}
				must(t, again.Close())
				if n == 2 {
					if m := latest(t, s); m != n+1 {
						t.Errorf("it is at revision %d", m)
					}
				}
				must(t, s.Commit(numbered(n+2, 1)))
				again = opened(t, copied(t, s.path))
				if m := latest(t, again); m != n+2 {
					t.Errorf("killed after the next, it was at revision %d, not %d", m, n+2)
				}
				must(t, again.Close())
			}
			if m := latest(t, s); m != 5 {
				t.Errorf("it is at revision %d", m)
			}
			must(t, s.Close())
		})
	}
}

// cramped is a file for which there is only so much room.
type cramped struct {
	journalFile
	room int64
}

func (f *cramped) WriteAt(b []byte, at int64) (int, error) {
	if n := max(f.room-at, 0); n < int64(len(b)) {
		n, err := f.journalFile.WriteAt(b[:n], at)
		return n, errors.Join(err, syscall.ENOSPC)
	}
	return f.journalFile.WriteAt(b, at)
}

func TestWhatFitsIsKeptThoughThereIsNoRoomAhead(t *testing.T) {
	for _, room := range []int64{1, 3*journalPage - 1, 3 * journalPage, 3*journalPage + 1, 20 * journalPage} {
		t.Run(fmt.Sprintf("%d bytes", room), func(t *testing.T) {
			s := opened(t, place(t))
			f := &cramped{s.journal.file, room}
			s.journal.file = f
			for n := range uint64(room / journalPage) {
				must(t, s.Commit(numbered(n+1, 1)))
			}
			kept := uint64(room / journalPage)
			if err := s.Commit(numbered(kept+1, 1)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("error %v", err)
			}
			is := func(n uint64) {
				t.Helper()
				again := opened(t, copied(t, s.path))
				if m := latest(t, again); m != n {
					t.Errorf("killed, it was at revision %d, not %d", m, n)
				}
				must(t, again.Close())
			}
			is(kept)
			s.mu.Lock()
			f.room = 1 << 40
			s.mu.Unlock()
			must(t, s.Commit(numbered(kept+1, 1)))
			is(kept + 1)
			must(t, s.Close())
		})
	}
}

// noting notes what is done with a file, and fails to sync it once.
type noting struct {
	journalFile
	did []string
}

func (f *noting) WriteAt(b []byte, at int64) (int, error) {
	f.did = append(f.did, fmt.Sprintf("write %d at %d", len(b), at))
	return f.journalFile.WriteAt(b, at)
}

func (f *noting) Sync() error {
	if f.did = append(f.did, "sync"); !slices.Contains(f.did[:len(f.did)-1], "sync") {
		return syscall.EIO
	}
	return f.journalFile.Sync()
}

func TestWhatIsTakenBackIsSynced(t *testing.T) {
	s := opened(t, place(t))
	s.closing.Store(true) // nothing is written beside
	must(t, s.Commit(numbered(1, 1)))
	f := &noting{journalFile: s.journal.file}
	s.journal.file = f
	if err := s.Commit(numbered(2, 1)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	if want := []string{"write 4096 at 4096", "sync", "write 36 at 4096", "sync"}; !slices.Equal(f.did, want) {
		t.Errorf("it did %q", f.did)
	}
	must(t, s.Close())
}

func TestAFullDiskKeepsNothingHalfAndLetsAllBeRead(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mount("none", directory, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	defer func() { must(t, syscall.Unmount(directory, syscall.MNT_DETACH)) }()
	s := opened(t, filepath.Join(directory, "intent.db"))
	s.journal.size = 20 * journalPage
	var n uint64
	next := func(pages int) error {
		c := numbered(n+1, pages)
		c.Edits[0].Before = record("a", n, "test", strings.Repeat("before ", 2000))
		return s.Commit(c)
	}
	// There may be room again when more was folded.
	for refused := 0; refused < 5; {
		if err := next(3); err == nil {
			n, refused = n+1, 0
			continue
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("after %d: %v", n, err)
		}
		refused++
		if m := latest(t, s); m != n {
			t.Errorf("at revision %d of %d", m, n)
		}
		if history, err := s.History(0, 1000); err != nil || len(history) != int(n) {
			t.Errorf("%d revisions of history, not %d, error %v", len(history), n, err)
		}
	}
	if n < 10 {
		t.Errorf("only %d", n)
	}
	s.background.Wait()
	again := opened(t, copied(t, s.path))
	if m := latest(t, again); m != n {
		t.Errorf("killed, it was at revision %d of %d", m, n)
	}
	must(t, again.Close())
	// It is not closed properly, for which there is no room either; and goes on as soon as there is some.
	if err := s.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	must(t, syscall.Mount("none", directory, "tmpfs", syscall.MS_REMOUNT, "size=20m"))
	s = opened(t, s.path)
	if m := latest(t, s); m != n {
		t.Errorf("with room again it was at revision %d of %d", m, n)
	}
	must(t, next(3))
	must(t, s.Close())
}
