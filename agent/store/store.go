// SPDX-License-Identifier: Apache-2.0

// Package store stores the configuration and its history in a Bolt database: one file, in which a revision is written
// as a whole or not at all, whenever the process or the machine ends. Small revisions are written to a journal first
// (journal.go).
//
// Buckets: "objects" holds a record by "Kind/name"; "revisions" and "open" hold a revision by its number; "before"
// holds the objects of a revision as they were before it, many in one value, by the revision's number and then a
// count; "undo", by the revision's number and then "Kind/name", holds the objects that undoing an open revision
// restores, where that differs from "before"; "latest" holds the number of the latest revision; "dataplanes" the
// names of known data planes ("": the list is complete); "journal" the position up to which the journal is folded;
// "format" the format of the file (format.go). Each value begins with its CRC-32C. Specs of kinds with secrets are
// encrypted (secret.go).
package store

import (
	"bytes"
	"cmp"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// ErrLocked is returned if another process has the file open.
var ErrLocked = errors.New("in use by another process")

// ErrDamaged is returned if the file is not as it was written.
var ErrDamaged = errors.New("damaged")

// lockTimeout is how long Open waits for another process to release the lock, as during a restart.
const lockTimeout = 2 * time.Second

// room is address space, not memory: while the file is smaller, nothing has to be moved when it grows.
const room = 1 << 30

// The deletion of a large revision is spread over the next commits: each deletes so many of its values, and as many
// as the commit itself adds. Some thirty commits may be between two that delete a revision.
const minForget = 64

// Pages are filled by appended and large values; otherwise they have spare room, as Bolt's default.
const (
	full = 0.95
	bulk = 10_000
)

// small is up to how many objects a commit goes by way of the journal.
const small = 64

// tree is a bucket, by its number in the journal.
type tree byte

const (
	objectsTree tree = iota
	revisionsTree
	beforeTree
	openTree
	undoTree
	latestTree
	treeCount
)

var (
	objectsBucket   = []byte("objects")
	revisionsBucket = []byte("revisions")
	beforeBucket    = []byte("before")
	openBucket      = []byte("open")
	undoBucket      = []byte("undo")
	latestBucket    = []byte("latest")
	knownBucket     = []byte("dataplanes")
	latestKey       = []byte("revision")
)

// buckets are those of the trees.
var buckets = [treeCount][]byte{objectsBucket, revisionsBucket, beforeBucket, openBucket, undoBucket, latestBucket}

// Store is an open database.
type Store struct {
	path     string
	registry *object.Registry
	db       *bolt.DB
	key      cipher.AEAD

	// One transaction writes at a time. Locked behind writing and folding.
	changing sync.Mutex
	logged   *boltErrors

	// One commit is written at a time; it has these.
	writing sync.Mutex
	entry   entry
	scratch []byte
	// Of one of the database's meta pages the checksum was wrong at the start.
	torn bool
	// It is unknown whether the last entry was written.
	doubtful bool

	// Entries are folded one segment at a time. Locked behind writing.
	folding    sync.Mutex
	background sync.WaitGroup
	// How many wait for that.
	hurried atomic.Int32
	closing atomic.Bool

	// Locked behind all else.
	mu      sync.Mutex
	journal journal
	// The segment that is being folded, or nil.
	sealed *segment
	// The file is made longer.
	filling bool
	// The number of the last entry that the trees have.
	folded uint64
	// The error of the opening's writes: the disk is full. Nil: they are written.
	full error
}

// Open opens the database, or makes it.
func Open(path string, registry *object.Registry) (_ *Store, err error) {
	s := &Store{path: path, registry: registry, logged: newBoltErrors()}
	defer func() {
		if err != nil && s.journal.file != nil {
			err = errors.Join(err, s.journal.file.Close())
		}
		if err != nil && s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	defer s.explain("opening", &err)
	defer faulty()()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := missing(path); err != nil {
		return nil, err
	}
	is, err := os.Stat(path)
	isNew := err != nil || is.Size() == 0
	s.db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, InitialMmapSize: room, FreelistType: bolt.FreelistMapType, Logger: s.logged})
	if isNew && noRoom(err) {
		// Half of a new file would be called damaged the next time.
		err = errors.Join(err, os.Truncate(path, 0))
	}
	if err != nil {
		return nil, err
	}
	if s.torn, err = checkMetaPages(path); err != nil {
		return nil, err
	}
	// Under the lock, so that two that start at once do not make two keys.
	if s.key, err = openKey(path); err != nil {
		return nil, err
	}
	if err := s.begin(); noRoom(err) {
		// The store is read as it is, and takes changes as soon as there is room.
		s.full = err
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

// explain adds the file and the operation to errors. It converts Bolt's panics and reads beyond the end of a damaged
// file to errors.
func (s *Store) explain(doing string, err *error) {
	if crash := recover(); crash != nil {
		*err = fmt.Errorf("%w (%v); move it, its .journal and its .key away to begin anew", ErrDamaged, crash)
	}
	switch {
	case *err == nil:
		return
	case errors.Is(*err, bolterrors.ErrTimeout):
		*err = ErrLocked
	case errors.Is(*err, bolterrors.ErrInvalid), errors.Is(*err, bolterrors.ErrChecksum), errors.Is(*err, bolterrors.ErrVersionMismatch):
		*err = fmt.Errorf("%w (%w); move it, its .journal and its .key away to begin anew", ErrDamaged, *err)
	}
	*err = fmt.Errorf("%s %s: %w", doing, s.path, *err)
}

// faulty makes reading beyond the file's end a panic of this goroutine, which explain catches.
func faulty() func() {
	before := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(before) }
}

// Close closes the database.
func (s *Store) Close() error {
	s.closing.Store(true)
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.Full() != nil {
		return s.let()
	}
	err := s.foldAll()
	if err == nil {
		err = s.closeJournal()
	}
	return errors.Join(err, s.let())
}

// let closes the files as they are.
func (s *Store) let() error {
	s.closing.Store(true)
	s.background.Wait()
	var err error
	if s.journal.file != nil {
		err = s.journal.file.Close()
	}
	if err := errors.Join(err, s.db.Close()); err != nil {
		return fmt.Errorf("closing %s: %w", s.path, err)
	}
	return nil
}

// Load implements intent.Store.
func (s *Store) Load(yield func(object.Key, *intent.Record) error) (latest uint64, open []intent.Open, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		if value := tx.Bucket(latestBucket).Get(latestKey); value != nil {
			if err := decode(latestKey, value, &latest); err != nil {
				return err
			}
		}
		err := tx.Bucket(openBucket).ForEach(func(key, value []byte) error {
			var o intent.Open
			if err := decode(key, value, &o); err != nil {
				return err
			}
			open = append(open, o)
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket(objectsBucket).ForEach(func(key, value []byte) error {
			k, r, err := s.unpack(key, value)
			if err != nil {
				return err
			}
			return yield(k, r)
		})
	})
	return latest, open, err
}

// writer receives a commit: the journal, or the trees themselves. It copies keys and values.
type writer interface {
	put(tree tree, key, value []byte) error
	delete(tree tree, key []byte) error
	// Delete at most so many old values of each tree.
	forget(oldest uint64, most int) error
}

// Commit implements intent.Store.
func (s *Store) Commit(c *intent.Commit) error {
	return s.keep(len(c.Edits), c.Written, func(w writer) error { return s.commit(w, c) })
}

// Settle implements intent.Store.
func (s *Store) Settle(revision uint64, open *intent.Open, revised []intent.Undo) error {
	return s.keep(len(revised), nil, func(w writer) error { return s.settle(w, revision, open, revised) })
}

// keep writes something of so many objects, all of it or nothing; written is as in intent.Commit.
func (s *Store) keep(objects int, written func(), write func(w writer) error) (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	defer s.refuse(&err)
	if err := s.beginAgain(); err != nil {
		return err
	}
	if objects <= small {
		s.entry.begin()
		if err := write(&s.entry); err != nil {
			return fmt.Errorf("writing %s: %w", s.path, err)
		}
		if n := s.entry.pages(); n <= longestEntry && n <= s.journal.size {
			return s.write(&s.entry, written)
		}
	}
	s.entry.b, s.scratch = nil, nil
	if err := s.foldAll(); err != nil {
		return err
	}
	return s.update(func(tx *bolt.Tx) error {
		t := newTrees(tx)
		if objects >= bulk {
			t[objectsTree].FillPercent = full
		}
		return write(&t)
	})
}

func (s *Store) commit(w writer, c *intent.Commit) error {
	edits := c.Edits
	if len(edits) > 1 {
		// Pages are filled in order.
		byKey := func(a, b intent.Edit) int { return a.Key.Compare(b.Key) }
		if !slices.IsSortedFunc(edits, byKey) {
			edits = slices.Clone(edits)
			slices.SortFunc(edits, byKey)
		}
	}
	var room [64]byte
	number := revisionKey(c.Revision.Number)
	changed := bundles{writer: w, revision: number}
	for i := range edits {
		e := &edits[i]
		name := append(append(append(room[:0], e.Key.Kind...), '/'), e.Key.Name...)
		if c.Recorded || c.Open != nil {
			record, err := s.appendRecord(s.scratch[:0], e.Before)
			if err == nil {
				s.scratch = record
				err = changed.add(name, record)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if e.After == nil {
			if err := w.delete(objectsTree, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		value, err := s.appendRecord(append(s.scratch[:0], 0, 0, 0, 0), e.After)
		if err == nil {
			s.scratch = value
			err = w.put(objectsTree, name, sealed(value))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := changed.end(); err != nil {
		return err
	}
	if c.Recorded {
		if err := put(w, revisionsTree, number, c.Revision); err != nil {
			return err
		}
	}
	if c.Open != nil {
		if err := put(w, openTree, number, c.Open); err != nil {
			return err
		}
	}
	if err := s.settle(w, c.Closes, c.Leaves, c.Revised); err != nil {
		return err
	}
	for _, ended := range c.Ends {
		if err := w.delete(openTree, revisionKey(ended)); err != nil {
			return err
		}
	}
	if err := put(w, latestTree, latestKey, c.Revision.Number); err != nil {
		return err
	}
	return w.forget(c.Oldest, minForget*(1+int(changed.count)))
}

// trees are the buckets of a transaction.
type trees [treeCount]*bolt.Bucket

func newTrees(tx *bolt.Tx) (t trees) {
	for i, name := range buckets {
		t[i] = tx.Bucket(name)
	}
	// Pages are split only at the end: values are appended in order.
	t[beforeTree].FillPercent = full
	t[undoTree].FillPercent = full
	return t
}

func (t *trees) put(tree tree, key, value []byte) error {
	return t[tree].Put(key, bytes.Clone(value))
}

func (t *trees) delete(tree tree, key []byte) error { return t[tree].Delete(key) }

// forget deletes records of revisions before the oldest, and of those that are not part of history, except for open
// ones.
func (t *trees) forget(oldest uint64, most int) error {
	open, revisions := t[openTree], t[revisionsTree]
	if oldest == 0 {
		return forgetChanges(t[undoTree], open, nil, most)
	}
	var old [][]byte
	cursor := revisions.Cursor()
	for key, _ := cursor.First(); key != nil && bytes.Compare(key, revisionKey(oldest)) < 0; key, _ = cursor.Next() {
		if open.Get(key) == nil {
			old = append(old, bytes.Clone(key))
		}
	}
	for _, key := range old {
		if err := revisions.Delete(key); err != nil {
			return err
		}
	}
	if err := forgetChanges(t[beforeTree], open, revisionKey(oldest), most); err != nil {
		return err
	}
	return forgetChanges(t[undoTree], open, nil, most)
}

// forgetChanges deletes changes of revisions before one (nil: of all) that are not open.
func forgetChanges(changes, open *bolt.Bucket, before []byte, most int) error {
	var old [][]byte
	cursor := changes.Cursor()
	for key, _ := cursor.First(); key != nil && len(old) < most && (before == nil || bytes.Compare(key, before) < 0); {
		if len(key) < 8 {
			return fmt.Errorf("%w: a change is called %q", ErrDamaged, key)
		}
		if open.Get(key[:8]) != nil {
			// All of that revision stays.
			next := binary.BigEndian.Uint64(key) + 1
			key, _ = cursor.Seek(revisionKey(next))
			continue
		}
		old = append(old, bytes.Clone(key))
		key, _ = cursor.Next()
	}
	for _, key := range old {
		if err := changes.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) settle(w writer, revision uint64, open *intent.Open, revised []intent.Undo) error {
	if len(revised) > 1 {
		// In order, as newTrees has it.
		revised = slices.SortedFunc(slices.Values(revised), func(a, b intent.Undo) int {
			return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.Key.Compare(b.Key))
		})
	}
	for _, u := range revised {
		value, err := s.packUndo(u)
		if err == nil {
			err = w.put(undoTree, append(revisionKey(u.Revision), u.Key.String()...), value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", u.Key, err)
		}
	}
	switch {
	case open != nil:
		return put(w, openTree, revisionKey(revision), open)
	case revision != 0:
		return w.delete(openTree, revisionKey(revision))
	}
	return nil
}

// Undoes implements intent.Store.
func (s *Store) Undoes(revision uint64, yield func(intent.Undo) error) error {
	return s.view(func(tx *bolt.Tx) error {
		prefix := revisionKey(revision)
		cursor := tx.Bucket(undoBucket).Cursor()
		for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
			u, err := s.unpackUndo(revision, key[8:], value)
			if err == nil {
				err = yield(u)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// History implements intent.Store.
func (s *Store) History(before uint64, limit int) (found []intent.Revision, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		cursor := tx.Bucket(revisionsBucket).Cursor()
		key, value := cursor.Last()
		if before != 0 {
			if key, _ = cursor.Seek(revisionKey(before)); key != nil {
				key, value = cursor.Prev()
			} else {
				key, value = cursor.Last()
			}
		}
		for ; key != nil && len(found) < limit; key, value = cursor.Prev() {
			var r intent.Revision
			if err := decode(key, value, &r); err != nil {
				return err
			}
			found = append(found, r)
		}
		return nil
	})
	return found, err
}

// Before implements intent.Store.
func (s *Store) Before(revision uint64, yield func(object.Key, *intent.Record) error) error {
	return s.view(func(tx *bolt.Tx) error {
		prefix := revisionKey(revision)
		cursor := tx.Bucket(beforeBucket).Cursor()
		for key, value := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = cursor.Next() {
			err := unbundled(key, value, func(name, record []byte) error {
				k, r, err := s.record(name, record)
				if err != nil {
					return err
				}
				return yield(k, r)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) view(f func(tx *bolt.Tx) error) (err error) {
	defer s.explain("reading", &err)
	defer faulty()()
	if s.Full() != nil {
		return s.viewUnbegun(f)
	}
	if err := s.foldAll(); err == nil {
		return s.db.View(f)
	}
	// There may be no room for it; to read it is not kept.
	s.hurried.Add(1)
	defer s.hurried.Add(-1)
	s.folding.Lock()
	defer s.folding.Unlock()
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if err := fold(tx, s.unfolded(), nil); err != nil {
		return err
	}
	return f(tx)
}

func (s *Store) update(f func(tx *bolt.Tx) error) (err error) {
	defer s.explain("writing", &err)
	defer faulty()()
	return s.change(f)
}

func put(w writer, tree tree, key []byte, v any) error {
	value, err := encode(v)
	if err != nil {
		return err
	}
	return w.put(tree, key, value)
}

func revisionKey(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, revision)
}
