// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// query is an operator's request.
type query struct {
	api.UnimplementedIkeServer
	*serving
}

// States returns all IKE SAs with their children, by the connection and the age, or those of a connection, or the children of a tunnel. No secret is
// in them.
func (m *Machine) States(connection, tunnel string) (all []*api.IkeSaState) {
	texts := func(selectors []message.Selector) (texts []string) {
		for _, one := range selectors {
			texts = append(texts, selectorText(one))
		}
		return texts
	}
	for _, c := range m.sorted() {
		if connection != "" && c.Name != connection {
			continue
		}
		for _, s := range m.of(c.Name) {
			state := func() *api.IkeSaState {
				one := &api.IkeSaState{Connection: c.Name, State: s.state.String(), RemoteIdentity: s.peer.String(), Remote: s.remote.String(), Username: s.username,
					Algorithms: suite.Text(s.chosen), Initiator: s.initiator, Since: s.began.UnixNano()}
				for _, a := range s.addresses {
					one.Addresses = append(one.Addresses, a.String())
				}
				return one
			}
			for _, child := range s.sortedChildren() {
				one := state()
				one.Tunnel = child.serves().Tunnel
				if tunnel != "" && tunnel != one.Tunnel {
					continue
				}
				one.Child, one.SpiIn, one.SpiOut, one.ChildAlgorithms, one.ChildSince = child.Conf.Name, child.SPIIn, child.SPIOut, suite.Text(child.Chosen), child.since.UnixNano()
				one.Local, one.RemoteNetworks = texts(child.Local), texts(child.Remote)
				all = append(all, one)
			}
			if len(s.children) == 0 && tunnel == "" {
				all = append(all, state())
			}
		}
	}
	return all
}

// sas answers IkeSasQuery.
func (q query) sas(_ context.Context, asked *api.IkeSasQuery) (*api.IkeSas, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &api.IkeSas{Sas: q.machine.States(cmp.Or(asked.GetConnection(), asked.GetPeer()), asked.GetTunnel())}, nil
}

// change carries out a command for a connection.
func (q query) change(asked *api.IkeQuery, f func(name, child string, now time.Time) ([]Action, int)) (*api.IkeCount, error) {
	n, known, kind := 0, false, "IkeConnection"
	q.locked(func(now time.Time) (actions []Action) {
		c := q.machine.connections[asked.GetConnection()]
		if known = c != nil; known {
			if o := q.specs[c.Name]; o != nil {
				kind = o.Kind
			}
			actions, n = f(c.Name, asked.GetChild(), now)
		}
		return actions
	})
	if !known {
		return nil, status.Errorf(codes.NotFound, "there is no IkeConnection or IkePeer %q that is configured", asked.GetConnection())
	}
	return &api.IkeCount{Count: uint32(n), Kind: kind}, nil
}

// InitiateIke implements api.IkeServer.
func (q query) InitiateIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	var err error
	n, unknown := q.change(asked, func(name, child string, now time.Time) (actions []Action, missing int) {
		if child == "*" {
			child = ""
		}
		for _, one := range q.machine.connections[name].Children {
			if (child == "" || child == one.Name) && !q.machine.hasChild(name, one.Name) {
				missing++
			}
		}
		actions, err = q.machine.Initiate(name, child, now)
		return actions, missing
	})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return n, unknown
}

// TerminateIke implements api.IkeServer.
func (q query) TerminateIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	return q.change(asked, q.machine.Terminate)
}

// RekeyIke implements api.IkeServer.
func (q query) RekeyIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	return q.change(asked, q.machine.Rekey)
}
