// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"sluice.dev/sluice/agent/dhcp"
)

// indication is an outer IP packet of a UPF with an error indication.
func indication(from, peer string, teid uint32, more ...byte) []byte {
	address := netip.MustParseAddr(peer).AsSlice()
	elements := binary.BigEndian.AppendUint32([]byte{elementTEID}, teid)
	elements = append(binary.BigEndian.AppendUint16(append(elements, elementPeer), uint16(len(address))), address...)
	elements = append(elements, more...)
	b := binary.BigEndian.AppendUint16([]byte{Version1 | 2, typeErrorIndication}, uint16(4+len(elements)))
	b = append(append(b, 0, 0, 0, 0, 0, 1, 0, 0), elements...)
	local := netip.MustParseAddr("192.0.2.1")
	if netip.MustParseAddr(from).Is6() {
		local = netip.MustParseAddr("2001:db8::1")
	}
	return dhcp.Datagram(netip.AddrPortFrom(netip.MustParseAddr(from), 2152), netip.AddrPortFrom(local, 2152), b)
}

func TestAnErrorIndicationNamesATunnel(t *testing.T) {
	for _, upf := range []string{"192.0.2.2", "2001:db8::2"} {
		// A private extension behind the elements.
		end, ok := RefusedEnd(indication(upf, upf, 7001, 255, 0, 2, 1, 2))
		if !ok || end.Address.String() != upf || end.TEID != 7001 {
			t.Errorf("%v %v", end, ok)
		}
	}
	whole := indication("192.0.2.2", "192.0.2.2", 7001)
	for _, packet := range [][]byte{indication("192.0.2.2", "192.0.2.2", 0), indication("192.0.2.2", "192.0.2.2", 7001, 255, 0, 2, 1), nil,
		indication("192.0.2.3", "192.0.2.2", 7001)} {
		if end, ok := RefusedEnd(packet); ok {
			t.Errorf("%x: %v", packet, end)
		}
	}
	for length := range whole {
		if end, ok := RefusedEnd(whole[:length]); ok {
			t.Errorf("%d octets: %v", length, end)
		}
	}
	for bit := range 8 * len(whole) {
		changed := append([]byte{}, whole...)
		changed[bit/8] ^= 1 << (bit % 8)
		_, _ = RefusedEnd(changed)
	}
}

func FuzzErrorIndication(f *testing.F) {
	f.Add(indication("192.0.2.2", "192.0.2.2", 7001))
	f.Fuzz(func(_ *testing.T, packet []byte) { _, _ = RefusedEnd(packet) })
}
