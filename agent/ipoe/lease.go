// SPDX-License-Identifier: Apache-2.0
// Leases: the state that the Manager keeps for a client, and their ends.

package ipoe

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

// stored is the state of a client in the Manager's record.
type stored struct {
	Server string `json:"server"`
	// Unix seconds; 0: without an end.
	Ends4  int64 `json:"ends4,omitempty"`
	Ends6  int64 `json:"ends6,omitempty"`
	Bound4 bool  `json:"bound4,omitempty"`
	Bound6 bool  `json:"bound6,omitempty"`
	Static bool  `json:"static,omitempty"`
	// VLAN tags of the client's frames.
	Tags []byte `json:"tags,omitempty"`
	// The client uses an IPv6 address, and a delegated prefix.
	UsesAddress bool `json:"usesAddress,omitempty"`
	UsesPrefix  bool `json:"usesPrefix,omitempty"`
	// Unix seconds; 0: not known.
	Began int64 `json:"began,omitempty"`
	// The line identification of access nodes, from messages of each family.
	Line4 []byte `json:"line4,omitempty"`
	Line6 []byte `json:"line6,omitempty"`
	// Option 61.
	ClientID []byte `json:"clientId,omitempty"`
	// It takes its address from the prefix.
	SLAAC bool `json:"slaac,omitempty"`
}

func (c *client) state() []byte {
	unix := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.Unix()
	}
	// No lease ends early: parts of a second count as a whole one.
	end := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.Add(time.Second - 1).Unix()
	}
	packed, err := json.Marshal(stored{c.server, end(c.ends4), end(c.ends6), c.bound4, c.bound6, c.static, c.tags, c.uses[0], c.uses[1], unix(c.began),
		[]byte(c.ids[kind4]), []byte(c.ids[kind6]), []byte(c.clientID), c.slaac})
	if err != nil {
		return nil
	}
	return packed
}

// Restore takes up a session of before a restart.
func (m *Machine) Restore(conn subscriber.Connection, l subscriber.Lease, now time.Time) []Action {
	m.now = now
	var k stored
	line := conn.Line
	key := clientKey{circuit{line.Dataplane, line.Port, line.OuterVLAN, line.InnerVLAN}, dhcp.MAC(line.MAC)}
	if before := m.clients[key]; before != nil && before.id != conn.ID {
		m.end(before, subscriber.NASRequest)
	}
	if err := json.Unmarshal(conn.State, &k); err != nil || m.byID[conn.ID] != nil {
		if err != nil {
			m.do(Disconnect{conn.ID, subscriber.NASError})
		}
		return m.done()
	}
	if !l.IPv4.IsValid() && !l.IPv6.IsValid() && !l.IPv6Prefix.IsValid() && !l.Delegated.IsValid() {
		m.do(Disconnect{conn.ID, subscriber.NASError})
		return m.done()
	}
	at := func(seconds int64) time.Time {
		if seconds == 0 {
			return time.Time{}
		}
		return time.Unix(seconds, 0)
	}
	c := &client{key: key, server: k.Server, id: conn.ID, phase: up, grant: conn.Grant, ends4: at(k.Ends4), ends6: at(k.Ends6), bound4: k.Bound4, bound6: k.Bound6,
		static: k.Static, tags: k.Tags, uses: [2]bool{k.UsesAddress, k.UsesPrefix}, began: at(k.Began), protocol: conn.Protocol}
	c.line = lineKey{key.circuit, lineID(line.CircuitID, line.RemoteID)}
	c.circuitID, c.remoteID = line.CircuitID, line.RemoteID
	c.ids = [2]string{string(k.Line4), string(k.Line6)}
	c.clientID, c.slaac = string(k.ClientID), k.SLAAC
	if len(c.tags) == 0 {
		c.tags = key.tags() // of a record without them
	}
	if c.bound6 && c.uses == [2]bool{} {
		// Of a record without them.
		c.uses = [2]bool{l.IPv6.IsValid(), l.Delegated.IsValid()}
	}
	if s := m.serverOf(key.circuit); s != nil {
		c.server = s.name
	}
	m.enter(c)
	m.byID[c.id] = c
	m.has(c, l)
	if c.has6 {
		// Not all at once.
		c.advertise = m.now.Add(time.Duration(m.random() % uint64(advertiseTime)))
		m.schedule(c)
	}
	switch s := m.serverOf(key.circuit); {
	case s == nil:
		m.end(c, subscriber.NASRequest)
	case s.spec.Profile != conn.Profile:
		m.do(Serve{c.id, s.spec.Profile})
	}
	return m.done()
}

// tags are the VLAN tags of a circuit with the Ethernet type of IEEE 802.1Q: the data plane uses it for a session whose frames it has not seen.
func (c circuit) tags() (b []byte) {
	for _, vlan := range []uint16{c.outer, c.inner} {
		if vlan != 0 {
			b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), vlan)
		}
	}
	return b
}

// leaseTime is how long a lease lasts from now on: a client whose session ends sooner asks again then.
func (m *Machine) leaseTime(s *server, c *client) time.Duration {
	if c.lease.SessionTimeout <= 0 || c.began.IsZero() {
		return s.lease
	}
	return min(s.lease, max(c.began.Add(c.lease.SessionTimeout).Sub(m.now), leastLease))
}

// The shortest lease, of a session that is about to end: the shortest time that DHCP knows. A longer one would outlast the session, whose address may be
// another client's then.
const leastLease = time.Second

// causeOfEnd is why a session ends whose last lease is over: the lease may end together with the time of the session.
func (m *Machine) causeOfEnd(c *client) subscriber.Cause {
	if limit := c.lease.SessionTimeout; limit > 0 && !c.began.IsZero() && !m.now.Before(c.began.Add(limit)) {
		return subscriber.SessionTimeout
	}
	return subscriber.LostCarrier
}

// schedule sets when the client is looked at next.
func (m *Machine) schedule(c *client) {
	var due time.Time
	for _, at := range []time.Time{c.ends4, c.ends6, c.advertise} {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	m.timers.Set(c, due)
	m.settle(c)
}

// releaseLeases ends one family of a client, and the session if it was the last.
func (m *Machine) releaseLeases(c *client, four bool, cause subscriber.Cause) {
	if four {
		c.has4, c.bound4, c.ends4 = false, false, time.Time{}
	} else {
		c.has6, c.bound6, c.ends6 = false, false, time.Time{}
	}
	switch {
	case !c.has4 && !c.has6:
		m.end(c, cause)
	case c.phase == up:
		declined := cause == subscriber.UserError
		m.extendWithout(c, c.has4, c.has6, subscriber.Declined{IPv4: four && declined, IPv6: !four && declined})
	}
}
