// SPDX-License-Identifier: Apache-2.0
// The common part of the relays of both families.

package dhcp

import "net/netip"

// clientOf is the client of a frame on a relay's circuit.
func clientOf(p Packet, r *relay, f *frame) clientKey {
	return clientKey{circuit{r.name, p.Port, f.outer, f.inner}, f.source}
}

// address is the relay's own address of a family, its identity at servers.
func (r *relay) address(four bool) netip.Addr {
	if four {
		return r.giaddr
	}
	return r.link
}

// awaited returns the relay that a server's answer is for, and the MAC of its client's port. drop is why the answer is not relayed, or "".
// A nil transaction: no request waits for it. comes reports whether the answer comes from where the relay asked.
func (m *Machine) awaited(p Packet, t *transaction, comes func(*relay) bool) (r *relay, port MAC, drop string) {
	if t == nil {
		return nil, port, "unasked"
	}
	r = m.relayOf(t.client.port, t.client.outer, t.client.inner)
	switch {
	case r == nil || r.name != t.client.relay || r.address(t.key.relay.Is4()) != t.key.relay:
		return nil, port, "unasked"
	case !comes(r):
		return nil, port, "not-a-server"
	}
	port, known := m.ports[portKey{p.Dataplane, t.client.port}]
	if !known {
		return nil, port, "port-without-mac"
	}
	return r, port, ""
}

// leaseFor is the lease that an answer changes. nil: the client may not hold another one.
func (m *Machine) leaseFor(p Packet, t *transaction) *lease {
	r := m.relayOf(t.client.port, t.client.outer, t.client.inner)
	if !m.mayHold(r, t.client) {
		return nil
	}
	l := m.leases[t.client]
	if l == nil {
		l = &lease{client: t.client}
		if r.spec.Profile != "" {
			if l.session = m.sessionFor(t.client); l.session == nil {
				return nil
			}
		}
	}
	l.dataplane = p.Dataplane
	return l
}

// toServers sends a message to servers, from the relay's port for servers to theirs.
func (m *Machine) toServers(p Packet, r *relay, from netip.AddrPort, servers []netip.Addr, message []byte) {
	for _, server := range servers {
		out := datagram{from, netip.AddrPortFrom(server, from.Port()), message}
		m.do(ToServer{p.Dataplane, vrfOf(r.spec.Vrf), out.packet()})
	}
}
