// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/agent/ike/message"
)

func TestBothEndsOfAKeyExchangeShareASecret(t *testing.T) {
	for _, group := range []uint16{MODP2048, MODP3072, MODP4096, MODP6144, MODP8192, ECP256, ECP384, ECP521, X25519, X448, SM2, MLKEM768} {
		e, err := Begin(group)
		if err != nil {
			t.Fatal(err)
		}
		public, shared, err := Respond(group, e.Public)
		if err != nil {
			t.Fatalf("group %d: %v", group, err)
		}
		if ours, err := e.Finish(public); err != nil || !bytes.Equal(ours, shared) {
			t.Errorf("group %d: %v, %x and %x", group, err, ours, shared)
		}
		again, err := Restore(group, bytes.Clone(e.Secret))
		if err != nil || !bytes.Equal(again.Public, e.Public) {
			t.Fatalf("group %d is restored: %v", group, err)
		}
		if ours, err := again.Finish(public); err != nil || !bytes.Equal(ours, shared) {
			t.Errorf("group %d is restored: %v, %x and %x", group, err, ours, shared)
		}
		if _, err := Restore(group, nil); err == nil {
			t.Errorf("group %d is restored without a secret", group)
		}
		for name, bad := range map[string][]byte{"nothing": nil, "zeros": make([]byte, len(public)), "a byte more": append(bytes.Clone(public), 0)} {
			if group == MLKEM768 && name == "zeros" {
				continue // implicit rejection: a random secret
			}
			if _, err := e.Finish(bad); !errors.Is(err, ErrPublicValue) {
				t.Errorf("group %d takes %s: %v", group, name, err)
			}
		}
	}
}

func TestPrimesAreThoseOfRFC3526(t *testing.T) {
	primes := modpPrimes()
	for id, bits := range map[uint16]int{MODP2048: 2048, MODP3072: 3072, MODP4096: 4096, MODP6144: 6144, MODP8192: 8192} {
		p := primes[id]
		if p.BitLen() != bits || bits <= 3072 && !p.ProbablyPrime(1) {
			t.Errorf("group %d: %d bits", id, p.BitLen())
		}
	}
	// The ends of the primes as the RFC prints them.
	for id, end := range map[uint16]string{MODP2048: "15728E5A8AACAA68FFFFFFFFFFFFFFFF", MODP3072: "4B82D120A93AD2CAFFFFFFFFFFFFFFFF",
		MODP4096: "4DF435C934063199FFFFFFFFFFFFFFFF", MODP6144: "6DCC4024FFFFFFFFFFFFFFFF", MODP8192: "60C980DD98EDD3DFFFFFFFFFFFFFFFFF"} {
		if text := fmt.Sprintf("%X", primes[id]); text[len(text)-len(end):] != end {
			t.Errorf("group %d ends with %s", id, text[len(text)-len(end):])
		}
	}
}

// RFC 4231, test case 2, and the prf+ that follows from it.
func TestFunctionsAreHMAC(t *testing.T) {
	f, err := NewFunction(PRFSHA256)
	if err != nil {
		t.Fatal(err)
	}
	want := "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	if got := hex.EncodeToString(f.Sum([]byte("Jefe"), []byte("what do ya want "), []byte("for nothing?"))); got != want {
		t.Errorf("%s", got)
	}
	long := f.Expand([]byte("key"), 80, []byte("seed"))
	first := f.Sum([]byte("key"), []byte("seed"), []byte{1})
	second := f.Sum([]byte("key"), first, []byte("seed"), []byte{2})
	if !bytes.Equal(long[:32], first) || !bytes.Equal(long[32:64], second) || len(long) != 80 {
		t.Error("prf+ is not T1 | T2 | ...")
	}
}

// ciphers are proposals with each algorithm that protects IKE messages.
func ciphers() (all []string) {
	for _, a := range algorithms {
		switch {
		case a.Type != message.Encryption || a.esp:
		case AEAD(a.ID):
			all = append(all, a.word+"-prfsha256-x25519")
		default:
			for _, mac := range []string{"sha1", "sha256", "sha384", "sha512", "sm3"} {
				all = append(all, a.word+"-"+mac+"-x25519")
			}
		}
	}
	return all
}

func TestMessagesAreProtected(t *testing.T) {
	for _, text := range ciphers() {
		p, err := ParseProposal(message.ProtocolIKE, text)
		if err != nil {
			t.Fatal(err)
		}
		k, err := NewKeys(p.Transforms, []byte("seed"), []byte("nonces"), []byte("spis"))
		if err != nil {
			t.Fatal(err)
		}
		seal, err := NewProtection(p.Transforms, k.Ei, k.Ai)
		if err != nil {
			t.Fatal(err)
		}
		open, _ := NewProtection(p.Transforms, k.Ei, k.Ai)
		for _, n := range []int{0, 1, 15, 16, 17, 100, 1400} {
			plain := bytes.Repeat([]byte{7}, n)
			head := message.AppendHead(nil, message.Header{SPIi: 1, SPIr: 2, ID: 3}, message.TypeNonce, 0, 0, seal.Length(n))
			packet := seal.Seal(head, plain)
			if len(packet) != len(head)+seal.Length(n) {
				t.Fatalf("%s: %d bytes became %d, not %d", text, n, len(packet)-len(head), seal.Length(n))
			}
			if room := seal.Room(seal.Length(n)); room < n {
				t.Errorf("%s: there is room for %d of %d bytes", text, room, n)
			}
			m, err := message.Parse(packet)
			if err != nil {
				t.Fatal(err)
			}
			body := m.Payloads[0].(*message.Encrypted).Body
			if got, err := open.Open(packet, body); err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("%s: %d bytes: %v", text, n, err)
			}
			for _, at := range []int{0, 20, len(head), len(packet) - 1, len(packet) / 2} {
				packet[at] ^= 0x10
				if _, err := open.Open(packet, body); err == nil {
					t.Errorf("%s: %d bytes with a flipped bit at %d are taken", text, n, at)
				}
				packet[at] ^= 0x10
			}
		}
		for n := range 40 {
			if _, err := open.Open(make([]byte, 28+n), make([]byte, n)); err == nil {
				t.Errorf("%s: %d zeros are taken", text, n)
			}
		}
	}
}

func TestAProposalIsChosen(t *testing.T) {
	for _, c := range []struct{ name, ours, theirs, chosen string }{
		{"the same", "aes256gcm16-prfsha256-x25519", "aes256gcm16-prfsha256-x25519", "aes256gcm16-prfsha256-x25519"},
		{"ours is preferred", "aes256-aes128-sha256-x25519", "aes128-aes256-sha1-sha256-modp2048-x25519", "aes256-prfsha256-sha256-x25519"},
		{"no common group", "aes256-sha256-x25519", "aes256-sha256-modp2048", ""},
		{"an additional exchange that only one has", "aes256-sha256-x25519", "aes256-sha256-x25519-ke1_mlkem768", ""},
		{"an additional exchange", "aes256-sha256-x25519-ke1_mlkem768", "aes256-sha256-x25519-ke1_mlkem768", "aes256-prfsha256-sha256-x25519-ke1_mlkem768"},
		{"another key length", "aes256-sha256-x25519", "aes128-sha256-x25519", ""},
		{"SM", "sm4-sm3-sm2", "sm4-sm3-sm2", "sm4-prfsm3-sm3-sm2"},
	} {
		ours, err := ParseProposal(message.ProtocolIKE, c.ours)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := ParseProposal(message.ProtocolIKE, c.theirs)
		if err != nil {
			t.Fatal(err)
		}
		theirs.Number = 1
		got, ok := Choose([]message.Proposal{ours}, []message.Proposal{theirs}, 0)
		if ok != (c.chosen != "") || ok && Text(got.Transforms) != c.chosen {
			t.Errorf("%s: %v %q", c.name, ok, Text(got.Transforms))
		}
		if ok && !Answers([]message.Proposal{theirs}, got) && c.name != "an additional exchange that only one has" {
			t.Errorf("%s: the choice is no answer", c.name)
		}
	}
}

func TestMistakesInProposalsAreNamed(t *testing.T) {
	for text, words := range map[string]string{"": "not an algorithm", "aes256": "no integrity", "aes256gcm16-x25519": "no pseudorandom",
		"aes256gcm16-aes256-sha256-x25519": "two proposals", "aes256-sha256": "no key exchange", "sha256-x25519": "no encryption",
		"aes256-sha256-x25519-mlkem768": "mlkem768", "aes256-sha256-x25519-esn": "esn"} {
		if _, err := ParseProposal(message.ProtocolIKE, text); err == nil || !bytes.Contains([]byte(err.Error()), []byte(words)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if p, err := ParseProposal(message.ProtocolESP, "aes128gcm16-x25519"); err != nil || Text(p.Transforms) != "aes128gcm16-x25519-esn-noesn" {
		t.Errorf("%s, %v", Text(p.Transforms), err)
	}
}

func TestOffersOfPeersAreShownWithAlgorithmsThatAreNotSupported(t *testing.T) {
	transform := func(kind message.TransformType, id, length uint16) message.Transform {
		return message.Transform{Type: kind, ID: id, KeyLength: length}
	}
	old := message.Proposal{Transforms: []message.Transform{transform(message.Encryption, 3, 0), transform(message.Encryption, 12, 128), transform(message.Integrity, 1, 0), transform(message.PRF, 2, 0),
		transform(message.KeyExchange, 2, 0)}}
	odd := message.Proposal{Transforms: []message.Transform{transform(message.Encryption, 65535, 7), transform(message.KeyExchange, 900, 0), transform(200, 1, 0), transform(message.AdditionalKE1, 36, 0)}}
	if text := Offer([]message.Proposal{old, odd}); text != "3des-aes128-md5-prfsha1-modp1024, encryption65535/7-group900-type200.1-ke1_mlkem768" {
		t.Error(text)
	}
	if text := Offer(nil); text != "nothing" {
		t.Error(text)
	}
	for range 12 {
		odd.Transforms = append(odd.Transforms, odd.Transforms...)
	}
	if text := Offer([]message.Proposal{odd, odd, odd, odd, odd, odd}); len(text) > 4000 || text[len(text)-8:] != ", 2 more" {
		t.Error(len(text), text)
	}
}
