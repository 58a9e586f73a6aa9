// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/qosflow"
)

// Operational state: the lines.

const usualPage, longestPage = 1000, 10_000

// list answers AgfLinesQuery.
func (s *agf) list(_ context.Context, q *api.AgfLinesQuery) (*api.AgfLines, error) {
	answer := &api.AgfLines{}
	s.do(func() { s.page(q, answer) })
	return answer, nil
}

// page fills in the lines of a page, by their names.
func (s *agf) page(q *api.AgfLinesQuery, answer *api.AgfLines) {
	limit := usualPage
	if q.GetLimit() > 0 {
		limit = min(int(q.GetLimit()), longestPage)
	}
	// The first ones by name, and one more: of many lines, a page is sorted at a time.
	var names []string
	keep := func() {
		slices.Sort(names)
		names = names[:min(len(names), limit+1)]
	}
	add := func(name, agf, is string) {
		if name > q.GetPage() && (q.GetName() == "" || q.GetName() == name) && (q.GetAgf() == "" || q.GetAgf() == agf) && (q.GetState() == "" || q.GetState() == is) {
			if names = append(names, name); len(names) >= 2*(limit+1) {
				keep()
			}
		}
	}
	for name, one := range s.lines {
		add(name, one.agf, one.word())
	}
	for name, of := range s.holds {
		if s.lines[name] == nil {
			add(name, of.agf, refused)
		}
	}
	keep()
	if len(names) > limit {
		names = names[:limit]
		answer.NextPage = names[limit-1]
	}
	for _, name := range names {
		if one := s.lines[name]; one != nil {
			answer.Lines = append(answer.Lines, one.shown())
			continue
		}
		of := s.holds[name]
		s.mu.Lock()
		credentials := s.credentialOf[name] != ""
		s.mu.Unlock()
		answer.Lines = append(answer.Lines, &api.AgfLine{Name: name, Agf: of.agf, State: refused, Credentials: credentials, Reason: of.why.Error(), Again: of.until.UnixNano()})
	}
}

const refused = "refused"

// word is the line's state for people.
func (l *Line) word() string {
	switch l.state {
	case registered, updating, requesting:
		if l.connected() {
			return "registered"
		}
		return "idle"
	case leaving:
		return "leaving"
	}
	return "registering"
}

// shown is a line as people see it.
func (r *registration) shown() *api.AgfLine {
	one := &api.AgfLine{Name: r.key, Agf: r.agf, State: r.word(), Credentials: r.settings.Subscription != nil}
	if r.core != nil {
		amf, ran := r.core.IDs()
		one.Amf, one.AmfUeNgapId, one.RanUeNgapId = r.core.AMF(), uint64(amf), uint32(ran)
	}
	if guti, err := nas.GUTIOf(r.guti); err == nil {
		one.Guti = fmt.Sprintf("%s-%06x-%08x", guti.PLMN, guti.AMFID, guti.TMSI)
	}
	ids := make([]uint8, 0, len(r.sessions))
	for id := range r.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		one.Sessions = append(one.Sessions, r.sessions[id].shown())
	}
	return one
}

var sessionWords = [...]string{pending: "pending", establishing: "establishing", active: "active", releasing: "releasing"}

// shown is a PDU session as people see it.
func (s *Session) shown() *api.AgfPduSession {
	one := &api.AgfPduSession{Id: uint32(s.ID), State: sessionWords[s.state], TeidDown: s.demand.TEID, RateUp: s.ambr.Up, RateDown: s.ambr.Down}
	if m, ok := s.events.(*member); ok {
		one.Subscriber = m.id
		for _, p := range []netip.Prefix{netip.PrefixFrom(s.ipv4, 32), m.result.Prefix, m.result.Delegated} {
			if p.IsValid() {
				one.Addresses = append(one.Addresses, strings.TrimSuffix(p.String(), "/32"))
			}
		}
	}
	if s.remote.IsValid() {
		one.Upf, one.TeidUp = s.remote.String(), s.teid
	}
	for _, f := range qosflow.Sorted(s.flows) {
		one.Flows = append(one.Flows, fmt.Sprintf("%d (5QI %d)", f.QFI, f.FiveQI))
	}
	return one
}
