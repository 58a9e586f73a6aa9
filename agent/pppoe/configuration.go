// SPDX-License-Identifier: Apache-2.0
// The machine's configuration: ports, servers, and the options of links.

package pppoe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

// SetPort sets the MAC of a port.
func (m *Machine) SetPort(dataplane, port string, mac subscriber.MAC) {
	n := m.numberOf(place{dataplane, port})
	if before, known := m.macs[n]; known && before == mac {
		return
	}
	m.macs[n] = mac
	for _, s := range m.byName {
		delete(s.configs, n)
	}
}

// SetMTU follows the MTU of a port, in bytes; 0: the port is gone.
func (m *Machine) SetMTU(port string, mtu uint32) {
	if m.mtus[port] = mtu; mtu == 0 {
		delete(m.mtus, port)
	}
}

// room is the largest PPP payload of a port.
func (m *Machine) room(port string) uint32 { return cmp.Or(m.mtus[port], 1500) - 8 }

// TooLarge returns why the largest payload of a server does not fit into its port; "": it does.
func (m *Machine) TooLarge(server string) string {
	s := m.byName[server]
	if s == nil || uint32(s.mru) <= max(m.room(s.spec.Port), 1492) {
		return ""
	}
	return fmt.Sprintf("mru: %d and 8 bytes of PPPoE do not fit into the MTU of Port/%s, %d; accepted: at most %d, or a port with an mtu of %d",
		s.mru, s.spec.Port, m.room(s.spec.Port)+8, m.room(s.spec.Port), s.mru+8)
}

// Servers returns the names of a port's servers.
func (m *Machine) Servers(port string) (names []string) {
	for _, s := range m.servers[port] {
		names = append(names, s.name)
	}
	return names
}

// NeedsPort reports whether the MAC of a server's port is unknown on a data plane.
func (m *Machine) NeedsPort(dataplane string) bool {
	for port := range m.servers {
		n, known := m.numbers[place{dataplane, port}]
		if _, mac := m.macs[n]; !known || !mac {
			return true
		}
	}
	return false
}

// SetServer follows a PppoeServer; nil: it is gone, and so are its sessions.
func (m *Machine) SetServer(name string, spec *api.PppoeServer, now time.Time) []Action {
	m.now = now.UnixNano()
	before := m.byName[name]
	if before != nil {
		before.gone = true
		delete(m.byName, name)
		m.servers[before.spec.Port] = slices.DeleteFunc(m.servers[before.spec.Port], func(s *server) bool { return s == before })
		if len(m.servers[before.spec.Port]) == 0 {
			delete(m.servers, before.spec.Port)
		}
	}
	if spec != nil {
		m.enterServer(name, spec)
	} else if before != nil {
		m.do(DeletePunt{puntName(name, false)}, DeletePunt{puntName(name, true)})
	}
	if before != nil {
		for _, s := range m.all() {
			if s.server.name != name {
				continue
			}
			if s.server = m.serverOf(s.key.circuitKey); s.server == nil || s.server.name != name {
				s.server = before
				m.end(s, subscriber.AdminReset, "its PppoeServer does not serve the circuit any more", true)
			} else if spec.Profile != before.spec.Profile {
				m.do(Serve{s.id, spec.Profile})
			}
		}
		if l := m.loads[name]; spec == nil && l != nil && l.sessions == 0 {
			delete(m.loads, name)
		}
	}
	return m.done()
}

// Ends returns the number of sessions that end when a PppoeServer becomes spec; nil: when it is deleted. others are sessions that have another profile then.
func (m *Machine) Ends(name string, spec *api.PppoeServer) (sessions int, others []string) {
	before := m.byName[name]
	if before == nil {
		return 0, nil
	}
	after := &server{}
	if spec != nil {
		after.outer, after.inner = vlansOf(spec.OuterVlans), vlansOf(spec.InnerVlans)
	}
	for _, s := range m.sessions {
		switch {
		case s.server != before:
		case spec == nil || spec.Port != before.spec.Port || !after.serves(s.key.circuitKey):
			sessions++
		case spec.Profile != before.spec.Profile:
			others = append(others, s.id)
		}
	}
	return sessions, others
}

func (m *Machine) enterServer(name string, spec *api.PppoeServer) {
	s := &server{name: name, spec: spec, outer: vlansOf(spec.OuterVlans), inner: vlansOf(spec.InnerVlans), acName: cmp.Or(spec.AcName, "sluice"),
		mru: uint16(cmp.Or(spec.Mru, 1492)), delays: slices.Clone(spec.PadoDelays), configs: map[uint32]*ppp.Config{}}
	slices.SortFunc(s.delays, func(a, b *api.PadoDelay) int { return cmp.Compare(a.Sessions, b.Sessions) })
	m.byName[name] = s
	if m.loads[name] == nil {
		m.loads[name] = &load{half: newHalfOpen()}
	}
	m.servers[spec.Port] = append(m.servers[spec.Port], s)
	slices.SortFunc(m.servers[spec.Port], func(a, b *server) int { return strings.Compare(a.name, b.name) })
	discovery := &api.Punt{Port: spec.Port, OuterVlans: spec.OuterVlans, InnerVlans: spec.InnerVlans, Rate: cmp.Or(spec.DiscoveryRate, 10000),
		RatePerMac: cmp.Or(spec.DiscoveryRatePerMac, 10), RatePerCircuit: cmp.Or(spec.DiscoveryRatePerCircuit, 500), Protocols: []api.PuntProtocol{api.PuntProtocol_PPPOE_DISCOVERY}}
	// Of each session that is discovered, a few packets more follow until it is authenticated.
	control := &api.Punt{Port: spec.Port, OuterVlans: spec.OuterVlans, InnerVlans: spec.InnerVlans, Rate: min(4*discovery.Rate, 1000000),
		RatePerMac: min(4*discovery.RatePerMac, 1000000), RatePerCircuit: min(4*discovery.RatePerCircuit, 1000000), Protocols: []api.PuntProtocol{api.PuntProtocol_PPP_CONTROL}}
	m.do(PutPunt{puntName(name, false), discovery, name}, PutPunt{puntName(name, true), control, name})
}

func puntName(server string, control bool) string {
	if len(server) > 200 {
		server = server[:200]
	}
	if control {
		return "pppoe-" + server + "-ppp"
	}
	return "pppoe-" + server
}

func (m *Machine) serverOf(c circuitKey) *server {
	for _, s := range m.servers[m.places[c.place].port] {
		if s.serves(c) {
			return s
		}
	}
	return nil
}

// serves reports whether a circuit of the server's port is one of the server.
func (s *server) serves(c circuitKey) bool { return s.outer.has(c.outer) && s.inner.has(c.inner) }

func (s *server) echoInterval() time.Duration {
	return time.Duration(cmp.Or(s.spec.EchoInterval, uint64(30*time.Second)))
}

func (s *server) echoFailures() uint8 { return uint8(cmp.Or(s.spec.EchoFailures, 3)) }

// configOf is the configuration that links of a server at a place share; nil: the port's MAC is unknown.
func (m *Machine) configOf(s *server, at uint32) *ppp.Config {
	if c := s.configs[at]; c != nil {
		return c
	}
	mac, known := m.macs[at]
	if !known {
		return nil
	}
	c := &ppp.Config{Name: s.acName, IPv4: true, IPv6: true, EchoInterval: s.echoInterval(),
		EchoFailures: s.echoFailures(), Random: m.random, InterfaceID: eui64(mac), ServerID: duid(mac)}
	methods := s.spec.Authentication
	if len(methods) == 0 {
		methods = []api.PppAuthentication{api.PppAuthentication_CHAP, api.PppAuthentication_PAP}
	}
	for _, method := range methods {
		switch method {
		case api.PppAuthentication_CHAP:
			c.Methods = append(c.Methods, ppp.MethodCHAP)
		case api.PppAuthentication_PAP:
			c.Methods = append(c.Methods, ppp.MethodPAP)
		case api.PppAuthentication_MSCHAPV2:
			c.Methods = append(c.Methods, ppp.MethodMSCHAPv2)
		case api.PppAuthentication_EAP_5G:
			c.Methods = append(c.Methods, ppp.MethodEAP)
		}
	}
	s.configs[at] = c
	return c
}
