// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/emmansun/gmsm/sm3"
	"github.com/emmansun/gmsm/sm4"
	"golang.org/x/crypto/chacha20poly1305"

	"sluice.dev/sluice/agent/ike/message"
)

// ErrIntegrity: a message was not made with the key.
var ErrIntegrity = errors.New("integrity check failed")

// Protection protects messages of one direction of an IKE SA (RFC 7296 section 3.14).
type Protection struct {
	// The expanded key; nil while the IKE SA has no pending exchange.
	*expanded
	encryption uint16
	// A counter mode that is no AEAD.
	ctr bool
	// Bytes of the ICV that are sent.
	icv  int
	key  []byte
	salt []byte
	// The next IV of an AEAD or of a counter mode. It begins anywhere, so that a process that takes an IKE SA over repeats none.
	counter uint64
	// Without AEAD.
	mac    func() hash.Hash
	macKey []byte
}

// expanded is an expanded key, of more than a thousand bytes.
type expanded struct {
	aead  cipher.AEAD
	block cipher.Block
}

// Rest frees the expanded key until the next message.
func (p *Protection) Rest() { p.expanded = nil }

// wake expands the key.
func (p *Protection) wake() {
	if p.expanded == nil {
		p.expanded = must(expand(p.encryption, p.icv, p.key))
	}
}

// must is for calls that cannot fail after NewProtection succeeded.
func must(e *expanded, err error) *expanded {
	if err != nil {
		panic(err)
	}
	return e
}

func expand(encryption uint16, icv int, key []byte) (e *expanded, err error) {
	e = &expanded{}
	switch encryption {
	case AESGCM8, AESGCM12, AESGCM16:
		if e.block, err = aes.NewCipher(key); err != nil {
			return nil, err
		}
		if icv == 12 {
			e.aead, err = cipher.NewGCMWithTagSize(e.block, 12)
		} else {
			e.aead, err = cipher.NewGCM(e.block)
		}
	case ChaCha20Poly1305:
		e.aead, err = chacha20poly1305.New(key)
	case SM4GCM16:
		if e.block, err = sm4.NewCipher(key); err != nil {
			return nil, err
		}
		e.aead, err = cipher.NewGCM(e.block)
	case AESCBC, AESCTR:
		e.block, err = aes.NewCipher(key)
	case SM4CBC:
		e.block, err = sm4.NewCipher(key)
	default:
		return nil, fmt.Errorf("encryption algorithm %d does not protect IKE messages", encryption)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// NewProtection returns the protection by the algorithms of an IKE SA. key is for encryption, with its salt behind it.
func NewProtection(chosen []message.Transform, key, macKey []byte) (*Protection, error) {
	e := Get(chosen, message.Encryption)
	length, macLength, err := KeyLengths(chosen)
	if err != nil {
		return nil, err
	}
	if len(key) != length || len(macKey) != macLength {
		return nil, fmt.Errorf("keys of %d and %d bytes, where %d and %d are needed", len(key), len(macKey), length, macLength)
	}
	p := &Protection{icv: 16, macKey: macKey}
	var start [8]byte
	if _, err := rand.Read(start[:]); err != nil {
		return nil, err
	}
	p.counter = binary.BigEndian.Uint64(start[:])
	if AEAD(e.ID) || e.ID == AESCTR {
		p.salt, key = key[len(key)-4:], key[:len(key)-4]
	}
	switch e.ID {
	case AESGCM8:
		p.icv = 8
	case AESGCM12:
		p.icv = 12
	case AESCTR:
		p.ctr = true
	}
	p.encryption, p.key = e.ID, key
	if p.expanded, err = expand(e.ID, p.icv, key); err != nil {
		return nil, err
	}
	if p.aead == nil {
		switch Get(chosen, message.Integrity).ID {
		case SHA1:
			p.mac, p.icv = sha1.New, 12
		case SHA256:
			p.mac, p.icv = sha256.New, 16
		case SHA384:
			p.mac, p.icv = sha512.New384, 24
		case SHA512:
			p.mac, p.icv = sha512.New, 32
		case SM3:
			p.mac, p.icv = sm3.New, 16
		}
	}
	return p, nil
}

func (p *Protection) iv() int {
	p.wake()
	if p.aead != nil || p.ctr {
		return 8
	}
	return p.block.BlockSize()
}

// padding returns how many bytes follow a plaintext, with the byte that states their number.
func (p *Protection) padding(plain int) int {
	p.wake()
	if p.aead != nil || p.ctr {
		return 1
	}
	size := p.block.BlockSize()
	return size - plain%size
}

// Length is how long a plaintext becomes.
func (p *Protection) Length(plain int) int {
	return p.iv() + plain + p.padding(plain) + p.icv
}

// Room is how long a plaintext may be that becomes at most so long; less than 0: none.
func (p *Protection) Room(length int) int {
	n := length - p.iv() - p.icv
	if p.aead == nil && !p.ctr {
		n -= n % p.block.BlockSize()
	}
	return n - 1
}

// Seal encrypts a plaintext and appends it to a message's head, whose length it relies on. The head is authenticated.
func (p *Protection) Seal(head, plain []byte) []byte {
	n := p.padding(len(plain))
	body := make([]byte, len(plain)+n)
	copy(body, plain)
	body[len(body)-1] = byte(n - 1)
	var iv [16]byte
	if p.aead != nil || p.ctr {
		binary.BigEndian.PutUint64(iv[:], p.counter)
		p.counter++
	} else if _, err := rand.Read(iv[:]); err != nil {
		panic("no random numbers: " + err.Error())
	}
	b := append(head[:len(head):len(head)], iv[:p.iv()]...)
	if p.aead != nil {
		sealed := p.aead.Seal(nil, append(p.salt[:4:4], iv[:8]...), body, head)
		return append(b, sealed[:len(body)+p.icv]...)
	}
	p.crypt(true, iv[:p.iv()], body)
	b = append(b, body...)
	return append(b, p.sum(b)...)
}

func (p *Protection) crypt(encrypt bool, iv, body []byte) {
	switch {
	case p.ctr:
		// RFC 5930: nonce, IV, and a counter that begins at 1.
		cipher.NewCTR(p.block, append(append(p.salt[:4:4], iv...), 0, 0, 0, 1)).XORKeyStream(body, body)
	case encrypt:
		cipher.NewCBCEncrypter(p.block, iv).CryptBlocks(body, body)
	default:
		cipher.NewCBCDecrypter(p.block, iv).CryptBlocks(body, body)
	}
}

func (p *Protection) sum(b []byte) []byte {
	m := hmac.New(p.mac, p.macKey)
	m.Write(b)
	return m.Sum(nil)[:p.icv]
}

// Open returns the plaintext of a message whose Encrypted payload has this body: the end of the packet.
func (p *Protection) Open(packet, body []byte) ([]byte, error) {
	n := p.iv()
	if len(body) < n+1+p.icv || len(body) > len(packet) {
		return nil, ErrIntegrity
	}
	head, iv, sealed := packet[:len(packet)-len(body)], body[:n], body[n:]
	var plain []byte
	if p.aead != nil {
		var err error
		if plain, err = p.open(head, iv, sealed); err != nil {
			return nil, ErrIntegrity
		}
	} else {
		end := len(packet) - p.icv
		if !hmac.Equal(p.sum(packet[:end]), packet[end:]) {
			return nil, ErrIntegrity
		}
		plain = append([]byte(nil), sealed[:len(sealed)-p.icv]...)
		if !p.ctr && len(plain)%p.block.BlockSize() != 0 {
			return nil, fmt.Errorf("%w: %d bytes of ciphertext", message.ErrSyntax, len(plain))
		}
		p.crypt(false, iv, plain)
	}
	padding := int(plain[len(plain)-1]) + 1
	if padding > len(plain) {
		return nil, fmt.Errorf("%w: %d bytes of padding in %d", message.ErrSyntax, padding, len(plain))
	}
	return plain[:len(plain)-padding], nil
}

func (p *Protection) open(head, iv, sealed []byte) ([]byte, error) {
	nonce := append(p.salt[:4:4], iv...)
	if p.icv == p.aead.Overhead() {
		return p.aead.Open(nil, nonce, sealed, head)
	}
	// An ICV of 8 bytes, which Go's GCM does not take: the plaintext is encrypted again, and the ICVs are compared.
	n := len(sealed) - p.icv
	plain := make([]byte, n)
	cipher.NewCTR(p.block, append(nonce[:12:12], 0, 0, 0, 2)).XORKeyStream(plain, sealed[:n])
	again := p.aead.Seal(nil, nonce, plain, head)
	if subtle.ConstantTimeCompare(again[n:n+p.icv], sealed[n:]) != 1 {
		return nil, ErrIntegrity
	}
	return plain, nil
}
