// SPDX-License-Identifier: Apache-2.0

// Counters of servers and policies for operators: `sluice describe radiusserver NAME`. Metrics have the same.
package radius

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"sluice.dev/sluice/agent/api"
)

// counters are those of a server for one purpose, since the start of the agent: a change of the server makes another endpoint.
type counters struct {
	requests, retransmissions, replies, timeouts uint64
	drops                                        map[string]uint64
}

// policyCounters are those of a policy since the start of the agent.
type policyCounters struct {
	authentications       map[string]uint64 // by result, as the metric has it
	refusedRecords        uint64
	acknowledged, refused uint64
	causes                map[string]uint64 // of the refused ones
}

// tallyOf returns the counters of a key, which are there from now on.
func tallyOf[K comparable, V any](all map[K]*V, key K) *V {
	if all[key] == nil {
		all[key] = new(V)
	}
	return all[key]
}

// tally counts an action of the client for operators. s.mu is held.
func (s *radius) tally(a counted) {
	c := tallyOf(s.counters, endpointKey{a.endpoint.server, a.endpoint.accounting})
	switch a.what {
	case countRequest:
		c.requests++
	case countRetransmit:
		c.retransmissions++
	case countReply:
		c.replies++
	case countTimeout:
		c.timeouts++
	case countDead, countAlive:
	default:
		if c.drops == nil {
			c.drops = map[string]uint64{}
		}
		c.drops[a.what]++
	}
}

// authenticated counts an authentication. s.mu is held.
func (s *radius) authenticated(policy, result string) {
	s.authentications.WithLabelValues(policy, result).Inc()
	c := tallyOf(s.policyCounters, policy)
	if c.authentications == nil {
		c.authentications = map[string]uint64{}
	}
	c.authentications[result]++
}

// answeredDemand counts the answer to a CoA-Request or Disconnect-Request. policy: the one that it is of; "": none. s.mu is held.
func (s *radius) answeredDemand(policy string, code Code, cause uint32) {
	s.changes.WithLabelValues(code.String(), causeNames[cause]).Inc()
	if policy == "" {
		return
	}
	if c := tallyOf(s.policyCounters, policy); cause == causeNone {
		c.acknowledged++
	} else {
		c.refused++
		if c.causes == nil {
			c.causes = map[string]uint64{}
		}
		c.causes[causeNames[cause]]++
	}
}

// serverCounters answers RadiusServerCountersQuery.
func (s *radius) serverCounters(_ context.Context, q *api.RadiusServerCountersQuery) (*api.RadiusServerCountersList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &api.RadiusServerCountersList{}
	for key, e := range s.endpoints {
		if q.GetServer() != "" && q.GetServer() != key.server {
			continue
		}
		row := &api.RadiusServerCounters{Server: key.server, Purpose: e.purpose(), Dead: e.dead, Outstanding: uint32(e.outstanding)}
		if c := s.counters[key]; c != nil {
			row.Requests, row.Retransmissions, row.Replies, row.Timeouts = c.requests, c.retransmissions, c.replies, c.timeouts
			for _, reason := range slices.Sorted(maps.Keys(c.drops)) {
				row.DroppedReplies += c.drops[reason]
				row.Drops = append(row.Drops, &api.RadiusDrops{Reason: reason, Packets: c.drops[reason]})
			}
		}
		answer.Servers = append(answer.Servers, row)
	}
	slices.SortFunc(answer.Servers, func(a, b *api.RadiusServerCounters) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(b.Purpose, a.Purpose))
	})
	return answer, nil
}

// countersOfPolicies answers RadiusPolicyCountersQuery.
func (s *radius) countersOfPolicies(_ context.Context, q *api.RadiusPolicyCountersQuery) (*api.RadiusPolicyCountersList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &api.RadiusPolicyCountersList{}
	for _, p := range s.policies {
		if q.GetPolicy() != "" && q.GetPolicy() != p.name {
			continue
		}
		row := &api.RadiusPolicyCounters{Policy: p.name}
		if c := s.policyCounters[p.name]; c != nil {
			row.Accepted, row.Rejected, row.Unavailable, row.Invalid = c.authentications["accept"], c.authentications["reject"], c.authentications["unavailable"], c.authentications["invalid"]
			row.RefusedRecords, row.Acknowledged, row.Refused = c.refusedRecords, c.acknowledged, c.refused
			for _, cause := range slices.Sorted(maps.Keys(c.causes)) {
				row.Refusals = append(row.Refusals, &api.RadiusRefusals{Cause: cause, Requests: c.causes[cause]})
			}
		}
		if box := s.spool.boxes[p.name]; box != nil {
			row.WaitingRecords = uint64(box.records())
		}
		answer.Policies = append(answer.Policies, row)
	}
	return answer, nil
}
