// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

// advertisement of a prefix, as a UPF sends it.
func advertisement(prefix string, change func(message []byte) []byte) []byte {
	from, to := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1")
	p := netip.MustParsePrefix(prefix)
	message := []byte{routerAdvertisement, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	message = append(message, optionPrefix, 4, byte(p.Bits()), 0xc0, 0, 0, 14, 16, 0, 0, 14, 16, 0, 0, 0, 0)
	message = append(message, p.Addr().AsSlice()...)
	if change != nil {
		message = change(message)
	}
	binary.BigEndian.PutUint16(message[2:], 0)
	binary.BigEndian.PutUint16(message[2:], dhcp.Checksum6(from, to, message))
	packet := append(append([]byte{0x60, 0, 0, 0, 0, byte(len(message)), protocolICMP6, 255}, from.AsSlice()...), to.AsSlice()...)
	return append(packet, message...)
}

func TestThePrefixOfAnAdvertisement(t *testing.T) {
	at := func(i int, value byte) func([]byte) []byte {
		return func(m []byte) []byte { m[i] = value; return m }
	}
	for name, one := range map[string]struct {
		change func([]byte) []byte
		prefix string
	}{
		"as it is": {nil, "2001:db8:1::/64"}, "no prefix": {func(m []byte) []byte { return m[:16] }, ""}, "not autonomous": {at(19, 0x80), ""},
		"a prefix of 56 bits": {at(18, 56), ""}, "no valid lifetime": {func(m []byte) []byte { copy(m[20:], make([]byte, 4)); return m }, ""},
		"an option without a length": {at(17, 0), ""}, "an option that is cut": {func(m []byte) []byte { return m[:40] }, ""}, "a solicitation": {at(0, routerSolicitation), ""},
		"two prefixes": {func(m []byte) []byte { again := bytes.Clone(m[16:]); again[23]++; return append(m, again...) }, "2001:db8:1::/64"},
	} {
		p, ok := advertisedPrefix(advertisement("2001:db8:1::/64", one.change))
		if ok != (one.prefix != "") || ok && p != netip.MustParsePrefix(one.prefix) {
			t.Errorf("%s: %v %v", name, p, ok)
		}
	}
	whole := advertisement("2001:db8:1::/64", nil)
	mutate(whole, func(m []byte) {
		if p, ok := advertisedPrefix(m); ok && p != netip.MustParsePrefix("2001:db8:1::/64") {
			t.Errorf("%x", m)
		}
	})
}

// six is a line whose PDU session of the type is set up, but for its prefix.
func six(t *testing.T, kind uint8) (*bed, *user) {
	b := &bed{t: t, now: time.Unix(1e9, 0)}
	b.Line = NewLine(settings(), b)
	u := &user{}
	d := demand(77)
	d.Type = kind
	if _, err := b.Add(d, u); err != nil {
		t.Fatal(err)
	}
	b.register()
	b.giveSix(kind)
	return b, u
}

func (b *bed) giveSix(kind uint8) {
	accept := b.accept(1, 9)
	accept.PDUSessType, accept.PDUAddress = kind, []byte{kind, 2, 0, 0, 0, 0, 0, 0, 5}
	of := ngap.PDUSessionTypeIpv6
	if kind == nas.PDUSessionIPv4v6 {
		accept.PDUAddress, of = append(accept.PDUAddress, 100, 64, 9, 9), ngap.PDUSessionTypeIpv4v6
	}
	octets := b.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(b.t, accept)})
	b.Receive(&ngap.PDUSessionResourceSetupRequest{PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
		{PDUSessionID: 1, PDUSessionNASPDU: octets, PDUSessionResourceSetupRequestTransfer: transfer(b.t, of, 2)}}})
}

func TestAPDUSessionWithIPv6WaitsForItsPrefix(t *testing.T) {
	for _, kind := range []uint8{nas.PDUSessionIPv6, nas.PDUSessionIPv4v6} {
		b, u := six(t, kind)
		if u.up != nil || len(b.uplinks) != 1 {
			t.Fatalf("%+v %d", u.up, len(b.uplinks))
		}
		p := b.uplinks[0]
		if netip.AddrFrom16([16]byte(p[8:])) != netip.MustParseAddr("fe80::200:0:0:5") || p[header6] != routerSolicitation || p[7] != 255 {
			t.Errorf("%x", p)
		}
		if passed := b.pass(); passed != solicitationInterval || len(b.uplinks) != 2 {
			t.Error(passed, len(b.uplinks))
		}
		b.sessions[1].Advertised(advertisement("2001:db8:1::/64", nil))
		if u.up == nil || u.up.Prefix != netip.MustParsePrefix("2001:db8:1::/64") || u.up.IPv6() != netip.MustParseAddr("2001:db8:1:0:200:0:0:5") ||
			u.up.IPv4.IsValid() != (kind == nas.PDUSessionIPv4v6) || !b.sessions[1].timer.IsZero() {
			t.Errorf("%+v", u.up)
		}
		// The same again changes nothing.
		if b.sessions[1].Advertised(advertisement("2001:db8:1::/64", nil)); len(u.changed) != 0 || u.ended {
			t.Errorf("%+v", u)
		}
		b.sessions[1].Advertised(advertisement("2001:db8:2::/64", nil))
		if !u.ended || b.state != leaving {
			t.Error(u.err, b.state)
		}
	}
}

func TestAPDUSessionWithoutAPrefix(t *testing.T) {
	for _, kind := range []uint8{nas.PDUSessionIPv6, nas.PDUSessionIPv4v6} {
		b, u := six(t, kind)
		for range maxSolicitations {
			b.pass()
		}
		if four := kind == nas.PDUSessionIPv4v6; len(b.uplinks) != maxSolicitations || u.ended == four || (u.up != nil) != four {
			t.Errorf("type %d: %+v, %d solicitations", kind, u, len(b.uplinks))
		}
	}
}

func TestAPDUSessionThatIsSetUpAgainAsksForItsPrefix(t *testing.T) {
	b, u := six(t, nas.PDUSessionIPv6)
	b.sessions[1].Advertised(advertisement("2001:db8:1::/64", nil))
	b.saySession(&nas.PDUSessionReleaseCommand{Session: nas.Session{PDUSessionID: 1}, FiveGSMCause: []byte{causeReactivation}})
	b.giveSix(nas.PDUSessionIPv6)
	// The subscriber goes on at once.
	if len(u.changed) != 1 || len(b.uplinks) != 2 || !b.sessions[1].timer.IsZero() {
		t.Errorf("%+v %d", u, len(b.uplinks))
	}
}

func TestAPacketOfATunnelIsReadWithAllItsHeaders(t *testing.T) {
	b, _ := six(t, nas.PDUSessionIPv6)
	s := b.sessions[1]
	outer := s.tunnelPacket(b.uplinks[0])
	if teid, packet, ok := tunnelled(outer); !ok || teid != s.teid || !bytes.Equal(packet, b.uplinks[0]) {
		t.Errorf("%x", outer)
	}
	mutate(outer, func(m []byte) { tunnelled(m) })
	// Without options.
	bare := append([]byte{0x30, gtpuPDU, 0, 3, 0, 0, 0, 9}, 1, 2, 3)
	for _, outer := range []string{"192.0.2.2", "2001:db8::2"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(outer), gtpuPort)
		if teid, packet, ok := tunnelled(dhcp.Datagram(to, to, bare)); !ok || teid != 9 || !bytes.Equal(packet, []byte{1, 2, 3}) {
			t.Error(outer, teid, packet)
		}
	}
}

func FuzzAdvertisement(f *testing.F) {
	f.Add(advertisement("2001:db8:1::/64", nil))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if p, ok := advertisedPrefix(packet); ok && p.Bits() != 64 {
			t.Error(p)
		}
		tunnelled(packet)
	})
}
