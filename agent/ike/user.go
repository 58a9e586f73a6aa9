// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// Remote users as subscribers: each user of a connection with a subscriberProfile has an IpsecTunnel, and a Session whose access is that tunnel. The
// Manager of agent/subscriber gives addresses and policy and does the accounting. The session begins before the last IKE_AUTH response, which has
// the addresses, and ends with the IKE SA.

const (
	userProtocol = "ike"
	// The set-up of a session: the tunnel, and the Session in the data plane.
	sessionPatience = 5 * time.Second
)

// leaseID is the Acct-Session-Id of a user. Rekeys of the IKE SA do not change it.
func leaseID(lease uint64) string { return fmt.Sprintf("%016x", lease) }

// userTunnelName is the name of a user's IpsecTunnel.
func userTunnelName(connection string, lease uint64) string {
	return fmt.Sprintf("ike-%s-%016x", strings.Trim(connection[:min(len(connection), 150)], "._:@-"), lease)
}

func (s *serving) userTunnel(name, dataplane, vrf string) *object.Object {
	if vrf == "default" {
		vrf = ""
	}
	o := &object.Object{Kind: "IpsecTunnel", Name: name, Spec: &api.IpsecTunnel{Vrf: vrf}}
	if len(s.Dataplanes) > 1 {
		o.Labels = map[string]string{"dataplane": dataplane}
	}
	return o
}

// grant is the authorization of a user: from the RADIUS server, else from the LocalUser of its name.
func (s *serving) grant(q LeaseAddress) subscriber.Grant {
	if q.Grant != nil {
		return *q.Grant
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.user(q.Username); u != nil {
		return subscriber.GrantOf(u)
	}
	return subscriber.Grant{}
}

// user is the LocalUser with a username, or nil. s.mu is held.
func (s *serving) user(username string) *api.LocalUser {
	for _, u := range s.usersNamed(username) {
		if u.GetUsername() == username {
			return u
		}
	}
	return nil
}

// unknownUser reports whether a user of a connection could not authenticate now. s.mu is held.
func (s *serving) unknownUser(c *Connection, username string) bool {
	u := s.user(username)
	return c.RemoteMethod == EAP && (c.EAPMethod == MSCHAPv2 && u == nil || c.EAPMethod != RADIUS && u.GetDisabled())
}

// subscribe makes the tunnel and the session of a remote user. It waits for the data plane.
func (s *serving) subscribe(ctx context.Context, c *Connection, q LeaseAddress) Leased {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	manager, _, err := service.Find[subscriber.Manager](ctx, s.Environment)
	if err != nil {
		return Leased{Err: fmt.Errorf("the subscriber service is not running: %w", err)}
	}
	tunnel := userTunnelName(c.Name, q.Lease)
	made := make(chan error, 1)
	s.Objects.Put(s.userTunnel(tunnel, c.Dataplane, c.VRF), func(r service.Result) { made <- r.Err })
	undo := func(err error) Leased {
		s.mu.Lock()
		delete(s.leases, q.Lease)
		s.mu.Unlock()
		manager.Disconnect(leaseID(q.Lease), subscriber.NASError)
		s.Objects.Delete(object.Key{Kind: "IpsecTunnel", Name: tunnel}, nil)
		return Leased{Err: err}
	}
	select {
	case err := <-made:
		if err != nil {
			return undo(fmt.Errorf("the data plane refuses the tunnel of the user: %w", err))
		}
	case <-ctx.Done():
		return undo(errors.New("the data plane does not answer"))
	}
	s.mu.Lock()
	s.leases[q.Lease] = held{tunnel: tunnel, known: true}
	s.mu.Unlock()
	type outcome struct {
		lease subscriber.Lease
		err   error
	}
	connected := make(chan outcome, 1)
	manager.Connect(subscriber.Connection{
		Request: subscriber.Request{Protocol: userProtocol, Profile: c.Profile, ID: leaseID(q.Lease), Credentials: subscriber.Credentials{Username: q.Username},
			Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: c.Dataplane, Port: c.Name}, Caller: q.Remote}},
		Grant: s.grant(q), IPv4: q.IPv4, IPv6: q.IPv6, Access: &api.Access{IpsecTunnel: tunnel},
	}, func(l subscriber.Lease, err error) { connected <- outcome{l, err} })
	var got outcome
	select {
	case got = <-connected:
	case <-ctx.Done():
		return undo(errors.New("the session does not come up in time"))
	}
	if got.err != nil {
		return undo(fmt.Errorf("the user has no session: %w", got.err))
	}
	l := Leased{Tunnel: tunnel, DNS: slices.Clone(got.lease.DNS[:min(len(got.lease.DNS), 6)])}
	if got.lease.IPv4.IsValid() {
		l.Addresses = append(l.Addresses, got.lease.IPv4)
	}
	if got.lease.IPv6.IsValid() {
		l.Addresses = append(l.Addresses, got.lease.IPv6)
	}
	if len(l.Addresses) == 0 {
		return undo(fmt.Errorf("SubscriberProfile/%s has no pool of single addresses of the family that the user asks for", c.Profile))
	}
	return l
}

// unsubscribe ends the session of a remote user, and deletes its tunnel. s.mu is held.
func (s *serving) unsubscribe(lease uint64, tunnel string, cause subscriber.Cause) {
	manager := s.manager
	s.later = append(s.later, func() {
		if manager != nil {
			manager.Disconnect(leaseID(lease), cause)
		}
		s.Objects.Delete(object.Key{Kind: "IpsecTunnel", Name: tunnel}, nil)
	})
}

// serveUsers attaches to each new Manager.
func (s *serving) serveUsers(ctx context.Context) {
	for {
		manager, gone, err := service.Find[subscriber.Manager](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		attach := s.manager != manager
		s.manager = manager
		s.mu.Unlock()
		if attach {
			manager.Attach(userProtocol, users{s})
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
	}
}

// users implements subscriber.Access.
type users struct{ *serving }

// Restore implements subscriber.Access: a session goes on if its IKE SA does.
func (u users) Restore(c subscriber.Connection, _ subscriber.Lease) {
	lease, err := strconv.ParseUint(c.ID, 16, 64)
	u.mu.Lock()
	h, there := u.leases[lease]
	if there = there && err == nil && h.tunnel != ""; there {
		h.known = true
		u.leases[lease] = h
	}
	manager := u.manager
	u.mu.Unlock()
	if !there && manager != nil {
		manager.Disconnect(c.ID, subscriber.LostService)
	}
}

// Restored implements subscriber.Access: an IKE SA whose session was lost ends.
func (u users) Restored() {
	u.locked(func(now time.Time) (actions []Action) {
		for lease, h := range u.leases {
			if h.tunnel != "" && !h.known {
				actions = append(actions, u.machine.EndLease(lease, "the session of the user was lost", now)...)
			}
		}
		return actions
	})
}

// Terminate implements subscriber.Access.
func (u users) Terminate(id string, cause subscriber.Cause, _ string) {
	lease, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return
	}
	u.locked(func(now time.Time) []Action {
		return u.machine.EndLease(lease, "the session of the user ends: "+cause.String(), now)
	})
}
