// SPDX-License-Identifier: Apache-2.0

// In which format the file is. A file of another release is read as that release meant it, or refused: never misread.
package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/intent"
)

// Formats. The first has no number: of several layers of an object, one counts as a whole. Since the second, layers
// are merged field by field, and a layer may set fields to empty. Since the third, much of the state before a
// revision is in one value. Since the fourth, there is a journal beside the file, and the file is incomplete without
// it.
const (
	wholeObjects = 1
	singleValues = 2
	latestFormat = 4
)

// ErrFormat is returned if the file was written by another release, and cannot be read as that meant it.
var ErrFormat = errors.New("written by another release")

var (
	formatBucket = []byte("format")
	formatKey    = []byte("version")
)

// reform brings a file into the latest format.
func (s *Store) reform(tx *bolt.Tx) error {
	format := wholeObjects
	switch b := tx.Bucket(formatBucket); {
	case b != nil:
		if err := decode(formatKey, b.Get(formatKey), &format); err != nil {
			return err
		}
	case tx.Bucket(objectsBucket) == nil:
		format = latestFormat // a new one
	}
	if format < wholeObjects || format > latestFormat {
		return fmt.Errorf("%w: it has format %d, and this one knows formats %d to %d; start the newer release again, or move the file and its .key away to begin anew",
			ErrFormat, format, wholeObjects, latestFormat)
	}
	if format == wholeObjects {
		if err := s.fromWholeObjects(tx); err != nil {
			return err
		}
	}
	if format <= singleValues {
		if err := bundleAll(tx); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucketIfNotExists(formatBucket)
	if err != nil {
		return err
	}
	value, err := encode(latestFormat)
	if err != nil {
		return err
	}
	return b.Put(formatKey, value)
}

// fromWholeObjects: objects of one owner keep their meaning. Objects of several owners would change it: present ones
// are refused, and history is deleted up to the last of them.
func (s *Store) fromWholeObjects(tx *bolt.Tx) error {
	refused := func(name []byte, r *intent.Record) error {
		owners := make([]string, len(r.Layers))
		for i, l := range r.Layers {
			owners[i] = l.Owner
		}
		return fmt.Errorf("%w, in which only one of an object's owners counted; now each of its fields has owners, and %s has several: %s. Start the older release again "+
			"and let all but one of them give it up (sluice delete %s --owner OWNER), or move the file and its .key away to begin anew",
			ErrFormat, name, strings.Join(owners, ", "), bytes.Replace(name, []byte("/"), []byte(" "), 1))
	}
	err := tx.Bucket(objectsBucket).ForEach(func(name, value []byte) error {
		_, r, err := s.unpack(name, value)
		if err == nil && r != nil && len(r.Layers) > 1 {
			err = refused(name, r)
		}
		return err
	})
	before, open, revisions := tx.Bucket(beforeBucket), tx.Bucket(openBucket), tx.Bucket(revisionsBucket)
	if err != nil || before == nil || open == nil || revisions == nil {
		return err
	}
	var last []byte
	err = before.ForEach(func(key, value []byte) error {
		if len(key) < 8 {
			return fmt.Errorf("%w: a change is called %q", ErrDamaged, key)
		}
		_, r, err := s.unpack(key[8:], value)
		if err != nil || r == nil || len(r.Layers) < 2 {
			return err
		}
		if open.Get(key[:8]) != nil {
			return refused(key[8:], r)
		}
		last = bytes.Clone(key[:8])
		return nil
	})
	if err != nil || last == nil {
		return err
	}
	for _, b := range []*bolt.Bucket{before, revisions} {
		var old [][]byte
		cursor := b.Cursor()
		for key, _ := cursor.First(); key != nil && bytes.Compare(key[:8], last) <= 0; key, _ = cursor.Next() {
			if open.Get(key[:8]) == nil {
				old = append(old, bytes.Clone(key))
			}
		}
		for _, key := range old {
			if err := b.Delete(key); err != nil {
				return err
			}
		}
	}
	return nil
}
