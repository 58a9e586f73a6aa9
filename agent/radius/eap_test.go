// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"crypto/md5"
	"slices"
	"testing"
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
