// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"encoding/binary"
	"net/netip"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Messages of GTP-U (TS 29.281) that the data plane hands over, as outer IP packets.

const (
	// Version 1, with the protocol type.
	Version1 = 0x30
	// versionBits of the flags.
	versionBits = 0xf0
	// optionalFields of the flags: an extension header, a sequence number or an N-PDU number is there.
	optionalFields  = 7
	extensionHeader = 4

	header               = 8
	typeErrorIndication  = 26
	elementTEID          = 16
	elementPeer          = 133
	elementHasLength     = 0x80
	ip4Header, ip6Header = 20, 40
	udpHeader            = 8
)

// End is the UPF's end of a tunnel.
type End struct {
	Address netip.Addr
	TEID    uint32
}

// Message is the GTP-U message of an outer IP packet, and who sent it. The data plane has checked the outer headers.
func Message(packet []byte) (from netip.Addr, message []byte, ok bool) {
	b := packet
	switch {
	case len(b) >= ip4Header && b[0]>>4 == 4 && b[0]&15 >= 5 && len(b) >= 4*int(b[0]&15):
		from, b = netip.AddrFrom4([4]byte(b[12:])), b[4*int(b[0]&15):]
	case len(b) >= ip6Header && b[0]>>4 == 6:
		from, b = netip.AddrFrom16([16]byte(b[8:])), b[ip6Header:]
	default:
		return from, nil, false
	}
	if len(b) < udpHeader {
		return from, nil, false
	}
	return from, b[udpHeader:], true
}

// Content is what follows the header of a message, its sequence number and its extension headers.
func Content(message []byte) ([]byte, bool) {
	if len(message) < header {
		return nil, false
	}
	flags, length := message[0], int(binary.BigEndian.Uint16(message[2:]))
	if header+length > len(message) {
		return nil, false
	}
	b := message[header : header+length]
	if flags&optionalFields == 0 {
		return b, true
	}
	if len(b) < 4 {
		return nil, false
	}
	next := b[3]
	b = b[4:]
	for flags&extensionHeader != 0 && next != 0 {
		if len(b) == 0 || b[0] == 0 || len(b) < 4*int(b[0]) {
			return nil, false
		}
		size := 4 * int(b[0])
		next, b = b[size-1], b[size:]
	}
	return b, true
}

// RemoteEnd is a tunnel's end at a peer. The same address may be of another peer in another VRF.
type RemoteEnd struct {
	VRF string
	End
}

// VRFOf returns the VRF that a packet of a peer came in by; false: its interface is gone.
func VRFOf(in service.Intent, p *service.Packet) (vrf string, ok bool) {
	st, ok := in.Get(object.Key{Kind: "Interface", Name: p.Interface})
	if !ok || st.Object == nil {
		return "", false
	}
	i, _ := st.Object.Spec.(*api.Interface)
	return object.VRFName(i.GetVrf()), true
}

// RefusedEnd reads an outer IP packet with an error indication (TS 29.281 section 7.3.1): the tunnel that its sender does not know. A UPF speaks of its own
// tunnels alone.
func RefusedEnd(packet []byte) (end End, ok bool) {
	from, message, ok := Message(packet)
	if !ok || len(message) < header || message[0]&versionBits != Version1 || message[1] != typeErrorIndication {
		return end, false
	}
	b, ok := Content(message)
	if !ok {
		return end, false
	}
	for len(b) > 0 {
		switch {
		case b[0] == elementTEID && len(b) >= 5:
			end.TEID, b = binary.BigEndian.Uint32(b[1:]), b[5:]
		case b[0]&elementHasLength != 0 && len(b) >= 3 && len(b) >= 3+int(binary.BigEndian.Uint16(b[1:])):
			value := b[3 : 3+int(binary.BigEndian.Uint16(b[1:]))]
			if b[0] == elementPeer {
				end.Address, _ = netip.AddrFromSlice(value)
			}
			b = b[3+len(value):]
		default:
			return end, false
		}
	}
	return end, end.TEID != 0 && end.Address.IsValid() && end.Address == from
}
