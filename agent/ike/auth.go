// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/emmansun/gmsm/sm2"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// Hash algorithms of RFC 7427, RFC 8420; SM3 has no number of IANA.
const (
	hashSHA256   uint16 = 2
	hashSHA384   uint16 = 3
	hashSHA512   uint16 = 4
	hashIdentity uint16 = 5
	hashSM3      uint16 = 1127
)

// ourHashes are those that we verify, for SIGNATURE_HASH_ALGORITHMS.
var ourHashes = []uint16{hashSHA256, hashSHA384, hashSHA512, hashIdentity, hashSM3}

var errAuthentication = errors.New("authentication failed")

// RFC 8247 section 3.1: a signature by an RSA key without RFC 7427 is one of SHA-1, for which collisions can be made.
var errSHA1 = errors.New("an RSA signature with SHA-1 is refused: use an ECDSA key, have the peer announce SHA-2 (RFC 7427), or set allowSha1 of the IkeConnection or of the IkePeer's IpsecPolicy")

var (
	oidPSS = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 10}
	oidMGF = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 8}
	oidEd  = asn1.ObjectIdentifier{1, 3, 101, 112}
	oidSM2 = asn1.ObjectIdentifier{1, 2, 156, 10197, 1, 501}
	null   = asn1.RawValue{FullBytes: []byte{5, 0}}
)

// signatureScheme is an algorithm of RFC 7427 with a hash.
var signatureSchemes = []struct {
	rsa, ecdsa, digest asn1.ObjectIdentifier
	hash               crypto.Hash
	number             uint16
}{
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, crypto.SHA256, hashSHA256},
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12}, asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}, asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 2}, crypto.SHA384, hashSHA384},
	{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 13}, asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 4}, asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 3}, crypto.SHA512, hashSHA512},
}

type pssParameters struct {
	Hash       pkix.AlgorithmIdentifier `asn1:"explicit,tag:0"`
	MGF        pkix.AlgorithmIdentifier `asn1:"explicit,tag:1"`
	SaltLength int                      `asn1:"explicit,tag:2"`
}

func digest(h crypto.Hash, octets []byte) []byte {
	d := h.New()
	d.Write(octets)
	return d.Sum(nil)
}

// sharedKeyAuth is AUTH with a shared key (RFC 7296 section 2.15), which may be the MSK of an EAP method.
func sharedKeyAuth(f suite.Function, key, octets []byte) []byte {
	return f.Sum(f.Sum(key, []byte("Key Pad for IKEv2")), octets)
}

// sign makes an AUTH payload with a private key. hashes are those that the peer verifies; none: it does not know RFC 7427. weak: SHA-1 is allowed.
func (c *Credential) sign(octets []byte, hashes []uint16, weak bool) (*message.Auth, error) {
	has := func(n uint16) bool {
		for _, h := range hashes {
			if h == n {
				return true
			}
		}
		return false
	}
	with := func(algorithm pkix.AlgorithmIdentifier, signature []byte, err error) (*message.Auth, error) {
		if err != nil {
			return nil, err
		}
		der, err := asn1.Marshal(algorithm)
		if err != nil {
			return nil, err
		}
		return &message.Auth{Method: message.AuthSignature, Data: append(append([]byte{byte(len(der))}, der...), signature...)}, nil
	}
	switch public := c.Key.Public().(type) {
	case *rsa.PublicKey:
		for _, s := range signatureSchemes {
			if !has(s.number) {
				continue
			}
			if c.PSS {
				parameters, err := asn1.Marshal(pssParameters{pkix.AlgorithmIdentifier{Algorithm: s.digest, Parameters: null}, pkix.AlgorithmIdentifier{Algorithm: oidMGF,
					Parameters: asn1.RawValue{FullBytes: must(asn1.Marshal(pkix.AlgorithmIdentifier{Algorithm: s.digest, Parameters: null}))}}, s.hash.Size()})
				if err != nil {
					return nil, err
				}
				signature, err := c.Key.Sign(rand.Reader, digest(s.hash, octets), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: s.hash})
				return with(pkix.AlgorithmIdentifier{Algorithm: oidPSS, Parameters: asn1.RawValue{FullBytes: parameters}}, signature, err)
			}
			signature, err := c.Key.Sign(rand.Reader, digest(s.hash, octets), s.hash)
			return with(pkix.AlgorithmIdentifier{Algorithm: s.rsa, Parameters: null}, signature, err)
		}
		if !weak {
			return nil, fmt.Errorf("the peer verifies no signatures with SHA-2: %w", errSHA1)
		}
		signature, err := c.Key.Sign(rand.Reader, digest(crypto.SHA1, octets), crypto.SHA1)
		return &message.Auth{Method: message.AuthRSA, Data: signature}, err
	case *ecdsa.PublicKey:
		if sm2.IsSM2PublicKey(public) {
			if !has(hashSM3) {
				return nil, errors.New("the peer does not verify signatures of SM2")
			}
			signature, err := c.Key.Sign(rand.Reader, octets, sm2.DefaultSM2SignerOpts)
			return with(pkix.AlgorithmIdentifier{Algorithm: oidSM2}, signature, err)
		}
		strength := map[int]int{256: 0, 384: 1, 521: 2}
		at, known := strength[public.Curve.Params().BitSize]
		if !known {
			return nil, fmt.Errorf("a key on the curve %s does not sign", public.Curve.Params().Name)
		}
		if s := signatureSchemes[at]; has(s.number) {
			signature, err := c.Key.Sign(rand.Reader, digest(s.hash, octets), s.hash)
			return with(pkix.AlgorithmIdentifier{Algorithm: s.ecdsa}, signature, err)
		}
		for _, s := range signatureSchemes {
			if has(s.number) {
				signature, err := c.Key.Sign(rand.Reader, digest(s.hash, octets), s.hash)
				return with(pkix.AlgorithmIdentifier{Algorithm: s.ecdsa}, signature, err)
			}
		}
		// RFC 4754: r | s.
		s := signatureSchemes[at]
		signature, err := c.Key.Sign(rand.Reader, digest(s.hash, octets), s.hash)
		if err != nil {
			return nil, err
		}
		var pair struct{ R, S *big.Int }
		if _, err := asn1.Unmarshal(signature, &pair); err != nil {
			return nil, err
		}
		n := (public.Curve.Params().BitSize + 7) / 8
		return &message.Auth{Method: message.AuthECDSA256 + message.AuthMethod(at), Data: append(pair.R.FillBytes(make([]byte, n)), pair.S.FillBytes(make([]byte, n))...)}, nil
	case ed25519.PublicKey:
		if !has(hashIdentity) {
			return nil, errors.New("the peer does not verify signatures of Ed25519")
		}
		signature, err := c.Key.Sign(rand.Reader, octets, crypto.Hash(0))
		return with(pkix.AlgorithmIdentifier{Algorithm: oidEd}, signature, err)
	}
	return nil, fmt.Errorf("a key of type %T does not sign", c.Key.Public())
}

// must is for calls that cannot fail.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// verifySignature checks an AUTH payload with a public key. weak: SHA-1 is allowed.
func verifySignature(key crypto.PublicKey, auth *message.Auth, octets []byte, weak bool) error {
	switch auth.Method {
	case message.AuthRSA:
		public, is := key.(*rsa.PublicKey)
		if !is {
			return fmt.Errorf("%w: an RSA signature by a key of type %T", errAuthentication, key)
		}
		// RFC 7296 section 3.8 requires SHA-1. Other hashes that a peer may use are stronger.
		for _, h := range []crypto.Hash{crypto.SHA1, crypto.SHA256, crypto.SHA384, crypto.SHA512} {
			if rsa.VerifyPKCS1v15(public, h, digest(h, octets), auth.Data) != nil {
				continue
			}
			if h == crypto.SHA1 && !weak {
				return fmt.Errorf("%w: %w", errAuthentication, errSHA1)
			}
			return nil
		}
	case message.AuthECDSA256, message.AuthECDSA384, message.AuthECDSA521:
		at := int(auth.Method - message.AuthECDSA256)
		size := []int{256, 384, 521}[at]
		n := (size + 7) / 8
		public, is := key.(*ecdsa.PublicKey)
		if !is || public.Curve.Params().BitSize != size || sm2.IsSM2PublicKey(public) || len(auth.Data) != 2*n {
			return fmt.Errorf("%w: an ECDSA signature by another key", errAuthentication)
		}
		r, s := new(big.Int).SetBytes(auth.Data[:n]), new(big.Int).SetBytes(auth.Data[n:])
		if ecdsa.Verify(public, digest(signatureSchemes[at].hash, octets), r, s) {
			return nil
		}
	case message.AuthSignature:
		return verifyScheme(key, auth.Data, octets)
	default:
		return fmt.Errorf("%w: method %d", errAuthentication, auth.Method)
	}
	return fmt.Errorf("%w: the signature does not match", errAuthentication)
}

func verifyScheme(key crypto.PublicKey, b, octets []byte) error {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return fmt.Errorf("%w: the signature has no algorithm", errAuthentication)
	}
	var algorithm pkix.AlgorithmIdentifier
	if rest, err := asn1.Unmarshal(b[1:1+int(b[0])], &algorithm); err != nil || len(rest) > 0 {
		return fmt.Errorf("%w: the algorithm of the signature cannot be read", errAuthentication)
	}
	signature, good := b[1+int(b[0]):], false
	switch public := key.(type) {
	case *rsa.PublicKey:
		for _, s := range signatureSchemes {
			good = good || algorithm.Algorithm.Equal(s.rsa) && rsa.VerifyPKCS1v15(public, s.hash, digest(s.hash, octets), signature) == nil
		}
		if algorithm.Algorithm.Equal(oidPSS) {
			var p pssParameters
			if _, err := asn1.Unmarshal(algorithm.Parameters.FullBytes, &p); err != nil {
				return fmt.Errorf("%w: the parameters of RSASSA-PSS cannot be read", errAuthentication)
			}
			for _, s := range signatureSchemes {
				good = good || p.Hash.Algorithm.Equal(s.digest) && p.SaltLength >= 0 && p.SaltLength <= 128 &&
					rsa.VerifyPSS(public, s.hash, digest(s.hash, octets), signature, &rsa.PSSOptions{SaltLength: p.SaltLength, Hash: s.hash}) == nil
			}
		}
	case *ecdsa.PublicKey:
		if sm2.IsSM2PublicKey(public) {
			good = algorithm.Algorithm.Equal(oidSM2) && sm2.VerifyASN1WithSM2(public, nil, octets, signature)
			break
		}
		for _, s := range signatureSchemes {
			good = good || algorithm.Algorithm.Equal(s.ecdsa) && ecdsa.VerifyASN1(public, digest(s.hash, octets), signature)
		}
	case ed25519.PublicKey:
		good = algorithm.Algorithm.Equal(oidEd) && ed25519.Verify(public, octets, signature)
	}
	if !good {
		return fmt.Errorf("%w: the signature does not match", errAuthentication)
	}
	return nil
}

// octets are the octets that one end signs (RFC 7296 section 2.15, RFC 9242 section 3.3.2).
func (s *ikeSA) octets(initiator bool, id *message.ID) []byte {
	real, nonce, key := s.init1, s.nr, s.keys.Pi
	if !initiator {
		real, nonce, key = s.init2, s.ni, s.keys.Pr
	}
	b := append(append(append([]byte(nil), real...), nonce...), s.prf.Sum(key, id.Body())...)
	if s.intAuthI != nil {
		b = append(append(b, s.intAuthI...), s.intAuthR...)
		b = binary.BigEndian.AppendUint32(b, s.authID)
	}
	return b
}

// equalAuth compares AUTH data in constant time.
func equalAuth(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
