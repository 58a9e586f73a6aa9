// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"container/list"
	"net/netip"
	"strconv"
	"time"

	"github.com/google/btree"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	// Clients of all servers.
	clientsInAll = 1 << 20
	// How long an address is kept that was offered.
	offerTime = 30 * time.Second
	// How long a client that was refused is not asked for again.
	refusalTime = 10 * time.Second
	// How long a back end and the data plane may take.
	patience = time.Minute
)

// Action is an effect for the service to carry out.
type Action interface{ action() }

type (
	// Send sends a frame by a port.
	Send struct {
		Dataplane, Port string
		Frame           []byte
	}
	// Authenticate has the Manager authenticate a client; the answer goes to Authenticated.
	Authenticate struct{ Request subscriber.Request }
	// Connect asks the Manager for a session. The result goes to Connected.
	Connect struct{ Connection subscriber.Connection }
	// Extend changes the families of a session. The result goes to Extended.
	Extend struct {
		ID         string
		IPv4, IPv6 bool
		State      []byte
		// Addresses that the client declined.
		Declined subscriber.Declined
	}
	// Save keeps a session's State. Then is done when it is on the disk.
	Save struct {
		ID    string
		State []byte
		Then  []Action
	}
	// Disconnect ends a session.
	Disconnect struct {
		ID    string
		Cause subscriber.Cause
	}
	// Serve: another profile serves the line of a session.
	Serve struct{ ID, Profile string }
	// PutPunt creates or changes the Punt of a server, DeletePunt deletes it.
	PutPunt struct {
		Name string
		Punt *api.Punt
		// Of the IpoeServer.
		Server string
	}
	DeletePunt struct{ Name string }
	// Count counts a message by protocol, type and reason of its drop ("": it was not dropped).
	Count struct{ Protocol, Type, Drop string }
)

func (Send) action()         {}
func (Authenticate) action() {}
func (Connect) action()      {}
func (Extend) action()       {}
func (Save) action()         {}
func (Disconnect) action()   {}
func (Serve) action()        {}
func (PutPunt) action()      {}
func (DeletePunt) action()   {}
func (Count) action()        {}

// Packet is a packet as a data plane gave it to us.
type Packet struct {
	Dataplane, Port, Reason string
	Frame                   []byte
}

// server is an IpoeServer and the values derived from it.
type server struct {
	name         string
	spec         *api.IpoeServer
	outer, inner dhcp.VLANs
	lease        time.Duration
	address      netip.Addr
	// Of the latest lease: the source of a DHCPNAK without a lease.
	gateway          netip.Addr
	routes           []netip.Prefix
	four, six, first bool
	slaac            bool
	most, offers     int
	options          []option
}

// option is a DHCPv4 option of the server's configuration.
type option struct {
	code   byte
	value  []byte
	always bool
}

type circuit struct {
	dataplane, port string
	outer, inner    uint16
}

type clientKey struct {
	circuit
	mac dhcp.MAC
}

// lineKey is a subscriber's line: a circuit, or what a trusted access node says of a line on a circuit.
type lineKey struct {
	circuit
	id string
}

// lineID identifies a line by what a trusted access node says of it.
func lineID(circuitID, remoteID []byte) string {
	if len(circuitID)+len(remoteID) == 0 {
		return ""
	}
	return strconv.Itoa(len(circuitID)) + ":" + string(circuitID) + string(remoteID)
}

type phase uint8

const (
	authenticating phase = iota
	connecting
	up
	extending
	refused
)

// The kinds of messages that wait for a session.
const (
	kind4 = iota
	kind6
	kindFirst
	kinds
)

// client is a MAC on a circuit.
type client struct {
	key clientKey
	// Its place among all, and the key of pages.
	order  string
	server string
	id     string
	phase  phase
	grant  subscriber.Grant
	lease  subscriber.Lease
	// Families that the session has, and when the leases end; the zero time: it does not end by itself.
	has4, has6   bool
	ends4, ends6 time.Time
	// When the session began; the zero time: it is not known.
	began time.Time
	// By kind: why the client gave its addresses back while the Manager was extending the session; 0: it did not.
	gaveBack [2]subscriber.Cause
	// The client has taken the address that was offered.
	bound4, bound6 bool
	// Option 61 of the message that took the IPv4 address; "": it has none.
	clientID string
	static   bool
	// It takes its IPv6 address from the prefix, and has no lease: its session lasts while it sends. packets are those that the session had carried
	// when it was looked at.
	slaac   bool
	packets uint64
	// Where it is counted, and what access nodes say of its line in messages of each family; "": nothing.
	line                lineKey
	circuitID, remoteID []byte
	ids                 [2]string
	// When its latest message came; the zero time: not since the agent began.
	heard time.Time
	// Its index in Machine.ofLine.
	place int
	// It is in Machine.pending.
	pending bool
	// Its place in Machine.refused; nil: it was not refused.
	refused *list.Element
	// It was refused for the address of a first packet: messages of DHCP are not.
	strange bool
	// Why it was refused, for people, and the text of its DHCPNAKs; "": it gets none.
	reason, denial string
	// Of IPv6: whether the client uses an address, and a delegated prefix.
	uses [2]bool
	// The VLAN tags of its frames.
	tags []byte
	// The next unsolicited router advertisement; the zero time: the session has no IPv6.
	advertise time.Time
	// The latest message of each kind that waits.
	waiting  [kinds]*message
	protocol string
	// When it is looked at.
	deadline.Timer
}

// message is a client's message.
type message struct {
	back      dhcp.Circuit
	circuitID []byte
	remoteID  []byte
	// Of the line, by their numbers in RFC 4679.
	attributes map[uint8][]byte
	service    string
	four       *message4
	six        *message6
	address    netip.Addr // of a first packet
	slaac      bool       // of a host that may take its address from a prefix
}

// line identifies the line of a message; "": no trusted access node says it.
func (msg *message) line() string { return lineID(msg.circuitID, msg.remoteID) }

// isElsewhere reports whether a message with the client's MAC is of another line of the circuit: the client moved, or another host has its MAC.
// A message without information, such as a renewal by unicast, is of the client's line.
func (c *client) isElsewhere(kind int, msg *message) bool {
	if kind == kindFirst {
		return false
	}
	id := msg.line()
	return id != "" && c.ids[kind] != "" && id != c.ids[kind]
}

// Machine is IPoE without I/O. Input: packets, objects, answers of the Manager and the time. Output: Actions. It is
// not for concurrent use.
type Machine struct {
	// Makes Acct-Session-Ids.
	newID func() string
	// Spreads router advertisements: any number.
	random func() uint64
	// The lease of a session as it is now; nil: leases do not change.
	present func(id string) (subscriber.Lease, bool)
	// Whether the line of a session moves to another kind of service, by the profile of its server; nil: none does.
	moves func(id, profile string) bool
	// Gateways of leases, by which clients may have known us.
	gateways map[netip.Addr]bool
	// Clients in the order of their keys.
	ordered *btree.BTreeG[*client]
	servers map[string]*server
	ports   map[string][]*server
	macs    map[portKey]dhcp.MAC

	clients map[clientKey]*client
	byID    map[string]*client
	ofLine  map[lineKey][]*client
	// Clients that have no lease yet, by line.
	pending map[lineKey]int
	// *client that were refused, by line, the oldest refusal first.
	refused map[lineKey]*list.List
	timers  deadline.Queue[*client]
	// New clients on full lines.
	contests      map[lineKey]*contest
	contestTimers deadline.Queue[*contest]

	now time.Time
	out []Action
}

type portKey struct{ dataplane, port string }

// New returns a machine without servers and clients.
func New(newID func() string, random func() uint64) *Machine {
	return &Machine{newID: newID, random: random, servers: map[string]*server{}, ports: map[string][]*server{}, macs: map[portKey]dhcp.MAC{}, clients: map[clientKey]*client{},
		byID: map[string]*client{}, ofLine: map[lineKey][]*client{}, contests: map[lineKey]*contest{}, pending: map[lineKey]int{}, refused: map[lineKey]*list.List{},
		gateways: map[netip.Addr]bool{}, ordered: btree.NewG(32, func(a, b *client) bool { return a.order < b.order })}
}

// Clients returns how many clients have a session.
func (m *Machine) Clients() int { return len(m.byID) }

func (m *Machine) do(a ...Action) { m.out = append(m.out, a...) }

func (m *Machine) done() []Action {
	out := m.out
	m.out = nil
	return out
}

// drop counts a message that is not answered; without a reason, one that was taken and waits.
func (m *Machine) drop(protocol, kind, why string) []Action {
	m.do(Count{protocol, kind, why})
	return m.done()
}

// Receive takes a packet.
func (m *Machine) Receive(p Packet, now time.Time) []Action {
	m.now = now
	switch p.Reason {
	case "dhcp4", "dhcp6":
		return m.receiveDHCP(p)
	case "arp", "first-packet":
		return m.receiveFirst(p)
	case "nd", "router-solicitation":
		return append(m.receiveSolicitation(p), m.receiveFirst(p)...)
	}
	return nil
}

func (m *Machine) receiveDHCP(p Packet) []Action {
	in, ok := dhcp.ParseClientPacket(p.Frame)
	if !ok {
		return nil // the relay counts it
	}
	key := clientKey{circuit{p.Dataplane, p.Port, in.OuterVLAN, in.InnerVLAN}, in.MAC}
	s := m.serverOf(key.circuit)
	if s == nil {
		return nil
	}
	if p.Reason == "dhcp4" {
		return m.receive4(s, key, &in)
	}
	return m.receive6(s, key, &in)
}

// Tick carries out timers that are due.
func (m *Machine) Tick(now time.Time) []Action {
	m.now = now
	m.tickContests()
	for c, due := m.timers.Due(now); due; c, due = m.timers.Due(now) {
		m.timers.Remove(c)
		switch c.phase {
		case refused:
			m.forget(c)
		case authenticating, connecting, extending:
			m.do(Count{c.protocol, "", "no-answer-in-time"})
			m.end(c, subscriber.NASError)
		case up:
			over := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
			four, six := over(c.ends4), over(c.ends6)
			if six && c.slaac {
				six = false
				m.lookAt(c)
			}
			if four {
				c.has4, c.bound4, c.ends4 = false, false, time.Time{}
			}
			if six {
				c.has6, c.bound6, c.ends6 = false, false, time.Time{}
			}
			switch {
			case !c.has4 && !c.has6:
				m.end(c, m.causeOfEnd(c))
			case four || six:
				m.extend(c, c.has4, c.has6)
			default:
				if over(c.advertise) {
					m.advertise(c)
				}
				m.schedule(c)
			}
		}
	}
	return m.done()
}
