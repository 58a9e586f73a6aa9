// SPDX-License-Identifier: Apache-2.0
// The machine's configuration: ports, interfaces and relays.

package dhcp

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
)

// SetPort sets the MAC of a port.
func (m *Machine) SetPort(dataplane, port string, mac MAC) { m.ports[portKey{dataplane, port}] = mac }

// NeedsPort reports whether the MAC of a relay's port is unknown on a data plane.
func (m *Machine) NeedsPort(dataplane string) bool {
	for port := range m.relays {
		if _, known := m.ports[portKey{dataplane, port}]; !known {
			return true
		}
	}
	for _, spec := range m.specs {
		if spec.Uplink != "" && m.interfaces[spec.Uplink].GetPort() != "" {
			if _, known := m.portOfInterface(dataplane, spec.Uplink); !known {
				return true
			}
		}
	}
	return false
}

// portOfInterface returns the MAC of an interface's port.
func (m *Machine) portOfInterface(dataplane, name string) (mac MAC, known bool) {
	mac, known = m.ports[portKey{dataplane, m.interfaces[name].GetPort()}]
	return mac, known
}

// SetInterface follows an Interface; nil: it is gone.
func (m *Machine) SetInterface(name string, spec *api.Interface) []Action {
	if spec == nil {
		delete(m.interfaces, name)
	} else {
		m.interfaces[name] = spec
	}
	for relayName, r := range m.specs {
		if r.Interface == name {
			m.build(relayName)
		}
	}
	return m.done()
}

// SetRelay follows a DhcpRelay; nil: it is gone.
func (m *Machine) SetRelay(name string, spec *api.DhcpRelay, now time.Time) []Action {
	m.now = now
	clear(m.servers)
	before := m.specs[name]
	if before != nil {
		m.relays[before.Port] = slices.DeleteFunc(m.relays[before.Port], func(r *relay) bool { return r.name == name })
		if len(m.relays[before.Port]) == 0 {
			delete(m.relays, before.Port)
		}
	}
	if spec == nil {
		delete(m.specs, name)
		if before != nil {
			m.do(DeletePunt{puntName(name)})
		}
	} else {
		m.specs[name] = spec
		m.build(name)
		m.do(PutPunt{puntName(name), puntOf(spec, m.find(name)), name})
	}
	for _, l := range m.leasesOf(name) {
		m.settle(l)
	}
	return m.done()
}

func puntName(relay string) string { return clientKey{circuit: circuit{relay: relay}}.punt() }

func (k clientKey) punt() string {
	name := k.session()
	return strings.TrimSuffix(name, "-0.0-000000000000")
}

func puntOf(spec *api.DhcpRelay, r *relay) *api.Punt {
	p := &api.Punt{Port: spec.Port, OuterVlans: spec.OuterVlans, InnerVlans: spec.InnerVlans, Rate: spec.Rate, RatePerMac: spec.RatePerMac}
	if len(r.servers4) > 0 {
		p.Protocols = append(p.Protocols, api.PuntProtocol_DHCP4)
	}
	if r.serves6() {
		p.Protocols = append(p.Protocols, api.PuntProtocol_DHCP6)
	}
	return p
}

func (m *Machine) find(name string) *relay {
	for _, r := range m.relays[m.specs[name].GetPort()] {
		if r.name == name {
			return r
		}
	}
	return nil
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// build derives a relay from its spec and its interface.
func (m *Machine) build(name string) {
	spec := m.specs[name]
	r := &relay{name: name, spec: spec, outer: vlansOf(spec.OuterVlans), inner: vlansOf(spec.InnerVlans),
		circuitID: orElse(spec.CircuitId, "{port}:{outer}.{inner}"), remoteID: orElse(spec.RemoteId, "{mac}"),
		maxHops: uint8(orElse(spec.MaxHops, 4)), enterprise: orElse(spec.Enterprise, 3561), leasesOfCircuit: int(orElse(spec.LeasesPerCircuit, 256))}
	for _, written := range spec.Servers {
		if a, err := netip.ParseAddr(written); err == nil && a.Is4() {
			r.servers4 = append(r.servers4, a)
		} else if err == nil {
			r.servers6 = append(r.servers6, a)
		}
	}
	for _, written := range m.interfaces[spec.Interface].GetAddresses() {
		p, err := netip.ParsePrefix(written)
		switch {
		case err != nil || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4() && !r.giaddr.IsValid():
			r.giaddr = p.Addr()
		case p.Addr().Is6() && !r.link.IsValid():
			r.link = p.Addr()
		}
	}
	if a, err := netip.ParseAddr(spec.Giaddr); err == nil {
		r.giaddr = a
	}
	if a, err := netip.ParseAddr(spec.LinkAddress); err == nil {
		r.link = a
	}
	if spec.Uplink != "" {
		// RFC 6221 section 5.3: a lightweight relay agent names no link.
		r.link = netip.IPv6Unspecified()
	}
	for _, o := range spec.Options {
		of := rule{code: byte(o.Code), direction: o.Direction, action: o.Action, text: o.Text}
		if b, err := hex.DecodeString(o.Hex); err == nil && o.Text == "" {
			of.bytes = b
		}
		r.rules = append(r.rules, of)
	}
	all := slices.DeleteFunc(m.relays[spec.Port], func(other *relay) bool { return other.name == name })
	all = append(all, r)
	slices.SortFunc(all, func(a, b *relay) int { return strings.Compare(a.name, b.name) })
	m.relays[spec.Port] = all
}

// relayOf returns the relay of a circuit, or nil.
func (m *Machine) relayOf(port string, outer, inner uint16) *relay {
	for _, r := range m.relays[port] {
		if r.outer.has(outer) && r.inner.has(inner) {
			return r
		}
	}
	return nil
}

// identifier fills a template in.
func (r *relay) identifier(template string, k clientKey) string {
	return strings.NewReplacer("{relay}", k.relay, "{port}", k.port, "{outer}", strconv.Itoa(int(k.outer)),
		"{inner}", strconv.Itoa(int(k.inner)), "{mac}", k.mac.String()).Replace(template)
}

// changes are the relay's rules for messages of one direction, with their templates filled in for a client.
func (r *relay) changes(direction api.DhcpDirection, k clientKey) (all []change) {
	for _, o := range r.rules {
		switch {
		case o.direction != direction:
		case o.action == api.DhcpOptionAction_DROP_OPTION:
			all = append(all, change{code: o.code})
		default:
			value := o.bytes
			if o.text != "" {
				value = []byte(cut(r.identifier(o.text, k), 255))
			}
			all = append(all, change{o.code, value, o.action == api.DhcpOptionAction_SET_OPTION})
		}
	}
	return all
}

// changesOption reports whether servers get another value of an option than the client's.
func (r *relay) changesOption(code byte) bool {
	return slices.ContainsFunc(r.rules, func(o rule) bool { return o.code == code && o.direction == api.DhcpDirection_TO_SERVER })
}

func vrfOf(name string) string { return orElse(name, "default") }
