// SPDX-License-Identifier: Apache-2.0

package dhcp6

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// The client's side of prefix delegation (RFC 8415 section 6.3): messages, without a state.

const (
	optionElapsed  = 8
	optionSolMaxRT = 82
)

// AskPrefix is a message of a client that asks for a prefix: Solicit, Request, Renew or Rebind. serverID is nil in Solicit and Rebind. requested is the prefix that
// it has, or a hint of the length.
func AskPrefix(kind uint8, transaction [3]byte, elapsed time.Duration, clientID, serverID []byte, iaid uint32, requested netip.Prefix) []byte {
	b := append(make([]byte, 0, 128), kind, transaction[0], transaction[1], transaction[2])
	b = optionOf(b, optionClientID, clientID)
	if serverID != nil {
		b = optionOf(b, optionServerID, serverID)
	}
	b = optionOf(b, optionElapsed, binary.BigEndian.AppendUint16(nil, uint16(min(elapsed.Milliseconds()/10, 0xffff))))
	b = optionOf(b, optionRequest, binary.BigEndian.AppendUint16(nil, optionSolMaxRT))
	if kind == Solicit {
		b = optionOf(b, optionRapidCommit, nil)
	}
	return option(b, optionIAPD, func(b []byte) []byte {
		b = append(binary.BigEndian.AppendUint32(b, iaid), make([]byte, 8)...)
		return option(b, optionIAPrefix, func(b []byte) []byte {
			address := requested.Addr().As16()
			return append(append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(requested.Bits())), address[:]...)
		})
	})
}

// Delegation is what a server says of a client's prefix.
type Delegation struct {
	Type               uint8
	Transaction        [3]byte
	ClientID, ServerID []byte
	RapidCommit        bool
	// The zero Prefix: it gives none, or takes it away.
	Prefix netip.Prefix
	// When the client renews it, asks any server, and gives it up; 0: never.
	Renew, Rebind, Valid time.Duration
}

// ParseDelegation reads an answer of a server to a client with one IA_PD.
func ParseDelegation(b []byte, iaid uint32) (*Delegation, error) {
	if len(b) < headerLength {
		return nil, errTruncated
	}
	d := &Delegation{Type: b[0], Transaction: [3]byte(b[1:4])}
	refused := false
	whole := eachOption(b[headerLength:], func(code uint16, value []byte) bool {
		switch code {
		case optionClientID:
			d.ClientID = value
		case optionServerID:
			d.ServerID = value
		case optionRapidCommit:
			d.RapidCommit = true
		case optionStatus:
			refused = refused || len(value) < 2 || binary.BigEndian.Uint16(value) != statusSuccess
		case optionIAPD:
			return len(value) >= associationLength && (binary.BigEndian.Uint32(value) != iaid || d.association(value))
		}
		return true
	})
	switch {
	case !whole:
		return nil, errTruncated
	case len(d.ServerID) < 1 || len(d.ServerID) > maxDUID:
		return nil, errDUID
	}
	if refused {
		d.Prefix = netip.Prefix{}
	}
	return d, nil
}

// association reads IA_PD: the first prefix that is valid.
func (d *Delegation) association(b []byte) bool {
	d.Renew, d.Rebind = lifetime(b[4:]), lifetime(b[8:])
	refused := false
	whole := eachOption(b[associationLength:], func(code uint16, value []byte) bool {
		switch {
		case code == optionStatus:
			refused = refused || len(value) < 2 || binary.BigEndian.Uint16(value) != statusSuccess
		case code != optionIAPrefix:
		case len(value) < iaPrefixLength || value[8] > 128:
			return false
		case d.Prefix.IsValid() || binary.BigEndian.Uint32(value[4:]) == 0:
		default:
			d.Prefix, d.Valid = netip.PrefixFrom(netip.AddrFrom16([16]byte(value[9:25])), int(value[8])).Masked(), lifetime(value[4:])
		}
		return true
	})
	if refused {
		d.Prefix = netip.Prefix{}
	}
	// Section 14.2: without times of the server, the client chooses.
	if d.Valid != 0 && (d.Renew == 0 || d.Renew > d.Valid) {
		d.Renew = d.Valid / 2
	}
	if d.Valid != 0 && (d.Rebind < d.Renew || d.Rebind > d.Valid) {
		d.Rebind = d.Valid * 4 / 5
	}
	return whole
}

// lifetime in seconds, 0: for ever.
func lifetime(b []byte) time.Duration {
	seconds := binary.BigEndian.Uint32(b)
	if seconds == infinite {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
