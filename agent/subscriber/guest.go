// SPDX-License-Identifier: Apache-2.0
// Addresses of AddressPools for users that have no Session, such as remote users of IKEv2. One allocator serves them and the subscribers.

package subscriber

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
)

// Pools gives addresses of AddressPools to other services. The service "subscriber" offers it.
type Pools interface {
	// Take gives a holder an IPv4 or an IPv6 address of the first pool that has one. A user gets the same address again while it is free.
	Take(request GuestRequest) (GuestAddress, error)
	// Retake restores the addresses of a VRF that a holder of an earlier run of the agent has, and returns those that
	// others have meanwhile.
	Retake(holder, vrf string, addresses []netip.Addr) (lost []netip.Addr)
	// Release gives all addresses of a holder back.
	Release(holder string)
}

// GuestRequest is a request for an address.
type GuestRequest struct {
	// Holder is unique: the service's name and a key of its own.
	Holder, User string
	// Names of AddressPools, in the order in which they are tried.
	Pools []string
	IPv4  bool
	// An address that the user asks for; the zero Addr: any. It gets another one if the pools do not have it or if it is taken.
	Asked netip.Addr
	// A fixed address of the user, also of no pool. It gets no other one.
	Fixed netip.Addr
}

// GuestAddress is an address that a holder got. DNS is that of its pool.
type GuestAddress struct {
	Address netip.Addr
	DNS     []netip.Addr
}

// guestOf returns the guest of a holder among the sessions that have addresses. m.mu is held.
func (m *manager) guestOf(holder, user string) *session {
	s := m.guests[holder]
	if s == nil {
		h := fnv.New64a()
		h.Write([]byte("guest\x00" + user))
		s = &session{identity: h.Sum64(), state: up}
		m.guests[holder] = s
	}
	return s
}

// forgetEmpty forgets a holder without addresses. m.mu is held.
func (m *manager) forgetEmpty(holder string) {
	if s := m.guests[holder]; !s.lease.IPv4.IsValid() && !s.lease.IPv6.IsValid() {
		delete(m.guests, holder)
	}
}

// Take implements Pools.
func (m *manager) Take(request GuestRequest) (GuestAddress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.guestOf(request.Holder, request.User)
	at := s.holdings()[0]
	if !request.IPv4 {
		at = s.holdings()[1]
	}
	defer m.forgetEmpty(request.Holder)
	if len(request.Pools) > 0 {
		if p := m.pools[request.Pools[0]]; p != nil && s.lease.VRF == "" {
			s.lease.VRF = p.vrf
		}
	}
	s.lease.VRF = orDefault(s.lease.VRF)
	if request.Fixed.IsValid() {
		prefix := netip.PrefixFrom(request.Fixed, request.Fixed.BitLen())
		if m.taken[addressKey{s.lease.VRF, prefix}] != nil {
			return GuestAddress{}, fmt.Errorf("%w: %s", ErrAddressInUse, request.Fixed)
		}
		m.hold(s, at, prefix, nil)
		return GuestAddress{Address: request.Fixed}, nil
	}
	for _, name := range request.Pools {
		p := m.pools[name]
		if p == nil || !p.gives(at.kind) || p.vrf != s.lease.VRF || !request.Asked.IsValid() || !p.has(request.Asked) {
			continue
		}
		if prefix := p.prefix(request.Asked); m.taken[addressKey{p.vrf, prefix}] == nil && !p.reserved(request.Asked) {
			p.used++
			m.hold(s, at, prefix, p)
			return GuestAddress{request.Asked, p.dns}, nil
		}
	}
	if _, err := m.fromPools(s, at, request.Pools); err != nil {
		return GuestAddress{}, err
	}
	got := GuestAddress{Address: at.get().Addr()}
	if p := *at.pool; p != nil {
		got.DNS = p.dns
	}
	return got, nil
}

// Retake implements Pools.
func (m *manager) Retake(holder, vrf string, addresses []netip.Addr) (lost []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.guestOf(holder, holder)
	s.lease.VRF = orDefault(vrf)
	for _, a := range addresses {
		at := s.holdings()[0]
		if a.Is6() {
			at = s.holdings()[1]
		}
		prefix := netip.PrefixFrom(a, a.BitLen())
		other := m.taken[addressKey{s.lease.VRF, prefix}]
		switch {
		case other == s:
		case other != nil || at.get().IsValid():
			lost = append(lost, a)
		default:
			m.hold(s, at, prefix, nil)
		}
	}
	s.settle(maps.Values(m.pools))
	m.forgetEmpty(holder)
	return lost
}

// Release implements Pools.
func (m *manager) Release(holder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.guests[holder]
	if s == nil {
		return
	}
	for _, h := range s.holdings() {
		m.letGo(s, h)
	}
	delete(m.guests, holder)
}
