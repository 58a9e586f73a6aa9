// SPDX-License-Identifier: Apache-2.0

// TS 33.501 annex C: concealment of a SUPI.

package nas

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Protection schemes (section C.1).
const (
	NullScheme = 0
	ProfileA   = 1 // X25519
	ProfileB   = 2 // P-256
)

// Concealment is how the SUPIs of a home network are concealed.
type Concealment struct {
	// Routing indicator: one to four digits; "": 0.
	Routing string
	Scheme  uint8
	// Of the schemes but the null scheme: the home network's public key and its identifier. A key of profile B may be compressed.
	KeyID uint8
	Key   []byte
}

// ErrScheme: the scheme is unknown, or the key is none of its keys.
var ErrScheme = errors.New("SUCI")

// SUCI is the mobile identity of an IMSI (TS 24.501 section 9.11.3.4). random is crypto/rand.Reader.
func (c *Concealment) SUCI(plmn PLMN, msin string, random io.Reader) ([]byte, error) {
	home, err := plmn.Octets()
	if err != nil {
		return nil, err
	}
	routing := c.Routing
	if routing == "" {
		routing = "0"
	}
	indicator, err := digits(routing)
	if err != nil || len(routing) > 4 {
		return nil, fmt.Errorf("routing indicator %q: it must have 1 to 4 digits", routing)
	}
	for len(indicator) < 2 {
		indicator = append(indicator, 0xff)
	}
	number, err := digits(msin)
	if err != nil {
		return nil, fmt.Errorf("MSIN %q: it must be digits", msin)
	}
	octets := append(append([]byte{SUPIFormatIMSI<<4 | IdentitySUCI}, home...), indicator...)
	if c.Scheme == NullScheme {
		return append(append(octets, NullScheme, 0), number...), nil
	}
	output, err := c.conceal(number, random)
	if err != nil {
		return nil, err
	}
	return append(append(octets, c.Scheme, c.KeyID), output...), nil
}

// digits as octets: the first one in the lower half, and 15 after an odd number.
func digits(text string) (octets []byte, err error) {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return nil, fmt.Errorf("%q: it must be digits", text)
		}
		if i%2 == 0 {
			octets = append(octets, 0xf0|(text[i]-'0'))
		} else {
			octets[i/2] = octets[i/2]&15 | (text[i]-'0')<<4
		}
	}
	return octets, nil
}

// conceal is the output of a scheme: ephemeral public key, ciphertext, MAC tag.
func (c *Concealment) conceal(plain []byte, random io.Reader) ([]byte, error) {
	curve := ecdh.X25519()
	key := c.Key
	switch {
	case c.Scheme == ProfileB:
		curve = ecdh.P256()
		if len(key) == 33 {
			x, y := elliptic.UnmarshalCompressed(elliptic.P256(), key)
			if x == nil {
				return nil, fmt.Errorf("%w: the home network's public key is not on the curve", ErrScheme)
			}
			key = make([]byte, 65)
			key[0] = 4
			x.FillBytes(key[1:33])
			y.FillBytes(key[33:])
		}
	case c.Scheme != ProfileA:
		return nil, fmt.Errorf("%w: protection scheme %d is unknown", ErrScheme, c.Scheme)
	}
	home, err := curve.NewPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: the home network's public key: %w", ErrScheme, err)
	}
	ephemeral, err := curve.GenerateKey(random)
	if err != nil {
		return nil, err
	}
	return concealed(ephemeral, home, plain)
}

func concealed(ephemeral *ecdh.PrivateKey, home *ecdh.PublicKey, plain []byte) ([]byte, error) {
	shared, err := ephemeral.ECDH(home)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScheme, err)
	}
	public := ephemeral.PublicKey().Bytes()
	if len(public) == 65 {
		// Compressed.
		public = append([]byte{2 | public[64]&1}, public[1:33]...)
	}
	// ANSI X9.63: encryption key, initial counter block and MAC key.
	var keys []byte
	for counter := uint32(1); len(keys) < 64; counter++ {
		h := sha256.New()
		h.Write(shared)
		h.Write(binary.BigEndian.AppendUint32(nil, counter))
		h.Write(public)
		keys = h.Sum(keys)
	}
	b, err := aes.NewCipher(keys[:16])
	if err != nil {
		return nil, err
	}
	text := make([]byte, len(plain))
	cipher.NewCTR(b, keys[16:32]).XORKeyStream(text, plain)
	h := hmac.New(sha256.New, keys[32:])
	h.Write(text)
	return append(append(public, text...), h.Sum(nil)[:8]...), nil
}
