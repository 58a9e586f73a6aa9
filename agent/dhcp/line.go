// SPDX-License-Identifier: Apache-2.0
// Line identification of access nodes in DHCPv4 and DHCPv6.

package dhcp

import (
	"encoding/binary"
	"slices"
)

const (
	subVendor = 9
	// The Broadband Forum's enterprise number.
	broadbandForum = 3561
)

// Information4 reads option 82 (RFC 3046), and the line attributes in it (TR-101 appendix B).
func Information4(b []byte) (circuitID, remoteID []byte, attributes map[uint8][]byte) {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		value := b[2 : 2+int(b[1])]
		switch b[0] {
		case subCircuitID:
			circuitID = value
		case subRemoteID:
			remoteID = value
		case subVendor:
			attributes = attributesOf(value)
		}
		b = b[2+len(value):]
	}
	return circuitID, remoteID, attributes
}

// attributesOf reads sub-option 9 (RFC 4243): an enterprise number, a length and sub-options, for each vendor. Those of the
// Broadband Forum have the numbers of RFC 4679. An excessive length ends the list: the rest is ignored, and the
// packet is served.
func attributesOf(b []byte) map[uint8][]byte {
	found := map[uint8][]byte{}
	for len(b) >= 5 && len(b) >= 5+int(b[4]) {
		vendor, all := binary.BigEndian.Uint32(b), b[5:5+int(b[4])]
		b = b[5+len(all):]
		for vendor == broadbandForum && len(all) >= 2 && len(all) >= 2+int(all[1]) {
			found[all[0]] = all[2 : 2+int(all[1])]
			all = all[2+int(all[1]):]
		}
	}
	return found
}

// LineAttributes6 adds the line attributes of a Vendor-specific Information option (RFC 8415 section 21.17) to those found, which may be nil.
// Sub-options of the Broadband Forum have the numbers of RFC 4679, as in option 82. An excessive length ends the list: the rest is ignored, and
// the packet is served. The values are copies.
func LineAttributes6(b []byte, found map[uint8][]byte) map[uint8][]byte {
	if len(b) < 4 || binary.BigEndian.Uint32(b) != broadbandForum {
		return found
	}
	for b = b[4:]; len(b) >= 4 && len(b) >= 4+int(binary.BigEndian.Uint16(b[2:])); {
		code, value := binary.BigEndian.Uint16(b), b[4:4+int(binary.BigEndian.Uint16(b[2:]))]
		if code <= 0xff {
			if found == nil {
				found = map[uint8][]byte{}
			}
			found[uint8(code)] = slices.Clone(value)
		}
		b = b[4+len(value):]
	}
	return found
}
