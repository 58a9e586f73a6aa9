// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// Session resumption (RFC 5723). An initiator that has lost its peer opens the IKE SA again with a ticket: without a key exchange, certificates or EAP.
//
// A ticket is a reference: the responder keeps what it stands for as long as the IKE SA lives, and until the ticket expires if the peer was lost. A ticket
// of an IKE SA that either end has deleted is not valid. A ticket expires an hour after the authentication without a ticket: a peer with a revoked certificate and a
// disabled user resume for an hour at most. A change of the credentials that authenticated the peer ends its tickets at once.

const (
	ticketTime   = time.Hour
	ticketLength = 16
	maxTicket    = 1024
)

// ticket is what an IKE SA leaves to the one that resumes it.
type ticket struct {
	ID         []byte
	Connection string
	// The peer gave it to us. After a rekey, its initiator may be another end than at first.
	Given bool `json:",omitempty"`
	// An hour after the last authentication without a ticket at most.
	Expires time.Time
	// Of the connection, with which the peer was authenticated.
	Credentials []byte
	// Of the IKE SA for which it was made; rekeys keep its number.
	Of     uint64
	D      []byte
	Chosen []message.Transform
	// A record has it already.
	Peer Identity `json:"-"`
	// Of a remote user: what its back end granted.
	Username  string       `json:",omitempty"`
	Addresses []netip.Addr `json:",omitempty"`
	Pools     []string     `json:",omitempty"`
}

// resumable says whether a connection takes tickets. Another service, or a SubscriberProfile, decides on each user anew.
func (c *Connection) resumable() bool { return c.Resumption && !c.Owned && c.Profile == "" }

// fits says whether a ticket is still one of the connection.
func (t *ticket) fits(c *Connection, now time.Time) bool {
	_, agreed := suite.Choose(c.Proposals, []message.Proposal{{Protocol: message.ProtocolIKE, Transforms: t.Chosen}}, 0)
	return c.resumable() && agreed && now.Before(t.Expires) && c.RemoteID.Matches(t.Peer) && bytes.Equal(t.Credentials, c.credentials())
}

// ticketExpires is when a ticket of the IKE SA that comes up expires: that of one that is resumed, when the ticket before would have.
func (s *ikeSA) ticketExpires(now time.Time) time.Time {
	if s.resumed != nil {
		return s.resumed.Expires
	}
	return now.Add(ticketTime)
}

// ticketFor answers TICKET_REQUEST of the IKE SA that comes up (RFC 5723 section 4.1). a: its IKE_AUTH.
func (s *ikeSA) ticketFor(a *authentication, now time.Time) []message.Payload {
	if a.first.notify[message.TicketRequest] == nil {
		return nil
	}
	expires := s.ticketExpires(now)
	lifetime := expires.Sub(now) / time.Second
	if !s.conn.resumable() || lifetime <= 0 {
		return []message.Payload{&message.Notify{Kind: message.TicketNack}}
	}
	t := &ticket{ID: random(ticketLength), Connection: s.conn.Name, Expires: expires, Credentials: s.conn.credentials(), Of: s.id, D: s.keys.D, Chosen: s.chosen, Peer: s.peer,
		Username: s.username, Addresses: a.addresses, Pools: a.pools}
	s.ticket = t
	s.m.tickets[string(t.ID)] = t
	data := binary.BigEndian.AppendUint32(nil, uint32(lifetime))
	return []message.Payload{&message.Notify{Kind: message.TicketLifetimeOpaque, Data: append(data, t.ID...)}}
}

// takeTicket keeps the ticket that the responder gives us.
func (s *ikeSA) takeTicket(p authPayloads, now time.Time) {
	n := p.notify[message.TicketLifetimeOpaque]
	if n == nil || !s.conn.resumable() || len(n.Data) <= 4 || len(n.Data) > 4+maxTicket {
		return
	}
	expires := s.ticketExpires(now)
	if theirs := now.Add(time.Duration(binary.BigEndian.Uint32(n.Data)) * time.Second); theirs.Before(expires) {
		expires = theirs
	}
	s.ticket = &ticket{ID: bytes.Clone(n.Data[4:]), Connection: s.conn.Name, Given: true, Expires: expires, Credentials: s.conn.credentials(), Of: s.id, D: s.keys.D, Chosen: s.chosen, Peer: s.peer}
}

// keepTicket keeps the ticket of an IKE SA whose peer was lost. lost is false: one end has deleted the IKE SA, and the ticket ends with it.
func (s *ikeSA) keepTicket(lost bool) {
	t := s.ticket
	switch {
	case t == nil || s.successor != nil:
	case t.Given && lost:
		s.m.resumable[s.conn.Name] = t
	case !t.Given && !lost:
		delete(s.m.tickets, string(t.ID))
	}
}

// dropTickets forgets the tickets of a connection.
func (m *Machine) dropTickets(connection string) {
	maps.DeleteFunc(m.tickets, func(_ string, t *ticket) bool { return t.Connection == connection })
	delete(m.resumable, connection)
}

// dropTicketsOf forgets the tickets of remote users whom a function names.
func (m *Machine) dropTicketsOf(which func(c *Connection, username string) bool) []Action {
	dropped := func(t *ticket) bool {
		c := m.connections[t.Connection]
		return !t.Given && t.Username != "" && c != nil && which(c, t.Username)
	}
	before := len(m.tickets)
	maps.DeleteFunc(m.tickets, func(_ string, t *ticket) bool { return dropped(t) })
	if len(m.tickets) == before {
		return nil
	}
	for _, s := range m.sas {
		if s.ticket != nil && dropped(s.ticket) {
			s.ticket = nil
			s.keepSA() // another process takes the ticket from the record
		}
	}
	return m.done()
}

// sameCredentials says whether peers authenticate themselves to both connections in the same way. Without its files a connection is taken for the same: tickets
// are compared when they are used.
func (c *Connection) sameCredentials(other *Connection) bool {
	return c.Frozen || other.Frozen || bytes.Equal(c.credentials(), other.credentials())
}

// credentials are a hash of all that decides whether a peer is authenticated: also of the certificates that are revoked.
func (c *Connection) credentials() []byte {
	h := sha256.New()
	for _, part := range [][]byte{{byte(c.RemoteMethod), byte(c.EAPMethod)}, c.Secret, c.Authorities, c.Revocation} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// expireTickets forgets tickets that are too old.
func (m *Machine) expireTickets(now time.Time) {
	old := func(_ string, t *ticket) bool { return !now.Before(t.Expires) }
	maps.DeleteFunc(m.tickets, old)
	maps.DeleteFunc(m.resumable, old)
}

// useTicket begins an IKE SA with a ticket. false: there is none.
func (s *ikeSA) useTicket(now time.Time) bool {
	t := s.m.resumable[s.conn.Name]
	delete(s.m.resumable, s.conn.Name)
	if t == nil || !t.fits(s.conn, now) {
		return false
	}
	s.resumed, s.chosen = t, t.Chosen
	s.sendResume(nil, now)
	return true
}

// sendResume sends IKE_SESSION_RESUME.
func (s *ikeSA) sendResume(cookie []byte, now time.Time) {
	var payloads []message.Payload
	if cookie != nil {
		payloads = append(payloads, &message.Notify{Kind: message.Cookie, Data: cookie})
	}
	payloads = append(payloads, &message.Nonce{Data: s.ni}, &message.Notify{Kind: message.TicketOpaque, Data: s.resumed.ID})
	one := message.Message{Header: s.header(message.IKESessionResum, 0, false), Payloads: append(payloads, s.capabilities()...)}
	s.init1 = one.Append(nil)
	s.nextID = 1
	s.outstanding = &request{exchange: message.IKESessionResum, packets: [][]byte{s.init1}, sent: 1, deadline: now.Add(timeoutAfter(1))}
	s.send(s.outstanding.packets)
}

// receiveResume takes a response to IKE_SESSION_RESUME. As nothing protects it, a refusal only begins a full negotiation.
func (s *ikeSA) receiveResume(d Datagram, h message.Header, b []byte, now time.Time) {
	all, err := message.Parse(b)
	if err != nil {
		s.m.count("drop", "syntax")
		return
	}
	p := readInit(all.Payloads)
	if n := p.notify[message.Cookie]; n != nil && len(n.Data) > 0 && len(n.Data) <= 64 && p.nonce == nil {
		if s.beginsAnew(now) {
			s.sendResume(n.Data, now)
		}
		return
	}
	if p.notify[message.TicketNack] != nil || p.err != nil {
		s.m.count("failure", "ticket")
		s.resumed, s.chosen = nil, nil
		s.sendInit(suite.Get(s.conn.Proposals[0].Transforms, message.KeyExchange).ID, nil, now)
		return
	}
	if p.nonce == nil || h.SPIr == 0 {
		s.m.count("drop", "syntax")
		return
	}
	s.outstanding = nil
	s.theirSPI, s.nr, s.init2 = h.SPIr, p.nonce.Data, b
	s.learn(p, d)
	if err := s.seedResumed(); err != nil {
		s.fail(now, err.Error())
		return
	}
	s.toNATPort()
	s.expires = now.Add(10 * halfOpenTime)
	s.sendAuth(now)
}

// seedResumed derives the keys (RFC 5723 section 5.1).
func (s *ikeSA) seedResumed() error {
	f, err := chosenPRF(s.chosen)
	if err != nil {
		return err
	}
	s.usePPK = false // it is part of the keys of the IKE SA before
	return s.setKeys(f.Sum(s.resumed.D, []byte("Resumption"), s.ni, s.nr))
}

// resumedAuth is the AUTH of one end: it proves that the end has the keys of the IKE SA before (RFC 5723 section 5.1).
func (s *ikeSA) resumedAuth(initiator bool, id *message.ID) *message.Auth {
	key := s.keys.Pi
	if !initiator {
		key = s.keys.Pr
	}
	return &message.Auth{Method: message.AuthSharedKey, Data: s.prf.Sum(key, s.octets(initiator, id))}
}

// respondResume answers IKE_SESSION_RESUME.
func (m *Machine) respondResume(d Datagram, h message.Header, b []byte, now time.Time) {
	key := openingKey{place(d), d.Remote, h.SPIi}
	if m.openedBefore(key, b) {
		return
	}
	all, err := message.Parse(b)
	if err != nil {
		m.count("drop", "syntax")
		return
	}
	p := readInit(all.Payloads)
	n := p.notify[message.TicketOpaque]
	if p.nonce == nil || n == nil {
		m.count("drop", "syntax")
		return
	}
	header := message.Header{SPIi: h.SPIi, Exchange: message.IKESessionResum}
	if !m.mayOpen(d, h, p, header) {
		return
	}
	t := m.tickets[string(n.Data)]
	var c *Connection
	if t != nil {
		c = m.connections[t.Connection]
	}
	if c == nil || c.Dataplane != d.Dataplane || c.VRF != d.VRF || !c.takes(d.Local.Addr(), d.Remote.Addr()) || !t.fits(c, now) || c.RedirectTo != "" {
		m.count("failure", "ticket")
		m.reply(d, header, &message.Notify{Kind: message.TicketNack})
		return
	}
	s := m.newSA(c, false, now)
	s.resumed, s.chosen = t, t.Chosen
	m.addOpening(s, d, h, p, key, b)
	one := message.Message{Header: s.header(message.IKESessionResum, 0, true), Payloads: append([]message.Payload{&message.Nonce{Data: s.nr}}, s.capabilities()...)}
	s.init2 = one.Append(nil)
	s.expected, s.expires = 1, now.Add(halfOpenTime)
	if err := s.seedResumed(); err != nil {
		s.close(now, err.Error())
		return
	}
	s.send([][]byte{s.init2})
	s.schedule()
}

// answerResumed answers IKE_AUTH of an IKE SA that is resumed.
func (s *ikeSA) answerResumed(p authPayloads, now time.Time) {
	t := s.resumed
	if p.idi == nil || p.auth == nil || identityOf(p.idi) != t.Peer || !equalAuth(p.auth.Data, s.resumedAuth(true, p.idi).Data) {
		s.failAuth(now, message.AuthenticationFailed, "the peer does not have the keys of the IKE SA that it resumes")
		return
	}
	s.peer, s.username, s.authMethod = t.Peer, t.Username, "ticket"
	delete(s.m.tickets, string(t.ID))
	s.endResumed(now)
	a := &authentication{first: p, idi: p.idi, idr: s.localIdentity().payload(true), addresses: t.Addresses, pools: t.Pools}
	s.auth = a
	s.finishAuth(a, []message.Payload{a.idr}, nil, now)
}

// endResumed closes the IKE SA that this one resumes, if it is still there.
func (s *ikeSA) endResumed(now time.Time) {
	for _, other := range s.m.identities[s.identityKey()] {
		if other != s && other.id == s.resumed.Of && other.living() {
			other.close(now, "the peer resumes it")
		}
	}
}
