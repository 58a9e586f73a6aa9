// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// Durable state. Each established IKE SA has a record with its keys and children, and one with its message IDs, which is written
// before each message. A process that takes an IKE SA over sends no message ID twice but for the same packet, and answers a request that
// came again with the same packet.

const (
	saRecord     = "sa/"
	windowRecord = "window/"
	// Of a connection that another service owns.
	connectionRecord = "connection/"
	// Which start of a data plane has the children.
	bootRecord = "boot/"
)

// saState is the record of an IKE SA. Its fields have their order in encode.go; the JSON of earlier releases is read as well.
type saState struct {
	Connection string
	Initiator  bool `json:",omitempty"`
	// The end that began the last rekey is not the one that opened the first IKE SA.
	Swapped    bool `json:",omitempty"`
	Theirs     uint64
	Local      netip.AddrPort
	Remote     netip.AddrPort
	NATHere    bool `json:",omitempty"`
	NATThere   bool `json:",omitempty"`
	State      state
	Chosen     []message.Transform
	Keys       suite.Keys
	Fragments  bool `json:",omitempty"`
	MOBIKE     bool `json:",omitempty"`
	PeerKind   message.IDType
	Peer       []byte
	Method     string
	Username   string       `json:",omitempty"`
	Lease      uint64       `json:",omitempty"`
	Tunnel     string       `json:",omitempty"`
	Addresses  []netip.Addr `json:",omitempty"`
	Others     []netip.Addr `json:",omitempty"`
	Up         time.Time
	RekeyAt    time.Time    `json:",omitzero"`
	ReauthAt   time.Time    `json:",omitzero"`
	Children   []childState `json:",omitempty"`
	Precedence uint32
	Dataplane  string `json:",omitempty"`
	VRF        string `json:",omitempty"`
	// Stays when the IKE SA is rekeyed.
	ID     uint64
	Ticket *ticket `json:",omitempty"`
	// Our SPI of the IKE SA for which this one ends, and whether it is that of a reauthentication. 0: none.
	Twin   uint64 `json:",omitempty"`
	Reauth bool   `json:",omitempty"`
	// Of the peer's rekey that collides with ours: our SPI of the IKE SA that it replaces, and its lower nonce.
	Collides bool   `json:",omitempty"`
	Replaces uint64 `json:",omitempty"`
	Lowest   []byte `json:",omitempty"`
	// A rekey has made it: since when the peer is connected.
	Rekeyed bool      `json:",omitempty"`
	First   time.Time `json:",omitzero"`
}

// childState is a child in the record of its IKE SA.
type childState struct {
	Name          string
	In, Out       uint32
	Chosen        []message.Transform
	EncryptionIn  []byte             `json:",omitempty"`
	IntegrityIn   []byte             `json:",omitempty"`
	EncryptionOut []byte             `json:",omitempty"`
	IntegrityOut  []byte             `json:",omitempty"`
	Local         []message.Selector `json:",omitempty"`
	Remote        []message.Selector `json:",omitempty"`
	Transport     bool               `json:",omitempty"`
	Ours          bool               `json:",omitempty"`
	Replaced      bool               `json:",omitempty"`
	Deleting      bool               `json:",omitempty"`
	Half          bool               `json:",omitempty"`
	Replaces      uint32             `json:",omitempty"`
	// The child of the peer's rekey that collides with ours of this child, and its lower nonce.
	Collides   bool   `json:",omitempty"`
	Collision  uint32 `json:",omitempty"`
	Lowest     []byte `json:",omitempty"`
	At         netip.Addr
	Precedence uint32
	Since      time.Time
	RekeyAt    time.Time `json:",omitzero"`
	Expires    time.Time `json:",omitzero"`
	// Of an owned connection: its service made the child.
	Conf *Child `json:",omitempty"`
}

// windowState is the record of the message IDs of an IKE SA.
type windowState struct {
	Next, Expected uint32
	Response       [][]byte `json:",omitempty"`
	// The request that waits for its response.
	Exchange message.Exchange `json:",omitempty"`
	Request  [][]byte         `json:",omitempty"`
	SPI      uint32           `json:",omitempty"`
	// Of CREATE_CHILD_SA.
	Proposed *proposedState `json:",omitempty"`
}

// proposedState is what a request of ours proposes: the SA that its response makes, also in another process.
type proposedState struct {
	Group  uint16 `json:",omitempty"`
	Secret []byte `json:",omitempty"`
	Nonce  []byte `json:",omitempty"`
	// Of a rekey of the IKE SA: our SPI of the new one.
	SPI     uint64             `json:",omitempty"`
	Offered []message.Proposal `json:",omitempty"`
	// Of a child: its configuration, and the inbound SPI of the child that it replaces.
	Name     string `json:",omitempty"`
	Replaces uint32 `json:",omitempty"`
	Conf     *Child `json:",omitempty"`
	// The request is the Delete of the IKE SA.
	Ends bool `json:",omitempty"`
}

func (s *ikeSA) key() string { return fmt.Sprintf("%016x", s.ourSPI) }

func kept(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // every field has a form in JSON
	}
	return b
}

// keepSA writes the record of an IKE SA that is established.
func (s *ikeSA) keepSA() {
	if s.state == opening || s.state == dead {
		return
	}
	keys := s.keys
	keys.Pi, keys.Pr = nil, nil // of IKE_AUTH, which is over
	r := saState{Connection: s.conn.Name, Initiator: s.initiator, Swapped: s.opener != s.initiator, Theirs: s.theirSPI, Local: s.local, Remote: s.remote, NATHere: s.natHere, NATThere: s.natThere,
		State: s.state, Chosen: s.chosen, Keys: keys, Fragments: s.fragments, MOBIKE: s.mobike, PeerKind: s.peer.Kind, Peer: []byte(s.peer.Data),
		Method: s.authMethod, Username: s.username, Lease: s.lease, Tunnel: s.tunnel, Addresses: s.addresses, Others: s.theirOthers, Up: s.up, RekeyAt: s.rekeyAt, ReauthAt: s.reauthAt,
		Precedence: s.m.precedence, Dataplane: s.dataplane, VRF: s.vrf, ID: s.id, Ticket: s.ticket}
	if t := s.twin; t != nil {
		r.Twin, r.Reauth = t.stays.ourSPI, t.reauth
	}
	if old := s.undecided; old != nil {
		r.Collides, r.Replaces, r.Lowest = true, old.ourSPI, s.lowest
	}
	r.Rekeyed, r.First = !s.first.IsZero(), s.first
	for _, c := range s.sortedChildren() {
		one := childState{Name: c.Conf.Name, In: c.SPIIn, Out: c.SPIOut, Chosen: c.Chosen, EncryptionIn: c.EncryptionIn, IntegrityIn: c.IntegrityIn,
			EncryptionOut: c.EncryptionOut, IntegrityOut: c.IntegrityOut, Local: c.Local, Remote: c.Remote, Transport: c.Transport, Ours: c.ours,
			Replaced: c.replaced, Deleting: c.deleting, Half: c.half, Precedence: c.Precedence, Since: c.since, RekeyAt: c.rekeyAt, Expires: c.expires, At: c.at}
		if c.replaces != nil {
			one.Replaces = c.replaces.SPIIn
		}
		if other := c.collision; other != nil && s.childOf(other.SPIIn) == other {
			one.Collides, one.Collision, one.Lowest = true, other.SPIIn, other.lowest
		}
		if c.due {
			one.RekeyAt = c.since // at once, also by another process
		}
		if s.conn.Owned {
			one.Conf = c.Conf
		}
		r.Children = append(r.Children, one)
	}
	s.m.act(Keep{saRecord + s.key(), encoded(&r)})
	s.keepWindow()
}

// keepWindow writes the message IDs of an IKE SA that is established.
func (s *ikeSA) keepWindow() {
	if s.state == opening || s.state == dead {
		return
	}
	w := windowState{Next: s.nextID, Expected: s.expected, Response: s.response}
	if r := s.outstanding; r != nil {
		w.Exchange, w.Request, w.SPI, w.Proposed = r.exchange, r.packets, r.spi, r.proposed
	}
	s.m.act(Keep{windowRecord + s.key(), encoded(&w)})
}

// recorded is the durable part of an owned connection: its IKE SAs need it until the service registers the connection again.
func (c *Connection) recorded() *Connection {
	one := *c
	one.Takes, one.Trust, one.Credential, one.Secret, one.PPK = nil, nil, nil, nil, nil
	one.LocalID, one.RemoteID = Identity{}, Identity{}
	return &one
}

// forget deletes the records of an IKE SA.
func (s *ikeSA) forget() {
	s.m.act(Keep{Key: saRecord + s.key()}, Keep{Key: windowRecord + s.key()})
}

// Restore takes over the IKE SAs of an earlier process, once the connections are known. An IKE SA without a connection is deleted at the
// peer. It returns how many IKE SAs go on.
func (m *Machine) Restore(records map[string][]byte, now time.Time) (actions []Action, count int) {
	for key, value := range records {
		if name, is := strings.CutPrefix(key, connectionRecord); is {
			c := &Connection{}
			if m.connections[name] != nil {
				continue // an IkeConnection of the same name: the service will follow it
			}
			if json.Unmarshal(value, c) != nil {
				m.act(Keep{Key: key}, Count{"failure", "record"})
				continue
			}
			c.Owned = true
			m.connections[name], m.ordered = c, nil
		}
	}
	twins, collisions := map[uint64]*saState{}, map[uint64]*saState{}
	for key, value := range records {
		if plane, is := strings.CutPrefix(key, bootRecord); is {
			if boot, err := strconv.ParseUint(string(value), 16, 64); err == nil {
				m.boots[plane] = boot
			}
			continue
		}
		if strings.HasPrefix(key, connectionRecord) {
			continue
		}
		name, is := strings.CutPrefix(key, saRecord)
		if !is {
			if rest, window := strings.CutPrefix(key, windowRecord); !window || records[saRecord+rest] == nil {
				m.act(Keep{Key: key})
			}
			continue
		}
		var spi uint64
		var r saState
		var w windowState
		if _, err := fmt.Sscanf(name, "%016x", &spi); err != nil || decode(value, &r) != nil || decode(records[windowRecord+name], &w) != nil {
			m.act(Keep{Key: key}, Keep{Key: windowRecord + name}, Count{"failure", "record"})
			continue
		}
		if err := m.restore(spi, &r, &w, now); err != nil {
			m.act(Keep{Key: key}, Keep{Key: windowRecord + name}, Count{"failure", "record"}, Event{Connection: r.Connection, Peer: r.Remote, What: "failed", Detail: err.Error()})
			continue
		}
		count++
		if r.Twin != 0 {
			twins[spi] = &r
		}
		if r.Collides {
			collisions[spi] = &r
		}
	}
	m.restoreTwins(twins, now)
	m.restoreCollisions(collisions, now)
	return m.done(), count
}

func (m *Machine) restore(spi uint64, r *saState, w *windowState, now time.Time) error {
	if r.State == opening || r.State >= dead {
		return errRecord
	}
	conn := m.connections[r.Connection]
	gone := conn == nil
	if gone {
		conn = &Connection{Name: r.Connection}
	}
	s := &ikeSA{m: m, conn: conn, initiator: r.Initiator, opener: r.Initiator != r.Swapped, ourSPI: spi, theirSPI: r.Theirs, dataplane: r.Dataplane, vrf: r.VRF, local: r.Local, remote: r.Remote,
		natHere: r.NATHere, natThere: r.NATThere, state: r.State, chosen: r.Chosen, keys: r.Keys, fragments: r.Fragments, mobike: r.MOBIKE,
		nextID: w.Next, expected: w.Expected, response: w.Response, peer: Identity{r.PeerKind, string(r.Peer)}, authMethod: r.Method, username: r.Username,
		lease: r.Lease, tunnel: r.Tunnel, addresses: r.Addresses, theirOthers: r.Others, up: r.Up, heard: now, rekeyAt: r.RekeyAt, reauthAt: r.ReauthAt, began: r.Up, first: r.First, index: -1, id: r.ID, ticket: r.Ticket}
	if s.id == 0 {
		s.id = spi
	}
	// Not all peers are asked at the same moment whether they are there.
	s.heard = now.Add(-conn.DPDDelay / 64 * time.Duration(s.ourSPI%64))
	var err error
	if s.prf, err = chosenPRF(s.chosen); err != nil {
		return err
	}
	if err := s.protect(); err != nil {
		return err
	}
	if conn.Owned && s.state == established {
		m.peers[s.id] = s
	}
	if t := s.ticket; t != nil {
		if t.Peer = s.peer; !t.Given {
			m.tickets[string(t.ID)] = t
		}
	}
	if len(s.addresses) > 0 && s.state == established && !conn.Owned {
		m.act(TakeAddress{s.lease, conn.Pools, s.addresses, s.tunnel, s.dataplane, s.vrf})
	}
	m.add(s)
	m.identify(s)
	m.precedence = max(m.precedence, r.Precedence)
	for _, c := range r.Children {
		conf := conn.child(c.Name)
		if c.Conf != nil {
			conf = c.Conf
		}
		if conf == nil {
			gone = true
			conf = &Child{Name: c.Name}
		}
		one := &ChildSA{Conf: conf, Connection: conn.Name, SPIIn: c.In, SPIOut: c.Out, Chosen: c.Chosen, EncryptionIn: c.EncryptionIn, IntegrityIn: c.IntegrityIn,
			EncryptionOut: c.EncryptionOut, IntegrityOut: c.IntegrityOut, Local: c.Local, Remote: c.Remote, Transport: c.Transport, Precedence: c.Precedence, sa: s, ours: c.Ours,
			replaced: c.Replaced, half: c.Half, told: true, at: c.At, since: c.Since, rekeyAt: c.RekeyAt, expires: c.Expires}
		if !one.at.IsValid() {
			one.at = r.Local.Addr()
		}
		s.insertChild(one)
		m.children[c.In] = one
		if !gone {
			m.act(Install{Child: one, Inbound: true, Outbound: !c.Half})
		}
	}
	for _, c := range r.Children {
		if old := s.childOf(c.Replaces); old != nil {
			s.childOf(c.In).replaces, old.replaced = old, true
		}
	}
	for _, c := range r.Children {
		if other := s.childOf(c.Collision); c.Collides && other != nil {
			one := s.childOf(c.In)
			one.collision, other.collides, other.lowest = other, true, c.Lowest
			if other.replaces == one {
				one.replaced = false
			}
		}
	}
	if len(w.Request) > 0 {
		exchange, proposed := w.Exchange, w.SPI
		s.outstanding = &request{id: w.Next - 1, exchange: exchange, packets: w.Request, spi: proposed, done: s.proposedBefore(w.Proposed, proposed, now)}
		if s.outstanding.done != nil {
			s.outstanding.proposed = w.Proposed
		} else {
			ends := w.Proposed != nil && w.Proposed.Ends
			s.outstanding.done = func(payloads []message.Payload, now time.Time) {
				s.resume(exchange, proposed, ends, readAuth(payloads), now)
			}
			if ends {
				s.outstanding.proposed = w.Proposed
			}
		}
		// The peer may have had it: the same packet again, at once.
		s.outstanding.sent, s.outstanding.deadline = 1, now.Add(timeoutAfter(1))
		s.send(w.Request)
	}
	switch {
	case s.state == deleting && s.outstanding == nil:
		s.sendDelete(now, "deleted")
	case s.state == rekeyed:
		s.expires = now.Add(time.Minute)
		s.successor = s // it is not the end of the connection
	case gone:
		s.terminate(now, "the connection was deleted")
	}
	for _, c := range r.Children {
		if c.Deleting {
			s.deleteChild(s.childOf(c.In), now)
		}
	}
	s.schedule()
	return nil
}

// restoreCollisions has IKE SAs of the peer's rekeys wait for the responses to ours.
func (m *Machine) restoreCollisions(collisions map[uint64]*saState, now time.Time) {
	for spi, r := range collisions {
		s, old := m.sas[spi], m.sas[r.Replaces]
		if s == nil || old == nil || s == old {
			continue
		}
		s.lowest, s.undecided, old.collision = r.Lowest, old, s
		if !old.rekeying && old.state == established {
			old.yield(now)
		}
	}
}

// proposedBefore restores what a CREATE_CHILD_SA of the earlier process proposes. It returns the function that takes the response; nil: there is not
// enough to go on.
func (s *ikeSA) proposedBefore(r *proposedState, spi uint32, now time.Time) func([]message.Payload, time.Time) {
	if r == nil || s.state != established || len(r.Nonce) == 0 {
		return nil
	}
	var e *suite.Exchange
	if r.Group != 0 {
		var err error
		if e, err = suite.Restore(r.Group, r.Secret); err != nil {
			return nil
		}
	}
	if r.SPI != 0 && e != nil {
		n := s.m.newSAOf(s.conn, r.SPI, true, now)
		n.exchange, n.ni = e, r.Nonce
		s.rekeying, s.proposedSA, s.rekeyAt = true, n, time.Time{}
		return s.rekeyed(n, r.Offered)
	}
	conf, old := r.Conf, s.childOf(r.Replaces)
	if conf == nil {
		conf = s.conn.child(r.Name)
	}
	if conf == nil || spi == 0 || r.Replaces != 0 && old == nil {
		return nil
	}
	c := &ChildSA{Conf: conf, Connection: s.conn.Name, SPIIn: spi, Transport: conf.Transport, sa: s, ours: true, at: s.local.Addr(), nonce: r.Nonce, exchange: e, replaces: old}
	if old != nil {
		old.rekeying = true
	}
	s.m.children[spi], s.proposed = c, c
	created := s.childCreated(c, old, r.Group)
	return func(all []message.Payload, now time.Time) {
		// Not before all IKE SAs are restored.
		s.m.precedence++
		c.Precedence = s.m.precedence
		created(all, now)
	}
}

// resume takes the response to a request of the earlier process, of which too little was kept. ends: it was the Delete of the IKE SA.
func (s *ikeSA) resume(exchange message.Exchange, proposed uint32, ends bool, p authPayloads, now time.Time) {
	created := exchange == message.CreateChildSA && p.sa != nil || exchange == message.IKEFollowupKE && p.err == nil
	switch {
	case s.state == deleting && ends:
		s.close(now, "deleted")
	case s.state == deleting:
		// The Delete was still behind this request.
		s.sendDelete(now, "deleted")
	case p.notify[message.AdditionalKeyExchange] != nil:
		// The peer forgets what we proposed, as the next key exchange does not follow.
	case created && proposed != 0:
		// The keys of our request are lost. The peer deletes its new child, and the old child is rekeyed again.
		s.deleteUnused(proposed, now)
	case created:
		// The peer has moved the children to an IKE SA whose keys are gone.
		conn := s.conn
		s.terminate(now, "the agent ended while the IKE SA was rekeyed")
		s.m.retry(conn, s.m.mustBeUp(conn), now)
	case exchange == message.Informational:
		for _, d := range p.deletes {
			for _, spi := range d.SPIs {
				if c := s.byOutbound(spi); c != nil {
					s.removeChild(c)
				}
			}
		}
		s.keepSA()
	}
}

// Booted sets the boot number of a connected data plane. A data plane that started again skips sequence numbers,
// or begins with 1 without a file of them, when peers would drop its packets as replays: its children are rekeyed. The records say so before they have the new boot number.
func (m *Machine) Booted(dataplane string, boot uint64, now time.Time) []Action {
	before, known := m.boots[dataplane]
	if known && before == boot {
		return nil
	}
	m.boots[dataplane] = boot
	for _, spi := range slices.Sorted(maps.Keys(m.sas)) {
		s := m.sas[spi]
		if !known || s == nil || s.dataplane != dataplane || s.state != established {
			continue
		}
		for _, c := range s.sortedChildren() {
			if !c.replaced && !c.deleting {
				s.rekeyChild(c, now)
			}
		}
		s.keepSA()
	}
	m.act(Keep{bootRecord + dataplane, strconv.AppendUint(nil, boot, 16)})
	return m.done()
}
