// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

const (
	relayForward = 12
	relayReply   = 13
	relayHeader  = 34

	optionRelayMessage = 9
	optionVendor       = 17
	optionInterfaceID  = 18
	optionRemoteID     = 37
	optionLinkLayer    = 79 // RFC 6939

	// Messages within messages. A relay accepts fewer (maxHops).
	deepest6 = 32
)

var (
	errTruncated = errors.New("ends within a header or an option")
	errNested    = errors.New("relay messages within too many others")
)

// layer is a Relay-forward or Relay-reply message (RFC 8415 section 9).
type layer struct {
	hops        uint8
	link, peer  netip.Addr
	interfaceID []byte
	remoteID    []byte // behind its enterprise number, RFC 4649
	attributes  map[uint8][]byte
	// The relayed message, whole.
	message []byte
}

func parseLayer(b []byte) (l layer, err error) {
	if len(b) < relayHeader {
		return l, errTruncated
	}
	l = layer{hops: b[1], link: netip.AddrFrom16([16]byte(b[2:18])), peer: netip.AddrFrom16([16]byte(b[18:34]))}
	for at := relayHeader; at < len(b); {
		if at+4 > len(b) {
			return l, errTruncated
		}
		code, length := binary.BigEndian.Uint16(b[at:]), int(binary.BigEndian.Uint16(b[at+2:]))
		if at+4+length > len(b) {
			return l, errTruncated
		}
		value := b[at+4 : at+4+length]
		switch code {
		case optionRelayMessage:
			l.message = value
		case optionVendor:
			l.attributes = LineAttributes6(value, l.attributes)
		case optionInterfaceID:
			l.interfaceID = value
		case optionRemoteID:
			if length >= 4 {
				l.remoteID = value[4:]
			}
		}
		at += 4 + length
	}
	if len(l.message) == 0 {
		return l, errTruncated
	}
	return l, nil
}

// message6 is a message of a client or a server, or such a one within relay messages.
type message6 struct {
	raw []byte
	// Of the outermost message.
	outermost dhcpv6.MessageType
	// The innermost message.
	inner *dhcpv6.Message
	kind  dhcpv6.MessageType
	xid   [3]byte
	hops  uint8
	// Of the lightweight relay agent next to the client.
	access layer
}

func parse6(b []byte) (*message6, error) {
	m := &message6{raw: b}
	inner := b
	for depth := 0; ; depth++ {
		if len(inner) < 4 {
			return nil, errTruncated
		}
		if depth == 0 {
			m.outermost = dhcpv6.MessageType(b[0])
			if b[0] == relayForward || b[0] == relayReply {
				m.hops = b[1]
			}
		}
		if inner[0] != relayForward && inner[0] != relayReply {
			break
		}
		if depth == deepest6 {
			return nil, errNested
		}
		l, err := parseLayer(inner)
		if err != nil {
			return nil, err
		}
		inner, m.access = l.message, l
	}
	parsed, err := dhcpv6.MessageFromBytes(inner)
	if err != nil {
		return nil, err
	}
	m.inner, m.kind, m.xid = parsed, parsed.MessageType, [3]byte(inner[1:4])
	return m, nil
}

// forward6 is the Relay-forward message around a client's message.
func forward6(hops uint8, link, peer netip.Addr, circuitID, remoteID string, enterprise uint32, mac MAC, message []byte) []byte {
	b := append(make([]byte, 0, relayHeader+64+len(message)), relayForward, hops)
	b = append(append(b, link.AsSlice()...), peer.AsSlice()...)
	b = option6(b, optionInterfaceID, []byte(circuitID))
	b = option6(b, optionRemoteID, append(binary.BigEndian.AppendUint32(nil, enterprise), remoteID...))
	b = option6(b, optionLinkLayer, append([]byte{0, 1}, mac[:]...))
	return option6(b, optionRelayMessage, message)
}

func option6(b []byte, code uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}

// given is an address or prefix of a Reply, with its valid lifetime; 0: the server takes it away.
type given struct {
	prefix   netip.Prefix
	lifetime time.Duration
}

// leased6 returns the addresses and delegated prefixes of a message.
func leased6(m *dhcpv6.Message) []given {
	var all []given
	add := func(ip []byte, bits int, lifetime time.Duration) {
		a, ok := netip.AddrFromSlice(ip)
		if !ok || !a.Is6() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsLoopback() || bits < 1 || bits > 128 || len(all) >= bindingsOfLease {
			return
		}
		all = append(all, given{netip.PrefixFrom(a, bits).Masked(), lifetime})
	}
	for _, ia := range m.Options.IANA() {
		for _, one := range ia.Options.Addresses() {
			if one.Options.Status() == nil || one.Options.Status().StatusCode == 0 {
				add(one.IPv6Addr.To16(), 128, one.ValidLifetime)
			}
		}
	}
	for _, ia := range m.Options.IAPD() {
		for _, one := range ia.Options.Prefixes() {
			if one.Prefix == nil || one.Options.Status() != nil && one.Options.Status().StatusCode != 0 {
				continue
			}
			bits, _ := one.Prefix.Mask.Size()
			add(one.Prefix.IP.To16(), bits, one.ValidLifetime)
		}
	}
	return all
}
