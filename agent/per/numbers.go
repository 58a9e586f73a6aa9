// SPDX-License-Identifier: Apache-2.0

// X.691 section 11: whole numbers and length determinants.

package per

import "math/bits"

// fragment is the unit of lengths from 16,384 on (section 11.9.3.8).
const fragment = 16384

func width(value uint64) int { return max(1, (bits.Len64(value)+7)/8) }

// constrained is a whole number of lo to hi (section 11.5).
func (r *reader) constrained(lo, hi int64) (int64, error) {
	span := uint64(hi - lo)
	var offset uint64
	var err error
	switch {
	case span < 255:
		offset, err = r.bits(bits.Len64(span))
	case span < 65536:
		if err = r.align(); err == nil {
			offset, err = r.bits(8 * width(span))
		}
	default:
		var octets int64
		if octets, err = r.constrained(1, int64(width(span))); err != nil {
			return 0, err
		}
		if err = r.align(); err == nil {
			offset, err = r.bits(8 * int(octets))
		}
		if err == nil && width(offset) != int(octets) {
			err = syntax("a whole number has leading zeroes")
		}
	}
	if err != nil {
		return 0, err
	}
	if offset > span {
		return 0, syntax("%d is above %d", offset, span)
	}
	return lo + int64(offset), nil
}

func (w *writer) constrained(value, lo, hi int64) error {
	if value < lo || value > hi {
		return violation("%d is not in %d to %d", value, lo, hi)
	}
	span, offset := uint64(hi-lo), uint64(value-lo)
	switch {
	case span < 255:
		w.bits(offset, bits.Len64(span))
	case span < 65536:
		w.align()
		w.bits(offset, 8*width(span))
	default:
		if err := w.constrained(int64(width(offset)), 1, int64(width(span))); err != nil {
			return err
		}
		w.align()
		w.bits(offset, 8*width(offset))
	}
	return nil
}

// unconstrained is a whole number in two's complement (section 11.8), and with a lower bound its distance from there (section 11.7).
func (r *reader) unconstrained(lo *int64) (int64, error) {
	count, more, err := r.length()
	if err != nil {
		return 0, err
	}
	if more || count < 1 || count > 8 {
		return 0, syntax("a whole number of %d octets", count)
	}
	if err := r.align(); err != nil {
		return 0, err
	}
	value, err := r.bits(8 * count)
	if err != nil {
		return 0, err
	}
	if lo != nil {
		if value > 1<<62 {
			return 0, syntax("a whole number is above 2^62")
		}
		if width(value) != count {
			return 0, syntax("a whole number has leading zeroes")
		}
		return *lo + int64(value), nil
	}
	signed := int64(value<<(64-8*count)) >> (64 - 8*count)
	if signedWidth(signed) != count {
		return 0, syntax("a whole number has leading octets")
	}
	return signed, nil
}

func signedWidth(value int64) int {
	for count := 1; count < 8; count++ {
		if value>>(8*count-1) == 0 || value>>(8*count-1) == -1 {
			return count
		}
	}
	return 8
}

func (w *writer) unconstrained(value int64, lo *int64) error {
	count := signedWidth(value)
	if lo != nil {
		if value < *lo {
			return violation("%d is below %d", value, *lo)
		}
		value -= *lo
		count = width(uint64(value))
	}
	w.length(count)
	w.bits(uint64(value), 8*count)
	return nil
}

// small is a normally small whole number (section 11.6).
func (r *reader) small() (int64, error) {
	large, err := r.bit()
	if err != nil {
		return 0, err
	}
	if large {
		zero := int64(0)
		value, err := r.unconstrained(&zero)
		if err == nil && value < 64 {
			err = syntax("%d is written as a large number", value)
		}
		return value, err
	}
	value, err := r.bits(6)
	return int64(value), err
}

func (w *writer) small(value int64) error {
	if value < 64 {
		w.bits(uint64(value), 7)
		return nil
	}
	zero := int64(0)
	w.bit(true)
	return w.unconstrained(value, &zero)
}

// length is an unconstrained length determinant (section 11.9.3.5 to 11.9.3.8): a count, and whether a further fragment follows.
func (r *reader) length() (int, bool, error) {
	if err := r.align(); err != nil {
		return 0, false, err
	}
	first, err := r.bits(8)
	if err != nil {
		return 0, false, err
	}
	switch {
	case first < 0x80:
		return int(first), false, nil
	case first < 0xc0:
		second, err := r.bits(8)
		count := int(first&0x3f)<<8 | int(second)
		if err == nil && count < 0x80 {
			err = syntax("length %d is written in two octets", count)
		}
		return count, false, err
	}
	if units := int(first & 0x3f); units >= 1 && units <= 4 {
		return units * fragment, true, nil
	}
	return 0, false, syntax("length octet %#x", first)
}

// length writes a count below 16,384.
func (w *writer) length(count int) {
	w.align()
	if count < 0x80 {
		w.bits(uint64(count), 8)
	} else {
		w.bits(0x8000|uint64(count), 16)
	}
}

// open reads an octet string without bounds, such as an open type (section 11.2).
func (r *reader) open() ([]byte, error) {
	var whole []byte
	for {
		count, more, err := r.length()
		if err != nil {
			return nil, err
		}
		part, err := r.aligned(count)
		if err != nil {
			return nil, err
		}
		if whole == nil && !more {
			return part, nil
		}
		whole = append(whole, part...)
		if !more {
			return whole, nil
		}
	}
}

func (w *writer) open(octets []byte) {
	for len(octets) >= fragment {
		units := min(4, len(octets)/fragment)
		w.align()
		w.bits(0xc0|uint64(units), 8)
		w.aligned(octets[:units*fragment])
		octets = octets[units*fragment:]
	}
	w.length(len(octets))
	w.aligned(octets)
}
