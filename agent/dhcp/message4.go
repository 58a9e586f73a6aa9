// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// Offsets in a BOOTP message (RFC 2131 section 2).
	atHops    = 3
	atGiaddr  = 24
	atSname   = 44
	atFile    = 108
	atOptions = 240
	// The shortest message that every server takes (RFC 1542 section 2.1).
	shortest4 = 300

	optionPad      = 0
	optionServerID = 54
	optionClientID = 61
	optionRelay    = 82
	optionEnd      = 255

	subCircuitID = 1
	subRemoteID  = 2
)

// message4 is a DHCPv4 message (RFC 2131) in its bytes. The relay keeps the sender's bytes, except for the fields that it must change.
type message4 struct {
	raw    []byte
	parsed *dhcpv4.DHCPv4
	kind   dhcpv4.MessageType
	mac    MAC
	xid    uint32
	// It holds relay agent information; hidden: in the fields sname or file, which option 52 makes options of (RFC 2131 section 4.1).
	relayed, hidden bool
}

var (
	errNotEthernet = errors.New("not of an Ethernet client")
	errOverload    = errors.New("the options in the fields sname and file cannot be read")
)

func parse4(b []byte) (*message4, error) {
	parsed, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil, err
	}
	if len(b) < atOptions || b[1] != 1 || b[2] != 6 {
		return nil, errNotEthernet
	}
	m := &message4{raw: b, parsed: parsed, kind: parsed.MessageType(), mac: MAC(b[28:34]), xid: binary.BigEndian.Uint32(b[4:])}
	for code := range options4(b) {
		m.relayed = m.relayed || code == optionRelay
	}
	if overload := parsed.Options.Get(dhcpv4.OptionOptionOverload); overload != nil {
		if len(overload) != 1 || overload[0] == 0 || overload[0] > 3 {
			return nil, errOverload
		}
		for _, field := range []struct {
			bit        byte
			begin, end int
		}{{1, atFile, atOptions - 4}, {2, atSname, atFile}} {
			inside := dhcpv4.Options{}
			if overload[0]&field.bit == 0 {
				continue
			}
			if inside.FromBytes(b[field.begin:field.end]) != nil {
				return nil, errOverload
			}
			m.hidden = m.hidden || inside.Has(dhcpv4.OptionRelayAgentInformation)
		}
	}
	return m, nil
}

// options4 ranges over codes and values of options, up to the first one that is truncated.
func options4(b []byte) func(yield func(code byte, value []byte) bool) {
	return func(yield func(byte, []byte) bool) {
		for at := atOptions; at < len(b); {
			code := b[at]
			if code == optionPad {
				at++
				continue
			}
			if code == optionEnd || at+2 > len(b) || at+2+int(b[at+1]) > len(b) {
				return
			}
			if !yield(code, b[at+2:at+2+int(b[at+1])]) {
				return
			}
			at += 2 + int(b[at+1])
		}
	}
}

func address4(b []byte) netip.Addr {
	if len(b) != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(b))
}

func (m *message4) ciaddr() netip.Addr { return address4(m.raw[12:16]) }
func (m *message4) yiaddr() netip.Addr { return address4(m.raw[16:20]) }
func (m *message4) giaddr() netip.Addr { return address4(m.raw[atGiaddr : atGiaddr+4]) }

// serverID is option 54; the zero Addr: there is none.
func (m *message4) serverID() netip.Addr { return m.address(dhcpv4.OptionServerIdentifier) }

// requested is option 50.
func (m *message4) requested() netip.Addr { return m.address(dhcpv4.OptionRequestedIPAddress) }

func (m *message4) address(code dhcpv4.OptionCode) netip.Addr {
	return address4(m.parsed.Options.Get(code))
}

// lifetime is option 51; 0: there is none.
func (m *message4) lifetime() time.Duration { return m.parsed.IPAddressLeaseTime(0) }

// rewrite lists the relay's changes to the options of a message.
type rewrite struct {
	// Replaces the value of option 54. The zero Addr: option 54 stays.
	serverID netip.Addr
	// Option 82 stays. Otherwise it is removed.
	keepInformation bool
	// The value of the option 82 that is added. Empty: none.
	information []byte
	changes     []change
}

// change is the rule for one option.
type change struct {
	code byte
	// At most 255 bytes. nil: the option is removed.
	value []byte
	// The option is added to a message that does not have it.
	always bool
}

func (w *rewrite) change(code byte) *change {
	for i := range w.changes {
		if w.changes[i].code == code {
			return &w.changes[i]
		}
	}
	return nil
}

// with returns the message with changed options. Of an option that occurs several times (RFC 3396), a new value replaces all parts.
func (m *message4) with(w rewrite) []byte {
	b := append(make([]byte, 0, max(len(m.raw)+len(w.information)+3, shortest4)), m.raw[:atOptions]...)
	put := func(code byte, value []byte) { b = append(append(b, code, byte(len(value))), value...) }
	var written [256]bool
	for code, value := range options4(m.raw) {
		c := w.change(code)
		switch {
		case code == optionRelay && !w.keepInformation, c != nil && (c.value == nil || written[code]):
			continue
		case c != nil:
			value = c.value
		case code == optionServerID && w.serverID.IsValid() && len(value) == 4:
			value = w.serverID.AsSlice()
		}
		written[code] = true
		put(code, value)
	}
	for _, c := range w.changes {
		if c.always && !written[c.code] {
			put(c.code, c.value)
		}
	}
	if len(w.information) > 0 && len(w.information) < 256 {
		put(optionRelay, w.information)
	}
	b = append(b, optionEnd)
	for len(b) < shortest4 {
		b = append(b, optionPad)
	}
	return b
}

// information4 is the value of option 82 (RFC 3046 section 3.0).
func information4(circuitID, remoteID string) []byte {
	b := append([]byte{subCircuitID, byte(len(circuitID))}, circuitID...)
	return append(append(b, subRemoteID, byte(len(remoteID))), remoteID...)
}
