// SPDX-License-Identifier: Apache-2.0

// TS 24.501 sections 4.4 and 9.1.1: the 5G NAS security context and security protected messages.

package nas

import (
	"crypto/subtle"
	"errors"
	"fmt"

	"sluice.dev/sluice/agent/aka"
)

// Security header types (section 9.3.1).
const (
	Plain               = 0
	Integrity           = 1
	IntegrityCiphered   = 2
	NewContext          = 3
	NewContextCiphered  = 4
	securityHeaderTypes = 5
)

// securityHeader is the size of the security header: discriminator, header type, code and sequence number.
const securityHeader = 7

// bearer is the NAS connection identifier of non-3GPP access (TS 33.501 section 6.4.2.2).
const bearer = 2

// mostCount: NAS COUNT has 24 bits.
const mostCount = 1<<24 - 1

var (
	// ErrIntegrity: the message's code is false.
	ErrIntegrity = errors.New("the message fails the integrity check")
	// ErrReplayed is an ErrIntegrity: the code is that of an earlier count.
	ErrReplayed = fmt.Errorf("%w: its NAS COUNT was received before", ErrIntegrity)
	// ErrNoContext: the message is protected by a context that does not exist.
	ErrNoContext = errors.New("the message is protected, and there is no NAS security context")
	// ErrCount: no count is left; the AMF has to authenticate again.
	ErrCount = errors.New("the NAS COUNT is used up")
)

// SecurityContext is a 5G NAS security context of a subscriber, on the subscriber's side.
type SecurityContext struct {
	// KSI is the key set identifier, 7 if the context has no keys.
	KSI  uint8
	KAMF [32]byte
	// Algorithms are those of SECURITY MODE COMMAND: ciphering in the upper half, integrity in the lower.
	Algorithms uint8
	// Uplink is the count of the next uplink message, Downlink the least that the next downlink message may have.
	Uplink, Downlink uint32
	encryption       [16]byte
	integrity        [16]byte
}

// NewSecurityContext makes a context with counts of 0. With both null algorithms it needs no key.
func NewSecurityContext(ksi uint8, kamf [32]byte, algorithms uint8) (*SecurityContext, error) {
	c := &SecurityContext{KSI: ksi, KAMF: kamf, Algorithms: algorithms}
	if algorithms>>4 >= Algorithms || algorithms&15 >= Algorithms {
		return nil, fmt.Errorf("NAS security algorithms %#02x are unknown", algorithms)
	}
	c.encryption = aka.AlgorithmKey(kamf, aka.NASEncryption, algorithms>>4)
	c.integrity = aka.AlgorithmKey(kamf, aka.NASIntegrity, algorithms&15)
	return c, nil
}

// Protect wraps a plain uplink message.
func (c *SecurityContext) Protect(header uint8, plain []byte) ([]byte, error) {
	count := c.Uplink
	if count > mostCount {
		return nil, ErrCount
	}
	c.Uplink++
	octets := make([]byte, securityHeader, securityHeader+len(plain))
	octets[0], octets[1], octets[6] = MobilityManagement, header, byte(count)
	octets = append(octets, plain...)
	if header == IntegrityCiphered || header == NewContextCiphered {
		Cipher(c.Algorithms>>4, c.encryption, count, bearer, false, octets[securityHeader:])
	}
	code := Code(c.Algorithms&15, c.integrity, count, bearer, false, octets[6:])
	copy(octets[2:], code[:])
	return octets, nil
}

// CipherContainer ciphers the value of the NAS message container of the next initial message (section 4.4.6).
func (c *SecurityContext) CipherContainer(plain []byte) []byte {
	octets := append([]byte{}, plain...)
	Cipher(c.Algorithms>>4, c.encryption, c.Uplink, bearer, false, octets)
	return octets
}

// Open verifies and deciphers a downlink message. A message is accepted once: its count must be above those that came before it
// (section 4.4.3.2).
func (c *SecurityContext) Open(octets []byte) (plain []byte, err error) {
	header, err := HeaderOf(octets)
	if err != nil || header == Plain {
		return octets, err
	}
	// The sequence number is the count's last octet. One that is less than expected belongs to the next overflow.
	count := c.Downlink&^0xff | uint32(octets[6])
	if count < c.Downlink {
		count += 0x100
	}
	if count > mostCount {
		return nil, ErrCount
	}
	if !c.coded(octets, count) {
		if count >= 0x100 && c.coded(octets, count-0x100) {
			return nil, ErrReplayed
		}
		return nil, ErrIntegrity
	}
	c.Downlink = count + 1
	plain = append([]byte{}, octets[securityHeader:]...)
	if header == IntegrityCiphered || header == NewContextCiphered {
		Cipher(c.Algorithms>>4, c.encryption, count, bearer, true, plain)
	}
	return plain, nil
}

// coded reports whether the code of a downlink message is right for a count.
func (c *SecurityContext) coded(octets []byte, count uint32) bool {
	code := Code(c.Algorithms&15, c.integrity, count, bearer, true, octets[6:])
	return subtle.ConstantTimeCompare(code[:], octets[2:6]) == 1
}

// HeaderOf is the security header type of a message that is long enough for it.
func HeaderOf(octets []byte) (header uint8, err error) {
	if len(octets) < 2 {
		return 0, ErrTruncated
	}
	header = octets[1] & 0x0f
	switch {
	case octets[0] != MobilityManagement || header == Plain:
		return Plain, nil
	case header >= securityHeaderTypes:
		return header, fmt.Errorf("%w: security header type %d", ErrProtected, header)
	case len(octets) <= securityHeader:
		return header, ErrTruncated
	}
	return header, nil
}

// Unverified returns the content of a message that is not ciphered. A SECURITY MODE COMMAND names its own algorithms.
func Unverified(octets []byte) ([]byte, error) {
	header, err := HeaderOf(octets)
	if err != nil || header == Plain {
		return octets, err
	}
	return octets[securityHeader:], nil
}
