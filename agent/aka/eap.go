// SPDX-License-Identifier: Apache-2.0

// RFC 9048: EAP-AKA' on the peer's side, full authentication without pseudonyms, as 5G uses it (TS 33.501 section 6.1.3.1, annex F).

package aka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// EAP codes and the type of EAP-AKA'.
const (
	eapRequest  = 1
	eapResponse = 2
	eapSuccess  = 3
	eapFailure  = 4
	typePrime   = 50
	typeNotify  = 2
	typeNAK     = 3
)

// Subtypes and attributes (RFC 4187 section 11, RFC 9048 section 3).
const (
	subtypeChallenge    = 1
	subtypeReject       = 2
	subtypeSynch        = 4
	subtypeIdentity     = 5
	subtypeNotification = 12
	subtypeClientError  = 14

	atRAND       = 1
	atAUTN       = 2
	atRES        = 3
	atAUTS       = 4
	atMAC        = 11
	atNotify     = 12
	atIdentity   = 14
	atError      = 22
	atKDFInput   = 23
	atKDF        = 24
	atBidding    = 136
	skippable    = 128
	keyDerivator = 1
)

// ErrEAP: a packet of EAP cannot be read, or comes where none is expected.
var ErrEAP = errors.New("malformed EAP packet")

// Keys of EAP-AKA'.
type Keys struct {
	Encr      [16]byte
	Aut, Re   [32]byte
	MSK, EMSK [64]byte
}

// PrimeKeys derives the keys (RFC 9048 section 3.3).
func PrimeKeys(ckPrime, ikPrime [16]byte, identity string) (k Keys) {
	key := append(ikPrime[:], ckPrime[:]...)
	seed := append([]byte("EAP-AKA'"), identity...)
	var out, last []byte
	for counter := byte(1); len(out) < 208; counter++ {
		h := hmac.New(sha256.New, key)
		h.Write(last)
		h.Write(seed)
		h.Write([]byte{counter})
		last = h.Sum(nil)
		out = append(out, last...)
	}
	copy(k.Encr[:], out)
	copy(k.Aut[:], out[16:])
	copy(k.Re[:], out[48:])
	copy(k.MSK[:], out[80:])
	copy(k.EMSK[:], out[144:])
	return k
}

// Peer is one authentication by EAP-AKA'. Its methods are called one at a time.
type Peer struct {
	usim     *USIM
	identity string
	// network is the serving network name.
	network string
	keys    *Keys
	// functions are the key derivation functions of the first challenge; chosen: we asked for another one than the first.
	functions []uint16
	chosen    bool
	kausf     [32]byte
	done      bool
}

// NewPeer begins an authentication. The keys are bound to identity, the SUPI (TS 33.501 annex F.3).
func NewPeer(u *USIM, identity, network string) *Peer {
	return &Peer{usim: u, identity: identity, network: network}
}

// KAUSF is there after a challenge was answered (TS 33.501 section 6.1.3.1); done: EAP success came.
func (p *Peer) KAUSF() (kausf [32]byte, done bool) { return p.kausf, p.done }

type attribute struct {
	kind  byte
	value []byte
}

// Receive takes a packet of the server and returns the answer; nil: the packet has none. An error ends the authentication; the answer to
// it, if there is one, is sent all the same.
func (p *Peer) Receive(packet []byte) (answer []byte, err error) {
	if len(packet) < 4 || int(binary.BigEndian.Uint16(packet[2:])) != len(packet) {
		return nil, fmt.Errorf("%w: length", ErrEAP)
	}
	code, identifier := packet[0], packet[1]
	switch {
	case code == eapSuccess && p.keys != nil:
		p.done = true
		return nil, nil
	case code == eapFailure:
		return nil, errors.New("the network sends EAP failure")
	case code != eapRequest || len(packet) < 5:
		return nil, fmt.Errorf("%w: code %d", ErrEAP, code)
	case packet[4] == typeNotify:
		return []byte{eapResponse, identifier, 0, 5, typeNotify}, nil
	case packet[4] != typePrime:
		return []byte{eapResponse, identifier, 0, 6, typeNAK, typePrime}, nil
	case len(packet) < 8:
		return nil, fmt.Errorf("%w: truncated", ErrEAP)
	}
	attributes, err := attributesOf(packet[8:])
	if err != nil {
		return p.clientError(identifier), err
	}
	switch packet[5] {
	case subtypeChallenge:
		return p.challenge(packet, attributes)
	case subtypeIdentity:
		value := binary.BigEndian.AppendUint16(nil, uint16(len(p.identity)))
		return message(identifier, subtypeIdentity, attribute{atIdentity, append(value, p.identity...)}), nil
	case subtypeNotification:
		return p.notified(packet, attributes)
	}
	return p.clientError(identifier), fmt.Errorf("%w: subtype %d", ErrEAP, packet[5])
}

func (p *Peer) clientError(identifier byte) []byte {
	return message(identifier, subtypeClientError, attribute{atError, []byte{0, 0}})
}

// beforeChallenge is the P bit of AT_NOTIFICATION.
const beforeChallenge = 0x40

// notified answers a notification (RFC 4187 sections 6.1, 9.10 and 9.11). After the challenge it has AT_MAC, and so has the answer; before it neither. EAP failure follows.
func (p *Peer) notified(packet []byte, attributes []attribute) ([]byte, error) {
	identifier := packet[1]
	code, mac := has(attributes, atNotify), has(attributes, atMAC)
	switch {
	case len(code) != 2:
		return p.clientError(identifier), fmt.Errorf("%w: the notification lacks its code", ErrEAP)
	case code[0]&beforeChallenge != 0 && p.keys == nil && mac == nil:
		return message(identifier, subtypeNotification), nil
	case code[0]&beforeChallenge != 0 || p.keys == nil:
		return p.clientError(identifier), fmt.Errorf("%w: a notification of another phase", ErrEAP)
	case !verified(p.keys, packet, attributes):
		return p.clientError(identifier), errors.New("the notification has another MAC, or none")
	}
	return p.signed(message(identifier, subtypeNotification, attribute{atMAC, make([]byte, 18)})), nil
}

// attributesOf: unknown ones that may not be skipped are an error (RFC 4187 section 8.1), and so are repeated ones but AT_KDF (section 10.1; RFC 9048 section 3.2).
func attributesOf(b []byte) (all []attribute, err error) {
	for len(b) > 0 {
		if len(b) < 4 || b[1] == 0 || int(b[1])*4 > len(b) {
			return nil, fmt.Errorf("%w: attribute", ErrEAP)
		}
		size := int(b[1]) * 4
		known := slices.Contains([]byte{atRAND, atAUTN, atRES, atAUTS, 10, atMAC, atNotify, 13, atIdentity, 17, atError, atKDFInput, atKDF}, b[0])
		if !known && b[0] < skippable {
			return nil, fmt.Errorf("%w: unknown attribute %d", ErrEAP, b[0])
		}
		if known && b[0] != atKDF && has(all, b[0]) != nil {
			return nil, fmt.Errorf("%w: attribute %d is repeated", ErrEAP, b[0])
		}
		all = append(all, attribute{b[0], b[2:size]})
		b = b[size:]
	}
	return all, nil
}

func has(all []attribute, kind byte) []byte {
	for _, a := range all {
		if a.kind == kind {
			return a.value
		}
	}
	return nil
}

// message is an EAP response. Values are padded to a multiple of four octets.
func message(identifier, subtype byte, attributes ...attribute) []byte {
	b := []byte{eapResponse, identifier, 0, 0, typePrime, subtype, 0, 0}
	for _, a := range attributes {
		size := (2 + len(a.value) + 3) / 4 * 4
		b = append(append(b, a.kind, byte(size/4)), a.value...)
		b = append(b, make([]byte, size-2-len(a.value))...)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

// signed writes AT_MAC, which is the last attribute.
func (p *Peer) signed(b []byte) []byte {
	copy(b[len(b)-16:], macOf(p.keys, b))
	return b
}

// macOf is of a packet whose AT_MAC is zero (RFC 9048 section 3.4).
func macOf(k *Keys, packet []byte) []byte {
	h := hmac.New(sha256.New, k.Aut[:])
	h.Write(packet)
	return h.Sum(nil)[:16]
}

// verified checks AT_MAC of a packet, which is elsewhere than at its end perhaps.
func verified(k *Keys, packet []byte, attributes []attribute) bool {
	zeroed, at := slices.Clone(packet), 8
	for _, a := range attributes {
		if a.kind == atMAC {
			if len(a.value) != 18 {
				return false
			}
			clear(zeroed[at+4 : at+20])
		}
		at += 2 + len(a.value)
	}
	mac := has(attributes, atMAC)
	return mac != nil && hmac.Equal(macOf(k, zeroed), mac[2:])
}

// renegotiated reports whether a list of key derivation functions may come after the first one: it is the same, or, once we have chosen, our choice and the same. In a first
// list none is repeated (RFC 9048 section 3.2).
func (p *Peer) renegotiated(functions []uint16) bool {
	switch {
	case p.chosen:
		return functions[0] == keyDerivator && slices.Equal(functions[1:], p.functions)
	case p.functions != nil:
		return slices.Equal(functions, p.functions)
	}
	for i, one := range functions {
		if slices.Contains(functions[:i], one) {
			return false
		}
	}
	return true
}

func (p *Peer) challenge(packet []byte, attributes []attribute) ([]byte, error) {
	identifier := packet[1]
	rand, autn, mac := has(attributes, atRAND), has(attributes, atAUTN), has(attributes, atMAC)
	input := has(attributes, atKDFInput)
	var functions []uint16
	for _, a := range attributes {
		if a.kind == atKDF {
			functions = append(functions, binary.BigEndian.Uint16(a.value))
		}
	}
	if len(rand) != 18 || len(autn) != 18 || len(mac) != 18 || len(input) < 2 || int(binary.BigEndian.Uint16(input)) > len(input)-2 || len(functions) == 0 {
		return p.clientError(identifier), fmt.Errorf("%w: the challenge lacks an attribute", ErrEAP)
	}
	name := string(input[2 : 2+binary.BigEndian.Uint16(input)])
	reject := func(err error) ([]byte, error) { return message(identifier, subtypeReject), err }
	// The network's name must be the name of the access (RFC 9048 section 3.1).
	if name != p.network {
		return reject(fmt.Errorf("the challenge is for the network %.64q", name))
	}
	if !p.renegotiated(functions) {
		// As a false AT_MAC.
		return p.clientError(identifier), fmt.Errorf("%w: the list of key derivation functions has a repeated one, or is another one than before", ErrEAP)
	}
	if p.functions == nil {
		p.functions = functions
	}
	if functions[0] != keyDerivator {
		if !slices.Contains(functions, keyDerivator) {
			return reject(errors.New("the challenge has no key derivation function that is known"))
		}
		p.chosen = true
		return message(identifier, subtypeChallenge, attribute{atKDF, []byte{0, keyDerivator}}), nil
	}
	result, auts, err := p.usim.Authenticate([16]byte(rand[2:]), [16]byte(autn[2:]), true)
	switch {
	case errors.Is(err, ErrSynch):
		return message(identifier, subtypeSynch, attribute{atAUTS, auts[:]}), nil
	case err != nil:
		return reject(err)
	}
	ckPrime, ikPrime := Prime(result.CK, result.IK, name, result.SQNxAK)
	keys := PrimeKeys(ckPrime, ikPrime, p.identity)
	if !verified(&keys, packet, attributes) {
		return p.clientError(identifier), errors.New("the challenge has another MAC")
	}
	p.keys = &keys
	p.kausf = [32]byte(keys.EMSK[:32])
	// The length of RES is in bits.
	answer := message(identifier, subtypeChallenge, attribute{atRES, append([]byte{0, 64}, result.RES[:]...)}, attribute{atMAC, make([]byte, 18)})
	return p.signed(answer), nil
}
