// SPDX-License-Identifier: Apache-2.0
// Sessions that the first packet of a static address sets up (TR-146).

package ipoe

import (
	"encoding/binary"
	"net/netip"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	arpLength = 28
	typeARP   = 0x0806
	typeIPv4  = 0x0800

	neighborSolicitation = 135
	solicitationLength   = 24
)

// receiveFirst takes ARP, a neighbour solicitation, IPv4 or IPv6 of a circuit without a session.
func (m *Machine) receiveFirst(p Packet) []Action {
	back, mac, outer, inner, etherType, payload, ok := dhcp.ParseEthernet(p.Frame)
	if !ok {
		return nil
	}
	key := clientKey{circuit{p.Dataplane, p.Port, outer, inner}, mac}
	s := m.serverOf(key.circuit)
	if s == nil || !s.first && !s.slaac {
		return nil
	}
	var source netip.Addr
	switch {
	case etherType == typeARP && len(payload) >= arpLength && binary.BigEndian.Uint16(payload) == 1 && binary.BigEndian.Uint16(payload[2:]) == typeIPv4 &&
		payload[4] == 6 && payload[5] == 4 && dhcp.MAC(payload[8:14]) == mac:
		source = netip.AddrFrom4([4]byte(payload[14:18]))
	case etherType == typeIPv4 && len(payload) >= 20 && payload[0]>>4 == 4:
		source = netip.AddrFrom4([4]byte(payload[12:16]))
	case p.Reason == "nd" || p.Reason == "router-solicitation":
		if source, ok = solicits(etherType, payload); !ok {
			return nil // of a router, or malformed
		}
	case etherType == typeIPv6 && len(payload) >= header6 && payload[0]>>4 == 6:
		source = netip.AddrFrom16([16]byte(payload[8:24]))
	default:
		return m.drop("first-packet", "", "malformed")
	}
	if source.Is4() && !s.first {
		return nil
	}
	if source.Is6() && source.IsLinkLocalUnicast() {
		return nil // every host has one: it identifies no client
	}
	if !source.IsGlobalUnicast() {
		return m.drop("first-packet", "", "source-not-unicast")
	}
	msg := &message{back: back, address: source, slaac: s.slaac && source.Is6()}
	c, limit := m.client(s, key, kindFirst, msg)
	if c == nil {
		return m.drop("first-packet", "", limit)
	}
	if c.phase == up {
		return nil // its packets are no first ones any more
	}
	m.do(Count{"first-packet", "", ""})
	m.serve(s, c, kindFirst, msg)
	return m.done()
}

// solicits returns the address of the host that sends a neighbour solicitation (RFC 4861 section 4.3). A host that looks for duplicates of
// its address (RFC 4862 section 5.4.2) has none yet: it is the target.
func solicits(etherType uint16, ip []byte) (address netip.Addr, ok bool) {
	if etherType != typeIPv6 || len(ip) < header6+solicitationLength || ip[0]>>4 != 6 || ip[6] != protocolICMP6 || ip[7] != 255 ||
		ip[header6] != neighborSolicitation {
		return netip.Addr{}, false
	}
	if address = netip.AddrFrom16([16]byte(ip[8:24])); address.IsUnspecified() {
		address = netip.AddrFrom16([16]byte(ip[header6+8 : header6+24]))
	}
	return address, true
}

// grants reports whether a grant names an address: itself, or the prefix that it is in.
func grants(g *subscriber.Grant, address netip.Addr) bool {
	return address == g.IPv4 || address == g.IPv6 || g.IPv6Prefix.IsValid() && g.IPv6Prefix.Contains(address) || g.Delegated.IsValid() && g.Delegated.Contains(address)
}

// static4 and static6 report whether the client has addresses of the family without a lease: they do not end by themselves.
func (c *client) static4() bool { return c.static && c.grant.IPv4.IsValid() }

func (c *client) static6() bool {
	return c.static && (c.grant.IPv6.IsValid() || c.grant.IPv6Prefix.IsValid() || c.grant.Delegated.IsValid())
}
