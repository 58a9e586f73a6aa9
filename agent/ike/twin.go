// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Two IKE SAs of one peer with the same children: both ends opened one at the same time, or one end authenticates again (RFC 7296 section 2.8.3). No
// packet is lost, as with a rekey: the responder receives on a new child at once, and sends on the one of before until the initiator shows that it has the
// new one. The end of the old IKE SA first sends on the new children only, and receives on the old ones until the peer has answered the Delete.

// twin is the IKE SA for which another one ends.
type twin struct {
	stays *ikeSA
	// When the one that ends is looked at.
	at time.Time
	// It sends no more, since this time.
	yields bool
	since  time.Time
	// The one that stays is a reauthentication: the other one ends also without a child that the peer refused.
	reauth bool
	tries  int
}

const (
	// For packets that are on their way, and for the children of the IKE SA that stays.
	twinTime = time.Second
	// When the responder asks whether the initiator has an IKE SA: its response to IKE_AUTH waits for the data plane.
	proofTime = time.Second / 2
	// How often an IKE SA that ends waits for those.
	twinTries = 100
	// When the responder asks whether the initiator has a child of CREATE_CHILD_SA, for which the initiator has sent its request again by then.
	childProofTime = time.Minute
	askAgain       = 5 * time.Second
)

// findTwin looks for an IKE SA that the peer opened while we opened one. The one whose initiator's SPI is lower ends: its initiator deletes it when the
// children of the other one are up.
func (s *ikeSA) findTwin(now time.Time) {
	if !s.conn.Remote.IsValid() || s.conn.RemoteMethod == EAP || s.conn.Owned {
		return
	}
	for _, other := range s.m.identities[s.identityKey()] {
		if !s.crosses(other) {
			continue
		}
		ends, stays := s, other
		if other.endsFor(s) {
			ends, stays = other, s
		}
		if ends.initiator {
			stays.unproven = now.Add(proofTime)
			stays.schedule()
			ends.endFor(stays, false, now.Add(twinTime))
		} else {
			// The peer ends it sooner, unless it saw the requests at other times.
			ends.endFor(stays, false, now.Add(redundantTime))
		}
	}
}

// endFor has an IKE SA end for another one.
func (s *ikeSA) endFor(stays *ikeSA, reauth bool, at time.Time) {
	s.twin = &twin{stays: stays, reauth: reauth, at: at}
	s.keepSA()
	s.schedule()
}

// crosses reports whether the peer opened an IKE SA while we opened the other one. One that began later replaces the other one: reauthentication.
func (s *ikeSA) crosses(other *ikeSA) bool {
	return other != s && other.state == established && other.initiator != s.initiator && other.conn.Name == s.conn.Name && !s.began.After(other.up) && !other.began.After(s.up)
}

// endsFor reports which of two IKE SAs that cross ends.
func (s *ikeSA) endsFor(other *ikeSA) bool {
	return s.header(0, 0, false).SPIi < other.header(0, 0, false).SPIi
}

// replacedBy ends an IKE SA, or the one that has replaced it, for its reauthentication.
func (s *ikeSA) replacedBy(other *ikeSA, now time.Time) {
	if s = s.current(); s.state == established && s != other {
		s.endFor(other, true, now)
	}
}

// current is the IKE SA, or the one that a rekey has put in its place.
func (s *ikeSA) current() *ikeSA {
	for s.state != established && s.successor != nil && s.successor != s {
		s = s.successor
	}
	return s
}

// yields reports whether an IKE SA sends no more.
func (s *ikeSA) yields() bool { return s.twin != nil && s.twin.yields }

// giveWay ends an IKE SA in favour of its twin, without a packet lost: first it only receives, and its inbound SAs stay until the peer has answered the
// Delete. It reports whether the IKE SA ends.
func (s *ikeSA) giveWay(now time.Time) bool {
	t := s.twin
	t.stays = t.stays.current()
	outbound := func(put bool) {
		if put && !t.yields {
			return
		}
		t.yields, t.since = !put, now
		for _, c := range s.sortedChildren() {
			if put && !c.half {
				s.m.act(Install{Child: c, Outbound: true})
			} else if !put {
				s.m.act(Remove{Child: c, OutboundOnly: true})
			}
		}
	}
	why := "the peer opened one at the same time"
	if t.reauth {
		why = "authenticated anew"
	}
	switch serves := s.twinServes(); {
	case t.stays.state != established || !serves && t.tries >= twinTries && !t.reauth:
		outbound(true)
		s.twin = nil
		if t.reauth {
			s.reauthAt = now.Add(rekeyAgain)
		}
		s.keepSA()
		return false
	case !serves && t.tries < twinTries:
		t.tries++
		t.at = now.Add(twinTime)
		outbound(true)
		return false
	case serves && (!t.yields || slices.ContainsFunc(s.children, func(c *ChildSA) bool { return !c.half && c.since.After(t.since) })):
		t.at = now.Add(twinTime)
		outbound(false)
		return false
	}
	s.terminate(now, why)
	return true
}

// twinServes reports whether the twin has all children that the IKE SA has, installed, and the peer has them as well.
func (s *ikeSA) twinServes() bool {
	stays := s.twin.stays
	if !stays.unproven.IsZero() {
		return false
	}
	return !slices.ContainsFunc(s.children, func(c *ChildSA) bool {
		has, serves := false, false
		for _, other := range stays.children {
			if other.Conf.Name == c.Conf.Name && !other.deleting {
				has, serves = true, serves || other.told && !other.half
			}
		}
		return !serves && (has || !s.twin.reauth)
	})
}

// predecessor is the child of another IKE SA of the peer that carries what c will carry; nil: none.
func (s *ikeSA) predecessor(c *ChildSA) *ChildSA {
	if s.conn.Owned || s.conn.RemoteMethod == EAP {
		return nil
	}
	for _, other := range s.m.identities[s.identityKey()] {
		// A peer that does not answer may have lost it, and so may one with another address.
		if other == s || other.state != established || other.yields() || other.remote.Addr() != s.remote.Addr() || other.outstanding != nil && other.outstanding.sent > 1 {
			continue
		}
		for _, before := range other.children {
			if before.Conf.Name == c.Conf.Name && before.serves().Tunnel == c.serves().Tunnel && !before.deleting && !before.half && within(c.Local, before.Local) && within(c.Remote, before.Remote) {
				return before
			}
		}
	}
	return nil
}

// awaitProof looks for the child of another IKE SA that sends until the peer has c, which it proposed.
func (s *ikeSA) awaitProof(c *ChildSA, now time.Time) {
	c.before = s.predecessor(c)
	if c.before == nil {
		return
	}
	c.before.hasHeir = true
	if other := c.before.sa; s.crosses(other) && s.endsFor(other) {
		// It never sends, unless the other one is lost.
		c.Precedence = c.before.Precedence - 1
	}
	// Without the response to IKE_AUTH the peer does not answer.
	wait := childProofTime
	if s.handshake != nil && s.auth != nil {
		wait = proofTime
	}
	s.unproven = now.Add(wait)
	s.awaited++
}

// prove asks the peer whether it has the IKE SA.
func (s *ikeSA) prove(now time.Time) {
	s.unproven = now.Add(askAgain)
	asked := s.awaited
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		if s.unproven.IsZero() || s.awaited != asked {
			return false
		}
		s.request(message.Informational, now, func([]message.Payload, time.Time) {
			// Another child may have come since.
			if s.awaited == asked {
				s.proven()
			}
		})
		return true
	})
}

// proven has the children send that the peer has shown to have.
func (s *ikeSA) proven() {
	if s.unproven.IsZero() {
		return
	}
	s.unproven = time.Time{}
	for _, c := range s.children {
		s.completeHeir(c)
	}
	s.keepSA()
}

// uninstalled are the inbound SPIs of children that our data plane does not have yet. With another IKE SA of the peer a message of ours waits for them, as it
// shows the peer that we have the children.
func (s *ikeSA) uninstalled() (all []uint32) {
	if !s.initiator || s.state != established || len(s.m.identities[s.identityKey()]) < 2 {
		return nil
	}
	for _, c := range s.children {
		if c.ours && !c.told {
			all = append(all, c.SPIIn)
		}
	}
	return all
}

// completeHeir has a child send that takes the place of one of another IKE SA.
func (s *ikeSA) completeHeir(c *ChildSA) {
	if c.half && c.before != nil {
		// The data plane does not have the outbound SA yet.
		c.half, c.told = false, false
		s.m.act(Install{Child: c, Outbound: true})
	}
}

// heirs has the children send that take the place of c. It returns their inbound SPIs.
func (s *ikeSA) heirs(c *ChildSA) (all []uint32) {
	if !c.hasHeir {
		return nil
	}
	for _, other := range s.m.identities[s.identityKey()] {
		for _, heir := range other.children {
			if heir.before == c {
				other.completeHeir(heir)
				all = append(all, heir.SPIIn)
			}
		}
	}
	return all
}

// inheritChild has the children send that take the place of c, which is gone, unless there is still another one. It returns the inbound SPI of one of them; 0:
// there is none.
func (s *ikeSA) inheritChild(c *ChildSA) (after uint32) {
	if !c.hasHeir {
		return 0
	}
	for _, other := range s.m.identities[s.identityKey()] {
		for _, heir := range other.children {
			if heir.before != c {
				continue
			}
			if next := other.predecessor(heir); heir.half && next != nil {
				heir.before, next.hasHeir = next, true
				continue
			}
			other.completeHeir(heir)
			heir.before, after = nil, heir.SPIIn
			other.keepSA()
		}
	}
	return after
}

// restoreTwins has IKE SAs that ended for another one go on with it, and children that were not proven.
func (m *Machine) restoreTwins(twins map[uint64]*saState, now time.Time) {
	for spi, r := range twins {
		s, stays := m.sas[spi], m.sas[r.Twin]
		if s == nil || s.state != established || stays == nil || stays == s {
			continue
		}
		s.endFor(stays, r.Reauth, now.Add(twinTime))
		if !stays.initiator {
			stays.unproven = now.Add(proofTime)
			stays.schedule()
		}
	}
	for _, s := range m.sas {
		for _, c := range s.children {
			if !c.half || c.replaces != nil || c.replaced {
				continue
			}
			if c.before = s.predecessor(c); c.before != nil {
				c.before.hasHeir = true
				s.unproven = now.Add(twinTime)
				s.schedule()
				continue
			}
			c.half = false
			m.act(Install{Child: c, Outbound: true})
			s.keepSA()
		}
	}
}
