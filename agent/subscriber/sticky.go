// SPDX-License-Identifier: Apache-2.0
// Addresses of subscribers that are gone, kept over restarts of the agent: a subscriber that returns gets the same addresses of both
// families, unless another subscriber needed them.

package subscriber

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
)

const (
	// Prefix of keys in the log. No session's identifier begins with it.
	stickyPrefix = "="
	// Most subscribers whose addresses are kept. A further one takes the place of the one that is gone the longest.
	stickyLimit = 1 << 20
	// Addresses of subscribers that are gone for longer are not kept.
	stickyAge = 30 * 24 * time.Hour
	// Records that are forgotten at once, at most.
	forgottenAtOnce = 256
)

// departure is the end of a subscriber's session.
type departure struct {
	subscriber uint64
	at         int64
}

// keptAddresses are the addresses that the Manager keeps for a subscriber without a session.
type keptAddresses struct {
	// End of the session, as Unix time in nanoseconds.
	At int64 `json:"at"`
	// Addresses, or first addresses of prefixes, by pool.
	Addresses map[string]netip.Addr `json:"addresses"`
}

func stickyKey(subscriber uint64) string { return stickyPrefix + strconv.FormatUint(subscriber, 16) }

// loadRecords restores sessions and kept addresses from the records of the previous run, before any other call. It calls lost with each record
// that cannot be restored.
func (m *manager) loadRecords(all []durable.Record, lost func(durable.Record, error)) {
	sessions, errs := make([]*session, len(all)), make([]error, len(all))
	object.InParts(len(all), func(from, to int) {
		p := newPacker()
		for i := from; i < to; i++ {
			if !strings.HasPrefix(all[i].Key, stickyPrefix) {
				sessions[i], errs[i] = p.unpack(all[i].Value)
			}
		}
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	// Tables of their size: to double one again and again takes longer than to fill it.
	m.sessions, m.bySession = make(map[string]*session, len(all)), make(map[string]*session, len(all))
	m.taken, m.byMAC = make(map[addressKey]*session, 3*len(all)), make(index[MAC], len(all))
	m.byUser, m.circuits = make(index[string], len(all)), make(map[lineKey]int, len(all))
	for i, r := range all {
		err := errs[i]
		if s := sessions[i]; s != nil {
			err = m.remember(s)
		} else if err == nil {
			err = m.loadAddresses(r)
		}
		if err != nil {
			lost(r, err)
		}
	}
	for subscriber, k := range m.sticky {
		m.departures = append(m.departures, departure{subscriber, k.At})
	}
	slices.SortFunc(m.departures, func(a, b departure) int { return cmp.Compare(a.at, b.at) })
	// Before a pool gets them.
	m.forgetAddresses(len(m.departures))
}

// forgetAddresses deletes records of subscribers that are gone for too long, and those beyond the limit, at most so many. m.mu is held.
func (m *manager) forgetAddresses(most int) {
	oldest := m.now().Add(-stickyAge).UnixNano()
	for ; most > 0 && len(m.departures) > 0; most-- {
		d := m.departures[0]
		switch k, known := m.sticky[d.subscriber]; {
		case !known || k.At != d.at:
			// The subscriber came back, and left later.
		case d.at > oldest && len(m.sticky) <= m.stickyLimit:
			return
		default:
			delete(m.sticky, d.subscriber)
			if m.records != nil {
				m.records.Put(durable.Record{Key: stickyKey(d.subscriber)})
			}
		}
		m.departures = m.departures[1:]
	}
}

// compactDepartures drops entries of subscribers that came back. Behind the oldest subscriber that is still away, forgetAddresses does not reach
// them. m.mu is held.
func (m *manager) compactDepartures() {
	rest := m.departures[:0]
	for _, d := range m.departures {
		if k, known := m.sticky[d.subscriber]; known && k.At == d.at {
			rest = append(rest, d)
		}
	}
	m.departures = slices.Clip(rest)
}

// loadAddresses restores the addresses that are kept for a subscriber without a session. m.mu is held.
func (m *manager) loadAddresses(r durable.Record) error {
	subscriber, err := strconv.ParseUint(strings.TrimPrefix(r.Key, stickyPrefix), 16, 64)
	if err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	var k keptAddresses
	if err := json.Unmarshal(r.Value, &k); err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	m.sticky[subscriber] = k
	return nil
}

// keepAddresses keeps the addresses of a session that ends. m.mu is held.
func (m *manager) keepAddresses(s *session) {
	if m.records == nil || s.declined {
		return
	}
	k := keptAddresses{At: m.now().UnixNano(), Addresses: map[string]netip.Addr{}}
	for _, h := range s.holdings() {
		if p := h.get(); p.IsValid() && *h.pool != nil {
			k.Addresses[(*h.pool).name] = p.Addr()
		}
	}
	if len(k.Addresses) == 0 {
		return
	}
	// From now on the map only shows that the subscriber has a record.
	m.sticky[s.identity] = keptAddresses{At: k.At}
	m.departures = append(m.departures, departure{s.identity, k.At})
	m.forgetAddresses(2)
	if len(m.departures) > 2*len(m.sticky)+1024 {
		m.compactDepartures()
	}
	if value, err := json.Marshal(k); err == nil {
		m.records.Put(durable.Record{Key: stickyKey(s.identity), Value: value})
	}
}

// stickyOf returns the kept addresses of a pool, the oldest first. m.mu is held.
func (m *manager) stickyOf(pool string) []freed {
	type one struct {
		freed
		at int64
	}
	var all []one
	for subscriber, k := range m.sticky {
		if a, has := k.Addresses[pool]; has {
			all = append(all, one{freed{address: a, subscriber: subscriber}, k.At})
			delete(k.Addresses, pool)
		}
	}
	slices.SortFunc(all, func(a, b one) int { return int(min(max(a.at-b.at, -1), 1)) })
	list := make([]freed, 0, len(all))
	for _, o := range all {
		list = append(list, o.freed)
	}
	return list
}

// restore gives the pool the addresses of subscribers from before a restart, the oldest first.
func (p *pool) restore(all []freed) {
	for _, f := range all {
		if !p.has(f.address) {
			continue
		}
		if other, was := p.restored[f.address]; was {
			delete(p.remembered, other)
		}
		if p.restored == nil {
			p.restored = map[netip.Addr]uint64{}
		}
		p.sequence++
		f.sequence = p.sequence
		p.remembered[f.subscriber], p.restored[f.address] = f, f.subscriber
		p.queue = append(p.queue, f)
	}
}

// reserved reports whether an address that was not used since the restart belongs to a subscriber from before it.
func (p *pool) reserved(a netip.Addr) bool {
	subscriber, was := p.restored[a]
	return was && p.remembered[subscriber].address == a
}
