// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	protocolName = "pppoe"
	// Offers that wait.
	mostOffers  = 8192
	lastSession = 65534
	// Room that is kept for the actions of the next call.
	keptActions = 256
)

// Action is an effect for the service to carry out.
type Action interface{ action() }

// SendFrame is a frame for a port.
type SendFrame struct {
	Dataplane, Port string
	Frame           []byte
}

// Actions on the Manager, in the order in which they are given.
type (
	Authenticate struct {
		Request subscriber.Request
		// Returned with the answer.
		Attempt uint8
	}
	Connect struct {
		Connection subscriber.Connection
		// For the subscriber, once it is connected.
		Message string
	}
	// Update changes the state of a session in the Manager's record.
	Update struct {
		ID     string
		Change func(*subscriber.Connection)
	}
	// Serve: another profile serves the line of a session.
	Serve      struct{ ID, Profile string }
	Disconnect struct {
		ID    string
		Cause subscriber.Cause
	}
)

// PutPunt creates or changes a Punt of a server, DeletePunt deletes it.
type (
	PutPunt struct {
		Name string
		Punt *api.Punt
		// Of the PppoeServer.
		Server string
	}
	DeletePunt struct{ Name string }
)

// Count counts a packet: its type, or why it was dropped.
type Count struct{ Type, Drop string }

// Ended counts a session that ends, by its cause.
type Ended struct {
	ID, Reason string
	MAC        subscriber.MAC
	Cause      subscriber.Cause
}

func (SendFrame) action()    {}
func (Authenticate) action() {}
func (Connect) action()      {}
func (Update) action()       {}
func (Disconnect) action()   {}
func (Serve) action()        {}
func (PutPunt) action()      {}
func (DeletePunt) action()   {}
func (Count) action()        {}
func (Ended) action()        {}

// Packet is a packet as a data plane gave it to us.
type Packet struct {
	Dataplane, Port string
	Frame           []byte
}

// vlans is a set of VLANs; 0: no tag.
type vlans [4096 / 64]uint64

func (v *vlans) has(vlan uint16) bool { return v[vlan%4096/64]>>(vlan%64)&1 != 0 }

func vlansOf(ranges []string) (v vlans) {
	if len(ranges) == 0 {
		v[0] = 1
	}
	for _, written := range ranges {
		first, last, isRange := strings.Cut(written, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 1 || to > 4094 {
			continue // the checks let none through
		}
		for vlan := from; vlan <= to; vlan++ {
			v[vlan/64] |= 1 << (vlan % 64)
		}
	}
	return v
}

// server is a PppoeServer and the values derived from it.
type server struct {
	name         string
	spec         *api.PppoeServer
	outer, inner vlans
	acName       string
	mru          uint16
	delays       []*api.PadoDelay // by sessions
	// By place: the port's MAC is in them.
	configs map[uint32]*ppp.Config
	gone    bool
}

// load is counted by name: a server that changes keeps it.
type load struct {
	sessions int
	half     halfOpen
}

// Machine is PPPoE without I/O: its input are packets, objects, answers of the Manager and the time, its output are Actions. Actions are
// valid until the next call. It is not for several goroutines at once.
type Machine struct {
	// Of AC-Cookies: the key, and the one before it.
	keys   [2]hash.Hash
	random func() uint64
	nextID uint64
	// By port, sorted by name.
	servers map[string][]*server
	byName  map[string]*server
	loads   map[string]*load

	places   []place
	numbers  map[place]uint32
	macs     map[uint32]subscriber.MAC
	mtus     map[string]uint32 // of ports, by name
	ofPlace  map[uint32]int
	sessions map[sessionKey]*session
	hosts    map[hostKey]*session // the newest
	byID     map[string]*session
	circuits map[circuitKey]*circuit
	due      deadline.Queue[*session]
	offers   deadline.Queue[*offer]
	rejected rejections
	half, up int
	// Where the identifiers of the last new circuit began.
	begin uint16
	// Whether the sessions of an earlier life are known, and the Manager is there.
	restored bool

	now     int64
	actions []ppp.Action
	out     []Action
}

// New returns a machine without servers and sessions. random gives random numbers.
func New(keys *cookieKeys, random func() uint64, now time.Time) *Machine {
	m := &Machine{random: random, nextID: uint64(now.UnixNano()), servers: map[string][]*server{}, byName: map[string]*server{},
		loads: map[string]*load{}, numbers: map[place]uint32{}, macs: map[uint32]subscriber.MAC{}, mtus: map[string]uint32{}, ofPlace: map[uint32]int{},
		rejected: newRejections(), begin: uint16(random() % 4096), sessions: map[sessionKey]*session{}, hosts: map[hostKey]*session{}, byID: map[string]*session{}, circuits: map[circuitKey]*circuit{}}
	m.SetKeys(keys)
	return m
}

// SetKeys replaces the keys of AC-Cookies.
func (m *Machine) SetKeys(c *cookieKeys) {
	for i := range m.keys {
		m.keys[i] = hmac.New(sha256.New, c.keys[i][:])
	}
}

// Sessions returns how many sessions are not connected yet, and how many are.
func (m *Machine) Sessions() (halfOpen, connected int) { return m.half, m.up }

func (m *Machine) do(a ...Action) { m.out = append(m.out, a...) }

func (m *Machine) done() []Action {
	out := m.out
	if m.out = m.out[:0]; cap(out) > keptActions {
		m.out = nil
	}
	return out
}

func (m *Machine) dropped(why string) { m.do(Count{Drop: why}) }

// numberOf is the number of a place; it gets one when it is seen first.
func (m *Machine) numberOf(p place) uint32 {
	n, known := m.numbers[p]
	if !known {
		n = uint32(len(m.places))
		m.numbers[p] = n
		m.places = append(m.places, p)
	}
	return n
}

// Receive takes a packet of a circuit.
func (m *Machine) Receive(p Packet, now time.Time) []Action {
	m.now = now.UnixNano()
	m.receive(p)
	return m.done()
}

func (m *Machine) receive(p Packet) {
	f, ok := parseFrame(p.Frame)
	if !ok {
		m.dropped("malformed")
		return
	}
	if f.etherType != typeDiscovery && f.etherType != typeSession {
		// DHCPv6 and router solicitations of IPoE.
		return
	}
	code, id, payload, ok := parsePPPoE(f.payload)
	if !ok || f.source[0]&1 != 0 {
		m.dropped("malformed")
		return
	}
	if !m.restored {
		m.dropped("not-ready")
		return
	}
	c := circuitKey{m.numberOf(place{p.Dataplane, p.Port}), f.outer, f.inner}
	if f.etherType == typeSession {
		if code != codeSession {
			m.dropped("malformed")
			return
		}
		m.receiveSession(sessionKey{c, id}, &f, payload)
		return
	}
	tags, ok := parseTags(payload)
	switch {
	case !ok:
		m.dropped("malformed")
	case code == codePADT:
		m.receivePADT(sessionKey{c, id}, &f)
	case code == codePADI:
		m.receivePADI(c, &f, &tags)
	case code == codePADR:
		m.receivePADR(c, &f, &tags)
	default:
		m.dropped("code")
	}
}

func (m *Machine) enter(s *session, connected bool) {
	c, host := s.key.circuitKey, hostKey{s.key.circuitKey, s.mac}
	m.sessions[s.key] = s
	m.byID[s.id] = s
	s.older = m.hosts[host]
	m.hosts[host] = s
	at := m.circuits[c]
	if at == nil {
		at = &circuit{}
		m.circuits[c] = at
	}
	at.last = s.key.id
	at.sessions++
	m.ofPlace[c.place]++
	m.loads[s.server.name].sessions++
	if connected {
		s.state = up
		m.up++
		return
	}
	m.loads[s.server.name].half.add(s)
	m.half++
}

// connected: the session is not half open any more.
func (m *Machine) connected(s *session) {
	s.state = up
	s.keepRequest(s.request)
	m.loads[s.server.name].half.remove(s)
	m.rejected.forget(hostKey{s.key.circuitKey, s.mac})
	m.half--
	m.up++
}

// end removes a session, and sends a PADT to the host if `tell`.
func (m *Machine) end(s *session, cause subscriber.Cause, why string, tell bool) {
	if m.sessions[s.key] != s {
		return
	}
	if tell {
		m.actions = s.link.Close(m.now, cause, why, m.actions[:0])
		m.sendPackets(s)
		m.sendPADT(s.key, s.mac, &s.tags)
	}
	if s.state >= connecting && !s.disconnected {
		m.do(Disconnect{s.id, cause})
	}
	if s.delegated {
		m.do(Down{s.id, why})
	}
	m.do(Ended{s.id, why, s.mac, cause})
	m.forget(s)
}

func (m *Machine) forget(s *session) {
	c, host := s.key.circuitKey, hostKey{s.key.circuitKey, s.mac}
	delete(m.sessions, s.key)
	delete(m.byID, s.id)
	if m.hosts[host] == s {
		if s.older == nil {
			delete(m.hosts, host)
		} else {
			m.hosts[host] = s.older
		}
	} else {
		for one := m.hosts[host]; one != nil; one = one.older {
			if one.older == s {
				one.older = s.older
			}
		}
	}
	m.due.Remove(s)
	at, load := m.circuits[c], m.loads[s.server.name]
	at.sessions--
	m.ofPlace[c.place]--
	load.sessions--
	if s.state == up {
		m.up--
	} else {
		load.half.remove(s)
		m.half--
	}
	if at.sessions == 0 {
		delete(m.circuits, c)
	}
}

// settle puts a session to its place among the deadlines. A deadline that moved away, as nearly each packet has it do, is looked at when its time
// comes: then it goes to its new place.
func (m *Machine) settle(s *session) {
	if m.sessions[s.key] != s {
		return
	}
	next, before := s.link.Deadline(), s.Deadline()
	if !before.IsZero() && before.UnixNano() > m.now && (next == 0 || next >= before.UnixNano()) {
		return
	}
	if next != 0 {
		m.due.Set(s, time.Unix(0, next))
	} else {
		m.due.Remove(s)
	}
}

// Tick carries out timers that are due.
func (m *Machine) Tick(now time.Time) []Action {
	m.now = now.UnixNano()
	// Deadlines are of the clock that sets them: without a monotonic reading.
	now = time.Unix(0, m.now)
	for o, due := m.offers.Due(now); due; o, due = m.offers.Due(now) {
		m.offers.Remove(o)
		m.offer(o)
	}
	for s, due := m.due.Due(now); due; s, due = m.due.Due(now) {
		m.actions = s.link.Tick(m.now, m.actions[:0])
		m.carryOut(s)
		if at := s.Deadline(); !at.IsZero() && !at.After(now) {
			// A timer that is due again waits for the next tick.
			m.due.Set(s, now.Add(1))
		}
	}
	return m.done()
}

func (m *Machine) all() []*session {
	all := make([]*session, 0, len(m.sessions))
	for _, s := range m.sessions {
		all = append(all, s)
	}
	return all
}
