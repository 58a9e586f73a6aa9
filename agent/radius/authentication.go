// SPDX-License-Identifier: Apache-2.0

// Access-Requests of subscribers, and the evaluation of their answers.
package radius

import (
	"fmt"
	"strings"
	"time"

	"sluice.dev/sluice/agent/subscriber"
)

// unavailable makes an error by which the Manager asks the next back end.
func unavailable(why string) error { return fmt.Errorf("%w: %s", subscriber.ErrUnavailable, why) }

// Authenticate implements subscriber.Authenticator.
func (s *radius) Authenticate(r subscriber.Request, done func(subscriber.Answer)) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.policyOf(r.Profile)
	if p == nil || len(p.authentication) == 0 {
		go done(subscriber.Answer{Reject: unavailable("no RadiusPolicy authenticates for profile " + r.Profile)})
		return
	}
	all, password, err := p.accessAttributes(&r)
	if err != nil {
		s.authenticated(p.name, "invalid")
		go done(subscriber.Answer{Reject: err})
		return
	}
	name := p.name
	x := &exchange{code: AccessRequest, group: name, attributes: all, password: password, choices: func() []choice {
		if p := s.policyNamed(name); p != nil {
			return p.authentication
		}
		return nil
	}}
	mschap, username := r.MSCHAPv2 != nil, ""
	if p.userName != "" {
		username = p.username(&r)
	}
	of := whom{username: p.username(&r), circuit: r.Line.Circuit.String()}
	x.done = func(reply packet, from *endpoint) {
		// s.mu is held.
		result, answer := s.answer(p, of, reply, from, mschap)
		if answer.Reject == nil && answer.Grant.Username == "" {
			// Without a User-Name in the reply, accounting has that of the request (RFC 2865 section 5.1).
			answer.Grant.Username = username
		}
		s.authenticated(name, result)
		s.callBack(func() { done(answer) })
	}
	s.carryOut(s.client.submit(x, now))
}

// answer reads a reply. s.mu is held.
func (s *radius) answer(p *policy, of whom, reply packet, from *endpoint, mschap bool) (result string, _ subscriber.Answer) {
	if reply == nil {
		return "unavailable", subscriber.Answer{Reject: unavailable("no RADIUS server of RadiusPolicy " + p.name + " answers")}
	}
	var room [32]attribute
	g, err := grantOf(reply.appendAttributes(room[:0]), p.spec.Attributes)
	s.countIgnored(&g, from)
	message := g.message
	if mschap && g.chap != "" {
		message = g.chap
	}
	switch {
	case reply.code() == AccessReject:
		return "reject", subscriber.Answer{Reject: fmt.Errorf("RADIUS server %s sent Access-Reject", from.server), Message: message}
	case reply.code() == AccessChallenge:
		return "challenge", subscriber.Answer{Reject: fmt.Errorf("RADIUS server %s sent Access-Challenge, which PAP and CHAP cannot answer", from.server)}
	}
	if err = s.judge(p, &g, err, "RADIUS server "+from.server, func() whom { return of }); err != nil {
		// Not by its text, which may have another value for each subscriber. The Manager's line has each reason.
		if s.seldom(from.server + " is invalid") {
			s.Log.Warn("an Access-Accept counts as an Access-Reject", "server", from.server, "error", err)
		}
		return "invalid", subscriber.Answer{Reject: fmt.Errorf("RADIUS server %s: %w", from.server, err)}
	}
	if mschap && !strings.HasPrefix(g.chap, "S=") {
		return "invalid", subscriber.Answer{Reject: fmt.Errorf("RADIUS server %s sent Access-Accept without MS-CHAP2-Success", from.server)}
	}
	return "accept", subscriber.Answer{Message: message, Grant: g.Grant}
}

// countIgnored counts ignored attributes of a reply, and logs an unreadable one: the subscriber may be without the limit that it sets. s.mu is
// held.
func (s *radius) countIgnored(g *granted, from *endpoint) {
	s.ignore("unknown", g.unsupported)
	s.ignore("unreadable", g.unreadable)
	if len(g.unreadable) > 0 && s.seldom(from.server+" "+g.unreadable[0]+" is unreadable") {
		s.Log.Warn("an attribute of a RADIUS server cannot be read", "server", from.server, "error", g.firstUnreadable)
	}
}
