// SPDX-License-Identifier: Apache-2.0

// The state before a revision, many objects in one value: a revision that creates very many objects is written, and
// deleted again, in a few pages.
package store

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// bundleBytes is from when on a value is full. Two of them fill a page.
const bundleBytes = 1800

// bundles are the values of one revision.
type bundles struct {
	writer   writer
	revision []byte
	// Behind the place for the checksum, each behind its length, names and records.
	value []byte
	count uint32
}

// add adds an object's name and its record before the revision; empty: it did not exist.
func (b *bundles) add(name, record []byte) error {
	if b.value == nil {
		b.value = make([]byte, 4, 64+len(name)+len(record))
	}
	b.value = append(binary.AppendUvarint(b.value, uint64(len(name))), name...)
	b.value = append(binary.AppendUvarint(b.value, uint64(len(record))), record...)
	if len(b.value) < bundleBytes {
		return nil
	}
	return b.end()
}

// end writes the last bundle.
func (b *bundles) end() error {
	if len(b.value) <= 4 {
		return nil
	}
	key := binary.BigEndian.AppendUint32(bytes.Clone(b.revision), b.count)
	if err := b.writer.put(beforeTree, key, sealed(b.value)); err != nil {
		return err
	}
	b.value, b.count = b.value[:4], b.count+1
	return nil
}

// unbundled calls yield with each name and record in a value.
func unbundled(key, value []byte, yield func(name, record []byte) error) error {
	text, err := unsealed(key, value)
	if err != nil {
		return err
	}
	u := &unpacker{rest: text}
	for len(u.rest) > 0 {
		name, record := u.bytes(), u.bytes()
		if u.short {
			return fmt.Errorf("%w: %q has %d bytes that make no sense", ErrDamaged, key, len(text))
		}
		if err := yield(name, record); err != nil {
			return err
		}
	}
	return nil
}

// bundleAll bundles the single values of an older release, by the revision's number and then the object's name.
func bundleAll(tx *bolt.Tx) error {
	single := tx.Bucket(beforeBucket)
	if single == nil {
		return nil
	}
	type change struct{ revision, name, record []byte }
	var all []change
	err := single.ForEach(func(key, value []byte) error {
		if len(key) < 8 {
			return fmt.Errorf("%w: a change is called %q", ErrDamaged, key)
		}
		record, err := unsealed(key, value)
		// The key is valid only as long as its bucket.
		key = bytes.Clone(key)
		all = append(all, change{key[:8], key[8:], bytes.Clone(record)})
		return err
	})
	if err == nil {
		err = tx.DeleteBucket(beforeBucket)
	}
	if err != nil {
		return err
	}
	before, err := tx.CreateBucket(beforeBucket)
	if err != nil {
		return err
	}
	t := &trees{beforeTree: before}
	before.FillPercent = full
	b := &bundles{writer: t}
	for _, c := range all {
		if !bytes.Equal(b.revision, c.revision) {
			if err := b.end(); err != nil {
				return err
			}
			b.revision, b.count = c.revision, 0
		}
		if err := b.add(c.name, c.record); err != nil {
			return err
		}
	}
	return b.end()
}
