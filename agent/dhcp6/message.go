// SPDX-License-Identifier: Apache-2.0

// Package dhcp6 is the server's side of DHCPv6 (RFC 8415): it parses messages of clients and builds answers from a subscriber's lease. It has no
// I/O and keeps nothing.
package dhcp6

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
)

// Types of messages (RFC 8415 section 7.3).
const (
	Solicit            = 1
	Advertise          = 2
	Request            = 3
	Confirm            = 4
	Renew              = 5
	Rebind             = 6
	Reply              = 7
	Release            = 8
	Decline            = 9
	InformationRequest = 11
)

// Options (RFC 8415 section 21, RFC 3646).
const (
	optionClientID    = 1
	optionServerID    = 2
	optionIANA        = 3
	optionIAAddress   = 5
	optionRequest     = 6
	optionStatus      = 13
	optionRapidCommit = 14
	optionDNS         = 23
	optionIAPD        = 25
	optionIAPrefix    = 26
)

// Status codes (RFC 8415 section 21.13).
const (
	statusSuccess     = 0
	statusNoAddress   = 2
	statusNotOnLink   = 4
	statusNoPrefix    = 6
	maxDUID           = 130 // RFC 8415 section 11.1
	maxAssociations   = 8
	maxPrefixes       = 16
	headerLength      = 4
	associationLength = 12
	iaAddressLength   = 24
	iaPrefixLength    = 25
	infinite          = 0xffffffff
)

var (
	errTruncated = errors.New("the message ends within a header or an option")
	errTooMany   = errors.New("the message has too many identity associations")
	errDUID      = errors.New("the length of a DUID is not 1 to 130 bytes")
)

// Association is an identity association: IA_NA, or IA_PD.
type Association struct {
	ID        uint32
	Delegated bool
	// Prefixes that the client has or asks for; an address is a prefix of 128 bits.
	Prefixes []netip.Prefix
}

// Message is a message of a client.
type Message struct {
	Type               uint8
	Transaction        [3]byte
	ClientID, ServerID []byte
	Associations       []Association
	RapidCommit        bool
}

// eachOption calls f for each option of b. It returns false if b ends within one, or f returns false.
func eachOption(b []byte, f func(code uint16, value []byte) bool) bool {
	for len(b) > 0 {
		if len(b) < 4 {
			return false
		}
		code, length := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if length > len(b)-4 || !f(code, b[4:4+length]) {
			return false
		}
		b = b[4+length:]
	}
	return true
}

// Parse reads a message of a client. The result refers to b.
func Parse(b []byte) (*Message, error) {
	if len(b) < headerLength {
		return nil, errTruncated
	}
	m := &Message{Type: b[0], Transaction: [3]byte(b[1:4])}
	var wrong error
	whole := eachOption(b[headerLength:], func(code uint16, value []byte) bool {
		switch code {
		case optionClientID, optionServerID:
			if len(value) < 1 || len(value) > maxDUID {
				wrong = errDUID
				return false
			}
			if code == optionClientID {
				m.ClientID = value
			} else {
				m.ServerID = value
			}
		case optionIANA, optionIAPD:
			if len(m.Associations) == maxAssociations {
				wrong = errTooMany
				return false
			}
			a, ok := parseAssociation(code == optionIAPD, value)
			if !ok {
				return false
			}
			m.Associations = append(m.Associations, a)
		case optionRapidCommit:
			m.RapidCommit = true
		}
		return true
	})
	switch {
	case wrong != nil:
		return nil, wrong
	case !whole:
		return nil, errTruncated
	}
	return m, nil
}

func parseAssociation(delegated bool, b []byte) (a Association, ok bool) {
	if len(b) < associationLength {
		return a, false
	}
	a = Association{ID: binary.BigEndian.Uint32(b), Delegated: delegated}
	return a, eachOption(b[associationLength:], func(code uint16, value []byte) bool {
		var p netip.Prefix
		switch {
		case code == optionIAAddress && !delegated:
			if len(value) < iaAddressLength {
				return false
			}
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte(value[:16])), 128)
		case code == optionIAPrefix && delegated:
			if len(value) < iaPrefixLength || value[8] > 128 {
				return false
			}
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte(value[9:25])), int(value[8]))
		default:
			return true
		}
		if len(a.Prefixes) < maxPrefixes && !slices.Contains(a.Prefixes, p) {
			a.Prefixes = append(a.Prefixes, p)
		}
		return true
	})
}

// option adds an option whose value f adds.
func option(b []byte, code uint16, f func(b []byte) []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, code)
	at := len(b)
	b = f(append(b, 0, 0))
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2))
	return b
}

func optionOf(b []byte, code uint16, value []byte) []byte {
	return option(b, code, func(b []byte) []byte { return append(b, value...) })
}
