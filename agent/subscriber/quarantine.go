// SPDX-License-Identifier: Apache-2.0
// Addresses of pools that a subscriber declined because another host uses them (RFC 2131 section 4.3.3, RFC 8415 section 18.3.8).

package subscriber

import (
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/intent"
)

const (
	// No client gets a declined address for so long.
	quarantineTime = 10 * time.Minute
	// Declined addresses of one subscriber, and of a pool as a part of it: a host that declines all that it gets does not empty the pool.
	quarantineOfSubscriber = 4
	quarantineOfPool       = 4
	quarantineInAll        = 1 << 14
	// Events of one look.
	declinesReported = 16
)

// declined is an address in quarantine.
type declined struct {
	key      addressKey
	identity uint64
	pool     string
	until    time.Time
}

// quarantine is declined addresses, the oldest first.
type quarantine struct {
	queue    []declined
	has      map[addressKey]bool
	of       map[uint64]int // by subscriber
	ofPool   map[string]int
	unspoken []*intent.ServiceEvent
}

func newQuarantine() *quarantine {
	return &quarantine{has: map[addressKey]bool{}, of: map[uint64]int{}, ofPool: map[string]int{}}
}

// setAside puts an address that a session declined into quarantine, if it is of a pool. It goes on as a free one if there are too many. m.mu is held.
func (m *manager) setAside(s *session, h holding) {
	q, from := m.quarantine, *h.pool
	if from == nil || !h.get().IsValid() {
		return
	}
	d := declined{addressKey{s.lease.VRF, h.get()}, s.identity, from.name, m.now().Add(quarantineTime)}
	kept := !q.has[d.key] && q.of[d.identity] < quarantineOfSubscriber && uint64(q.ofPool[d.pool]+1) <= from.size/quarantineOfPool && len(q.queue) < quarantineInAll
	if kept {
		q.queue = append(q.queue, d)
		q.has[d.key] = true
		q.of[d.identity]++
		q.ofPool[d.pool]++
	}
	if len(q.unspoken) < declinesReported {
		c := &s.connection.Line
		e := poolEvent(from.name, from.vrf, "declined", "AddressPool/"+from.name+": "+c.MAC.String()+" on "+c.Circuit.String()+" declined "+d.key.prefix.Addr().String()+
			": another host uses it")
		e.Fields = append(e.Fields, intent.EventField{Name: "address", Value: d.key.prefix.Addr().String()}, intent.EventField{Name: "quarantine", Value: strconv.FormatBool(kept)})
		q.unspoken = append(q.unspoken, e)
	}
}

// endQuarantine frees addresses whose time is over. m.mu is held.
func (m *manager) endQuarantine(now time.Time) {
	q := m.quarantine
	n := 0
	for ; n < len(q.queue) && !q.queue[n].until.After(now); n++ {
		d := q.queue[n]
		delete(q.has, d.key)
		if q.of[d.identity]--; q.of[d.identity] == 0 {
			delete(q.of, d.identity)
		}
		if q.ofPool[d.pool]--; q.ofPool[d.pool] == 0 {
			delete(q.ofPool, d.pool)
		}
		for _, p := range m.pools {
			p.again = p.again || p.has(d.key.prefix.Addr())
		}
	}
	q.queue = slices.Delete(q.queue, 0, n)
}
