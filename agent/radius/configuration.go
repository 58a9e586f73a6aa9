// SPDX-License-Identifier: Apache-2.0

// Servers and policies from their objects, and the NASs that account.
package radius

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
)

// Settings of a RadiusServer and a RadiusPolicy that say nothing.
const (
	defaultAuthenticationPort = 1812
	defaultAccountingPort     = 1813
	defaultTimeout            = 2 * time.Second
	defaultTransmissions      = 3
	defaultDeadTime           = 30 * time.Second
	// The socket buffer that Linux gives a server by default (212,992 bytes) holds about 160 requests. A server that is busy for a moment loses the others.
	defaultOutstanding = 128
	defaultSpoolLimit  = 500_000
	defaultSpoolRate   = 1000
)

// configure makes endpoints and policies from their objects. s.mu is held.
func (s *radius) configure(now time.Time) {
	var actions []action
	var gone []*endpoint
	desired := map[endpointKey]settings{}
	for name, spec := range s.servers {
		for _, accounting := range []bool{false, true} {
			desired[endpointKey{name, accounting}] = settingsOf(name, spec, accounting)
		}
	}
	for key, e := range s.endpoints {
		if desired[key] == e.settings {
			continue
		}
		delete(s.endpoints, key)
		gone = append(gone, e)
		for _, conn := range s.sockets[e] {
			if conn != nil {
				conn.Close()
			}
		}
		delete(s.sockets, e)
		delete(s.closed, e)
		s.hinder(e, "", "")
		if _, stays := s.servers[key.server]; !stays {
			s.dead.DeleteLabelValues(e.server, e.purpose())
			delete(s.counters, key)
			s.forget(key)
		}
	}
	for key, of := range desired {
		if s.endpoints[key] == nil {
			e := s.client.add(of)
			s.endpoints[key] = e
			s.dead.WithLabelValues(e.server, e.purpose()).Set(0)
		}
	}
	build := func(name string, spec *api.RadiusPolicy) *policy {
		p := newPolicy(name, spec, s.host)
		choices := func(from []*api.RadiusChoice, accounting bool) (all []choice) {
			for _, o := range from {
				if e := s.endpoints[endpointKey{o.Server, accounting}]; e != nil {
					all = append(all, choice{e, o.Weight})
				}
			}
			return all
		}
		p.authentication, p.accounting = choices(spec.Authentication, false), choices(spec.Accounting, true)
		s.spool.resume(name, now)
		return p
	}
	s.policies, s.retired = nil, nil
	for name, spec := range s.specs {
		s.policies = append(s.policies, build(name, spec))
	}
	maps.DeleteFunc(s.policyCounters, func(name string, _ *policyCounters) bool { return s.specs[name] == nil })
	s.remember()
	for name, spec := range s.accounted {
		if s.accounting(name) == nil {
			s.retired = append(s.retired, build(name, spec))
		}
	}
	slices.SortFunc(s.policies, func(a, b *policy) int { return strings.Compare(a.name, b.name) })
	// Requests that wait there go to the servers that policies name now.
	for _, e := range gone {
		actions = append(actions, s.client.remove(e, now)...)
	}
	s.announce(now)
	s.reportUnserved()
	s.listen(now)
	actions = append(actions, s.pump(now)...)
	s.carryOut(actions)
}

func settingsOf(name string, spec *api.RadiusServer, accounting bool) settings {
	or := func(n, zero uint64) uint64 {
		if n == 0 {
			return zero
		}
		return n
	}
	port := or(uint64(spec.AuthenticationPort), defaultAuthenticationPort)
	if accounting {
		port = or(uint64(spec.AccountingPort), defaultAccountingPort)
	}
	address, _ := netip.ParseAddr(spec.Address)
	source, _ := netip.ParseAddr(spec.SourceAddress)
	return settings{server: name, accounting: accounting, address: netip.AddrPortFrom(address, uint16(port)), source: source, device: spec.Device, secret: spec.Secret,
		timeout: time.Duration(or(spec.Timeout, uint64(defaultTimeout))), tries: int(or(uint64(spec.Transmissions), defaultTransmissions)),
		deadTime: time.Duration(or(spec.DeadTime, uint64(defaultDeadTime))), statusInterval: time.Duration(spec.StatusInterval),
		most: int(or(uint64(spec.MaxOutstanding), defaultOutstanding)), unsigned: spec.AllowUnsignedReplies}
}

// remember keeps the last state of each policy that accounts: after its end, its sessions still have their Stops, and NASs Accounting-Off.
// s.mu is held.
func (s *radius) remember() {
	keep := func(name string, spec *api.RadiusPolicy) {
		s.accounted[name] = spec
		if packed, err := proto.Marshal(spec); err == nil {
			s.spool.put(durable.Record{Key: policyPrefix + name, Value: packed})
		}
	}
	for _, p := range s.policies {
		if spec := withoutSecrets(p.spec); len(spec.Accounting) > 0 && !proto.Equal(s.accounted[p.name], spec) {
			keep(p.name, spec)
		}
	}
	for name, spec := range s.accounted {
		// An earlier version kept secrets.
		if spec.DynamicAuthorization != nil {
			keep(name, withoutSecrets(spec))
		}
	}
	for name := range s.accounted {
		needed := s.accounting(name) != nil || s.sessions.of[name] > 0 || s.spool.boxes[name] != nil && s.spool.boxes[name].records() > 0
		for _, on := range s.spool.on {
			needed = needed || on.policy == name
		}
		if !needed {
			delete(s.accounted, name)
			s.spool.put(durable.Record{Key: policyPrefix + name})
		}
	}
}

// withoutSecrets is what accounting needs of a policy: the log is not encrypted, and secrets of clients are no matter of accounting.
func withoutSecrets(spec *api.RadiusPolicy) *api.RadiusPolicy {
	if spec.DynamicAuthorization == nil {
		return spec
	}
	spec = proto.Clone(spec).(*api.RadiusPolicy)
	spec.DynamicAuthorization = nil
	return spec
}

// accountedOf reads the policies that accounted in an earlier run.
func accountedOf(t table) map[string]*api.RadiusPolicy {
	all := map[string]*api.RadiusPolicy{}
	for _, kept := range t.Unsorted() {
		if name, is := strings.CutPrefix(kept.Key, policyPrefix); is {
			spec := &api.RadiusPolicy{}
			if proto.Unmarshal(kept.Value, spec) == nil && len(spec.Accounting) > 0 {
				all[name] = spec
			}
		}
	}
	return all
}

// announce spools Accounting-Off for each NAS that no longer accounts, and Accounting-On for one that accounts for the first time. Sessions
// outlive the agent, so its start and end are neither. s.mu is held.
func (s *radius) announce(now time.Time) {
	accounts := map[nas]*policy{}
	for _, p := range s.policies {
		if len(p.spec.Accounting) > 0 && accounts[p.nas] == nil {
			accounts[p.nas] = p
		}
	}
	byKey := func(a, b nas) int { return strings.Compare(a.key(), b.key()) }
	for _, n := range slices.SortedFunc(maps.Keys(s.spool.on), byKey) {
		if accounts[n] != nil {
			continue
		}
		on, key := s.spool.on[n], onPrefix+n.key()
		delete(s.spool.on, n)
		p := s.accounting(on.policy)
		if p == nil {
			// Of an earlier version, whose policy is gone: nothing tells its servers.
			s.spool.put(durable.Record{Key: key})
			continue
		}
		of := policy{nas: n}
		r := &record{policy: p.name, session: fmt.Sprintf("off-%x", now.UnixNano()), kind: kindOff, at: now}
		s.spool.add(r, of.nasAttributes(statusOff, r.session, now), s.limit(p), durable.Record{Key: key})
	}
	for _, n := range slices.SortedFunc(maps.Keys(accounts), byKey) {
		if _, there := s.spool.on[n]; there {
			continue
		}
		p := accounts[n]
		r := &record{policy: p.name, session: fmt.Sprintf("on-%x", now.UnixNano()), kind: kindOn, at: now}
		on := announced{p.name, r.session}
		s.spool.on[n] = on
		s.spool.add(r, p.nasAttributes(statusOn, r.session, now), s.limit(p), durable.Record{Key: onPrefix + n.key(), Value: on.encode()})
	}
}

func (n nas) key() string { return n.identifier + "/" + n.ip4.String() + "/" + n.ip6.String() }

// nasOf is the NAS of a key. An identifier may have slashes.
func nasOf(key string) (n nas) {
	rest, ip6 := cutLast(key)
	rest, ip4 := cutLast(rest)
	n.identifier = rest
	n.ip4, _ = netip.ParseAddr(ip4)
	n.ip6, _ = netip.ParseAddr(ip6)
	return n
}

func cutLast(text string) (before, after string) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return text, ""
	}
	return text[:at], text[at+1:]
}

func (s *radius) limit(p *policy) int {
	if p.spec.SpoolLimit != 0 {
		return int(p.spec.SpoolLimit)
	}
	return defaultSpoolLimit
}

// policyOf returns the policy of a profile, or nil. s.mu is held.
func (s *radius) policyOf(profile string) *policy { return policyOf(s.policies, profile) }

// policyOf returns the policy of a profile, or nil. The policies are in the order of their names.
func policyOf(policies []*policy, profile string) *policy {
	var others *policy
	for _, p := range policies {
		if slices.Contains(p.spec.Profiles, profile) {
			return p
		}
		if others == nil && len(p.spec.Profiles) == 0 {
			others = p
		}
	}
	return others
}

func (s *radius) policyNamed(name string) *policy {
	for _, p := range s.policies {
		if p.name == name {
			return p
		}
	}
	return nil
}

// accounting returns the policy of a name that accounts, or else the last one that did, or nil. s.mu is held.
func (s *radius) accounting(name string) *policy {
	for p := range s.accountants() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// accountants are the policies that account, and those that did. s.mu is held.
func (s *radius) accountants() iter.Seq[*policy] {
	return func(yield func(*policy) bool) {
		for _, p := range s.policies {
			if len(p.spec.Accounting) > 0 && !yield(p) {
				return
			}
		}
		for _, p := range s.retired {
			if !yield(p) {
				return
			}
		}
	}
}
