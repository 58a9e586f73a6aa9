// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"errors"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// IKE_FOLLOWUP_KE (RFC 9370 section 2.2.4): the additional key exchanges of CREATE_CHILD_SA, for rekeys and for new children.

// followUpTime is how long a responder waits for the next key exchange.
const followUpTime = 20 * time.Second

// followUp is a CREATE_CHILD_SA of the peer whose additional key exchanges are not complete.
type followUp struct {
	// The peer returns it with the next key exchange.
	link    []byte
	groups  []uint16
	secrets []byte
	// It rekeys the IKE SA.
	ike     bool
	expires time.Time
	// finish makes the SA with the secrets of all key exchanges. The response waits until the child SAs with the SPIs in after are installed; then,
	// unless it is nil, is called behind the response.
	finish func(secrets []byte, now time.Time) (after []uint32, then func(), err error)
	// abandon forgets the SA.
	abandon func(now time.Time)
}

// followUp does the additional key exchanges that the peer chose in its answer p to our CREATE_CHILD_SA. then gets their secrets. spi: the inbound SPI
// of the child that we propose; 0: it is a rekey of the IKE SA.
func (s *ikeSA) followUp(p authPayloads, spi uint32, now time.Time, then func(secrets []byte, now time.Time), failed func(why string, now time.Time)) {
	if p.err != nil || p.sa == nil || len(p.sa.Proposals) != 1 {
		then(nil, now)
		return
	}
	s.nextFollowUp(additionalGroups(p.sa.Proposals[0].Transforms), p.notify[message.AdditionalKeyExchange], nil, spi, now, then, failed)
}

func (s *ikeSA) nextFollowUp(groups []uint16, link *message.Notify, secrets []byte, spi uint32, now time.Time, then func([]byte, time.Time), failed func(string, time.Time)) {
	switch {
	case len(groups) == 0 || s.state != established:
		then(secrets, now)
		return
	case link == nil:
		failed("the peer leaves out an additional key exchange", now)
		return
	}
	e, err := suite.Begin(groups[0])
	if err != nil {
		failed(err.Error(), now)
		return
	}
	s.propose(message.IKEFollowupKE, spi, nil, now, func(all []message.Payload, now time.Time) {
		p := readAuth(all)
		switch {
		case p.err != nil:
			failed("the peer answers "+p.err.Kind.String()+" to IKE_FOLLOWUP_KE", now)
			return
		case p.ke == nil || p.ke.Group != e.Group:
			failed("the peer's IKE_FOLLOWUP_KE has another key exchange", now)
			return
		}
		shared, err := e.Finish(p.ke.Data)
		if err != nil {
			failed(err.Error(), now)
			return
		}
		s.nextFollowUp(groups[1:], p.notify[message.AdditionalKeyExchange], append(secrets, shared...), spi, now, then, failed)
	}, &message.KE{Group: e.Group, Data: e.Public}, &message.Notify{Kind: message.AdditionalKeyExchange, Data: link.Data})
}

// awaitFollowUp keeps what the peer proposes until its additional key exchanges are complete. It returns the notification for the response.
func (s *ikeSA) awaitFollowUp(f *followUp, now time.Time) *message.Notify {
	f.link, f.expires = random(8), now.Add(followUpTime)
	s.following = f
	return &message.Notify{Kind: message.AdditionalKeyExchange, Data: f.link}
}

// abandonFollowUp forgets a CREATE_CHILD_SA of the peer that is not complete.
func (s *ikeSA) abandonFollowUp(now time.Time) {
	if f := s.following; f != nil {
		s.following = nil
		f.abandon(now)
	}
}

// answerFollowUp answers IKE_FOLLOWUP_KE.
func (s *ikeSA) answerFollowUp(all []message.Payload, now time.Time) {
	p, f := readAuth(all), s.following
	refuse := func(n message.NotifyType) {
		s.m.count("failure", n.String())
		s.respond(message.IKEFollowupKE, nil, &message.Notify{Kind: n, Data: []byte{}})
	}
	n := p.notify[message.AdditionalKeyExchange]
	if f == nil || n == nil || !bytes.Equal(n.Data, f.link) {
		refuse(message.StateNotFound)
		return
	}
	var public, shared []byte
	err := errors.New("another key exchange")
	if p.ke != nil && p.ke.Group == f.groups[0] {
		public, shared, err = suite.Respond(p.ke.Group, p.ke.Data)
	}
	if err != nil {
		s.abandonFollowUp(now)
		refuse(message.InvalidSyntax)
		return
	}
	payloads := []message.Payload{&message.KE{Group: p.ke.Group, Data: public}}
	f.secrets, f.groups = append(f.secrets, shared...), f.groups[1:]
	if len(f.groups) > 0 {
		s.respond(message.IKEFollowupKE, nil, append(payloads, s.awaitFollowUp(f, now))...)
		return
	}
	s.following = nil
	after, then, err := f.finish(f.secrets, now)
	if err != nil {
		f.abandon(now)
		refuse(message.NoProposalChosen)
		return
	}
	s.respond(message.IKEFollowupKE, after, payloads...)
	if then != nil {
		then()
	}
}
