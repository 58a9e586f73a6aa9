// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// IKE_SA_INIT (RFC 7296 section 1.2) and IKE_INTERMEDIATE (RFC 9242).

// newSA returns an IKE SA that is being opened.
func (m *Machine) newSA(c *Connection, initiator bool, now time.Time) *ikeSA {
	return m.newSAOf(c, m.newSPI(), initiator, now)
}

// newSAOf returns an IKE SA with an SPI of ours.
func (m *Machine) newSAOf(c *Connection, spi uint64, initiator bool, now time.Time) *ikeSA {
	s := &ikeSA{m: m, conn: c, initiator: initiator, opener: initiator, ourSPI: spi, id: spi, dataplane: c.Dataplane, vrf: c.VRF, handshake: &handshake{},
		index: -1, began: now, heard: now}
	m.add(s)
	return s
}

// open begins an IKE SA as its initiator.
func (m *Machine) open(c *Connection, names []string, now time.Time) *ikeSA {
	s := m.newSA(c, true, now)
	s.local, s.remote = netip.AddrPortFrom(c.Local, Port), netip.AddrPortFrom(c.Remote, Port)
	s.nextChildren, s.ni = names, random(nonceSize)
	if !s.useTicket(now) {
		s.sendInit(suite.Get(c.Proposals[0].Transforms, message.KeyExchange).ID, nil, now)
	}
	s.schedule()
	return s
}

// numbered gives proposals their numbers and an SPI.
func numbered(all []message.Proposal, spi []byte) []message.Proposal {
	all = slices.Clone(all)
	for i := range all {
		all[i].Number, all[i].SPI = uint8(i+1), spi
	}
	return all
}

func hashesPayload() *message.Notify {
	n := &message.Notify{Kind: message.SignatureHashAlgorithms}
	for _, h := range ourHashes {
		n.Data = binary.BigEndian.AppendUint16(n.Data, h)
	}
	return n
}

// capabilities are notifications that both ends send in IKE_SA_INIT.
func (s *ikeSA) capabilities() (all []message.Payload) {
	h := s.header(0, 0, false)
	source := natHash(h.SPIi, h.SPIr, s.local)
	if s.conn.ForceEncapsulation {
		// A value other than the hash of our address tells the peer that we are behind a NAT.
		source = random(len(source))
	}
	all = append(all, &message.Notify{Kind: message.NATDetectionSourceIP, Data: source},
		&message.Notify{Kind: message.NATDetectionDestinationIP, Data: natHash(h.SPIi, h.SPIr, s.remote)})
	if !s.conn.NoFragmentation {
		all = append(all, &message.Notify{Kind: message.FragmentationSupported})
	}
	all = append(all, hashesPayload())
	if len(s.conn.PPK) > 0 && s.resumed == nil {
		all = append(all, &message.Notify{Kind: message.UsePPK})
	}
	return all
}

// maxBegun bounds the answers to IKE_SA_INIT that have it sent again: nothing protects them, and each may cost a key exchange.
const maxBegun = 8

// beginsAnew counts an answer that has IKE_SA_INIT sent again. The IKE SA ends if there are too many.
func (s *ikeSA) beginsAnew(now time.Time) bool {
	if s.begun++; s.begun > maxBegun {
		s.fail(now, "the peer's answers to IKE_SA_INIT lead nowhere: each asks for another IKE_SA_INIT")
		return false
	}
	return true
}

// sendInit sends IKE_SA_INIT with data for a key exchange method.
func (s *ikeSA) sendInit(group uint16, cookie []byte, now time.Time) {
	if s.exchange == nil || s.exchange.Group != group {
		e, err := suite.Begin(group)
		if err != nil {
			s.fail(now, err.Error())
			return
		}
		s.exchange = e
	}
	var payloads []message.Payload
	if cookie != nil {
		payloads = append(payloads, &message.Notify{Kind: message.Cookie, Data: cookie})
	}
	payloads = append(payloads, &message.SA{Proposals: numbered(s.conn.Proposals, nil)}, &message.KE{Group: group, Data: s.exchange.Public}, &message.Nonce{Data: s.ni})
	payloads = append(payloads, s.capabilities()...)
	payloads = append(payloads, &message.Notify{Kind: message.RedirectSupported})
	if s.wantsIntermediate() {
		payloads = append(payloads, &message.Notify{Kind: message.IntermediateSupported})
	}
	one := message.Message{Header: s.header(message.IKESAInit, 0, false), Payloads: payloads}
	s.init1 = one.Append(nil)
	s.nextID = 1
	s.outstanding = &request{exchange: message.IKESAInit, packets: [][]byte{s.init1}, sent: 1, deadline: now.Add(timeoutAfter(1))}
	s.send(s.outstanding.packets)
}

func (s *ikeSA) wantsIntermediate() bool {
	for _, p := range s.conn.Proposals {
		for _, t := range p.Transforms {
			if t.Type >= message.AdditionalKE1 {
				return true
			}
		}
	}
	return false
}

// opened are the payloads of IKE_SA_INIT.
type initPayloads struct {
	sa     *message.SA
	ke     *message.KE
	nonce  *message.Nonce
	notify map[message.NotifyType]*message.Notify
	// There may be several.
	sources []*message.Notify
	err     *message.Notify
}

func readInit(all []message.Payload) (p initPayloads) {
	p.notify = map[message.NotifyType]*message.Notify{}
	for _, one := range all {
		switch one := one.(type) {
		case *message.SA:
			p.sa = one
		case *message.KE:
			p.ke = one
		case *message.Nonce:
			p.nonce = one
		case *message.Notify:
			if one.Kind == message.NATDetectionSourceIP {
				p.sources = append(p.sources, one)
			}
			if p.notify[one.Kind] == nil {
				p.notify[one.Kind] = one
			}
			if one.Kind.Error() && p.err == nil {
				p.err = one
			}
		}
	}
	return p
}

// learn evaluates the peer's notifications of IKE_SA_INIT.
func (s *ikeSA) learn(p initPayloads, d Datagram) {
	h := s.header(0, 0, false)
	if n := p.notify[message.NATDetectionDestinationIP]; n != nil {
		s.natHere = !bytes.Equal(n.Data, natHash(h.SPIi, 0, d.Local)) && !bytes.Equal(n.Data, natHash(h.SPIi, h.SPIr, d.Local))
	}
	if len(p.sources) > 0 {
		s.natThere = !slices.ContainsFunc(p.sources, func(n *message.Notify) bool {
			return bytes.Equal(n.Data, natHash(h.SPIi, 0, d.Remote)) || bytes.Equal(n.Data, natHash(h.SPIi, h.SPIr, d.Remote))
		})
	}
	if s.conn.ForceEncapsulation {
		s.natHere = true
	}
	s.fragments = p.notify[message.FragmentationSupported] != nil && !s.conn.NoFragmentation
	s.intermediate = p.notify[message.IntermediateSupported] != nil
	s.usePPK = p.notify[message.UsePPK] != nil && len(s.conn.PPK) > 0
	if n := p.notify[message.SignatureHashAlgorithms]; n != nil {
		for b := n.Data; len(b) >= 2 && len(s.peerHashes) < 16; b = b[2:] {
			s.peerHashes = append(s.peerHashes, binary.BigEndian.Uint16(b))
		}
	}
}

// receiveInit takes a response to IKE_SA_INIT. The response is not authenticated, so a malformed one is dropped. An error notification ends the IKE SA.
func (s *ikeSA) receiveInit(d Datagram, h message.Header, b []byte, now time.Time) {
	if !s.initiator || !h.Response() || s.outstanding == nil || h.Exchange != s.outstanding.exchange || h.ID != 0 || d.Remote != s.remote {
		s.m.count("drop", "not-protected")
		return
	}
	if s.resumed != nil {
		s.receiveResume(d, h, b, now)
		return
	}
	all, err := message.Parse(b)
	if err != nil {
		s.m.count("drop", "syntax")
		return
	}
	p := readInit(all.Payloads)
	if n := p.notify[message.Cookie]; n != nil && len(n.Data) > 0 && len(n.Data) <= 64 && p.sa == nil {
		if s.beginsAnew(now) {
			s.sendInit(s.exchange.Group, n.Data, now)
		}
		return
	}
	if p.err != nil {
		if p.err.Kind == message.InvalidKEPayload && len(p.err.Data) == 2 {
			group := binary.BigEndian.Uint16(p.err.Data)
			for _, one := range s.conn.Proposals {
				if slices.Contains(one.Transforms, message.Transform{Type: message.KeyExchange, ID: group}) && s.exchange.Group != group {
					if s.beginsAnew(now) {
						s.sendInit(group, nil, now)
					}
					return
				}
			}
		}
		why := "the peer answers " + p.err.Kind.String() + " to IKE_SA_INIT"
		if p.err.Kind == message.NoProposalChosen {
			why += ": it accepts none of " + suite.Offer(s.conn.Proposals)
		}
		s.fail(now, why)
		return
	}
	if n := p.notify[message.Redirect]; n != nil {
		s.redirected(n, now)
		return
	}
	if p.sa == nil || p.ke == nil || p.nonce == nil || len(p.sa.Proposals) != 1 || h.SPIr == 0 ||
		!suite.Answers(numbered(s.conn.Proposals, nil), p.sa.Proposals[0]) || p.ke.Group != s.exchange.Group ||
		suite.Get(p.sa.Proposals[0].Transforms, message.KeyExchange).ID != p.ke.Group {
		s.m.count("drop", "not-offered")
		return
	}
	shared, err := s.exchange.Finish(p.ke.Data)
	if err != nil {
		s.m.count("drop", "public-value")
		return
	}
	s.outstanding, s.exchange = nil, nil
	s.theirSPI, s.chosen, s.nr, s.init2 = h.SPIr, p.sa.Proposals[0].Transforms, p.nonce.Data, b
	s.learn(p, d)
	if err := s.seed(shared); err != nil {
		s.fail(now, err.Error())
		return
	}
	if s.conn.PPKMandatory && !s.usePPK {
		s.fail(now, "the peer does not use a PPK")
		return
	}
	s.toNATPort()
	s.expires = now.Add(10 * halfOpenTime)
	s.nextIntermediate(now)
}

// toNATPort goes on with port 4500 behind an address translator, and for MOBIKE (RFC 4555 section 3.3).
func (s *ikeSA) toNATPort() {
	if s.natHere || s.natThere || !s.conn.NoMOBIKE {
		s.local, s.remote = netip.AddrPortFrom(s.local.Addr(), NATPort), netip.AddrPortFrom(s.remote.Addr(), NATPort)
	}
}

// seed derives the first keys (RFC 7296 section 2.14).
func (s *ikeSA) seed(shared []byte) error {
	f, err := chosenPRF(s.chosen)
	if err != nil {
		return err
	}
	return s.setKeys(f.Sum(slices.Concat(s.ni, s.nr), shared))
}

// additionalGroups are the additional key exchanges of the chosen proposal, in their order.
func additionalGroups(chosen []message.Transform) (groups []uint16) {
	for _, kind := range suite.AdditionalTypes() {
		if t := suite.Get(chosen, kind); t.ID != 0 {
			groups = append(groups, t.ID)
		}
	}
	return groups
}

// nextIntermediate does the next additional key exchange, and after the last one IKE_AUTH.
func (s *ikeSA) nextIntermediate(now time.Time) {
	groups := additionalGroups(s.chosen)
	if s.intermediates >= len(groups) {
		s.sendAuth(now)
		return
	}
	if !s.intermediate {
		s.fail(now, "the peer chose an additional key exchange, and does not support IKE_INTERMEDIATE")
		return
	}
	e, err := suite.Begin(groups[s.intermediates])
	if err != nil {
		s.fail(now, err.Error())
		return
	}
	payloads := []message.Payload{&message.KE{Group: e.Group, Data: e.Public}}
	plain := message.AppendPayloads(nil, payloads)
	h := s.header(message.IKEIntermediate, s.nextID, false)
	s.mac(true, h, message.TypeKE, plain)
	s.request(message.IKEIntermediate, now, func(answer []message.Payload, now time.Time) {
		for _, p := range answer {
			ke, is := p.(*message.KE)
			if !is || ke.Group != e.Group {
				continue
			}
			shared, err := e.Finish(ke.Data)
			if err != nil {
				break
			}
			h := s.header(message.IKEIntermediate, s.nextID-1, true)
			h.SPIi, h.SPIr, h.Flags = s.ourSPI, s.theirSPI, message.FlagResponse
			s.mac(false, h, message.FirstOf(answer), message.AppendPayloads(nil, answer))
			if err := s.mix(shared); err != nil {
				break
			}
			s.nextIntermediate(now)
			return
		}
		s.fail(now, "the additional key exchange fails")
	}, payloads...)
}

// mac adds a message of IKE_INTERMEDIATE to the octets that AUTH signs (RFC 9242 section 3.3.2).
func (s *ikeSA) mac(request bool, h message.Header, first message.PayloadType, plain []byte) {
	a := message.AppendHead(nil, h, first, 0, 0, len(plain))
	if request {
		s.intAuthI = s.prf.Sum(s.keys.Pi, s.intAuthI, a, plain)
	} else {
		s.intAuthR = s.prf.Sum(s.keys.Pr, s.intAuthR, a, plain)
	}
}

// mix takes the secret of an additional key exchange into the keys (RFC 9370 section 2.2.2).
func (s *ikeSA) mix(shared []byte) error {
	s.intermediates++
	return s.setKeys(s.prf.Sum(s.keys.D, shared, s.ni, s.nr))
}

// answerIntermediate answers an additional key exchange.
func (s *ikeSA) answerIntermediate(h message.Header, plain []byte, first message.PayloadType, payloads []message.Payload, now time.Time) {
	groups := additionalGroups(s.chosen)
	for _, p := range payloads {
		ke, is := p.(*message.KE)
		if !is || s.intermediates >= len(groups) || ke.Group != groups[s.intermediates] {
			continue
		}
		public, shared, err := suite.Respond(ke.Group, ke.Data)
		if err != nil {
			break
		}
		s.mac(true, h, first, plain)
		answer := []message.Payload{&message.KE{Group: ke.Group, Data: public}}
		r := s.header(message.IKEIntermediate, s.expected, true)
		s.mac(false, r, message.TypeKE, message.AppendPayloads(nil, answer))
		s.respond(message.IKEIntermediate, nil, answer...)
		if err := s.mix(shared); err != nil {
			break
		}
		return
	}
	s.close(now, "the additional key exchange fails")
}

// openedBefore says whether a request to open an IKE SA came before. One that is the same gets the same response.
func (m *Machine) openedBefore(key openingKey, b []byte) bool {
	s := m.opening[key]
	if s != nil && bytes.Equal(s.init1, b) {
		m.count("packet", "retransmission")
		s.send([][]byte{s.init2})
	}
	return s != nil
}

// source is the address of an initiator, or the network of an IPv6 address: a host has all addresses of a /64.
func source(a netip.Addr) netip.Addr {
	if a.Is4() || a.Is4In6() {
		return a
	}
	return netip.PrefixFrom(a, 64).Masked().Addr()
}

// mayOpen says whether a request opens an IKE SA: under load it needs a cookie, and an address has only so many half-open ones.
func (m *Machine) mayOpen(d Datagram, h message.Header, p initPayloads, header message.Header) bool {
	if m.opens >= m.CookieThreshold || m.halfOpen[source(d.Remote.Addr())] >= maxHalfOpenOfAddress/2 {
		n := p.notify[message.Cookie]
		if n == nil || !hmac.Equal(n.Data, m.cookie(0, d, h.SPIi, p.nonce.Data)) && !hmac.Equal(n.Data, m.cookie(1, d, h.SPIi, p.nonce.Data)) {
			m.count("packet", "cookie")
			m.reply(d, header, &message.Notify{Kind: message.Cookie, Data: m.cookie(0, d, h.SPIi, p.nonce.Data)})
			return false
		}
	}
	if m.opens >= maxHalfOpen || m.halfOpen[source(d.Remote.Addr())] >= maxHalfOpenOfAddress {
		m.count("drop", "half-open")
		return false
	}
	return true
}

// addOpening makes a half-open IKE SA of a responder known.
func (m *Machine) addOpening(s *ikeSA, d Datagram, h message.Header, p initPayloads, key openingKey, b []byte) {
	s.theirSPI, s.local, s.remote, s.opened = h.SPIi, d.Local, d.Remote, d.Remote
	s.ni, s.nr, s.init1 = bytes.Clone(p.nonce.Data), random(nonceSize), bytes.Clone(b)
	s.learn(p, d)
	m.opening[key] = s
	m.halfOpen[source(d.Remote.Addr())]++
	m.opens++
}

// respondInit answers IKE_SA_INIT.
func (m *Machine) respondInit(d Datagram, h message.Header, b []byte, now time.Time) {
	key := openingKey{place(d), d.Remote, h.SPIi}
	if m.openedBefore(key, b) {
		return
	}
	if len(b) > maxInit {
		m.count("drop", "too-long")
		return
	}
	all, err := message.Parse(b)
	if err != nil {
		m.count("drop", "syntax")
		return
	}
	p := readInit(all.Payloads)
	if p.sa == nil || p.ke == nil || p.nonce == nil {
		m.count("drop", "syntax")
		return
	}
	header := message.Header{SPIi: h.SPIi, Exchange: message.IKESAInit}
	refuse := func(n message.NotifyType, data []byte) {
		m.count("failure", n.String())
		m.reply(d, header, &message.Notify{Kind: n, Data: data})
	}
	var candidates []*Connection
	for _, c := range m.taking(d.Dataplane, d.VRF, d.Local.Addr(), d.Remote.Addr()) {
		if !c.Owned || c.Takes != nil {
			candidates = append(candidates, c)
		}
	}
	if len(candidates) == 0 {
		m.unknownCaller(d, now)
		return
	}
	if !m.mayOpen(d, h, p, header) {
		return
	}
	for _, c := range candidates {
		chosen, ok := suite.Choose(c.Proposals, p.sa.Proposals, p.ke.Group)
		if !ok {
			continue
		}
		if groups := additionalGroups(chosen.Transforms); len(groups) > 0 && p.notify[message.IntermediateSupported] == nil {
			continue
		}
		if c.RedirectTo != "" && p.notify[message.RedirectSupported] != nil {
			m.count("packet", "redirected")
			m.reply(d, header, redirectTo(c.RedirectTo, p.nonce.Data))
			return
		}
		group := suite.Get(chosen.Transforms, message.KeyExchange).ID
		if group != p.ke.Group {
			refuse(message.InvalidKEPayload, binary.BigEndian.AppendUint16(nil, group))
			return
		}
		public, shared, err := suite.Respond(group, p.ke.Data)
		if err != nil {
			refuse(message.InvalidSyntax, []byte{})
			return
		}
		s := m.newSA(c, false, now)
		s.chosen = chosen.Transforms
		m.addOpening(s, d, h, p, key, b)
		payloads := []message.Payload{&message.SA{Proposals: []message.Proposal{{Number: chosen.Number, Protocol: message.ProtocolIKE, Transforms: chosen.Transforms}}},
			&message.KE{Group: group, Data: public}, &message.Nonce{Data: s.nr}}
		payloads = append(payloads, s.capabilities()...)
		if len(additionalGroups(s.chosen)) > 0 {
			payloads = append(payloads, &message.Notify{Kind: message.IntermediateSupported})
		}
		if c.usesMethod(Certificate) && len(c.Authorities) > 0 {
			payloads = append(payloads, &message.Request{Encoding: message.EncodingX509, Authorities: c.Authorities})
		}
		one := message.Message{Header: s.header(message.IKESAInit, 0, true), Payloads: payloads}
		s.init2 = one.Append(nil)
		s.expected, s.expires = 1, now.Add(halfOpenTime)
		if err := s.seed(shared); err != nil {
			s.close(now, err.Error())
			return
		}
		s.send([][]byte{s.init2})
		s.schedule()
		return
	}
	refuse(message.NoProposalChosen, []byte{})
	var ours []message.Proposal
	for _, c := range candidates {
		ours = append(ours, c.Proposals...)
	}
	m.refuse(Event{Connection: candidates[0].Name, Peer: d.Remote, What: "failed", Detail: notAccepted(p.sa.Proposals, ours)}, now)
}

// sorted are the connections: those that name their peer's address first, then by name.
func (m *Machine) sorted() (all []*Connection) {
	if m.ordered != nil {
		return m.ordered
	}
	for _, c := range m.connections {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Connection) int {
		if a.Remote.IsValid() != b.Remote.IsValid() {
			if a.Remote.IsValid() {
				return -1
			}
			return 1
		}
		return bytes.Compare([]byte(a.Name), []byte(b.Name))
	})
	m.ordered, m.places = all, map[peerPlace][]int{}
	for i, c := range all {
		remote := c.Remote
		if len(c.Peers) > 0 {
			remote = netip.Addr{}
		}
		locals := []netip.Addr{{}}
		if c.Local.IsValid() {
			locals = c.locals()
		}
		for _, local := range locals {
			key := peerPlace{c.Dataplane, c.VRF, local, remote}
			if known := m.places[key]; len(known) == 0 || known[len(known)-1] != i {
				m.places[key] = append(known, i)
			}
		}
	}
	return all
}

// peerPlace is where connections take peers: the peers' address and ours; the zero address: any, or one that Connection.takes judges.
type peerPlace struct {
	dataplane, vrf string
	local, remote  netip.Addr
}

// taking are the connections that take a peer, in their order. Any host can ask for them, so it does not look at the connections of other peers.
func (m *Machine) taking(dataplane, vrf string, local, remote netip.Addr) (all []*Connection) {
	ordered := m.sorted()
	var found []int
	for _, l := range []netip.Addr{local, {}} {
		for _, r := range []netip.Addr{remote, {}} {
			found = append(found, m.places[peerPlace{dataplane, vrf, l, r}]...)
		}
	}
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		if ordered[i].takes(local, remote) {
			all = append(all, ordered[i])
		}
	}
	return all
}

// redirectTo is the notification of RFC 5685 that names another gateway: an address or a name.
func redirectTo(to string, nonce []byte) *message.Notify {
	kind, identity := byte(3), []byte(to)
	if a, err := netip.ParseAddr(to); err == nil {
		kind, identity = 1, a.AsSlice()
		if a.Is6() {
			kind = 2
		}
	}
	return &message.Notify{Kind: message.Redirect, Data: append(append([]byte{kind, byte(len(identity))}, identity...), nonce...)}
}

// redirected goes to another gateway (RFC 5685): once, and only to an address.
func (s *ikeSA) redirected(n *message.Notify, now time.Time) {
	b := n.Data
	if len(b) < 2 || len(b) != 2+int(b[1])+len(s.ni) || !bytes.Equal(b[2+int(b[1]):], s.ni) {
		s.m.count("drop", "redirect")
		return
	}
	to, ok := netip.AddrFromSlice(b[2 : 2+int(b[1])])
	if !ok || b[0] != 1 && b[0] != 2 || to == s.remote.Addr() || s.contacted {
		s.fail(now, fmt.Sprintf("the peer redirects to a gateway that cannot be used (form %d)", b[0]))
		return
	}
	s.contacted = true
	s.remote = netip.AddrPortFrom(to, Port)
	s.ni = random(nonceSize)
	s.sendInit(s.exchange.Group, nil, now)
}
