// SPDX-License-Identifier: Apache-2.0

package snow3g

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sluice.dev/sluice/agent/nas/testset"
)

func TestKeyStreamsAreThoseOfTheTestSets(t *testing.T) {
	for _, v := range testset.Of(t, "keystream") {
		var k, iv [4]uint32
		for i := range k {
			k[i], iv[i] = binary.BigEndian.Uint32(v.Key[4*i:]), binary.BigEndian.Uint32(v.Data[4*i:])
		}
		g := New(k, iv)
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
	for _, v := range testset.Of(t, "f8") {
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
	for _, v := range testset.Of(t, "f9") {
		if code := mac(v.Key, v.Count, v.Fresh, v.Downlink, v.Data, uint64(v.Bits)); !bytes.Equal(code[:], v.Expected) {
			t.Errorf("%x: %x, not %x", v.Key, code, v.Expected)
		}
		if v.Bits%8 != 0 || v.Fresh<<5 != 0 {
			continue
		}
		if code := MAC(v.Key, v.Count, uint8(v.Fresh>>27), v.Downlink, v.Data); !bytes.Equal(code[:], v.Expected) {
			t.Errorf("%x: %x, not %x", v.Key, code, v.Expected)
		}
	}
}
