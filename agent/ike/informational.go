// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/subscriber"
)

// INFORMATIONAL of the peer (RFC 7296 section 1.4): deletes, MOBIKE (RFC 4555), liveness.

// A peer has few Deletes on the way while it answers a proposal of ours.
const maxDeletedEarly = 8

// answerInformational answers INFORMATIONAL.
func (s *ikeSA) answerInformational(d Datagram, all []message.Payload, now time.Time) {
	p := readAuth(all)
	var payloads []message.Payload
	var spis [][]byte
	// Inbound SPIs of children that take the place of deleted ones. The peer gets the answer when they send: it may then no longer
	// receive on the old ones.
	after := s.uninstalled()
	restart := map[string]ChildAction{}
	for _, one := range p.deletes {
		if one.Protocol == message.ProtocolIKE {
			s.deletedByPeer(d, now)
			return
		}
		for _, spi := range one.SPIs {
			c := s.byOutbound(spi)
			if c == nil {
				if s.outstanding != nil && s.outstanding.spi != 0 && len(spi) == 4 && len(s.m.deletedEarly[s]) < maxDeletedEarly {
					s.m.deletedEarly[s] = append(s.m.deletedEarly[s], [4]byte(spi))
				}
				continue
			}
			if !c.deleting {
				// RFC 7296 section 1.4.1: both ends delete at once; each names only those that the other does not.
				spis = append(spis, spiBytes(c.SPIIn))
			}
			if !c.replaced && c.collision == nil && !c.deleting {
				restart[c.Conf.Name] = c.Conf.CloseAction
				s.m.hold(c, c.Conf.CloseAction)
			}
			// The new one sends before the old one is gone.
			successor := s.complete(c)
			s.replaceChild(c, successor)
			if c.replaced || successor != 0 {
				c.deletePredecessor(now)
			}
			if successor != 0 {
				after = append(after, successor)
			}
		}
	}
	if len(spis) > 0 {
		payloads = append(payloads, &message.Delete{Protocol: message.ProtocolESP, SPIs: spis})
	}
	if n := p.notify[message.UpdateSAAddresses]; n != nil && s.mobike && !s.opener {
		// RFC 4555 section 3.5: the packet's addresses are the new ones.
		s.natThere = false
		for _, source := range p.notification {
			if source.Kind == message.NATDetectionSourceIP {
				h := s.header(0, 0, false)
				s.natThere = !bytes.Equal(source.Data, natHash(h.SPIi, h.SPIr, d.Remote))
			}
		}
		if s.conn.takes(d.Local.Addr(), d.Remote.Addr()) {
			s.moveTo(d.Local, d.Remote, now)
			s.learnAdditional(p.notification)
		} else {
			payloads = append(payloads, &message.Notify{Kind: message.UnacceptableAddresses})
		}
	}
	if n := p.notify[message.InvalidSPI]; n != nil {
		s.unknownToPeer(n, now)
	}
	if n := p.notify[message.Cookie2]; n != nil {
		payloads = append(payloads, &message.Notify{Kind: message.Cookie2, Data: n.Data})
	}
	if s.mobike {
		h := s.header(0, 0, false)
		if p.notify[message.NATDetectionSourceIP] != nil {
			payloads = append(payloads, &message.Notify{Kind: message.NATDetectionSourceIP, Data: natHash(h.SPIi, h.SPIr, d.Local)},
				&message.Notify{Kind: message.NATDetectionDestinationIP, Data: natHash(h.SPIi, h.SPIr, d.Remote)})
		}
	}
	if private := privateOf(p.notification); s.conn.Owned && s.state == established && len(private) > 0 {
		s.suspended = true
		s.ask(Notified{s.described(), private}, func(answer any, _ time.Time) {
			s.suspended = false
			a, _ := answer.(NotifiedAnswer)
			s.respond(message.Informational, after, append(payloads, payloadsOf(a.Notify)...)...)
		})
	} else {
		s.respond(message.Informational, after, payloads...)
	}
	if p.err != nil && p.err.Kind == message.AuthenticationFailed {
		// The initiator does not trust us.
		s.close(now, "the peer does not trust our authentication")
		return
	}
	if len(p.deletes) > 0 {
		s.keepSA()
	}
	for name, action := range restart {
		switch action {
		case Start:
			s.ensureChild(name, now)
		case Clear:
			if len(s.children) == 0 && s.initiator && (s.outstanding == nil || s.outstanding.spi == 0) {
				// An IKE SA without children serves nothing.
				s.terminate(now, "the peer deleted the last child")
			}
		}
	}
}

// ended is the answer to the Delete that ended an IKE SA, for a Delete that comes again because the answer was lost.
type ended struct {
	request  [sha256.Size]byte
	response [][]byte
	after    []uint32
}

// maxEnded bounds the answers that are kept in a cookieTime.
const maxEnded = 16384

func (m *Machine) remember(spi uint64, request []byte, response [][]byte, after []uint32) {
	if len(m.ended[0]) < maxEnded {
		m.ended[0][spi] = ended{sha256.Sum256(request), response, after}
	}
}

// answerAgain answers a Delete of an IKE SA that is gone, if it is the same packet as the first time. It reports whether it was.
func (m *Machine) answerAgain(spi uint64, d Datagram) bool {
	for _, all := range m.ended {
		if one, known := all[spi]; known && one.request == sha256.Sum256(d.Data) {
			m.count("packet", "retransmission")
			for _, packet := range one.response {
				d.Data = marked(d.Local.Port(), packet)
				m.act(Send{d, one.after})
			}
			return true
		}
	}
	return false
}

// deletesIKE reports whether a request deletes its IKE SA.
func deletesIKE(payloads []message.Payload) bool {
	return slices.ContainsFunc(payloads, func(p message.Payload) bool {
		one, is := p.(*message.Delete)
		return is && one.Protocol == message.ProtocolIKE
	})
}

// complete has the child send that takes the place of one that the peer deletes. It returns its inbound SPI; 0: there is none.
func (s *ikeSA) complete(old *ChildSA) (after uint32) {
	for _, c := range s.sortedChildren() {
		if c.half && c.replaces == old {
			c.half, c.replaces = false, nil
			s.m.act(Install{Child: c, Outbound: true})
			after = c.SPIIn
		}
	}
	return after
}

// deletedByPeer answers a Delete of the IKE SA.
func (s *ikeSA) deletedByPeer(d Datagram, now time.Time) {
	// The peer no longer receives on the children when it has the answer.
	var after []uint32
	for _, c := range s.children {
		after = append(after, s.heirs(c)...)
	}
	s.respond(message.Informational, after)
	s.m.remember(s.ourSPI, d.Data, s.response, after)
	if s.collision != nil && s.collision.state == established {
		// Both ends rekeyed, and the peer has not seen our request.
		s.succeed(s.collision, now)
	}
	for _, c := range s.children {
		s.m.hold(c, c.Conf.CloseAction)
	}
	restart := s.state == established && s.restart(func(c *Child) ChildAction { return c.CloseAction })
	conn := s.conn
	s.cause = cmp.Or(s.cause, subscriber.UserRequest)
	s.close(now, "the peer deleted it")
	s.m.retry(conn, restart, now)
}
