// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"crypto"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Method is an authentication method.
type Method uint8

// Methods.
const (
	SharedKey Method = iota
	Certificate
	EAP
)

// EAPMethod is the EAP method of remote users.
type EAPMethod uint8

// Methods of EAP.
const (
	MSCHAPv2 EAPMethod = iota
	TLS
	RADIUS
)

// Credential is a certificate of ours with its private key.
type Credential struct {
	// The certificate, then those between it and its authority, in DER.
	Chain [][]byte
	Key   crypto.Signer
	// Sign with RSASSA-PSS instead of PKCS #1 v1.5.
	PSS bool
	// Identity of the certificate's subject.
	Subject Identity
	// Object, field and file of the certificate, for messages.
	From string
}

// ChildAction is the action for a child when the connection comes up, when the peer closes the child, or when the peer is dead.
type ChildAction uint8

// Actions.
const (
	// Nothing: the peer starts.
	Clear ChildAction = iota
	// When traffic needs it.
	Hold
	// At once.
	Start
)

// Child is a pair of ESP SAs that a connection has.
type Child struct {
	Name      string
	Proposals []message.Proposal
	// Empty: our address, or the address that the peer got from a pool; the peer's address.
	Local, Remote []message.Selector
	Transport     bool
	StartAction   ChildAction
	CloseAction   ChildAction
	DPDAction     ChildAction
	// 0: not by time.
	RekeyTime, LifeTime time.Duration
	// The tunnel or policy of the SAs.
	Serves Serves
	// The SAs have no selectors in the data plane: their tunnel checks the addresses of packets itself.
	Unselected bool
}

// Serves is the use of the SAs of a child in the data plane.
type Serves struct {
	// Names of objects: one of the two.
	Tunnel, Policy string
	// Packets.
	ReplayWindow uint32
	// Lifetimes of one direction that begin a rekey.
	Bytes, Packets uint64
}

// Connection is a configured peer, or a group of peers.
type Connection struct {
	Name string
	// Another service of the agent owns the connection: see Owner.
	Owned bool
	// Which initiators of an owned connection are the service's; nil: the service is not there, and none is. It must be quick and must not call
	// the IKE service.
	Takes          func(initiator Identity) bool `json:"-"`
	Dataplane, VRF string
	// Our address; the zero Addr: any, for a connection that only responds.
	Local netip.Addr
	// Other addresses of ours that MOBIKE may use.
	OtherLocals []netip.Addr
	// Where the peer is. The zero Addr: the connection only responds.
	Remote netip.Addr
	// Where peers may come from; empty: from Remote, or from anywhere.
	Peers             []netip.Prefix
	LocalID, RemoteID Identity
	Proposals         []message.Proposal

	LocalMethod, RemoteMethod Method
	// Of SharedKey in either direction.
	Secret     []byte
	Credential *Credential
	// Of certificates that the peer may have: SHA-1 hashes of the public keys of authorities, for CERTREQ.
	Authorities []byte
	// A hash of the certificates that the authorities have revoked, as the agent knows.
	Revocation []byte
	// Names the trust in a VerifyChain question.
	Trust any
	// RFC 8784.
	PPK          []byte
	PPKID        string
	PPKMandatory bool

	Children []*Child
	// Give remote users addresses of these pools.
	Pools []string
	// SubscriberProfile of remote users, each of which has a Session and an IpsecTunnel; empty: they have none.
	Profile string
	// How remote users authenticate by EAP, and by which RadiusPolicy.
	EAPMethod     EAPMethod
	RadiusProfile string
	// As initiator: ask for an IPv4 address.
	AskAddress bool

	// Times; 0: never.
	RekeyTime, ReauthTime time.Duration
	DPDDelay              time.Duration
	KeepAlive             time.Duration
	// How often a request is sent; 0: 6 times.
	Tries int
	// Send to UDP port 4500 and encapsulate ESP in UDP although there is no NAT.
	ForceEncapsulation bool
	NoFragmentation    bool
	NoMOBIKE           bool
	// RSA signatures with SHA-1, of a peer without RFC 7427 and for it.
	AllowSHA1 bool
	// Another gateway for clients that support redirects (RFC 5685); empty: none.
	RedirectTo string
	// Peers resume IKE SAs that were lost (RFC 5723).
	Resumption bool
	// Keep trying to reach the peer.
	Forever bool
	// A file of its credentials cannot be read: IKE SAs of before go on, and there are no new ones.
	Frozen bool
}

func (c *Connection) child(name string) *Child {
	for _, one := range c.Children {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// takes reports whether peers at an address may use the connection by an address of ours.
func (c *Connection) takes(local, remote netip.Addr) bool {
	if c.Frozen || c.Local.IsValid() && !slices.Contains(c.locals(), local) {
		return false
	}
	if len(c.Peers) == 0 {
		return !c.Remote.IsValid() || c.Remote == remote
	}
	for _, p := range c.Peers {
		if p.Contains(remote) {
			return true
		}
	}
	return c.Remote == remote
}

// serves reports whether the connection takes new peers with an identity.
func (c *Connection) serves(initiator Identity) bool {
	return c.RemoteID.Matches(initiator) && (!c.Owned || c.Takes != nil && c.Takes(initiator))
}

func (c *Connection) usesMethod(m Method) bool { return c.LocalMethod == m || c.RemoteMethod == m }
