// SPDX-License-Identifier: Apache-2.0

// Package per is the aligned variant of the packed encoding rules (X.691, BASIC-PER) as 3GPP's protocols between nodes use it: canonical
// encodings, with protocol IEs and extension containers (TS 38.413 section 9.3). Go structs with tags are the types; see Schema.
//
// Input from the wire is bounded: each length is checked before the read, and memory grows with the received octets.
package per

import (
	"errors"
	"fmt"
)

var (
	// ErrTruncated: the encoding ends before the value does.
	ErrTruncated = errors.New("the encoding is truncated")
	// ErrSyntax: the encoding is not one of the type's.
	ErrSyntax = errors.New("transfer syntax error")
	// ErrNotComprehended: the value is of a later release of the type.
	ErrNotComprehended = errors.New("value not comprehended")
	// ErrValue: a value to encode violates a constraint of its type.
	ErrValue = errors.New("value outside its constraint")
)

func syntax(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
}

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrValue, fmt.Sprintf(format, args...))
}

// reader reads bits, the most significant first.
type reader struct {
	octets []byte
	at     int // bits
}

func (r *reader) left() int { return len(r.octets)*8 - r.at }

// bits reads up to 64 bits.
func (r *reader) bits(count int) (uint64, error) {
	if count > r.left() {
		return 0, ErrTruncated
	}
	var value uint64
	for count > 0 {
		free := 8 - r.at%8
		take := min(free, count)
		part := uint64(r.octets[r.at/8]) >> (free - take) & (1<<take - 1)
		value = value<<take | part
		r.at += take
		count -= take
	}
	return value, nil
}

func (r *reader) bit() (bool, error) {
	value, err := r.bits(1)
	return value == 1, err
}

// align skips padding, which is zero.
func (r *reader) align() error {
	if r.at%8 == 0 {
		return nil
	}
	padding, err := r.bits(8 - r.at%8)
	if err == nil && padding != 0 {
		return syntax("padding is not zero")
	}
	return err
}

// aligned reads whole octets from an octet boundary on. The result shares memory with the encoding.
func (r *reader) aligned(count int) ([]byte, error) {
	if err := r.align(); err != nil {
		return nil, err
	}
	if count < 0 || count > r.left()/8 {
		return nil, ErrTruncated
	}
	start := r.at / 8
	r.at += count * 8
	return r.octets[start : start+count : start+count], nil
}

// end checks that only the padding of the last octet follows. An encoding has at least one octet (X.691 section 11.1).
func (r *reader) end() error {
	if r.at == 0 && len(r.octets) == 1 && r.octets[0] == 0 {
		return nil
	}
	if err := r.align(); err != nil {
		return err
	}
	if r.left() != 0 {
		return syntax("%d octets follow the value", r.left()/8)
	}
	return nil
}

type writer struct {
	octets []byte
	free   int // bits of the last octet
}

func (w *writer) bits(value uint64, count int) {
	for count > 0 {
		if w.free == 0 {
			w.octets = append(w.octets, 0)
			w.free = 8
		}
		take := min(w.free, count)
		part := byte(value >> (count - take) & (1<<take - 1))
		w.octets[len(w.octets)-1] |= part << (w.free - take)
		w.free -= take
		count -= take
	}
}

func (w *writer) bit(set bool) {
	if set {
		w.bits(1, 1)
	} else {
		w.bits(0, 1)
	}
}

func (w *writer) align() { w.free = 0 }

func (w *writer) aligned(octets []byte) {
	w.align()
	w.octets = append(w.octets, octets...)
}

// whole is the complete encoding.
func (w *writer) whole() []byte {
	if len(w.octets) == 0 {
		return []byte{0}
	}
	return w.octets
}
