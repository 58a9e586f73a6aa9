// SPDX-License-Identifier: Apache-2.0
// The relay of DHCPv6 (RFC 8415).

package dhcp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
)

var (
	// All_DHCP_Relay_Agents_and_Servers (RFC 8415 section 7.1), and its Ethernet address (RFC 2464 section 7).
	allServers6   = netip.MustParseAddr("ff02::1:2")
	allServersMAC = MAC{0x33, 0x33, 0, 1, 0, 2}
)

func (m *Machine) fromClient6(p Packet, r *relay, f *frame, d *datagram) []Action {
	msg, err := parse6(d.payload)
	if err != nil {
		return m.drop("ipv6", "", "malformed")
	}
	kind := strings.ToLower(msg.kind.String())
	client := clientOf(p, r, f)
	hops, relayed := uint8(0), msg.outermost == dhcpv6.MessageTypeRelayForward
	switch {
	case !r.link.IsValid() || !r.serves6():
		return m.drop("ipv6", kind, "no-relay-address")
	case msg.outermost == dhcpv6.MessageTypeRelayReply:
		return m.drop("ipv6", kind, "not-of-a-client")
	case !d.source.Addr().IsLinkLocalUnicast():
		return m.drop("ipv6", kind, "source-not-link-local")
	case relayed && r.spec.RelayInformation != api.RelayInformation_TRUST_INFORMATION:
		return m.drop("ipv6", kind, "relay-information")
	case relayed && msg.hops >= r.maxHops:
		return m.drop("ipv6", kind, "too-many-hops")
	case relayed:
		hops = msg.hops + 1
	}
	leaves := msg.kind == dhcpv6.MessageTypeRelease || msg.kind == dhcpv6.MessageTypeDecline
	if leaves && r.spec.Profile != "" && m.leases[client] == nil {
		// The back ends did not accept this client: no server hears of it.
		return m.drop("ipv6", kind, "no-lease")
	}
	if clientsKind(msg.kind) && !leaves &&
		!m.admits(p, r, client, false, line{circuitID: msg.access.interfaceID, remoteID: msg.access.remoteID, attributes: msg.access.attributes}) {
		return m.done()
	}
	switch msg.kind {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest:
		if !m.mayHold(r, client) {
			return m.drop("ipv6", kind, "too-many-leases")
		}
	case dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind, dhcpv6.MessageTypeInformationRequest:
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		m.released6(client, msg)
	default:
		return m.drop("ipv6", kind, "not-of-a-client")
	}
	circuitID := cut(r.identifier(r.circuitID, client), 255)
	key := exchange{dataplane: p.Dataplane, relay: r.link, xid: binary.BigEndian.Uint32(append([]byte{0}, msg.xid[:]...)), peer: d.source.Addr(), interfaceID: circuitID}
	before := m.transactions.by[key]
	repeated := before != nil && before.kind == msg.kind
	t := m.transactions.begin(key, client, *f, m.now)
	if t == nil {
		return m.drop("ipv6", kind, "transaction-of-another")
	}
	t.kind, t.relayed = msg.kind, relayed
	b := forward6(hops, r.link, d.source.Addr(), circuitID, cut(r.identifier(r.remoteID, client), 255), r.enterprise, client.mac, msg.raw)
	if len(b)+ip6Header+udpHeader > mtu {
		return m.drop("ipv6", kind, "too-long")
	}
	if r.spec.Uplink != "" {
		port, known := m.portOfInterface(p.Dataplane, r.spec.Uplink)
		if !known {
			return m.drop("ipv6", kind, "port-without-mac")
		}
		m.do(toAllServers(p.Dataplane, r.spec.Uplink, port, b))
	}
	m.do(Count{"ipv6", kind, ""})
	m.toServers(p, r, netip.AddrPortFrom(r.link, port6), m.answering(p, r, r.servers6, repeated), b)
	return m.done()
}

// released6 ends the addresses and prefixes that a client releases or declines (RFC 8415 section 18.2.7).
func (m *Machine) released6(client clientKey, msg *message6) {
	l := m.leases[client]
	if l == nil {
		return
	}
	all := leased6(msg.inner)
	if l.drop(func(b binding) bool {
		return slices.ContainsFunc(all, func(g given) bool { return g.prefix == b.prefix })
	}) {
		m.settle(l)
	}
}

func (m *Machine) fromServer6(p Packet, d *datagram) []Action {
	if msg, err := parse6(d.payload); err == nil && p.Interface == "" && (d.payload[0] == relayForward || clientsKind(msg.kind)) {
		// A client of a circuit that is no relay's: another service serves it.
		return m.done()
	}
	outer, err := parseLayer(d.payload)
	if err != nil || d.payload[0] != relayReply {
		return m.drop("ipv6", "", "malformed")
	}
	msg, err := parse6(outer.message)
	if err != nil {
		return m.drop("ipv6", "", "malformed")
	}
	m.heard(p, d.source.Addr())
	kind := strings.ToLower(msg.kind.String())
	t := m.transactions.by[exchange{dataplane: p.Dataplane, relay: outer.link, xid: binary.BigEndian.Uint32(append([]byte{0}, msg.xid[:]...)), peer: outer.peer,
		interfaceID: string(outer.interfaceID)}]
	r, port, why := m.awaited(p, t, func(r *relay) bool { return m.isFromServer6(p, r, d) })
	switch {
	case why != "":
		return m.drop("ipv6", kind, why)
	case d.destination.Addr() != m.address6(p.Dataplane, r):
		return m.drop("ipv6", kind, "unasked")
	case t.relayed != (msg.outermost == dhcpv6.MessageTypeRelayReply) || msg.outermost == dhcpv6.MessageTypeRelayForward:
		return m.drop("ipv6", kind, "not-of-a-server")
	}
	to := uint16(client6)
	if t.relayed {
		to = port6
	}
	out := datagram{netip.AddrPortFrom(linkLocal(port), port6), netip.AddrPortFrom(outer.peer, to), outer.message}
	back := ToClient{p.Dataplane, t.client.port, t.back.answer(port, t.client.mac, typeIPv6, out.packet())}
	switch msg.kind {
	case dhcpv6.MessageTypeAdvertise:
		m.do(Count{"ipv6", kind, ""}, back)
	case dhcpv6.MessageTypeReply:
		m.do(Count{"ipv6", kind, ""})
		m.transactions.end(t)
		m.replied6(p, t, msg, back)
	default:
		return m.drop("ipv6", kind, "not-of-a-server")
	}
	return m.done()
}

// serves6 reports whether the relay relays IPv6.
func (r *relay) serves6() bool { return len(r.servers6) > 0 || r.spec.Uplink != "" }

// address6 is the address that the relay sends from: of a lightweight relay agent the link-local address of its uplink.
func (m *Machine) address6(dataplane string, r *relay) netip.Addr {
	if r.spec.Uplink == "" {
		return r.link
	}
	if port, known := m.portOfInterface(dataplane, r.spec.Uplink); known {
		return linkLocal(port)
	}
	return netip.Addr{}
}

// isFromServer6 reports whether an answer comes from where the relay sent the question.
func (m *Machine) isFromServer6(p Packet, r *relay, d *datagram) bool {
	if r.spec.Uplink != "" {
		return p.Session == "" && p.Interface == r.spec.Uplink
	}
	return m.isFromServer(p, r) && slices.Contains(r.servers6, d.source.Addr())
}

// toAllServers is a Relay-forward message of a lightweight relay agent (RFC 6221 section 5). A bridge has no address and sends from the
// client's; the relay has one on the link, and servers answer it.
func toAllServers(dataplane, uplink string, port MAC, message []byte) ToLink {
	out := datagram{netip.AddrPortFrom(linkLocal(port), port6), netip.AddrPortFrom(allServers6, port6), message}
	b := append(append(make([]byte, 0, 14+ip6Header+udpHeader+len(message)), allServersMAC[:]...), port[:]...)
	return ToLink{dataplane, uplink, append(binary.BigEndian.AppendUint16(b, typeIPv6), out.packet()...)}
}

func clientsKind(kind dhcpv6.MessageType) bool {
	switch kind {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind,
		dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline, dhcpv6.MessageTypeInformationRequest:
		return true
	}
	return false
}

// replied6 enters the lease of a Reply. The client gets the Reply after its session is in the data plane.
func (m *Machine) replied6(p Packet, t *transaction, msg *message6, back Action) {
	switch t.kind {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
	default:
		m.do(back)
		return
	}
	l := m.leaseFor(p, t)
	if l == nil {
		m.do(Count{"ipv6", "reply", "too-many-leases"})
		return
	}
	for _, g := range leased6(msg.inner) {
		if g.lifetime <= 0 {
			l.drop(func(b binding) bool { return b.prefix == g.prefix })
		} else if !l.hold(g.prefix, g.lifetime, m.now) {
			m.do(Count{"ipv6", "reply", "too-many-leases"})
			return
		}
	}
	m.settle(l, back)
}
