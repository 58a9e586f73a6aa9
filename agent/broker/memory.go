// What must not be forgotten when the agent ends: which message was the latest about each object, and which objects' status was
// told. What is wanted is not here; packages intent and store keep that.
//
// A Bolt database. Bucket "latest" holds by "Kind/name": revision and number (64 bits each, big endian), when it was deleted (seconds
// since the Unix epoch, 0: it was not), and the stream. Bucket "told" holds the names alone.
package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/object"
)

var (
	latestBucket = []byte("latest")
	toldBucket   = []byte("told")
)

const (
	// How long it is known that an object was deleted.
	forgetAfter = 7 * 24 * time.Hour
	sweepEvery  = 24 * time.Hour
	// As long as another process that is being restarted takes to let go.
	lockTimeout = 2 * time.Second
	fixedLength = 24
)

type memory struct {
	path  string
	db    *bolt.DB
	swept time.Time
}

func openMemory(path string, now time.Time) (*memory, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("memory: %s: %w", path, err)
	}
	m := &memory{path: path, db: db}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{latestBucket, toldBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return m.sweep(tx, now)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory: %s: %w", path, err), db.Close())
	}
	return m, nil
}

func (m *memory) close() error {
	if err := m.db.Close(); err != nil {
		return fmt.Errorf("memory: %s: %w", m.path, err)
	}
	return nil
}

// sweep forgets what was deleted long ago.
func (m *memory) sweep(tx *bolt.Tx, now time.Time) error {
	if now.Sub(m.swept) < sweepEvery {
		return nil
	}
	m.swept = now
	c := tx.Bucket(latestBucket).Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if len(v) < fixedLength {
			continue
		}
		if deleted := int64(binary.BigEndian.Uint64(v[16:])); deleted != 0 && now.Sub(time.Unix(deleted, 0)) > forgetAfter {
			if err := c.Delete(); err != nil {
				return err
			}
		}
	}
	return nil
}

// recall returns what is known of the objects that letters are about.
func (m *memory) recall(letters []*letter) (map[object.Key]Order, error) {
	known := map[object.Key]Order{}
	err := m.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(latestBucket)
		for _, l := range letters {
			for _, c := range l.changes {
				v := b.Get([]byte(c.Key.String()))
				if len(v) >= fixedLength {
					known[c.Key] = Order{binary.BigEndian.Uint64(v), string(v[fixedLength:]), binary.BigEndian.Uint64(v[8:])}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("memory: %s: %w", m.path, err)
	}
	return known, nil
}

// remember keeps when the last was said about objects. What says nothing about its order leaves nothing to be remembered.
func (m *memory) remember(last map[object.Key]said, now time.Time) error {
	needed := false
	for _, s := range last {
		needed = needed || s.order != Order{}
	}
	if !needed {
		return nil
	}
	return m.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(latestBucket)
		for k, s := range last {
			v := make([]byte, fixedLength, fixedLength+len(s.order.Stream))
			binary.BigEndian.PutUint64(v, s.order.Revision)
			binary.BigEndian.PutUint64(v[8:], s.order.Number)
			if s.change.Object == nil {
				binary.BigEndian.PutUint64(v[16:], uint64(now.Unix()))
			}
			if err := b.Put([]byte(k.String()), append(v, s.order.Stream...)); err != nil {
				return err
			}
		}
		return m.sweep(tx, now)
	})
}

// told returns which objects were told of.
func (m *memory) told() (map[object.Key]struct{}, error) {
	all := map[object.Key]struct{}{}
	err := m.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(toldBucket).ForEach(func(k, _ []byte) error {
			kind, name, _ := strings.Cut(string(k), "/")
			all[object.Key{Kind: kind, Name: name}] = struct{}{}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("memory: %s: %w", m.path, err)
	}
	return all, nil
}

// tell remembers that objects are told of, or no longer are.
func (m *memory) tell(fresh, gone []object.Key) error {
	if len(fresh) == 0 && len(gone) == 0 {
		return nil
	}
	return m.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(toldBucket)
		for _, k := range fresh {
			if err := b.Put([]byte(k.String()), []byte{}); err != nil {
				return err
			}
		}
		for _, k := range gone {
			if err := b.Delete([]byte(k.String())); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *memory) update(do func(*bolt.Tx) error) error {
	if err := m.db.Update(do); err != nil {
		return fmt.Errorf("memory: %s: %w", m.path, err)
	}
	return nil
}
