// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// String returns "02:00:00:00:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// index finds sessions by something that few of them share, usually.
type index[K comparable] map[K]bucket

type bucket struct {
	one  *session
	more map[*session]struct{}
}

func (x index[K]) add(key K, s *session) {
	b, there := x[key]
	switch {
	case !there:
		b.one = s
	case b.more == nil:
		b.more = map[*session]struct{}{b.one: {}, s: {}}
		b.one = nil
	default:
		b.more[s] = struct{}{}
		return
	}
	x[key] = b
}

func (x index[K]) remove(key K, s *session) {
	b := x[key]
	if b.one == s {
		delete(x, key)
		return
	}
	if delete(b.more, s); len(b.more) == 0 {
		delete(x, key)
	}
}

func (x index[K]) count(key K) int {
	b := x[key]
	if b.one != nil {
		return 1
	}
	return len(b.more)
}

func (x index[K]) all(key K) []*session {
	b := x[key]
	if b.one != nil {
		return []*session{b.one}
	}
	var all []*session
	for s := range b.more {
		all = append(all, s)
	}
	return all
}

// indexed reports whether find looks sessions up. Otherwise it looks at all of them.
func (match *Match) indexed() bool {
	return match.ID != "" || match.Session != "" || match.Username != "" || match.CallingStationID != "" || match.RemoteID != "" || match.MAC != MAC{} ||
		match.IPv4.IsValid() || match.IPv6.IsValid() || match.Prefix.IsValid() || match.Delegated.IsValid()
}

// find returns the sessions that match. m.mu is held.
func (m *manager) find(match Match) []*session {
	var candidates []*session
	add := func(s *session) {
		if s != nil {
			candidates = append(candidates, s)
		}
	}
	at := func(p netip.Prefix) {
		for vrf := range m.vrfs {
			if s := m.taken[addressKey{vrf, p}]; s != nil && s.lease.Session != "" {
				add(s) // a guest has no Session
			}
		}
	}
	switch {
	case match.ID != "":
		add(m.sessions[match.ID])
	case match.Session != "":
		add(m.bySession[match.Session])
	case match.IPv4.IsValid():
		at(netip.PrefixFrom(match.IPv4, match.IPv4.BitLen()))
	case match.Delegated.IsValid():
		at(match.Delegated.Masked())
	case match.Prefix.IsValid():
		at(match.Prefix.Masked())
	case match.MAC != MAC{}:
		candidates = m.byMAC.all(match.MAC)
	case match.IPv6.IsValid():
		// An address is in prefixes of a few lengths.
		for bits := range m.lengths {
			if m.lengths[bits] > 0 {
				at(netip.PrefixFrom(match.IPv6, bits).Masked())
			}
		}
	case match.CallingStationID != "":
		if mac, ok := stationMAC(match.CallingStationID); ok {
			candidates = m.byMAC.all(mac)
		}
		for _, s := range m.byRemote.all(match.CallingStationID) {
			if !slices.Contains(candidates, s) {
				add(s)
			}
		}
	case match.RemoteID != "":
		candidates = m.byRemote.all(match.RemoteID)
	case match.Username != "":
		candidates = m.byUser.all(match.Username)
	default:
		for _, s := range m.sessions {
			add(s)
		}
	}
	var found []*session
	for _, s := range candidates {
		if s.matches(&match) {
			found = append(found, s)
		}
	}
	return found
}

// addressed reports whether an address or prefix without its VRF selects sessions. Those of several VRFs may have it.
func (match *Match) addressed() bool {
	return match.VRF == "" && (match.IPv4.IsValid() || match.IPv6.IsValid() || match.Prefix.IsValid() || match.Delegated.IsValid())
}

// selected returns the sessions that match one of several Matches and that are taken, each once, or ErrTooManySessions. m.mu is held.
func (m *manager) selected(which []Match, takes func(*session) bool) (all []*session, err error) {
	seen := map[*session]bool{}
	for _, match := range which {
		for _, s := range m.find(match) {
			if takes(s) && !seen[s] {
				if len(all) == MaxSelected {
					return nil, fmt.Errorf("%w: more than %d", ErrTooManySessions, MaxSelected)
				}
				if len(all) > 0 && match.One {
					return nil, fmt.Errorf("%w, where one was to match", ErrTooManySessions)
				}
				if len(all) > 0 && match.addressed() && s.lease.VRF != all[0].lease.VRF {
					return nil, fmt.Errorf("%w: the address is in VRF %s and in VRF %s", ErrTooManySessions, all[0].lease.VRF, s.lease.VRF)
				}
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	return all, nil
}

func (s *session) matches(match *Match) bool {
	c, l := &s.connection, &s.lease
	differs := func(asked, found string) bool { return asked != "" && asked != found }
	switch {
	case *match == Match{Of: match.Of, One: match.One}:
		return false // an empty selector must not end all sessions
	case match.Of != nil && !match.Of.Has(c.Profile):
		return false
	case differs(match.ID, c.ID), differs(match.Session, l.Session), differs(match.Username, c.Username), differs(match.Dataplane, c.Line.Dataplane),
		differs(match.Port, c.Line.Port), differs(match.CircuitID, string(c.Line.CircuitID)), differs(match.RemoteID, string(c.Line.RemoteID)),
		match.InterfaceID != [8]byte{} && match.InterfaceID != c.Grant.InterfaceID, match.VRF != "" && orDefault(match.VRF) != l.VRF:
		return false
	case match.MAC != MAC{} && match.MAC != c.Line.MAC, match.IPv4.IsValid() && match.IPv4 != l.IPv4, match.Delegated.IsValid() && match.Delegated.Masked() != l.Delegated.Masked(),
		match.Prefix.IsValid() && match.Prefix.Masked() != l.IPv6Prefix.Masked():
		return false
	case match.IPv6.IsValid() && match.IPv6 != l.IPv6 && !(l.IPv6Prefix.IsValid() && l.IPv6Prefix.Contains(match.IPv6)) && !(l.Delegated.IsValid() && l.Delegated.Contains(match.IPv6)):
		return false
	case match.CallingStationID != "" && match.CallingStationID != string(c.Line.RemoteID):
		mac, ok := stationMAC(match.CallingStationID)
		return ok && mac == c.Line.MAC
	}
	return true
}

// stationMAC reads a Calling-Station-Id that is a MAC: they are written in many ways.
func stationMAC(s string) (m MAC, ok bool) {
	b, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "", ".", "").Replace(s))
	if err != nil || len(b) != len(m) {
		return m, false
	}
	return MAC(b), true
}
