// SPDX-License-Identifier: Apache-2.0
// The machine's configuration: ports and servers.

package ipoe

import (
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

// SetPort sets the MAC of a port.
func (m *Machine) SetPort(dataplane, port string, mac dhcp.MAC) {
	m.macs[portKey{dataplane, port}] = mac
}

// NeedsPort reports whether the MAC of a server's port is unknown on a data plane.
func (m *Machine) NeedsPort(dataplane string) bool {
	for port := range m.ports {
		if _, known := m.macs[portKey{dataplane, port}]; !known {
			return true
		}
	}
	return false
}

func puntName(name string) string { return "ipoe-" + name[:min(len(name), 240)] }

// SetServer follows an IpoeServer; nil: it is gone.
func (m *Machine) SetServer(name string, spec *api.IpoeServer, now time.Time) []Action {
	m.now = now
	before := m.servers[name]
	if before != nil {
		port := before.spec.Port
		if m.ports[port] = slices.DeleteFunc(m.ports[port], func(s *server) bool { return s == before }); len(m.ports[port]) == 0 {
			delete(m.ports, port)
		}
		delete(m.servers, name)
		if spec == nil {
			m.do(DeletePunt{puntName(name)})
		}
	}
	if spec != nil {
		s := &server{name: name, spec: spec, outer: dhcp.VLANsOf(spec.OuterVlans), inner: dhcp.VLANsOf(spec.InnerVlans),
			lease: time.Duration(spec.LeaseTime), most: int(spec.ClientsPerCircuit), offers: int(cmp.Or(spec.OffersPerCircuit, 32))}
		if s.lease == 0 {
			s.lease = time.Hour
		}
		if s.most == 0 {
			s.most = 256
		}
		s.address, _ = netip.ParseAddr(spec.ServerAddress)
		for _, written := range spec.Routes {
			if p, err := netip.ParsePrefix(written); err == nil && p.Addr().Is4() {
				s.routes = append(s.routes, p)
			}
		}
		for _, o := range spec.Options {
			if value, err := hex.DecodeString(o.Hex); err == nil {
				s.options = append(s.options, option{byte(o.Code), value, o.Always})
			}
		}
		has := func(method api.IpoeMethod) bool { return slices.Contains(spec.Methods, method) }
		s.four = has(api.IpoeMethod_IPOE_DHCP4) || len(spec.Methods) == 0
		s.six = has(api.IpoeMethod_IPOE_DHCP6) || len(spec.Methods) == 0
		s.first = has(api.IpoeMethod_IPOE_FIRST_PACKET)
		s.slaac = has(api.IpoeMethod_IPOE_SLAAC)
		m.servers[name] = s
		m.ports[spec.Port] = append(m.ports[spec.Port], s)
		m.do(PutPunt{puntName(name), s.punt(), name})
	}
	for _, one := range m.contests {
		if m.serverOf(one.key.circuit) == nil {
			m.endContest(one)
		}
	}
	for _, c := range m.clients {
		switch s := m.serverOf(c.key.circuit); {
		case s != nil:
			// Another server may have taken the circuit.
			if s.name != c.server || s.name == name && before != nil && before.spec.Profile != spec.GetProfile() {
				m.do(Serve{c.id, s.spec.Profile})
			}
			c.server = s.name
		case c.server == name:
			m.end(c, subscriber.NASRequest)
		}
	}
	return m.done()
}

// Ends returns the number of sessions that end when an IpoeServer becomes spec; nil: when it is deleted. others are sessions that have another profile then.
func (m *Machine) Ends(name string, spec *api.IpoeServer) (sessions int, others []string) {
	outer, inner := dhcp.VLANsOf(spec.GetOuterVlans()), dhcp.VLANsOf(spec.GetInnerVlans())
	for _, c := range m.clients {
		serves := spec != nil && spec.Port == c.key.port && outer.Has(c.key.outer) && inner.Has(c.key.inner)
		switch before := m.servers[name]; {
		case c.server != name || c.phase != up:
		case !serves:
			sessions++
		case before != nil && before.spec.Profile != spec.Profile:
			others = append(others, c.id)
		}
	}
	return sessions, others
}

func (s *server) punt() *api.Punt {
	p := &api.Punt{Port: s.spec.Port, OuterVlans: s.spec.OuterVlans, InnerVlans: s.spec.InnerVlans, Rate: s.spec.Rate, RatePerMac: s.spec.RatePerMac,
		RatePerCircuit: s.spec.RatePerCircuit}
	if s.four {
		p.Protocols = append(p.Protocols, api.PuntProtocol_DHCP4)
	}
	if s.six {
		p.Protocols = append(p.Protocols, api.PuntProtocol_DHCP6)
	}
	if s.six || s.first || s.slaac {
		p.Protocols = append(p.Protocols, api.PuntProtocol_ND)
	}
	if s.first {
		p.Protocols = append(p.Protocols, api.PuntProtocol_ARP)
	}
	if s.first || s.slaac {
		p.Protocols = append(p.Protocols, api.PuntProtocol_FIRST_PACKET)
	}
	return p
}

// serverOf returns the server of a circuit, or nil.
func (m *Machine) serverOf(c circuit) *server {
	for _, s := range m.ports[c.port] {
		if s.outer.Has(c.outer) && s.inner.Has(c.inner) {
			return s
		}
	}
	return nil
}
