// SPDX-License-Identifier: Apache-2.0

package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"
)

// Lease is the addresses and prefixes of a client. A zero field: none.
type Lease struct {
	Address   netip.Addr
	Delegated netip.Prefix
	DNS       []netip.Addr
	// The lifetimes of addresses and prefixes from now on.
	Preferred, Valid time.Duration
}

// Ignored is why the server with the identifier does not answer a message (RFC 8415 section 16); "": it does.
func Ignored(m *Message, serverID []byte) string {
	ours := bytes.Equal(m.ServerID, serverID)
	switch m.Type {
	case Solicit, Confirm, Rebind:
		if len(m.ServerID) > 0 {
			return "server-identifier"
		}
	case Request, Renew, Release, Decline:
		if !ours {
			return "another-server"
		}
	case InformationRequest:
		if len(m.ServerID) > 0 && !ours {
			return "another-server"
		}
		if len(m.Associations) > 0 {
			return "association"
		}
	default:
		return "not-of-a-client"
	}
	if len(m.ClientID) == 0 && m.Type != InformationRequest {
		return "no-client-identifier"
	}
	return ""
}

// Answer returns the server's answer to a client's message (RFC 8415 section 18.3), or nil and the reason for silence. The caller has
// allocated the lease before; an empty lease means that there is nothing to give.
func Answer(m *Message, serverID []byte, l Lease) (answer []byte, ignored string) {
	if ignored := Ignored(m, serverID); ignored != "" {
		return nil, ignored
	}
	kind := uint8(Reply)
	if m.Type == Solicit && !m.RapidCommit {
		kind = Advertise
	}
	b := append(make([]byte, 0, 256), kind, m.Transaction[0], m.Transaction[1], m.Transaction[2])
	if len(m.ClientID) > 0 {
		b = optionOf(b, optionClientID, m.ClientID)
	}
	b = optionOf(b, optionServerID, serverID)
	switch m.Type {
	case Confirm:
		code, known := l.confirm(m)
		if !known {
			return nil, "no-address"
		}
		return status(b, code), ""
	case Release, Decline:
		return status(b, statusSuccess), ""
	case Solicit:
		if m.RapidCommit {
			b = optionOf(b, optionRapidCommit, nil)
		}
	}
	gave := [2]bool{}
	for i := range m.Associations {
		a := &m.Associations[i]
		kind := 0
		if a.Delegated {
			kind = 1
		}
		b = l.associate(b, a, !gave[kind])
		gave[kind] = true
	}
	if dns := l.dns(); len(dns) > 0 {
		b = optionOf(b, optionDNS, dns)
	}
	return b, ""
}

// prefix returns the client's address or delegated prefix.
func (l *Lease) prefix(delegated bool) netip.Prefix {
	if delegated {
		return l.Delegated
	}
	if !l.Address.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(l.Address, 128)
}

// associate answers an identity association. Addresses that the client names but no longer has get a lifetime of 0 (RFC 8415 section 18.3.4).
func (l *Lease) associate(b []byte, a *Association, first bool) []byte {
	code, none := uint16(optionIANA), uint16(statusNoAddress)
	if a.Delegated {
		code, none = optionIAPD, statusNoPrefix
	}
	has := l.prefix(a.Delegated)
	if !first {
		has = netip.Prefix{}
	}
	return option(b, code, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(b, a.ID)
		if !has.IsValid() {
			return status(append(b, make([]byte, 8)...), none)
		}
		b = binary.BigEndian.AppendUint32(b, part(l.Preferred, 5))
		b = binary.BigEndian.AppendUint32(b, part(l.Preferred, 8))
		b = appendPrefix(b, a.Delegated, has, seconds(l.Preferred), seconds(l.Valid))
		for _, p := range a.Prefixes {
			if p != has && !p.Addr().IsUnspecified() {
				b = appendPrefix(b, a.Delegated, p, 0, 0)
			}
		}
		return b
	})
}

func appendPrefix(b []byte, delegated bool, p netip.Prefix, preferred, valid uint32) []byte {
	address := p.Addr().As16()
	if !delegated {
		return option(b, optionIAAddress, func(b []byte) []byte {
			b = binary.BigEndian.AppendUint32(append(b, address[:]...), preferred)
			return binary.BigEndian.AppendUint32(b, valid)
		})
	}
	return option(b, optionIAPrefix, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, preferred), valid)
		return append(append(b, byte(p.Bits())), address[:]...)
	})
}

// confirm reports whether the client has all addresses that it names.
func (l *Lease) confirm(m *Message) (code uint16, known bool) {
	for _, a := range m.Associations {
		for _, p := range a.Prefixes {
			known = true
			if p != l.prefix(a.Delegated) {
				return statusNotOnLink, true
			}
		}
	}
	return statusSuccess, known
}

func status(b []byte, code uint16) []byte {
	return option(b, optionStatus, func(b []byte) []byte { return binary.BigEndian.AppendUint16(b, code) })
}

func (l *Lease) dns() (all []byte) {
	for _, a := range l.DNS {
		if a.Is6() {
			all = append(all, a.AsSlice()...)
		}
	}
	return all
}

func seconds(d time.Duration) uint32 {
	return uint32(min(max(d/time.Second, 0), infinite))
}

// part is so many tenths of a time.
func part(d time.Duration, tenths time.Duration) uint32 {
	if s := seconds(d); s == infinite {
		return s
	}
	return seconds(d / 10 * tenths)
}
