// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// Addresses of remote users, from the allocator that serves subscribers as well.

// How long a user waits for the allocator after the agent's start.
const poolPatience = 2 * time.Second

// held is the contents of a lease.
type held struct {
	pools     []string
	addresses []netip.Addr
	// The IpsecTunnel of the user's Session; empty: the user has no Session.
	tunnel string
	// The Manager knows the user.
	known bool
}

func holderOf(lease uint64) string { return fmt.Sprintf("ike/%016x", lease) }

// lease takes addresses for a remote user. It may wait for the allocator.
func (s *serving) lease(ctx context.Context, q LeaseAddress) (l Leased) {
	s.mu.Lock()
	var names, texts []string
	if o := s.specs[q.Connection]; o != nil {
		spec, _ := o.Spec.(*api.IkeConnection)
		names, texts = spec.GetPools(), spec.GetDns()
	}
	conn := s.machine.connections[q.Connection]
	s.mu.Unlock()
	if conn != nil && conn.Profile != "" {
		return s.subscribe(ctx, conn, q)
	}
	if len(q.Pools) > 0 {
		names = q.Pools
	}
	ctx, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	pools, _, err := service.Find[subscriber.Pools](ctx, s.Environment)
	if err != nil {
		return Leased{Err: fmt.Errorf("the subscriber service, which has the address pools, is not running: %w", err)}
	}
	for _, four := range []bool{true, false} {
		if four && !q.IPv4 || !four && !q.IPv6 {
			continue
		}
		request := subscriber.GuestRequest{Holder: holderOf(q.Lease), User: q.Username, Pools: names, IPv4: four}
		for _, a := range q.Fixed {
			if a.Is4() == four {
				request.Fixed = a
			}
		}
		for _, a := range q.Requested {
			if a.Is4() == four && !request.Asked.IsValid() {
				request.Asked = a
			}
		}
		got, err := pools.Take(request)
		if err != nil {
			l.Err = err
			continue
		}
		if got.Address.IsValid() {
			l.Addresses = append(l.Addresses, got.Address)
			l.DNS = append(l.DNS, got.DNS...)
		}
	}
	if len(texts) > 0 {
		l.DNS = nil
		for _, text := range texts {
			if a, err := netip.ParseAddr(text); err == nil {
				l.DNS = append(l.DNS, a)
			}
		}
	}
	l.DNS = l.DNS[:min(len(l.DNS), 6)]
	switch {
	case len(l.Addresses) > 0:
		l.Err = nil
		s.mu.Lock()
		s.leases[q.Lease] = held{pools: slices.Clone(names), addresses: l.Addresses}
		s.mu.Unlock()
	case l.Err == nil:
		l.Err = fmt.Errorf("the pools have no addresses of the family that the user asks for")
	}
	return l
}

// release gives the addresses of a lease back. s.mu is held.
func (s *serving) release(lease uint64, cause subscriber.Cause) {
	h := s.leases[lease]
	delete(s.leases, lease)
	if h.tunnel != "" {
		s.unsubscribe(lease, h.tunnel, cause)
		return
	}
	if s.allocator != nil {
		allocator := s.allocator
		s.later = append(s.later, func() { allocator.Release(holderOf(lease)) })
	}
}

// servePools informs each new allocator of the addresses of users from before the restart.
func (s *serving) servePools(ctx context.Context) {
	for {
		pools, gone, err := service.Find[subscriber.Pools](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		known := s.allocator == pools
		s.allocator = pools
		type one struct {
			lease uint64
			vrf   string
			held
		}
		var all []one
		for lease, h := range s.leases {
			if h.tunnel != "" {
				continue
			}
			vrf := ""
			for _, name := range h.pools {
				if p := s.pools[name]; p != nil {
					vrf = p.GetVrf()
					break
				}
			}
			all = append(all, one{lease, vrf, h})
		}
		s.mu.Unlock()
		for _, one := range all {
			if known {
				break
			}
			if lost := pools.Retake(holderOf(one.lease), one.vrf, one.addresses); len(lost) > 0 {
				s.locked(func(now time.Time) []Action {
					return s.machine.EndLease(one.lease, "another user has the address", now)
				})
			}
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
	}
}
