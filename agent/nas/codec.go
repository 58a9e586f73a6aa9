// SPDX-License-Identifier: Apache-2.0

// Package nas is NAS for 5GS (TS 24.501) as an access gateway speaks it for lines that do not speak it themselves: messages of 5GMM and
// 5GSM, the IEs that the gateway looks into, and the security protected NAS message.
package nas

//go:generate ../../.venv/bin/python generate/generate.py

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Extended protocol discriminators (TS 24.007 section 11.2.3.1.1A).
const (
	MobilityManagement = 0x7e
	SessionManagement  = 0x2e
)

var (
	// ErrTruncated: the message ends before a mandatory IE does. It is answered with cause 96 (section 7.5.1).
	ErrTruncated = errors.New("the message is truncated")
	// ErrUnknownType: cause 97 (section 7.4).
	ErrUnknownType = errors.New("unknown message type")
	// ErrMandatory: cause 96: an unknown IE that must be comprehended, or a mandatory IE that cannot be.
	ErrMandatory = errors.New("invalid mandatory information")
	// ErrProtected: the message is security protected; see Open.
	ErrProtected = errors.New("the message is security protected")
)

// Session is the head of a 5GSM message.
type Session struct {
	PDUSessionID uint8
	// Procedure transaction identity; 0: unassigned.
	PTI uint8
}

// Spare is four bits that are zero.
type Spare struct{}

// MaxMessage is the size of the largest message that is read.
const MaxMessage = 1 << 16

type format uint8

const (
	half  format = iota // four bits
	spare               // four bits
	fixed               // a value of a fixed length
	short               // one octet of length
	long                // two octets of length
)

var formats = map[string]format{"half": half, "spare": spare, "fixed": fixed, "short": short, "long": long}

type element struct {
	name   string
	index  int
	format format
	length int
	// 0: mandatory, without an identifier.
	identifier uint8
}

type layout struct {
	session   bool
	mandatory []element
	// By the first octet. The value of a half-octet element is zero there.
	optional map[uint8]element
	order    []element
}

// Layouts that were read from tags.
var layouts sync.Map

func layoutOf(of reflect.Type) *layout {
	if known, ok := layouts.Load(of); ok {
		return known.(*layout)
	}
	l := &layout{optional: map[uint8]element{}}
	for index := range of.NumField() {
		member := of.Field(index)
		if member.Type == reflect.TypeFor[Session]() {
			l.session = true
			continue
		}
		parts := strings.Fields(member.Tag.Get("nas"))
		e := element{name: member.Name, index: index, format: formats[parts[0]]}
		if len(parts) > 1 && parts[1] != "-" {
			identifier, _ := strconv.ParseUint(parts[1], 16, 8)
			e.identifier = uint8(identifier)
		}
		if e.format == fixed {
			e.length, _ = strconv.Atoi(parts[2])
		}
		if e.identifier == 0 {
			l.mandatory = append(l.mandatory, e)
			continue
		}
		l.order = append(l.order, e)
		key := e.identifier
		if e.format == half {
			key <<= 4
		}
		l.optional[key] = e
	}
	layouts.Store(of, l)
	return l
}

var messageTypes = func() map[reflect.Type]uint8 {
	types := map[reflect.Type]uint8{}
	for _, table := range []map[uint8]reflect.Type{mobilityMessages, sessionMessages} {
		for number, of := range table {
			types[of] = number
		}
	}
	return types
}()

// Decode reads a plain message. The result points to a message, such as *RegistrationAccept, and shares no memory with the octets. Optional
// IEs that are unknown, repeated, or that cannot be read are left out (section 7.6), unless they must be comprehended.
func Decode(octets []byte) (any, error) {
	if len(octets) < 3 {
		return nil, ErrTruncated
	}
	if len(octets) > MaxMessage {
		return nil, fmt.Errorf("a NAS message of %d octets, at most %d are read", len(octets), MaxMessage)
	}
	switch octets[0] {
	case MobilityManagement:
		if octets[1]&0x0f != 0 {
			return nil, ErrProtected
		}
		return decode(mobilityMessages, octets[2], octets[3:], Session{})
	case SessionManagement:
		if len(octets) < 4 {
			return nil, ErrTruncated
		}
		return decode(sessionMessages, octets[3], octets[4:], Session{octets[1], octets[2]})
	}
	return nil, fmt.Errorf("extended protocol discriminator %#x is unknown", octets[0])
}

func decode(table map[uint8]reflect.Type, number uint8, rest []byte, session Session) (any, error) {
	of := table[number]
	if of == nil {
		return nil, fmt.Errorf("%w %d", ErrUnknownType, number)
	}
	message := reflect.New(of)
	v := message.Elem()
	l := layoutOf(of)
	if l.session {
		v.FieldByName("Session").Set(reflect.ValueOf(session))
	}
	highDone := false
	for _, e := range l.mandatory {
		if e.format == half || e.format == spare {
			if len(rest) == 0 {
				return nil, fmt.Errorf("%s: %s: %w", of.Name(), e.name, ErrTruncated)
			}
			// The first of two is in the upper half.
			value := rest[0] >> 4
			if highDone {
				value = rest[0] & 0x0f
				rest = rest[1:]
			}
			highDone = !highDone
			if e.format == half {
				v.Field(e.index).SetUint(uint64(value))
			}
			continue
		}
		value, after, err := e.take(rest)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", of.Name(), e.name, err)
		}
		v.Field(e.index).SetBytes(value)
		rest = after
	}
	if err := decodeOptional(l, v, rest); err != nil {
		return nil, fmt.Errorf("%s: %w", of.Name(), err)
	}
	return message.Interface(), nil
}

// take reads the value of an IE, from its length on.
func (e *element) take(rest []byte) (value, after []byte, err error) {
	length, head := e.length, 0
	switch e.format {
	case short:
		if len(rest) < 1 {
			return nil, nil, ErrTruncated
		}
		length, head = int(rest[0]), 1
	case long:
		if len(rest) < 2 {
			return nil, nil, ErrTruncated
		}
		length, head = int(rest[0])<<8|int(rest[1]), 2
	}
	if len(rest) < head+length {
		return nil, nil, ErrTruncated
	}
	return append([]byte{}, rest[head:head+length]...), rest[head+length:], nil
}

func decodeOptional(l *layout, v reflect.Value, rest []byte) error {
	for len(rest) > 0 {
		identifier := rest[0]
		if identifier >= 0x80 {
			// Type 1: a whole octet.
			if e, ok := l.optional[identifier&0xf0]; ok && v.Field(e.index).IsZero() {
				value := identifier & 0x0f
				v.Field(e.index).Set(reflect.ValueOf(&value))
			}
			rest = rest[1:]
			continue
		}
		e, known := l.optional[identifier]
		if !known {
			if identifier&0xf0 == 0 {
				return fmt.Errorf("%w: IE %#x must be comprehended", ErrMandatory, identifier)
			}
			e = element{format: short}
			if identifier&0xf0 == 0x70 {
				e.format = long
			}
		}
		value, after, err := e.take(rest[1:])
		if err != nil {
			// The following elements cannot be found; all of them are optional (section 7.6.3).
			return nil
		}
		if known && v.Field(e.index).IsNil() {
			v.Field(e.index).SetBytes(value)
		}
		rest = after
	}
	return nil
}

// Encode writes a plain message, such as *RegistrationRequest.
func Encode(message any) ([]byte, error) {
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, fmt.Errorf("%T is no NAS message", message)
	}
	v = v.Elem()
	number, ok := messageTypes[v.Type()]
	if !ok {
		return nil, fmt.Errorf("%T is no NAS message", message)
	}
	l := layoutOf(v.Type())
	octets := []byte{MobilityManagement, 0, number}
	if l.session {
		session := v.FieldByName("Session").Interface().(Session)
		octets = []byte{SessionManagement, session.PDUSessionID, session.PTI, number}
	}
	highDone := false
	for _, e := range l.mandatory {
		if e.format == half || e.format == spare {
			value := uint8(0)
			if e.format == half {
				value = uint8(v.Field(e.index).Uint())
			}
			if value > 15 {
				return nil, fmt.Errorf("%s: %s: %d has more than four bits", v.Type().Name(), e.name, value)
			}
			if highDone {
				octets[len(octets)-1] |= value
			} else {
				octets = append(octets, value<<4)
			}
			highDone = !highDone
			continue
		}
		var err error
		if octets, err = e.put(octets, v.Field(e.index).Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Type().Name(), err)
		}
	}
	for _, e := range l.order {
		part := v.Field(e.index)
		if part.IsZero() {
			continue
		}
		if e.format == half {
			value := uint8(part.Elem().Uint())
			if value > 15 {
				return nil, fmt.Errorf("%s: %s: %d has more than four bits", v.Type().Name(), e.name, value)
			}
			octets = append(octets, e.identifier<<4|value)
			continue
		}
		var err error
		if octets, err = e.put(append(octets, e.identifier), part.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Type().Name(), err)
		}
	}
	return octets, nil
}

func (e *element) put(octets, value []byte) ([]byte, error) {
	switch {
	case e.format == fixed && len(value) != e.length:
		return nil, fmt.Errorf("%s: %d octets, not %d", e.name, len(value), e.length)
	case e.format == short && len(value) > 255, len(value) > 65535:
		return nil, fmt.Errorf("%s: %d octets are too many", e.name, len(value))
	case e.format == short:
		octets = append(octets, byte(len(value)))
	case e.format == long:
		octets = append(octets, byte(len(value)>>8), byte(len(value)))
	}
	return append(octets, value...), nil
}
