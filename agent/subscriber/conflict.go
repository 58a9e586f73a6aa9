// SPDX-License-Identifier: Apache-2.0
// Conflicts between sessions of one subscriber: the limits of the profile, and fixed addresses.

package subscriber

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/agent/api"
)

// lineKey is a line for the limit of sessions of a circuit: a circuit, or what a trusted access node says of a line on a circuit.
type lineKey struct {
	Circuit
	circuitID, remoteID string
}

func lineOf(l *Line) lineKey { return lineKey{l.Circuit, string(l.CircuitID), string(l.RemoteID)} }

// exceeds reports the limit of the profile that a new session exceeds. sharing selects the sessions that the limit counts. m.mu is held.
func (m *manager) exceeds(s *session, a *allowed) (reason string, sharing func(*session) bool, err error) {
	c := &s.connection
	switch mac, line := c.Line.MAC, lineOf(&c.Line); {
	case a.perMAC != 0 && mac != (MAC{}) && m.byMAC.count(mac) >= int(a.perMAC):
		return "sessions-of-mac", func(other *session) bool { return other.connection.Line.MAC == mac }, fmt.Errorf("%w: MAC %s has %d", ErrLimit, mac, a.perMAC)
	case a.perCircuit != 0 && m.circuits[line] >= int(a.perCircuit):
		return "sessions-of-circuit", func(other *session) bool { return lineOf(&other.connection.Line) == line }, fmt.Errorf("%w: the circuit has %d", ErrLimit, a.perCircuit)
	case a.perUser != 0 && c.Username != "" && m.byUser.count(c.Username) >= int(a.perUser):
		return "sessions-of-user", func(*session) bool { return true }, fmt.Errorf("%w: user %s has %d", ErrLimit, c.Username, a.perUser)
	}
	return "", nil, nil
}

// ofSubscriber returns the selected sessions of a session's subscriber. m.mu is held.
func (m *manager) ofSubscriber(s *session, sharing func(*session) bool) (found []*session) {
	all := m.byUser.all(s.connection.Username)
	if s.connection.Username == "" {
		all = m.byMAC.all(s.connection.Line.MAC)
	}
	for _, other := range all {
		if sharing(other) {
			found = append(found, other)
		}
	}
	return found
}

// holderOf returns the session that holds the address of a conflict.
func holderOf(err error) []*session {
	var c *conflict
	if errors.As(err, &c) {
		return []*session{c.holder}
	}
	return nil
}

// preempt resolves a conflict of s with earlier sessions of the same subscriber, and reports whether it can. It waits for a session that is
// ending, or ends the oldest one if the profile allows it, and then calls the function. It never ends the session of another subscriber. m.mu is held.
func (m *manager) preempt(s *session, a *allowed, inTheWay []*session, then func()) bool {
	var victim *session
	for _, other := range inTheWay {
		same := other.identity == s.identity && other.connection.Username == s.connection.Username && other.lease.VRF == or(s.lease.VRF, a.vrf)
		switch {
		case !same || other == s || m.sessions[other.id()] != other:
		case other.state == cancelled || other.state == ending:
			other.then = append(other.then, then)
			return true
		case victim == nil || other.olderThan(victim):
			victim = other
		}
	}
	if victim == nil || a.onConflict == api.SessionConflict_REFUSE_SESSION {
		return false
	}
	m.terminate(victim, PortPreempted, "")
	victim.then = append(victim.then, then)
	return true
}

// olderThan compares when sessions came up. One that is not up yet is the youngest.
func (s *session) olderThan(other *session) bool {
	return !s.since.IsZero() && (other.since.IsZero() || s.since.Before(other.since))
}
