// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// ChildSA is a pair of ESP SAs.
type ChildSA struct {
	Conf       *Child
	Connection string
	// Ours is that of inbound packets.
	SPIIn, SPIOut uint32
	Chosen        []message.Transform
	// Keys of inbound and outbound packets.
	EncryptionIn, IntegrityIn, EncryptionOut, IntegrityOut []byte
	// On our side, and on the peer's.
	Local, Remote []message.Selector
	// Of two outbound SAs, the one with the higher number sends.
	Precedence uint32
	Transport  bool

	// The owner got ChildUp.
	told bool
	// We began the exchange.
	ours bool
	// replaced: a rekey has replaced it. deleting: our Delete has no response yet.
	replaced, deleting bool
	// The peer's rekey of it has key exchanges to follow. Of a child that the peer proposes: it collides with ours.
	pending, collides bool
	// It must be rekeyed, and no rekey has replaced it yet.
	due bool
	// Our rekey of it has no response yet.
	rekeying bool
	// Only inbound packets are expected: the peer does not receive yet.
	half bool

	sa *ikeSA
	// Our address when it was made.
	at netip.Addr
	// The call of the connection's owner that asked for it.
	ask   *childAsk
	nonce []byte
	// Our key exchange, while our proposal has no response.
	exchange *suite.Exchange
	replaces *ChildSA
	// The child of another IKE SA of the peer whose place it takes; that child has such an heir.
	before  *ChildSA
	hasHeir bool
	// Of a child that the peer proposes, until the keys are made.
	accepted *accepted
	// The child of the peer's rekey that collides with ours, and of that child the lower nonce.
	collision        *ChildSA
	lowest           []byte
	since            time.Time
	rekeyAt, expires time.Time
}

// accepted is the secret of the key exchange, and nonces.
type accepted struct{ shared, nonces []byte }

// ESN reports whether sequence numbers have 64 bits.
func (c *ChildSA) ESN() bool { return suite.Get(c.Chosen, message.Sequence).ID == 1 }

// Place returns where the child's packets go: the data plane and VRF, our address and port, and the peer's. udp: ESP in UDP.
func (c *ChildSA) Place() (dataplane, vrf string, local, remote netip.AddrPort, udp bool) {
	s := c.sa
	return s.dataplane, s.vrf, netip.AddrPortFrom(c.at, s.local.Port()), s.remote, s.natHere || s.natThere
}

// KeepAlive returns the interval of keepalives that hold an address translator's entry (RFC 3948 section 4); 0: none.
func (c *ChildSA) KeepAlive() time.Duration {
	if c.sa.natHere {
		return c.sa.conn.KeepAlive
	}
	return 0
}

// String returns the SPIs.
func (c *ChildSA) String() string { return fmt.Sprintf("%08x in, %08x out", c.SPIIn, c.SPIOut) }

func spiBytes(spi uint32) []byte { return binary.BigEndian.AppendUint32(nil, spi) }

// newChild returns a child with an inbound SPI.
func (s *ikeSA) newChild(conf *Child, ours bool) *ChildSA {
	s.m.precedence++
	c := &ChildSA{Conf: conf, Connection: s.conn.Name, SPIIn: s.m.newChildSPI(), Transport: conf.Transport, Precedence: s.m.precedence, sa: s, ours: ours, at: s.local.Addr()}
	s.m.children[c.SPIIn] = c
	if ours {
		s.proposed = c
	}
	return c
}

// ends are the selectors of a child's configuration, with addresses for those that are empty.
func (s *ikeSA) ends(conf *Child) (local, remote []message.Selector) {
	local, remote = conf.Local, conf.Remote
	switch {
	case len(local) == 0 && len(s.given) > 0:
		for _, a := range s.given {
			local = append(local, hostOf(a))
		}
	case len(local) == 0 && s.conn.AskAddress:
		local = []message.Selector{SelectorOf(netip.PrefixFrom(netip.IPv4Unspecified(), 0))}
	case len(local) == 0:
		local = []message.Selector{hostOf(s.local.Addr())}
	}
	switch {
	case len(s.addresses) > 0:
		remote = nil
		for _, a := range s.addresses {
			remote = append(remote, hostOf(a))
		}
	case len(remote) == 0:
		remote = []message.Selector{hostOf(s.remote.Addr())}
	}
	return local, remote
}

// offer returns the payloads that propose a child. exchange: with a nonce and a key exchange, which IKE_AUTH does not have.
func (s *ikeSA) offer(c *ChildSA, exchange bool) (payloads []message.Payload) {
	var proposals []message.Proposal
	leftOut := leftOutOf(!exchange)
	for _, p := range c.Conf.Proposals {
		proposals = append(proposals, suite.Without(p, leftOut...))
	}
	payloads = append(payloads, &message.SA{Proposals: numbered(proposals, spiBytes(c.SPIIn))})
	if exchange {
		c.nonce = random(nonceSize)
		payloads = append(payloads, &message.Nonce{Data: c.nonce})
		if c.exchange != nil {
			payloads = append(payloads, &message.KE{Group: c.exchange.Group, Data: c.exchange.Public})
		}
	}
	local, remote := s.ends(c.Conf)
	payloads = append(payloads, &message.TS{Selectors: local}, &message.TS{Responder: true, Selectors: remote})
	if c.Transport {
		payloads = append(payloads, &message.Notify{Kind: message.UseTransportMode})
	}
	return payloads
}

// leftOutOf are the types of transforms that proposals of a child leave out: IKE_AUTH has no key exchanges.
func leftOutOf(auth bool) []message.TransformType {
	if !auth {
		return nil
	}
	return append(suite.AdditionalTypes(), message.KeyExchange)
}

// childAnswer takes the response to our proposal of a child: of IKE_AUTH, or with a nonce of CREATE_CHILD_SA and the secrets of additional key
// exchanges. redundant: the child is deleted next, and sends nothing.
func (s *ikeSA) childAnswer(c *ChildSA, p authPayloads, secrets []byte, redundant bool, now time.Time) bool {
	fail := func(why string) bool {
		delete(s.m.children, c.SPIIn)
		s.settle(c.ask, nil, errors.New(why))
		s.m.count("failure", "child")
		s.childFailed(c.Conf, why, now)
		return false
	}
	if p.err != nil {
		return fail(s.refusedChild(c.Conf, p.err))
	}
	if p.sa == nil || len(p.sa.Proposals) != 1 || p.tsi == nil || p.tsr == nil {
		return fail("the answer is not complete")
	}
	// The peer has the child from here on. A child that we cannot use is deleted.
	undo := func(why string) bool {
		s.deleteUnused(c.SPIIn, now)
		return fail(why)
	}
	chosen := p.sa.Proposals[0]
	leftOut := leftOutOf(p.nonce == nil)
	var offered []message.Proposal
	for _, one := range c.Conf.Proposals {
		offered = append(offered, suite.Without(one, leftOut...))
	}
	local, remote := s.ends(c.Conf)
	switch {
	case len(chosen.SPI) != 4 || !suite.Answers(numbered(offered, nil), chosen):
		return undo("the peer chose what was not offered")
	case !within(p.tsi.Selectors, local) || !within(p.tsr.Selectors, remote) || len(p.tsi.Selectors) > selectorLimit || len(p.tsr.Selectors) > selectorLimit:
		return undo("the peer chose selectors that were not offered")
	case c.Transport && p.notify[message.UseTransportMode] == nil:
		return undo("the peer refuses transport mode")
	}
	var shared, nonces []byte
	if p.nonce == nil {
		nonces = slices.Concat(s.ni, s.nr)
	} else {
		nonces = slices.Concat(c.nonce, p.nonce.Data, secrets)
		if group := suite.Get(chosen.Transforms, message.KeyExchange).ID; group != 0 {
			if p.ke == nil || c.exchange == nil || p.ke.Group != group || c.exchange.Group != group {
				return undo("the key exchange is not the one that was offered")
			}
			var err error
			if shared, err = c.exchange.Finish(p.ke.Data); err != nil {
				return undo(err.Error())
			}
		}
	}
	if c.Local, c.Remote = coupled(p.tsi.Selectors, p.tsr.Selectors); len(c.Local) == 0 {
		return undo("the peer chose selectors that no packet matches: " + selectorTexts(p.tsi.Selectors) + " to " + selectorTexts(p.tsr.Selectors))
	}
	c.SPIOut = binary.BigEndian.Uint32(chosen.SPI)
	if err := s.childKeys(c, chosen.Transforms, shared, nonces, true); err != nil {
		return undo(err.Error())
	}
	if c.replaces == nil && !redundant {
		// Of two IKE SAs the peer may have opened the other one meanwhile. It has all of this child.
		s.m.precedence++
		c.Precedence = s.m.precedence
	}
	s.addChild(c, now)
	s.m.act(Install{Child: c, Inbound: true, Outbound: !redundant})
	return true
}

// refusedChild is why a peer refuses a child that we propose.
func (s *ikeSA) refusedChild(conf *Child, n *message.Notify) string {
	why := "the peer answers " + n.Kind.String()
	switch n.Kind {
	case message.NoProposalChosen:
		why += ": it accepts none of " + suite.Offer(conf.Proposals)
	case message.TSUnacceptable:
		local, remote := s.ends(conf)
		why += fmt.Sprintf(": it accepts nothing of %s to %s", selectorTexts(local), selectorTexts(remote))
	}
	return why
}

// childFailed reports that a child of the configuration does not come up. One that must be up is tried again.
func (s *ikeSA) childFailed(conf *Child, why string, now time.Time) {
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "child-failed", Detail: conf.Name + ": " + why, Child: conf.Name})
	if current := s.m.connections[s.conn.Name]; current != nil && s.state == established {
		one := current.child(conf.Name)
		s.m.retry(current, one != nil && one.StartAction == Start && current.Remote.IsValid(), now)
	}
}

// started reports whether the IKE SA has all children that must be up.
func (s *ikeSA) started() bool {
	return !slices.ContainsFunc(s.conn.Children, func(conf *Child) bool {
		return conf.StartAction == Start && !slices.ContainsFunc(s.children, func(c *ChildSA) bool { return c.Conf.Name == conf.Name && !c.deleting })
	})
}

// childKeys derives the keys of a child. initiator: we began the exchange.
func (s *ikeSA) childKeys(c *ChildSA, chosen []message.Transform, shared, nonces []byte, initiator bool) error {
	k, err := suite.NewChildKeys(suite.Get(s.chosen, message.PRF).ID, chosen, s.keys.D, shared, nonces)
	if err != nil {
		return err
	}
	c.Chosen = chosen
	c.EncryptionOut, c.IntegrityOut, c.EncryptionIn, c.IntegrityIn = k.Ei, k.Ai, k.Er, k.Ar
	if !initiator {
		c.EncryptionOut, c.IntegrityOut, c.EncryptionIn, c.IntegrityIn = k.Er, k.Ar, k.Ei, k.Ai
	}
	return nil
}

// addChild makes a child one of the IKE SA's.
func (s *ikeSA) addChild(c *ChildSA, now time.Time) {
	c.exchange, c.nonce, c.since = nil, nil, now
	delete(s.m.held, heldKey{c.Connection, c.Conf.Name})
	if d := c.Conf.RekeyTime; d > 0 {
		c.rekeyAt = now.Add(d - d/10*time.Duration(c.SPIIn%64)/64)
	}
	if d := c.Conf.LifeTime; d > 0 {
		c.expires = now.Add(d)
	}
	s.insertChild(c)
	if s.started() {
		delete(s.m.again, s.conn.Name)
	}
	s.keepSA()
	what := "child-up"
	if c.replaces != nil {
		what = "child-rekeyed"
	}
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: what, Child: c.Conf.Name, Detail: fmt.Sprintf("%s: %08x in, %08x out, %s", c.Conf.Name, c.SPIIn, c.SPIOut, suite.Text(c.Chosen))})
}

// removeChild forgets a child.
func (s *ikeSA) removeChild(c *ChildSA) { s.replaceChild(c, 0) }

// replaceChild forgets a child when the one with the inbound SPI after is installed.
func (s *ikeSA) replaceChild(c *ChildSA, after uint32) {
	if old := c.replaces; c.half && !c.collides && old != nil {
		// The rekey was given up, and another one may begin.
		old.replaced = false
	} else if c.collides {
		s.endCollision(c, after)
	}
	s.takeChild(c.SPIIn)
	delete(s.m.children, c.SPIIn)
	if heir := s.inheritChild(c); after == 0 {
		after = heir
	}
	s.m.act(Remove{Child: c, After: after})
	s.settle(c.ask, nil, errors.New("the peer deletes the child"))
	s.owned(func() Action { return ChildDown{s.described(), c.state(), c.replaced} })
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "child-down", Child: c.Conf.Name, Detail: fmt.Sprintf("%s: %08x in, %08x out", c.Conf.Name, c.SPIIn, c.SPIOut)})
}

// endCollision forgets that a child of the peer collides with ours, which goes on, unless the peer's has a successor with the inbound SPI after.
func (s *ikeSA) endCollision(c *ChildSA, after uint32) {
	for _, old := range s.children {
		if old.collision != c {
			continue
		}
		if old.collision = s.childOf(after); old.collision != nil {
			old.collision.collides, old.collision.lowest = true, c.lowest
		}
	}
}

// acceptChild chooses what the peer proposes for a child. It returns the payloads of the answer; no child: an error. openAccepted opens it.
func (s *ikeSA) acceptChild(p authPayloads, replaces *ChildSA, confs []*Child, now time.Time) (*ChildSA, []message.Payload) {
	refuse := func(n message.NotifyType, data []byte) (*ChildSA, []message.Payload) {
		s.m.count("failure", n.String())
		return nil, []message.Payload{&message.Notify{Kind: n, Data: data}}
	}
	proposed := p.sa.Proposals
	for _, one := range proposed {
		if one.Protocol == message.ProtocolESP && len(one.SPI) != 4 {
			return refuse(message.InvalidSyntax, []byte{})
		}
	}
	leftOut, preferred := leftOutOf(p.nonce == nil), uint16(0)
	if p.ke != nil {
		preferred = p.ke.Group
	}
	if replaces != nil {
		confs = []*Child{replaces.Conf}
	}
	reason := message.TSUnacceptable
	// For the operator: which child, and what it accepts.
	var allowed []message.Proposal
	var selectors []string
	name := ""
	for _, conf := range confs {
		if conf.Transport && p.notify[message.UseTransportMode] == nil {
			continue
		}
		local, remote := s.ends(conf)
		local, remote = coupled(narrow(local, p.tsr.Selectors), narrow(remote, p.tsi.Selectors))
		if len(local) == 0 || len(remote) == 0 {
			local, remote = s.ends(conf)
			selectors = append(selectors, selectorTexts(remote)+" to "+selectorTexts(local))
			name = cmp.Or(name, conf.Name)
			continue
		}
		var ours []message.Proposal
		for _, one := range conf.Proposals {
			ours = append(ours, suite.Without(one, leftOut...))
		}
		allowed = append(allowed, ours...)
		chosen, ok := suite.Choose(ours, proposed, preferred)
		if !ok {
			reason, name = message.NoProposalChosen, conf.Name
			continue
		}
		var payloads []message.Payload
		var shared, nonces []byte
		if p.nonce == nil {
			nonces = slices.Concat(s.ni, s.nr)
		} else {
			nonce := random(nonceSize)
			nonces = slices.Concat(p.nonce.Data, nonce)
			payloads = append(payloads, &message.Nonce{Data: nonce})
			if group := suite.Get(chosen.Transforms, message.KeyExchange).ID; group != 0 {
				if preferred != group {
					return refuse(message.InvalidKEPayload, binary.BigEndian.AppendUint16(nil, group))
				}
				public, secret, err := suite.Respond(group, p.ke.Data)
				if err != nil {
					return refuse(message.InvalidSyntax, []byte{})
				}
				shared = secret
				payloads = append(payloads, &message.KE{Group: group, Data: public})
			}
		}
		c := s.newChild(conf, false)
		c.Local, c.Remote, c.SPIOut, c.replaces = local, remote, binary.BigEndian.Uint32(chosen.SPI), replaces
		c.Chosen, c.accepted = chosen.Transforms, &accepted{shared, nonces}
		c.lowest = lowest(nonces[:len(nonces)-nonceSize], nonces[len(nonces)-nonceSize:])
		answer := []message.Payload{&message.SA{Proposals: []message.Proposal{{Number: chosen.Number, Protocol: message.ProtocolESP, SPI: spiBytes(c.SPIIn), Transforms: chosen.Transforms}}}}
		answer = append(append(answer, payloads...), &message.TS{Selectors: remote}, &message.TS{Responder: true, Selectors: local})
		if conf.Transport {
			answer = append(answer, &message.Notify{Kind: message.UseTransportMode})
		}
		return c, answer
	}
	why := notAccepted(proposed, allowed)
	if reason == message.TSUnacceptable {
		why = fmt.Sprintf("no selectors of the peer are accepted: peer offers %s to %s; accepted: %s", selectorTexts(p.tsi.Selectors), selectorTexts(p.tsr.Selectors), strings.Join(selectors, ", "))
	}
	s.m.refuse(Event{Connection: s.conn.Name, Peer: s.remote, What: "child-failed", Detail: name + ": " + why, Child: name}, now)
	return refuse(reason, []byte{})
}

// openAccepted makes the keys of a child that acceptChild chose, and installs it. secrets: of additional key exchanges.
func (s *ikeSA) openAccepted(c *ChildSA, secrets []byte, now time.Time) error {
	from := c.accepted
	c.accepted = nil
	if err := s.childKeys(c, c.Chosen, from.shared, slices.Concat(from.nonces, secrets), false); err != nil {
		delete(s.m.children, c.SPIIn)
		return err
	}
	// Before the peer has our answer, it does not know the keys of packets to it. Of a rekeying the old child sends until its Delete comes.
	if old := c.replaces; old != nil && !c.collides && s.childOf(old.SPIIn) != old {
		c.replaces = nil
	}
	if !c.collides {
		c.lowest = nil
	}
	if c.replaces == nil {
		s.awaitProof(c, now)
	}
	c.half = c.replaces != nil || c.before != nil
	s.addChild(c, now)
	s.m.act(Install{Child: c, Inbound: true, Outbound: !c.half})
	return nil
}

// lowest returns the lower of two nonces.
func lowest(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return a
	}
	return b
}

// Children of one IKE SA of an owned connection.
const maxChildren = 256

// mostChildren is how many children an IKE SA may have; twice as many while they get new keys.
func (s *ikeSA) mostChildren() int {
	if s.conn.Owned {
		return maxChildren
	}
	return 16 + 4*len(s.conn.Children)
}
