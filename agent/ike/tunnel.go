// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// Operational state of IPsec tunnels: what the data plane counts, and what IKE knows.

const (
	usualPage, longestPage = 1000, 10_000
)

// tunnels answers TunnelsQuery. The token of a page is the name of a data plane and the token of its page.
func (q query) tunnels(ctx context.Context, asked *api.TunnelsQuery) (*api.Tunnels, error) {
	q.mu.Lock()
	planes := maps.Clone(q.planes)
	q.mu.Unlock()
	first, token := "", ""
	if page := asked.GetPage(); page != "" {
		at := strings.LastIndex(page, ":")
		if at < 0 {
			return nil, status.Error(codes.InvalidArgument, "page: only what next_page said is accepted")
		}
		first, token = page[:at], page[at+1:]
	}
	limit := usualPage
	if asked.GetLimit() > 0 {
		limit = min(int(asked.GetLimit()), longestPage)
	}
	answer := &api.Tunnels{}
	var failure error
	for _, plane := range slices.Sorted(maps.Keys(planes)) {
		if plane < first {
			continue
		}
		if plane != first {
			token = ""
		}
		for {
			if len(answer.Tunnels) >= limit {
				answer.NextPage = plane + ":" + token
				return answer, nil
			}
			counted, err := dataplane.Ask[*api.IpsecTunnelStates](ctx, planes[plane], &api.IpsecTunnelStatesQuery{Tunnel: asked.GetName(), Limit: uint32(limit - len(answer.Tunnels)), Page: token})
			if err != nil && asked.GetName() == "" {
				return nil, err
			}
			if err != nil {
				failure = err // the tunnel may be of another data plane
				break
			}
			answer.Tunnels = append(answer.Tunnels, q.joined(plane, asked.GetName(), counted.GetTunnels())...)
			if token = counted.GetNextPage(); token == "" {
				break
			}
		}
	}
	if len(answer.Tunnels) == 0 && failure != nil {
		return nil, failure
	}
	return answer, nil
}

// joined are tunnels of a data plane with what IKE knows of them. name: of the only one.
func (q query) joined(plane, name string, counted []*api.IpsecTunnelState) (all []*api.TunnelState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	children, serving := map[string][]*api.IkeSaState{}, map[string]string{}
	for _, one := range q.machine.States("", name) {
		// An SA that is being deleted may outlast its connection.
		if c := q.machine.connections[one.GetConnection()]; one.GetTunnel() != "" && c != nil && c.Dataplane == plane {
			children[one.GetTunnel()] = append(children[one.GetTunnel()], one)
		}
	}
	for _, c := range q.machine.sorted() {
		for _, child := range c.Children {
			if c.Dataplane == plane && child.Serves.Tunnel != "" {
				serving[child.Serves.Tunnel] = c.Name
			}
		}
	}
	for _, c := range counted {
		t := &api.TunnelState{Tunnel: c.GetTunnel(), State: "down", Remote: c.GetRemoteAddress(), Connection: serving[c.GetTunnel()], SecurityAssociations: c.GetSecurityAssociations(),
			Engine: c.GetEngine(), Mtu: c.GetMtu(), EncryptedPackets: c.GetEncryptedPackets(), EncryptedBytes: c.GetEncryptedBytes(), DecryptedPackets: c.GetDecryptedPackets(),
			DecryptedBytes: c.GetDecryptedBytes(), Drops: c.GetDrops(), Dataplane: plane, Children: children[c.GetTunnel()]}
		if t.Reason = missing(c); t.Reason == "" {
			t.State = "up"
		}
		q.addIKE(t)
		all = append(all, t)
	}
	return all
}

// missing returns which SA a tunnel needs to carry packets in both directions; empty: it has both.
func missing(c *api.IpsecTunnelState) string {
	if all := c.GetSecurityAssociations(); all >= 2 && c.GetUsableInbound()+c.GetUsableOutbound()+c.GetEnded() != all {
		return "" // a data plane of an earlier release counts no directions
	}
	var directions []string
	if c.GetUsableInbound() == 0 {
		directions = append(directions, "inbound")
	}
	if c.GetUsableOutbound() == 0 {
		directions = append(directions, "outbound")
	}
	if len(directions) == 0 {
		return ""
	}
	reason := "no " + strings.Join(directions, " and no ") + " SecurityAssociation"
	if c.GetEnded() > 0 {
		reason += " that has not ended: a hard lifetime is over, or the sequence numbers are used up"
	}
	return reason
}

// addIKE adds the peer, the IKE SA and the newest child. q.mu is held.
func (q query) addIKE(t *api.TunnelState) {
	var shown *api.IkeSaState
	for _, child := range t.GetChildren() {
		if shown == nil || child.GetChildSince() >= shown.GetChildSince() {
			shown = child
		}
	}
	if shown != nil {
		t.Connection, t.ChildAlgorithms = shown.GetConnection(), shown.GetChildAlgorithms()
	} else if t.GetConnection() != "" {
		for _, one := range q.machine.States(t.GetConnection(), "") {
			shown = one
			if one.GetState() == opening.String() && t.GetState() == "down" {
				t.State = "connecting"
			}
		}
		if problem := q.problems[t.GetConnection()].Message; t.GetState() != "up" && problem != "" {
			t.Reason = problem
		}
	}
	if shown != nil {
		t.Remote, t.RemoteIdentity, t.Username, t.Algorithms, t.Since = shown.GetRemote(), shown.GetRemoteIdentity(), shown.GetUsername(), shown.GetAlgorithms(), shown.GetSince()
	}
}
