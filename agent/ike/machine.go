// SPDX-License-Identifier: Apache-2.0

// Package ike is IKEv2 (RFC 7296, RFC 8247) as initiator and responder. Machine is the protocol without I/O: datagrams, the time, commands and
// answers go in, actions come out. The service around it has packets, objects, records and the clock.
package ike

import (
	"container/heap"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
	"sluice.dev/sluice/agent/subscriber"
)

// Ports and bounds.
const (
	Port     = 500
	NATPort  = 4500
	markSize = 4
	// IKE SAs that are not established yet, altogether and of one address.
	maxHalfOpen          = 20000
	maxHalfOpenOfAddress = 32
	// Above this number of half-open IKE SAs, initiators return a cookie first.
	cookieThreshold = 100
	halfOpenTime    = 30 * time.Second
	cookieTime      = 60 * time.Second
	// A packet with its IP and UDP headers, and the marker of port 4500, is at most 1,280 bytes long.
	fragmentSize = 1280 - 40 - 8 - markSize
	// Fragments of one message.
	maxFragments = 64
	// The payloads of a message before the peer is authenticated: certificates, and large public keys.
	maxOpening = 16 << 10
	// IKE_SA_INIT: it has no certificates. Its octets are needed until the peer is authenticated.
	maxInit   = 4 << 10
	maxQueue  = 64
	nonceSize = 32
)

// Datagram is an IKE message of a peer, with its UDP addresses, from where and to where. On port 4500 the non-ESP marker is in front.
type Datagram struct {
	Dataplane, VRF string
	Local, Remote  netip.AddrPort
	Data           []byte
}

// Action is work for the service around the Machine.
type Action any

// Send is a datagram to a peer. It waits until Keep actions before it are on the disk, and until the child SAs with these inbound SPIs are
// installed.
type Send struct {
	Datagram
	After []uint32
}

// Install makes the SAs of a child, or a part of them.
type Install struct {
	Child *ChildSA
	// Inbound alone: the peer does not expect packets yet. Then Outbound follows.
	Inbound, Outbound bool
}

// Remove deletes the SAs of a child.
type Remove struct {
	Child *ChildSA
	// Inbound SPI of the child that takes its place. The SAs stay until the data plane has installed that one. 0: none.
	After uint32
	// The outbound one alone: packets of the peer are still taken.
	OutboundOnly bool
}

// Move changes the addresses of a child's SAs.
type Move struct{ Child *ChildSA }

// Keep writes a record that outlives the process; a nil Value deletes it.
type Keep struct {
	Key   string
	Value []byte
}

// Ask asks a question. The answer goes to Machine.Answered with the same token.
type Ask struct {
	Token    uint64
	Question any
}

// VerifyChain asks whether a chain of certificates (DER, the peer's first) can be trusted for an identity. The answer is a Verified.
type VerifyChain struct {
	Connection string
	Trust      any
	Chain      [][]byte
	Identity   Identity
	// The peer's address if it calls; the zero Addr: we call it.
	Remote netip.Addr
	// Checks that the peer has the key of its certificate, before a responder is asked whether the certificate is revoked. It may run in any goroutine.
	Proof func(key crypto.PublicKey) error
}

// Verified answers VerifyChain. With the error errBusy, the peer that calls may send its request again.
type Verified struct {
	Key any
	Err error
}

// EAPStep asks for the next packet to a peer that authenticates by EAP. Packet is nil at first. The answer is an EAPAnswer.
type EAPStep struct {
	Connection string
	// The same for all steps of one peer.
	Conversation uint64
	Identity     Identity
	Remote       netip.AddrPort
	Packet       []byte
	// Of an owned connection: the peer, and the notifications of its request.
	Peer   Peer
	Notify []*message.Notify
}

// EAPAnswer answers EAPStep. Packet goes to the peer; Success: it is an EAP-Success, and MSK is the key of the method, if it has one.
type EAPAnswer struct {
	Packet  []byte
	Success bool
	MSK     []byte
	// Name of the user, for leases and the log.
	Username string
	// Of the user's back end: addresses, or pools instead of the connection's; nil: no grant.
	Addresses []netip.Addr
	Pools     []string
	Grant     *subscriber.Grant
	// Of an owned connection: notifications beside the packet.
	Notify []*message.Notify
	Err    error
	// Why the peer is refused, if Packet says so and is not the last one.
	Failure error
}

// EAPResponse asks for the answer to an EAP packet of a responder that authenticates us by EAP. The answer is an
// EAPReply.
type EAPResponse struct {
	Connection   string
	Conversation uint64
	Packet       []byte
}

// EAPReply answers EAPResponse. After EAP-Success it has no Packet, and MSK is the key of the method, if it has one.
type EAPReply struct {
	Packet, MSK []byte
	Err         error
}

// EAPEnd ends a conversation.
type EAPEnd struct{ Conversation uint64 }

// LeaseAddress asks for addresses of a remote user. The answer is a Leased.
type LeaseAddress struct {
	Connection, Username string
	// The peer's outer address.
	Remote     netip.Addr
	Lease      uint64
	IPv4, IPv6 bool
	// Addresses that the user asks for.
	Requested []netip.Addr
	// Of the user's back end: addresses, or pools instead of the connection's.
	Fixed []netip.Addr
	Pools []string
	Grant *subscriber.Grant
}

// Leased answers LeaseAddress.
type Leased struct {
	Addresses, DNS []netip.Addr
	// The IpsecTunnel of the user, if it has one of its own.
	Tunnel string
	Err    error
}

// TakeAddress reports the addresses of a lease that was restored.
type TakeAddress struct {
	Lease     uint64
	Pools     []string
	Addresses []netip.Addr
	// The IpsecTunnel of the user, if it has one of its own, with its data plane and VRF.
	Tunnel, Dataplane, VRF string
}

// ReleaseAddress gives the addresses of a lease back.
type ReleaseAddress struct {
	Lease uint64
	// Why the user's session ends.
	Cause subscriber.Cause
}

// Count counts a packet, a drop or a failure.
type Count struct{ What, Reason string }

// Event is a change for the log and the condition of a connection.
type Event struct {
	Connection string
	Peer       netip.AddrPort
	// "up", "down", "rekeyed", "failed", "child-up", "child-down", "child-rekeyed".
	What   string
	Detail string
	// Name of the child in the configuration; empty: it is about none, or about several.
	Child string
	// The same was reported in the last minute. Any host can cause it, so it is not for the log.
	Again bool
}

// Machine is all IKE SAs of an agent. It is not safe for several goroutines.
type Machine struct {
	connections map[string]*Connection
	// All of them in the order in which a responder tries them; nil: to be made anew.
	ordered []*Connection
	// Their numbers in that order, by where they take peers.
	places map[peerPlace][]int
	// By our SPI, and by the connection and our SPI.
	sas  map[uint64]*ikeSA
	used map[string]map[uint64]*ikeSA
	// Established ones, by the peer's identity. Nearly every peer has one.
	identities map[identityKey][]*ikeSA
	// By the first message of an initiator, so that a retransmission gets the same response.
	opening map[openingKey]*ikeSA
	// By the source of the initiator.
	halfOpen map[netip.Addr]int
	opens    int
	// Established IKE SAs of owned connections, by the ID that a rekey does not change.
	peers    map[uint64]*ikeSA
	children map[uint32]*ChildSA
	due      dueHeap
	actions  []Action
	cookies  [2][]byte
	// Answers to Deletes of IKE SAs that are gone, by our SPI: those since the last change of the cookies, and those before.
	ended   [2]map[uint64]ended
	changed time.Time
	asked   map[uint64]*question
	token   uint64
	// Children that the peer deletes while our proposal of a child has no response: one may be that child.
	deletedEarly map[*ikeSA][][4]byte
	// The children that the last response waits for, also when it is sent again.
	after map[*ikeSA][]uint32
	// The next precedence of an outbound SA.
	precedence uint32
	// The start of each data plane.
	boots map[string]uint64
	// Children that traffic starts after the peer closed them or died.
	held map[heldKey]bool
	// When an unknown SPI is looked for again.
	lookAgain time.Time
	// When a connection that must be up is tried again.
	again map[string]*attempt
	// Those that responders take, by their IDs, and those that initiators use next, by connection.
	tickets, resumable map[string]*ticket
	// Reported refusals of peers, by connection.
	refusals map[string]*refusals
	// Half-open IKE SAs above which cookies are needed.
	CookieThreshold int
}

const (
	// refusalsAgain is the shortest time between two lines of the log that say the same of a connection.
	refusalsAgain = time.Minute
	// maxRefusals is the number of lines in that time.
	maxRefusals = 16
)

// refusals are the lines since a time.
type refusals struct {
	since time.Time
	lines map[string]bool
}

// refuse reports why a peer is refused.
func (m *Machine) refuse(e Event, now time.Time) {
	all := m.refusals[e.Connection]
	if all == nil || now.Sub(all.since) >= refusalsAgain {
		all = &refusals{now, map[string]bool{}}
		m.refusals[e.Connection] = all
	}
	line := e.What + e.Detail
	if e.Again = all.lines[line] || len(all.lines) >= maxRefusals; !e.Again {
		all.lines[line] = true
	}
	m.act(e)
}

// notAccepted names the algorithms of both ends.
func notAccepted(theirs, ours []message.Proposal) string {
	return fmt.Sprintf("no proposal of the peer is accepted: peer offers %s; accepted: %s", suite.Offer(theirs), suite.Offer(ours))
}

type heldKey struct{ connection, child string }

// hold lets traffic start a child that has ended, if the action is Hold.
func (m *Machine) hold(c *ChildSA, action ChildAction) {
	if action == Hold {
		m.held[heldKey{c.Connection, c.Conf.Name}] = true
	}
}

// onTraffic reports whether traffic starts a child of a connection.
func (m *Machine) onTraffic(c *Connection, child *Child) bool {
	return child.StartAction != Clear || m.held[heldKey{c.Name, child.Name}]
}

type attempt struct {
	at    time.Time
	tries int
}

type question struct {
	sa   *ikeSA
	then func(answer any, now time.Time)
}

type openingKey struct {
	place  string
	remote netip.AddrPort
	spi    uint64
}

// New returns a Machine without connections.
func New(now time.Time) *Machine {
	m := &Machine{connections: map[string]*Connection{}, sas: map[uint64]*ikeSA{}, used: map[string]map[uint64]*ikeSA{}, identities: map[identityKey][]*ikeSA{}, opening: map[openingKey]*ikeSA{}, halfOpen: map[netip.Addr]int{}, peers: map[uint64]*ikeSA{},
		children: map[uint32]*ChildSA{}, asked: map[uint64]*question{}, again: map[string]*attempt{}, held: map[heldKey]bool{}, boots: map[string]uint64{}, tickets: map[string]*ticket{}, refusals: map[string]*refusals{}, resumable: map[string]*ticket{}, CookieThreshold: cookieThreshold, changed: now}
	m.cookies = [2][]byte{random(32), random(32)}
	m.ended = [2]map[uint64]ended{{}, {}}
	m.deletedEarly, m.after = map[*ikeSA][][4]byte{}, map[*ikeSA][]uint32{}
	return m
}

func random(n int) []byte {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		panic("no random numbers: " + err.Error())
	}
	return b
}

// add makes an IKE SA known.
func (m *Machine) add(s *ikeSA) {
	m.sas[s.ourSPI] = s
	if m.used[s.conn.Name] == nil {
		m.used[s.conn.Name] = map[uint64]*ikeSA{}
	}
	m.used[s.conn.Name][s.ourSPI] = s
}

// identityKey is a peer of a connection. A user of EAP proves its username only, and may claim any identity.
type identityKey struct {
	connection string
	peer       Identity
	username   string
}

func (s *ikeSA) identityKey() identityKey { return identityKey{s.conn.Name, s.peer, s.username} }

// identify makes an established IKE SA known by its peer's identity.
func (m *Machine) identify(s *ikeSA) {
	key := s.identityKey()
	if !slices.Contains(m.identities[key], s) {
		m.identities[key] = append(m.identities[key], s)
	}
}

// drop forgets an IKE SA.
func (m *Machine) drop(s *ikeSA) {
	delete(m.sas, s.ourSPI)
	delete(m.deletedEarly, s)
	delete(m.after, s)
	delete(m.used[s.conn.Name], s.ourSPI)
	key := s.identityKey()
	if all := m.identities[key]; slices.Contains(all, s) {
		// Not in place: a caller may go through them.
		if all = slices.DeleteFunc(slices.Clone(all), func(one *ikeSA) bool { return one == s }); len(all) == 0 {
			delete(m.identities, key)
		} else {
			m.identities[key] = all
		}
	}
	if len(m.used[s.conn.Name]) == 0 {
		delete(m.used, s.conn.Name)
	}
}

func (m *Machine) act(a ...Action) { m.actions = append(m.actions, a...) }

func (m *Machine) done() []Action {
	all := m.actions
	m.actions = nil
	return all
}

func (m *Machine) count(what, reason string) { m.act(Count{what, reason}) }

// SetConnection makes a connection known, changes it, or with nil removes it. A change reaches IKE SAs that are made later; a connection
// that is removed is terminated.
func (m *Machine) SetConnection(name string, c *Connection, now time.Time) []Action {
	m.ordered = nil
	if c == nil {
		if before := m.connections[name]; before != nil && before.Owned {
			m.act(Keep{Key: connectionRecord + name})
		}
		delete(m.connections, name)
		delete(m.again, name)
		delete(m.refusals, name)
		m.dropTickets(name)
		maps.DeleteFunc(m.held, func(k heldKey, _ bool) bool { return k.connection == name })
		for _, s := range m.of(name) {
			s.terminate(now, "the connection was deleted")
		}
		return m.done()
	}
	if before := m.connections[name]; before != nil && !before.sameCredentials(c) {
		m.dropTickets(name)
	}
	if before := m.connections[name]; before != nil && before.Frozen {
		for _, s := range m.of(name) {
			s.conn = c
		}
	}
	m.connections[name] = c
	if c.Owned {
		m.act(Keep{connectionRecord + name, kept(c.recorded())})
		for _, s := range m.of(name) {
			s.conn = c
		}
	}
	if m.mustBeUp(c) && !m.any(name) {
		m.again[name] = &attempt{at: now}
	}
	return m.done()
}

// mustBeUp reports whether a connection must be up.
func (m *Machine) mustBeUp(c *Connection) bool {
	return !c.Frozen && c.Remote.IsValid() && slices.ContainsFunc(c.Children, func(one *Child) bool { return one.StartAction == Start })
}

// living reports whether an IKE SA is neither ended nor ending.
func (s *ikeSA) living() bool {
	return s.state != dead && s.state != deleting && (s.handshake == nil || s.ending == "")
}

// any reports whether a connection has a living IKE SA.
func (m *Machine) any(name string) bool {
	for _, s := range m.used[name] {
		if s.living() {
			return true
		}
	}
	return false
}

// hasChild reports whether a connection has a child of a name.
func (m *Machine) hasChild(name, child string) bool {
	for _, s := range m.used[name] {
		if slices.ContainsFunc(s.children, func(c *ChildSA) bool { return c.Conf.Name == child && !c.deleting }) {
			return true
		}
	}
	return false
}

// of returns the living IKE SAs of a connection, in the order of their SPIs.
func (m *Machine) of(name string) (all []*ikeSA) {
	for _, spi := range slices.Sorted(maps.Keys(m.used[name])) {
		if s := m.sas[spi]; s.living() {
			all = append(all, s)
		}
	}
	return all
}

// Initiate brings a connection up, or children that it does not have. child: "": all.
func (m *Machine) Initiate(name, child string, now time.Time) ([]Action, error) {
	c := m.connections[name]
	if c == nil {
		return nil, fmt.Errorf("there is no IKE connection %q", name)
	}
	if child != "" && c.child(child) == nil {
		return nil, fmt.Errorf("the IKE connection %q has no child %q", name, child)
	}
	if c.Frozen {
		return nil, fmt.Errorf("a file of the IKE connection %q cannot be read", name)
	}
	if !c.Remote.IsValid() {
		return nil, fmt.Errorf("the IKE connection %q has no remote address: the peer starts it", name)
	}
	m.initiate(c, child, now)
	return m.done(), nil
}

func (m *Machine) initiate(c *Connection, child string, now time.Time) {
	names := []string{}
	for _, one := range c.Children {
		if child == one.Name || child == "" {
			names = append(names, one.Name)
		}
	}
	for _, s := range m.of(c.Name) {
		if s.state == rekeyed || s.undecided != nil {
			continue
		}
		for _, name := range names {
			s.ensureChild(name, now)
		}
		return
	}
	m.open(c, names, now)
}

// Acquire is traffic that needs a child.
func (m *Machine) Acquire(name, child string, now time.Time) []Action {
	c := m.connections[name]
	if c != nil && !c.Frozen && c.Remote.IsValid() {
		m.initiate(c, child, now)
	}
	return m.done()
}

// Terminate ends all IKE SAs of a connection, or one of its children. It returns how many it ended.
func (m *Machine) Terminate(name, child string, now time.Time) ([]Action, int) {
	n, why := 0, "terminated by an operator"
	if c := m.connections[name]; c != nil && c.Remote.IsValid() && !c.Owned {
		why += "; a packet for the peer or `sluice ike initiate " + name + "` opens it"
	}
	delete(m.again, name)
	maps.DeleteFunc(m.held, func(k heldKey, _ bool) bool { return k.connection == name && (child == "" || k.child == child) })
	for _, s := range m.of(name) {
		if child == "" {
			s.cause = subscriber.AdminReset
			s.terminate(now, why)
			n++
			continue
		}
		for _, c := range s.sortedChildren() {
			if c.Conf.Name == child && !c.deleting {
				s.deleteChild(c, now)
				n++
			}
		}
	}
	return m.done(), n
}

// EndLease ends the IKE SA of a user whose lease has ended.
func (m *Machine) EndLease(lease uint64, why string, now time.Time) []Action {
	for _, spi := range slices.Sorted(maps.Keys(m.sas)) {
		if s := m.sas[spi]; s != nil && s.lease == lease {
			s.terminate(now, why)
		}
	}
	return m.done()
}

// Rekey rekeys the IKE SAs of a connection (child "") or its children of a name ("*": all). It returns how many.
func (m *Machine) Rekey(name, child string, now time.Time) ([]Action, int) {
	n := 0
	for _, s := range m.of(name) {
		if s.state != established || s.undecided != nil {
			continue
		}
		if child == "" {
			s.rekeyIKE(now)
			n++
			continue
		}
		for _, c := range s.sortedChildren() {
			if (child == "*" || c.Conf.Name == child) && !c.deleting && !c.replaced {
				// The peer has just begun to replace the old one by a half one.
				if !c.half {
					s.rekeyChild(c, now)
				}
				n++
			}
		}
	}
	return m.done(), n
}

// Expiring is a soft lifetime of a child that is over; hard: it carries no more.
func (m *Machine) Expiring(spi uint32, hard bool, now time.Time) []Action {
	if c := m.children[spi]; c != nil && !c.deleting && c.sa != nil {
		if hard {
			c.sa.deleteChild(c, now)
		} else if !c.replaced {
			c.sa.rekeyChild(c, now)
			// The data plane reports it once.
			c.sa.keepSA()
		}
	}
	return m.done()
}

// Installed reports that the data plane has the inbound and outbound SAs of a child, or refuses them.
func (m *Machine) Installed(spi uint32, err error, now time.Time) []Action {
	c := m.children[spi]
	if c == nil || c.sa == nil {
		return m.done()
	}
	if err != nil {
		c.sa.childFailed(c.Conf, "the data plane refuses it: "+err.Error(), now)
		c.sa.settle(c.ask, nil, fmt.Errorf("the data plane refuses the child: %w", err))
		c.sa.deleteChild(c, now)
		return m.done()
	}
	if all, waits := m.after[c.sa]; waits {
		if all = slices.DeleteFunc(all, func(one uint32) bool { return one == spi }); len(all) == 0 {
			delete(m.after, c.sa)
		} else {
			m.after[c.sa] = all
		}
	}
	if !c.told {
		c.told = true
		c.sa.owned(func() Action {
			up := ChildUp{Peer: c.sa.described(), Child: c.state()}
			if c.replaces != nil {
				up.Replaces = c.replaces.SPIIn
			}
			return up
		})
		c.sa.settle(c.ask, c, nil)
		c.ask = nil
	}
	if old := c.replaces; old != nil && c.ours {
		c.replaces = nil
		if m.children[old.SPIIn] == old && old.sa != nil {
			old.sa.deleteChild(old, now)
		}
	}
	return m.done()
}

// Answered is the answer to a question.
func (m *Machine) Answered(token uint64, answer any, now time.Time) []Action {
	q := m.asked[token]
	if q == nil {
		return nil
	}
	delete(m.asked, token)
	if q.sa.state != dead {
		q.then(answer, now)
		q.sa.schedule()
		q.sa.rest()
	}
	return m.done()
}

func (s *ikeSA) ask(what any, then func(answer any, now time.Time)) {
	m := s.m
	m.token++
	m.asked[m.token] = &question{s, then}
	m.act(Ask{m.token, what})
}

// Receive takes a datagram.
func (m *Machine) Receive(d Datagram, now time.Time) []Action {
	m.receive(d, now)
	return m.done()
}

func (m *Machine) receive(d Datagram, now time.Time) {
	b := d.Data
	if d.Local.Port() == NATPort {
		if len(b) == 1 && b[0] == 0xff {
			m.count("packet", "keepalive")
			return
		}
		if len(b) < markSize || binary.BigEndian.Uint32(b) != 0 {
			m.count("drop", "no-marker")
			return
		}
		b = b[markSize:]
	}
	h, err := message.ParseHeader(b)
	if err != nil {
		if errors.Is(err, message.ErrVersion) && len(b) >= message.HeaderLength && b[17]>>4 > 2 && b[19]&message.FlagResponse == 0 {
			m.reply(d, message.Header{SPIi: h.SPIi, SPIr: h.SPIr, Exchange: h.Exchange, ID: h.ID}, &message.Notify{Kind: message.InvalidMajorVersion})
		}
		m.count("drop", "syntax")
		return
	}
	m.count("packet", h.Exchange.String())
	if h.SPIr == 0 && !h.Response() && h.FromInitiator() && h.ID == 0 && h.SPIi != 0 {
		switch h.Exchange {
		case message.IKESAInit:
			m.respondInit(d, h, b, now)
			return
		case message.IKESessionResum:
			m.respondResume(d, h, b, now)
			return
		}
	}
	ours := h.SPIi
	if h.FromInitiator() {
		ours = h.SPIr
	}
	s := m.sas[ours]
	if s == nil && h.Exchange == message.Informational && !h.Response() && m.answerAgain(ours, d) {
		return
	}
	if s == nil || s.initiator == h.FromInitiator() || s.place() != place(d) || s.theirSPI != 0 && s.theirSPI != h.SPIi+h.SPIr-ours {
		m.count("drop", "unknown-spi")
		return
	}
	s.receive(d, h, b, now)
	s.schedule()
	s.rest()
}

// reply answers a request without an IKE SA.
func (m *Machine) reply(d Datagram, h message.Header, payloads ...message.Payload) {
	h.Flags = message.FlagResponse
	one := message.Message{Header: h, Payloads: payloads}
	d.Data = marked(d.Local.Port(), one.Append(nil))
	m.act(Send{Datagram: d})
}

// marked puts the non-ESP marker in front of a message from port 4500.
func marked(port uint16, b []byte) []byte {
	if port != NATPort {
		return b
	}
	return append(make([]byte, markSize, markSize+len(b)), b...)
}

func place(d Datagram) string { return d.Dataplane + "\x00" + d.VRF }

// cookie is the cookie of an initiator, which proves its address by returning it (RFC 7296 section 2.6).
func (m *Machine) cookie(which int, d Datagram, spi uint64, nonce []byte) []byte {
	h := hmac.New(sha256.New, m.cookies[which])
	h.Write(nonce)
	h.Write(d.Remote.Addr().AsSlice())
	h.Write(binary.BigEndian.AppendUint64(nil, spi))
	return h.Sum(nil)
}

// newSPI returns an SPI of an IKE SA that nothing has.
func (m *Machine) newSPI() uint64 {
	for {
		spi := binary.BigEndian.Uint64(random(8))
		if spi != 0 && m.sas[spi] == nil {
			return spi
		}
	}
}

// newChildSPI returns an SPI of ESP that nothing has.
func (m *Machine) newChildSPI() uint32 {
	for {
		spi := binary.BigEndian.Uint32(random(4))
		if _, taken := m.children[spi]; spi >= 256 && !taken {
			return spi
		}
	}
}

// Tick handles the deadlines that have passed.
func (m *Machine) Tick(now time.Time) []Action {
	if now.Sub(m.changed) >= cookieTime {
		m.cookies[0], m.cookies[1], m.changed = random(32), m.cookies[0], now
		m.ended = [2]map[uint64]ended{{}, m.ended[0]}
		m.expireTickets(now)
	}
	for len(m.due) > 0 && !m.due[0].at.After(now) {
		s := m.due[0]
		heap.Pop(&m.due)
		s.tick(now)
		s.schedule()
		s.rest()
	}
	for _, name := range slices.Sorted(maps.Keys(m.again)) {
		a, c := m.again[name], m.connections[name]
		if a.at.IsZero() || now.Before(a.at) {
			continue
		}
		a.at = time.Time{}
		up := m.any(name)
		for _, one := range c.Children {
			if one.StartAction == Start || !up && (one.DPDAction == Start || one.CloseAction == Start) {
				m.initiate(c, one.Name, now)
			}
		}
	}
	return m.done()
}

// IKE SAs and half-open ones, and children.
func (m *Machine) Size() (ikeSAs, halfOpen, children int) {
	return len(m.sas), m.opens, len(m.children)
}

// dueHeap orders IKE SAs by when they must be looked at.
type dueHeap []*ikeSA

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *dueHeap) Push(x any) {
	s, _ := x.(*ikeSA)
	s.index = len(*d)
	*d = append(*d, s)
}

// Pop implements heap.Interface.
func (d *dueHeap) Pop() any {
	old := *d
	s := old[len(old)-1]
	s.index = -1
	*d = old[:len(old)-1]
	return s
}

// schedule puts an IKE SA where its next deadline belongs.
func (s *ikeSA) schedule() {
	at := s.next()
	switch {
	case s.state == dead || at.IsZero():
		if s.index >= 0 {
			heap.Remove(&s.m.due, s.index)
		}
	case s.index < 0:
		s.at = at
		heap.Push(&s.m.due, s)
	case !at.Equal(s.at):
		s.at = at
		heap.Fix(&s.m.due, s.index)
	}
}

// chosenPRF returns the function of chosen transforms.
func chosenPRF(chosen []message.Transform) (suite.Function, error) {
	return suite.NewFunction(suite.Get(chosen, message.PRF).ID)
}
