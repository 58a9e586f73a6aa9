// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Ends of SAs with static keys: only the operator replaces these, and all their packets are dropped.

// A limit that is raised revives an SA without an event.
const lookAtEndedAgain = time.Second

// For metrics.
const countAgain = 10 * time.Second

const replaceIt = "put another pair of associations beside it, with other keys and SPIs"

// endings has the ended SAs with static keys that data planes have.
type endings struct {
	mu sync.Mutex
	// By data plane and name.
	of map[string]map[string]intent.NotReady
}

// lifetimes are the changes of SAs that end them, as conditions.
var lifetimes = map[string]intent.NotReady{
	"hard-lifetime":      {Reason: "LifetimeOver", Message: "a hard lifetime is over, and packets are dropped as esp-lifetime: raise the limit, or " + replaceIt},
	"sequence-exhausted": {Reason: "SequenceExhausted", Message: "the sequence numbers are used up, and packets are dropped as esp-sequence-exhausted: " + replaceIt},
	// Ended SAs that the agent finds when it connects.
	"": {Reason: "Ended", Message: "a hard lifetime is over or the sequence numbers are used up, and packets are dropped: raise the limit, or " + replaceIt},
}

// notReady returns why an SA does not serve.
func (e *endings) notReady(plane, name string) intent.NotReady {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[plane][name]
}

// set stores that an SA has ended. It reports whether that is news.
func (e *endings) set(plane, name, change string, now time.Time) bool {
	why := lifetimes[change]
	why.Since = now
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, was := e.of[plane][name]; was && (change == "" || before.Reason == why.Reason) {
		return false
	}
	if e.of == nil {
		e.of = map[string]map[string]intent.NotReady{}
	}
	if e.of[plane] == nil {
		e.of[plane] = map[string]intent.NotReady{}
	}
	e.of[plane][name] = why
	return true
}

// names returns the ended SAs of a data plane.
func (e *endings) names(plane string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.of[plane]))
}

// drop removes an SA that has not ended, or is gone.
func (e *endings) drop(plane, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of[plane], name)
}

// forget removes a data plane.
func (e *endings) forget(plane string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of, plane)
}

// size returns how many SAs of a data plane have ended.
func (e *endings) size(plane string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.of[plane])
}

// staticChanged logs a lifetime of an SA with static keys, and sets its condition. s.mu is held.
func (s *serving) staticChanged(plane, name, change string, now time.Time) {
	switch change {
	case "soft-lifetime":
		s.Log.Warn("a SecurityAssociation is about to end", "dataplane", plane, "kind", associationKind, "name", name, "why", "a soft lifetime is over, or 15 of 16 sequence numbers are used")
	case "hard-lifetime", "sequence-exhausted", "":
		if s.ended.set(plane, name, change, now) {
			s.Log.Warn("a SecurityAssociation has ended", "dataplane", plane, "kind", associationKind, "name", name, "why", lifetimes[change].Message)
			s.touched(name)
		}
	}
}

// touched publishes a change of an SA's condition. s.mu is held.
func (s *serving) touched(name string) {
	if s.Intent != nil {
		s.later = append(s.later, func() { s.Intent.Touched(object.Key{Kind: associationKind, Name: name}) })
	}
}

// lookAtAll reads which SAs of a data plane have ended: events may be lost, or older than the agent.
func (s *serving) lookAtAll(ctx context.Context, plane service.Plane) error {
	known := s.ended.names(plane.Name)
	found := map[string]bool{}
	for page := ""; ; {
		answer, err := dataplane.Ask[*api.SecurityAssociationStates](ctx, plane.Client, &api.SecurityAssociationStatesQuery{Limit: longestPage, Page: page})
		if err != nil {
			return err
		}
		s.locked(func(now time.Time) []Action {
			for _, one := range answer.GetStates() {
				if one.GetEnded() && !s.negotiated(one.GetName()) {
					found[one.GetName()] = true
					s.staticChanged(plane.Name, one.GetName(), "", now)
				}
			}
			return nil
		})
		if page = answer.GetNextPage(); page == "" {
			break
		}
	}
	s.revived(plane.Name, known, found)
	return nil
}

// lookAtEnded reads which of the ended SAs still are.
func (s *serving) lookAtEnded(ctx context.Context, plane service.Plane) error {
	for known := range slices.Chunk(s.ended.names(plane.Name), usualPage) {
		answer, err := dataplane.Ask[*api.SecurityAssociationStates](ctx, plane.Client, &api.SecurityAssociationStatesQuery{Names: known, Limit: usualPage})
		if err != nil {
			return err
		}
		ended := map[string]bool{}
		for _, one := range answer.GetStates() {
			ended[one.GetName()] = one.GetEnded()
		}
		s.revived(plane.Name, known, ended)
	}
	return nil
}

// revived removes those of the known ends that are none any more.
func (s *serving) revived(plane string, known []string, ended map[string]bool) {
	s.locked(func(time.Time) []Action {
		for _, name := range known {
			if !ended[name] {
				s.ended.drop(plane, name)
				s.touched(name)
			}
		}
		return nil
	})
}

// followEnded looks at ended SAs and counts tunnels until the connection ends.
func (s *serving) followEnded(ctx context.Context, plane service.Plane) {
	clock, count := time.NewTicker(lookAtEndedAgain), time.NewTicker(countAgain)
	defer clock.Stop()
	defer count.Stop()
	defer s.tunnelStates.DeletePartialMatch(prometheus.Labels{"dataplane": plane.Name})
	defer s.endedAssociations.DeleteLabelValues(plane.Name)
	for ctx.Err() == nil {
		err := s.countTunnels(ctx, plane)
		for again := true; again; {
			s.endedAssociations.WithLabelValues(plane.Name).Set(float64(s.ended.size(plane.Name)))
			if err != nil && ctx.Err() == nil {
				s.Log.Debug("the state of tunnels cannot be read", "dataplane", plane.Name, "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-clock.C:
				err = s.lookAtEnded(ctx, plane)
			case <-count.C:
				again = false
			}
		}
	}
}

// countTunnels counts the tunnels of a data plane by state.
func (s *serving) countTunnels(ctx context.Context, plane service.Plane) error {
	up, down := 0, 0
	for page := ""; ; {
		answer, err := dataplane.Ask[*api.IpsecTunnelStates](ctx, plane.Client, &api.IpsecTunnelStatesQuery{Limit: longestPage, Page: page})
		if err != nil {
			return err
		}
		for _, one := range answer.GetTunnels() {
			if missing(one) == "" {
				up++
			} else {
				down++
			}
		}
		if page = answer.GetNextPage(); page == "" {
			break
		}
	}
	s.tunnelStates.WithLabelValues(plane.Name, "up").Set(float64(up))
	s.tunnelStates.WithLabelValues(plane.Name, "down").Set(float64(down))
	return nil
}
