// SPDX-License-Identifier: Apache-2.0

package per

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Encode writes the struct that value points to, an extensible SEQUENCE. An error names the component that violates
// its constraint.
func Encode(value any) ([]byte, error) {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	w := &writer{}
	if err := w.value(&schema{kind: kindSequence, extensible: true, structure: structureOf(v.Type())}, v); err != nil {
		return nil, fmt.Errorf("%s: %w", v.Type().Name(), err)
	}
	return w.whole(), nil
}

// absent: the component has no value.
func absent(v reflect.Value) bool {
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice) && v.IsNil()
}

func (w *writer) value(s *schema, v reflect.Value) error {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return violation("no value")
		}
		v = v.Elem()
	}
	switch s.kind {
	case kindInteger:
		return w.integer(s, v.Int())
	case kindEnumerated:
		return w.enumerated(s, v.Int())
	case kindOctets:
		return w.octetString(s, v.Bytes())
	case kindBits:
		return w.bitString(s, v.Interface().(BitString))
	case kindPrintable, kindVisible, kindUTF8:
		text := v.String()
		if err := s.checkText(text); err != nil {
			return violation("%v", err)
		}
		if s.kind == kindUTF8 {
			w.open([]byte(text))
			return nil
		}
		return w.octetString(s, []byte(text))
	case kindList:
		return w.list(s, v)
	case kindSequence:
		return w.sequence(s, v)
	case kindChoice:
		return w.choice(s, v)
	}
	return nil
}

// list writes 16,384 elements and more in fragments (section 11.9.3.8).
func (w *writer) list(s *schema, v reflect.Value) error {
	count := v.Len()
	fragmented := count >= fragment && s.hi != nil && *s.hi >= 65536 && int64(count) <= *s.hi
	if fragmented && s.extensible {
		w.bit(false)
	}
	if !fragmented {
		if err := w.size(s, count); err != nil {
			return err
		}
	}
	for i := range count {
		if left := count - i; fragmented && left >= fragment && i%(4*fragment) == 0 {
			w.align()
			w.bits(0xc0|uint64(min(4, left/fragment)), 8)
		} else if fragmented && i == count/fragment*fragment {
			w.length(left)
		}
		if err := w.value(s.element, v.Index(i)); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	if fragmented && count%fragment == 0 {
		w.length(0)
	}
	return nil
}

func (w *writer) integer(s *schema, value int64) error {
	if s.extensible {
		extended := value < *s.lo || value > *s.hi
		w.bit(extended)
		if extended {
			return w.unconstrained(value, nil)
		}
	}
	if s.lo != nil && s.hi != nil {
		return w.constrained(value, *s.lo, *s.hi)
	}
	return w.unconstrained(value, s.lo)
}

func (w *writer) enumerated(s *schema, value int64) error {
	if value < 0 || value >= s.known {
		return violation("no value %d in the enumeration", value)
	}
	if s.extensible {
		w.bit(value >= s.root)
		if value >= s.root {
			return w.small(value - s.root)
		}
	}
	return w.constrained(value, 0, s.root-1)
}

// size writes a length determinant of a count below 16,384.
func (w *writer) size(s *schema, count int) error {
	if count >= fragment {
		return violation("size %d is above 16,383", count)
	}
	outside := s.lo != nil && int64(count) < *s.lo || s.hi != nil && int64(count) > *s.hi
	if outside && !s.extensible {
		return violation("size %d is not in %d to %d", count, *s.lo, *s.hi)
	}
	if s.extensible {
		w.bit(outside)
	}
	if outside || s.hi == nil || *s.hi >= 65536 {
		w.length(count)
		return nil
	}
	if *s.lo == *s.hi {
		return nil
	}
	return w.constrained(int64(count), *s.lo, *s.hi)
}

func (w *writer) octetString(s *schema, octets []byte) error {
	if s.hi == nil && !s.extensible {
		w.open(octets)
		return nil
	}
	if err := w.size(s, len(octets)); err != nil {
		return err
	}
	if s.short(len(octets), 8) {
		for _, octet := range octets {
			w.bits(uint64(octet), 8)
		}
	} else if len(octets) > 0 {
		w.aligned(octets)
	}
	return nil
}

func (w *writer) bitString(s *schema, bits BitString) error {
	if bits.Count < 0 || len(bits.Octets) != (bits.Count+7)/8 {
		return violation("%d bits in %d octets", bits.Count, len(bits.Octets))
	}
	if err := w.size(s, bits.Count); err != nil {
		return err
	}
	if !s.short(bits.Count, 1) && bits.Count > 0 {
		w.align()
	}
	for i, octet := range bits.Octets {
		take := min(8, bits.Count-8*i)
		w.bits(uint64(octet>>(8-take)), take)
	}
	return nil
}

// checkText checks characters (X.680 section 41).
func (s *schema) checkText(text string) error {
	if s.kind == kindUTF8 {
		count := int64(utf8.RuneCountInString(text))
		switch {
		case !utf8.ValidString(text):
			return fmt.Errorf("text is not UTF-8")
		case !s.extensible && (s.lo != nil && count < *s.lo || s.hi != nil && count > *s.hi):
			return fmt.Errorf("%d characters are not in %d to %d", count, *s.lo, *s.hi)
		}
		return nil
	}
	for _, character := range []byte(text) {
		letter := character|0x20 >= 'a' && character|0x20 <= 'z' || character >= '0' && character <= '9'
		if s.kind == kindPrintable && !letter && !strings.ContainsRune(" '()+,-./:=?", rune(character)) || character < 0x20 || character > 0x7e {
			return fmt.Errorf("character %#x", character)
		}
	}
	return nil
}

func (w *writer) sequence(s *schema, v reflect.Value) error {
	if s.extensible {
		w.bit(false)
	}
	structure := s.structure
	if structure.container {
		return w.container(structure, v, 0)
	}
	extended := false
	for _, c := range structure.ies {
		extended = extended || !absent(v.Field(c.index))
	}
	for _, c := range structure.plain {
		if c.optional {
			w.bit(!absent(v.Field(c.index)))
		}
	}
	if structure.extended {
		w.bit(extended)
	}
	for _, c := range structure.plain {
		if c.optional && absent(v.Field(c.index)) {
			continue
		}
		if err := w.value(c.schema, v.Field(c.index)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if extended {
		return w.container(structure, v, 1)
	}
	return nil
}

func (w *writer) field(c *component, v reflect.Value) error {
	inner := &writer{}
	if err := inner.value(c.schema, v); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if err := w.constrained(int64(c.id), 0, 65535); err != nil {
		return err
	}
	w.bits(uint64(c.criticality), 2)
	w.open(inner.whole())
	return nil
}

func (w *writer) container(s *structure, v reflect.Value, lowest int64) error {
	count := int64(0)
	for _, c := range s.ies {
		if !absent(v.Field(c.index)) {
			count++
		}
	}
	if err := w.constrained(count, lowest, 65535); err != nil {
		return err
	}
	for i := range s.ies {
		c := &s.ies[i]
		if absent(v.Field(c.index)) {
			if c.mandatory && s.container {
				return violation("%s is missing", c.name)
			}
			continue
		}
		if err := w.field(c, v.Field(c.index)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) choice(s *schema, v reflect.Value) error {
	structure := s.structure
	alternatives := int64(len(structure.plain))
	if structure.extended {
		alternatives++
	}
	if s.extensible {
		w.bit(false)
	}
	for index := range structure.plain {
		c := &structure.plain[index]
		if absent(v.Field(c.index)) {
			continue
		}
		if err := w.constrained(int64(index), 0, alternatives-1); err != nil {
			return err
		}
		if err := w.value(c.schema, v.Field(c.index)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		return nil
	}
	for index := range structure.ies {
		c := &structure.ies[index]
		if absent(v.Field(c.index)) {
			continue
		}
		if err := w.constrained(alternatives-1, 0, alternatives-1); err != nil {
			return err
		}
		return w.field(c, v.Field(c.index))
	}
	return violation("no alternative is chosen")
}
