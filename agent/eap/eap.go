// SPDX-License-Identifier: Apache-2.0

// Package eap is EAP (RFC 3748) as an authenticator: methods that run here, and the seam for those that are relayed. A protocol that carries
// EAP (IKEv2) holds a Conversation for each peer, and gives it the peer's packets.
package eap

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"sluice.dev/sluice/agent/subscriber"
)

// Conversation is an authenticator's side of EAP with one peer. Next takes a packet of the peer, or nil for the first request, and calls done
// once: at once, or later from another goroutine. It is not called again before that.
type Conversation interface {
	Next(packet []byte, done func(Step))
}

// Ender is a Conversation that holds resources. End is called once, when the conversation is over, and not while a packet waits for done.
type Ender interface{ End() }

// Step is the next packet to the peer.
type Step struct {
	// An EAP packet; nil: the conversation ends without one.
	Packet []byte
	// The packet is EAP-Success. MSK is the key of the method; nil: it has none.
	Success  bool
	MSK      []byte
	Username string
	// Of the user's back end: addresses, or names of pools.
	Addresses []netip.Addr
	Pools     []string
	// Of a RADIUS server; nil: there is none.
	Grant *subscriber.Grant
	// Why the peer is refused. Packet is EAP-Failure, if there is one.
	Err error
	// The same, if Packet is a request of the method that says so. Some peers end the conversation then.
	Failure error
}

// Codes of packets.
const (
	Request  byte = 1
	Response byte = 2
	Success  byte = 3
	Failure  byte = 4
)

// Types of requests and responses.
const (
	TypeIdentity byte = 1
	TypeNak      byte = 3
	TypeTLS      byte = 13
	TypeMSCHAPv2 byte = 26
	// Vendor ID and type follow (RFC 3748 section 5.7).
	TypeExpanded byte = 254
)

// ErrPacket: a packet of the peer is not one.
var ErrPacket = errors.New("malformed EAP packet")

// Packet is an EAP packet.
type Packet struct {
	Code, Identifier, Type byte
	Data                   []byte
}

// Parse reads a packet. Bytes behind its length are padding.
func Parse(b []byte) (p Packet, err error) {
	if len(b) < 4 {
		return p, ErrPacket
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	if length < 4 || length > len(b) {
		return p, ErrPacket
	}
	p.Code, p.Identifier = b[0], b[1]
	if p.Code == Request || p.Code == Response {
		if length < 5 {
			return p, ErrPacket
		}
		p.Type, p.Data = b[4], b[5:length]
	}
	return p, nil
}

// Append writes a packet.
func (p Packet) Append(b []byte) []byte {
	length := 4
	typed := p.Code == Request || p.Code == Response
	if typed {
		length = 5 + len(p.Data)
	}
	b = append(b, p.Code, p.Identifier)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	if typed {
		b = append(append(b, p.Type), p.Data...)
	}
	return b
}

// refuse ends a conversation with EAP-Failure.
func refuse(identifier byte, username string, err error) Step {
	return Step{Packet: Packet{Code: Failure, Identifier: identifier}.Append(nil), Username: username, Err: err}
}

// printable is text of a peer for a message.
func printable(text string) string {
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text[:min(len(text), 253)]), "?")
}
