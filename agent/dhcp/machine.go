// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"container/list"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/subscriber"
)

// Leases that all relays together keep.
const leasesInAll = 1 << 20

// Action is an effect for the service to carry out.
type Action interface{ action() }

// ToServer is an IP packet that the VRF routes.
type ToServer struct {
	Dataplane, VRF string
	Packet         []byte
}

// ToLink is an Ethernet frame that leaves by an interface, which adds its VLAN tags.
type ToLink struct {
	Dataplane, Interface string
	Frame                []byte
}

// ToClient is a frame.
type ToClient struct {
	Dataplane, Port string
	Frame           []byte
}

// PutSession creates or changes a session. Its result goes to SessionPut with Number. Then is done once the data plane has it and the
// records before it are kept.
type PutSession struct {
	Name    string
	Number  uint32
	Session *api.Session
	Then    []Action
}

// DeleteSession deletes a session.
type DeleteSession struct{ Name string }

// PutPunt creates or changes the Punt of a relay, DeletePunt deletes it.
type (
	PutPunt struct {
		Name string
		Punt *api.Punt
		// Of the DhcpRelay.
		Relay string
	}
	DeletePunt struct{ Name string }
)

// Save writes a record; a nil Value deletes it. Then is done once the record is on disk.
type Save struct {
	Key   string
	Value []byte
	Then  []Action
}

// AfterSaved does Then once all records before it are on disk.
type AfterSaved struct{ Then []Action }

// Count counts a message by family, type and reason of its drop ("": it was not dropped).
type Count struct{ Family, Type, Drop string }

func (ToServer) action()      {}
func (ToLink) action()        {}
func (ToClient) action()      {}
func (PutSession) action()    {}
func (DeleteSession) action() {}
func (PutPunt) action()       {}
func (DeletePunt) action()    {}
func (Save) action()          {}
func (AfterSaved) action()    {}
func (Count) action()         {}

// Packet is a packet as a data plane gave it to us.
type Packet struct {
	Dataplane, Port, Interface, Session string
	Frame                               []byte
}

// relay is a DhcpRelay and the values derived from it.
type relay struct {
	name                string
	spec                *api.DhcpRelay
	outer, inner        vlans
	servers4, servers6  []netip.Addr
	giaddr, link        netip.Addr
	circuitID, remoteID string
	maxHops             uint8
	enterprise          uint32
	leasesOfCircuit     int
	rules               []rule
}

// rule is a DhcpOptionRule.
type rule struct {
	code      byte
	direction api.DhcpDirection
	action    api.DhcpOptionAction
	// A template, or bytes as they are.
	text  string
	bytes []byte
}

// vlans is a set of VLANs; 0: no tag.
type vlans [4096 / 64]uint64

func (v *vlans) add(vlan int)         { v[vlan/64] |= 1 << (vlan % 64) }
func (v *vlans) has(vlan uint16) bool { return v[vlan%4096/64]>>(vlan%64)&1 != 0 }

func vlansOf(ranges []string) vlans {
	var v vlans
	if len(ranges) == 0 {
		v.add(0)
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
			v.add(vlan)
		}
	}
	return v
}

type portKey struct{ dataplane, port string }

// Machine is DHCP relaying without I/O. Input: packets, objects and the time. Output: Actions. It is not for
// concurrent use.
type Machine struct {
	// By port, sorted by name.
	relays     map[string][]*relay
	specs      map[string]*api.DhcpRelay
	interfaces map[string]*api.Interface
	ports      map[portKey]MAC

	transactions *transactions
	// Servers that got messages since their last answer.
	servers   map[serverKey]*serverState
	leases    map[clientKey]*lease
	byName    map[string]*lease
	ofCircuit map[circuit]int
	ends      deadline.Queue[*lease]

	// Of relays with a profile: clients without a lease, by client and by session, and how many a circuit has; leases by session.
	unbound     map[clientKey]*unboundClient
	byID        map[string]*unboundClient
	unboundOf   map[circuit]int
	unboundEnds deadline.Queue[*unboundClient]
	// Clients that were refused (*unboundClient), the oldest refusal first, altogether and by circuit.
	refused   *list.List
	refusedOf map[circuit]*list.List
	bySession map[string]*lease
	// Makes Acct-Session-Ids.
	newID func() string
	// The Manager is there, and its sessions are known.
	managed bool

	now time.Time
	out []Action
}

// New returns a machine without relays and leases.
func New() *Machine {
	return &Machine{relays: map[string][]*relay{}, specs: map[string]*api.DhcpRelay{}, interfaces: map[string]*api.Interface{},
		ports: map[portKey]MAC{}, transactions: newTransactions(), leases: map[clientKey]*lease{}, byName: map[string]*lease{},
		ofCircuit: map[circuit]int{}, unbound: map[clientKey]*unboundClient{}, byID: map[string]*unboundClient{}, unboundOf: map[circuit]int{},
		bySession: map[string]*lease{}, servers: map[serverKey]*serverState{}, refused: list.New(), refusedOf: map[circuit]*list.List{}, newID: subscriber.NewID}
}

// Leases returns how many clients hold a lease.
func (m *Machine) Leases() int { return len(m.leases) }

// Transactions returns how many messages of clients wait for a server.
func (m *Machine) Transactions() int { return len(m.transactions.by) }

// Unbound returns the number of clients without a lease: their authentication waits, succeeded or was refused.
func (m *Machine) Unbound() int { return len(m.unbound) }

func (m *Machine) do(a ...Action) { m.out = append(m.out, a...) }

func (m *Machine) done() []Action {
	out := m.out
	m.out = nil
	return out
}

// Restore takes up a lease of an earlier life of the service. Its session is put when its relay is known (Restored).
func (m *Machine) Restore(value []byte) error {
	l, err := leaseOf(value)
	if err != nil {
		return err
	}
	l.forwarding = true
	m.enter(l)
	return nil
}

// Restored ends the restoration: all relays are known. It puts the sessions of leases, and deletes leases without a
// relay.
func (m *Machine) Restored(now time.Time) []Action {
	m.now = now
	for _, l := range m.leases {
		m.settle(l)
	}
	return m.done()
}

func (m *Machine) leasesOf(relay string) []*lease {
	var all []*lease
	for _, l := range m.leases {
		if l.client.relay == relay {
			all = append(all, l)
		}
	}
	return all
}

func (m *Machine) enter(l *lease) {
	if m.leases[l.client] != nil {
		return
	}
	m.leases[l.client], m.byName[l.client.session()] = l, l
	if l.session != nil {
		m.bySession[l.session.request.ID] = l
	}
	m.ofCircuit[l.client.circuit]++
}

// settle updates the session and the record of a lease, and then carries out `then`.
func (m *Machine) settle(l *lease, then ...Action) {
	name := l.client.session()
	r := m.relayOf(l.client.port, l.client.outer, l.client.inner)
	covered := r != nil && r.name == l.client.relay && (l.session != nil) == (r.spec.Profile != "")
	if covered {
		l.drop(func(b binding) bool { return !b.expires.IsZero() && !b.expires.After(m.now) })
	}
	if !covered || len(l.bindings) == 0 {
		if m.leases[l.client] != l {
			m.do(then...)
			return
		}
		delete(m.leases, l.client)
		delete(m.byName, name)
		m.ends.Remove(l)
		if m.ofCircuit[l.client.circuit]--; m.ofCircuit[l.client.circuit] == 0 {
			delete(m.ofCircuit, l.client.circuit)
		}
		if s := l.session; s != nil {
			cause := orElse(s.cause, subscriber.UserRequest)
			if !covered {
				cause = subscriber.AdminReset
			}
			delete(m.bySession, s.request.ID)
			m.do(Disconnect{s.request.ID, cause})
		} else {
			// Also of a record without a session: the data plane may have it of an earlier life.
			m.do(DeleteSession{name})
		}
		m.do(Save{Key: name, Then: then})
		l.written = ""
		return
	}
	m.enter(l)
	m.schedule(l)
	keep := Save{Key: name, Value: l.record()}
	if s := l.session; s != nil {
		if m.managed && !s.busy && l.written == l.form(r) {
			// The session stays as it is: only the record is new.
			keep.Then = then
			m.do(keep)
			return
		}
		m.do(keep)
		if m.managed {
			m.tell(r, l, then)
		}
		return
	}
	session := l.object(r.spec)
	packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(session)
	if err == nil && l.written == string(packed) {
		keep.Then = then
		m.do(keep)
		return
	}
	l.written = string(packed)
	l.puts++
	m.do(keep, PutSession{name, l.puts, session, then})
}

// SessionPut takes the result of the PutSession of this number: an error, or whether the data plane has the session. The client shall not
// use addresses that do not work: the lease of a session that is refused, or that the data plane never had, is forgotten.
func (m *Machine) SessionPut(name string, number uint32, err error, done bool, now time.Time) []Action {
	m.now = now
	l := m.byName[name]
	switch {
	case l == nil, err == nil && !done && l.puts != number:
		// The lease has ended, or a later PutSession has its own result.
	case err == nil && done:
		l.forwarding = true
	case err == nil && l.forwarding:
		// Its renewals get no ACK until the data plane has the present form.
		l.written = ""
	default:
		l.bindings = nil
		m.settle(l)
	}
	return m.done()
}

// Tick ends expired leases and transactions.
func (m *Machine) Tick(now time.Time) []Action {
	m.now = now
	m.transactions.expire(now)
	for v, due := m.unboundEnds.Due(now); due; v, due = m.unboundEnds.Due(now) {
		m.leave(v)
	}
	for l, due := m.ends.Due(now); due; l, due = m.ends.Due(now) {
		l.drop(func(b binding) bool { return !b.expires.IsZero() && !b.expires.After(now) })
		if l.session != nil && len(l.bindings) == 0 {
			l.session.cause = subscriber.LostCarrier
		}
		m.settle(l)
	}
	return m.done()
}

// schedule sets the timer of the lease to its next end.
func (m *Machine) schedule(l *lease) {
	at, _ := l.next()
	m.ends.Set(l, at)
}

// Receive takes a packet.
func (m *Machine) Receive(p Packet, now time.Time) []Action {
	m.now = now
	f, ok := parseFrame(p.Frame)
	if !ok {
		return m.drop("", "", "malformed")
	}
	d, ok := parseDatagram(f.etherType, f.payload)
	if !ok {
		return m.drop("", "", "malformed")
	}
	r := m.relayOf(p.Port, f.outer, f.inner)
	switch {
	case f.etherType == typeIPv4 && r != nil:
		return m.fromClient4(p, r, &f, &d)
	case f.etherType == typeIPv4:
		return m.fromServer4(p, &d)
	case r != nil:
		return m.fromClient6(p, r, &f, &d)
	default:
		return m.fromServer6(p, &d)
	}
}

func (m *Machine) drop(family, kind, why string) []Action {
	m.do(Count{family, kind, why})
	return m.done()
}

// mayHold reports whether the limits allow the client a lease.
func (m *Machine) mayHold(r *relay, k clientKey) bool {
	return m.leases[k] != nil || m.ofCircuit[k.circuit] < r.leasesOfCircuit && len(m.leases) < leasesInAll
}

// isFromServer reports whether a packet came in on the side of a relay's servers: not from a subscriber, and in the relay's VRF.
func (m *Machine) isFromServer(p Packet, r *relay) bool {
	in := m.interfaces[p.Interface]
	return p.Session == "" && in != nil && vrfOf(in.Vrf) == vrfOf(r.spec.Vrf)
}
