// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// MOBIKE (RFC 4555): an IKE SA and its children move to other addresses. The initiator decides. It tries other pairs
// of addresses when the peer does not answer, and sends the working pair to the responder.
//
// The data plane changes the peer's address of an SA at once. An SA with another local address is a new one. It would skip sequence
// numbers of the old keys, or without a file of them begin with 1, when the peer would drop its packets as replays. So children whose local address changes are rekeyed.

// Additional addresses of a peer that are tried.
const maxAdditional = 16

// path is a pair of addresses.
type path struct{ local, remote netip.AddrPort }

// locals are our addresses of a connection, the configured one first.
func (c *Connection) locals() []netip.Addr { return append([]netip.Addr{c.Local}, c.OtherLocals...) }

// additionalAddresses announces our other addresses to the peer (RFC 4555 section 3.6).
func (s *ikeSA) additionalAddresses() (all []message.Payload) {
	for _, a := range s.conn.locals() {
		if !a.IsValid() || a == s.local.Addr() || len(s.conn.OtherLocals) == 0 {
			continue
		}
		kind := message.AdditionalIP4Address
		if a.Is6() {
			kind = message.AdditionalIP6Address
		}
		all = append(all, &message.Notify{Kind: kind, Data: a.AsSlice()})
	}
	return all
}

// learnAdditional takes the peer's other addresses.
func (s *ikeSA) learnAdditional(all []*message.Notify) {
	var found []netip.Addr
	none := false
	for _, n := range all {
		none = none || n.Kind == message.NoAdditionalAddresses
		if a, ok := netip.AddrFromSlice(n.Data); ok && (n.Kind == message.AdditionalIP4Address || n.Kind == message.AdditionalIP6Address) && len(found) < maxAdditional {
			found = append(found, a)
		}
	}
	if len(found) > 0 || none {
		s.theirOthers = found
	}
}

// nextPath is the pair of addresses that the next transmission of a request tries; ok: there is another one than the current.
func (s *ikeSA) nextPath(sent int) (p path, ok bool) {
	if !s.opener || !s.mobike || s.state != established {
		return p, false
	}
	var all []path
	for _, remote := range append([]netip.Addr{s.remote.Addr()}, s.theirOthers...) {
		for _, local := range s.conn.locals() {
			if local.IsValid() && local.Is4() == remote.Is4() {
				all = append(all, path{netip.AddrPortFrom(local, NATPort), netip.AddrPortFrom(remote, NATPort)})
			}
		}
	}
	all = slices.Compact(all)
	if len(all) < 2 || sent < 2 {
		return p, false
	}
	return all[(sent-1)%len(all)], true
}

// sendBy sends packets by a pair of addresses.
func (s *ikeSA) sendBy(p path, packets [][]byte, after ...uint32) {
	for _, b := range packets {
		s.m.act(Send{Datagram{s.dataplane, s.vrf, p.local, p.remote, marked(p.local.Port(), b)}, after})
	}
}

// answeredBy moves the IKE SA to the pair of addresses by which a response came (RFC 4555 section 3.5).
func (s *ikeSA) answeredBy(d Datagram, now time.Time) {
	if !s.probing {
		return
	}
	s.probing = false
	if d.Local == s.local && d.Remote == s.remote {
		return
	}
	s.m.act(Event{Connection: s.conn.Name, Peer: d.Remote, What: "moved", Detail: d.Local.String() + " to " + d.Remote.String()})
	s.moveTo(d.Local, d.Remote, now)
	s.updateAddresses(now)
}

// updateAddresses sends our present address to the responder.
func (s *ikeSA) updateAddresses(now time.Time) {
	begin := func(s *ikeSA, now time.Time) bool {
		h := s.header(0, 0, false)
		s.request(message.Informational, now, func(all []message.Payload, now time.Time) {
			p := readAuth(all)
			if p.notify[message.UnacceptableAddresses] != nil {
				s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "failed", Detail: "the peer refuses the address " + s.local.String()})
			}
			s.learnNAT(p.notification)
		}, &message.Notify{Kind: message.UpdateSAAddresses}, &message.Notify{Kind: message.NATDetectionSourceIP, Data: natHash(h.SPIi, h.SPIr, s.local)},
			&message.Notify{Kind: message.NATDetectionDestinationIP, Data: natHash(h.SPIi, h.SPIr, s.remote)})
		return true
	}
	// Before all that waits.
	s.queue = append([]func(*ikeSA, time.Time) bool{begin}, s.queue...)
}

// learnNAT evaluates the peer's notifications of address translators on a new path.
func (s *ikeSA) learnNAT(all []*message.Notify) {
	h := s.header(0, 0, false)
	here, there, any := s.natHere, false, false
	for _, n := range all {
		switch n.Kind {
		case message.NATDetectionDestinationIP:
			here = !bytes.Equal(n.Data, natHash(h.SPIi, h.SPIr, s.local))
		case message.NATDetectionSourceIP:
			any, there = true, there || bytes.Equal(n.Data, natHash(h.SPIi, h.SPIr, s.remote))
		}
	}
	if any {
		s.natThere = !there
		s.natHere = here || s.conn.ForceEncapsulation
	}
}

// moveTo changes the addresses of the IKE SA and its children.
func (s *ikeSA) moveTo(local, remote netip.AddrPort, now time.Time) {
	if s.local == local && s.remote == remote {
		return
	}
	s.local, s.remote = local, remote
	for _, c := range s.sortedChildren() {
		switch {
		case c.at == local.Addr():
			s.m.act(Move{c})
		case !c.replaced && !c.deleting:
			s.rekeyChild(c, now)
		}
	}
	s.keepSA()
	if s.state == established {
		s.owned(func() Action { return PeerMoved{s.described()} })
	}
}
