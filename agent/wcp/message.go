// SPDX-License-Identifier: Apache-2.0

package wcp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind is the first byte of a message in VSNP.
type Kind uint8

// Kinds of messages. The AGF sends those about resources, and the 5G-RG answers.
const (
	KindNAS     Kind = 1
	KindSetUp   Kind = 2
	KindModify  Kind = 3
	KindRelease Kind = 4
	KindAnswer  Kind = 5
)

// Causes of an answer. Other values refuse, too.
const (
	CauseDone    = 0
	CauseRefused = 1
)

// Resource is the user plane of a PDU session in messages to the 5G-RG.
type Resource struct {
	// PDU session identity and type of TS 24.501 section 9.4 and 9.11.4.11.
	PDUSession, Type uint8
	// SESSION_ID of RFC 8822.
	FiveWE uint16
	// QFIs of its QoS flows; the first is for packets that no QoS rule takes.
	QFIs []uint8
}

// Message is a message of VSNP.
type Message struct {
	Kind Kind
	// Of KindNAS.
	NAS []byte
	// Of the others.
	Transaction uint8
	// Of KindSetUp and KindModify; of the others the PDU session alone.
	Resource
	// Of KindAnswer.
	Cause uint8
}

// ErrMessage: a packet of VSNP is no message.
var ErrMessage = errors.New("malformed W-CP message")

// Append writes a message.
func (m *Message) Append(b []byte) []byte {
	b = append(b, byte(m.Kind))
	switch m.Kind {
	case KindNAS:
		b = binary.BigEndian.AppendUint16(b, uint16(len(m.NAS)))
		return append(b, m.NAS...)
	case KindSetUp, KindModify:
		b = append(b, m.Transaction, m.PDUSession, m.Type)
		b = binary.BigEndian.AppendUint16(b, m.FiveWE)
		return append(append(b, byte(len(m.QFIs))), m.QFIs...)
	case KindAnswer:
		return append(b, m.Transaction, m.PDUSession, m.Cause)
	}
	return append(b, m.Transaction, m.PDUSession)
}

// ParseMessage reads a message, which refers to the packet. The rest of the packet is padding.
func ParseMessage(b []byte) (m Message, err error) {
	if len(b) < 3 {
		return m, fmt.Errorf("%w: %d bytes", ErrMessage, len(b))
	}
	m.Kind = Kind(b[0])
	short := fmt.Errorf("%w: kind %d ends early", ErrMessage, m.Kind)
	if m.Kind == KindNAS {
		n := int(binary.BigEndian.Uint16(b[1:]))
		if n == 0 || len(b) < 3+n {
			return m, short
		}
		m.NAS = b[3 : 3+n]
		return m, nil
	}
	m.Transaction, m.PDUSession = b[1], b[2]
	switch m.Kind {
	case KindSetUp, KindModify:
		if len(b) < 7 || len(b) < 7+int(b[6]) {
			return m, short
		}
		m.Type, m.FiveWE, m.QFIs = b[3], binary.BigEndian.Uint16(b[4:]), b[7:7+int(b[6])]
	case KindAnswer:
		if len(b) < 4 {
			return m, short
		}
		m.Cause = b[3]
	case KindRelease:
	default:
		return m, fmt.Errorf("%w: kind %d", ErrMessage, m.Kind)
	}
	return m, nil
}
