// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// holding is one of the addresses and prefixes that a session may have, with the pool that it comes from.
type holding struct {
	kind addressKind
	// An address or a prefix: the other one is nil.
	address *netip.Addr
	prefix  *netip.Prefix
	pool    **pool
}

// addressKind is what a holding is, and so which pools give it.
type addressKind uint8

const (
	address4 addressKind = iota
	address6
	prefix6
)

// gives reports whether the pool gives addresses or prefixes of a kind.
func (p *pool) gives(kind addressKind) bool {
	switch kind {
	case address4:
		return p.four
	case address6:
		return !p.four && p.length == 128
	}
	return !p.four && p.length < 128
}

func (s *session) holdings() [4]holding {
	l := &s.lease
	return [4]holding{{address4, &l.IPv4, nil, &s.pool4}, {address6, &l.IPv6, nil, &s.pool6}, {prefix6, nil, &l.IPv6Prefix, &s.poolPrefix},
		{prefix6, nil, &l.Delegated, &s.poolDelegated}}
}

// held is the session's addresses and prefixes, in the order of holdings.
func (s *session) held() (all [4]netip.Prefix) {
	for i, h := range s.holdings() {
		all[i] = h.get()
	}
	return all
}

func (h holding) get() netip.Prefix {
	if h.prefix != nil {
		return *h.prefix
	}
	return single(*h.address)
}

func (h holding) set(p netip.Prefix) {
	if h.prefix != nil {
		*h.prefix = p
	} else {
		*h.address = p.Addr()
	}
}

// single is an address as a prefix.
func single(a netip.Addr) netip.Prefix {
	if !a.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// conflict is an address that another session holds.
type conflict struct {
	holder *session
	prefix netip.Prefix
}

func (c *conflict) Error() string {
	return fmt.Sprintf("%s: %s is of %s", ErrAddressInUse, c.prefix, c.holder.lease.Session)
}
func (c *conflict) Unwrap() error { return ErrAddressInUse }

// allocate gives the session the addresses that it asks for and does not have.
func (m *manager) allocate(s *session, a *allowed) (reason string, err error) {
	c := &s.connection
	s.lease.VRF = or(s.lease.VRF, a.vrf)
	all := s.holdings()
	fixed := [4]netip.Prefix{single(c.Grant.IPv4), single(c.Grant.IPv6), c.Grant.IPv6Prefix.Masked(), c.Grant.Delegated.Masked()}
	pools := [4][]string{a.pools4, a.pools6, a.pools6, a.poolsDelegated}
	var before [4]bool
	for i, h := range all {
		if c.AssignedElsewhere && h.get() != fixed[i] {
			m.letGo(s, h)
		}
		before[i] = h.get().IsValid()
		needed := h.kind == address4 && c.IPv4 || h.kind != address4 && c.IPv6
		if needed = needed && (fixed[i].IsValid() || !c.AssignedElsewhere); err != nil || before[i] || !needed {
			continue
		}
		if !fixed[i].IsValid() {
			reason, err = m.fromPools(s, h, pools[i])
		} else if other := m.taken[addressKey{s.lease.VRF, fixed[i]}]; other != nil && other != s {
			reason, err = "address-in-use", &conflict{other, fixed[i]}
		} else {
			m.hold(s, h, fixed[i], nil)
		}
	}
	if err == nil {
		m.fill(s, a)
		return "", nil
	}
	for i, h := range all {
		if !before[i] {
			m.letGo(s, h)
		}
	}
	return reason, err
}

func (m *manager) hold(s *session, h holding, p netip.Prefix, from *pool) {
	h.set(p)
	*h.pool = from
	m.taken[addressKey{s.lease.VRF, p}] = s
	m.vrfs[s.lease.VRF]++
	m.countLength(p, 1)
}

func (m *manager) countLength(p netip.Prefix, by int) {
	if p.Addr().Is6() {
		m.lengths[p.Bits()] += by
	}
}

// fromPools takes from the first pool of those that give such addresses, and the pools behind them, that has one.
func (m *manager) fromPools(s *session, h holding, names []string) (reason string, err error) {
	vrf := s.lease.VRF
	taken := func(p netip.Prefix) bool {
		return m.taken[addressKey{vrf, p}] != nil || m.quarantine.has[addressKey{vrf, p}]
	}
	var room [4]string
	tried := room[:0]
	var last *pool
	wrong := ""
	for _, first := range names {
		for name := first; name != "" && !slices.Contains(tried, name) && len(tried) < chainLimit; {
			tried = append(tried, name)
			p := m.pools[name]
			if p == nil {
				wrong = "there is no AddressPool " + name
				break
			}
			name = p.next
			if !p.gives(h.kind) {
				continue
			}
			if p.vrf != vrf {
				wrong = "AddressPool " + p.name + " is of VRF " + p.vrf + ", and the session of " + vrf
				continue
			}
			if a, ok := p.take(s.identity, taken); ok {
				m.hold(s, h, p.prefix(a), p)
				return "", nil
			}
			last = p
		}
	}
	switch {
	case last != nil:
		return "pool-exhausted", fmt.Errorf("%w: %s", ErrExhausted, last.name)
	case wrong != "":
		return "no-pool", fmt.Errorf("%w: %s", ErrExhausted, wrong)
	}
	// The profile has none of this kind: the subscriber gets none.
	return "", nil
}

// decline gives addresses back that the subscriber declined, and reports whether there were any.
func (m *manager) decline(s *session, which Declined) (any bool) {
	for i, h := range s.holdings() {
		if h.get().IsValid() && (i == 0 && which.IPv4 || h.kind == address6 && which.IPv6) {
			m.setAside(s, h)
			m.letGoFor(s, h, ^s.identity)
			any = true
		}
	}
	return any
}

// letGo gives one of the session's addresses back.
func (m *manager) letGo(s *session, h holding) {
	subscriber := s.identity
	if s.declined {
		// The subscriber declined the address because another host uses it: the next one is different.
		if h.kind != prefix6 && strings.HasPrefix(s.connection.Protocol, "dhcp") {
			m.setAside(s, h)
		}
		subscriber = ^subscriber
	}
	m.letGoFor(s, h, subscriber)
}

// letGoFor gives one of the session's addresses back. Its pool keeps it for the subscriber.
func (m *manager) letGoFor(s *session, h holding, subscriber uint64) {
	p := h.get()
	if !p.IsValid() {
		return
	}
	key := addressKey{s.lease.VRF, p}
	if m.taken[key] == s {
		delete(m.taken, key)
		m.countLength(p, -1)
		if m.vrfs[key.vrf]--; m.vrfs[key.vrf] == 0 {
			delete(m.vrfs, key.vrf)
		}
	}
	if from := *h.pool; from != nil {
		from.free(subscriber, p.Addr())
	}
	if from := *h.pool; from == nil || from.vrf != key.vrf || !from.has(p.Addr()) {
		// It may be in the middle of a pool that went past it.
		for _, other := range m.pools {
			other.again = other.again || other.has(p.Addr())
		}
	}
	*h.pool = nil
	h.set(netip.Prefix{})
}

func (m *manager) release(s *session) {
	if s.state == ended {
		m.keepAddresses(s)
	}
	for _, h := range s.holdings() {
		m.letGo(s, h)
	}
}

// giveUp returns addresses of families that the session no longer has.
func (m *manager) giveUp(s *session) {
	for i, h := range s.holdings() {
		if i == 0 && !s.connection.IPv4 || i > 0 && !s.connection.IPv6 {
			m.letGo(s, h)
		}
	}
}

// takeUp marks the addresses of a restored session as taken.
func (m *manager) takeUp(s *session) {
	for _, h := range s.holdings() {
		if p := h.get(); p.IsValid() && m.taken[addressKey{s.lease.VRF, p}] == nil {
			m.hold(s, h, p, nil)
		}
	}
}

// settle finds the pools of addresses that have none: they were given before the pools were known, or their pool was deleted.
func (s *session) settle(pools iter.Seq[*pool]) {
	for _, h := range s.holdings() {
		if p := h.get(); p.IsValid() && h.needsPool() {
			for from := range pools {
				if from.settle(s.lease.VRF, h, p) {
					break
				}
			}
		}
	}
}

// needsPool reports whether the address is of no pool, or of a deleted one.
func (h holding) needsPool() bool { return *h.pool == nil || (*h.pool).deleted }

// settle takes up a session's address if the pool has it.
func (p *pool) settle(vrf string, h holding, taken netip.Prefix) bool {
	if p.vrf != vrf || p.length != taken.Bits() || !p.has(taken.Addr()) {
		return false
	}
	*h.pool = p
	p.used++
	return true
}

// fill sets the fields of the lease beside addresses.
func (m *manager) fill(s *session, a *allowed) {
	l := &s.lease
	l.SessionTimeout, l.MTU, l.Portal = a.sessionTimeout, a.policy.Mtu, a.policy.Portal
	l.Announced = s.connection.Grant.Announced
	l.Gateway = a.gateway
	if s.pool4 != nil && s.pool4.gateway.IsValid() {
		l.Gateway = s.pool4.gateway
	}
	for _, name := range a.pools4 {
		// The gateway of neighbours whose addresses are of a pool is as good for one whose address is not.
		if p := m.pools[name]; p != nil && !l.Gateway.IsValid() {
			l.Gateway = p.gateway
		}
	}
	if !l.IPv4.IsValid() {
		l.Gateway = netip.Addr{}
	}
	l.Network = netip.Prefix{}
	if s.pool4 != nil && l.IPv4.IsValid() {
		l.Network = s.pool4.network(l.IPv4)
	}
	l.DNS = nil
	for _, four := range []bool{true, false} {
		of := a.dns
		if !hasFamily(of, four) {
			of = nil
			for _, p := range []*pool{s.pool4, s.pool6, s.poolPrefix, s.poolDelegated} {
				if p != nil && hasFamily(p.dns, four) {
					of = p.dns
					break
				}
			}
		}
		for _, server := range of {
			if server.Is4() == four {
				l.DNS = append(l.DNS, server)
			}
		}
	}
}

func hasFamily(all []netip.Addr, four bool) bool {
	for _, a := range all {
		if a.Is4() == four {
			return true
		}
	}
	return false
}

// poolUse is how a pool stands.
type poolUse struct {
	name            string
	vrf             string
	used, exhausted uint64
	size            uint64
}

func (m *manager) poolUses() []poolUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []poolUse
	for name, p := range m.pools {
		all = append(all, poolUse{name, p.vrf, uint64(max(p.used, 0)), p.exhausted, p.size})
	}
	return all
}
