// Which data planes the store knows, and whether it is the one that was there.
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

// beginMeeting: a store of before, which kept no names, knows them all.
func beginMeeting(tx *bolt.Tx) error {
	if tx.Bucket(metBucket) != nil {
		return nil
	}
	b, err := tx.CreateBucket(metBucket)
	if err != nil || tx.Bucket(latestBucket).Get(latestKey) == nil {
		return err
	}
	return b.Put(metKey(""), sealed(make([]byte, 4)))
}

// metKey: Bolt has no empty keys.
func metKey(dataplane string) []byte { return []byte("/" + dataplane) }

// Knows implements intent.Store.
func (s *Store) Knows(dataplane string) (known bool, err error) {
	defer s.explain("reading", &err)
	defer faulty()()
	err = s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(metBucket)
		known = b.Get(metKey(dataplane)) != nil || b.Get(metKey("")) != nil
		return nil
	})
	return known, err
}

// Meet implements intent.Store.
func (s *Store) Meet(dataplane string) error {
	return s.update(func(tx *bolt.Tx) error {
		return tx.Bucket(metBucket).Put(metKey(dataplane), sealed(make([]byte, 4)))
	})
}
