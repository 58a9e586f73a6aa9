// SPDX-License-Identifier: Apache-2.0

// TS 33.501 annex D: algorithms for ciphering and integrity protection.

package nas

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"

	"sluice.dev/sluice/agent/snow3g"
	"sluice.dev/sluice/agent/zuc"
)

// Algorithms of NAS (TS 24.501 section 9.11.3.34): the numbers are the same for ciphering (5G-EA) and integrity (5G-IA).
const (
	Null       = 0
	SNOW3G     = 1
	AES        = 2
	ZUC        = 3
	Algorithms = 4 // their number
)

// Code is the message authentication code of an algorithm. count has 32 bits, bearer 5.
func Code(algorithm uint8, key [16]byte, count uint32, bearer uint8, downlink bool, message []byte) [4]byte {
	switch algorithm {
	case SNOW3G:
		return snow3g.MAC(key, count, bearer, downlink, message)
	case AES:
		head := head(count, bearer, downlink)
		return [4]byte(cmac(key, append(head[:8:8], message...))[:4])
	case ZUC:
		return zuc.MAC(key, count, bearer, downlink, message)
	}
	return [4]byte{}
}

// Cipher encrypts or decrypts in place.
func Cipher(algorithm uint8, key [16]byte, count uint32, bearer uint8, downlink bool, data []byte) {
	switch algorithm {
	case SNOW3G:
		snow3g.Cipher(key, count, bearer, downlink, data)
	case AES:
		head := head(count, bearer, downlink)
		cipher.NewCTR(block(key), head[:]).XORKeyStream(data, data)
	case ZUC:
		zuc.Cipher(key, count, bearer, downlink, data)
	}
}

// head is the first counter block of 128-NEA2. Its first half begins the message of 128-NIA2.
func head(count uint32, bearer uint8, downlink bool) (b [16]byte) {
	binary.BigEndian.PutUint32(b[:], count)
	b[4] = bearer << 3
	if downlink {
		b[4] |= 4
	}
	return b
}

func block(key [16]byte) cipher.Block {
	b, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 16 octets are a key.
	}
	return b
}

// cmac is AES-CMAC (RFC 4493).
func cmac(key [16]byte, message []byte) []byte {
	b := block(key)
	var last [16]byte
	b.Encrypt(last[:], last[:])
	subkey := double(last)
	size := len(message)
	whole := size > 0 && size%16 == 0
	if !whole {
		subkey = double(subkey)
	}
	var sum [16]byte
	for len(message) > 16 {
		for i := range sum {
			sum[i] ^= message[i]
		}
		b.Encrypt(sum[:], sum[:])
		message = message[16:]
	}
	for i := range message {
		sum[i] ^= message[i]
	}
	if !whole {
		sum[len(message)] ^= 0x80
	}
	for i := range sum {
		sum[i] ^= subkey[i]
	}
	b.Encrypt(sum[:], sum[:])
	return sum[:]
}

// double multiplies by x in the field of 2^128.
func double(b [16]byte) (out [16]byte) {
	carry := b[0] >> 7
	for i := range 15 {
		out[i] = b[i]<<1 | b[i+1]>>7
	}
	out[15] = b[15]<<1 ^ carry*0x87
	return out
}
