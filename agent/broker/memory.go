// SPDX-License-Identifier: Apache-2.0

// State that outlives the agent: the order of the latest message about each object, and the objects whose status was
// published. Desired state is in packages intent and store.
//
// A Bolt database. Bucket "latest" holds by "Kind/name": revision and number (64 bits each, big endian), the time of
// its deletion (seconds since the Unix epoch, 0: not deleted), and the stream. Bucket "told" holds the names alone.
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
	bolterrors "go.etcd.io/bbolt/errors"

	"sluice.dev/sluice/agent/object"
)

var (
	latestBucket   = []byte("latest")
	reportedBucket = []byte("told")
)

const (
	// How long it is known that an object was deleted.
	forgetAfter = 7 * 24 * time.Hour
	sweepEvery  = 24 * time.Hour
	// Enough for another process that is being restarted to release the lock.
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
	_, missing := os.Stat(path)
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if err != nil && missing != nil && !errors.Is(err, bolterrors.ErrTimeout) {
		// Half of a new file could not be opened the next time.
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, fmt.Errorf("memory: %s: %w", path, err)
	}
	m := &memory{path: path, db: db}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{latestBucket, reportedBucket} {
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

// sweep removes objects that were deleted long ago.
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

// loadOrders returns the stored order of the messages' objects.
func (m *memory) loadOrders(messages []*parsedMessage) (map[object.Key]Order, error) {
	known := map[object.Key]Order{}
	err := m.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(latestBucket)
		for _, p := range messages {
			for _, c := range p.changes {
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

// storeOrders stores the order of changes. It skips changes without an order.
func (m *memory) storeOrders(last map[object.Key]lastChange, now time.Time) error {
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

// reported returns the objects whose status was published.
func (m *memory) reported() (map[object.Key]struct{}, error) {
	all := map[object.Key]struct{}{}
	err := m.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(reportedBucket).ForEach(func(k, _ []byte) error {
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

// setReported adds and removes objects whose status was published.
func (m *memory) setReported(fresh, gone []object.Key) error {
	if len(fresh) == 0 && len(gone) == 0 {
		return nil
	}
	return m.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(reportedBucket)
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
