// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// Operational state of IPsec tunnels: what the data plane counts, and what IKE knows.

const (
	usualPage, longestPage = 1000, 10_000
)

// unanswered marks the token of a page of tunnels whose data plane does not answer. How many are in front of the page follows.
const unanswered = "?"

// answerTime is how long a data plane may take to answer with a page.
const answerTime = 2 * time.Second

// tunnels answers TunnelsQuery. An IkePeer, or the IkeConnection of one tunnel, stands for its tunnel if there is none of that name.
func (q query) tunnels(ctx context.Context, asked *api.TunnelsQuery) (*api.Tunnels, error) {
	answer, err := q.tunnelsOf(ctx, asked)
	if name := asked.GetName(); name != "" && len(answer.GetTunnels()) == 0 {
		if one := q.tunnelOf(name); one != "" && one != name {
			// The agent leaves out what the question is not about.
			asked.Name = one
			return q.tunnelsOf(ctx, asked)
		}
	}
	return answer, err
}

// tunnelOf returns the tunnel of a connection; empty: it has none, or several.
func (q query) tunnelOf(connection string) (name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.specs[connection]
	if o == nil {
		return ""
	}
	spec, _ := o.Spec.(*api.IkeConnection)
	for _, child := range spec.GetChildren() {
		if name != "" && child.GetTunnel() != name {
			return ""
		}
		name = child.GetTunnel()
	}
	return name
}

// tunnelsOf answers TunnelsQuery. The token of a page is the name of a data plane and the token of its page. Of a data plane that does not answer it has the
// tunnels that IKE knows, or an element without a tunnel.
func (q query) tunnelsOf(ctx context.Context, asked *api.TunnelsQuery) (*api.Tunnels, error) {
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
	all := slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(q.Dataplanes), maps.Keys(planes)))))
	for _, plane := range all {
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
			counted := &api.IpsecTunnelStates{}
			err := dataplane.ErrDisconnected
			if client := planes[plane]; client != nil && !strings.HasPrefix(token, unanswered) {
				limited, cancel := context.WithTimeout(ctx, answerTime)
				counted, err = dataplane.Ask[*api.IpsecTunnelStates](limited, client, &api.IpsecTunnelStatesQuery{Tunnel: asked.GetName(), Limit: uint32(limit - len(answer.Tunnels)), Page: token})
				cancel()
				if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
					err = fmt.Errorf("no answer within %v", answerTime)
				}
			}
			var refused *dataplane.Error
			switch {
			case err == nil:
				answer.Tunnels = append(answer.Tunnels, q.joined(plane, asked.GetName(), counted.GetTunnels(), nil)...)
				token = counted.GetNextPage()
			case errors.As(err, &refused) && asked.GetName() != "":
				failure, token = err, "" // the tunnel may be of another data plane
			case errors.As(err, &refused), ctx.Err() != nil, token != "" && !strings.HasPrefix(token, unanswered):
				return nil, err // also if it has answered with a page before
			default:
				failure = err
				known := q.known(plane, asked.GetName())
				if len(known) == 0 && asked.GetName() == "" && len(all) > 1 {
					known = []*api.IpsecTunnelState{{}}
				}
				from, _ := strconv.Atoi(strings.TrimPrefix(token, unanswered))
				known = known[min(max(from, 0), len(known)):]
				token = ""
				if room := limit - len(answer.Tunnels); len(known) > room {
					known, token = known[:room], unanswered+strconv.Itoa(from+room)
				}
				answer.Tunnels = append(answer.Tunnels, q.joined(plane, asked.GetName(), known, err)...)
			}
			if token == "" {
				break
			}
		}
	}
	if len(answer.Tunnels) == 0 && failure != nil {
		return nil, failure
	}
	return answer, nil
}

// known are the tunnels of a data plane that IKE knows, in the order of their names. name: the only one, if it is among them.
func (q query) known(plane, name string) (all []*api.IpsecTunnelState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := map[string]bool{}
	for _, c := range q.machine.sorted() {
		if c.Dataplane != plane {
			continue
		}
		for _, child := range c.Children {
			names[child.Serves.Tunnel] = true
		}
		for _, s := range q.machine.of(c.Name) {
			for _, child := range s.children {
				names[child.serves().Tunnel] = true
			}
		}
	}
	delete(names, "")
	for _, one := range slices.Sorted(maps.Keys(names)) {
		if name == "" || one == name {
			all = append(all, &api.IpsecTunnelState{Tunnel: one})
		}
	}
	return all
}

// joined are tunnels of a data plane with what IKE knows of them. name: of the only one. failure: why the data plane does not answer.
func (q query) joined(plane, name string, counted []*api.IpsecTunnelState, failure error) (all []*api.TunnelState) {
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
		if failure != nil {
			t.State, t.Reason = "unknown", "data plane "+plane+": "+failure.Error()
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
		if problem := q.connectionNotReady(t.GetConnection()).Message; t.GetState() != "up" && t.GetState() != "unknown" && problem != "" {
			t.Reason = problem
		}
	}
	if a := q.machine.again[t.GetConnection()]; a != nil && t.GetState() != "up" {
		t.FailedAttempts, t.NextAttempt = uint32(a.tries), nanoseconds(a.at)
	}
	if shown != nil {
		t.LocalAddress, t.LocalIdentity, t.Connected, t.Heard = shown.GetLocalAddress(), shown.GetLocalIdentity(), shown.GetConnected(), shown.GetHeard()
		t.IkeRekey, t.ChildRekey = shown.GetIkeRekey(), shown.GetChildRekey()
		t.Remote, t.RemoteIdentity, t.Username, t.Algorithms, t.Since = shown.GetRemote(), shown.GetRemoteIdentity(), shown.GetUsername(), shown.GetAlgorithms(), shown.GetSince()
	}
}
