// SPDX-License-Identifier: Apache-2.0
// The service's part of relays with a SubscriberProfile: the Manager of subscribers.

package dhcp

import (
	"context"
	"log/slog"
	"time"

	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// attach finds the Manager, each one that there is in turn, and gets the sessions of an earlier life from it.
func (s *relaying) attach(ctx context.Context) {
	for ctx.Err() == nil {
		manager, changed, err := service.Find[subscriber.Manager](ctx, s.Environment)
		if err != nil {
			return
		}
		s.mu.Lock()
		another := s.manager != manager
		s.manager = manager
		if another {
			s.carryOut(s.machine.Managed(false, time.Now()))
		}
		s.mu.Unlock()
		if another {
			manager.Attach(protocolName, s)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// with carries out the machine's actions for an answer of the Manager.
func (s *relaying) with(f func(now time.Time) []Action) {
	s.send(s.locked(f))
}

func (s *relaying) locked(f func(now time.Time) []Action) []Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carryOut(f(time.Now()))
}

// Restore implements subscriber.Access.
func (s *relaying) Restore(c subscriber.Connection, _ subscriber.Lease) {
	s.with(func(now time.Time) []Action { return s.machine.RestoreSession(c, now) })
}

// Restored implements subscriber.Access.
func (s *relaying) Restored() {
	s.with(func(now time.Time) []Action { return s.machine.Managed(true, now) })
}

// Terminate implements subscriber.Access. A client learns it when it renews: DHCP has no such message that clients accept.
func (s *relaying) Terminate(id string, _ subscriber.Cause, _ string) {
	s.with(func(now time.Time) []Action { return s.machine.Terminated(id, now) })
}

// logRefused logs a session that is refused. A metric counts all of them: a pool or a policy that is wrong for all clients would fill the log.
func (s *relaying) logRefused(session string, err error) {
	s.refused.Warn(s.Log, time.Now(), "a client gets no lease, as its session is refused", slog.String("session", session), slog.Any("error", err))
}

// ask asks the Manager, which calls back from goroutines of its own. s.mu is held.
func (s *relaying) ask(a Action) {
	if s.manager == nil {
		s.drops.WithLabelValues("", "not-ready").Inc()
		return
	}
	connected := func(id string) func(subscriber.Lease, error) {
		return func(_ subscriber.Lease, err error) {
			s.with(func(now time.Time) []Action {
				if err != nil {
					s.logRefused(id, err)
				}
				return s.machine.Connected(id, err, now)
			})
		}
	}
	switch a := a.(type) {
	case Authenticate:
		s.manager.Authenticate(a.Request, func(answer subscriber.Answer) {
			s.with(func(now time.Time) []Action { return s.machine.Authenticated(a.Request.ID, answer, now) })
		})
	case Connect:
		s.manager.Connect(a.Connection, connected(a.Connection.ID))
	case Extend:
		s.manager.Extend(a.ID, a.Change, connected(a.ID))
	case Disconnect:
		s.manager.Disconnect(a.ID, a.Cause)
	}
}
