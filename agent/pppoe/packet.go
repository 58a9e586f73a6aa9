// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"encoding/binary"
	"slices"

	"sluice.dev/sluice/agent/subscriber"
)

const (
	typeDiscovery = 0x8863
	typeSession   = 0x8864
	vlanBits      = 0x0fff
	header        = 6
	versionType   = 0x11
	mostTags      = 64
	// A PADO or PADS may not be longer than this (RFC 2516 section 5).
	mostPayload = 1484
)

// Codes of RFC 2516 section 5.
const (
	codeSession = 0x00
	codePADI    = 0x09
	codePADO    = 0x07
	codePADR    = 0x19
	codePADS    = 0x65
	codePADT    = 0xa7
)

// Tags of RFC 2516 appendix A, RFC 4638 and RFC 4937.
const (
	tagEnd              = 0x0000
	tagServiceName      = 0x0101
	tagACName           = 0x0102
	tagHostUniq         = 0x0103
	tagACCookie         = 0x0104
	tagVendor           = 0x0105
	tagRelaySessionID   = 0x0110
	tagMaxPayload       = 0x0120
	tagServiceNameError = 0x0201
	tagACSystemError    = 0x0202
	tagGenericError     = 0x0203
)

// The Broadband Forum's vendor id and its sub-options (TR-101 appendix A, RFC 4679).
const (
	broadbandForum = 3561
	lineCircuitID  = 1
	lineRemoteID   = 2
)

// frame is an Ethernet frame with up to two VLAN tags.
type frame struct {
	destination, source subscriber.MAC
	// The received tags without priorities, for the answer's header.
	tags         vlanTags
	outer, inner uint16
	etherType    uint16
	payload      []byte
}

type vlanTags struct {
	bytes  [8]byte
	length uint8
}

func (t *vlanTags) slice() []byte { return t.bytes[:t.length] }

func isTag(etherType uint16) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100
}

// parseFrame reads a frame as the data plane does: a tag of VLAN 0 is a priority and no circuit.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < 14 {
		return f, false
	}
	f.destination, f.source = subscriber.MAC(b[:6]), subscriber.MAC(b[6:12])
	var vlans [2]uint16
	at, count := 12, 0
	for isTag(binary.BigEndian.Uint16(b[at:])) {
		if count == 2 || len(b) < at+6 {
			return f, false
		}
		vlans[count] = binary.BigEndian.Uint16(b[at+2:]) & vlanBits
		copy(f.tags.bytes[f.tags.length:], []byte{b[at], b[at+1], byte(vlans[count] >> 8), byte(vlans[count])})
		f.tags.length += 4
		at, count = at+4, count+1
	}
	f.outer, f.inner = vlans[0], vlans[1]
	if f.outer == 0 {
		f.outer, f.inner = f.inner, 0
	}
	f.etherType, f.payload = binary.BigEndian.Uint16(b[at:]), b[at+2:]
	return f, true
}

// build is a PPPoE frame.
func build(destination, source subscriber.MAC, tags *vlanTags, etherType uint16, code byte, session uint16, payload []byte) []byte {
	b := make([]byte, 0, 14+len(tags.bytes)+header+len(payload))
	b = append(append(append(b, destination[:]...), source[:]...), tags.slice()...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	b = append(b, versionType, code)
	b = binary.BigEndian.AppendUint16(b, session)
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	return append(b, payload...)
}

// parsePPPoE reads the bytes behind the Ethernet type. Bytes behind the length are padding.
func parsePPPoE(b []byte) (code byte, session uint16, payload []byte, ok bool) {
	if len(b) < header || b[0] != versionType {
		return 0, 0, nil, false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-header {
		return 0, 0, nil, false
	}
	return b[1], binary.BigEndian.Uint16(b[2:]), b[header : header+length], true
}

// discovery is the tags of a discovery packet. It refers to the packet.
type discovery struct {
	services [][]byte
	// As received, with type and length: an answer repeats them. Their content is opaque and may be empty or of any length.
	hostUniq, relay []byte
	cookie          []byte
	maxPayload      uint16
	// Line identification: the tags' values behind the vendor. An access node replaces the host's tag (TR-101 section 3.9.2), so one is the most.
	line  []byte
	lines int
}

// line is what an access node says of a line.
type line struct {
	circuitID, remoteID []byte
	attributes          map[uint8][]byte
}

// parseTags reads tags in any order.
func parseTags(b []byte) (d discovery, ok bool) {
	for count := 0; len(b) > 0; count++ {
		if len(b) < 4 || count == mostTags {
			return d, false
		}
		kind, length := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if kind == tagEnd {
			return d, true
		}
		if length > len(b)-4 {
			return d, false
		}
		whole, value := b[:4+length], b[4:4+length]
		b = b[4+length:]
		switch kind {
		case tagServiceName:
			d.services = append(d.services, value)
		case tagHostUniq:
			d.hostUniq = whole
		case tagRelaySessionID:
			d.relay = whole
		case tagACCookie:
			d.cookie = value
		case tagMaxPayload:
			if length == 2 {
				d.maxPayload = binary.BigEndian.Uint16(value)
			}
		case tagVendor:
			if length >= 4 && binary.BigEndian.Uint32(value) == broadbandForum {
				d.line = value[4:]
				d.lines++
			}
		}
	}
	return d, true
}

// parseLine reads line identification, and copies it. A sub-option that is longer than its tag ends it: the rest is ignored, and the
// packet is served.
func parseLine(b []byte) (l line) {
	for b = slices.Clone(b); len(b) >= 2 && int(b[1]) <= len(b)-2; b = b[2+int(b[1]):] {
		value := b[2 : 2+int(b[1])]
		switch b[0] {
		case lineCircuitID:
			l.circuitID = value
		case lineRemoteID:
			l.remoteID = value
		default:
			if l.attributes == nil {
				l.attributes = map[uint8][]byte{}
			}
			l.attributes[b[0]] = value
		}
	}
	return l
}

func appendTag(b []byte, kind uint16, value []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}
