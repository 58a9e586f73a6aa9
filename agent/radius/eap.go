// SPDX-License-Identifier: Apache-2.0

// EAP packets of peers, carried to RADIUS servers (RFC 3579).
package radius

import (
	"crypto/md5"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/eap"
)

const (
	portVirtual        = 5
	microsoftMPPESend  = 16
	microsoftMPPERecv  = 17
	mppeSaltLength     = 2
	mostEAPMessage     = 3500 // RADIUS packets have at most 4096 bytes
	mskLength          = 64
	defaultEAPMTU      = 1400
	encapsulationOfEAP = 4 // the part of Framed-MTU besides the packet (RFC 3579 section 2.4)
)

// eapState holds the attributes that the next request must repeat.
type eapState struct {
	// The server that knows the conversation.
	from  *endpoint
	state []byte
}

// Relay implements eap.Relay.
func (s *radius) Relay(r eap.RelayRequest, done func(eap.Relayed)) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policyOf(r.Profile)
	if p == nil || len(p.authentication) == 0 {
		go done(eap.Relayed{Err: unavailable("no RadiusPolicy authenticates for profile " + r.Profile)})
		return
	}
	if len(r.Packet) > mostEAPMessage {
		go done(eap.Relayed{Err: fmt.Errorf("an EAP packet of %d bytes; RADIUS carries at most %d", len(r.Packet), mostEAPMessage)})
		return
	}
	if len(r.Username) > maxValue {
		go done(eap.Relayed{Err: longName(len(r.Username))})
		return
	}
	a := make(attributes, 0, 512)
	p.nas.add(&a)
	a.text(typeUserName, r.Username)
	a.number(typeServiceType, serviceFramed)
	a.number(typeNASPortType, portVirtual)
	a.text(typeCallingStationID, r.Calling.String())
	a.text(typeCalledStationID, r.Called.String())
	a.text(typeAcctSessionID, r.ID)
	mtu := r.MTU
	if mtu == 0 {
		mtu = defaultEAPMTU
	}
	a.number(typeFramedMTU, uint32(mtu-encapsulationOfEAP))
	state, _ := r.State.(*eapState)
	if state != nil && state.state != nil {
		a.add(typeState, state.state)
	}
	// Half a packet would be another one.
	if parts := (len(r.Packet) + maxValue - 1) / maxValue; len(a)+len(r.Packet)+2*parts > attributesRoom {
		go done(eap.Relayed{Err: fmt.Errorf("an EAP packet of %d bytes, and %d bytes of other attributes: a RADIUS packet has no room for both", len(r.Packet), len(a))})
		return
	}
	for part := range slices.Chunk(r.Packet, maxValue) {
		a.add(typeEAPMessage, part)
	}
	name := p.name
	group := name
	if state != nil {
		// No other server has the conversation. No name has a space.
		group += " " + state.from.server
	}
	x := &exchange{code: AccessRequest, eap: true, group: group, attributes: a, choices: func() []choice {
		p := s.policyNamed(name)
		switch {
		case p == nil:
			return nil
		case state != nil:
			return []choice{{state.from, 0}}
		}
		return p.authentication
	}}
	of := whom{username: r.Username, circuit: r.Calling.String()}
	x.done = func(reply packet, from *endpoint) {
		// s.mu is held.
		result, answer := s.relayed(p, of, reply, from, x.request)
		s.authenticated(name, result)
		s.callBack(func() { done(answer) })
	}
	s.carryOut(s.client.submit(x, now))
}

// relayed reads the answer to a packet that was relayed. s.mu is held.
func (s *radius) relayed(p *policy, of whom, reply packet, from *endpoint, request authenticator) (result string, r eap.Relayed) {
	if reply == nil {
		r.Err = unavailable("no RADIUS server of RadiusPolicy " + p.name + " answers")
		return "unavailable", r
	}
	all := reply.attributes()
	state := &eapState{from: from}
	var send, receive []byte
	for _, a := range all {
		switch {
		case a.vendor == 0 && a.kind == typeEAPMessage:
			r.Packet = append(r.Packet, a.value...)
		case a.vendor == 0 && a.kind == typeState:
			state.state = slices.Clone(a.value)
		case a.vendor == vendorMicrosoft && a.kind == microsoftMPPESend:
			send = mppeKey(a.value, request, []byte(from.secret))
		case a.vendor == vendorMicrosoft && a.kind == microsoftMPPERecv:
			receive = mppeKey(a.value, request, []byte(from.secret))
		}
	}
	switch reply.code() {
	case AccessChallenge:
		r.Challenge, r.State = true, state
		return "challenge", r
	case AccessAccept:
		g, err := grantOf(all, p.spec.Attributes)
		if err = s.judge(p, &g, err, "RADIUS server "+from.server, func() whom { return of }); err != nil {
			r.Err = fmt.Errorf("RADIUS server %s: %w", from.server, err)
			return "invalid", r
		}
		s.countIgnored(&g, from)
		r.Accept = true
		if len(receive)+len(send) > 0 {
			// RFC 3748 section 7.10: the MSK has at least 64 bytes. Methods with shorter keys have zeros behind both.
			r.MSK = slices.Concat(receive, send, make([]byte, max(mskLength-len(receive)-len(send), 0)))
		}
		r.Grant = &g.Grant
		r.Username, r.Pools = g.Username, slices.Concat(g.IPv4Pools, g.IPv6Pools)
		for _, a := range []netip.Addr{g.IPv4, g.IPv6} {
			if a.IsValid() {
				r.Addresses = append(r.Addresses, a)
			}
		}
		return "accept", r
	}
	r.Err = fmt.Errorf("RADIUS server %s sent %s", from.server, reply.code())
	return "reject", r
}

// mppeKey decrypts a key (RFC 2548 section 2.4.2); nil: it is malformed.
func mppeKey(value []byte, request authenticator, secret []byte) []byte {
	if len(value) < mppeSaltLength+md5.Size || (len(value)-mppeSaltLength)%md5.Size != 0 {
		return nil
	}
	before := append(slices.Clone(request[:]), value[:mppeSaltLength]...)
	var plain []byte
	for block := range slices.Chunk(value[mppeSaltLength:], md5.Size) {
		sum := md5.Sum(append(slices.Clone(secret), before...))
		for i, b := range block {
			plain = append(plain, b^sum[i])
		}
		before = block
	}
	if int(plain[0]) > len(plain)-1 {
		return nil
	}
	return plain[1 : 1+int(plain[0])]
}
