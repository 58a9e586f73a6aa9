// SPDX-License-Identifier: Apache-2.0

// The fields of a packed message, without unpacking it: the encoding of Protocol Buffers
// (protobuf.dev/programming-guides/encoding).
package object

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// The wire types that kinds have.
const (
	varintWire = 0
	eightWire  = 1
	textWire   = 2
	fourWire   = 5
)

// record is a field's number and value: a number, or text, which may be a message or several numbers.
type record struct {
	field  protoreflect.FieldNumber
	wire   uint8
	number uint64
	text   string
}

// packed is the rest of a message.
type packed struct{ rest string }

// next takes the first record off; false: there is none, or it cannot be read, and then the rest is not empty.
func (p *packed) next() (r record, more bool) {
	if p.rest == "" {
		return r, false
	}
	rest := p.rest
	tag, rest, ok := cutVarint(rest)
	if !ok || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return r, false
	}
	r.field, r.wire = protoreflect.FieldNumber(tag>>3), uint8(tag&7)
	if r, rest, ok = cutValue(r, rest); ok {
		p.rest = rest
	}
	return r, ok
}

// Texts ranges over the fields of a packed message that hold text: strings, messages and packed numbers. It stops at bytes that cannot be read.
func Texts(spec string) iter.Seq2[protoreflect.FieldNumber, string] {
	return func(yield func(protoreflect.FieldNumber, string) bool) {
		p := packed{spec}
		for r, more := p.next(); more; r, more = p.next() {
			if r.wire == textWire && !yield(r.field, r.text) {
				return
			}
		}
	}
}

// inOrder returns a message with its fields in the order of their numbers, as it nearly always is already; a oneof
// may be behind all other fields.
func inOrder(spec string) string {
	before := protoreflect.FieldNumber(0)
	for p := (packed{spec}); ; {
		r, more := p.next()
		if !more {
			return spec
		}
		if r.field < before {
			break
		}
		before = r.field
	}
	type part struct {
		field protoreflect.FieldNumber
		text  string
	}
	var parts []part
	p := packed{spec}
	for rest := spec; ; rest = p.rest {
		r, more := p.next()
		if !more {
			break
		}
		parts = append(parts, part{r.field, rest[:len(rest)-len(p.rest)]})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return int(a.field - b.field) })
	ordered := make([]byte, 0, len(spec))
	for _, part := range parts {
		ordered = append(ordered, part.text...)
	}
	return string(append(ordered, p.rest...))
}

// differing returns the fields in which two messages, in order, differ. Unreadable fields are included.
func differing(a, b string) (ofA, ofB []byte) {
	ofA, ofB = make([]byte, 0, len(a)), make([]byte, 0, len(b))
	mine, theirs := packed{a}, packed{b}
	for {
		f, restA := mine.field()
		g, restB := theirs.field()
		switch {
		case f == 0 && g == 0:
			return append(ofA, mine.rest...), append(ofB, theirs.rest...)
		case g == 0, f != 0 && f < g:
			ofA = append(ofA, mine.cut(restA)...)
		case f == 0, g < f:
			ofB = append(ofB, theirs.cut(restB)...)
		default:
			if x, y := mine.cut(restA), theirs.cut(restB); x != y {
				ofA, ofB = append(ofA, x...), append(ofB, y...)
			}
		}
	}
}

// field returns the next field's number, or 0, and the rest behind all records of the field.
func (p *packed) field() (f protoreflect.FieldNumber, rest string) {
	ahead := *p
	r, more := ahead.next()
	if !more {
		return 0, p.rest
	}
	for rest = ahead.rest; ; rest = ahead.rest {
		if next, more := ahead.next(); !more || next.field != r.field {
			return r.field, rest
		}
	}
}

// cut removes the part before the rest.
func (p *packed) cut(rest string) (before string) {
	before, p.rest = p.rest[:len(p.rest)-len(rest)], rest
	return before
}

func cutValue(r record, rest string) (record, string, bool) {
	var ok bool
	switch r.wire {
	case varintWire:
		r.number, rest, ok = cutVarint(rest)
	case eightWire:
		r.number, rest, ok = cutFixed(rest, 8)
	case fourWire:
		r.number, rest, ok = cutFixed(rest, 4)
	case textWire:
		var length uint64
		if length, rest, ok = cutVarint(rest); ok && length <= uint64(len(rest)) {
			r.text, rest = rest[:length], rest[length:]
		} else {
			ok = false
		}
	}
	return r, rest, ok
}

func cutVarint(s string) (v uint64, rest string, ok bool) {
	for i := 0; i < len(s) && i < 10; i++ {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, s[i+1:], true
		}
	}
	return 0, s, false
}

func cutFixed(s string, bytes int) (v uint64, rest string, ok bool) {
	if len(s) < bytes {
		return 0, s, false
	}
	for i := range bytes {
		v |= uint64(s[i]) << (8 * i)
	}
	return v, s[bytes:], true
}

// wireOf is the wire type of a field's values, each by itself.
func wireOf(kind protoreflect.Kind) uint8 {
	switch kind {
	case protoreflect.StringKind, protoreflect.MessageKind:
		return textWire
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return fourWire
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return eightWire
	}
	return varintWire
}

// in reports whether a record belongs to the field, in a valid wire type.
func (f *Field) in(r record) bool {
	return r.field == f.number && (r.wire == f.wire || f.list && r.wire == textWire)
}

// each calls yield with each element that a record of a list holds; false: something cannot be read.
func (f *Field) each(r record, yield func(record)) bool {
	if r.wire == f.wire {
		yield(r)
		return true
	}
	one := record{field: r.field, wire: f.wire}
	for rest := r.text; rest != ""; {
		var ok bool
		if one, rest, ok = cutValue(one, rest); !ok {
			return false
		}
		yield(one)
	}
	return true
}

// value is the value of a record of a scalar field.
func (f *Field) value(r record) protoreflect.Value {
	switch f.kind {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(r.text)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.number != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(r.number)))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(r.number))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(r.number)
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(r.number))
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		n := int64(r.number>>1) ^ -int64(r.number&1)
		if f.kind == protoreflect.Sint32Kind {
			return protoreflect.ValueOfInt32(int32(n))
		}
		return protoreflect.ValueOfInt64(n)
	}
	return protoreflect.ValueOfInt64(int64(r.number))
}
