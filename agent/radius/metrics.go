// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"github.com/prometheus/client_golang/prometheus"
)

// measurements of the service. Servers are named as their RadiusServer is.
type measurements struct {
	requests, retransmissions, timeouts, drops, authentications, ignored, changes, dynamicDrops *prometheus.CounterVec
	seconds                                                                                     *prometheus.HistogramVec
	dead                                                                                        *prometheus.GaugeVec
	// Attributes that were ignored, which a server can make up.
	names map[string]bool
}

// The most names of attributes that metrics have.
const mostNames = 256

func newMeasurements() *measurements {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &measurements{
		requests:        counter("sluice_radius_requests_total", "Requests to RADIUS servers, without retransmissions.", "server", "purpose"),
		retransmissions: counter("sluice_radius_retransmissions_total", "Requests that were sent to the same RADIUS server again.", "server", "purpose"),
		timeouts:        counter("sluice_radius_timeouts_total", "Requests that a RADIUS server did not answer.", "server", "purpose"),
		drops:           counter("sluice_radius_drops_total", "Packets from RADIUS servers that were dropped, and packets to them that could not be sent or did not arrive.", "server", "purpose", "reason"),
		authentications: counter("sluice_radius_authentications_total", "Authentications of subscribers, by what became of them.", "policy", "result"),
		ignored:         counter("sluice_radius_ignored_attributes_total", "Attributes of replies that were ignored.", "attribute", "reason"),
		changes:         counter("sluice_radius_dynamic_requests_total", "CoA-Requests and Disconnect-Requests that were answered; cause is Error-Cause.", "type", "cause"),
		dynamicDrops:    counter("sluice_radius_dynamic_drops_total", "CoA-Requests and Disconnect-Requests that were dropped.", "reason"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_radius_reply_seconds", Help: "Time from the first transmission to the reply.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"server", "purpose"}),
		dead:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_radius_server_dead", Help: "Whether a RADIUS server does not answer."}, []string{"server", "purpose"}),
		names: map[string]bool{},
	}
}

func (m *measurements) register(to prometheus.Registerer, records func() *spool, waiting func() float64) error {
	of := func(f func(*spool) float64) func() float64 { return func() float64 { return f(records()) } }
	for _, c := range []prometheus.Collector{
		m.requests, m.retransmissions, m.timeouts, m.drops, m.authentications, m.ignored, m.changes, m.dynamicDrops, m.seconds, m.dead,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_radius_outstanding", Help: "Requests that wait for a reply."}, waiting),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_radius_spool_records", Help: "Accounting records that no server has acknowledged."},
			of(func(s *spool) float64 { return float64(s.count) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sluice_radius_spool_superseded_total", Help: "Interim records that were left out because the spool is full."},
			of(func(s *spool) float64 { return float64(s.superseded) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sluice_radius_spool_repeated_total", Help: "Accounting records that were in the spool already."},
			of(func(s *spool) float64 { return float64(s.repeated) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sluice_radius_spool_refused_total", Help: "Accounting records that are lost because the spool is full."},
			of(func(s *spool) float64 { return float64(s.refusals) })),
	} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// count takes a counted action of the client.
func (m *measurements) count(c counted) {
	e, server, purpose := c.endpoint, c.endpoint.server, c.endpoint.purpose()
	switch c.what {
	case countRequest:
		if e.requests == nil {
			e.requests = m.requests.WithLabelValues(server, purpose)
		}
		e.requests.Inc()
	case countRetransmit:
		m.retransmissions.WithLabelValues(server, purpose).Inc()
	case countTimeout:
		m.timeouts.WithLabelValues(server, purpose).Inc()
	case countReply:
		if e.seconds == nil {
			e.seconds = m.seconds.WithLabelValues(server, purpose)
		}
		e.seconds.Observe(c.took.Seconds())
	case countDead:
		m.dead.WithLabelValues(server, purpose).Set(1)
	case countAlive:
		m.dead.WithLabelValues(server, purpose).Set(0)
	default:
		m.drops.WithLabelValues(server, purpose, c.what).Inc()
	}
}

// forget deletes the series of a server that is gone.
func (m *measurements) forget(key endpointKey) {
	labels := prometheus.Labels{"server": key.server, "purpose": settings{accounting: key.accounting}.purpose()}
	for _, of := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.requests, m.retransmissions, m.timeouts, m.drops, m.seconds, m.dead} {
		of.DeletePartialMatch(labels)
	}
}

func (m *measurements) ignore(reason string, names []string) {
	for _, name := range names {
		if !m.names[name] {
			if len(m.names) == mostNames {
				name = "others"
			} else {
				m.names[name] = true
			}
		}
		m.ignored.WithLabelValues(name, reason).Inc()
	}
}
