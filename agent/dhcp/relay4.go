// SPDX-License-Identifier: Apache-2.0
// The relay of DHCPv4 (RFC 2131, RFC 3046).

package dhcp

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"sluice.dev/sluice/agent/api"
)

func (m *Machine) fromClient4(p Packet, r *relay, f *frame, d *datagram) []Action {
	msg, err := parse4(d.payload)
	if err != nil || msg.parsed.OpCode != dhcpv4.OpcodeBootRequest {
		return m.drop("ipv4", "", "malformed")
	}
	kind := strings.ToLower(msg.kind.String())
	client := clientOf(p, r, f)
	l := m.leases[client]
	var servers []netip.Addr
	var serverID netip.Addr
	answered, repeated := false, false
	switch {
	case !r.giaddr.IsValid() || len(r.servers4) == 0:
		return m.drop("ipv4", kind, "no-relay-address")
	case msg.mac != f.source:
		return m.drop("ipv4", kind, "mac-mismatch")
	case msg.giaddr() != netip.IPv4Unspecified():
		return m.drop("ipv4", kind, "relayed-before")
	case msg.raw[atHops] >= r.maxHops:
		return m.drop("ipv4", kind, "too-many-hops")
	case msg.relayed && r.spec.RelayInformation == api.RelayInformation_REFUSE_INFORMATION, msg.hidden:
		// A hidden option cannot be checked, dropped or replaced in its place.
		return m.drop("ipv4", kind, "relay-information")
	}
	switch msg.kind {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform:
		if r.spec.Profile == "" {
			break
		}
		of := line{service: msg.parsed.ClassIdentifier()}
		if r.keepsInformation(msg.relayed) {
			of.circuitID, of.remoteID, of.attributes = Information4(slices.Clone(msg.parsed.Options.Get(dhcpv4.OptionRelayAgentInformation)))
		}
		if !m.admits(p, r, client, true, of) {
			return m.done()
		}
	}
	key := exchange{dataplane: p.Dataplane, relay: r.giaddr, xid: msg.xid, mac: msg.mac}
	switch msg.kind {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest:
		if !m.mayHold(r, client) {
			return m.drop("ipv4", kind, "too-many-leases")
		}
		fallthrough
	case dhcpv4.MessageTypeInform:
		before := m.transactions.by[key]
		answered, repeated = true, before != nil && before.kind4 == msg.kind && len(before.offers) == 0
		t := m.transactions.begin(key, client, *f, m.now)
		if t == nil {
			return m.drop("ipv4", kind, "transaction-of-another")
		}
		t.kind4, t.relayed, t.clientID = msg.kind, msg.relayed, slices.Clone(msg.parsed.Options.Get(dhcpv4.OptionClientIdentifier))
		servers = r.servers4
		if msg.kind == dhcpv4.MessageTypeRequest {
			if servers, serverID = serversOfRequest(r, msg, before, l, d.destination.Addr() == r.giaddr); servers == nil {
				return m.drop("ipv4", kind, "unknown-server")
			}
			if len(servers) == 1 && !serverID.IsValid() && m.isSilent(p, r, servers[0]) {
				// Any server may extend the lease: the client would ask them all at the end of it only (RFC 2131 section 4.4.5).
				servers = r.servers4
			}
		}
	case dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline:
		address := msg.ciaddr()
		if msg.kind == dhcpv4.MessageTypeDecline {
			address = msg.requested()
		}
		if l == nil || !l.server.IsValid() || l.address4() != address {
			return m.drop("ipv4", kind, "no-lease")
		}
		servers, serverID = []netip.Addr{l.server}, l.serverID
		l.drop(func(b binding) bool { return b.prefix.Addr() == address })
		m.settle(l)
	default:
		return m.drop("ipv4", kind, "not-of-a-client")
	}
	if answered {
		servers = m.answering(p, r, servers, repeated)
	}
	if !m.toServers4(p, r, client, msg, servers, serverID) {
		return m.drop("ipv4", kind, "too-long")
	}
	m.do(Count{"ipv4", kind, ""})
	return m.done()
}

// serversOfRequest returns the servers that get a REQUEST, and its server identifier. nil: the relay does not remember the offer that the client takes.
func serversOfRequest(r *relay, msg *message4, t *transaction, l *lease, unicast bool) (servers []netip.Addr, serverID netip.Addr) {
	if msg.serverID() == r.giaddr {
		if t != nil {
			for _, o := range t.offers {
				if o.address == msg.requested() {
					return []netip.Addr{o.server}, o.serverID
				}
			}
		}
		if l != nil && l.server.IsValid() && slices.Contains(r.servers4, l.server) {
			return []netip.Addr{l.server}, l.serverID
		}
		return nil, netip.Addr{}
	}
	// Renewing: as the lease's server would get it without us. Rebinding and restarting: any server.
	if unicast && l != nil && l.server.IsValid() && slices.Contains(r.servers4, l.server) {
		return []netip.Addr{l.server}, netip.Addr{}
	}
	return r.servers4, netip.Addr{}
}

// keepsInformation reports whether option 82 of a client's message stays, also in the answer: the access node that added it removes it there
// (RFC 3046 section 2.1.1).
func (r *relay) keepsInformation(relayed bool) bool {
	return relayed && r.spec.RelayInformation == api.RelayInformation_TRUST_INFORMATION
}

// toServers4 sends a client's message to servers. false: it is longer than a packet.
func (m *Machine) toServers4(p Packet, r *relay, client clientKey, msg *message4, servers []netip.Addr, serverID netip.Addr) bool {
	w := rewrite{serverID: serverID, keepInformation: r.keepsInformation(msg.relayed), changes: r.changes(api.DhcpDirection_TO_SERVER, client)}
	if !w.keepInformation {
		w.information = information4(cut(r.identifier(r.circuitID, client), 120), cut(r.identifier(r.remoteID, client), 120))
	}
	b := msg.with(w)
	if len(b)+ip4Header+udpHeader > mtu {
		// RFC 3046 section 2.1: a message that is too long goes without option 82.
		w.information = nil
		b = msg.with(w)
	}
	if len(b)+ip4Header+udpHeader > mtu {
		return false
	}
	b[atHops]++
	copy(b[atGiaddr:], r.giaddr.AsSlice())
	m.toServers(p, r, netip.AddrPortFrom(r.giaddr, port4), servers, b)
	return true
}

func cut(s string, most int) string { return s[:min(len(s), most)] }

func (m *Machine) fromServer4(p Packet, d *datagram) []Action {
	msg, err := parse4(d.payload)
	switch {
	case err == nil && msg.parsed.OpCode == dhcpv4.OpcodeBootRequest && p.Interface == "":
		// A client on a circuit of another service.
		return m.done()
	case err != nil || msg.parsed.OpCode != dhcpv4.OpcodeBootReply:
		return m.drop("ipv4", "", "malformed")
	}
	m.heard(p, d.source.Addr())
	kind := strings.ToLower(msg.kind.String())
	t := m.transactions.by[exchange{dataplane: p.Dataplane, relay: msg.giaddr(), xid: msg.xid, mac: msg.mac}]
	if d.destination.Addr() != msg.giaddr() {
		return m.drop("ipv4", kind, "unasked")
	}
	r, port, why := m.awaited(p, t, func(r *relay) bool { return m.isFromServer(p, r) && slices.Contains(r.servers4, d.source.Addr()) })
	if why != "" {
		return m.drop("ipv4", kind, why)
	}
	back, ok := m.toClient4(p, r, t, msg, port)
	if !ok {
		return m.drop("ipv4", kind, "too-long")
	}
	m.do(Count{"ipv4", kind, ""})
	switch msg.kind {
	case dhcpv4.MessageTypeOffer:
		if !isHost4(msg.yiaddr()) {
			return m.drop("ipv4", kind, "no-address")
		}
		o := offer{msg.yiaddr(), d.source.Addr(), msg.serverID()}
		t.offers = slices.DeleteFunc(t.offers, func(other offer) bool { return other.address == o.address || other.server == o.server })
		if len(t.offers) < offersOfTransaction && o.serverID.IsValid() {
			t.offers = append(t.offers, o)
		}
		m.do(back)
	case dhcpv4.MessageTypeAck:
		m.transactions.end(t)
		m.acknowledged4(p, t, msg, d.source.Addr(), back)
	case dhcpv4.MessageTypeNak:
		m.transactions.end(t)
		if l := m.leases[t.client]; l != nil && l.drop(func(b binding) bool { return b.prefix.Addr().Is4() }) {
			m.settle(l, back)
		} else {
			m.do(back)
		}
	default:
		return m.drop("ipv4", kind, "not-of-a-server")
	}
	return m.done()
}

func isHost4(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// acknowledged4 enters the lease of an ACK. The client gets the ACK after its session is in the data plane.
func (m *Machine) acknowledged4(p Packet, t *transaction, msg *message4, server netip.Addr, back Action) {
	address, lifetime := msg.yiaddr(), msg.lifetime()
	if !isHost4(address) || lifetime <= 0 || !msg.serverID().IsValid() {
		// The answer to an INFORM has no lease.
		m.do(back)
		return
	}
	l := m.leaseFor(p, t)
	if l == nil {
		m.do(Count{"ipv4", "ack", "too-many-leases"})
		return
	}
	l.server, l.serverID = server, msg.serverID()
	l.drop(func(b binding) bool { return b.prefix.Addr().Is4() && b.prefix.Addr() != address })
	if !l.hold(netip.PrefixFrom(address, 32), lifetime, m.now) {
		m.do(Count{"ipv4", "ack", "too-many-leases"})
		return
	}
	m.settle(l, back)
}

// toClient4 is the frame for a client (RFC 2131 section 4.1). false: it is longer than a packet.
func (m *Machine) toClient4(p Packet, r *relay, t *transaction, msg *message4, port MAC) (ToClient, bool) {
	w := rewrite{keepInformation: r.keepsInformation(t.relayed), changes: r.changes(api.DhcpDirection_TO_CLIENT, t.client)}
	if msg.serverID().IsValid() {
		w.serverID = r.giaddr
	}
	if r.changesOption(optionClientID) {
		// RFC 6842: the client drops an answer with another identifier than its own.
		w.changes = append(w.changes, change{code: optionClientID, value: t.clientID})
	}
	b := msg.with(w)
	if len(b)+ip4Header+udpHeader > mtu {
		return ToClient{}, false
	}
	to, mac := netip.AddrFrom4([4]byte{255, 255, 255, 255}), broadcast
	switch {
	case msg.kind == dhcpv4.MessageTypeNak:
	case isHost4(msg.ciaddr()):
		to, mac = msg.ciaddr(), t.client.mac
	case !msg.parsed.IsBroadcast() && isHost4(msg.yiaddr()):
		to, mac = msg.yiaddr(), t.client.mac
	}
	out := datagram{netip.AddrPortFrom(r.giaddr, port4), netip.AddrPortFrom(to, client4), b}
	return ToClient{p.Dataplane, t.client.port, t.back.answer(port, mac, typeIPv4, out.packet())}, true
}
