// SPDX-License-Identifier: Apache-2.0

package zuc

import (
	"bytes"
	"encoding/binary"
	"testing"

	oracle "github.com/emmansun/gmsm/zuc"

	"sluice.dev/sluice/agent/nas/testset"
)

func TestKeyStreamsAreThoseOfTheTestSets(t *testing.T) {
	for _, v := range testset.Of(t, "keystream") {
		g := New(v.Key, [16]byte(v.Data))
		var stream []byte
		for range len(v.Expected) / 4 {
			stream = binary.BigEndian.AppendUint32(stream, g.Next())
		}
		if !bytes.Equal(stream, v.Expected) {
			t.Errorf("%x: %x, not %x", v.Key, stream, v.Expected)
		}
	}
}

// equal compares bits.
func equal(a, b []byte, bits int) bool {
	if bits%8 == 0 {
		return bytes.Equal(a[:bits/8], b[:bits/8])
	}
	last := bits / 8
	return bytes.Equal(a[:last], b[:last]) && (a[last]^b[last])>>(8-bits%8) == 0
}

func TestCiphertextsAreThoseOfTheTestSets(t *testing.T) {
	for _, v := range testset.Of(t, "eea3") {
		data := bytes.Clone(v.Data)
		Cipher(v.Key, v.Count, uint8(v.Fresh), v.Downlink, data)
		if !equal(data, v.Expected, v.Bits) {
			t.Errorf("%x: %x, not %x", v.Key, data, v.Expected)
		}
		Cipher(v.Key, v.Count, uint8(v.Fresh), v.Downlink, data)
		if !bytes.Equal(data, v.Data) {
			t.Errorf("%x: decryption gives %x", v.Key, data)
		}
	}
}

func TestCodesAreThoseOfTheTestSets(t *testing.T) {
	for _, v := range testset.Of(t, "eia3") {
		if code := mac(v.Key, v.Count, uint8(v.Fresh), v.Downlink, v.Data, v.Bits); !bytes.Equal(code[:], v.Expected) {
			t.Errorf("%x: %x, not %x", v.Key, code, v.Expected)
		}
	}
}

func TestMessagesOfAllLengthsHaveTheCodesAndCiphertextsOfAnotherImplementation(t *testing.T) {
	key := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	message := make([]byte, 130)
	for i := range message {
		message[i] = byte(i * 7)
	}
	for length := range message {
		for _, downlink := range []bool{false, true} {
			turn := uint32(direction(downlink))
			other, err := oracle.NewEEACipher(key[:], 0x12345678, 2, turn)
			if err != nil {
				t.Fatal(err)
			}
			theirs, ours := make([]byte, length), bytes.Clone(message[:length])
			other.XORKeyStream(theirs, message[:length])
			Cipher(key, 0x12345678, 2, downlink, ours)
			if !bytes.Equal(ours, theirs) {
				t.Errorf("%d octets: %x, not %x", length, ours, theirs)
			}
			hash, err := oracle.NewEIAHash(key[:], 0x12345678, 2, turn)
			if err != nil {
				t.Fatal(err)
			}
			code := MAC(key, 0x12345678, 2, downlink, message[:length])
			if expected := hash.Finish(message[:length], 8*length); !bytes.Equal(code[:], expected) {
				t.Errorf("%d octets: %x, not %x", length, code, expected)
			}
		}
	}
}
