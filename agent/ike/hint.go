// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"fmt"
	"strings"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sluice.dev/sluice/agent/ike/message"
)

// A peer that refuses IKE_AUTH does not say why (RFC 7296 section 2.21.2). The gateway says what both ends have to agree on, and what is wrong at its own end
// if it knows.

// refusedByPeer ends an IKE SA whose responder refuses IKE_AUTH.
func (s *ikeSA) refusedByPeer(n message.NotifyType, now time.Time) {
	why := "the peer answers " + n.String() + " to IKE_AUTH"
	if n == message.AuthenticationFailed {
		why += ": " + s.conn.toCompare(s.localIdentity(), now)
	}
	s.failAs(now, n.String(), why)
}

// toCompare is what the peer's configuration must agree with, or what is wrong with the gateway's own certificate.
func (c *Connection) toCompare(ours Identity, now time.Time) string {
	if fault := c.ownFault(now); fault != "" {
		return fault
	}
	theirs := "any identity"
	if !c.RemoteID.Any() {
		theirs = c.RemoteID.String()
	}
	return fmt.Sprintf("the gateway is %s by %s and expects %s by %s; compare localIdentity, remoteIdentity and the credential with the peer's configuration and log", ours, c.proof(c.LocalMethod, true), theirs,
		c.proof(c.RemoteMethod, false))
}

// proof is what one end proves its identity by.
func (c *Connection) proof(m Method, ours bool) string {
	switch m {
	case Certificate:
		if ours && c.Credential != nil {
			return "the certificate of " + c.Credential.Subject.String()
		}
		return "a certificate"
	case EAP:
		return "EAP"
	}
	return "the shared key"
}

// ownFault is why a peer will not accept the gateway's certificate; empty: nothing is known.
func (c *Connection) ownFault(now time.Time) string {
	if c.LocalMethod != Certificate || c.Credential == nil {
		return ""
	}
	leaf, err := smx509.ParseCertificate(c.Credential.Chain[0])
	if err != nil {
		return ""
	}
	where := strings.TrimPrefix(c.Credential.From+": ", ": ")
	if fault := (validity{leaf.NotBefore, leaf.NotAfter}).fault(now); fault != "" {
		return where + fault
	}
	if _, err := nameOf(leaf, c.LocalID); err != nil && !c.LocalID.Any() {
		return fmt.Sprintf("localIdentity %s is not in the certificate (%sit is for %s): peers refuse it", c.LocalID, where, certified(leaf))
	}
	return ""
}

// certified are the identities that a certificate is for.
func certified(c *smx509.Certificate) string {
	all := append(append([]string{}, c.DNSNames...), c.EmailAddresses...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return printable(strings.Join(append(all, Identity{message.IDDN, string(c.RawSubject)}.String()), ", "))
}

// validity is when a certificate is valid.
type validity struct{ from, to time.Time }

// fault is why a certificate is not valid; empty: it is.
func (v validity) fault(now time.Time) string {
	switch {
	case v.to.IsZero():
		return ""
	case now.After(v.to):
		return "the certificate expired on " + v.to.UTC().Format(time.DateTime) + " UTC"
	case now.Before(v.from):
		return "the certificate is not valid before " + v.from.UTC().Format(time.DateTime) + " UTC: if that is in the past, set the clock of the agent's host"
	}
	return ""
}

// unknownIdentity refuses the IKE_AUTH of an initiator for which no connection is, and names those that take calls from its address.
func (s *ikeSA) unknownIdentity(d Datagram, p authPayloads, now time.Time) {
	var accepted []string
	for _, c := range s.m.taking(s.dataplane, s.vrf, d.Local.Addr(), d.Remote.Addr()) {
		if c.Owned {
			continue
		}
		remote := "any"
		if !c.RemoteID.Any() {
			remote = c.RemoteID.String()
		}
		if accepted = append(accepted, fmt.Sprintf("%s (remoteIdentity %s, by %s)", c.Name, remote, c.proof(c.RemoteMethod, false))); len(accepted) == 4 {
			accepted = append(accepted, "...")
			break
		}
	}
	by := "a signature"
	switch {
	case p.auth == nil:
		by = "EAP"
	case p.auth.Method == message.AuthSharedKey:
		by = "a shared key"
	}
	why := fmt.Sprintf("no connection is for %s by %s", s.peer, by)
	if p.idr != nil {
		why += " that calls " + identityOf(p.idr).String()
	}
	if len(accepted) > 0 {
		why += "; from this address are accepted: " + strings.Join(accepted, ", ")
	}
	s.m.count("failure", "unknown-identity")
	s.respond(message.IKEAuth, nil, &message.Notify{Kind: message.AuthenticationFailed, Data: []byte{}})
	s.close(now, why)
}

// unknownCaller reports a call from an address for which no connection is. Any host can make one.
func (m *Machine) unknownCaller(d Datagram, now time.Time) {
	m.count("drop", "no-connection")
	m.refuse(Event{Peer: d.Remote, What: "unknown-caller", Detail: fmt.Sprintf("no IkePeer or IkeConnection with localAddress %s takes calls from this address: see remoteAddress, and peerNetworks of an IkeConnection", d.Local.Addr())}, now)
}
