// SPDX-License-Identifier: Apache-2.0
// Servers that do not answer: other servers get their messages until they are back.

package dhcp

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// A server is silent after so many messages without any answer from it, over so long a time.
	silentMessages = 8
	silentTime     = 10 * time.Second
	// A silent server gets a message this often, so that it is noticed when it is back.
	probeTime = 5 * time.Second
)

// serverKey is a server as a data plane reaches it.
type serverKey struct {
	dataplane, vrf string
	address        netip.Addr
}

// serverState is a server since its last answer.
type serverState struct {
	unanswered int
	// When the first of these messages was sent.
	since  time.Time
	silent bool
	// When a silent server gets the next message.
	probe time.Time
}

// ServerState notifies of a server that does not answer, or that answers again.
type ServerState struct {
	Server netip.Addr
	VRF    string
	Silent bool
}

func (ServerState) action() {}

func (m *Machine) isSilent(p Packet, r *relay, server netip.Addr) bool {
	s := m.servers[serverKey{p.Dataplane, vrfOf(r.spec.Vrf), server}]
	return s != nil && s.silent
}

// answering returns the servers that get a message which they answer: without silent ones, as long as another one answers. A client that repeats
// its message got no answer from the others: all servers get it.
func (m *Machine) answering(p Packet, r *relay, servers []netip.Addr, repeated bool) (to []netip.Addr) {
	others := false
	for _, a := range servers {
		others = others || !m.isSilent(p, r, a)
	}
	for _, a := range servers {
		key := serverKey{p.Dataplane, vrfOf(r.spec.Vrf), a}
		s := m.servers[key]
		if s == nil {
			s = &serverState{}
			m.servers[key] = s
		}
		if s.silent && others && !repeated {
			if m.now.Before(s.probe) {
				continue
			}
			s.probe = m.now.Add(probeTime)
		}
		to = append(to, a)
		if s.unanswered == 0 {
			s.since = m.now
		}
		s.unanswered++
		if !s.silent && s.unanswered >= silentMessages && m.now.Sub(s.since) >= silentTime {
			s.silent, s.probe = true, m.now.Add(probeTime)
			m.do(ServerState{a, key.vrf, true})
		}
	}
	return to
}

// relaysOf returns the relays of a VRF that have a server, and whether each has another one of the family.
func (m *Machine) relaysOf(server netip.Addr, vrf string) map[string]bool {
	found := map[string]bool{}
	for _, all := range m.relays {
		for _, r := range all {
			servers := r.servers4
			if server.Is6() {
				servers = r.servers6
			}
			if vrfOf(r.spec.Vrf) == vrf && slices.Contains(servers, server) {
				found[r.name] = len(servers) > 1
			}
		}
	}
	return found
}

// heard notes a packet of a server, be it late.
func (m *Machine) heard(p Packet, from netip.Addr) {
	in := m.interfaces[p.Interface]
	if p.Session != "" || in == nil {
		return
	}
	key := serverKey{p.Dataplane, vrfOf(in.Vrf), from}
	if s := m.servers[key]; s != nil {
		delete(m.servers, key)
		if s.silent {
			m.do(ServerState{from, key.vrf, false})
		}
	}
}
