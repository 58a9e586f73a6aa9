// SPDX-License-Identifier: Apache-2.0

// The journal: small commits, one behind the other, in a file of its own, before they reach the trees. A commit is an
// entry there, written and synced once. Many entries are folded into the trees together, in one transaction, while
// others are written.
//
// The file has two halves. While the entries of one are folded, the other is written. An entry begins a page, so that
// a failed write of it damages no other. It holds its epoch (one for each opening), its number from 1 on, its length,
// its CRC-32C, and the CRC-32C of this head. Nothing is erased: an entry is old if its number is not above the folded
// one (bucket "journal"). A partial last entry was not written to its end, and its commit was never confirmed. A
// partial entry elsewhere is damage.
package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
)

// ErrJournal is the error of a journal that does not belong to the database.
var ErrJournal = errors.New("not this one's journal")

const (
	journalPage = 4096
	journalHalf = 8 << 20
	// The file grows by so much for a change that cannot wait, and is synced so often while it grows in the
	// background: the sync of a longer file takes longer than that of overwritten pages.
	journalAhead = 512 << 10
	// In the background, so many values are folded at once, which takes less than a change, before others have their turn for so long.
	foldAtOnce = 16
	foldRest   = 500 * time.Microsecond
	// Longer entries are written to the trees.
	longestEntry = 256 << 10

	epochLength = 16
	headLength  = epochLength + 8 + 4 + 4 + 4
)

type epoch [epochLength]byte

var (
	journalBucket = []byte("journal")
	journalKey    = []byte("state")
	noEpoch       epoch
	zeros         [64 << 10]byte
)

// journalPath of a database.
func journalPath(path string) string { return path + ".journal" }

// journalFile is a file, but in tests.
type journalFile interface {
	WriteAt(b []byte, at int64) (int, error)
	Sync() error
	Close() error
}

// dataFile syncs the content and the length of the file, without other metadata.
type dataFile struct{ *os.File }

func (f dataFile) Sync() error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// journal is the position of the next entry, and the entries of its half that are not folded.
type journal struct {
	file  journalFile
	epoch epoch
	// Of a half.
	size int64
	// The number of the last entry.
	last uint64
	half int
	// In the half, where the next one goes.
	at int64
	// Up to where there is something in each half.
	filled [2]int64
	// Content of the entries since the last folded one, and spare pieces.
	pending pieces
	spare   pieces
}

// pieces is the content of entries, in order, in pieces. No entry is divided between pieces, or moved when there are
// more.
type pieces [][]byte

const contentPiece = 64 << 10

// add stores the content of an entry, in a spare piece if there is one.
func (j *journal) add(content []byte) {
	last := len(j.pending) - 1
	if last < 0 || len(j.pending[last])+len(content) > cap(j.pending[last]) {
		var piece []byte
		if n := len(j.spare); n > 0 {
			piece, j.spare = j.spare[n-1][:0], j.spare[:n-1]
		}
		if cap(piece) < len(content) {
			piece = make([]byte, 0, max(contentPiece, len(content)))
		}
		j.pending = append(j.pending, piece)
		last++
	}
	j.pending[last] = append(j.pending[last], content...)
}

// fits reports whether there is room for an entry.
func (j *journal) fits(e *entry) bool {
	return j.at+e.pages() <= j.size
}

// append writes an entry; written, if not nil, is called when the kernel has it, which syncs it then. After an error it may be there or not.
func (j *journal) append(e *entry, written func()) error {
	j.last++
	b := e.finish(j.epoch, j.last)
	base, end := int64(j.half)*j.size, j.at+int64(len(b))
	if end > j.filled[j.half] {
		// With less room than that, at least this one may fit.
		err := j.fill(j.half, min(j.size, (end+journalAhead-1)/journalAhead*journalAhead))
		if err != nil && !(errors.Is(err, syscall.ENOSPC) && j.filled[j.half] >= end) {
			return err
		}
	}
	_, err := j.file.WriteAt(b, base+j.at)
	if err == nil {
		if written != nil {
			written()
		}
		err = j.file.Sync()
	}
	if err != nil {
		// The caller gets an error.
		_, _ = j.file.WriteAt(zeros[:headLength], base+j.at)
		_ = j.file.Sync()
		return err
	}
	j.at += int64(len(b))
	j.add(e.content())
	return nil
}

// fill has a half be that long.
func (j *journal) fill(half int, until int64) error {
	for filled := &j.filled[half]; *filled < until; {
		n, err := j.file.WriteAt(zeros[:min(until-*filled, int64(len(zeros)))], int64(half)*j.size+*filled)
		*filled += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// short returns the half that is to grow, and its new length: the active one, or else the other. 0: none.
func (j *journal) short() (half int, until int64) {
	half = j.half
	if j.filled[half] == j.size {
		half = 1 - half
	}
	if j.filled[half] == j.size {
		return 0, 0
	}
	return half, j.size
}

// entry is one as it is written.
type entry struct{ b []byte }

func (e *entry) begin() { e.b = append(e.b[:0], zeros[:headLength]...) }

func (e *entry) content() []byte {
	return e.b[headLength : headLength+int(binary.BigEndian.Uint32(e.b[epochLength+8:]))]
}

func (e *entry) pages() int64 { return int64((len(e.b) + journalPage - 1) / journalPage * journalPage) }

func (e *entry) finish(of epoch, number uint64) []byte {
	text := e.b[headLength:]
	copy(e.b, of[:])
	binary.BigEndian.PutUint64(e.b[epochLength:], number)
	binary.BigEndian.PutUint32(e.b[epochLength+8:], uint32(len(text)))
	binary.BigEndian.PutUint32(e.b[epochLength+12:], crc32.Checksum(text, castagnoli))
	binary.BigEndian.PutUint32(e.b[epochLength+16:], crc32.Checksum(e.b[:epochLength+16], castagnoli))
	if rest := len(e.b) % journalPage; rest > 0 {
		e.b = append(e.b, zeros[:journalPage-rest]...)
	}
	return e.b
}

// journalState is the database's record of its journal.
type journalState struct {
	// Of the journal that is written; noEpoch: none, it was closed.
	epoch epoch
	// Of the one before, which may not be gone yet.
	before epoch
	// Up to which entry the trees have it.
	folded uint64
}

func readState(tx *bolt.Tx) (s journalState, err error) {
	b := tx.Bucket(journalBucket)
	if b == nil {
		return s, nil
	}
	text, err := unsealed(journalKey, b.Get(journalKey))
	if err == nil && len(text) != 2*epochLength+8 {
		err = fmt.Errorf("%w: %q has %d bytes", ErrDamaged, journalKey, len(text))
	}
	if err != nil {
		return s, err
	}
	copy(s.epoch[:], text)
	copy(s.before[:], text[epochLength:])
	s.folded = binary.BigEndian.Uint64(text[2*epochLength:])
	return s, nil
}

func (s journalState) write(tx *bolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists(journalBucket)
	if err != nil {
		return err
	}
	value := make([]byte, 4, 4+2*epochLength+8)
	value = append(append(value, s.epoch[:]...), s.before[:]...)
	return b.Put(journalKey, sealed(binary.BigEndian.AppendUint64(value, s.folded)))
}

// unfolded returns the content of the entries that the trees do not have, in order, and whether all entries are old.
func (s journalState) unfolded(path string, content []byte) (all []byte, old bool, err error) {
	old = true
	damaged := func(number uint64) error {
		return fmt.Errorf("%w: entry %d of %s does not have its checksum; move both files and the .key away to begin anew", ErrDamaged, number, path)
	}
	whole, torn, last := map[uint64][]byte{}, uint64(0), s.folded
	for at := 0; at+headLength <= len(content); {
		// No text continues there: bytes that look like a head are one. Elsewhere they may be the content of an object.
		begins := at%journalHalf == 0
		head := content[at : at+headLength]
		at += journalPage
		if crc32.Checksum(head[:epochLength+16], castagnoli) != binary.BigEndian.Uint32(head[epochLength+16:]) {
			continue
		}
		of, number := epoch(head[:epochLength]), binary.BigEndian.Uint64(head[epochLength:])
		length, sum := int(binary.BigEndian.Uint32(head[epochLength+8:])), binary.BigEndian.Uint32(head[epochLength+12:])
		switch {
		case of == s.before:
			continue
		case of != s.epoch || of == noEpoch:
			if !begins {
				continue
			}
			return nil, false, fmt.Errorf("%w: %s goes with another store, or with a later copy of this one; put that back, or move this file away", ErrJournal, path)
		}
		if old = false; number <= s.folded {
			continue
		}
		text := content[at-journalPage+headLength:]
		if length > len(text) || crc32.Checksum(text[:length], castagnoli) != sum {
			torn = max(torn, number)
			continue
		}
		whole[number], last = text[:length], max(last, number)
		at += (headLength+length+journalPage-1)/journalPage*journalPage - journalPage
	}
	for number := s.folded + 1; number <= last; number++ {
		text, there := whole[number]
		if !there {
			return nil, false, damaged(number)
		}
		all = append(all, text...)
	}
	if torn > last+1 {
		return nil, false, damaged(last + 1)
	}
	return all, old, nil
}

// replay folds the entries of a journal that was not closed. Old: the trees have all entries already.
func (s *Store) replay(tx *bolt.Tx) (state journalState, old bool, err error) {
	if state, err = readState(tx); err != nil {
		return state, false, err
	}
	path := journalPath(s.path)
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && state.epoch != noEpoch:
		return state, false, fmt.Errorf("%w: the latest changes are in %s, which is missing; put it back, or make an empty file of that name to go on without them", ErrJournal, path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return state, false, err
	}
	all, old, err := state.unfolded(path, content)
	if err == nil && s.torn && len(all) == 0 && state.epoch != noEpoch {
		return state, old, damagedMeta("a meta page is damaged")
	}
	if err == nil {
		err = fold(tx, pieces{all}, nil)
	}
	return state, old, err
}

// openJournal begins another journal.
func (s *Store) openJournal(tx *bolt.Tx, state journalState, old bool) error {
	path := journalPath(s.path)
	// The file must exist before the database refers to it.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.journal = journal{file: dataFile{file}, size: journalHalf}
	if old {
		// At the next start no file would have its epoch.
		if err := s.clearJournal(); err != nil {
			return err
		}
	}
	if err := syncDirectory(path); err != nil {
		return err
	}
	if _, err := rand.Read(s.journal.epoch[:]); err != nil {
		return err
	}
	before := state.epoch
	if before == noEpoch {
		before = state.before
	}
	return journalState{epoch: s.journal.epoch, before: before}.write(tx)
}

// clearJournal leaves nothing of the one before. So there are never entries of two epochs.
func (s *Store) clearJournal() error {
	file := s.journal.file.(dataFile)
	is, err := file.Stat()
	if err == nil && is.Size() > 0 {
		err = errors.Join(file.Truncate(0), file.File.Sync())
	}
	return err
}

// closeJournal leaves none: everything is in the trees.
func (s *Store) closeJournal() error {
	err := s.update(func(tx *bolt.Tx) error {
		return journalState{before: s.journal.epoch}.write(tx)
	})
	if err != nil {
		return err
	}
	return os.Remove(journalPath(s.path))
}

func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

// segment is a group of entries that are folded together.
type segment struct {
	content pieces
	last    uint64
}

// seal schedules all present entries for folding, and switches writing to the other half; false: that half still has
// unfolded entries. s.mu is held.
func (s *Store) seal() bool {
	j := &s.journal
	if s.sealed != nil {
		return false
	}
	s.sealed = &segment{j.pending, j.last}
	j.pending = nil
	j.half, j.at = 1-j.half, 0
	return true
}

// write keeps an entry; written is as with append. s.writing is held.
func (s *Store) write(e *entry, written func()) error {
	if s.doubtful {
		// Before the next entry, the number of the failed one is skipped.
		if err := s.foldAll(); err != nil {
			return err
		}
		s.doubtful = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.journal.fits(e) {
		if s.seal() {
			s.background.Add(1)
			go func() {
				defer s.background.Done()
				// A failed fold is tried again when there is no room.
				_ = s.foldNow(s.rest)
			}()
			continue
		}
		s.mu.Unlock()
		err := s.foldSealed()
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	if err := s.journal.append(e, written); err != nil {
		s.doubtful = true
		return fmt.Errorf("writing %s: %w", journalPath(s.path), err)
	}
	if half, until := s.journal.short(); until > 0 && !s.filling {
		s.filling = true
		s.background.Add(1)
		go func() {
			defer s.background.Done()
			s.fillAhead(half, until)
		}()
	}
	return nil
}

// fillAhead has a half be that long, in parts, so that no change has to wait for it. If that fails, the change that needs it gets the error.
func (s *Store) fillAhead(half int, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for filled := s.journal.filled[half]; filled < until && !s.closing.Load() && s.journal.fill(half, min(until, filled+int64(len(zeros)))) == nil; {
		filled = s.journal.filled[half]
		s.mu.Unlock()
		if filled%journalAhead == 0 || filled == until {
			syncAside(journalPath(s.path))
		}
		s.rest()
		s.mu.Lock()
	}
	s.filling = false
}

// syncAside syncs written data, so that the next sync is short. A later sync by another descriptor reports the same
// error.
func syncAside(path string) {
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		_ = dataFile{f}.Sync()
		_ = f.Close()
	}
}

// foldAll folds all entries.
func (s *Store) foldAll() error {
	if err := s.foldSealed(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.sealed == nil && s.journal.last > s.folded {
		s.seal()
	}
	s.mu.Unlock()
	return s.foldSealed()
}

// foldSealed folds the sealed half. A caller waits for it, so the fold in the background does not rest.
func (s *Store) foldSealed() error {
	s.hurried.Add(1)
	defer s.hurried.Add(-1)
	return s.foldNow(nil)
}

// rest gives way to concurrent changes, unless a caller waits for the fold.
func (s *Store) rest() {
	if s.hurried.Load() == 0 {
		time.Sleep(foldRest)
	}
}

// foldNow folds the sealed segment, and pauses between parts; nil: never.
func (s *Store) foldNow(rest func()) error {
	s.folding.Lock()
	defer s.folding.Unlock()
	s.mu.Lock()
	segment := s.sealed
	s.mu.Unlock()
	if segment == nil {
		return nil
	}
	err := s.update(func(tx *bolt.Tx) error {
		state, err := readState(tx)
		if err == nil {
			err = fold(tx, segment.content, rest)
		}
		if err != nil {
			return err
		}
		state.folded = segment.last
		return state.write(tx)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.sealed, s.journal.spare, s.folded = nil, segment.content, segment.last
	s.mu.Unlock()
	return nil
}

// Content of an entry, one behind the other: a tree, a key and a value; or a deleted key; or deleted revisions.
const (
	opPut = iota
	opDelete
	opForget
)

func (e *entry) put(tree tree, key, value []byte) error {
	e.b = append(e.b, opPut, byte(tree))
	e.b = append(binary.AppendUvarint(e.b, uint64(len(key))), key...)
	e.b = append(binary.AppendUvarint(e.b, uint64(len(value))), value...)
	return nil
}

func (e *entry) delete(tree tree, key []byte) error {
	e.b = append(e.b, opDelete, byte(tree))
	e.b = append(binary.AppendUvarint(e.b, uint64(len(key))), key...)
	return nil
}

func (e *entry) forget(oldest uint64, most int) error {
	e.b = append(e.b, opForget)
	e.b = binary.AppendUvarint(binary.AppendUvarint(e.b, oldest), uint64(most))
	return nil
}

// fold carries out the entries, and pauses between parts; nil: never. All values must stay in place until the
// transaction ends.
func fold(tx *bolt.Tx, all pieces, rest func()) error {
	t := newTrees(tx)
	u := &unpacker{}
	var latest []byte
	var oldest, most uint64
	for done := 1; ; done++ {
		for len(u.rest) == 0 && len(all) > 0 && !u.short {
			u.rest, all = all[0], all[1:]
		}
		if len(u.rest) == 0 {
			break
		}
		if rest != nil && done%foldAtOnce == 0 {
			rest()
		}
		what := u.number()
		if what == opForget {
			oldest, most = max(oldest, u.number()), most+u.number()
			continue
		}
		which := tree(u.number())
		key := u.bytes()
		if u.short || which >= treeCount {
			return fmt.Errorf("%w: an entry of the journal makes no sense", ErrDamaged)
		}
		var err error
		switch what {
		case opPut:
			value := u.bytes()
			if which == latestTree {
				latest = value
				continue
			}
			err = t[which].Put(key, value)
		case opDelete:
			err = t[which].Delete(key)
		default:
			err = ErrDamaged
		}
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	if u.short {
		return fmt.Errorf("%w: the journal ends within an entry", ErrDamaged)
	}
	if latest != nil {
		if err := t[latestTree].Put(latestKey, latest); err != nil {
			return err
		}
	}
	if most == 0 {
		return nil
	}
	return t.forget(oldest, int(most))
}

// unfolded returns the content that the trees do not have. s.folding is held: until its release, nothing of this is
// overwritten.
func (s *Store) unfolded() pieces {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed == nil {
		return slices.Clone(s.journal.pending)
	}
	return slices.Concat(s.sealed.content, s.journal.pending)
}
