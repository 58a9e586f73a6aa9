// SPDX-License-Identifier: Apache-2.0

// TS 33.501 annex A: the key hierarchy. TS 33.220 annex B: the derivation function.

package aka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// derive is the KDF: HMAC-SHA-256 of FC and the parameters, each with its length.
func derive(key []byte, fc byte, parameters ...[]byte) (out [32]byte) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte{fc})
	for _, p := range parameters {
		h.Write(p)
		h.Write([]byte{byte(len(p) >> 8), byte(len(p))})
	}
	h.Sum(out[:0])
	return out
}

func join(ck, ik [16]byte) []byte { return append(ck[:], ik[:]...) }

// KAUSF of 5G-AKA (A.2). network is the serving network name, sqnAK the first six octets of AUTN.
func KAUSF(ck, ik [16]byte, network string, sqnAK [6]byte) [32]byte {
	return derive(join(ck, ik), 0x6a, []byte(network), sqnAK[:])
}

// Prime computes CK' and IK' (A.3).
func Prime(ck, ik [16]byte, network string, sqnAK [6]byte) (ckPrime, ikPrime [16]byte) {
	out := derive(join(ck, ik), 0x20, []byte(network), sqnAK[:])
	return [16]byte(out[:16]), [16]byte(out[16:])
}

// ResStar computes RES* and XRES* (A.4).
func ResStar(ck, ik [16]byte, network string, rand [16]byte, res [8]byte) [16]byte {
	out := derive(join(ck, ik), 0x6b, []byte(network), rand[:], res[:])
	return [16]byte(out[16:])
}

// HResStar computes HRES* and HXRES* (A.5).
func HResStar(rand, resStar [16]byte) [16]byte {
	out := sha256.Sum256(append(rand[:], resStar[:]...))
	return [16]byte(out[16:])
}

// KSEAF (A.6).
func KSEAF(kausf [32]byte, network string) [32]byte { return derive(kausf[:], 0x6c, []byte(network)) }

// KAMF (A.7). supi is an IMSI as digits, or a NAI.
func KAMF(kseaf [32]byte, supi string, abba []byte) [32]byte {
	return derive(kseaf[:], 0x6d, []byte(supi), abba)
}

// Algorithm type distinguishers of NAS (table A.8-1).
const (
	NASEncryption = 1
	NASIntegrity  = 2
)

// AlgorithmKey is KNASenc or KNASint (A.8).
func AlgorithmKey(kamf [32]byte, distinguisher, algorithm byte) [16]byte {
	out := derive(kamf[:], 0x69, []byte{distinguisher}, []byte{algorithm})
	return [16]byte(out[16:])
}

// AccessKey is KN3IWF or KWAGF (A.9): count is the uplink NAS COUNT.
func AccessKey(kamf [32]byte, count uint32) [32]byte {
	return derive(kamf[:], 0x6e, binary.BigEndian.AppendUint32(nil, count), []byte{2})
}
