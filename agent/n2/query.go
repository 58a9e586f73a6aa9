// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"context"
	"maps"
	"slices"

	"sluice.dev/sluice/agent/api"
)

// counts of an AMF since the start of the agent.
type counts struct {
	received, sent, unreadable, moved uint64
	refusals                          map[NASRefusal]uint64
}

// NASRefusal is why a NAS message for a line is not taken.
type NASRefusal string

const (
	// NASMalformed: it cannot be read.
	NASMalformed NASRefusal = "malformed"
	// NASUnknownType: the line answers with 5GMM STATUS.
	NASUnknownType NASRefusal = "unknown-type"
	// NASIntegrity: it has another MAC.
	NASIntegrity NASRefusal = "integrity"
	// NASReplayed: it has a NAS COUNT that was received before.
	NASReplayed NASRefusal = "replayed"
	// NASUnprotected: it lacks the protection that it needs (TS 24.501 section 4.4.4.2).
	NASUnprotected NASRefusal = "unprotected"
	// NASNoContext: it is protected, and the line has no security context.
	NASNoContext NASRefusal = "no-context"
	// NASCount: the NAS COUNT is used up.
	NASCount NASRefusal = "count"
)

// RefusedNAS counts a NAS message of the context that its UE does not take.
func (c *Context) RefusedNAS(why NASRefusal) {
	if c.amf == nil {
		return
	}
	if c.amf.counts.refusals == nil {
		c.amf.counts.refusals = map[NASRefusal]uint64{}
	}
	c.amf.counts.refusals[why]++
	c.service.refusedNAS.WithLabelValues(c.amfName, string(why)).Inc()
}

// counters answers AmfCountersQuery.
func (s *Service) counters(_ context.Context, q *api.AmfCountersQuery) (*api.AmfCountersList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &api.AmfCountersList{}
	for _, name := range slices.Sorted(maps.Keys(s.amfs)) {
		if q.GetAmf() != "" && q.GetAmf() != name {
			continue
		}
		a := s.amfs[name]
		row := &api.AmfCounters{Amf: name, Contexts: uint32(len(a.ues)), Moved: a.counts.moved, Received: a.counts.received, Sent: a.counts.sent, Unreadable: a.counts.unreadable}
		for _, why := range slices.Sorted(maps.Keys(a.counts.refusals)) {
			row.RefusedNas += a.counts.refusals[why]
			row.Refusals = append(row.Refusals, &api.AmfNasRefusals{Reason: string(why), Messages: a.counts.refusals[why]})
		}
		answer.Amfs = append(answer.Amfs, row)
	}
	return answer, nil
}
