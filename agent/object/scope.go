// SPDX-License-Identifier: Apache-2.0

// Addresses that are not forwarded, or that no host can have.
package object

import (
	"net/netip"
	"slices"
)

// scope is a prefix that a router forwards nothing to (RFC 6890, RFC 1812 section 5.3.7, RFC 4291 section 2.5). The data plane has the same
// table in fib/scope.c, and IPv4-mapped addresses, which no field accepts.
type scope struct {
	prefix netip.Prefix
	what   string
	// An address in it may be one of ours.
	ours bool
}

var scopes = []scope{
	{netip.MustParsePrefix("0.0.0.0/8"), "\"this network\" (RFC 1122)", false},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)", false},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)", true},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 1112)", false},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved (RFC 1112)", false},
	{netip.MustParsePrefix("224.0.0.0/3"), "multicast and reserved (RFC 1112)", false},
	{netip.MustParsePrefix("::/128"), "the unspecified address (RFC 4291)", false},
	{netip.MustParsePrefix("::1/128"), "the loopback address (RFC 4291)", false},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)", true},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)", false},
}

// scoped4 holds, for each first byte of an IPv4 address, whether its /8 has scopes.
var scoped4 = func() (scoped [256]bool) {
	for _, s := range scopes {
		for first := range scoped {
			if s.prefix.Overlaps(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(first)}), 8)) {
				scoped[first] = true
			}
		}
	}
	return scoped
}()

// NotForwarded describes the prefix that a router forwards nothing to and that holds p: "loopback (RFC 1122)". Empty: p is forwarded.
func NotForwarded(p netip.Prefix) string {
	if s := scopeOf(p); s != nil {
		return s.what
	}
	return ""
}

// scopeOf returns the scope that a prefix is in, or nil.
func scopeOf(p netip.Prefix) *scope {
	if p.Addr().Is4() && !scoped4[p.Addr().As4()[0]] {
		return nil // as most are
	}
	for i := range scopes {
		if s := &scopes[i]; s.prefix.Bits() <= p.Bits() && s.prefix.Contains(p.Addr()) {
			return s
		}
	}
	return nil
}

// NotHostIn returns the error of an address of ours in its network, if there is one, and the accepted addresses (RFC
// 1122 section 3.2.1.3, RFC 3021, RFC 6164).
func NotHostIn(p netip.Prefix) (problem, accepted string) {
	if s := scopeOf(netip.PrefixFrom(p.Addr(), p.Addr().BitLen())); s != nil && !s.ours {
		return "it is " + s.what, "an address that a host can have"
	}
	if p.Bits() > p.Addr().BitLen()-2 {
		return "", ""
	}
	accepted = "another address in " + p.Masked().String()
	if p.Addr() == p.Masked().Addr() {
		return "the network's own address", accepted
	}
	if p.Addr().Is4() && p.Addr() == LastAddress(p) {
		return "the network's broadcast address", accepted
	}
	return "", ""
}

// LastAddress returns the last address of a network.
func LastAddress(p netip.Prefix) netip.Addr {
	b := slices.Clone(p.Addr().AsSlice())
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
