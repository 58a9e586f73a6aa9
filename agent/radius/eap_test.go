// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"crypto/md5"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/eap"
)

// hidden encrypts a key as a server does (RFC 2548 section 2.4.2).
func hidden(key []byte, request authenticator, secret, salt []byte) []byte {
	plain := append([]byte{byte(len(key))}, key...)
	plain = append(plain, make([]byte, (md5.Size-len(plain)%md5.Size)%md5.Size)...)
	out, before := slices.Clone(salt), append(slices.Clone(request[:]), salt...)
	for block := range slices.Chunk(plain, md5.Size) {
		sum := md5.Sum(append(slices.Clone(secret), before...))
		for i := range block {
			sum[i] ^= block[i]
		}
		before = sum[:]
		out = append(out, sum[:]...)
	}
	return out
}

func TestKeysOfEAPAreDecrypted(t *testing.T) {
	request, secret := authenticator{1, 2, 3}, []byte("testing123")
	for _, length := range []int{0, 15, 16, 31, 32, 64} {
		key := bytes.Repeat([]byte{7}, length)
		value := hidden(key, request, secret, []byte{0x80, 9})
		if got := mppeKey(value, request, secret); !bytes.Equal(got, key) {
			t.Errorf("%d bytes: %x", length, got)
		}
		for n := range value {
			if n != 18 && n != 34 && n != 50 && mppeKey(value[:n], request, secret) != nil {
				t.Errorf("%d of %d bytes are a key", n, len(value))
			}
			mppeKey(value[:n], request, secret)
		}
	}
	// Another secret gives a length that is too long, or another key.
	if got := mppeKey(hidden([]byte("0123456789abcdef"), request, secret, []byte{0x80, 9}), request, []byte("other")); bytes.Equal(got, []byte("0123456789abcdef")) {
		t.Errorf("%x", got)
	}
}

func TestAnEAPPacketIsRelayedWholeOrNotAtAll(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123", Timeout: 60e9},
		&api.RadiusPolicy{Authentication: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: strings.Repeat("n", maxValue)}, nil)
	answers := make(chan eap.Relayed, 1)
	relay := func(length int) {
		a.Relay(eap.RelayRequest{ID: "s-1", Username: strings.Repeat("u", maxValue), Calling: netip.MustParseAddr("192.0.2.1"), Called: netip.MustParseAddr("192.0.2.2"),
			Packet: bytes.Repeat([]byte{7}, length)}, func(r eap.Relayed) { answers <- r })
	}
	relay(mostEAPMessage)
	if r := <-answers; r.Err == nil {
		t.Error("relayed without its end")
	}
	const most = 2900
	relay(most)
	buffer := make([]byte, maxLength)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	p, err := parse(buffer[:n])
	if err != nil {
		t.Fatal(err)
	}
	length := 0
	for _, one := range p.attributes() {
		if one.kind == typeEAPMessage {
			length += len(one.value)
		}
	}
	if length != most {
		t.Errorf("%d of %d bytes", length, most)
	}
}
