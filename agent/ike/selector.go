// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/ike/message"
)

// Selectors of each side of a child. The data plane takes all pairs of them.
const selectorLimit = 16

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// SelectorOf is all traffic of a network.
func SelectorOf(p netip.Prefix) message.Selector {
	return message.Selector{EndPort: 65535, Start: p.Masked().Addr(), End: lastOf(p)}
}

// hostOf is all traffic of an address.
func hostOf(a netip.Addr) message.Selector {
	return message.Selector{EndPort: 65535, Start: a, End: a}
}

// intersect returns the intersection of two selectors (RFC 7296 section 2.9).
func intersect(a, b message.Selector) (both message.Selector, any bool) {
	if a.Start.Is4() != b.Start.Is4() {
		return both, false
	}
	both = a
	if a.Protocol == 0 {
		both.Protocol = b.Protocol
	} else if b.Protocol != 0 && a.Protocol != b.Protocol {
		return both, false
	}
	// OPAQUE ports (start above end) are not supported.
	if a.StartPort > a.EndPort || b.StartPort > b.EndPort {
		return both, false
	}
	both.StartPort, both.EndPort = max(a.StartPort, b.StartPort), min(a.EndPort, b.EndPort)
	if b.Start.Compare(both.Start) > 0 {
		both.Start = b.Start
	}
	if b.End.Compare(both.End) < 0 {
		both.End = b.End
	}
	return both, both.StartPort <= both.EndPort && both.Start.Compare(both.End) <= 0
}

// contains reports whether all of b is in a.
func contains(a, b message.Selector) bool {
	both, any := intersect(a, b)
	return any && both == b
}

// narrow returns the intersections of both ends' selectors, each once.
func narrow(ours, theirs []message.Selector) (common []message.Selector) {
	for _, t := range theirs {
		for _, o := range ours {
			both, any := intersect(o, t)
			if !any {
				continue
			}
			covered := false
			for _, c := range common {
				covered = covered || contains(c, both)
			}
			if !covered && len(common) < selectorLimit {
				common = append(common, both)
			}
		}
	}
	return common
}

// within reports whether every selector of some is in one of all.
func within(some, all []message.Selector) bool {
	for _, s := range some {
		inside := false
		for _, a := range all {
			inside = inside || contains(a, s)
		}
		if !inside {
			return false
		}
	}
	return len(some) > 0
}

// coupled returns the selectors of each side that share an address family and a protocol with one of the other side. Others match no packet.
func coupled(local, remote []message.Selector) (_, _ []message.Selector) {
	with := func(some, others []message.Selector) (all []message.Selector) {
		for _, one := range some {
			if slices.ContainsFunc(others, func(other message.Selector) bool { return couple(one, other) }) {
				all = append(all, one)
			}
		}
		return all
	}
	return with(local, remote), with(remote, local)
}

// couple reports whether a packet can match two selectors, one of each side.
func couple(local, remote message.Selector) bool {
	return local.Start.Is4() == remote.Start.Is4() && (local.Protocol == 0 || remote.Protocol == 0 || local.Protocol == remote.Protocol)
}

// prefixOf returns the network of a selector's addresses; not valid: they are not a whole one.
func prefixOf(s message.Selector) netip.Prefix {
	for bits := range s.Start.BitLen() + 1 {
		if p := netip.PrefixFrom(s.Start, bits); p.Masked() == p && lastOf(p) == s.End {
			return p
		}
	}
	return netip.Prefix{}
}

// selectorTexts shows selectors: the first ones if there are many.
func selectorTexts(all []message.Selector) string {
	var texts []string
	for _, one := range all[:min(len(all), selectorLimit)] {
		texts = append(texts, selectorText(one))
	}
	if len(all) > selectorLimit {
		texts = append(texts, "...")
	}
	return strings.Join(texts, " ")
}

// selectorText shows a selector.
func selectorText(s message.Selector) string {
	text := s.Start.String() + "-" + s.End.String()
	if p := prefixOf(s); p.IsValid() {
		text = p.String()
	}
	if s.Protocol != 0 || s.StartPort != 0 || s.EndPort != 65535 {
		text += fmt.Sprintf("[%d/%d-%d]", s.Protocol, s.StartPort, s.EndPort)
	}
	return text
}
