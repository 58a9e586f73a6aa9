// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// queryServer serves the API for subscribers.
type queryServer struct {
	api.UnimplementedSubscribersServer
	*manager
}

// selection is a parsed query.
type selection struct {
	match                      Match
	protocol, profile, circuit string
	address                    netip.Addr
	// Conditions on attributes that no index has.
	attributes []func(*session) bool
	everybody  bool
}

// vlanPair reports whether it is "100" or "100.7".
func vlanPair(s string) bool {
	outer, inner, double := strings.Cut(s, ".")
	for _, written := range []string{outer, inner}[:map[bool]int{false: 1, true: 2}[double]] {
		if n, err := strconv.ParseUint(written, 10, 16); err != nil || n < 1 || n > 4094 {
			return false
		}
	}
	return true
}

// parse is parseQuery, and refuses a protocol that no service serves.
func (m *manager) parse(q *api.SubscribersQuery) (selection, error) {
	w, err := parseQuery(q)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && w.protocol != "" && len(m.accesses) > 0 && m.accesses[w.protocol] == nil {
		err = incorrect("protocol", w.protocol, strings.Join(slices.Sorted(maps.Keys(m.accesses)), ", "))
	}
	return w, err
}

func parseQuery(q *api.SubscribersQuery) (w selection, err error) {
	w = selection{match: Match{ID: q.GetId(), Session: q.GetSession(), Username: q.GetUsername(), Dataplane: q.GetDataplane(), VRF: q.GetVrf()},
		protocol: q.GetProtocol(), profile: q.GetProfile(), circuit: q.GetCircuit()}
	if q.GetMac() != "" {
		mac, err := net.ParseMAC(q.GetMac())
		if err != nil || len(mac) != len(MAC{}) {
			return w, incorrect("mac", q.GetMac(), "a MAC such as 02:00:00:00:00:01")
		}
		w.match.MAC = MAC(mac)
	}
	if q.GetAddress() != "" {
		if w.address, err = netip.ParseAddr(q.GetAddress()); err != nil {
			return w, incorrect("address", q.GetAddress(), "an address such as 100.64.0.7")
		}
		if w.address.Is4() {
			w.match.IPv4 = w.address
		} else {
			w.match.IPv6 = w.address
		}
	}
	if w.circuit != "" {
		var vlans string
		var has bool
		w.match.Port, vlans, has = strings.Cut(w.circuit, ":")
		if has && !vlanPair(vlans) {
			return w, incorrect("circuit", w.circuit, "a port and VLANs, such as access:100.7 or access:100, or a port alone")
		}
	}
	w.everybody = w.match == Match{}
	return w, w.attribute(q)
}

// attribute adds the conditions of a query on attributes that no index has.
func (w *selection) attribute(q *api.SubscribersQuery) error {
	where := func(holds func(*session) bool) { w.attributes = append(w.attributes, holds) }
	text := func(value string, of func(*session) string) {
		if value != "" {
			where(func(s *session) bool { return of(s) == value })
		}
	}
	number := func(value uint32, of func(*session) uint16) {
		if value != 0 {
			where(func(s *session) bool { return uint32(of(s)) == value })
		}
	}
	text(q.GetCircuitId(), func(s *session) string { return identification(s.connection.Line.CircuitID) })
	text(q.GetRemoteId(), func(s *session) string { return identification(s.connection.Line.RemoteID) })
	text(q.GetService(), func(s *session) string { return readable(s.connection.Service) })
	text(q.GetPortal(), func(s *session) string { return s.lease.Portal })
	number(q.GetPppoeSessionId(), func(s *session) uint16 { return s.connection.PPPoESessionID })
	number(q.GetOuterVlan(), func(s *session) uint16 { return s.connection.Line.OuterVLAN })
	number(q.GetInnerVlan(), func(s *session) uint16 { return s.connection.Line.InnerVLAN })
	for _, a := range []struct {
		name, text string
		holds      func(*session, netip.Addr) bool
	}{
		{"gateway", q.GetGateway(), func(s *session, a netip.Addr) bool { return s.lease.Gateway == a }},
		{"dns", q.GetDns(), func(s *session, a netip.Addr) bool { return slices.Contains(s.lease.DNS, a) }},
	} {
		if a.text == "" {
			continue
		}
		address, err := netip.ParseAddr(a.text)
		if err != nil {
			return incorrect(a.name, a.text, "an address such as 100.64.0.1")
		}
		where(func(s *session) bool { return a.holds(s, address) })
	}
	if q.GetRoute() == "" {
		return nil
	}
	if address, err := netip.ParseAddr(q.GetRoute()); err == nil {
		where(func(s *session) bool {
			return slices.ContainsFunc(s.connection.Grant.Routes, func(r netip.Prefix) bool { return r.Contains(address) })
		})
		return nil
	}
	route, err := netip.ParsePrefix(q.GetRoute())
	if err != nil {
		return incorrect("route", q.GetRoute(), "a network such as 198.51.100.0/24, or an address in it")
	}
	where(func(s *session) bool { return slices.Contains(s.connection.Grant.Routes, route.Masked()) })
	return nil
}

func incorrect(field, found, accepted string) error {
	return status.Errorf(codes.InvalidArgument, "%s: found %q; accepted: %s", field, found, accepted)
}

// identification is a circuit or remote id as people see it.
func identification(b []byte) string { return strings.ToValidUTF8(string(b), "?") }

func (w *selection) takes(s *session) bool {
	c := &s.connection
	if w.protocol != "" && w.protocol != c.Protocol || w.profile != "" && w.profile != c.Profile {
		return false
	}
	for _, holds := range w.attributes {
		if !holds(s) {
			return false
		}
	}
	if w.circuit == "" || w.circuit == c.Line.Port {
		return true
	}
	return w.circuit == c.Line.Circuit.String()
}

// String returns "access:100.7", with as many VLANs as there are.
func (c Circuit) String() string {
	b := []byte(c.Port)
	if c.OuterVLAN != 0 {
		b = strconv.AppendUint(append(b, ':'), uint64(c.OuterVLAN), 10)
	}
	if c.InnerVLAN != 0 {
		b = strconv.AppendUint(append(b, '.'), uint64(c.InnerVLAN), 10)
	}
	return string(b)
}

const (
	// Sessions that are looked at without letting other callers of the Manager go on.
	pageStep = 512
	// Of the tree of names.
	nameDegree = 32
)

// byName is the order of sessions by their names, which never change.
func byName(a, b *session) bool { return a.lease.Session < b.lease.Session }

// walk calls f with the sessions that a query is about and whose names are greater than `after`, in the order of their names, until f returns false. m.mu is
// held during each call, and not for long at once: the query does not see a moment.
func (m *manager) walk(w *selection, after string, f func(*session) bool) {
	if w.match.indexed() {
		m.mu.Lock()
		defer m.mu.Unlock()
		found := m.find(w.match)
		slices.SortFunc(found, func(a, b *session) int { return strings.Compare(a.lease.Session, b.lease.Session) })
		for _, s := range found {
			if s.lease.Session > after && w.takes(s) && !f(s) {
				return
			}
		}
		return
	}
	for more := true; more; {
		more = m.walkStep(w, &after, f)
	}
}

// walkStep is a part of walk. It returns false at the end.
func (m *manager) walkStep(w *selection, after *string, f func(*session) bool) (more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var part [pageStep]*session
	count := 0
	m.byName.AscendGreaterOrEqual(&session{lease: Lease{Session: *after}}, func(s *session) bool {
		if s.lease.Session != *after {
			part[count] = s
			count++
		}
		return count < len(part)
	})
	// f may change the tree.
	for _, s := range part[:count] {
		*after = s.lease.Session
		if (w.everybody || s.matches(&w.match)) && w.takes(s) && !f(s) {
			return false
		}
	}
	return count == len(part)
}

// refresh reads counters of sessions.
func (m *manager) refresh(ctx context.Context, all []*session) {
	names := map[*plane][]string{}
	m.mu.Lock()
	for _, s := range all {
		if p := m.planes[s.connection.Line.Dataplane]; p != nil && s.state == up {
			names[p] = append(names[p], s.lease.Session)
		}
	}
	m.mu.Unlock()
	for p, sessions := range names {
		if answer, err := dataplane.Ask[*api.SessionCountersList](ctx, p.client, &api.SessionCountersQuery{Sessions: sessions}); err == nil {
			m.counted(p.boot, answer.GetSessions())
		}
	}
}

// list answers SubscribersQuery.
func (a queryServer) list(ctx context.Context, q *api.SubscribersQuery) (*api.SubscriberStates, error) {
	w, err := a.parse(q)
	if err != nil {
		return nil, err
	}
	limit := pageLength
	if q.GetLimit() > 0 {
		limit = min(int(q.GetLimit()), longestPage)
	}
	answer, more := &api.SubscriberStates{}, false
	var all []*session
	a.walk(&w, q.GetPage(), func(s *session) bool {
		if more = len(all) == limit; more {
			return false
		}
		all = append(all, s)
		return true
	})
	if more {
		answer.NextPage = all[len(all)-1].lease.Session
	}
	if q.GetPage() == "" && !more {
		a.refresh(ctx, all)
	}
	for part := range slices.Chunk(all, pageStep) {
		a.state(part, answer)
	}
	return answer, nil
}

// state adds those of the sessions that are up to an answer.
func (a queryServer) state(all []*session, to *api.SubscriberStates) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range all {
		if s.state == up {
			to.Subscribers = append(to.Subscribers, a.stateOf(s))
		}
	}
}

// longestPage is the most subscribers in one answer.
const longestPage = 10_000

// stateOf is a subscriber as people see it. m.mu is held.
func (m *manager) stateOf(s *session) *api.SubscriberState {
	c, l, counted, t := &s.connection, &s.lease, s.total(), m.times(s)
	a := m.allowed(s)
	policy := s.object(&a, false, m.qosProfiles[s.shaper.base] != nil).Spec.(*api.Session).Policy
	down := a.rateDown
	if a.shape != (Rate{}) {
		down = a.shape
	}
	lasting := func(d time.Duration) string {
		if d <= 0 {
			return ""
		}
		return d.String()
	}
	return &api.SubscriberState{Session: l.Session, Id: c.ID, Protocol: c.Protocol, Profile: c.Profile, Username: readable(c.Username),
		Service: readable(c.Service), Dataplane: c.Line.Dataplane, Circuit: c.Line.Circuit.String(), Mac: c.Line.MAC.String(),
		CircuitId: identification(c.Line.CircuitID), RemoteId: identification(c.Line.RemoteID),
		PppoeSessionId: uint32(c.PPPoESessionID), Vrf: l.VRF, Ipv4Address: addressText(l.IPv4), Ipv6Address: addressText(l.IPv6), Ipv6Prefix: prefixText(l.IPv6Prefix),
		DelegatedPrefix: prefixText(l.Delegated), Routes: texts(c.Grant.Routes), Gateway: addressText(l.Gateway), Dns: texts(l.DNS), Since: nanoseconds(s.since),
		SessionTimeout: lasting(l.SessionTimeout), IdleTimeout: lasting(t.idleTimeout), InterimInterval: lasting(t.interim), Portal: l.Portal,
		RateUp: a.rateUp.BitsPerSecond, PeakRateUp: a.rateUp.PeakBitsPerSecond, RateDown: down.BitsPerSecond, PeakRateDown: down.PeakBitsPerSecond,
		MeterUp: policy.MeterUp, MeterDown: policy.MeterDown, QosProfile: policy.QosProfile, Accounting: s.accounting,
		Up:   &api.SubscriberCount{Packets: counted.upPackets, Bytes: counted.upBytes},
		Down: &api.SubscriberCount{Packets: counted.downPackets, Bytes: counted.downBytes}}
}

// uses answers AddressPoolUsesQuery.
func (a queryServer) uses(_ context.Context, q *api.AddressPoolUsesQuery) (*api.AddressPoolUses, error) {
	answer := &api.AddressPoolUses{}
	for _, p := range a.poolUses() {
		if q.GetPool() == "" || q.GetPool() == p.name {
			answer.Pools = append(answer.Pools, &api.AddressPoolUse{Pool: p.name, Vrf: p.vrf, Size: p.size, Used: p.used,
				Left: p.size - min(p.used, p.size), Exhausted: p.exhausted})
		}
	}
	slices.SortFunc(answer.Pools, func(a, b *api.AddressPoolUse) int { return strings.Compare(a.GetPool(), b.GetPool()) })
	return answer, nil
}

// DisconnectSubscribers implements api.SubscribersServer.
func (a queryServer) DisconnectSubscribers(ctx context.Context, q *api.SubscribersDisconnection) (*api.DisconnectedSubscribers, error) {
	w, err := a.parse(q.GetWhich())
	if err != nil {
		return nil, err
	}
	if w.everybody && w.protocol == "" && w.profile == "" && len(w.attributes) == 0 && !q.GetAll() {
		return nil, status.Error(codes.InvalidArgument, "which subscribers? Accepted: an id, a session, a user name, a MAC, a circuit, an address, or all")
	}
	var kept pendings
	count := 0
	a.walk(&w, "", func(s *session) bool {
		if s.state == up || s.state == connecting {
			kept.add(a.terminate(s, AdminReset, ""))
			count++
		}
		return true
	})
	ended := make(chan error, 1)
	a.answerEnds(count, kept, func(_ int, err error) { ended <- err })
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "sessions are ended, but may be up again after a restart of the agent: %v", err)
	}
	return &api.DisconnectedSubscribers{Count: uint32(count)}, nil
}
