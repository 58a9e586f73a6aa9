// SPDX-License-Identifier: Apache-2.0

package portal

import "encoding/binary"

const (
	typeIPv4, typeIPv6, typePPPoE = 0x0800, 0x86dd, 0x8864
	pppIPv4, pppIPv6              = 0x0021, 0x0057

	ethernetHeader, tagLength, pppoeHeader = 14, 4, 8 // with the PPP protocol
)

// packetOf returns the IP packet in an Ethernet frame of IPoE or PPPoE with any tags.
func packetOf(frame []byte) (packet []byte, ok bool) {
	if len(frame) < ethernetHeader {
		return nil, false
	}
	etherType, rest := binary.BigEndian.Uint16(frame[12:]), frame[ethernetHeader:]
	for etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100 {
		if len(rest) < tagLength {
			return nil, false
		}
		etherType, rest = binary.BigEndian.Uint16(rest[2:]), rest[tagLength:]
	}
	switch etherType {
	case typeIPv4, typeIPv6:
		return rest, true
	case typePPPoE:
		if len(rest) < pppoeHeader {
			return nil, false
		}
		protocol := binary.BigEndian.Uint16(rest[6:])
		return rest[pppoeHeader:], protocol == pppIPv4 || protocol == pppIPv6
	}
	return nil, false
}
