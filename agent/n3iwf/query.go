// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// Operational state: the UEs, and what their PDU sessions carry.

const (
	usualPage, longestPage = 1000, 10_000
	// States of UEs.
	isRegistering, isConnected, refused = "registering", "connected", "refused"
)

// answering is the answer to a query while counters are read.
type answering struct {
	answer   *api.N3IwfUes
	ues      []shown
	clients  map[string]*dataplane.Client
	names    map[string][]string // of Sessions, by data plane
	sessions map[string]*pduSession
	flows    map[string][]*api.SessionFlowCounters
	reading  uint64
}

// shown is a UE of a page: one that is there, or a refusal.
type shown struct {
	name string
	ue   *ue
	*refusal
}

// list answers N3iwfUesQuery.
func (s *serving) list(ctx context.Context, q *api.N3IwfUesQuery) (*api.N3IwfUes, error) {
	var a *answering
	if err := s.call(ctx, func() { a = s.answering(q) }); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	var all []*api.SessionCounters
	for plane, names := range a.names {
		// Without an answer, the numbers are those that were read last.
		some, _ := countersOf(ctx, a.clients[plane], names)
		all = append(all, some...)
	}
	err := s.call(ctx, func() {
		for _, c := range all {
			if p := a.sessions[c.Session]; p != nil {
				p.usage.read(a.reading, volumeOf(c))
				a.flows[c.Session] = c.GetFlows()
			}
		}
		for _, one := range a.ues {
			if one.ue != nil {
				a.answer.Ues = append(a.answer.Ues, one.ue.state(a.flows))
			} else {
				a.answer.Ues = append(a.answer.Ues, one.refusal.state())
			}
		}
	})
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return a.answer, nil
}

// answering chooses the UEs of a page.
func (s *serving) answering(q *api.N3IwfUesQuery) *answering {
	a := &answering{answer: &api.N3IwfUes{}, clients: map[string]*dataplane.Client{}, names: map[string][]string{}, sessions: map[string]*pduSession{}, flows: map[string][]*api.SessionFlowCounters{}, reading: s.newReading()}
	after := func(name string) bool { return q.GetPage() == "" || byName(name, q.GetPage()) > 0 }
	for _, u := range s.names {
		if !u.gone && u.matches(q) && after(u.name) {
			a.ues = append(a.ues, shown{name: u.name, ue: u})
		}
	}
	for _, r := range s.refusedUEs.of {
		if r.matches(q) && after(r.name) {
			a.ues = append(a.ues, shown{name: r.name, refusal: r})
		}
	}
	slices.SortFunc(a.ues, func(x, y shown) int { return byName(x.name, y.name) })
	limit := usualPage
	if q.GetLimit() > 0 {
		limit = min(int(q.GetLimit()), longestPage)
	}
	if len(a.ues) > limit {
		a.ues = a.ues[:limit]
		a.answer.NextPage = a.ues[limit-1].name
	}
	for _, one := range a.ues {
		u := one.ue
		if u == nil {
			continue
		}
		client := s.planes[u.peer.Dataplane]
		if client == nil {
			continue
		}
		a.clients[u.peer.Dataplane] = client
		for _, p := range u.sessions {
			if p.made {
				a.names[u.peer.Dataplane] = append(a.names[u.peer.Dataplane], p.name())
				a.sessions[p.name()] = p
			}
		}
	}
	return a
}

// matches reports whether a query is about a UE.
func (u *ue) matches(q *api.N3IwfUesQuery) bool {
	if q.GetN3Iwf() != "" && q.GetN3Iwf() != u.in.name || q.GetName() != "" && q.GetName() != u.name || q.GetState() != "" && q.GetState() != u.word() {
		return false
	}
	if q.GetAddress() == "" {
		return true
	}
	a, err := netip.ParseAddr(q.GetAddress())
	return err == nil && (u.peer.Remote.Addr().Unmap() == a.Unmap() || slices.Contains(u.inner, a))
}

// byName orders names whose numbers are at the end: 9 is before 10.
func byName(a, b string) int {
	if c := strings.Compare(strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// word is the UE's state for people.
func (u *ue) word() string {
	if u.up {
		return isConnected
	}
	return isRegistering
}

// state is a UE as operators see it.
// flows: counters of the flows of Sessions, by name.
func (u *ue) state(flows map[string][]*api.SessionFlowCounters) *api.N3IwfUe {
	one := &api.N3IwfUe{N3Iwf: u.in.name, Name: u.name, Remote: u.peer.Remote.String(), Since: u.since.UnixNano(), State: u.word()}
	if !u.up {
		one.Since = u.begun.UnixNano()
	}
	for _, a := range u.inner {
		one.Addresses = append(one.Addresses, a.String())
	}
	if u.core != nil && u.s.pool != nil {
		u.s.pool.Do(func() {
			amf, ran := u.core.IDs()
			one.Amf, one.AmfUeNgapId, one.RanUeNgapId = u.core.AMF(), uint64(amf), uint32(ran)
		})
	}
	sum := u.past
	for _, id := range sortedIDs(u.sessions) {
		one.PduSessions = append(one.PduSessions, uint32(id))
		one.Sessions = append(one.Sessions, u.sessions[id].state(flows[u.sessions[id].name()]))
		sum = sum.plus(u.sessions[id].usage.total())
	}
	one.UpPackets, one.UpBytes, one.DownPackets, one.DownBytes = sum.upPackets, sum.upBytes, sum.downPackets, sum.downBytes
	return one
}

// state is a PDU session as operators see it.
func (p *pduSession) state(counted []*api.SessionFlowCounters) *api.N3IwfPduSession {
	one := &api.N3IwfPduSession{Id: uint32(p.id), Session: p.name(), Upf: p.far.String(), TeidUp: p.farTEID, TeidDown: p.teid}
	for _, c := range p.children {
		one.Tunnels = append(one.Tunnels, c.tunnel)
	}
	for _, qfi := range sortedIDs(p.flows) {
		f := &api.N3IwfQosFlow{Qfi: uint32(qfi), FiveQi: uint32(p.flows[qfi].FiveQI)}
		for _, c := range counted {
			if c.GetQfi() == f.Qfi {
				f.UpPackets, f.UpBytes, f.DownPackets, f.DownBytes = c.GetUpPackets(), c.GetUpBytes(), c.GetDownPackets(), c.GetDownBytes()
			}
		}
		one.Flows = append(one.Flows, f)
	}
	v := p.usage.total()
	one.UpPackets, one.UpBytes, one.DownPackets, one.DownBytes = v.upPackets, v.upBytes, v.downPackets, v.downBytes
	return one
}
