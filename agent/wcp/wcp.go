// SPDX-License-Identifier: Apache-2.0

// Package wcp is the wireline control plane protocol between a 5G residential gateway (5G-RG) and the AGF (TR-456, TS 23.316 section 7.2.1.1), without
// I/O: EAP-5G over PPP (RFC 3748, TS 24.502 section 9.3.2) until the core has authenticated the 5G-RG, then NAS and the resources of PDU sessions over
// the vendor protocol of PPP (RFC 3772).
//
//	wcp.go       who has PPP links, and who serves 5G-RGs on them
//	gateway.go   one 5G-RG: EAP-5G, VSNCP, and messages
//	message.go   messages of VSNP
//
// docs/decisions/wcp.md describes the choices that TR-456 leaves open.
package wcp

import (
	"time"

	"sluice.dev/sluice/agent/eap5g"
	"sluice.dev/sluice/agent/subscriber"
)

// Protocol is the PPP protocol field.
type Protocol uint16

// Protocols of W-CP.
const (
	EAP   Protocol = 0xc227
	VSNCP Protocol = 0x805b
	VSNP  Protocol = 0x005b
)

// Peer is a 5G-RG at the far end of a PPP link. ID is unique over restarts.
type Peer struct {
	ID   string
	Line subscriber.Line
	// The SubscriberProfile of its line.
	Profile string
}

// Link is our end of a PPP link with a 5G-RG. Its methods may be called from any goroutine, and do not call back.
type Link interface {
	// Send sends a packet, behind its protocol field.
	Send(p Protocol, packet []byte)
	// Authenticated: the core has authenticated the 5G-RG. A link without this call ends after a while.
	Authenticated()
	// Close ends the link: Down follows.
	Close(reason string)
}

// Server serves 5G-RGs. The owner of PPP links calls it when LCP is open and the peer chose EAP.
type Server interface {
	Open(p Peer, l Link) Connection
}

// Connection is a Server's view of a link. Its methods are called one at a time.
type Connection interface {
	// Receive takes a packet, behind its protocol field. The packet is the Connection's.
	Receive(p Protocol, packet []byte)
	// Down is the last call: the link is gone.
	Down(reason string)
}

// World is the environment of a Gateway. No method but Ready and Closed calls the Gateway back before it returns.
type World interface {
	Now() time.Time
	Send(p Protocol, packet []byte)
	// Register is called with the first NAS message of the 5G-RG, and Uplink with each one after it.
	Register(p eap5g.Parameters, message []byte)
	Uplink(message []byte)
	// Ready: the 5G-RG is authenticated, and takes messages. It is called once.
	Ready()
	// Closed is the last call: the 5G-RG gave up, or violated the protocol.
	Closed(err error)
	// Dropped: a packet is ignored.
	Dropped(reason string)
}
