// SPDX-License-Identifier: Apache-2.0

package eap

import (
	"errors"
	"fmt"
	"net/netip"

	"sluice.dev/sluice/agent/subscriber"
)

// Relay carries the EAP packets of a peer to a server that runs the method (RFC 3579). The RADIUS service offers it (service.Offer).
type Relay interface {
	// Relay sends a packet of the peer. done is called once, later.
	Relay(r RelayRequest, done func(Relayed))
}

// RelayRequest is a packet of a peer for a server.
type RelayRequest struct {
	// SubscriberProfile that chooses the RadiusPolicy; empty: that of all profiles.
	Profile string
	// ID is the same in all packets of a conversation.
	ID, Username string
	// Addresses of the peer and of ours.
	Calling, Called netip.Addr
	// The longest EAP packet that the peer takes, in bytes.
	MTU int
	// Of the last answer of the conversation; nil: the first packet.
	State  any
	Packet []byte
}

// Relayed is a server's answer.
type Relayed struct {
	// For the peer; nil: the server sent none.
	Packet []byte
	// The server asks for another packet, which carries State.
	Challenge bool
	State     any
	// The server accepts the peer.
	Accept   bool
	MSK      []byte
	Username string
	// Addresses, or names of pools, that the server grants.
	Addresses []netip.Addr
	Pools     []string
	// All that the server grants; nil: the peer is not accepted.
	Grant *subscriber.Grant
	Err   error
}

// relayed is a conversation whose method runs elsewhere. The identity is asked here.
type relayed struct {
	relay      Relay
	request    RelayRequest
	identifier byte
	identified bool
}

// NewRelayed returns a conversation that a relay carries to a server. r has the constant fields.
func NewRelayed(relay Relay, r RelayRequest) Conversation {
	return &relayed{relay: relay, request: r}
}

// Next implements Conversation.
func (c *relayed) Next(packet []byte, done func(Step)) {
	if packet == nil {
		c.identifier = 1
		done(Step{Packet: Packet{Request, c.identifier, TypeIdentity, nil}.Append(nil)})
		return
	}
	p, err := Parse(packet)
	if err == nil && (p.Code != Response || p.Identifier != c.identifier || !c.identified && p.Type != TypeIdentity) {
		err = fmt.Errorf("%w: code %d, identifier %d, type %d", ErrPacket, p.Code, p.Identifier, p.Type)
	}
	if err != nil {
		done(refuse(c.identifier, c.request.Username, err))
		return
	}
	if !c.identified {
		c.identified, c.request.Username = true, printable(string(p.Data))
	}
	c.request.Packet = packet
	c.relay.Relay(c.request, func(r Relayed) { done(c.step(r)) })
}

func (c *relayed) step(r Relayed) Step {
	name := c.request.Username
	if r.Username != "" {
		name = printable(r.Username)
	}
	p, err := Parse(r.Packet)
	switch {
	case r.Err != nil && err == nil && p.Code == Failure:
		return Step{Packet: r.Packet, Username: name, Err: r.Err}
	case r.Err != nil:
		return refuse(c.identifier, name, r.Err)
	case r.Accept && err == nil && p.Code == Success:
		return Step{Packet: r.Packet, Success: true, MSK: r.MSK, Username: name, Addresses: r.Addresses, Pools: r.Pools, Grant: r.Grant}
	case r.Challenge && err == nil && p.Code == Request:
		c.identifier, c.request.State = p.Identifier, r.State
		return Step{Packet: r.Packet}
	}
	return refuse(c.identifier, name, errors.New("the answer of the server has no EAP packet that fits"))
}
