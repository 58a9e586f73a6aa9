// SPDX-License-Identifier: Apache-2.0

package per

import (
	"errors"
	"fmt"
	"reflect"
)

// Fault is an abstract syntax error of a message (TS 38.413 section 10.3): an IE that is unknown, missing, misplaced
// or repeated.
type Fault struct {
	ID          uint16
	Criticality Criticality
	Kind        FaultKind
}

type FaultKind uint8

const (
	NotUnderstood FaultKind = iota
	Missing
	// Misplaced: in a wrong order, or too often.
	Misplaced
)

// decoder is a message that is read.
type decoder struct{ faults []Fault }

// maxFaults bounds the memory for faults of a message with unknown IEs that are ignored. The others decide about the message: none is left out.
const maxFaults = 256

func (d *decoder) fault(f Fault) {
	if len(d.faults) < maxFaults || f.Kind != NotUnderstood || f.Criticality != Ignore {
		d.faults = append(d.faults, f)
	}
}

// Decode reads a value of an extensible SEQUENCE into the struct that value points to. The result shares no memory
// with the octets. Faults do not end the decoding: unknown elements are left out. An error is a transfer syntax
// error.
func Decode(octets []byte, value any) ([]Fault, error) {
	d := &decoder{}
	target := reflect.ValueOf(value).Elem()
	s := &schema{kind: kindSequence, extensible: true, structure: structureOf(target.Type())}
	r := &reader{octets: octets}
	if err := d.value(r, s, target); err != nil {
		return nil, fmt.Errorf("%s: %w", target.Type().Name(), err)
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("%s: %w", target.Type().Name(), err)
	}
	return d.faults, nil
}

func (d *decoder) value(r *reader, s *schema, v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch s.kind {
	case kindInteger:
		value, err := r.integer(s)
		if err != nil {
			return err
		}
		v.SetInt(value)
	case kindEnumerated:
		value, err := r.enumerated(s)
		if err != nil {
			return err
		}
		v.SetInt(value)
	case kindNull:
	case kindOctets:
		octets, err := r.octetString(s)
		if err != nil {
			return err
		}
		v.SetBytes(append([]byte{}, octets...))
	case kindBits:
		bits, err := r.bitString(s)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(bits))
	case kindPrintable, kindVisible, kindUTF8:
		text, err := r.text(s)
		if err != nil {
			return err
		}
		v.SetString(text)
	case kindList:
		return d.list(r, s, v)
	case kindSequence:
		return d.sequence(r, s, v)
	case kindChoice:
		return d.choice(r, s, v)
	}
	return nil
}

func (r *reader) integer(s *schema) (int64, error) {
	if s.extensible {
		extended, err := r.bit()
		if err != nil {
			return 0, err
		}
		if extended {
			// It may lie between the bounds, in a gap of the constraint.
			return r.unconstrained(nil)
		}
	}
	if s.lo != nil && s.hi != nil {
		return r.constrained(*s.lo, *s.hi)
	}
	return r.unconstrained(s.lo)
}

func (r *reader) enumerated(s *schema) (int64, error) {
	if s.extensible {
		extended, err := r.bit()
		if err != nil {
			return 0, err
		}
		if extended {
			value, err := r.small()
			if err == nil && value >= s.known-s.root {
				err = fmt.Errorf("%w: value %d of an enumeration", ErrNotComprehended, value)
			}
			return s.root + value, err
		}
	}
	return r.constrained(0, s.root-1)
}

// size reads a length determinant. Without an upper bound it returns fragments, and whether more follow.
func (r *reader) size(s *schema) (count int, more bool, err error) {
	extended := false
	if s.extensible {
		if extended, err = r.bit(); err != nil {
			return 0, false, err
		}
	}
	if extended || s.hi == nil || *s.hi >= 65536 {
		if count, more, err = r.length(); err == nil && s.lo != nil && !more && !extended && int64(count) < *s.lo {
			err = syntax("size %d is below %d", count, *s.lo)
		}
		return count, more, err
	}
	if *s.lo == *s.hi {
		return int(*s.lo), false, nil
	}
	value, err := r.constrained(*s.lo, *s.hi)
	return int(value), false, err
}

// short: a value of a fixed size of up to 16 bits is not aligned.
func (s *schema) short(count, unit int) bool {
	return s.lo != nil && s.hi != nil && *s.lo == *s.hi && int64(count) == *s.lo && count*unit <= 16
}

func (r *reader) octetString(s *schema) ([]byte, error) {
	if s.hi == nil && !s.extensible {
		return r.open()
	}
	count, more, err := r.size(s)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, syntax("an octet string of more than 16,383 octets")
	}
	if s.short(count, 8) {
		octets := make([]byte, count)
		for i := range octets {
			value, err := r.bits(8)
			if err != nil {
				return nil, err
			}
			octets[i] = byte(value)
		}
		return octets, nil
	}
	if count == 0 {
		return nil, nil
	}
	return r.aligned(count)
}

func (r *reader) bitString(s *schema) (BitString, error) {
	count, more, err := r.size(s)
	if err != nil {
		return BitString{}, err
	}
	if more || count > r.left() {
		return BitString{}, ErrTruncated
	}
	if !s.short(count, 1) && count > 0 {
		if err := r.align(); err != nil {
			return BitString{}, err
		}
	}
	octets := make([]byte, (count+7)/8)
	for i := range octets {
		take := min(8, count-8*i)
		value, err := r.bits(take)
		if err != nil {
			return BitString{}, err
		}
		octets[i] = byte(value << (8 - take))
	}
	return BitString{octets, count}, nil
}

func (r *reader) text(s *schema) (string, error) {
	var octets []byte
	var err error
	if s.kind == kindUTF8 {
		octets, err = r.open()
	} else {
		octets, err = r.octetString(s)
	}
	if err != nil {
		return "", err
	}
	text := string(octets)
	if err := s.checkText(text); err != nil {
		return "", syntax("%v", err)
	}
	return text, nil
}

// maxList bounds the elements of a list whose schema does not: an element may have no bits.
const maxList = 65536

func (d *decoder) list(r *reader, s *schema, v reflect.Value) error {
	count, more, err := r.size(s)
	if err != nil {
		return err
	}
	list := reflect.MakeSlice(v.Type(), 0, min(count, 16))
	for {
		if total := list.Len() + count; total > maxList || s.hi != nil && !s.extensible && int64(total) > *s.hi {
			return syntax("a list of %d elements", total)
		}
		for range count {
			element := reflect.New(v.Type().Elem()).Elem()
			if err := d.value(r, s.element, element); err != nil {
				return fmt.Errorf("[%d]: %w", list.Len(), err)
			}
			list = reflect.Append(list, element)
		}
		if !more {
			v.Set(list)
			return nil
		}
		if count, more, err = r.length(); err != nil {
			return err
		}
	}
}

func (d *decoder) sequence(r *reader, s *schema, v reflect.Value) error {
	extended := false
	var err error
	if s.extensible {
		if extended, err = r.bit(); err != nil {
			return err
		}
	}
	if s.structure.container {
		err = d.container(r, s.structure, v, 0)
	} else {
		err = d.components(r, s.structure, v)
	}
	if err == nil && extended {
		err = r.skipAdditions()
	}
	return err
}

func (d *decoder) components(r *reader, s *structure, v reflect.Value) error {
	var present uint64
	optional := 0
	for _, c := range s.plain {
		if c.optional {
			optional++
		}
	}
	if s.extended {
		optional++
	}
	present, err := r.bits(optional)
	if err != nil {
		return err
	}
	for _, c := range s.plain {
		if c.optional {
			optional--
			if present>>optional&1 == 0 {
				continue
			}
		}
		if err := d.value(r, c.schema, v.Field(c.index)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if s.extended && present&1 == 1 {
		return d.container(r, s, v, 1)
	}
	return nil
}

// skipAdditions skips additions of later releases to a SEQUENCE (X.691 section 19.7).
func (r *reader) skipAdditions() error {
	large, err := r.bit()
	if err != nil {
		return err
	}
	count := 0
	if large {
		var more bool
		if count, more, err = r.length(); err == nil && more {
			err = syntax("a SEQUENCE with more than 16,383 additions")
		}
	} else {
		var value uint64
		value, err = r.bits(6)
		count = int(value) + 1
	}
	if err != nil {
		return err
	}
	additions := 0
	for range count {
		present, err := r.bit()
		if err != nil {
			return err
		}
		if present {
			additions++
		}
	}
	for range additions {
		if _, err := r.open(); err != nil {
			return err
		}
	}
	return nil
}

// field reads the head of a protocol IE and its value.
func (r *reader) field() (id uint16, criticality Criticality, octets []byte, err error) {
	number, err := r.constrained(0, 65535)
	if err != nil {
		return 0, 0, nil, err
	}
	level, err := r.constrained(0, 2)
	if err != nil {
		return 0, 0, nil, err
	}
	octets, err = r.open()
	return uint16(number), Criticality(level), octets, err
}

// container reads protocol IEs (TS 38.413 section 10.3).
func (d *decoder) container(r *reader, s *structure, v reflect.Value, lowest int64) error {
	count, err := r.constrained(lowest, 65535)
	if err != nil {
		return err
	}
	last := -1
	seen := make([]bool, len(s.ies))
	for range count {
		id, criticality, octets, err := r.field()
		if err != nil {
			return err
		}
		place, known := s.byID[id]
		if !known {
			d.fault(Fault{id, criticality, NotUnderstood})
			continue
		}
		c := &s.ies[place]
		if place <= last || seen[place] {
			d.fault(Fault{id, c.criticality, Misplaced})
			if seen[place] {
				continue
			}
		}
		last, seen[place] = max(last, place), true
		inner := &reader{octets: octets}
		target := v.Field(c.index)
		err = d.value(inner, c.schema, target)
		if err == nil {
			err = inner.end()
		}
		switch {
		case errors.Is(err, ErrNotComprehended):
			target.SetZero()
			d.fault(Fault{id, c.criticality, NotUnderstood})
		case err != nil:
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for place, c := range s.ies {
		if c.mandatory && !seen[place] && s.container {
			d.fault(Fault{c.id, c.criticality, Missing})
		}
	}
	return nil
}

func (d *decoder) choice(r *reader, s *schema, v reflect.Value) error {
	alternatives := int64(len(s.structure.plain))
	if s.structure.extended {
		alternatives++
	}
	if s.extensible {
		extended, err := r.bit()
		if err != nil {
			return err
		}
		if extended {
			if _, err := r.small(); err != nil {
				return err
			}
			if _, err := r.open(); err != nil {
				return err
			}
			return ErrNotComprehended
		}
	}
	chosen, err := r.constrained(0, alternatives-1)
	if err != nil {
		return err
	}
	if chosen < int64(len(s.structure.plain)) {
		c := &s.structure.plain[chosen]
		if err := d.value(r, c.schema, v.Field(c.index)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		return nil
	}
	id, _, octets, err := r.field()
	if err != nil {
		return err
	}
	place, known := s.structure.byID[id]
	if !known {
		return fmt.Errorf("%w: alternative %d", ErrNotComprehended, id)
	}
	c := &s.structure.ies[place]
	inner := &reader{octets: octets}
	if err = d.value(inner, c.schema, v.Field(c.index)); err == nil {
		err = inner.end()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
