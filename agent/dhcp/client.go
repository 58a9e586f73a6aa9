// SPDX-License-Identifier: Apache-2.0

package dhcp

import "net/netip"

// ClientPacket is an IP packet on an access port that holds UDP, as a DHCP server needs it.
type ClientPacket struct {
	MAC                  MAC
	OuterVLAN, InnerVLAN uint16
	Source, Destination  netip.AddrPort
	Payload              []byte
	back                 Circuit
}

// Circuit is how packets go back to where a frame came from.
type Circuit struct{ frame frame }

// Tags returns the VLAN tags of the circuit, with their Ethernet types and without priorities.
func (c *Circuit) Tags() []byte { return c.frame.tags }

// CircuitWithTags returns the circuit of these VLAN tags, as Tags returns them.
func CircuitWithTags(tags []byte) Circuit { return Circuit{frame{tags: tags}} }

// ParseClientPacket reads a frame with up to two VLAN tags. false: it is not UDP in one piece, or its checksum is wrong.
func ParseClientPacket(b []byte) (p ClientPacket, ok bool) {
	f, ok := parseFrame(b)
	if !ok {
		return p, false
	}
	d, ok := parseDatagram(f.etherType, f.payload)
	if !ok {
		return p, false
	}
	f.payload = nil
	return ClientPacket{f.source, f.outer, f.inner, d.source, d.destination, d.payload, Circuit{f}}, true
}

// Back is the way back.
func (p *ClientPacket) Back() Circuit { return p.back }

// ParseEthernet reads a frame with up to two VLAN tags and any payload.
func ParseEthernet(b []byte) (back Circuit, source MAC, outer, inner, etherType uint16, payload []byte, ok bool) {
	f, ok := parseFrame(b)
	if !ok {
		return back, source, 0, 0, 0, nil, false
	}
	payload, f.payload = f.payload, nil
	return Circuit{f}, f.source, f.outer, f.inner, f.etherType, payload, true
}

// Frame is a frame with an IP packet from a port's MAC.
func (c *Circuit) Frame(port, to MAC, packet []byte) []byte {
	etherType := uint16(typeIPv4)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		etherType = typeIPv6
	}
	return c.frame.answer(port, to, etherType, packet)
}

// Datagram is an IP packet with UDP.
func Datagram(source, destination netip.AddrPort, payload []byte) []byte {
	d := datagram{source, destination, payload}
	return d.packet()
}

// LinkLocal is the link-local address of a port (RFC 4291 appendix A).
func LinkLocal(m MAC) netip.Addr { return linkLocal(m) }

// Checksum6 is the checksum of an ICMPv6 message whose own is 0 (RFC 8200 section 8.1).
func Checksum6(source, destination netip.Addr, message []byte) uint16 {
	sum := add(uint32(len(message))+58, source.AsSlice())
	return ^fold(add(add(sum, destination.AsSlice()), message))
}

// VLANs is a set of VLANs; 0 is untagged.
type VLANs struct{ set vlans }

// VLANsOf reads ranges ("100-199"). Without any, the set is that of no tag.
func VLANsOf(ranges []string) VLANs { return VLANs{vlansOf(ranges)} }

// Has reports whether a VLAN is in the set.
func (v *VLANs) Has(vlan uint16) bool { return v.set.has(vlan) }
