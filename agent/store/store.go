// Package store keeps what is wanted, and how that came to be, in a Bolt database: one file, in which a revision is written whole
// or not at all, whenever the process or the machine ends.
//
// Bucket "objects" holds a record by "Kind/name"; "revisions" and "open" what is known of a revision by its number; "before" what
// was kept of an object before a revision changed it, by the revision's number and then "Kind/name"; "latest" the number of the
// latest revision; "format" in which format all that is (format.go). Each value begins with its CRC-32C. What kinds with secrets say is encrypted (secret.go).
package store

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
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

// lockTimeout is how long Open waits for another process to let go, as one that is being restarted does.
const lockTimeout = 2 * time.Second

// room is address space, not memory: while the file is smaller, nothing has to be moved when it grows.
const room = 1 << 30

// Forgetting a large revision is spread over the commits that follow: so many of what it changed go with each, and twice as many
// as that commit changes.
const forgetAtLeast = 64

// What is put behind all else, or is much at once, fills pages; else there is room between, as Bolt leaves it.
const (
	full = 0.95
	bulk = 10_000
)

var (
	objectsBucket   = []byte("objects")
	revisionsBucket = []byte("revisions")
	beforeBucket    = []byte("before")
	openBucket      = []byte("open")
	latestBucket    = []byte("latest")
	latestKey       = []byte("revision")
)

// Store is an open database.
type Store struct {
	path     string
	registry *object.Registry
	db       *bolt.DB
	key      cipher.AEAD
}

// Open opens the database, or makes it.
func Open(path string, registry *object.Registry) (_ *Store, err error) {
	s := &Store{path: path, registry: registry}
	defer func() {
		if err != nil && s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	defer s.explain("opening", &err)
	defer faulty()()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	s.db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, InitialMmapSize: room})
	if err != nil {
		return nil, err
	}
	// Under the lock, so that two that start at once do not make two keys.
	if s.key, err = openKey(path); err != nil {
		return nil, err
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		if err := s.reform(tx); err != nil {
			return err
		}
		for _, name := range [][]byte{objectsBucket, revisionsBucket, beforeBucket, openBucket, latestBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// explain makes errors say which file and what about it; and errors of what bolt does with a damaged file, which is to panic or
// to read beyond its end.
func (s *Store) explain(doing string, err *error) {
	if crash := recover(); crash != nil {
		*err = fmt.Errorf("%w (%v); move it away to begin anew", ErrDamaged, crash)
	}
	switch {
	case *err == nil:
		return
	case errors.Is(*err, bolterrors.ErrTimeout):
		*err = ErrLocked
	case errors.Is(*err, bolterrors.ErrInvalid), errors.Is(*err, bolterrors.ErrChecksum), errors.Is(*err, bolterrors.ErrVersionMismatch):
		*err = fmt.Errorf("%w (%w); move it away to begin anew", ErrDamaged, *err)
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
	if err := s.db.Close(); err != nil {
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

// Commit implements intent.Store.
func (s *Store) Commit(c *intent.Commit) error {
	edits := c.Edits
	if len(edits) > 1 {
		// Pages are filled in order.
		byKey := func(a, b intent.Edit) int { return a.Key.Compare(b.Key) }
		if !slices.IsSortedFunc(edits, byKey) {
			edits = slices.Clone(edits)
			slices.SortFunc(edits, byKey)
		}
	}
	number := revisionKey(c.Revision.Number)
	return s.update(func(tx *bolt.Tx) error {
		objects, before, open := tx.Bucket(objectsBucket), tx.Bucket(beforeBucket), tx.Bucket(openBucket)
		before.FillPercent = full
		if len(edits) >= bulk {
			objects.FillPercent = full
		}
		// Names of changes: all of them behind one another.
		names := make([]byte, 0, len(edits)*(len(number)+32))
		for i := range edits {
			e := &edits[i]
			name := []byte(e.Key.String())
			if c.Recorded || c.Open != nil {
				value, err := s.pack(e.Before)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				from := len(names)
				names = append(append(names, number...), name...)
				if err := before.Put(names[from:len(names):len(names)], value); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			if e.After == nil {
				if err := objects.Delete(name); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				continue
			}
			value, err := s.pack(e.After)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := objects.Put(name, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if c.Recorded {
			if err := put(tx.Bucket(revisionsBucket), number, c.Revision); err != nil {
				return err
			}
		}
		if c.Open != nil {
			if err := put(open, number, c.Open); err != nil {
				return err
			}
		}
		if c.Closes != 0 {
			if err := open.Delete(revisionKey(c.Closes)); err != nil {
				return err
			}
		}
		if err := put(tx.Bucket(latestBucket), latestKey, c.Revision.Number); err != nil {
			return err
		}
		return forget(tx, c.Oldest, forgetAtLeast+2*len(edits))
	})
}

// forget deletes what is known of revisions before the oldest, and of those that are no part of history, but for what is open.
func forget(tx *bolt.Tx, oldest uint64, most int) error {
	open, revisions := tx.Bucket(openBucket), tx.Bucket(revisionsBucket)
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
	before := tx.Bucket(beforeBucket)
	old = old[:0]
	cursor = before.Cursor()
	for key, _ := cursor.First(); key != nil && len(old) < most && bytes.Compare(key, revisionKey(oldest)) < 0; key, _ = cursor.Next() {
		if len(key) < 8 {
			return fmt.Errorf("%w: a change is called %q", ErrDamaged, key)
		}
		if open.Get(key[:8]) == nil {
			old = append(old, bytes.Clone(key))
		}
	}
	for _, key := range old {
		if err := before.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// Settle implements intent.Store.
func (s *Store) Settle(revision uint64, open *intent.Open) error {
	return s.update(func(tx *bolt.Tx) error {
		if open != nil {
			return put(tx.Bucket(openBucket), revisionKey(revision), open)
		}
		return tx.Bucket(openBucket).Delete(revisionKey(revision))
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
			k, r, err := s.unpack(key[8:], value)
			if err != nil {
				return err
			}
			if err := yield(k, r); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) view(f func(tx *bolt.Tx) error) (err error) {
	defer s.explain("reading", &err)
	defer faulty()()
	return s.db.View(f)
}

func (s *Store) update(f func(tx *bolt.Tx) error) (err error) {
	defer s.explain("writing", &err)
	defer faulty()()
	return s.db.Update(f)
}

func put(b *bolt.Bucket, key []byte, v any) error {
	value, err := encode(v)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

func revisionKey(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, revision)
}
