// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"

	"github.com/emmansun/gmsm/sm3"

	"sluice.dev/sluice/agent/ike/message"
)

// newHash returns the hash of a pseudorandom function; nil: it is not known.
func prfHash(id uint16) func() hash.Hash {
	switch id {
	case PRFSHA1:
		return sha1.New
	case PRFSHA256:
		return sha256.New
	case PRFSHA384:
		return sha512.New384
	case PRFSHA512:
		return sha512.New
	case PRFSM3:
		return sm3.New
	}
	return nil
}

// Function is a pseudorandom function.
type Function struct{ hash func() hash.Hash }

// NewFunction returns the pseudorandom function with a number.
func NewFunction(id uint16) (Function, error) {
	if h := prfHash(id); h != nil {
		return Function{h}, nil
	}
	return Function{}, fmt.Errorf("pseudorandom function %d is not known", id)
}

// Size is the length of its output and of its keys, in bytes.
func (f Function) Size() int { return f.hash().Size() }

// Sum is prf(key, data).
func (f Function) Sum(key []byte, data ...[]byte) []byte {
	m := hmac.New(f.hash, key)
	for _, d := range data {
		m.Write(d)
	}
	return m.Sum(nil)
}

// Expand is prf+(key, seed), of a length that is at most 255 times the function's.
func (f Function) Expand(key []byte, length int, seed ...[]byte) []byte {
	var out, last []byte
	for i := byte(1); len(out) < length; i++ {
		m := hmac.New(f.hash, key)
		m.Write(last)
		for _, s := range seed {
			m.Write(s)
		}
		m.Write([]byte{i})
		last = m.Sum(nil)
		out = append(out, last...)
	}
	return bytes.Clone(out[:length])
}

// Keys are the keys of an IKE SA (RFC 7296 section 2.14).
type Keys struct {
	D      []byte
	Ai     []byte `json:",omitempty"`
	Ar     []byte `json:",omitempty"`
	Ei, Er []byte
	Pi     []byte `json:",omitempty"`
	Pr     []byte `json:",omitempty"`
}

// NewKeys derives keys from SKEYSEED. nonces is Ni | Nr, spis is SPIi | SPIr.
func NewKeys(chosen []message.Transform, seed, nonces, spis []byte) (k Keys, err error) {
	f, err := NewFunction(Get(chosen, message.PRF).ID)
	if err != nil {
		return k, err
	}
	e, a, err := KeyLengths(chosen)
	if err != nil {
		return k, err
	}
	n := f.Size()
	all := f.Expand(seed, 3*n+2*a+2*e, nonces, spis)
	take := func(length int) (key []byte) {
		key, all = all[:length:length], all[length:]
		return key
	}
	// Those of IKE_AUTH are needed for a short time only.
	auth := bytes.Clone(all[n+2*a+2*e:])
	all = bytes.Clone(all[:n+2*a+2*e])
	k = Keys{D: take(n), Ai: take(a), Ar: take(a), Ei: take(e), Er: take(e)}
	k.Pi, k.Pr = auth[:n:n], auth[n:]
	return k, nil
}

// KeyLengths returns the lengths of the keys for encryption, with the salt of an AEAD or the nonce of a counter mode, and for integrity.
func KeyLengths(chosen []message.Transform) (encryption, integrity int, err error) {
	e := Get(chosen, message.Encryption)
	switch e.ID {
	case NULL:
	case AESCBC:
		encryption = int(e.KeyLength) / 8
	case AESCTR, AESGCM8, AESGCM12, AESGCM16, AESGMAC:
		encryption = int(e.KeyLength)/8 + 4
	case ChaCha20Poly1305:
		encryption = 36
	case SM4CBC:
		encryption = 16
	case SM4GCM16:
		encryption = 20
	case SM4CCM16:
		encryption = 19
	default:
		return 0, 0, fmt.Errorf("encryption algorithm %d is not known", e.ID)
	}
	switch k := e.KeyLength; {
	case e.ID == AESCBC || e.ID == AESCTR || e.ID == AESGCM8 || e.ID == AESGCM12 || e.ID == AESGCM16 || e.ID == AESGMAC:
		if k != 128 && k != 192 && k != 256 {
			return 0, 0, fmt.Errorf("AES has no keys of %d bits", k)
		}
	case k != 0:
		return 0, 0, fmt.Errorf("encryption algorithm %d has keys of one length", e.ID)
	}
	if AEAD(e.ID) {
		return encryption, 0, nil
	}
	switch a := Get(chosen, message.Integrity); a.ID {
	case SHA1:
		integrity = 20
	case SHA256, SM3:
		integrity = 32
	case SHA384:
		integrity = 48
	case SHA512:
		integrity = 64
	default:
		return 0, 0, fmt.Errorf("integrity algorithm %d is not known", a.ID)
	}
	return encryption, integrity, nil
}

// ChildKeys are the keys of the two SAs of a child, in the order of RFC 7296 section 2.17.
type ChildKeys struct {
	// From the initiator of the exchange to its responder, and back.
	Ei, Ai, Er, Ar []byte
}

// NewChildKeys derives the keys of a child SA. shared is the secret of a new key exchange, or nil.
func NewChildKeys(prf uint16, chosen []message.Transform, d, shared, nonces []byte) (k ChildKeys, err error) {
	f, err := NewFunction(prf)
	if err != nil {
		return k, err
	}
	e, a, err := KeyLengths(chosen)
	if err != nil {
		return k, err
	}
	all := f.Expand(d, 2*(e+a), shared, nonces)
	return ChildKeys{all[:e], all[e : e+a], all[e+a : 2*e+a], all[2*e+a:]}, nil
}
