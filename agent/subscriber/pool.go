// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber/rules"
)

const (
	// Addresses of subscribers that are gone are kept for them until so many are; then the oldest is given to another subscriber first.
	rememberedLimit = 1 << 20
	// Pools that one allocation tries.
	chainLimit = 64
)

// u128 is an IPv6 address as a number. IPv4 addresses are in the low half.
type u128 struct{ hi, lo uint64 }

func numberOf(a netip.Addr) u128 {
	if a.Is4() {
		b := a.As4()
		return u128{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return u128{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

func (n u128) address(four bool) netip.Addr {
	if four {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n.lo))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b)
}

func (n u128) less(m u128) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// add returns n + 1<<shift; over: it is beyond the last number.
func (n u128) add(shift int) (sum u128, over bool) {
	var carry uint64
	if shift >= 64 {
		sum.lo = n.lo
		sum.hi, carry = bits.Add64(n.hi, 1<<(shift-64), 0)
	} else {
		sum.lo, carry = bits.Add64(n.lo, 1<<shift, 0)
		sum.hi, carry = bits.Add64(n.hi, 0, carry)
	}
	return sum, carry != 0
}

func (n u128) sub(m u128) (d u128) {
	var borrow uint64
	d.lo, borrow = bits.Sub64(n.lo, m.lo, 0)
	d.hi, _ = bits.Sub64(n.hi, m.hi, borrow)
	return d
}

// shifted is n >> shift, at most the largest uint64.
func (n u128) shifted(shift int) uint64 {
	if shift >= 64 {
		return n.hi >> (shift - 64)
	}
	if n.hi>>shift != 0 {
		return math.MaxUint64
	}
	return n.lo>>shift | n.hi<<(64-shift)
}

// masked clears the lowest bits.
func (n u128) masked(shift int) u128 {
	if shift >= 64 {
		return u128{n.hi >> (shift - 64) << (shift - 64), 0}
	}
	return u128{n.hi, n.lo >> shift << shift}
}

// last sets the lowest bits.
func (n u128) last(shift int) u128 {
	top := n.masked(shift)
	if shift >= 64 {
		return u128{top.hi | (1<<(shift-64) - 1), math.MaxUint64}
	}
	return u128{top.hi, top.lo | (1<<shift - 1)}
}

// span is a run of addresses, or of whole prefixes.
type span struct{ first, last u128 }

// pool gives addresses, or prefixes, of its spans: to a subscriber who had one the same again while it is free, else one that was never given, else
// the one that was free for the longest time. Which are taken, the Manager knows, for all pools of a VRF and for addresses of no pool.
type pool struct {
	name   string
	spec   *api.AddressPool
	vrf    string
	four   bool
	length int // of the prefixes that it gives
	spans  []span
	// Ranges that are networks.
	networks []netip.Prefix
	size     uint64
	gateway  netip.Addr
	dns      []netip.Addr
	next     string
	// Sessions may still have addresses of it.
	deleted bool
	// How many of it are taken, also outside of its spans.
	used      int
	exhausted uint64
	// Of exhausted, when the pool was looked at; when it grew last, and whether an event said that the pool is exhausted.
	seen      uint64
	grew      time.Time
	announced bool

	// The next that was not given yet: a span and an address in it.
	at     int
	cursor u128
	// Addresses may be free that cursor has passed.
	again bool
	// By subscriber.
	remembered map[uint64]freed
	queue      []freed
	head       int
	sequence   uint64
	// Subscribers of addresses from before a restart: cursor skips these.
	restored map[netip.Addr]uint64
}

// freed is an address that a subscriber had.
type freed struct {
	address    netip.Addr
	subscriber uint64
	sequence   uint64
}

func newPool(name string, spec *api.AddressPool) *pool {
	p := &pool{name: name, remembered: map[uint64]freed{}}
	p.configure(spec)
	return p
}

// configure applies the spec to the pool. Taken addresses stay taken.
func (p *pool) configure(spec *api.AddressPool) {
	p.spec, p.vrf, p.next = spec, orDefault(spec.Vrf), spec.Next
	p.spans, p.networks, p.size, p.dns, p.gateway = nil, nil, 0, nil, netip.Addr{}
	if a, err := netip.ParseAddr(spec.Gateway); err == nil {
		p.gateway = a
	}
	for _, written := range spec.Dns {
		if a, err := netip.ParseAddr(written); err == nil {
			p.dns = append(p.dns, a)
		}
	}
	if len(spec.Ranges) > 0 {
		if first, _, _, err := rules.ParseRange(spec.Ranges[0]); err == nil {
			p.four = first.Is4()
		}
	}
	p.length = 128
	switch {
	case p.four:
		p.length = 32
	case spec.PrefixLength != 0:
		p.length = int(spec.PrefixLength)
	}
	for _, written := range spec.Ranges {
		if n, err := netip.ParsePrefix(written); err == nil {
			p.networks = append(p.networks, n)
		}
		first, last, network, err := rules.ParseRange(written)
		if err != nil || first.Is4() != p.four {
			continue // the checks let none through
		}
		s := span{numberOf(first).masked(p.shift()), numberOf(last).last(p.shift())}
		switch {
		case p.four && network.IsValid() && network.Bits() < 31:
			s.first, _ = s.first.add(0)
			s.last = s.last.sub(u128{0, 1})
		case !p.four && p.length == 128 && network.IsValid() && network.Bits() < 127:
			s.first, _ = s.first.add(0) // RFC 4291 section 2.6.1: the routers' anycast address
		}
		p.spans = append(p.spans, s)
	}
	excluded := slices.Clone(spec.Excluded)
	if spec.Gateway != "" {
		excluded = append(excluded, spec.Gateway)
	}
	for _, written := range excluded {
		if first, last, _, err := rules.ParseRange(written); err == nil && first.Is4() == p.four {
			p.exclude(numberOf(first).masked(p.shift()), numberOf(last).last(p.shift()))
		}
	}
	sort.Slice(p.spans, func(i, j int) bool { return p.spans[i].first.less(p.spans[j].first) })
	for _, s := range p.spans {
		count := s.last.sub(s.first).shifted(p.shift())
		if p.size+count+1 < p.size || count == math.MaxUint64 {
			p.size = math.MaxUint64
			break
		}
		p.size += count + 1
	}
	p.rewind()
	// A remembered address may be excluded now.
	for subscriber, f := range p.remembered {
		if !p.has(f.address) {
			delete(p.remembered, subscriber)
		}
	}
	p.compact()
}

func orDefault(vrf string) string {
	if vrf == "" {
		return "default"
	}
	return vrf
}

// shift is how many bits follow the prefixes that the pool gives.
func (p *pool) shift() int {
	if p.four {
		return 32 - p.length
	}
	return 128 - p.length
}

func (p *pool) exclude(first, last u128) {
	var rest []span
	for _, s := range p.spans {
		if last.less(s.first) || s.last.less(first) {
			rest = append(rest, s)
			continue
		}
		if s.first.less(first) {
			rest = append(rest, span{s.first, first.sub(u128{0, 1})})
		}
		if last.less(s.last) {
			from, _ := last.add(0)
			rest = append(rest, span{from, s.last})
		}
	}
	p.spans = rest
}

// has reports whether an address, or the first one of a prefix, is one that the pool gives.
func (p *pool) has(a netip.Addr) bool {
	if a.Is4() != p.four {
		return false
	}
	n := numberOf(a)
	i := sort.Search(len(p.spans), func(i int) bool { return n.less(p.spans[i].first) })
	return i > 0 && !p.spans[i-1].last.less(n) && n == n.masked(p.shift())
}

// network returns the network of the ranges that an address is in.
func (p *pool) network(a netip.Addr) netip.Prefix {
	for _, n := range p.networks {
		if n.Contains(a) {
			return n
		}
	}
	return netip.Prefix{}
}

func (p *pool) prefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, p.length) }

func (p *pool) rewind() {
	p.at = 0
	if len(p.spans) > 0 {
		p.cursor = p.spans[0].first
	}
}

// take returns a free address, or the first one of a prefix. taken reports addresses that are not free.
func (p *pool) take(subscriber uint64, taken func(netip.Prefix) bool) (a netip.Addr, ok bool) {
	if f, was := p.remembered[subscriber]; was {
		delete(p.remembered, subscriber)
		if !taken(p.prefix(f.address)) {
			p.used++
			return f.address, true
		}
	}
	for {
		if len(p.remembered) < rememberedLimit {
			if a, ok = p.unused(taken); ok {
				break
			}
		}
		if a, ok = p.oldest(taken); ok {
			break
		}
		if a, ok = p.unused(taken); ok {
			break
		}
		if !p.again {
			p.exhausted++
			return a, false
		}
		p.again = false
		p.rewind()
	}
	p.used++
	return a, true
}

// unused returns the next address that was not given yet.
func (p *pool) unused(taken func(netip.Prefix) bool) (netip.Addr, bool) {
	for p.at < len(p.spans) {
		s, n := p.spans[p.at], p.cursor
		next, over := n.add(p.shift())
		if over || s.last.less(next) {
			if p.at++; p.at < len(p.spans) {
				p.cursor = p.spans[p.at].first
			}
		} else {
			p.cursor = next
		}
		if a := n.address(p.four); !taken(p.prefix(a)) && !p.reserved(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// oldest returns the address that was free for the longest time.
func (p *pool) oldest(taken func(netip.Prefix) bool) (netip.Addr, bool) {
	for p.head < len(p.queue) {
		f := p.queue[p.head]
		p.head++
		if p.remembered[f.subscriber] != f {
			continue
		}
		delete(p.remembered, f.subscriber)
		if !taken(p.prefix(f.address)) {
			return f.address, true
		}
	}
	p.queue, p.head = p.queue[:0], 0
	return netip.Addr{}, false
}

// free returns an address to the pool. The pool reserves it for the same subscriber until another one needs it.
func (p *pool) free(subscriber uint64, a netip.Addr) {
	p.used--
	if !p.has(a) {
		return
	}
	p.sequence++
	f := freed{a, subscriber, p.sequence}
	if before, had := p.remembered[subscriber]; had && before.address != a {
		// It has two: the first one is free.
		p.again = true
	}
	p.remembered[subscriber] = f
	p.queue = append(p.queue, f)
	if len(p.queue) > 2*len(p.remembered)+1024 {
		p.compact()
	}
}

// compact drops forgotten entries.
func (p *pool) compact() {
	rest := p.queue[:0]
	for _, f := range p.queue[p.head:] {
		if p.remembered[f.subscriber] == f {
			rest = append(rest, f)
		}
	}
	p.queue, p.head = slices.Clip(rest), 0
}
