// SPDX-License-Identifier: Apache-2.0

// Package aka is authentication and key agreement on the subscriber's side, and the network's computations for it:
// MILENAGE (TS 35.206), the keys of TS 33.501 annex A, 5G-AKA, and EAP-AKA' (RFC 9048).
package aka

import (
	"crypto/aes"
	"crypto/subtle"
)

// Milenage computes f1 to f5 of a subscriber.
type Milenage struct {
	key, opc [16]byte
}

// NewMilenage takes K and OPc.
func NewMilenage(k, opc [16]byte) *Milenage { return &Milenage{k, opc} }

// OPc is made of K and OP (TS 35.206 section 4.1).
func OPc(k, op [16]byte) (opc [16]byte) {
	encrypt(&k, &opc, &op)
	xor(&opc, &op)
	return opc
}

func encrypt(key, to, from *[16]byte) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // 16 octets are a key.
	}
	block.Encrypt(to[:], from[:])
}

func xor(to, other *[16]byte) { subtle.XORBytes(to[:], to[:], other[:]) }

// out is OUT1 to OUT5 but for the input of f1: E(rot(temp ^ OPc, r) ^ c) ^ OPc.
func (m *Milenage) out(temp *[16]byte, turn int, c byte) (out [16]byte) {
	var in [16]byte
	for i := range in {
		in[i] = temp[(i+turn)%16] ^ m.opc[(i+turn)%16]
	}
	in[15] ^= c
	encrypt(&m.key, &out, &in)
	xor(&out, &m.opc)
	return out
}

func (m *Milenage) temp(rand *[16]byte) (temp [16]byte) {
	in := *rand
	xor(&in, &m.opc)
	encrypt(&m.key, &temp, &in)
	return temp
}

// F1 computes MAC-A and MAC-S (f1 and f1*).
func (m *Milenage) F1(rand [16]byte, sqn [6]byte, amf [2]byte) (a, s [8]byte) {
	temp := m.temp(&rand)
	var in [16]byte
	for half := 0; half < 16; half += 8 {
		copy(in[half:], sqn[:])
		copy(in[half+6:], amf[:])
	}
	xor(&in, &m.opc)
	var turned, out [16]byte
	for i := range in {
		turned[i] = in[(i+8)%16]
	}
	xor(&turned, &temp)
	encrypt(&m.key, &out, &turned)
	xor(&out, &m.opc)
	return [8]byte(out[:8]), [8]byte(out[8:])
}

// F2345 computes RES, CK, IK and AK.
func (m *Milenage) F2345(rand [16]byte) (res [8]byte, ck, ik [16]byte, ak [6]byte) {
	temp := m.temp(&rand)
	out := m.out(&temp, 0, 1)
	return [8]byte(out[8:]), m.out(&temp, 4, 2), m.out(&temp, 8, 4), [6]byte(out[:6])
}

// F5Star computes the AK of a resynchronization.
func (m *Milenage) F5Star(rand [16]byte) (ak [6]byte) {
	temp := m.temp(&rand)
	out := m.out(&temp, 12, 8)
	return [6]byte(out[:6])
}
