// SPDX-License-Identifier: Apache-2.0

package eap

import (
	"crypto/des"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf16"

	//lint:ignore SA1019 RFC 2759 is made of it.
	"golang.org/x/crypto/md4"
)

// EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2) with RFC 2759, and its key by RFC 3079.

// Operations.
const (
	opChallenge byte = 1
	opResponse  byte = 2
	opSuccess   byte = 3
	opFailure   byte = 4
)

const (
	mschapHead     = 4
	responseLength = 49
)

// mschapv2 is a conversation with a peer that knows a password.
type mschapv2 struct {
	name     string
	password func(username string) (password string, known bool)

	// The type of the response that is expected, and the operation.
	expected, operation byte
	identifier          byte
	challenge           [16]byte
	identity            string
	msk                 []byte
	failure             error
}

// NewMSCHAPv2 returns a conversation that asks for the peer's name, and for a proof that it knows its password. name is ours.
func NewMSCHAPv2(name string, password func(username string) (password string, known bool)) Conversation {
	return &mschapv2{name: name, password: password}
}

func (m *mschapv2) request(kind, operation byte, value []byte) Step {
	m.identifier++
	m.expected, m.operation = kind, operation
	data := value
	if kind == TypeMSCHAPv2 {
		data = append([]byte{operation, m.identifier, 0, 0}, value...)
		binary.BigEndian.PutUint16(data[2:], uint16(len(data)))
	}
	return Step{Packet: Packet{Request, m.identifier, kind, data}.Append(nil)}
}

// Next implements Conversation.
func (m *mschapv2) Next(packet []byte, done func(Step)) {
	if packet == nil {
		done(m.request(TypeIdentity, 0, nil))
		return
	}
	done(m.next(packet))
}

func (m *mschapv2) next(packet []byte) Step {
	p, err := Parse(packet)
	switch {
	case err != nil:
		return refuse(m.identifier, m.identity, err)
	case p.Code != Response || p.Identifier != m.identifier:
		return refuse(m.identifier, m.identity, fmt.Errorf("%w: code %d, identifier %d", ErrPacket, p.Code, p.Identifier))
	case p.Type == TypeNak:
		return refuse(m.identifier, m.identity, errors.New("the peer does not use EAP-MSCHAPv2"))
	case p.Type != m.expected:
		return refuse(m.identifier, m.identity, fmt.Errorf("%w: type %d", ErrPacket, p.Type))
	case p.Type == TypeIdentity:
		m.identity = printable(string(p.Data))
		if _, err := rand.Read(m.challenge[:]); err != nil {
			return refuse(m.identifier, m.identity, err)
		}
		return m.request(TypeMSCHAPv2, opChallenge, append(append([]byte{16}, m.challenge[:]...), m.name...))
	case len(p.Data) == 0:
		return refuse(m.identifier, m.identity, ErrPacket)
	}
	switch {
	case m.operation == opChallenge && p.Data[0] == opResponse:
		return m.verify(p.Data)
	case m.operation == opSuccess && p.Data[0] == opSuccess:
		return Step{Packet: Packet{Code: Success, Identifier: m.identifier}.Append(nil), Success: true, MSK: m.msk, Username: m.identity}
	case m.operation == opFailure:
		return refuse(m.identifier, m.identity, m.failure)
	}
	return refuse(m.identifier, m.identity, fmt.Errorf("%w: operation %d", ErrPacket, p.Data[0]))
}

// verify checks the peer's response to our challenge.
func (m *mschapv2) verify(b []byte) Step {
	if len(b) < mschapHead+1+responseLength || int(binary.BigEndian.Uint16(b[2:])) != len(b) || b[mschapHead] != responseLength {
		return refuse(m.identifier, m.identity, fmt.Errorf("%w: a response of %d bytes", ErrPacket, len(b)))
	}
	value, name := b[mschapHead+1:mschapHead+1+responseLength], string(b[mschapHead+1+responseLength:])
	peer, response := [16]byte(value[:16]), [24]byte(value[24:48])
	// RFC 2759 section 4: the hash excludes the domain.
	bare := name[strings.LastIndexByte(name, '\\')+1:]
	m.identity = printable(bare)
	password, known := m.password(bare)
	hash := passwordHash(password)
	challenge := challengeHash(peer, m.challenge, bare)
	if subtle.ConstantTimeCompare(responseTo(challenge, hash), response[:]) != 1 || !known {
		m.failure = fmt.Errorf("user %q: wrong password", m.identity)
		if !known {
			m.failure = fmt.Errorf("user %q: no such user, or it is disabled or has no password", m.identity)
		}
		step := m.request(TypeMSCHAPv2, opFailure, []byte(fmt.Sprintf("E=691 R=0 C=%032X V=3 M=Authentication failed", m.challenge)))
		step.Failure = m.failure
		return step
	}
	twice := md4Sum(hash[:])
	m.msk = masterKeys(twice, response)
	return m.request(TypeMSCHAPv2, opSuccess, []byte("S="+strings.ToUpper(hex.EncodeToString(proof(twice, response, challenge)))+" M=Welcome"))
}

func md4Sum(b []byte) (sum [16]byte) {
	h := md4.New()
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// passwordHash is NtPasswordHash.
func passwordHash(password string) [16]byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(password)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return md4Sum(b)
}

// challengeHash is ChallengeHash.
func challengeHash(peer, ours [16]byte, username string) [8]byte {
	sum := sha1.Sum(append(append(append([]byte{}, peer[:]...), ours[:]...), username...))
	return [8]byte(sum[:8])
}

// responseTo is ChallengeResponse: DES with each seven bytes of the hash.
func responseTo(challenge [8]byte, hash [16]byte) []byte {
	padded, out := append(hash[:len(hash):len(hash)], 0, 0, 0, 0, 0), make([]byte, 24)
	for i := range 3 {
		var seven [8]byte
		copy(seven[1:], padded[i*7:i*7+7])
		value, key := binary.BigEndian.Uint64(seven[:]), [8]byte{}
		for j := range key {
			seventh := byte(value>>(49-7*j)) & 0x7f
			key[j] = seventh<<1 | byte(1^bits.OnesCount8(seventh)&1)
		}
		block, err := des.NewCipher(key[:])
		if err != nil {
			panic(err) // keys have eight bytes
		}
		block.Encrypt(out[i*8:], challenge[:])
	}
	return out
}

// proof is GenerateAuthenticatorResponse.
func proof(twice [16]byte, response [24]byte, challenge [8]byte) []byte {
	first := sha1.Sum(append(append(append([]byte{}, twice[:]...), response[:]...), "Magic server to client signing constant"...))
	second := sha1.Sum(append(append(append([]byte{}, first[:]...), challenge[:]...), "Pad to make it do more than one iteration"...))
	return second[:]
}

// masterKeys is the MSK: the key to receive with and the key to send with, and zeros (RFC 3079 section 3.4).
func masterKeys(twice [16]byte, response [24]byte) []byte {
	master := sha1.Sum(append(append(append([]byte{}, twice[:]...), response[:]...), "This is the MPPE Master Key"...))
	half := func(magic string) []byte {
		b := append([]byte{}, master[:16]...)
		b = append(append(append(b, make([]byte, 40)...), magic...), strings.Repeat("\xf2", 40)...)
		sum := sha1.Sum(b)
		return sum[:16]
	}
	key := append(half("On the client side, this is the send key; on the server side, it is the receive key."),
		half("On the client side, this is the receive key; on the server side, it is the send key.")...)
	return append(key, make([]byte, 32)...)
}
