// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
				one := &api.IkeSaState{Connection: c.Name, State: s.state.String(), RemoteIdentity: s.theirIdentity().text(), Remote: s.remote.String(), Username: s.username,
					Algorithms: suite.Text(s.chosen), Initiator: s.initiator, Since: s.began.UnixNano(), LocalAddress: s.local.String(), LocalIdentity: s.localIdentity().text(),
					Connected: nanoseconds(s.connected()), Heard: nanoseconds(s.answered), IkeRekey: nanoseconds(s.rekeyAt)}
				if a := m.again[c.Name]; a != nil && s.state == opening && s.initiator {
					one.FailedAttempts = uint32(a.tries)
				}
				one.NextRekey = one.GetIkeRekey()
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
				one.ChildRekey = nanoseconds(child.rekeyAt)
				if one.GetNextRekey() == 0 || one.GetChildRekey() != 0 && one.GetChildRekey() < one.GetNextRekey() {
					one.NextRekey = one.GetChildRekey()
				}
				all = append(all, one)
			}
			if len(s.children) == 0 && tunnel == "" {
				all = append(all, state())
			}
		}
	}
	return all
}

// connected is since when the peer is connected; zero: it is not yet. Rekeys do not change it.
func (s *ikeSA) connected() time.Time {
	if !s.first.IsZero() {
		return s.first
	}
	return s.up
}

// theirIdentity is the peer's identity, and before the peer has said it, the configured one.
func (s *ikeSA) theirIdentity() Identity {
	if s.peer.Any() {
		return s.conn.RemoteID
	}
	return s.peer
}

// text is the identity; empty: any.
func (i Identity) text() string {
	if i.Any() {
		return ""
	}
	return i.String()
}

// nanoseconds is a time of an answer; 0: none.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// sas answers IkeSasQuery.
func (q query) sas(_ context.Context, asked *api.IkeSasQuery) (*api.IkeSas, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &api.IkeSas{Sas: q.machine.States(cmp.Or(asked.GetConnection(), asked.GetPeer()), asked.GetTunnel())}, nil
}

// change carries out a command for a connection. The audit entry needs the count with an error, too.
func (q query) change(asked *api.IkeQuery, f func(name, child string, now time.Time) ([]Action, int, error)) (*api.IkeCount, error) {
	n, name := &api.IkeCount{Kind: "IkeConnection"}, asked.GetConnection()
	var problem error
	q.locked(func(now time.Time) []Action {
		if o := q.specs[name]; o != nil {
			n.Kind = o.Kind
		}
		if q.machine.connections[name] == nil {
			if problem = status.Errorf(codes.NotFound, "there is no IkeConnection or IkePeer %q", name); q.specs[name] != nil {
				problem = status.Errorf(codes.FailedPrecondition, "%s/%s: %s", n.GetKind(), name, q.down(name))
			}
			return nil
		}
		actions, count, err := f(name, asked.GetChild(), now)
		if n.Count = uint32(count); err != nil {
			problem = status.Errorf(codes.FailedPrecondition, "%s/%s %s", n.GetKind(), name, err)
		}
		return actions
	})
	return n, problem
}

// existing is a command for SAs that are there: it names them if there is none of those that the operator means.
func (q query) existing(asked *api.IkeQuery, f func(name, child string, now time.Time) ([]Action, int)) (*api.IkeCount, error) {
	return q.change(asked, func(name, child string, now time.Time) ([]Action, int, error) {
		actions, n := f(name, child, now)
		if n > 0 {
			return actions, n, nil
		}
		var there []string
		for _, s := range q.machine.of(name) {
			for _, c := range s.children {
				if !c.deleting && !slices.Contains(there, c.Conf.Name) {
					there = append(there, c.Conf.Name)
				}
			}
		}
		slices.Sort(there)
		established := slices.ContainsFunc(q.machine.of(name), func(s *ikeSA) bool { return s.state == established })
		switch {
		case !established:
			return actions, 0, errors.New("is not connected: " + q.down(name))
		case len(there) == 0:
			return actions, 0, errors.New("has no child SA")
		case child == "" || child == "*":
			return actions, 0, errors.New("has only IKE SAs that are being replaced: try again")
		default:
			return actions, 0, fmt.Errorf("has no child SA %q; it has: %s", child, strings.Join(there, ", "))
		}
	})
}

// down says why a connection is not up. q.mu is held.
func (q query) down(name string) string {
	why := q.connectionNotReady(name).Message
	if o := q.specs[name]; o != nil && o.Kind == "IkePeer" {
		why = q.siteNotReady(name).Message
	}
	switch c := q.machine.connections[name]; {
	case why != "":
		return why
	case c != nil && !c.Remote.IsValid():
		return "the peer has not called, and it has no remoteAddress"
	}
	return "neither end has opened it: sluice ike initiate " + name
}

// InitiateIke implements api.IkeServer.
func (q query) InitiateIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	return q.change(asked, func(name, child string, now time.Time) (actions []Action, missing int, err error) {
		if child == "*" {
			child = ""
		}
		c := q.machine.connections[name]
		var names []string
		for _, one := range c.Children {
			if names = append(names, one.Name); (child == "" || child == one.Name) && !q.machine.hasChild(name, one.Name) {
				missing++
			}
		}
		switch {
		case c.Frozen:
			return nil, 0, errors.New("is not configured: " + q.down(name))
		case !c.Remote.IsValid():
			return nil, 0, errors.New("has no remoteAddress: the peer opens it")
		case child != "" && c.child(child) == nil:
			return nil, 0, fmt.Errorf("has no child %q; it has: %s", child, strings.Join(names, ", "))
		}
		actions, err = q.machine.Initiate(name, child, now)
		return actions, missing, err
	})
}

// TerminateIke implements api.IkeServer.
func (q query) TerminateIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	return q.existing(asked, q.machine.Terminate)
}

// RekeyIke implements api.IkeServer.
func (q query) RekeyIke(_ context.Context, asked *api.IkeQuery) (*api.IkeCount, error) {
	return q.existing(asked, q.machine.Rekey)
}
