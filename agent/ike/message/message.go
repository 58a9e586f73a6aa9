// SPDX-License-Identifier: Apache-2.0

// Package message is the wire format of IKEv2: RFC 7296 section 3, fragments of RFC 7383. It has no state and no
// keys: the content of an Encrypted payload goes in and out as bytes.
package message

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Exchange is an exchange type.
type Exchange uint8

// Exchange types.
const (
	IKESAInit       Exchange = 34
	IKEAuth         Exchange = 35
	CreateChildSA   Exchange = 36
	Informational   Exchange = 37
	IKESessionResum Exchange = 38
	IKEIntermediate Exchange = 43
	IKEFollowupKE   Exchange = 44
)

func (e Exchange) String() string {
	switch e {
	case IKESAInit:
		return "IKE_SA_INIT"
	case IKEAuth:
		return "IKE_AUTH"
	case CreateChildSA:
		return "CREATE_CHILD_SA"
	case Informational:
		return "INFORMATIONAL"
	case IKESessionResum:
		return "IKE_SESSION_RESUME"
	case IKEIntermediate:
		return "IKE_INTERMEDIATE"
	case IKEFollowupKE:
		return "IKE_FOLLOWUP_KE"
	}
	return fmt.Sprintf("exchange %d", uint8(e))
}

// Flags of the header.
const (
	FlagInitiator uint8 = 0x08
	FlagVersion   uint8 = 0x10
	FlagResponse  uint8 = 0x20
)

// Limits beyond those of the format.
const (
	HeaderLength   = 28
	Version        = 0x20
	MaxLength      = 65535
	maxPayloads    = 128
	maxProposals   = 64
	maxTransforms  = 128
	maxSelectors   = 255
	maxAttributes  = 128
	genericLength  = 4
	selectorLength = 8
)

// Errors to be tested with errors.Is.
var (
	// ErrSyntax: INVALID_SYNTAX (RFC 7296 section 3.10.1).
	ErrSyntax = errors.New("invalid syntax")
	// ErrVersion: INVALID_MAJOR_VERSION.
	ErrVersion = errors.New("invalid major version")
)

// CriticalError is a payload that is marked critical and not known.
type CriticalError struct{ Payload PayloadType }

func (e CriticalError) Error() string {
	return fmt.Sprintf("unsupported critical payload %d", e.Payload)
}

func syntax(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
}

// Header is the IKE header.
type Header struct {
	SPIi, SPIr uint64
	First      PayloadType
	Exchange   Exchange
	Flags      uint8
	ID         uint32
	Length     uint32
}

// Response reports whether the message is a response.
func (h *Header) Response() bool { return h.Flags&FlagResponse != 0 }

// FromInitiator reports whether the original initiator of the IKE SA sent the message.
func (h *Header) FromInitiator() bool { return h.Flags&FlagInitiator != 0 }

// ParseHeader reads a header. The length that it states must be that of b.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderLength {
		return h, syntax("%d bytes are shorter than a header", len(b))
	}
	h = Header{SPIi: binary.BigEndian.Uint64(b), SPIr: binary.BigEndian.Uint64(b[8:]), First: PayloadType(b[16]), Exchange: Exchange(b[18]),
		Flags: b[19], ID: binary.BigEndian.Uint32(b[20:]), Length: binary.BigEndian.Uint32(b[24:])}
	if b[17]>>4 != Version>>4 {
		return h, fmt.Errorf("%w: %d", ErrVersion, b[17]>>4)
	}
	if h.Length != uint32(len(b)) {
		return h, syntax("the header states %d bytes, the packet has %d", h.Length, len(b))
	}
	return h, nil
}

func (h *Header) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.SPIi)
	b = binary.BigEndian.AppendUint64(b, h.SPIr)
	b = append(b, byte(h.First), Version, byte(h.Exchange), h.Flags)
	b = binary.BigEndian.AppendUint32(b, h.ID)
	return binary.BigEndian.AppendUint32(b, h.Length)
}

// Message is a message, or its part outside of the Encrypted payload.
type Message struct {
	Header
	Payloads []Payload
}

// Parse reads a message. An Encrypted payload or a fragment is the last payload, and its content stays as it is. The message refers to b.
func Parse(b []byte) (*Message, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, err
	}
	m := &Message{Header: h}
	m.Payloads, err = ParsePayloads(h.First, b[HeaderLength:])
	return m, err
}

// ParsePayloads reads a chain of payloads, as a message or an Encrypted payload holds it. Payloads that are not known and not critical are
// left out.
func ParsePayloads(next PayloadType, b []byte) ([]Payload, error) {
	var all []Payload
	for n := 0; next != 0; n++ {
		if n == maxPayloads {
			return nil, syntax("more than %d payloads", maxPayloads)
		}
		if len(b) < genericLength {
			return nil, syntax("payload %d is cut off", next)
		}
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < genericLength || length > len(b) {
			return nil, syntax("payload %d states %d bytes of %d", next, length, len(b))
		}
		body, following := b[genericLength:length], PayloadType(b[0])
		switch next {
		case TypeEncrypted, TypeFragment:
			if length != len(b) {
				return nil, syntax("%d bytes follow the encrypted payload", len(b)-length)
			}
			p := &Encrypted{First: following, Body: body}
			if next == TypeFragment {
				if len(body) < 4 {
					return nil, syntax("a fragment has no number")
				}
				p.Number, p.Total, p.Body = binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]), body[4:]
				if p.Number == 0 || p.Number > p.Total || p.Number > 1 && following != 0 {
					return nil, syntax("fragment %d of %d", p.Number, p.Total)
				}
			}
			return append(all, p), nil
		}
		p, err := parsePayload(next, body)
		if err != nil {
			return nil, err
		}
		if p != nil {
			all = append(all, p)
		} else if b[1]&0x80 != 0 {
			return nil, CriticalError{next}
		}
		next, b = following, b[length:]
	}
	if len(b) > 0 {
		return nil, syntax("%d bytes follow the last payload", len(b))
	}
	return all, nil
}

// Append writes a message whose payloads are in the clear. It fills in First and Length.
func (m *Message) Append(b []byte) []byte {
	start := len(b)
	m.First = FirstOf(m.Payloads)
	b = m.append(b)
	b = AppendPayloads(b, m.Payloads)
	m.Length = uint32(len(b) - start)
	binary.BigEndian.PutUint32(b[start+24:], m.Length)
	return b
}

// FirstOf returns the type of the first payload; 0: none.
func FirstOf(all []Payload) PayloadType {
	if len(all) == 0 {
		return 0
	}
	return all[0].Type()
}

// AppendPayloads writes a chain of payloads.
func AppendPayloads(b []byte, all []Payload) []byte {
	for i, p := range all {
		at := len(b)
		b = append(b, byte(FirstOf(all[i+1:])), 0, 0, 0)
		b = p.append(b)
		binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at))
	}
	return b
}

// AppendHead writes the IKE header and the payload header of an Encrypted payload (number 0) or of a fragment. content is
// the length of the content with IV, padding and ICV.
func AppendHead(b []byte, h Header, first PayloadType, number, total uint16, content int) []byte {
	extra, kind := genericLength, TypeEncrypted
	if number > 0 {
		extra, kind = genericLength+4, TypeFragment
	}
	h.First, h.Length = kind, uint32(HeaderLength+extra+content)
	b = h.append(b)
	b = append(b, byte(first), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(extra+content))
	if number > 0 {
		b = binary.BigEndian.AppendUint16(b, number)
		b = binary.BigEndian.AppendUint16(b, total)
	}
	return b
}
