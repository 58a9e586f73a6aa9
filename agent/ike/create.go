// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// CREATE_CHILD_SA for children: new ones and rekeys (RFC 7296 sections 1.3.1 and 1.3.3).

// rekeyAgain is when a rekey that failed begins again.
const rekeyAgain = 30 * time.Second

// When a rekey begins again that the peer refused for the moment (RFC 7296 section 2.25). A rekey of the IKE SA and one of a child exclude each other, and the
// ends may refuse both: children are first then.
const (
	childSoonAgain = 2 * time.Second
	ikeSoonAgain   = 5 * time.Second
)

// spread adds up to two seconds, by the SPI.
func spread(after time.Duration, spi uint64) time.Duration {
	return after + time.Duration(spi%32)*time.Second/16
}

// ensureChild makes a child by CREATE_CHILD_SA, unless it exists.
func (s *ikeSA) ensureChild(name string, now time.Time) {
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		conf := s.conn.child(name)
		if conf == nil || s.state != established {
			return false
		}
		for _, c := range s.children {
			if c.Conf.Name == name && !c.deleting {
				return false
			}
		}
		return s.create(conf, nil, 0, nil, now)
	})
}

// rekeyChild replaces a child.
func (s *ikeSA) rekeyChild(c *ChildSA, now time.Time) {
	c.due = true
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		if s.state != established || s.childOf(c.SPIIn) != c || c.replaced || c.deleting || c.rekeying || c.pending {
			return false
		}
		if c.half || s.twin != nil {
			// The peer may not have our response yet that makes it. With a twin, the IKE SA ends.
			c.rekeyAt = now.Add(spread(childSoonAgain, uint64(c.SPIIn)))
			return false
		}
		return s.create(c.Conf, c, 0, nil, now)
	})
}

// firstGroup is the key exchange that we try first for a child.
func firstGroup(conf *Child) uint16 {
	return suite.Get(conf.Proposals[0].Transforms, message.KeyExchange).ID
}

// create sends CREATE_CHILD_SA for a child. group 0: the first of the proposal. ask: nil, or the request of the
// connection's owner.
func (s *ikeSA) create(conf *Child, old *ChildSA, group uint16, ask *childAsk, now time.Time) bool {
	c := s.newChild(conf, true)
	c.replaces, c.ask = old, ask
	if group == 0 {
		group = firstGroup(conf)
	}
	if group != 0 {
		e, err := suite.Begin(group)
		if err != nil {
			delete(s.m.children, c.SPIIn)
			return false
		}
		c.exchange = e
	}
	var payloads []message.Payload
	if old != nil {
		old.rekeying = true
		payloads = append(payloads, &message.Notify{Protocol: message.ProtocolESP, SPI: spiBytes(old.SPIIn), Kind: message.RekeySA})
	}
	payloads = append(payloads, s.offer(c, true)...)
	if ask != nil {
		payloads = append(payloads, payloadsOf(ask.notify)...)
	}
	kept := &proposedState{Group: group, Nonce: c.nonce, Name: conf.Name}
	if c.exchange != nil {
		kept.Secret = c.exchange.Secret
	}
	if old != nil {
		kept.Replaces = old.SPIIn
	}
	if s.conn.Owned {
		kept.Conf = conf
	}
	s.propose(message.CreateChildSA, c.SPIIn, kept, now, s.childCreated(c, old, group), payloads...)
	return true
}

// childCreated takes the response to our CREATE_CHILD_SA for a child.
func (s *ikeSA) childCreated(c, old *ChildSA, group uint16) func([]message.Payload, time.Time) {
	return func(all []message.Payload, now time.Time) {
		p := readAuth(all)
		s.followUp(p, c.SPIIn, now, func(secrets []byte, now time.Time) { s.created(c, old, group, p, secrets, now) },
			func(why string, now time.Time) { s.notCreated(c, old, why, now) })
	}
}

// notCreated forgets a child that we proposed: its additional key exchanges failed.
func (s *ikeSA) notCreated(c, old *ChildSA, why string, now time.Time) {
	delete(s.m.children, c.SPIIn)
	if old != nil {
		old.rekeying = false
		old.notRekeyed(now)
	}
	s.settle(c.ask, nil, errors.New(why))
	s.m.count("failure", "child")
	s.childFailed(c.Conf, why, now)
}

// created takes the answer to CREATE_CHILD_SA for a child. secrets: of additional key exchanges.
func (s *ikeSA) created(c, old *ChildSA, group uint16, p authPayloads, secrets []byte, now time.Time) {
	if old != nil {
		old.rekeying = false
	}
	if c.ask != nil {
		c.ask.answer = p.notification
	}
	if s.state != established {
		delete(s.m.children, c.SPIIn)
		s.settle(c.ask, nil, errors.New("the IKE SA ends"))
		return
	}
	if p.err != nil {
		delete(s.m.children, c.SPIIn)
		switch {
		case p.err.Kind == message.InvalidKEPayload && len(p.err.Data) == 2 && binary.BigEndian.Uint16(p.err.Data) != group && group == firstGroup(c.Conf):
			// Once: the peer could go on for ever.
			other := binary.BigEndian.Uint16(p.err.Data)
			for _, one := range c.Conf.Proposals {
				if slices.Contains(one.Transforms, message.Transform{Type: message.KeyExchange, ID: other}) {
					s.create(c.Conf, old, other, c.ask, now)
					return
				}
			}
		case old != nil && old.collision != nil:
			old.notRekeyed(now)
		case old != nil && p.err.Kind == message.ChildSANotFound:
			// RFC 7296 section 2.25: the peer does not have it any more.
			if s.childOf(old.SPIIn) == old {
				s.removeChild(old)
				s.ensureChild(old.Conf.Name, now)
			}
			return
		case old != nil && p.err.Kind == message.TemporaryFailure:
			old.rekeyAt = now.Add(spread(childSoonAgain, uint64(old.SPIIn)))
			return
		case old != nil:
			old.rekeyAt = now.Add(rekeyAgain)
		}
		s.settle(c.ask, nil, errors.New("the peer answers "+p.err.Kind.String()))
		s.m.count("failure", p.err.Kind.String())
		s.childFailed(c.Conf, s.refusedChild(c.Conf, p.err), now)
		return
	}
	if p.nonce == nil {
		delete(s.m.children, c.SPIIn)
		if old != nil {
			old.notRekeyed(now)
		}
		s.settle(c.ask, nil, errors.New("the answer has no nonce"))
		s.childFailed(c.Conf, "the answer has no nonce", now)
		return
	}
	if p.sa != nil && len(p.sa.Proposals) == 1 && slices.ContainsFunc(s.m.deletedEarly[s], func(spi [4]byte) bool { return bytes.Equal(spi[:], p.sa.Proposals[0].SPI) }) {
		// The peer's Delete of it has overtaken its response.
		delete(s.m.children, c.SPIIn)
		if old != nil {
			old.notRekeyed(now)
		}
		s.settle(c.ask, nil, errors.New("the peer deletes the child"))
		s.childFailed(c.Conf, "the peer deletes the child", now)
		return
	}
	// RFC 7296 section 2.8.1: of two children for the same one, that with the lowest nonce is redundant.
	redundant := old != nil && old.collision != nil && bytes.Compare(lowest(c.nonce, p.nonce.Data), old.collision.lowest) < 0
	if redundant {
		c.replaces = nil
	}
	if !s.childAnswer(c, p, secrets, redundant, now) {
		if old != nil {
			old.notRekeyed(now)
		}
		return
	}
	if old == nil {
		return
	}
	if redundant {
		// The peer deletes the old one.
		old.notRekeyed(now)
		s.deleteChild(c, now)
		return
	}
	// Installed deletes the old one. The peer deletes its own child, if there is one.
	other := old.collision
	if old.collision, old.replaced = nil, true; other != nil {
		other.replaces, other.replaced = nil, true
		s.keepSA()
	}
}

// notRekeyed leaves the rekey of a child to the peer's that collides with ours. If there is none, ours begins again later.
func (c *ChildSA) notRekeyed(now time.Time) {
	other := c.collision
	if other == nil {
		c.rekeyAt = now.Add(rekeyAgain)
		return
	}
	c.collision, other.collides, other.lowest = nil, false, nil
	// A child of the peer that lacks key exchanges replaces ours when it has them.
	c.replaced = other.accepted == nil
	c.sa.keepSA()
}

// deleteChild ends a child by a Delete.
func (s *ikeSA) deleteChild(c *ChildSA, now time.Time) {
	if c.deleting || s.childOf(c.SPIIn) != c {
		return
	}
	c.deleting = true
	s.keepSA()
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		if s.childOf(c.SPIIn) != c || s.state == deleting {
			return false
		}
		s.request(message.Informational, now, func(_ []message.Payload, now time.Time) {
			// A rekeying of the IKE SA may have moved the child.
			if s := c.sa; s.childOf(c.SPIIn) == c {
				// A child of the peer that takes its place waits for a Delete, which the peer does not send any more.
				s.replaceChild(c, s.complete(c))
				if c.replaced {
					c.deletePredecessor(now)
				}
				s.keepSA()
			}
		}, &message.Delete{Protocol: message.ProtocolESP, SPIs: [][]byte{spiBytes(c.SPIIn)}})
		return true
	})
}

// deleteUnused deletes a child that the peer alone has, before all other requests: there is no record of it but that of the request.
func (s *ikeSA) deleteUnused(spi uint32, now time.Time) {
	s.queue = slices.Insert(s.queue, 0, func(s *ikeSA, now time.Time) bool {
		s.request(message.Informational, now, func([]message.Payload, time.Time) {}, &message.Delete{Protocol: message.ProtocolESP, SPIs: [][]byte{spiBytes(spi)}})
		return true
	})
	s.proceed(now)
	s.schedule()
}

// deletePredecessor deletes the child that this one has replaced, when this one has been replaced and deleted before the data plane reported it as installed.
func (c *ChildSA) deletePredecessor(now time.Time) {
	if old := c.replaces; c.ours && old != nil && old.sa != nil {
		c.replaces = nil
		old.sa.deleteChild(old, now)
	}
}

// byOutbound finds a child by the SPI that the peer receives with.
func (s *ikeSA) byOutbound(spi []byte) *ChildSA {
	for _, c := range s.children {
		if len(spi) == 4 && c.SPIOut == binary.BigEndian.Uint32(spi) {
			return c
		}
	}
	return nil
}

// answerCreate answers CREATE_CHILD_SA.
func (s *ikeSA) answerCreate(all []message.Payload, now time.Time) {
	p := readAuth(all)
	s.abandonFollowUp(now)
	refuse := func(n message.NotifyType) {
		s.m.count("failure", n.String())
		s.respond(message.CreateChildSA, nil, &message.Notify{Kind: n, Data: []byte{}})
	}
	switch {
	case p.sa == nil || p.nonce == nil:
		refuse(message.InvalidSyntax)
		return
	case s.state != established:
		refuse(message.TemporaryFailure)
		return
	case p.sa.Proposals[0].Protocol == message.ProtocolIKE:
		s.answerRekey(p, now)
		return
	case s.rekeying:
		refuse(message.TemporaryFailure)
		return
	case p.tsi == nil || p.tsr == nil:
		refuse(message.InvalidSyntax)
		return
	}
	var old *ChildSA
	if n := p.notify[message.RekeySA]; n != nil {
		old = s.byOutbound(n.SPI)
		switch {
		case old == nil && s.outstanding != nil && s.outstanding.spi != 0:
			// The request may have overtaken the response that makes the child.
			refuse(message.TemporaryFailure)
			return
		case old == nil:
			s.m.count("failure", message.ChildSANotFound.String())
			s.respond(message.CreateChildSA, nil, &message.Notify{Protocol: message.ProtocolESP, SPI: n.SPI, Kind: message.ChildSANotFound})
			return
		case old.deleting || old.replaced || old.collision != nil:
			refuse(message.TemporaryFailure)
			return
		}
	}
	if most := s.mostChildren(); old == nil && len(s.children) >= most || len(s.children) >= 2*most {
		refuse(message.NoAdditionalSAs)
		return
	}
	if s.conn.Owned && old == nil {
		s.suspended = true
		s.ask(ProposeChild{s.described(), p.notification}, func(answer any, now time.Time) {
			s.suspended = false
			a, _ := answer.(ChildAccepted)
			if a.Child == nil {
				s.m.count("failure", message.NoAdditionalSAs.String())
				s.respond(message.CreateChildSA, nil, append(payloadsOf(a.Notify), &message.Notify{Kind: message.NoAdditionalSAs, Data: []byte{}})...)
				return
			}
			s.openProposed(p, nil, []*Child{a.Child}, a.Notify, now)
		})
		return
	}
	s.openProposed(p, old, s.conn.Children, nil, now)
}

// openProposed opens a child that the peer proposes.
func (s *ikeSA) openProposed(p authPayloads, old *ChildSA, confs []*Child, notify []*message.Notify, now time.Time) {
	c, payloads := s.acceptChild(p, old, confs, now)
	payloads = append(payloads, payloadsOf(notify)...)
	if c == nil {
		s.respond(message.CreateChildSA, nil, payloads...)
		return
	}
	if c.collides = old != nil && old.rekeying; c.collides {
		old.collision = c
	}
	open := func(secrets []byte, now time.Time) error {
		if err := s.openAccepted(c, secrets, now); err != nil {
			return err
		}
		if old != nil && !c.collides {
			old.replaced = true
		}
		return nil
	}
	if groups := additionalGroups(c.Chosen); len(groups) > 0 {
		pend := func(is bool) {
			if old != nil {
				old.pending = is
			}
		}
		pend(true)
		n := s.awaitFollowUp(&followUp{groups: groups, finish: func(secrets []byte, now time.Time) ([]uint32, func(), error) {
			pend(false)
			return []uint32{c.SPIIn}, nil, open(secrets, now)
		}, abandon: func(now time.Time) {
			pend(false)
			delete(s.m.children, c.SPIIn)
			if old != nil {
				old.rekeyAt = now.Add(rekeyAgain)
				if old.collision == c {
					old.collision = nil
				}
			}
		}}, now)
		s.respond(message.CreateChildSA, nil, append(payloads, n)...)
		return
	}
	if err := open(nil, now); err != nil {
		s.m.count("failure", message.NoProposalChosen.String())
		s.respond(message.CreateChildSA, nil, &message.Notify{Kind: message.NoProposalChosen, Data: []byte{}})
		return
	}
	s.respond(message.CreateChildSA, []uint32{c.SPIIn}, payloads...)
}
