// SPDX-License-Identifier: Apache-2.0

// The format of records in the file: numbers as varints, and values of variable length behind their length.
package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealed writes the checksum before the value.
func sealed(value []byte) []byte {
	binary.BigEndian.PutUint32(value, crc32.Checksum(value[4:], castagnoli))
	return value
}

func unsealed(key, value []byte) ([]byte, error) {
	if len(value) < 4 || binary.BigEndian.Uint32(value) != crc32.Checksum(value[4:], castagnoli) {
		return nil, fmt.Errorf("%w: %q does not have its checksum", ErrDamaged, key)
	}
	return value[4:], nil
}

func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return sealed(append(make([]byte, 4, 4+len(text)), text...)), nil
}

func decode(key, value []byte, v any) error {
	text, err := unsealed(key, value)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrDamaged, key, err)
	}
	return nil
}

// The form of a spec is before it: encrypted, or behind the paths of fields that are set to empty.
const (
	secret  = 1
	opEmpty = 2
)

// pack returns a record as it is written by itself.
func (s *Store) pack(r *intent.Record) ([]byte, error) {
	b, err := s.appendRecord(make([]byte, 4, 256), r)
	if err != nil {
		return nil, err
	}
	return sealed(b), nil
}

// appendRecord appends nothing for nil.
func (s *Store) appendRecord(b []byte, r *intent.Record) ([]byte, error) {
	if r == nil {
		return b, nil
	}
	b = binary.AppendUvarint(b, r.Revision)
	b = binary.AppendUvarint(b, r.Generation)
	b = binary.AppendVarint(b, r.Accepted)
	b = binary.AppendUvarint(b, uint64(len(r.Layers)))
	for _, l := range r.Layers {
		labels := l.Labels()
		b = appendString(b, l.Owner)
		b = binary.AppendUvarint(b, l.Revision)
		b = binary.AppendUvarint(b, l.Taken)
		b = binary.AppendUvarint(b, uint64(len(labels)))
		for _, label := range slices.Sorted(maps.Keys(labels)) {
			b = appendString(appendString(b, label), labels[label])
		}
		form, spec, empty := byte(0), l.Spec(), l.Empty()
		if l.Secret() {
			hidden, err := s.encrypted(l.Key(), l.Owner, spec)
			if err != nil {
				return nil, err
			}
			form, spec = form|secret, string(hidden)
		}
		if len(empty) > 0 {
			form |= opEmpty
		}
		b = append(b, form)
		if len(empty) > 0 {
			b = binary.AppendUvarint(b, uint64(len(empty)))
			for _, field := range empty {
				b = appendString(b, field)
			}
		}
		b = appendString(b, spec)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// packUndo puts before a record whose layers of it are meant.
func (s *Store) packUndo(u intent.Undo) ([]byte, error) {
	record, err := s.pack(u.Before)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(make([]byte, 4, len(record)+64), uint64(len(u.Owners)))
	for _, owner := range u.Owners {
		b = appendString(b, owner)
	}
	return sealed(appendString(b, string(record))), nil
}

func (s *Store) unpackUndo(revision uint64, name, value []byte) (intent.Undo, error) {
	text, err := unsealed(name, value)
	if err != nil {
		return intent.Undo{}, err
	}
	u := &unpacker{rest: text}
	undo := intent.Undo{Revision: revision}
	for range u.count() {
		undo.Owners = append(undo.Owners, u.text())
	}
	record := u.text()
	if u.short || len(u.rest) > 0 {
		return intent.Undo{}, fmt.Errorf("%w: what undoes %s has %d bytes that make no sense", ErrDamaged, name, len(text))
	}
	undo.Key, undo.Before, err = s.unpack(name, []byte(record))
	return undo, err
}

// unpack reads a record that was written by itself.
func (s *Store) unpack(name, value []byte) (object.Key, *intent.Record, error) {
	text, err := unsealed(name, value)
	if err != nil {
		return object.Key{}, nil, err
	}
	return s.record(name, text)
}

// record reads a record that is called "Kind/name"; of nothing, it is nil.
func (s *Store) record(name, text []byte) (_ object.Key, _ *intent.Record, err error) {
	kind, rest, _ := strings.Cut(string(name), "/")
	k := object.Key{Kind: kind, Name: rest}
	if len(text) == 0 {
		return k, nil, nil
	}
	u := &unpacker{rest: text}
	r := &intent.Record{Revision: u.number(), Generation: u.number(), Accepted: u.signed()}
	for range u.count() {
		l := intent.Layer{Owner: u.text(), Revision: u.number(), Taken: u.number()}
		var labels map[string]string
		if n := u.count(); n > 0 {
			labels = make(map[string]string, n)
			for range n {
				label := u.text()
				labels[label] = u.text()
			}
		}
		form := u.number()
		var empty []string
		if form&opEmpty != 0 {
			for range u.count() {
				empty = append(empty, u.text())
			}
		}
		spec := []byte(u.text())
		if form > secret|opEmpty {
			return k, nil, fmt.Errorf("%w: %s has a spec of form %d", ErrDamaged, name, form)
		}
		if form&secret != 0 {
			if spec, err = s.decrypted(k, l.Owner, string(spec)); err != nil {
				return k, nil, err
			}
		}
		if u.short {
			break
		}
		if l.StoredObject, err = s.registry.NewStored(k, labels, empty, spec); err != nil {
			return k, nil, err
		}
		r.Layers = append(r.Layers, l)
	}
	if u.short || len(u.rest) > 0 || len(r.Layers) == 0 {
		return k, nil, fmt.Errorf("%w: %s has %d bytes that make no sense", ErrDamaged, name, len(text))
	}
	return k, r, nil
}

// unpacker reads from a record; short: it ended too early, and everything from there on is 0.
type unpacker struct {
	rest  []byte
	short bool
}

func (u *unpacker) took(n int) {
	if n <= 0 || n > len(u.rest) {
		u.rest, u.short = nil, true
		return
	}
	u.rest = u.rest[n:]
}

func (u *unpacker) number() uint64 {
	v, n := binary.Uvarint(u.rest)
	u.took(n)
	return v
}

func (u *unpacker) signed() int64 {
	v, n := binary.Varint(u.rest)
	u.took(n)
	return v
}

// count is a number of things that have at least a byte each.
func (u *unpacker) count() int {
	n := u.number()
	if n > uint64(len(u.rest)) {
		u.rest, u.short = nil, true
		return 0
	}
	return int(n)
}

func (u *unpacker) text() string { return string(u.bytes()) }

func (u *unpacker) bytes() []byte {
	n := u.count()
	b := u.rest[:n]
	u.rest = u.rest[n:]
	return b
}
