// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// A rekey of the IKE SA (RFC 7296 section 1.3.2), from either end and from both at once.

// redundantTime is how long an IKE SA that another one replaces waits for its deletion.
const redundantTime = time.Minute

// overdueTime is the least time that a peer has after the rekey time of an IKE SA to accept new keys.
const overdueTime = 5 * time.Minute

// rekeyIKE replaces the IKE SA (RFC 7296 section 1.3.2).
func (s *ikeSA) rekeyIKE(now time.Time) {
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		if s.state != established || s.rekeying {
			return false
		}
		if s.twin != nil {
			// It ends.
			s.rekeyAt = now.Add(spread(ikeSoonAgain, s.ourSPI))
			return false
		}
		return s.sendRekey(0, now)
	})
}

func (s *ikeSA) sendRekey(group uint16, now time.Time) bool {
	n := s.m.newSA(s.conn, true, now)
	if group == 0 {
		group = suite.Get(s.chosen, message.KeyExchange).ID
	}
	e, err := suite.Begin(group)
	if err != nil {
		s.m.drop(n)
		return false
	}
	n.exchange, n.ni = e, random(nonceSize)
	s.rekeying, s.proposedSA = true, n
	offered := numbered(s.conn.Proposals, binary.BigEndian.AppendUint64(nil, n.ourSPI))
	kept := &proposedState{Group: group, Secret: e.Secret, Nonce: n.ni, SPI: n.ourSPI, Offered: offered}
	s.propose(message.CreateChildSA, 0, kept, now, s.rekeyed(n, offered), &message.SA{Proposals: offered}, &message.Nonce{Data: n.ni}, &message.KE{Group: group, Data: e.Public})
	return true
}

// rekeyed takes the response to our rekey of the IKE SA.
func (s *ikeSA) rekeyed(n *ikeSA, offered []message.Proposal) func([]message.Payload, time.Time) {
	return func(all []message.Payload, now time.Time) {
		p := readAuth(all)
		s.followUp(p, 0, now, func(secrets []byte, now time.Time) { s.rekeyAnswer(n, offered, p, secrets, now) },
			func(why string, now time.Time) { s.notRekeyed(n, why, now) })
	}
}

// notRekeyed forgets the IKE SA that we proposed. The peer's that collides with it goes on.
func (s *ikeSA) notRekeyed(n *ikeSA, why string, now time.Time) {
	s.rekeying, s.proposedSA = false, nil
	n.state = dead
	s.m.drop(n)
	s.rekeyAt = now.Add(rekeyAgain)
	if s.state != rekeyed {
		s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "rekey-failed", Detail: why})
	}
	if s.collision != nil && s.state == established {
		s.yield(now)
	}
}

// decide ends the time in which it is unknown whether this IKE SA, of the peer's rekey, is the redundant one.
func (s *ikeSA) decide() {
	old := s.undecided
	if old == nil {
		return
	}
	if old.collision == s {
		old.collision = nil
	}
	s.undecided = nil
	s.keepSA()
}

// yield leaves the rekey to the peer: at once, or when its last key exchange is complete.
func (s *ikeSA) yield(now time.Time) {
	other := s.collision
	other.decide()
	if other.state == established {
		s.succeed(other, now)
	}
}

// rekeyAnswer takes the answer to our rekeying. secrets: of additional key exchanges.
func (s *ikeSA) rekeyAnswer(n *ikeSA, offered []message.Proposal, p authPayloads, secrets []byte, now time.Time) {
	s.rekeying, s.proposedSA = false, nil
	forget := func(why string) { s.notRekeyed(n, why, now) }
	if s.state != established && (s.state != rekeyed || len(secrets) == 0 && p.notify[message.AdditionalKeyExchange] != nil) {
		forget("the IKE SA ends")
		return
	}
	if p.err != nil {
		if group := uint16(0); s.state == established && p.err.Kind == message.InvalidKEPayload && len(p.err.Data) == 2 && n.exchange.Group == suite.Get(s.chosen, message.KeyExchange).ID {
			// Once: the peer could go on for ever.
			group = binary.BigEndian.Uint16(p.err.Data)
			for _, one := range s.conn.Proposals {
				if group != n.exchange.Group && slices.Contains(one.Transforms, message.Transform{Type: message.KeyExchange, ID: group}) {
					n.state = dead
					s.m.drop(n)
					s.sendRekey(group, now)
					return
				}
			}
		}
		forget("the peer answers " + p.err.Kind.String())
		if p.err.Kind == message.TemporaryFailure && s.state == established {
			s.rekeyAt = now.Add(spread(ikeSoonAgain, s.ourSPI))
		}
		return
	}
	if p.sa == nil || p.nonce == nil || p.ke == nil || len(p.sa.Proposals) != 1 || len(p.sa.Proposals[0].SPI) != 8 ||
		!suite.Answers(offered, p.sa.Proposals[0]) || p.ke.Group != n.exchange.Group {
		forget("the peer chose what was not offered")
		return
	}
	shared, err := n.exchange.Finish(p.ke.Data)
	if err != nil {
		forget(err.Error())
		return
	}
	n.theirSPI, n.chosen, n.nr = binary.BigEndian.Uint64(p.sa.Proposals[0].SPI), p.sa.Proposals[0].Transforms, p.nonce.Data
	if err := s.inherit(n, shared, secrets, now); err != nil {
		forget(err.Error())
		return
	}
	if s.state == rekeyed {
		// The peer has said that its own replaces this one.
		n.successor = s.successor
		n.terminate(now, "both ends rekeyed")
		return
	}
	if other := s.collision; other != nil && bytes.Compare(lowest(n.ni, n.nr), other.lowest) < 0 {
		// Ours is redundant; the peer deletes the old one.
		n.successor = other
		n.terminate(now, "both ends rekeyed")
		s.yield(now)
		return
	}
	if other := s.collision; other != nil {
		// The peer deletes its own, unless it does not hear of it before the old one ends.
		other.decide()
		if other.state == established {
			other.state = rekeyed
		}
		other.successor, other.expires = n, now.Add(redundantTime)
		other.schedule()
	}
	s.succeed(n, now)
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		s.request(message.Informational, now, func([]message.Payload, time.Time) { s.close(now, "rekeyed") }, &message.Delete{Protocol: message.ProtocolIKE})
		return true
	})
}

// answerRekey answers the peer's rekeying of the IKE SA.
func (s *ikeSA) answerRekey(p authPayloads, now time.Time) {
	refuse := func(kind message.NotifyType, data []byte) {
		s.m.count("failure", kind.String())
		s.respond(message.CreateChildSA, nil, &message.Notify{Kind: kind, Data: data})
	}
	if p.ke == nil || s.changesChild() || s.collision != nil {
		if p.ke == nil {
			refuse(message.InvalidSyntax, []byte{})
		} else {
			refuse(message.TemporaryFailure, []byte{})
		}
		return
	}
	chosen, ok := suite.Choose(s.conn.Proposals, p.sa.Proposals, p.ke.Group)
	if !ok || len(chosen.SPI) != 8 || binary.BigEndian.Uint64(chosen.SPI) == 0 {
		refuse(message.NoProposalChosen, []byte{})
		s.m.refuse(Event{Connection: s.conn.Name, Peer: s.remote, What: "rekey-failed", Detail: notAccepted(p.sa.Proposals, s.conn.Proposals)}, now)
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
	n := s.m.newSA(s.conn, false, now)
	n.theirSPI, n.chosen, n.ni, n.nr = binary.BigEndian.Uint64(chosen.SPI), chosen.Transforms, bytes.Clone(p.nonce.Data), random(nonceSize)
	n.lowest = lowest(n.ni, n.nr)
	answer := []message.Payload{
		&message.SA{Proposals: []message.Proposal{{Number: chosen.Number, Protocol: message.ProtocolIKE, SPI: binary.BigEndian.AppendUint64(nil, n.ourSPI), Transforms: chosen.Transforms}}},
		&message.Nonce{Data: n.nr}, &message.KE{Group: group, Data: public}}
	drop := func() {
		n.state = dead
		s.m.drop(n)
	}
	take := func(now time.Time) {
		// Ours decides if both ends rekey, and it may have replaced the IKE SA already.
		if s.collision != n && s.state == established {
			s.succeed(n, now)
		}
	}
	groups := additionalGroups(n.chosen)
	if s.rekeying {
		s.collision, n.undecided = n, s
	}
	if len(groups) == 0 {
		if err := s.inherit(n, shared, nil, now); err != nil {
			drop()
			n.decide()
			refuse(message.NoProposalChosen, []byte{})
			return
		}
	}
	if len(groups) > 0 {
		answer = append(answer, s.awaitFollowUp(&followUp{groups: groups, ike: true, finish: func(secrets []byte, now time.Time) ([]uint32, func(), error) {
			return nil, func() { take(now) }, s.inherit(n, shared, secrets, now)
		}, abandon: func(now time.Time) {
			drop()
			n.decide()
			s.rekeyAt = now.Add(rekeyAgain)
		}}, now))
		s.respond(message.CreateChildSA, nil, answer...)
		return
	}
	s.respond(message.CreateChildSA, nil, answer...)
	take(now)
}

// changesChild says whether a request of ours that has no response yet creates, rekeys or deletes a child (RFC 7296 section 2.25.1). Its
// response must come before another IKE SA has the children.
func (s *ikeSA) changesChild() bool {
	if slices.ContainsFunc(s.children, func(c *ChildSA) bool { return c.rekeying }) {
		return true
	}
	r := s.outstanding
	if r == nil || s.rekeying {
		return false
	}
	return r.creates() || r.exchange == message.Informational && slices.ContainsFunc(s.children, func(c *ChildSA) bool { return c.deleting })
}

// creates says whether a request is a part of CREATE_CHILD_SA.
func (r *request) creates() bool {
	return r.exchange == message.CreateChildSA || r.exchange == message.IKEFollowupKE
}

// inherit gives a new IKE SA its keys and the state of this one. secrets: of additional key exchanges.
func (s *ikeSA) inherit(n *ikeSA, shared, secrets []byte, now time.Time) error {
	f, err := chosenPRF(s.chosen)
	if err != nil {
		return err
	}
	n.local, n.remote = s.local, s.remote
	if err := n.setKeys(f.Sum(s.keys.D, shared, n.ni, n.nr, secrets)); err != nil {
		return err
	}
	n.opener = s.opener
	n.natHere, n.natThere, n.fragments, n.mobike = s.natHere, s.natThere, s.fragments, s.mobike
	n.peer, n.authMethod, n.username, n.lease, n.addresses, n.tunnel = s.peer, s.authMethod, s.username, s.lease, s.addresses, s.tunnel
	n.id, n.confs, n.theirOthers, n.ticket = s.id, s.confs, s.theirOthers, s.ticket
	n.state, n.up, n.heard, n.exchange, n.reauthAt = established, now, now, nil, s.reauthAt
	n.first, n.answered = s.connected(), s.answered
	n.setTimes(now)
	s.m.identify(n)
	n.keepSA()
	n.schedule()
	return nil
}

// succeed moves the children to another IKE SA.
func (s *ikeSA) succeed(n *ikeSA, now time.Time) {
	n.decide()
	s.proven()
	if s.following != nil && !s.following.ike {
		s.abandonFollowUp(now)
	}
	for _, c := range s.sortedChildren() {
		s.takeChild(c.SPIIn)
		n.insertChild(c)
		c.sa = n
	}
	if s.state == established {
		s.state = rekeyed
	}
	s.successor = n
	n.twin, s.twin = s.twin, nil
	// If the peer does not delete the old one, we do.
	s.expires = now.Add(redundantTime)
	n.queue, s.queue = append(n.queue, s.queue...), nil
	n.asks, n.informs, s.asks, s.informs = s.asks, s.informs, nil, nil
	if s.conn.Owned {
		s.m.peers[n.id] = n
	}
	n.keepSA()
	s.keepSA()
	s.m.act(Event{Connection: s.conn.Name, Peer: s.remote, What: "rekeyed", Detail: suite.Text(n.chosen)})
	n.proceed(now)
	n.schedule()
	n.rest()
}
