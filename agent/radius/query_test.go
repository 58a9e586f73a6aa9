// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

func TestCountersOfServersAndPoliciesAreShown(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	port := freePort(t)
	policy.DynamicAuthorization = &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}
	a := startAgent(t, t.TempDir(), server, policy, &manager{count: 1})
	a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}, 1)
	a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("guess")}, 1)
	radclient(t, port, "coa", "Acct-Session-Id = s-1\nSession-Timeout = 60\n")
	radclient(t, port, "coa", "Acct-Session-Id = s-1\nPort-Limit = 7\n")
	radclient(t, port, "coa", "Acct-Session-Id = s-1\n")
	a.mu.Lock()
	e := a.endpoints[endpointKey{"home", false}]
	a.mu.Unlock()
	a.replied(e, 0, []byte{2}, began)
	servers, err := a.serverCounters(t.Context(), &api.RadiusServerCountersQuery{Server: "home"})
	if err != nil || len(servers.Servers) != 2 {
		t.Fatal(servers, err)
	}
	s := servers.Servers[0]
	if s.Server != "home" || s.Purpose != "authentication" || s.Dead || s.Outstanding != 0 || s.Requests != 2 || s.Replies != 2 || s.Timeouts != 0 || s.DroppedReplies != 1 {
		t.Error(s)
	}
	if len(s.Drops) != 1 || s.Drops[0].Reason != "malformed" || servers.Servers[1].Purpose != "accounting" {
		t.Error(servers)
	}
	policies, err := a.countersOfPolicies(t.Context(), &api.RadiusPolicyCountersQuery{})
	if err != nil || len(policies.Policies) != 1 {
		t.Fatal(policies, err)
	}
	if p := policies.Policies[0]; p.Policy != "home" || p.Accepted != 1 || p.Rejected != 1 || p.Unavailable != 0 || p.Acknowledged != 1 || p.Refused != 2 {
		t.Error(p)
	}
	if r := policies.Policies[0].Refusals; len(r) != 2 || r[0].Cause != "missing-attribute" || r[0].Requests != 1 || r[1].Cause != "unsupported-attribute" || r[1].Requests != 1 {
		t.Error(r)
	}
	a.said.mu.Lock()
	if log := a.said.all.String(); !strings.Contains(log, "cause=unsupported-attribute attribute=\"attribute 62\"") || !strings.Contains(log, "cause=missing-attribute") {
		t.Error(log)
	}
	a.said.mu.Unlock()
	if others, _ := a.serverCounters(t.Context(), &api.RadiusServerCountersQuery{Server: "another"}); len(others.Servers) != 0 {
		t.Error(others)
	}
}
