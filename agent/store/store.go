// Package store keeps what is wanted in a Bolt database: one file, in which a batch is written whole or not at all, whenever the
// process or the machine ends.
//
// Bucket "objects" holds a record by "Kind/name". Bucket "open" holds, by revision, how to take back a transaction that must be
// all or nothing and was not finished; Open takes it back. Each value begins with its CRC-32C.
package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// ErrLocked is returned if another process has the file open.
var ErrLocked = errors.New("in use by another process")

// ErrDamaged is returned if the file is not as it was written.
var ErrDamaged = errors.New("damaged")

// lockTimeout is how long Open waits for another process to let go, as one that is being restarted does.
const lockTimeout = 2 * time.Second

var (
	objectsBucket = []byte("objects")
	openBucket    = []byte("open")
)

// Store is an open database.
type Store struct {
	path     string
	registry *object.Registry
	db       *bolt.DB
}

// record is an object in the database.
type record struct {
	Kind     string            `json:"kind"`
	Name     string            `json:"name"`
	Labels   map[string]string `json:"labels,omitempty"`
	Owner    string            `json:"owner"`
	Revision uint64            `json:"revision"`
	Spec     []byte            `json:"spec"`
	// Not wanted. Only in an undo.
	Absent bool `json:"absent,omitempty"`
}

// undoRecord takes back what a transaction did to one object.
type undoRecord struct {
	Before record `json:"before"`
	// The transaction deleted it.
	Deleted bool `json:"deleted,omitempty"`
}

// Open opens the database, or makes it. Transactions that were not finished are taken back.
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
	s.db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err != nil {
		return nil, err
	}
	err = s.db.Update(func(tx *bolt.Tx) error {
		objects, err := tx.CreateBucketIfNotExists(objectsBucket)
		if err != nil {
			return err
		}
		open, err := tx.CreateBucketIfNotExists(openBucket)
		if err != nil {
			return err
		}
		return takeBack(objects, open)
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

// Load returns all that is wanted, in order of kind and name.
func (s *Store) Load() (intents []reconcile.Intent, err error) {
	defer s.explain("reading", &err)
	defer faulty()()
	err = s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(objectsBucket).ForEach(func(key, value []byte) error {
			var r record
			if err := decode(key, value, &r); err != nil {
				return err
			}
			o, err := s.registry.New(r.Kind, r.Name, r.Labels, r.Spec)
			if err != nil {
				return err
			}
			if string(key) != o.Key().String() {
				return fmt.Errorf("%w: %q holds %s", ErrDamaged, key, o.Key())
			}
			intents = append(intents, reconcile.Intent{Key: o.Key(), Object: o, Owner: r.Owner, Revision: r.Revision})
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return intents, nil
}

// Save keeps the intents, in one transaction.
func (s *Store) Save(intents []reconcile.Intent) (err error) {
	return s.update(func(objects, _ *bolt.Bucket) error { return save(objects, intents) })
}

// Begin keeps the intents, and how to take them back if the program ends before End, in one transaction.
func (s *Store) Begin(revision uint64, intents, undo []reconcile.Intent) (err error) {
	deleted := map[object.Key]bool{}
	for _, i := range intents {
		deleted[i.Key] = i.Object == nil
	}
	records := make([]undoRecord, len(undo))
	for n, i := range undo {
		if records[n].Before, err = recordOf(i); err != nil {
			return err
		}
		records[n].Deleted = deleted[i.Key]
	}
	value, err := encode(records)
	if err != nil {
		return err
	}
	return s.update(func(objects, open *bolt.Bucket) error {
		if err := open.Put(revisionKey(revision), value); err != nil {
			return err
		}
		return save(objects, intents)
	})
}

// End keeps what undo says, and makes the revision stand, in one transaction.
func (s *Store) End(revision uint64, undo []reconcile.Intent) (err error) {
	return s.update(func(objects, open *bolt.Bucket) error {
		if err := open.Delete(revisionKey(revision)); err != nil {
			return err
		}
		return save(objects, undo)
	})
}

func (s *Store) update(f func(objects, open *bolt.Bucket) error) (err error) {
	defer s.explain("writing", &err)
	defer faulty()()
	return s.db.Update(func(tx *bolt.Tx) error { return f(tx.Bucket(objectsBucket), tx.Bucket(openBucket)) })
}

func save(objects *bolt.Bucket, intents []reconcile.Intent) error {
	for _, i := range intents {
		r, err := recordOf(i)
		if err != nil {
			return err
		}
		if err := put(objects, r); err != nil {
			return err
		}
	}
	return nil
}

func put(objects *bolt.Bucket, r record) error {
	key := []byte(object.Key{Kind: r.Kind, Name: r.Name}.String())
	if r.Absent {
		return objects.Delete(key)
	}
	value, err := encode(r)
	if err != nil {
		return err
	}
	if err := objects.Put(key, value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func recordOf(i reconcile.Intent) (record, error) {
	r := record{Kind: i.Key.Kind, Name: i.Key.Name, Owner: i.Owner, Revision: i.Revision}
	if i.Object == nil {
		r.Absent = true
		return r, nil
	}
	spec, err := object.Pack(i.Object.Spec)
	if err != nil {
		return r, fmt.Errorf("%s: %w", i.Key, err)
	}
	r.Labels, r.Spec = i.Object.Labels, spec
	return r, nil
}

// takeBack undoes the transactions that are open, the newest first, as far as nobody changed the objects since.
func takeBack(objects, open *bolt.Bucket) error {
	cursor := open.Cursor()
	var done [][]byte
	for key, value := cursor.Last(); key != nil; key, value = cursor.Prev() {
		if len(key) != 8 {
			return fmt.Errorf("%w: an open transaction is called %q", ErrDamaged, key)
		}
		var records []undoRecord
		if err := decode(key, value, &records); err != nil {
			return err
		}
		for _, u := range records {
			name := object.Key{Kind: u.Before.Kind, Name: u.Before.Name}.String()
			if current := objects.Get([]byte(name)); current == nil {
				if !u.Deleted {
					continue
				}
			} else {
				var now record
				if err := decode([]byte(name), current, &now); err != nil {
					return err
				}
				if now.Revision != binary.BigEndian.Uint64(key) {
					continue
				}
			}
			if err := put(objects, u.Before); err != nil {
				return err
			}
		}
		done = append(done, append([]byte{}, key...))
	}
	for _, key := range done {
		if err := open.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

func revisionKey(revision uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, revision)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(text, castagnoli)), text...), nil
}

func decode(key, value []byte, v any) error {
	name := fmt.Sprintf("%q", key)
	if strings.Contains(string(key), "/") {
		name = string(key)
	}
	if len(value) < 4 || binary.BigEndian.Uint32(value) != crc32.Checksum(value[4:], castagnoli) {
		return fmt.Errorf("%w: %s is not as it was written", ErrDamaged, name)
	}
	if err := json.Unmarshal(value[4:], v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return nil
}
