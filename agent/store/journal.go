// The journal: what small commits write, one behind the other, in a file of its own, before the trees have it. A commit is an entry there,
// written and synced once; many together are folded into the trees, in one transaction, while others are written.
//
// The file has two halves. While what is in one is folded, the other is written. An entry begins a page, so that writing it, whole or not,
// hurts no other. It says which time of being open it is of (its epoch), its number from 1 on, how long it is, its CRC-32C, and that of all
// this. Nothing is erased: an entry whose number is not above the one that the trees have (bucket "journal") is old. One that is not whole
// was not written to its end, and nobody was told that it was kept, if it is the last; else the file is damaged.
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

// ErrJournal is returned if the journal is not the one that goes with the database.
var ErrJournal = errors.New("not this one's journal")

const (
	journalPage = 4096
	journalHalf = 8 << 20
	// The file grows by so much for a change that cannot wait, and is synced so often while it grows in the background: to grow takes longer to
	// sync than to write what is there.
	journalAhead = 512 << 10
	// In the background, so many values are folded at once, which takes less than a change, before others have their turn for so long.
	foldAtOnce = 16
	foldRest   = 500 * time.Microsecond
	// What is longer is written to the trees.
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

// dataFile syncs what is written, and how long the file is; nothing else about it.
type dataFile struct{ *os.File }

func (f dataFile) Sync() error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// journal is where the next entry goes, and what the trees do not have yet of the half that it goes to.
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
	// What the entries say from the last that was folded on; and pieces for more of it.
	pending said
	spare   said
}

// said is what entries say, one behind the other, in pieces. None is cut, or moved when there is more.
type said [][]byte

const saidPiece = 64 << 10

// add keeps what an entry says, in a spare piece where there is one.
func (j *journal) add(says []byte) {
	last := len(j.pending) - 1
	if last < 0 || len(j.pending[last])+len(says) > cap(j.pending[last]) {
		var piece []byte
		if n := len(j.spare); n > 0 {
			piece, j.spare = j.spare[n-1][:0], j.spare[:n-1]
		}
		if cap(piece) < len(says) {
			piece = make([]byte, 0, max(saidPiece, len(says)))
		}
		j.pending = append(j.pending, piece)
		last++
	}
	j.pending[last] = append(j.pending[last], says...)
}

// fits says whether there is room for an entry.
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
		// Who asked for it is told that it was not kept.
		_, _ = j.file.WriteAt(zeros[:headLength], base+j.at)
		_ = j.file.Sync()
		return err
	}
	j.at += int64(len(b))
	j.add(e.says())
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

// short returns the half that is to be longer, and how long then: the one that is written, or else the other. 0: none.
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

func (e *entry) says() []byte {
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

// journalState is what the database knows of its journal.
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

// unfolded returns what entries say that the trees do not have, one behind the other, and whether all there is is old.
func (s journalState) unfolded(path string, content []byte) (all []byte, old bool, err error) {
	old = true
	damaged := func(number uint64) error {
		return fmt.Errorf("%w: entry %d of %s is not as it was written; move both files and the .key away to begin anew", ErrDamaged, number, path)
	}
	whole, torn, last := map[uint64][]byte{}, uint64(0), s.folded
	for at := 0; at+headLength <= len(content); {
		// No text goes on there: what looks like a head is one. Elsewhere it may be what somebody wrote into an object.
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

// openJournal folds what a journal has that was not closed, and begins another.
func (s *Store) openJournal(tx *bolt.Tx) error {
	state, err := readState(tx)
	if err != nil {
		return err
	}
	path := journalPath(s.path)
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && state.epoch != noEpoch:
		return fmt.Errorf("%w: the latest changes are in %s, which is missing; put it back, or make an empty file of that name to go on without them", ErrJournal, path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	all, old, err := state.unfolded(path, content)
	if err == nil {
		err = fold(tx, said{all}, nil)
	}
	if err != nil {
		return err
	}
	// It must be there before the database says so.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.journal = journal{file: dataFile{file}, size: journalHalf}
	if old {
		// The next time it would be of an epoch that nobody remembers.
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

// segment is what is to be folded together.
type segment struct {
	says said
	last uint64
}

// seal has all entries that there are be folded next, and those that come be written into the other half; false: that has some itself yet.
// s.mu is held.
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
		// The number of the one that failed is passed over before there is another.
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
				// What cannot be folded now is tried again when there is no room.
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

// fillAhead has a half be that long, in parts, so that no change has to wait for it. If that fails, the change that needs it is told.
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

// syncAside syncs what there is, so that who syncs what comes does not have to. An error is also told to who syncs after it by a
// descriptor of his own.
func syncAside(path string) {
	if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		_ = dataFile{f}.Sync()
		_ = f.Close()
	}
}

// foldAll folds what was written before.
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

// foldSealed folds what is sealed. Somebody waits for it, so what goes on in the background hurries.
func (s *Store) foldSealed() error {
	s.hurried.Add(1)
	defer s.hurried.Add(-1)
	return s.foldNow(nil)
}

// rest gives way to changes that go on beside, unless somebody waits.
func (s *Store) rest() {
	if s.hurried.Load() == 0 {
		time.Sleep(foldRest)
	}
}

// foldNow folds what is sealed, and rests now and then; nil: never.
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
			err = fold(tx, segment.says, rest)
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
	s.sealed, s.journal.spare, s.folded = nil, segment.says, segment.last
	s.mu.Unlock()
	return nil
}

// What an entry says, one behind the other: which tree, a key, and a value; or that a key has none any more; or what is forgotten.
const (
	saysPut = iota
	saysDelete
	saysForget
)

func (e *entry) put(tree tree, key, value []byte) error {
	e.b = append(e.b, saysPut, byte(tree))
	e.b = append(binary.AppendUvarint(e.b, uint64(len(key))), key...)
	e.b = append(binary.AppendUvarint(e.b, uint64(len(value))), value...)
	return nil
}

func (e *entry) delete(tree tree, key []byte) error {
	e.b = append(e.b, saysDelete, byte(tree))
	e.b = append(binary.AppendUvarint(e.b, uint64(len(key))), key...)
	return nil
}

func (e *entry) forget(oldest uint64, most int) error {
	e.b = append(e.b, saysForget)
	e.b = binary.AppendUvarint(binary.AppendUvarint(e.b, oldest), uint64(most))
	return nil
}

// fold does what entries say, and rests now and then; nil: never. All values stay where they are until the transaction ends.
func fold(tx *bolt.Tx, all said, rest func()) error {
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
		if what == saysForget {
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
		case saysPut:
			value := u.bytes()
			if which == latestTree {
				latest = value
				continue
			}
			err = t[which].Put(key, value)
		case saysDelete:
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

// unfolded returns what the trees do not have. s.folding is held: until it is not, nothing of this is written over.
func (s *Store) unfolded() said {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed == nil {
		return slices.Clone(s.journal.pending)
	}
	return slices.Concat(s.sealed.says, s.journal.pending)
}
