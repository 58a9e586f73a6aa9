// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
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

func TestACommitThatFitsIsStoredWithoutRoomAhead(t *testing.T) {
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

// noting records the operations on a file, and fails to sync it once.
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

func TestAnUndoIsSynced(t *testing.T) {
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

// tiny mounts a file system of so many bytes, and returns its folder and a function that resizes it.
func tiny(t *testing.T, size string) (directory string, resize func(size string)) {
	t.Helper()
	directory = t.TempDir()
	if err := syscall.Mount("none", directory, "tmpfs", 0, "nr_inodes=32,size="+size); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(directory, syscall.MNT_DETACH)) })
	return directory, func(size string) {
		t.Helper()
		must(t, syscall.Mount("none", directory, "tmpfs", syscall.MS_REMOUNT, "nr_inodes=1k,size="+size))
	}
}

// fill leaves no room on the file system of a folder.
func fill(t *testing.T, directory string) {
	t.Helper()
	f, err := os.Create(filepath.Join(directory, "others"))
	must(t, err)
	for err == nil {
		_, err = f.Write(zeros[:journalPage])
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	must(t, f.Close())
	for n := 0; err == nil || n == 0; n++ {
		err = os.WriteFile(filepath.Join(directory, fmt.Sprint(n)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func TestAnAgentStartedOnAFullDiskServesItsConfigurationAndRecovers(t *testing.T) {
	for _, killed := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			directory, resize := tiny(t, "4m")
			path := filepath.Join(directory, "intent.db")
			p := started(t, path, nil)
			p.store.closing.Store(true) // nothing is written beside
			must(t, p.store.AddKnown("default"))
			p.apply("api", intent.Options{}, vrf("a", "one"))
			var many []object.Change
			for n := range small {
				many = append(many, vrf(fmt.Sprintf("many-%d", n), strings.Repeat("x", 200)))
			}
			for range 5 {
				p.apply("pppoe", intent.Options{}, many...)
				for i := range many {
					p.apply("pppoe", intent.Options{}, gone(many[i].Key.Name))
				}
			}
			p.apply("api", intent.Options{}, vrf("b", "two"))
			latest := p.Revision()
			if killed {
				p.kill()
			} else {
				p.stop()
			}
			fill(t, directory)
			p = started(t, path, nil)
			if err := p.store.Full(); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("full: %v", err)
			}
			p.has("a: one (api)", "b: two (api)")
			p.knows(true, "default")
			if r, err := p.History(0, 10); err != nil || len(r) != 10 || r[0].Number != latest {
				t.Errorf("history %v, error %v", r, err)
			}
			for range 2 {
				_, err := p.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{vrf("c", "three")}, intent.Options{})
				if !errors.Is(err, intent.ErrDiskFull) || !strings.Contains(err.Error(), "free some space in "+directory) {
					t.Fatalf("error %v", err)
				}
			}
			p.has("a: one (api)", "b: two (api)")
			p = p.restart(nil)
			p.has("a: one (api)", "b: two (api)")
			resize("40m")
			if r := p.apply("api", intent.Options{}, vrf("c", "three")); r != latest+1 {
				t.Errorf("revision %d", r)
			}
			if err := p.store.Full(); err != nil {
				t.Errorf("still full: %v", err)
			}
			p = p.restart(nil)
			p.has("a: one (api)", "b: two (api)", "c: three (api)")
		})
	}
}

func TestANewStoreOnAFullDiskIsBegunWhenThereIsRoom(t *testing.T) {
	directory, resize := tiny(t, "8k")
	path := filepath.Join(directory, "intent.db")
	if s, err := Open(path, registry(t)); !noRoom(err) {
		t.Fatalf("opened %v, error %v", s, err)
	}
	resize("40m")
	s := opened(t, path)
	must(t, s.Commit(numbered(1, 1)))
	must(t, s.Close())
}

func TestAnErrorOfBoltHasItsCause(t *testing.T) {
	s := opened(t, place(t))
	s.closing.Store(true) // nothing is written beside
	descriptor, err := unix.MemfdCreate("store", unix.MFD_ALLOW_SEALING)
	must(t, err)
	file := os.NewFile(uintptr(descriptor), "store")
	defer file.Close()
	of := s.db
	defer func() { s.db = of }()
	s.db, err = bolt.Open(fmt.Sprintf("/proc/self/fd/%d", descriptor), 0o600, &bolt.Options{Logger: s.logged})
	must(t, err)
	defer s.db.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	err = s.change(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("a"))
		if err != nil {
			return err
		}
		return b.Put([]byte("long"), make([]byte, 1<<20))
	})
	// Bolt has it as the text "file resize error: truncate ...: operation not permitted".
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("error %v", err)
	}
}
