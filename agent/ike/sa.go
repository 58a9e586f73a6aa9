// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/subscriber"
)

// state is where an IKE SA stands.
type state uint8

const (
	// IKE_SA_INIT or IKE_AUTH are going on.
	opening state = iota
	established
	// A rekey has replaced it.
	rekeyed
	// Our Delete has no response yet.
	deleting
	dead
)

func (s state) String() string {
	return [...]string{"connecting", "established", "rekeyed", "deleting", "gone"}[s]
}

// ikeSA is an IKE SA.
type ikeSA struct {
	m                *Machine
	conn             *Connection
	ourSPI, theirSPI uint64
	// The first SPI; rekeys keep it.
	id             uint64
	dataplane, vrf string
	local, remote  netip.AddrPort
	// Message IDs: of our next request, and of the next one of the peer.
	nextID, expected  uint32
	state             state
	natHere, natThere bool
	// We sent IKE_SA_INIT, or began the rekey.
	initiator bool
	// We opened the first IKE SA. RFC 4555 section 2.1 calls this end the initiator, also after rekeys.
	opener bool
	// The response to the expected request waits for the answer to a question.
	suspended         bool
	fragments, mobike bool
	// Our rekey has no response yet.
	rekeying bool
	// As the initiator: a request is sent by other pairs of addresses.
	probing bool
	// Why the user's session ends; 0: the gateway ends it.
	cause subscriber.Cause

	chosen  []message.Transform
	prf     suite.Function
	keys    suite.Keys
	in, out *suite.Protection
	// nil when the IKE SA is up, and none of its exchanges goes on.
	*handshake

	// Requests of ours: one at a time.
	outstanding *request
	queue       []func(s *ikeSA, now time.Time) bool

	// Requests of the peer.
	response [][]byte
	// Fragments of a request and of a response, which may have the same ID.
	requestParts, responseParts *reassembly

	peer         Identity
	authMethod   string
	username     string
	conversation uint64
	lease        uint64
	addresses    []netip.Addr
	// The IpsecTunnel of the user; empty: that of the child's configuration.
	tunnel string
	// As initiator: those that the responder gives us.
	given []netip.Addr
	// Of an owned connection: the children's configuration, if not that of the connection, and the owner's pending
	// requests.
	confs         []*Child
	asks, informs map[uint64]bool

	// In the order of their inbound SPIs.
	children  []*ChildSA
	successor *ikeSA
	// The IKE SA of the peer's rekey that collides with ours, and its lower nonce.
	collision *ikeSA
	lowest    []byte
	// Of the peer's rekey that collides with ours: the IKE SA that it replaces, until one of the two has lost. Nothing of ours is sent on it.
	undecided *ikeSA
	// The child or the IKE SA that our outstanding request proposes.
	proposed   *ChildSA
	proposedSA *ikeSA
	// The peer's proposal for which not all keys are exchanged yet.
	following *followUp
	// The ticket with which it is opened, and the one for the IKE SA that resumes it.
	resumed, ticket *ticket

	// By which addresses the last request of the peer came.
	came path
	// Other addresses of the peer.
	theirOthers []netip.Addr
	// Before this time the peer gets no other INVALID_SPI.
	tellAgain time.Time

	began, up, heard time.Time
	// Since when the peer is connected, if a rekey has made this IKE SA; else the zero time. When the peer sent its last message that could be read.
	first, answered            time.Time
	rekeyAt, reauthAt, expires time.Time
	// The IKE SA for which this one ends; nil: none.
	twin *twin
	// We are the responder, there is another IKE SA of the peer, and the peer has not shown yet that it has this one: when we ask it.
	unproven time.Time
	// How many children have waited for that.
	awaited int
	// How often overdueAt has passed.
	overdue int

	// In the heap of deadlines.
	at    time.Time
	index int
}

// handshake is what an IKE SA needs until it is up.
type handshake struct {
	// From where the peer opened it.
	opened       netip.AddrPort
	ni, nr       []byte
	init1, init2 []byte
	exchange     *suite.Exchange
	// Of IKE_INTERMEDIATE: what AUTH signs, and how many there were.
	intAuthI, intAuthR []byte
	intermediates      int
	authID             uint32
	peerHashes         []uint16
	intermediate       bool
	usePPK             bool
	contacted          bool
	// How often IKE_SA_INIT has begun anew: for a cookie, another group, or another gateway.
	begun int
	auth  *authentication
	// Children that follow.
	nextChildren []string
	// The IKE SA that this one replaces by reauthentication.
	reauthOf *ikeSA
	// The reason to terminate the IKE SA as soon as IKE_AUTH ends; empty: none.
	ending string
}

// request is a request of ours that waits for its response.
type request struct {
	id       uint32
	exchange message.Exchange
	packets  [][]byte
	sent     int
	deadline time.Time
	// Called with the payloads of the response, or with nil if no response came.
	done func(payloads []message.Payload, now time.Time)
	// Inbound SPI that the request proposes.
	spi      uint32
	proposed *proposedState
}

// reassembly is fragments of one message.
type reassembly struct {
	id    uint32
	first message.PayloadType
	parts [][]byte
	left  int
	size  int
}

func (s *ikeSA) place() string { return s.dataplane + "\x00" + s.vrf }

func (s *ikeSA) header(exchange message.Exchange, id uint32, response bool) message.Header {
	h := message.Header{SPIi: s.ourSPI, SPIr: s.theirSPI, Exchange: exchange, ID: id}
	if !s.initiator {
		h.SPIi, h.SPIr = s.theirSPI, s.ourSPI
	} else {
		h.Flags |= message.FlagInitiator
	}
	if response {
		h.Flags |= message.FlagResponse
	}
	return h
}

func (s *ikeSA) spis() []byte {
	h := s.header(0, 0, false)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, h.SPIi), h.SPIr)
}

// setKeys derives keys from SKEYSEED.
func (s *ikeSA) setKeys(seed []byte) (err error) {
	if s.prf, err = chosenPRF(s.chosen); err != nil {
		return err
	}
	if s.keys, err = suite.NewKeys(s.chosen, seed, slices.Concat(s.ni, s.nr), s.spis()); err != nil {
		return err
	}
	return s.protect()
}

// protect makes the protection of messages from the keys.
func (s *ikeSA) protect() (err error) {
	i, err := suite.NewProtection(s.chosen, s.keys.Ei, s.keys.Ai)
	if err != nil {
		return err
	}
	r, err := suite.NewProtection(s.chosen, s.keys.Er, s.keys.Ar)
	if err != nil {
		return err
	}
	if s.in, s.out = r, i; !s.initiator {
		s.in, s.out = i, r
	}
	return nil
}

// rest frees what an IKE SA without a pending exchange does not need: expanded keys, and all of its beginning.
func (s *ikeSA) rest() {
	if s.state != established || s.outstanding != nil || s.suspended || s.in == nil {
		return
	}
	s.in.Rest()
	s.out.Rest()
	if h := s.handshake; h != nil && h.auth == nil && len(h.nextChildren) == 0 && h.reauthOf == nil {
		s.handshake = nil
		s.keys.Pi, s.keys.Pr = nil, nil
	}
}

// sealed encrypts payloads, in fragments if the message is long and the peer takes them.
func (s *ikeSA) sealed(h message.Header, payloads []message.Payload) [][]byte {
	plain, first := message.AppendPayloads(nil, payloads), message.FirstOf(payloads)
	whole := s.out.Length(len(plain))
	if !s.fragments || message.HeaderLength+4+whole <= fragmentSize {
		return [][]byte{s.out.Seal(message.AppendHead(nil, h, first, 0, 0, whole), plain)}
	}
	room := s.out.Room(fragmentSize - message.HeaderLength - 8)
	total := (len(plain) + room - 1) / room
	var packets [][]byte
	for i := range total {
		part := plain[i*room : min((i+1)*room, len(plain))]
		packets = append(packets, s.out.Seal(message.AppendHead(nil, h, first, uint16(i+1), uint16(total), s.out.Length(len(part))), part))
		first = 0
	}
	return packets
}

// send sends packets of one message.
func (s *ikeSA) send(packets [][]byte, after ...uint32) {
	s.sendBy(path{s.local, s.remote}, packets, after...)
}

// Times between transmissions of a request: 2 s, then 1.8 times the last.
const firstTimeout = 2 * time.Second

func timeoutAfter(sent int) time.Duration {
	t := firstTimeout
	for range sent - 1 {
		t = t * 9 / 5
	}
	return t
}

// request sends a protected request. Another one must not be outstanding.
func (s *ikeSA) request(exchange message.Exchange, now time.Time, done func([]message.Payload, time.Time), payloads ...message.Payload) {
	s.propose(exchange, 0, nil, now, done, payloads...)
}

// propose sends a request that proposes a child with this inbound SPI; 0: none. proposed: what another process needs to take the response; nil: nothing.
func (s *ikeSA) propose(exchange message.Exchange, spi uint32, proposed *proposedState, now time.Time, done func([]message.Payload, time.Time), payloads ...message.Payload) {
	delete(s.m.deletedEarly, s)
	id := s.nextID
	s.nextID++
	s.transmit(&request{id: id, exchange: exchange, packets: s.sealed(s.header(exchange, id, false), payloads), done: done, spi: spi, proposed: proposed}, now)
}

func (s *ikeSA) transmit(r *request, now time.Time) {
	r.sent, r.deadline = 1, now.Add(timeoutAfter(1))
	s.outstanding = r
	s.keepWindow()
	s.send(r.packets, s.uninstalled()...)
}

// enqueue has a request begun when none is outstanding. begin returns whether it sent one.
func (s *ikeSA) enqueue(now time.Time, begin func(s *ikeSA, now time.Time) bool) {
	if len(s.queue) >= maxQueue {
		s.m.count("drop", "queue-full")
		return
	}
	s.queue = append(s.queue, begin)
	s.proceed(now)
	s.schedule()
}

// proceed begins the next request.
func (s *ikeSA) proceed(now time.Time) {
	for s.outstanding == nil && len(s.queue) > 0 && s.state != dead && s.state != opening && s.undecided == nil && (s.following == nil || !s.following.ike) {
		begin := s.queue[0]
		s.queue = s.queue[1:]
		begin(s, now)
	}
}

// respond sends the response to the request that is expected, and keeps it.
func (s *ikeSA) respond(exchange message.Exchange, after []uint32, payloads ...message.Payload) {
	s.respondTo(s.header(exchange, s.expected, true), after, payloads...)
}

func (s *ikeSA) respondTo(h message.Header, after []uint32, payloads ...message.Payload) {
	s.response = s.sealed(h, payloads)
	delete(s.m.after, s)
	if len(after) > 0 {
		s.m.after[s] = slices.Clone(after)
	}
	s.expected = h.ID + 1
	s.suspended = false
	s.keepWindow()
	if !s.came.remote.IsValid() {
		s.came = path{s.local, s.remote}
	}
	s.sendBy(s.came, s.response, after...)
}

// receive takes a message of this IKE SA's peer.
func (s *ikeSA) receive(d Datagram, h message.Header, b []byte, now time.Time) {
	if s.in == nil {
		s.receiveInit(d, h, b, now)
		return
	}
	if h.Exchange == message.IKESAInit || h.Exchange == message.IKESessionResum {
		s.m.count("drop", "repeated") // an answer to the first request that came twice
		return
	}
	outer, err := message.Parse(b)
	if err != nil || len(outer.Payloads) == 0 {
		s.m.count("drop", "syntax")
		return
	}
	sealed, is := outer.Payloads[len(outer.Payloads)-1].(*message.Encrypted)
	if !is {
		// RFC 7296 section 2.21: an unprotected message changes nothing.
		s.m.count("drop", "not-protected")
		return
	}
	again := false
	switch {
	case h.Response() && (s.outstanding == nil || h.ID != s.outstanding.id || h.Exchange != s.outstanding.exchange):
		s.m.count("drop", "message-id")
		return
	case !h.Response() && h.ID+1 == s.expected && s.response != nil:
		again = true
	case !h.Response() && (h.ID != s.expected || s.suspended):
		s.m.count("drop", "message-id")
		return
	}
	plain, err := s.in.Open(b, sealed.Body)
	if err != nil {
		s.m.count("drop", "integrity")
		return
	}
	if again {
		// RFC 7383 section 2.6.1: the first fragment asks for all of the response.
		if sealed.Number <= 1 {
			s.m.count("packet", "retransmission")
			s.sendBy(path{d.Local, d.Remote}, s.response, s.m.after[s]...)
		}
		return
	}
	// RFC 7296 section 2.4: a message that comes again may be a replay, and proves nothing.
	s.heard, s.answered = now, now
	first, whole := sealed.First, true
	if sealed.Number > 0 {
		if first, plain, whole = s.reassemble(h, sealed, plain); !whole {
			return
		}
	} else if len(plain) > s.longest() {
		s.m.count("drop", "too-long")
		return
	}
	*s.parts(h) = nil
	payloads, err := message.ParsePayloads(first, plain)
	if err != nil {
		s.m.count("drop", "syntax")
		if !h.Response() {
			s.refuse(h, err, now)
		} else {
			s.fail(now, "the response cannot be read: "+err.Error())
		}
		return
	}
	if h.Response() {
		s.answeredBy(d, now)
	} else {
		// RFC 7296 section 2.11: the response goes where the request came from.
		s.came = path{d.Local, d.Remote}
	}
	s.follow(d, now)
	if h.Response() {
		r := s.outstanding
		s.outstanding = nil
		s.keepWindow()
		r.done(payloads, now)
		s.proceed(now)
		return
	}
	if old := s.undecided; old != nil && !deletesIKE(payloads) {
		// The peer has this IKE SA instead of the old one.
		old.succeed(s, now)
	}
	if s.state == established {
		// It sends one request at a time, and has the response to the last one.
		s.proven()
	}
	s.answer(d, h, plain, first, payloads, now)
	s.proceed(now)
}

// refuse answers a request that cannot be read.
func (s *ikeSA) refuse(h message.Header, err error, now time.Time) {
	n := &message.Notify{Kind: message.InvalidSyntax, Data: []byte{}}
	var critical message.CriticalError
	if errors.As(err, &critical) {
		n.Kind, n.Data = message.UnsupportedCriticalPayload, []byte{byte(critical.Payload)}
	}
	s.respond(h.Exchange, nil, n)
	if n.Kind == message.InvalidSyntax || s.state == opening {
		// RFC 7296 section 2.21.2.
		s.close(now, "the peer sent what cannot be read: "+err.Error())
	}
}

// reassemble takes a fragment (RFC 7383 section 2.6).
func (s *ikeSA) reassemble(h message.Header, f *message.Encrypted, plain []byte) (first message.PayloadType, whole []byte, complete bool) {
	if f.Total > maxFragments {
		s.m.count("drop", "fragments")
		return 0, nil, false
	}
	p := *s.parts(h)
	if p == nil || p.id != h.ID || int(f.Total) > len(p.parts) {
		p = &reassembly{id: h.ID, parts: make([][]byte, f.Total), left: int(f.Total)}
		*s.parts(h) = p
	}
	if int(f.Total) < len(p.parts) || p.parts[f.Number-1] != nil || p.size+len(plain) > s.longest() {
		return 0, nil, false
	}
	if f.Number == 1 {
		p.first = f.First
	}
	p.parts[f.Number-1] = append([]byte{}, plain...)
	p.size += len(plain)
	p.left--
	if p.left > 0 {
		return 0, nil, false
	}
	return p.first, bytes.Join(p.parts, nil), true
}

// parts are the fragments of a request, or of a response.
func (s *ikeSA) parts(h message.Header) **reassembly {
	if h.Response() {
		return &s.responseParts
	}
	return &s.requestParts
}

// longest is how long the payloads of a message may be. A peer that is not authenticated gets less memory: there may be many of them.
func (s *ikeSA) longest() int {
	if s.state == opening && !s.initiator {
		return maxOpening
	}
	return message.MaxLength
}

// follow goes to the address from which an authenticated message came, if an address translator may have changed it (RFC 7296 section 2.23).
func (s *ikeSA) follow(d Datagram, now time.Time) {
	if d.Remote == s.remote || !s.natThere || s.natHere || s.state == opening && s.initiator {
		return
	}
	s.moveTo(d.Local, d.Remote, now)
}

// PeerMoved is an authenticated ESP packet from another address or port than before (RFC 7296 section 2.23): IKE goes there as well. A peer that
// sends no IKE messages would not hear ours any more.
func (m *Machine) PeerMoved(spi uint32, remote netip.AddrPort, now time.Time) []Action {
	c := m.children[spi]
	if c == nil || c.sa == nil || c.sa.local.Port() != NATPort || !remote.IsValid() || remote.Port() == 0 {
		return nil
	}
	c.sa.follow(Datagram{Local: c.sa.local, Remote: remote}, now)
	c.sa.schedule()
	return m.done()
}

// answer answers a request whose payloads have been read.
func (s *ikeSA) answer(d Datagram, h message.Header, plain []byte, first message.PayloadType, payloads []message.Payload, now time.Time) {
	switch {
	case h.Exchange == message.IKEIntermediate && s.state == opening && !s.initiator && s.auth == nil:
		s.answerIntermediate(h, plain, first, payloads, now)
	case h.Exchange == message.IKEAuth && s.state == opening && !s.initiator:
		s.answerAuth(d, h, payloads, now)
	case s.state == opening && !s.initiator && h.Exchange == message.Informational:
		s.ended(payloads, now)
	case s.state == opening:
		s.m.count("drop", "not-authenticated")
	case h.Exchange == message.Informational:
		s.answerInformational(d, payloads, now)
	case h.Exchange == message.CreateChildSA:
		s.answerCreate(payloads, now)
	case h.Exchange == message.IKEFollowupKE:
		s.answerFollowUp(payloads, now)
	default:
		s.respond(h.Exchange, nil, &message.Notify{Kind: message.InvalidSyntax, Data: []byte{}})
	}
}

// ended takes the error of an initiator that does not accept our authentication (RFC 7296 section 2.21.2), or gives up.
func (s *ikeSA) ended(payloads []message.Payload, now time.Time) {
	p := readAuth(payloads)
	if p.err == nil && !deletesIKE(payloads) {
		s.m.count("drop", "not-authenticated")
		return
	}
	s.respond(message.Informational, nil)
	switch {
	case p.err != nil && p.err.Kind == message.AuthenticationFailed:
		s.m.count("failure", p.err.Kind.String())
		s.close(now, fmt.Sprintf("%s does not accept the authentication of %s: compare the gateway's identity and certificate, or its key, with what the peer expects", s.peer, s.localIdentity()))
	default:
		s.close(now, fmt.Sprintf("%s gave up", s.peer))
	}
}

// next returns when the IKE SA must be looked at.
func (s *ikeSA) next() (at time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if s.outstanding != nil {
		sooner(s.outstanding.deadline)
	}
	sooner(s.expires)
	if s.following != nil {
		sooner(s.following.expires)
	}
	if s.state == established {
		sooner(s.rekeyAt)
		sooner(s.reauthAt)
		sooner(s.overdueAt())
		sooner(s.unproven)
		if s.twin != nil {
			sooner(s.twin.at)
		}
		if s.conn.DPDDelay > 0 && s.outstanding == nil {
			sooner(s.heard.Add(s.conn.DPDDelay))
		}
		for _, c := range s.children {
			if !c.replaced && !c.deleting {
				sooner(c.rekeyAt)
			}
			sooner(c.expires)
		}
	}
	return at
}

// tick runs due timers.
func (s *ikeSA) tick(now time.Time) {
	past := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	if past(s.expires) {
		s.expires = time.Time{}
		s.lost(now, "no answer in time")
		return
	}
	if r := s.outstanding; r != nil && past(r.deadline) {
		tries := s.conn.Tries
		if tries == 0 {
			tries = 6
		}
		if r.sent >= tries {
			s.m.count("failure", "timeout")
			s.lost(now, "the peer does not answer")
			return
		}
		r.sent++
		r.deadline = now.Add(timeoutAfter(r.sent))
		s.m.count("packet", "retransmitted")
		if p, other := s.nextPath(r.sent); other {
			s.probing = true
			s.sendBy(p, r.packets)
		} else {
			s.send(r.packets)
		}
	}
	if f := s.following; f != nil && past(f.expires) {
		s.abandonFollowUp(now)
		s.proceed(now)
	}
	if s.state != established {
		return
	}
	if past(s.reauthAt) {
		s.reauthAt = time.Time{}
		s.reauthenticate(now)
	}
	if past(s.overdueAt()) {
		s.overdue++
		if s.overdue > 1 || !s.reauthenticate(now) {
			conn := s.conn
			s.terminate(now, "the peer accepts no new keys of the IKE SA")
			s.m.retry(conn, s.m.mustBeUp(conn), now)
			return
		}
	}
	if past(s.unproven) {
		s.prove(now)
	}
	if s.twin != nil && past(s.twin.at) {
		if s.giveWay(now) {
			return
		}
	}
	if past(s.rekeyAt) {
		s.rekeyAt = time.Time{}
		s.rekeyIKE(now)
	}
	for _, c := range s.sortedChildren() {
		if past(c.rekeyAt) && !c.replaced && !c.deleting {
			c.rekeyAt = time.Time{}
			s.rekeyChild(c, now)
		}
		if past(c.expires) {
			c.expires = time.Time{}
			s.deleteChild(c, now)
			if conf := s.conn.child(c.Conf.Name); conf != nil && conf.StartAction == Start {
				s.ensureChild(conf.Name, now)
			}
		}
	}
	if s.conn.DPDDelay > 0 && s.outstanding == nil && !s.heard.Add(s.conn.DPDDelay).After(now) {
		s.heard = now
		s.enqueue(now, func(s *ikeSA, now time.Time) bool {
			s.request(message.Informational, now, func([]message.Payload, time.Time) {})
			return true
		})
	}
}

// overdueAt is when the keys of an IKE SA have served too long, as the peer refuses each rekey: then another IKE SA is opened, which takes its place, and
// if the peer refuses that as well, this one ends.
func (s *ikeSA) overdueAt() time.Time {
	if s.conn.RekeyTime == 0 {
		return time.Time{}
	}
	return s.up.Add(s.conn.RekeyTime + time.Duration(s.overdue+1)*max(s.conn.RekeyTime/10, overdueTime))
}

// sortedChildren are the children, also while the caller removes some.
func (s *ikeSA) sortedChildren() []*ChildSA { return slices.Clone(s.children) }

// childOf returns the child with an inbound SPI, or nil.
func (s *ikeSA) childOf(spi uint32) *ChildSA {
	if i, found := s.search(spi); found {
		return s.children[i]
	}
	return nil
}

func (s *ikeSA) search(spi uint32) (int, bool) {
	return slices.BinarySearchFunc(s.children, spi, func(c *ChildSA, spi uint32) int { return cmp.Compare(c.SPIIn, spi) })
}

func (s *ikeSA) insertChild(c *ChildSA) {
	i, found := s.search(c.SPIIn)
	if found {
		s.children[i] = c
		return
	}
	s.children = slices.Insert(s.children, i, c)
}

func (s *ikeSA) takeChild(spi uint32) {
	if i, found := s.search(spi); found {
		s.children = slices.Delete(s.children, i, i+1)
	}
}

// natHash is the data of NAT_DETECTION notifications (RFC 7296 section 2.23).
func natHash(spiI, spiR uint64, a netip.AddrPort) []byte {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, spiI), spiR)
	b = append(b, a.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, a.Port())
	sum := sha1.Sum(b)
	return sum[:]
}

// terminate ends an IKE SA by a Delete.
func (s *ikeSA) terminate(now time.Time, why string) {
	switch s.state {
	case dead, deleting:
		return
	case opening:
		if s.initiator && s.in != nil && s.outstanding != nil {
			// The peer may have established it already. Wait for its response, then send a Delete.
			s.ending = why
			return
		}
		s.close(now, why)
		return
	}
	was := s.state
	s.queue = nil
	s.abandonFollowUp(now)
	s.decide()
	s.sendDelete(now, why)
	s.state = deleting
	if was == established {
		for _, c := range s.sortedChildren() {
			if !s.yields() {
				s.removeChild(c)
			}
		}
		s.keepSA()
	}
	s.schedule()
}

// sendDelete deletes the IKE SA at the peer. Another process has to know which of our requests was the Delete.
func (s *ikeSA) sendDelete(now time.Time, why string) {
	s.enqueue(now, func(s *ikeSA, now time.Time) bool {
		s.propose(message.Informational, 0, &proposedState{Ends: true}, now, func([]message.Payload, time.Time) { s.close(now, why) }, &message.Delete{Protocol: message.ProtocolIKE})
		return true
	})
}

// close forgets an IKE SA and its children.
func (s *ikeSA) close(now time.Time, why string) {
	if s.state == dead {
		return
	}
	was := s.state
	var described Peer
	if s.conn.Owned {
		described = s.described()
	}
	for _, c := range s.sortedChildren() {
		s.removeChild(c)
	}
	s.abandonFollowUp(now)
	if old := s.undecided; old != nil {
		// It is the redundant one.
		s.successor = old
		s.decide()
	}
	if s.collision != nil {
		s.collision.decide()
	}
	s.keepTicket(false)
	s.state = dead
	s.schedule()
	s.m.drop(s)
	if c := s.proposed; c != nil && s.m.children[c.SPIIn] == c && c.since.IsZero() {
		delete(s.m.children, c.SPIIn)
	}
	if n := s.proposedSA; n != nil {
		n.state = dead
		s.m.drop(n)
	}
	s.leaveOpening(was)
	if s.conversation != 0 {
		s.m.act(EAPEnd{s.conversation})
	}
	if s.lease != 0 && s.successor == nil {
		s.m.act(ReleaseAddress{s.lease, cmp.Or(s.cause, subscriber.NASRequest)})
	}
	s.forget()
	s.settleAll(why)
	if s.m.peers[s.id] == s {
		delete(s.m.peers, s.id)
		s.owned(func() Action { return PeerDown{described, why} })
	}
	for token, q := range s.m.asked {
		if q.sa == s {
			delete(s.m.asked, token)
		}
	}
	if s.successor != nil {
		return
	}
	e := Event{Connection: s.conn.Name, Peer: s.remote, What: "down", Detail: why}
	if was == opening {
		e.What = "failed"
		if a := s.auth; a != nil && a.failure != nil {
			e.Detail = a.failure.Error()
		}
	}
	if was == opening && !s.initiator {
		s.m.refuse(e, now)
	} else {
		s.m.act(e)
	}
}

// leaveOpening takes an IKE SA out of the half-open ones.
func (s *ikeSA) leaveOpening(was state) {
	if was != opening || s.initiator {
		return
	}
	delete(s.m.opening, openingKey{s.place(), s.opened, s.theirSPI})
	a := source(s.opened.Addr())
	if s.m.halfOpen[a]--; s.m.halfOpen[a] <= 0 {
		delete(s.m.halfOpen, a)
	}
	s.m.opens--
}

// lost ends an IKE SA whose peer does not answer, and takes the dead-peer actions of its children.
func (s *ikeSA) lost(now time.Time, why string) {
	restart := s.restart(func(c *Child) ChildAction { return c.DPDAction })
	for _, c := range s.children {
		s.m.hold(c, c.Conf.DPDAction)
	}
	if s.state == established {
		s.cause = subscriber.LostCarrier
		s.keepTicket(true)
		s.ticket = nil
	}
	if s.resumed != nil && s.initiator && s.in == nil {
		s.m.resumable[s.conn.Name] = s.resumed // the responder never saw it
	}
	conn, was := s.conn, s.state
	s.close(now, why)
	if was == opening && s.initiator || was == established {
		s.m.retry(conn, restart || s.m.mustBeUp(conn), now)
	}
}

// restart reports whether the action of any child is to start again.
func (s *ikeSA) restart(of func(*Child) ChildAction) bool {
	for _, c := range s.children {
		if of(c.Conf) == Start {
			return true
		}
	}
	return false
}

// fail ends an IKE SA after an error of the peer or of our own.
func (s *ikeSA) fail(now time.Time, why string) { s.failAs(now, "protocol", why) }

// failAs is fail for a reason that is counted.
func (s *ikeSA) failAs(now time.Time, reason, why string) {
	conn, was, ours := s.conn, s.state, s.initiator
	s.m.count("failure", reason)
	s.close(now, why)
	if was == opening && ours {
		s.m.retry(conn, s.m.mustBeUp(conn), now)
	}
}

// retry has a connection tried again, each time later.
func (m *Machine) retry(c *Connection, reconnect bool, now time.Time) {
	if current := m.connections[c.Name]; !reconnect || current == nil {
		return
	}
	a := m.again[c.Name]
	if a == nil {
		a = &attempt{}
	}
	a.tries++
	a.at = now.Add(min(time.Second<<min(a.tries, 6), time.Minute))
	m.again[c.Name] = a
}
