// SPDX-License-Identifier: Apache-2.0

// The data planes that the store knows, and whether it is the same store.
package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
)

// ErrMissing is returned if the file is not there, or empty, although there was one.
var ErrMissing = errors.New("missing")

// missing: a store and its key are made together.
func missing(path string) error {
	is, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && is.Size() > 0 {
		return nil
	}
	if _, err := os.Stat(keyPath(path)); err != nil {
		return nil
	}
	return fmt.Errorf("%w, or empty, but its key %s is there; put it back, or move that away, too, to begin anew", ErrMissing, keyPath(path))
}

// beginKnown: a store of an older release, without names, knows all data planes.
func beginKnown(tx *bolt.Tx) error {
	if tx.Bucket(knownBucket) != nil {
		return nil
	}
	b, err := tx.CreateBucket(knownBucket)
	if err != nil || tx.Bucket(latestBucket).Get(latestKey) == nil {
		return err
	}
	return b.Put(knownKey(""), sealed(make([]byte, 4)))
}

// knownKey is the key of a data plane: Bolt has no empty keys.
func knownKey(dataplane string) []byte { return []byte("/" + dataplane) }

// IsKnown implements intent.Store.
func (s *Store) IsKnown(dataplane string) (known bool, err error) {
	look := func(tx *bolt.Tx) error {
		b := tx.Bucket(knownBucket)
		known = b.Get(knownKey(dataplane)) != nil || b.Get(knownKey("")) != nil
		return nil
	}
	if s.Full() != nil {
		err = s.view(look)
		return known, err
	}
	defer s.explain("reading", &err)
	defer faulty()()
	err = s.db.View(look)
	return known, err
}

// AddKnown implements intent.Store.
func (s *Store) AddKnown(dataplane string) (err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	defer s.refuse(&err)
	if err := s.beginAgain(); err != nil {
		return err
	}
	return s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(knownBucket).Put(knownKey(dataplane), sealed(make([]byte, 4)))
	})
}
