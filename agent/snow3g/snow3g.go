// SPDX-License-Identifier: Apache-2.0

// Package snow3g is the stream cipher SNOW 3G (ETSI/SAGE specification of UEA2 and UIA2, document 2), and the algorithms 128-NEA1 and
// 128-NIA1 above it (TS 33.501 annex D, TS 35.215).
package snow3g

import "encoding/binary"

// sbox1 is S_R of Rijndael, sbox2 is S_Q, with the linear layer of S1 and S2: one table for each octet of a word (sections 3.3.1 and 3.3.2).
// alpha and over are the tables of MULalpha and DIValpha (sections 3.4.2 and 3.4.3).
var sbox1, sbox2, alpha, over = tables()

func multiply(a, b byte, polynomial uint16) byte {
	product := uint16(0)
	factor := uint16(a)
	for ; b != 0; b >>= 1 {
		if b&1 == 1 {
			product ^= factor
		}
		if factor <<= 1; factor&0x100 != 0 {
			factor ^= polynomial
		}
	}
	return byte(product)
}

func power(x byte, exponent int, polynomial uint16) byte {
	result := byte(1)
	for range exponent {
		result = multiply(result, x, polynomial)
	}
	return result
}

func tables() (s1, s2 [4][256]uint32, mul, div [256]uint32) {
	for i := range 256 {
		x := byte(i)
		// The inverse in the field of AES, then its affine map.
		inverse := power(x, 254, 0x11b)
		r := inverse ^ 0x63
		for turn := 1; turn <= 4; turn++ {
			r ^= inverse<<turn | inverse>>(8-turn)
		}
		// A Dickson polynomial in another field.
		q := byte(0x25)
		for _, exponent := range []int{1, 9, 13, 15, 33, 41, 45, 47, 49} {
			q ^= power(x, exponent, 0x169)
		}
		for octet := range 4 {
			s1[octet][i] = mixed(r, octet, 0x11b)
			s2[octet][i] = mixed(q, octet, 0x169)
		}
		for at, exponents := range [][2]int{{23, 16}, {245, 39}, {48, 6}, {239, 64}} {
			mul[i] |= uint32(scaled(x, exponents[0])) << (24 - 8*at)
			div[i] |= uint32(scaled(x, exponents[1])) << (24 - 8*at)
		}
	}
	return s1, s2, mul, div
}

// mixed is the contribution of one octet of a word to the result of S1 or S2.
func mixed(s byte, octet int, polynomial uint16) uint32 {
	double := multiply(s, 2, polynomial)
	word := [4]byte{s, s, s, s}
	word[octet], word[(octet+1)%4] = double, double^s
	return binary.BigEndian.Uint32(word[:])
}

// scaled is MULxPOW(x, exponent, 0xA9).
func scaled(x byte, exponent int) byte {
	for range exponent {
		carry := x >> 7
		x = x<<1 ^ carry*0xa9
	}
	return x
}

func substitute(s *[4][256]uint32, w uint32) uint32 {
	return s[0][w>>24] ^ s[1][w>>16&255] ^ s[2][w>>8&255] ^ s[3][w&255]
}

// Stream is a key stream.
type Stream struct {
	s          [16]uint32
	r1, r2, r3 uint32
}

// New begins a key stream (section 4.1) with the words k0 to k3 and IV0 to IV3.
func New(k, v [4]uint32) *Stream {
	g := &Stream{}
	for i := range 4 {
		g.s[i], g.s[4+i], g.s[8+i], g.s[12+i] = ^k[i], k[i], ^k[i], k[i]
	}
	g.s[15] ^= v[0]
	g.s[12] ^= v[1]
	g.s[10] ^= v[2]
	g.s[9] ^= v[3]
	for range 32 {
		g.shift(g.clock())
	}
	g.clock()
	g.shift(0)
	return g
}

// clock clocks the FSM (section 3.4.6).
func (g *Stream) clock() uint32 {
	f := (g.s[15] + g.r1) ^ g.r2
	r := g.r2 + (g.r3 ^ g.s[5])
	g.r3, g.r2, g.r1 = substitute(&sbox2, g.r2), substitute(&sbox1, g.r1), r
	return f
}

// shift clocks the LFSR (sections 3.4.4 and 3.4.5).
func (g *Stream) shift(f uint32) {
	v := g.s[0]<<8 ^ alpha[g.s[0]>>24] ^ g.s[2] ^ g.s[11]>>8 ^ over[g.s[11]&255] ^ f
	copy(g.s[:], g.s[1:])
	g.s[15] = v
}

// Next is the next word of the key stream.
func (g *Stream) Next() uint32 {
	z := g.clock() ^ g.s[0]
	g.shift(0)
	return z
}

// Cipher is 128-NEA1 in place: encryption and decryption are the same. bearer has 5 bits.
func Cipher(key [16]byte, count uint32, bearer uint8, downlink bool, data []byte) {
	fresh := uint32(bearer)<<27 | direction(downlink)<<26
	g := New(words(key), [4]uint32{fresh, count, fresh, count})
	var word [4]byte
	for len(data) > 0 {
		binary.BigEndian.PutUint32(word[:], g.Next())
		for i := 0; i < 4 && i < len(data); i++ {
			data[i] ^= word[i]
		}
		data = data[min(4, len(data)):]
	}
}

// words of a key: the last one is k0 (document 1, section 3.4).
func words(key [16]byte) (k [4]uint32) {
	for i := range k {
		k[3-i] = binary.BigEndian.Uint32(key[4*i:])
	}
	return k
}

func direction(downlink bool) uint32 {
	if downlink {
		return 1
	}
	return 0
}

// MAC is 128-NIA1 of a message of whole octets.
func MAC(key [16]byte, count uint32, bearer uint8, downlink bool, message []byte) [4]byte {
	return mac(key, count, uint32(bearer)<<27, downlink, message, uint64(8*len(message)))
}

// mac is f9 of UIA2 (document 1, section 4) for bits of a message.
func mac(key [16]byte, count, fresh uint32, downlink bool, message []byte, bits uint64) (code [4]byte) {
	turn := direction(downlink)
	g := New(words(key), [4]uint32{fresh ^ turn<<15, count ^ turn<<31, fresh, count})
	p := uint64(g.Next())<<32 | uint64(g.Next())
	q := uint64(g.Next())<<32 | uint64(g.Next())
	z5 := g.Next()
	var eval uint64
	for rest := bits; rest > 0; {
		var block [8]byte
		copy(block[:], message)
		word := binary.BigEndian.Uint64(block[:])
		if rest < 64 {
			word &= ^uint64(0) << (64 - rest)
		}
		eval = multiply64(eval^word, p)
		rest -= min(rest, 64)
		message = message[min(8, len(message)):]
	}
	eval = multiply64(eval^bits, q)
	binary.BigEndian.PutUint32(code[:], uint32(eval>>32)^z5)
	return code
}

// multiply64 is MUL(v, p, 0x1b) (document 1, section 4.3.3).
func multiply64(v, p uint64) (product uint64) {
	for ; p != 0; p >>= 1 {
		if p&1 == 1 {
			product ^= v
		}
		carry := v >> 63
		v = v<<1 ^ carry*0x1b
	}
	return product
}
