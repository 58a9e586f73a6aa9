// SPDX-License-Identifier: Apache-2.0

// TS 24.008 section 10.5.6.3: extended protocol configuration options; sections 10.5.7.4 and 10.5.7.4a: timers.

package nas

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Containers of protocol configuration options.
const (
	optionDNS6 = 0x0003
	optionDNS4 = 0x000d
	optionMTU  = 0x0010
)

// Options are a network's parameters of a PDU session besides its address.
type Options struct {
	DNS []netip.Addr
	// Of IPv4; 0: absent.
	MTU uint16
}

// OptionsRequest asks for all that Options has.
func OptionsRequest() []byte {
	b := []byte{0x80}
	for _, container := range []uint16{optionDNS4, optionDNS6, optionMTU} {
		b = append(binary.BigEndian.AppendUint16(b, container), 0)
	}
	return b
}

// OptionsOf reads extended protocol configuration options. Unknown and malformed ones are left out.
func OptionsOf(b []byte) (o Options) {
	if len(b) < 1 {
		return o
	}
	for b = b[1:]; len(b) >= 3 && len(b) >= 3+int(b[2]); b = b[3+int(b[2]):] {
		value := b[3 : 3+int(b[2])]
		switch container := binary.BigEndian.Uint16(b); {
		case container == optionDNS4 && len(value) == 4, container == optionDNS6 && len(value) == 16:
			if address, ok := netip.AddrFromSlice(value); ok && len(o.DNS) < 6 {
				o.DNS = append(o.DNS, address)
			}
		case container == optionMTU && len(value) == 2:
			o.MTU = binary.BigEndian.Uint16(value)
		}
	}
	return o
}

// Timer2 is a GPRS timer 2; 0: it is deactivated, or not there.
func Timer2(b []byte) time.Duration {
	if len(b) != 1 {
		return 0
	}
	unit := map[byte]time.Duration{0: 2 * time.Second, 1: time.Minute, 2: 6 * time.Minute, 7: 0}
	of, known := unit[b[0]>>5]
	if !known {
		of = time.Minute
	}
	return of * time.Duration(b[0]&31)
}

// Timer3 is a GPRS timer 3; 0: it is deactivated, or not there.
func Timer3(b []byte) time.Duration {
	if len(b) != 1 {
		return 0
	}
	units := [8]time.Duration{10 * time.Minute, time.Hour, 10 * time.Hour, 2 * time.Second, 30 * time.Second, time.Minute, 320 * time.Hour, 0}
	return units[b[0]>>5] * time.Duration(b[0]&31)
}

// StatusOf is a PDU session status (section 9.11.3.44): a bit for each PDU session identity.
func StatusOf(identities ...uint8) []byte {
	var bits uint16
	for _, identity := range identities {
		bits |= 1 << identity
	}
	return []byte{byte(bits), byte(bits >> 8)}
}

// HasSession reports whether a PDU session status has a session; without a status it does.
func HasSession(status []byte, identity uint8) bool {
	if len(status) < 2 || identity > 15 {
		return true
	}
	return (uint16(status[1])<<8|uint16(status[0]))>>identity&1 == 1
}
