// SPDX-License-Identifier: Apache-2.0

// Package portal answers HTTP of subscribers in a walled garden with a redirection to their portal. The data plane
// punts their TCP segments for port 80; answers leave through their sessions. There is no state of connections:
// responder.go.
package portal

import (
	"context"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/tcp"
)

// Definition is the service "portal".
var Definition = service.Definition{
	Name:  "portal",
	Kinds: []string{"Portal"},
	Punts: []string{"portal"},
	New:   newServing,
}

// serving is the service.
type serving struct {
	service.Environment
	*responder
	segments *prometheus.CounterVec
	drops    *prometheus.CounterVec

	mu sync.RWMutex
	// URLs of Portals, by name.
	portals service.View[*api.Portal]
	// Nil: the service "subscriber" does not run.
	gardens subscriber.Gardens
}

func newServing(e service.Environment) (service.Service, error) {
	s := &serving{Environment: e, responder: newResponder(), portals: service.View[*api.Portal]{},
		segments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_portal_segments_total", Help: "TCP segments of subscribers in a walled garden, by what they were answered with.",
		}, []string{"answer"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_portal_drops_total", Help: "TCP segments of subscribers in a walled garden that were not answered.",
		}, []string{"reason"})}
	for _, c := range []prometheus.Collector{s.segments, s.drops} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.portals.Follow(c)
}

// Synced implements service.Follower.
func (s *serving) Synced() {}

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	for {
		gardens, gone, err := service.Find[subscriber.Gardens](ctx, s.Environment)
		if err != nil {
			return nil
		}
		s.mu.Lock()
		s.gardens = gardens
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
		}
	}
}

// gardenOf returns the URL of a session's portal, and the values for its placeholders; an empty URL: there is none.
func (s *serving) gardenOf(session string, source netip.Addr) (string, client) {
	c := client{address: source.String(), session: session}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var g subscriber.Garden
	if s.gardens != nil {
		g = s.gardens.Garden(session)
	}
	c.mac, c.username = g.MAC, g.Username
	if g.URL != "" {
		return g.URL, c
	}
	if g.Portal == "" {
		// A configured Session without a subscriber.
		if st, there := s.Intent.Get(object.Key{Kind: "Session", Name: session}); there && st.Object != nil {
			if spec, ok := st.Object.Spec.(*api.Session); ok {
				g.Portal, c.mac = spec.GetPolicy().GetPortal(), spec.GetAccess().GetMac()
			}
		}
	}
	return s.portals[g.Portal].GetUrl(), c
}

// Receive implements service.Receiver.
func (s *serving) Receive(packets []service.Packet) {
	for _, p := range packets {
		if answer := s.answer(p); answer != nil {
			if err := s.Packets.Send(p.Dataplane, service.ToSession(p.Session, answer)); err != nil {
				s.drops.WithLabelValues("not-sent").Inc()
			}
		}
	}
}

func (s *serving) answer(p service.Packet) []byte {
	packet, ok := packetOf(p.Frame)
	if !ok {
		s.drops.WithLabelValues("malformed").Inc()
		return nil
	}
	seg, ok := tcp.Parse(packet)
	if !ok {
		s.drops.WithLabelValues("malformed").Inc()
		return nil
	}
	answer, o := s.respond(&seg, func(b []byte, most int) []byte {
		r, ok := parseRequest(b, seg.Destination)
		if !ok {
			return nil
		}
		// A session that has just left the garden: its client opens a connection again, to the host itself.
		template, c := s.gardenOf(p.Session, seg.Source.Addr())
		if template == "" {
			return nil
		}
		return found(&r, template, &c, most)
	})
	s.segments.WithLabelValues(string(o)).Inc()
	return answer
}
