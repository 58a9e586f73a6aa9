// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"errors"
	"testing"

	"sluice.dev/sluice/agent/ike/message"
)

// FuzzKeyExchange gives anything as the public value of a peer to both ends of each key exchange.
func FuzzKeyExchange(f *testing.F) {
	groups := []uint16{MODP2048, ECP256, ECP384, ECP521, X25519, X448, SM2, MLKEM768}
	for i, group := range groups {
		e, err := Begin(group)
		if err != nil {
			f.Fatal(err)
		}
		public, _, err := Respond(group, e.Public)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), e.Public)
		f.Add(uint8(i), public)
		f.Add(uint8(i), make([]byte, len(public)))
		f.Add(uint8(i), bytes.Repeat([]byte{255}, len(public)))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		group := groups[int(which)%len(groups)]
		if len(b) > 2000 {
			return
		}
		if _, shared, err := Respond(group, b); err != nil && !errors.Is(err, ErrPublicValue) || err == nil && len(shared) == 0 {
			t.Fatalf("group %d: a secret of %d bytes, %v", group, len(shared), err)
		}
		e, err := Begin(group)
		if err != nil {
			t.Fatal(err)
		}
		if shared, err := e.Finish(b); err != nil && !errors.Is(err, ErrPublicValue) || err == nil && len(shared) == 0 {
			t.Fatalf("group %d: a secret of %d bytes, %v", group, len(shared), err)
		}
	})
}

// FuzzOpen gives anything as an encrypted message to each kind of protection, and lets nothing through. CBC and CTR see it behind the right ICV as well.
func FuzzOpen(f *testing.F) {
	var all []*Protection
	head := []byte("a head of a message")
	for _, text := range []string{"aes128-sha1", "aes256-sha512", "aes128ctr-sha256", "aes256gcm16-prfsha256", "aes128gcm8-prfsha256", "aes128gcm12-prfsha256", "chacha20poly1305-prfsha256", "sm4-sm3", "sm4gcm16-prfsm3"} {
		proposal, err := ParseProposal(message.ProtocolIKE, text+"-x25519")
		if err != nil {
			f.Fatal(err)
		}
		key, macKey, err := KeyLengths(proposal.Transforms)
		if err != nil {
			f.Fatal(err)
		}
		p, err := NewProtection(proposal.Transforms, bytes.Repeat([]byte{7}, key), bytes.Repeat([]byte{9}, macKey))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, p)
		f.Add(p.Seal(head, []byte("a plaintext"))[len(head):])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for i, p := range all {
			packet := append(bytes.Clone(head), body...)
			plain, err := p.Open(packet, body)
			if err == nil && !bytes.Equal(plain, []byte("a plaintext")) {
				t.Fatalf("protection %d: %q is let through", i, plain)
			}
			if p.Rest(); p.mac == nil || len(body) < p.iv()+1 {
				continue
			}
			packet = append(packet, p.sum(packet)...)
			if plain, err := p.Open(packet, packet[len(head):]); err == nil && len(plain) >= len(body) {
				t.Fatalf("protection %d: %d bytes become %d", i, len(body), len(plain))
			}
		}
	})
}
