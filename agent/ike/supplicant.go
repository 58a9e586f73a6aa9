// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"fmt"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// The initiator as a user that authenticates by EAP (RFC 7296 section 2.16).

// receiveEAP takes a response with an EAP packet. The first one authenticates the responder.
func (s *ikeSA) receiveEAP(a *authentication, p authPayloads, now time.Time) {
	switch {
	case a.trusted && p.eap != nil:
		if a.rounds++; a.rounds > maxEAPRounds {
			s.fail(now, fmt.Sprintf("EAP is not over after %d packets", maxEAPRounds))
			return
		}
		s.answerEAP(a, p.eap.Data)
	case !a.trusted && p.idr != nil && p.auth != nil && p.eap != nil:
		a.idr, s.peer = p.idr, identityOf(p.idr)
		if !s.conn.RemoteID.Matches(s.peer) {
			s.fail(now, fmt.Sprintf("the peer is %s, not %s", s.peer, s.conn.RemoteID))
			return
		}
		s.verify(p, s.octets(false, p.idr), func(err error, now time.Time) {
			if err != nil {
				s.fail(now, err.Error())
				return
			}
			a.trusted = true
			s.answerEAP(a, p.eap.Data)
		})
	default:
		s.fail(now, "the peer's IKE_AUTH has no identity, no authentication or no EAP")
	}
}

// answerEAP answers an EAP packet, and after EAP-Success proves that we know the key.
func (s *ikeSA) answerEAP(a *authentication, packet []byte) {
	s.conversation = s.ourSPI
	s.ask(EAPResponse{s.conn.Name, s.conversation, packet}, func(answer any, now time.Time) {
		r, _ := answer.(EAPReply)
		if r.Err != nil {
			s.fail(now, r.Err.Error())
			return
		}
		if r.Packet != nil {
			s.request(message.IKEAuth, now, s.receiveAuth, &message.EAP{Data: r.Packet})
			return
		}
		a.proved, a.msk = true, r.MSK
		key := a.msk
		if key == nil {
			key = s.keys.Pi
		}
		s.request(message.IKEAuth, now, s.receiveAuth, &message.Auth{Method: message.AuthSharedKey, Data: sharedKeyAuth(s.prf, key, s.octets(true, a.idi))})
	})
}

// verifyEAP checks the responder's AUTH with the key of EAP.
func (s *ikeSA) verifyEAP(p authPayloads, octets []byte, then func(err error, now time.Time)) {
	s.authMethod = "eap"
	key := s.auth.msk
	if key == nil {
		key = s.keys.Pr
	}
	if p.auth.Method != message.AuthSharedKey || !equalAuth(p.auth.Data, sharedKeyAuth(s.prf, key, octets)) {
		then(fmt.Errorf("%w: %s does not know the key of EAP", errAuthentication, s.peer), s.heard)
		return
	}
	then(nil, s.heard)
}

// takeAddresses takes the addresses that the responder gives us.
func (s *ikeSA) takeAddresses(p authPayloads) {
	if !s.conn.AskAddress || p.cp == nil || p.cp.Kind != message.ConfigurationReply {
		return
	}
	for _, one := range p.cp.Attributes {
		n := map[uint16]int{message.InternalIP4Address: 4, message.InternalIP6Address: 16}[one.Type]
		if address, ok := netip.AddrFromSlice(one.Value[:min(n, len(one.Value))]); ok && len(s.given) < 16 {
			s.given = append(s.given, address)
		}
	}
}
