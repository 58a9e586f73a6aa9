// SPDX-License-Identifier: Apache-2.0

// Package discovery has options of router advertisements (RFC 4861 and RFC 4191) that PPPoE and IPoE share.
package discovery

import (
	"encoding/binary"
	"net/netip"
)

const routeInformation = 24

// AppendRoutes appends a Route Information option (RFC 4191 section 2.3) of medium preference for each route. lifetime is in seconds.
func AppendRoutes(b []byte, routes []netip.Prefix, lifetime uint32) []byte {
	for _, r := range routes {
		address := r.Masked().Addr().As16()
		// The option has as many units of eight octets of the prefix as the prefix needs.
		octets := (r.Bits() + 63) / 64 * 8
		b = append(b, routeInformation, byte(1+octets/8), byte(r.Bits()), 0)
		b = binary.BigEndian.AppendUint32(b, lifetime)
		b = append(b, address[:octets]...)
	}
	return b
}
