// SPDX-License-Identifier: Apache-2.0

package nas

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

func octetsOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAlgorithmsOfAESHaveTheOutputsOfTheTestSets(t *testing.T) {
	text, err := os.ReadFile("testdata/algorithms.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		seen++
		key, data, expected := [16]byte(octetsOf(t, f[1])), octetsOf(t, f[6]), octetsOf(t, f[7])
		count, _ := strconv.ParseUint(f[2], 10, 32)
		bearer, _ := strconv.ParseUint(f[3], 10, 8)
		bits, _ := strconv.Atoi(f[5])
		if f[0] == "nia2" {
			if code := Code(AES, key, uint32(count), uint8(bearer), f[4] == "1", data); !bytes.Equal(code[:], expected) {
				t.Errorf("%s: %x, not %x", f[1], code, expected)
			}
			continue
		}
		Cipher(AES, key, uint32(count), uint8(bearer), f[4] == "1", data)
		last := bits / 8
		if !bytes.Equal(data[:last], expected[:last]) || bits%8 != 0 && (data[last]^expected[last])>>(8-bits%8) != 0 {
			t.Errorf("%s: %x, not %x", f[1], data, expected)
		}
	}
	if seen == 0 {
		t.Error("no test sets")
	}
}

// network protects a network's message: the other direction of a context.
func network(c *SecurityContext, header uint8, count uint32, plain []byte) []byte {
	octets := append([]byte{MobilityManagement, header, 0, 0, 0, 0, byte(count)}, plain...)
	if header == IntegrityCiphered || header == NewContextCiphered {
		Cipher(c.Algorithms>>4, c.encryption, count, 2, true, octets[7:])
	}
	code := Code(c.Algorithms&15, c.integrity, count, 2, true, octets[6:])
	copy(octets[2:], code[:])
	return octets
}

func TestAMessageOfTheNetworkIsAcceptedOnceAndInOrder(t *testing.T) {
	plain := []byte{MobilityManagement, 0, 67}
	for algorithm := range uint8(Algorithms) {
		c, err := NewSecurityContext(1, [32]byte{1}, algorithm<<4|algorithm)
		if err != nil {
			t.Fatal(err)
		}
		for _, count := range []uint32{0, 1, 5, 255, 256, 300, 555, 600} {
			octets := network(c, IntegrityCiphered, count, plain)
			if algorithm != Null && bytes.Equal(octets[7:], plain) {
				t.Errorf("algorithm %d does not cipher", algorithm)
			}
			got, err := c.Open(octets)
			if err != nil || !bytes.Equal(got, plain) || c.Downlink != count+1 {
				t.Errorf("algorithm %d, count %d: %x %v, next %d", algorithm, count, got, err, c.Downlink)
			}
			if algorithm == Null {
				continue
			}
			if _, err := c.Open(octets); !errors.Is(err, ErrReplayed) || !errors.Is(err, ErrIntegrity) {
				t.Errorf("algorithm %d, count %d again: %v", algorithm, count, err)
			}
		}
	}
	c, _ := NewSecurityContext(1, [32]byte{1}, 0x22)
	octets := network(c, IntegrityCiphered, 7, plain)
	for bit := range 8 * len(octets) {
		flipped := bytes.Clone(octets)
		flipped[bit/8] ^= 1 << (bit % 8)
		got, err := c.Open(flipped)
		if err == nil && flipped[0] == MobilityManagement && flipped[1]&15 != Plain && !(flipped[1] != octets[1]) || errors.Is(err, ErrReplayed) && flipped[1] == octets[1] {
			t.Errorf("bit %d: %x %v", bit, got, err)
		}
	}
	for length := range octets {
		if got, err := c.Open(octets[:length]); err == nil {
			t.Errorf("%d octets: %x", length, got)
		}
	}
}

func TestUplinkCountsGrowAndEnd(t *testing.T) {
	c, err := NewSecurityContext(1, [32]byte{1}, 0x22)
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte{MobilityManagement, 0, 67}
	first, _ := c.Protect(IntegrityCiphered, plain)
	second, _ := c.Protect(IntegrityCiphered, plain)
	if first[6] != 0 || second[6] != 1 || bytes.Equal(first[2:6], second[2:6]) || bytes.Equal(first[7:], second[7:]) {
		t.Errorf("%x %x", first, second)
	}
	c.Uplink = mostCount + 1
	if _, err := c.Protect(IntegrityCiphered, plain); !errors.Is(err, ErrCount) {
		t.Error(err)
	}
	c.Downlink = mostCount + 1
	if _, err := c.Open(network(c, IntegrityCiphered, 0, plain)); err == nil {
		t.Error("a count above the last was accepted")
	}
}

func TestAContextWithNullAlgorithmsHasCodesOfZero(t *testing.T) {
	c, err := NewSecurityContext(0, [32]byte{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, _ := c.Protect(NewContextCiphered, []byte{MobilityManagement, 0, 94})
	if hex.EncodeToString(wrapped) != "7e0400000000007e005e" {
		t.Errorf("%x", wrapped)
	}
	wrapped[3] = 1
	if _, err := c.Open(wrapped); !errors.Is(err, ErrIntegrity) {
		t.Error(err)
	}
	if _, err := NewSecurityContext(0, [32]byte{}, 0x24); err == nil {
		t.Error("an unknown algorithm was taken")
	}
}

func TestConcealedIdentitiesAreThoseOfTheTestData(t *testing.T) {
	// TS 33.501 section C.4: ephemeral private key, home network's public key, scheme input, scheme output.
	for _, c := range []struct {
		curve                            ecdh.Curve
		ephemeral, home, input, expected string
	}{
		{ecdh.X25519(), "c80949f13ebe61af4ebdbd293ea4f942696b9e815d7e8f0096bbf6ed7de62256", "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650",
			"00012080f6", "b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457dcb02352410cddd9e730ef3fa87"},
		{ecdh.X25519(), "be9eff3e9f22a4b42a3d236e7a6c500b3f2e7e0c7449988ba800d664bf4fcd97", "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650",
			"766572796c6f6e67757365726e616d6531", "977d8b2fdaa7b64aa700d04227d5b440630ea4ec50f9082273a26bb678c92222" + "8e358a1582adb15322c10e515141d2039a" + "12e1d7783a97f1ac"},
		{ecdh.P256(), "99798858a1dc6a2c68637149a4b1dbfd1fdff5addd62a2142f06699ed7602529",
			"0472da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd15a7ded52fcbb097a4ed250e036c7b9c8c7004c4eedc4f068cd7bf8d3f900e3b4",
			"00012080f6", "039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d146a33fc2716ac7dae96aa30a4d"},
		{ecdh.P256(), "90a5898bd29ffa3f261e00e980067c70a2b1b992a21f5b4fef6d4df69fe804ad",
			"0472da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd15a7ded52fcbb097a4ed250e036c7b9c8c7004c4eedc4f068cd7bf8d3f900e3b4",
			"766572796c6f6e67757365726e616d6531", "03759bb22c563d9f4a6b3c1419e543fc2f39d6823f02a9d71162b39399218b244b" + "be22d8b9f856a52ed381cd7eaf4cf2d525" + "3cddc61a0a7882eb"},
	} {
		ephemeral, err := c.curve.NewPrivateKey(octetsOf(t, c.ephemeral))
		if err != nil {
			t.Fatal(err)
		}
		home, err := c.curve.NewPublicKey(octetsOf(t, c.home))
		if err != nil {
			t.Fatal(err)
		}
		output, err := concealed(ephemeral, home, octetsOf(t, c.input))
		if err != nil || hex.EncodeToString(output) != c.expected {
			t.Errorf("%x %v, not %s", output, err, c.expected)
		}
	}
}

func TestASUCIHasTheSchemeAndTheKeyOfItsHomeNetwork(t *testing.T) {
	compressed := octetsOf(t, "0272da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd1")
	for _, c := range []struct {
		of     Concealment
		prefix string
		length int
	}{
		{Concealment{}, "0172 f410 f0ff 00 00 0001 2080 f6", 13},
		{Concealment{Routing: "0123", Scheme: ProfileB, KeyID: 27, Key: compressed}, "0172 f410 1032 02 1b", 8 + 33 + 5 + 8},
		{Concealment{Routing: "7", Scheme: ProfileA, KeyID: 1, Key: octetsOf(t, "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650")}, "0172 f410 f7ff 01 01", 8 + 32 + 5 + 8},
	} {
		suci, err := c.of.SUCI("27401", "001002086", rand.Reader)
		if err != nil || !bytes.HasPrefix(suci, octetsOf(t, strings.ReplaceAll(c.prefix, " ", ""))) || len(suci) != c.length {
			t.Errorf("%x %v, not %s", suci, err, c.prefix)
		}
	}
	for _, c := range []Concealment{{Scheme: 3}, {Scheme: ProfileA, Key: []byte{1}}, {Scheme: ProfileB, Key: make([]byte, 33)}, {Routing: "12345"}, {Routing: "x"}} {
		if suci, err := c.SUCI("27401", "1", rand.Reader); err == nil {
			t.Errorf("%+v: %x", c, suci)
		}
	}
	if suci, err := (&Concealment{}).SUCI("27401", "1x", rand.Reader); err == nil {
		t.Errorf("%x", suci)
	}
}
