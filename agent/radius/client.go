// SPDX-License-Identifier: Apache-2.0

// Requests to servers: identifiers, retransmission, failover, dead servers and their return. No I/O: packets to send
// come out as actions, events go in.
package radius

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/deadline"
)

// endpoint is one server for one purpose.
type endpoint struct {
	settings
	// Identifiers by socket.
	sockets     []*identifiers
	outstanding int
	// Not answering; requests for it are tries.
	dead bool
	// When it may be tried with a request, and when it gets the next Status-Server.
	until, status time.Time
	// When a reply came last, and since when none comes.
	replied  time.Time
	checking bool
	removed  bool
	// The reason why requests or answers did not arrive, since the last answer; "": the agent knows none.
	why string
	// Metrics that each request counts in, once they were looked up.
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// settings of an endpoint; a change of them makes a new endpoint.
type settings struct {
	server     string
	accounting bool
	address    netip.AddrPort
	source     netip.Addr
	// A Linux VRF or interface that its packets leave by; "": as the host routes them.
	device   string
	secret   string
	timeout  time.Duration
	tries    int
	deadTime time.Duration
	// 0: no Status-Server.
	statusInterval time.Duration
	most           int
	unsigned       bool
}

func (s settings) purpose() string {
	if s.accounting {
		return "accounting"
	}
	return "authentication"
}

// choice is an endpoint of a policy.
type choice struct {
	*endpoint
	weight uint32
}

// identifiers of one socket. The one that was free for longest is taken, so that a late reply meets no new request soon.
type identifiers struct {
	free    [256]uint8
	first   int
	left    int
	waiting [256]*exchange
}

func newIdentifiers() *identifiers {
	s := &identifiers{left: 256}
	start := rand.IntN(256)
	for i := range s.free {
		s.free[i] = uint8(i + start)
	}
	return s
}

func (s *identifiers) take(x *exchange) uint8 {
	id := s.free[s.first%256]
	s.first, s.left = (s.first+1)%256, s.left-1
	s.waiting[id] = x
	return id
}

func (s *identifiers) release(id uint8) {
	s.waiting[id] = nil
	s.free[(s.first+s.left)%256] = id
	s.left++
}

// exchange is a request and its state.
type exchange struct {
	code Code
	// Servers as the policy has them at the time of asking.
	choices func() []choice
	// Requests that wait for room wait behind those with the same text: a policy's, of which one server is slow, are in no other one's way.
	group string
	// All attributes but Message-Authenticator, User-Password and Acct-Delay-Time.
	attributes attributes
	password   []byte
	eap        bool
	// Of an accounting record: when it happened.
	at time.Time
	// Called once, with the packet or with nil if no server answered.
	done func(packet, *endpoint)

	began time.Time
	// Where it waits.
	current *endpoint
	socket  int
	id      uint8
	request authenticator
	bytes   []byte
	sent    int
	// When it was sent first and last.
	first, last time.Time
	tried       []*endpoint
	// Of the server's answer.
	deadline.Timer
}

// transmit is an action: send bytes from a socket of an endpoint.
type transmit struct {
	endpoint *endpoint
	socket   int
	bytes    []byte
}

// finished is an action: the exchange is over. packet is nil if no server answered.
type finished struct {
	exchange *exchange
	packet   packet
	endpoint *endpoint
}

// counted is an action: something for a metric, by server.
type counted struct {
	endpoint *endpoint
	what     string
	// Of a reply: how long it took.
	took time.Duration
}

// Values of counted.what.
const (
	countRequest    = "request"
	countRetransmit = "retransmit"
	countReply      = "reply"
	countTimeout    = "timeout"
	countDead       = "dead"
	countAlive      = "alive"
)

type action any

// client has all exchanges. It is not for several goroutines.
type client struct {
	deadlines deadline.Queue[*exchange]
	endpoints map[*endpoint]bool
	// Authentications that wait for room at a server, by group, the oldest first; and the groups, of which each in turn is the first to get room.
	queues map[string][]*exchange
	groups []string
	// For authenticators: crypto/rand, but in tests.
	random func([]byte)
	host   string
	// 0 to n-1, for weights and jitter.
	chance func(n int) int
	ended  bool
}

// Bounds of waiting requests.
const (
	mostQueued    = 16384 // of a group
	longestQueued = 10 * time.Second
	// Requests under way to a server that does not answer.
	mostProbes = 8
	// The longest wait for an answer before a retransmission, unless the server's timeout is longer: MRT of RFC 5080 section 2.2.1.
	mostWait = 16 * time.Second
)

func newClient(host string, random func([]byte)) *client {
	return &client{endpoints: map[*endpoint]bool{}, queues: map[string][]*exchange{}, host: host, random: random, chance: rand.IntN}
}

func (c *client) add(s settings) *endpoint {
	e := &endpoint{settings: s}
	c.endpoints[e] = true
	return e
}

// remove ends the use of an endpoint. Its waiting requests go elsewhere.
func (c *client) remove(e *endpoint, now time.Time) (actions []action) {
	e.removed = true
	delete(c.endpoints, e)
	for _, s := range e.sockets {
		for _, x := range s.waiting {
			if x != nil {
				c.leave(x)
				actions = c.next(x, now, actions)
			}
		}
	}
	return actions
}

// submit begins an exchange.
func (c *client) submit(x *exchange, now time.Time) []action {
	x.began = now
	return c.next(x, now, nil)
}

// room reports whether one of the choices takes a request now.
func room(choices []choice, now time.Time) bool {
	return slices.ContainsFunc(choices, func(o choice) bool {
		return o.endpoint != nil && !o.removed && o.mayServe(now) && !o.busy()
	})
}

// mayServe reports whether a server is there, or its dead time is over: then it proves itself with requests, or with answers to Status-Server.
func (e *endpoint) mayServe(now time.Time) bool {
	return !e.dead || e.statusInterval == 0 && !now.Before(e.until)
}

// busy reports whether a server has as many requests as it takes: few, until it has proved itself.
func (e *endpoint) busy() bool {
	return e.outstanding >= e.most || e.dead && e.outstanding >= mostProbes
}

// next gives an exchange to the best server that did not have it yet.
func (c *client) next(x *exchange, now time.Time, actions []action) []action {
	if c.ended {
		return append(actions, finished{x, nil, nil})
	}
	e, full := c.choose(x, now)
	switch {
	case e != nil:
		return c.start(x, e, now, actions)
	case full && x.code == AccessRequest && len(c.queues[x.group]) < mostQueued && now.Sub(x.began) < longestQueued:
		if len(c.queues[x.group]) == 0 {
			c.groups = append(c.groups, x.group)
		}
		c.queues[x.group] = append(c.queues[x.group], x)
		return actions
	}
	return append(actions, finished{x, nil, nil})
}

// choose returns the server for an exchange. Servers with a weight share requests; the others are tried in order after them. full: one
// would take it if fewer requests waited there.
func (c *client) choose(x *exchange, now time.Time) (best *endpoint, full bool) {
	total, reserve := 0, (*endpoint)(nil)
	var choices []choice
	if x.choices != nil {
		choices = x.choices()
	}
	usable := func(e *endpoint) bool {
		if e == nil || e.removed || x.had(e) {
			return false
		}
		if !e.mayServe(now) {
			return false
		}
		if e.busy() {
			full = true
			return false
		}
		return true
	}
	for _, o := range choices {
		if !usable(o.endpoint) {
			continue
		}
		total += int(o.weight)
		if reserve == nil && o.weight == 0 {
			reserve = o.endpoint
		}
	}
	if total > 0 {
		at := c.chance(total)
		for _, o := range choices {
			if o.weight == 0 || !usable(o.endpoint) {
				continue
			}
			if at -= int(o.weight); at < 0 {
				return o.endpoint, false
			}
		}
	}
	if reserve != nil || full {
		return reserve, full
	}
	// All are dead. A few requests ask anyway: to wait for the end of a dead time would make a short outage long.
	for _, o := range choices {
		if e := o.endpoint; e != nil && !e.removed && !x.had(e) && e.dead && e.outstanding < mostProbes {
			return e, false
		}
	}
	return nil, false
}

func (x *exchange) had(e *endpoint) bool {
	for _, tried := range x.tried {
		if tried == e {
			return true
		}
	}
	return false
}

// start gives an exchange an identifier of a server, and sends it.
func (c *client) start(x *exchange, e *endpoint, now time.Time, actions []action) []action {
	socket := -1
	for i, s := range e.sockets {
		if s.left > 0 {
			socket = i
			break
		}
	}
	if socket < 0 {
		e.sockets = append(e.sockets, newIdentifiers())
		socket = len(e.sockets) - 1
	}
	x.current, x.socket, x.sent, x.first = e, socket, 0, now
	x.id = e.sockets[socket].take(x)
	e.outstanding++
	if x.code == AccountingRequest {
		delay := max(now.Sub(x.at), 0) / time.Second
		x.bytes = accountingRequest(x.id, []byte(e.secret), uint32(min(delay, 1<<32-1)), x.attributes)
		x.request = packet(x.bytes).authenticator()
	} else {
		c.random(x.request[:])
		x.bytes = accessRequest(x.code, x.id, x.request, []byte(e.secret), x.password, x.attributes)
	}
	return c.send(x, now, actions)
}

// send sends an exchange to its server, once more with the same bytes.
func (c *client) send(x *exchange, now time.Time, actions []action) []action {
	e := x.current
	x.sent++
	x.last = now
	what := countRequest
	if x.sent > 1 {
		what = countRetransmit
	}
	// RFC 5080 section 2.2.1: each wait is twice as long as the one before, up to mostWait. They are spread by a tenth, so that requests that were lost
	// together do not come together again.
	wait := e.timeout
	for range x.sent - 1 {
		wait = min(2*wait, max(mostWait, e.timeout))
	}
	wait = wait*9/10 + wait*time.Duration(c.chance(201))/1000
	c.deadlines.Set(x, now.Add(wait))
	return append(actions, transmit{e, x.socket, x.bytes}, counted{endpoint: e, what: what})
}

// leave takes an exchange from its server.
func (c *client) leave(x *exchange) {
	e := x.current
	e.sockets[x.socket].release(x.id)
	e.outstanding--
	x.tried = append(x.tried, e)
	x.current, x.bytes = nil, nil
	c.deadlines.Remove(x)
}

// receive processes a packet from a socket of an endpoint. A packet that does not answer a waiting request is counted
// and dropped; the request goes on waiting.
func (c *client) receive(e *endpoint, socket int, b []byte, now time.Time) (actions []action) {
	drop := func(why string) []action { return append(actions, counted{endpoint: e, what: why}) }
	p, err := parse(b)
	if err != nil {
		return drop(err.Error())
	}
	if e.removed || socket >= len(e.sockets) {
		return drop("unexpected")
	}
	x := e.sockets[socket].waiting[p.identifier()]
	if x == nil {
		return drop("unexpected")
	}
	if !x.answeredBy(p.code()) {
		return drop("code")
	}
	// No subscriber is accepted by the answer to a Status-Server, and servers leave it unsigned.
	// RFC 3579 section 3.1: an answer to EAP is signed in any case.
	needs := x.code == AccessRequest && (!e.unsigned || x.eap)
	if err := p.verifyReply(x.request, []byte(e.secret), needs); err != nil {
		return drop(err.Error())
	}
	actions = append(actions, counted{endpoint: e, what: countReply, took: now.Sub(x.first)})
	e.replied = now
	if e.dead {
		e.dead = false
		actions = append(actions, counted{endpoint: e, what: countAlive})
	}
	c.leave(x)
	if x.code == StatusServer {
		e.checking = false
	}
	actions = append(actions, finished{x, p, e})
	return c.dequeue(now, actions)
}

func (x *exchange) answeredBy(code Code) bool {
	switch x.code {
	case AccessRequest:
		return code == AccessAccept || code == AccessReject || code == AccessChallenge
	case AccountingRequest:
		return code == AccountingResponse
	default:
		// RFC 5997 section 3.
		return code == AccessAccept && !x.current.accounting || code == AccountingResponse && x.current.accounting
	}
}

// mostLooked is how many of a group are looked at: those behind them may not have had a server that has room.
const mostLooked = 32

// dequeue sends requests that waited for room.
func (c *client) dequeue(now time.Time, actions []action) []action {
	if len(c.groups) == 0 {
		return actions
	}
	first := c.groups[0]
	copy(c.groups, c.groups[1:])
	c.groups[len(c.groups)-1] = first
	for _, group := range c.groups {
		queue := c.queues[group]
		for at := 0; at < len(queue) && at < mostLooked; {
			x := queue[at]
			e, full := c.choose(x, now)
			if e == nil && full && now.Sub(x.began) < longestQueued {
				at++
				continue
			}
			queue = slices.Delete(queue, at, at+1)
			if e == nil {
				actions = append(actions, finished{x, nil, nil})
			} else {
				actions = c.start(x, e, now, actions)
			}
		}
		if c.queues[group] = queue; len(queue) == 0 {
			delete(c.queues, group)
		}
	}
	c.groups = slices.DeleteFunc(c.groups, func(group string) bool { return len(c.queues[group]) == 0 })
	return actions
}

// end gives up all waiting requests but accounting records on their way to a server that lives: later it would get those again, though it has them. Later
// requests are given up at once.
func (c *client) end() (actions []action) {
	c.ended = true
	for x := range c.deadlines.All() {
		if x.code == AccountingRequest && !x.current.dead {
			continue
		}
		c.leave(x)
		actions = append(actions, finished{x, nil, nil})
	}
	for _, group := range c.groups {
		for _, x := range c.queues[group] {
			actions = append(actions, finished{x, nil, nil})
		}
	}
	clear(c.queues)
	c.groups = nil
	return actions
}

// answersUntil is until when an ended client waits for the answers of records. false: it waits for none.
func (c *client) answersUntil() (until time.Time, waits bool) {
	for x := range c.deadlines.All() {
		if end := x.last.Add(x.current.timeout); end.After(until) {
			until = end
		}
		waits = true
	}
	return until, waits
}

// tick carries out timers that are due.
func (c *client) tick(now time.Time) (actions []action) {
	for x, due := c.deadlines.Due(now); due; x, due = c.deadlines.Due(now) {
		e := x.current
		// One request shows whether a dead server is back.
		if x.sent < e.tries && !e.dead && x.code != StatusServer {
			actions = c.send(x, now, actions)
			continue
		}
		actions = append(actions, counted{endpoint: e, what: countTimeout})
		c.leave(x)
		if x.code == StatusServer {
			e.checking = false
			continue
		}
		// The server answered other requests meanwhile: only this one is lost.
		if e.replied.Before(x.first) || e.dead {
			if !e.dead {
				actions = append(actions, counted{endpoint: e, what: countDead})
				e.status = now
			}
			e.dead, e.until = true, now.Add(e.deadTime)
		}
		actions = c.next(x, now, actions)
	}
	for e := range c.endpoints {
		if e.dead && e.statusInterval != 0 && !e.checking && !now.Before(e.status) {
			e.checking, e.status = true, now.Add(e.statusInterval)
			x := &exchange{code: StatusServer, began: now}
			var a attributes
			a.text(typeNASIdentifier, c.host)
			x.attributes = a
			actions = c.start(x, e, now, actions)
		}
	}
	return c.dequeue(now, actions)
}
