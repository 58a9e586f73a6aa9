// SPDX-License-Identifier: Apache-2.0

package subscriber

import "github.com/prometheus/client_golang/prometheus"

// measured is the metrics of subscribers.
type measured struct {
	sessions                  *prometheus.GaugeVec
	setUps, failures, endings *prometheus.CounterVec
}

func newMeasured() *measured {
	return &measured{
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_subscriber_sessions", Help: "Sessions of subscribers, also those that begin or end."},
			[]string{"protocol", "profile"}),
		setUps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_subscriber_setups_total", Help: "Sessions that came up."}, []string{"protocol"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_subscriber_failures_total", Help: "Subscribers that did not come up."},
			[]string{"reason"}),
		endings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_subscriber_endings_total", Help: "Sessions that ended."}, []string{"protocol", "cause"}),
	}
}

func (m *measured) up(protocol, profile string, by float64) {
	m.sessions.WithLabelValues(protocol, profile).Add(by)
}
func (m *measured) setUp(protocol string) { m.setUps.WithLabelValues(protocol).Inc() }
func (m *measured) failure(reason string) { m.failures.WithLabelValues(reason).Inc() }
func (m *measured) ended(protocol string, cause Cause) {
	m.endings.WithLabelValues(protocol, cause.String()).Inc()
}

func (m *manager) refuse(reason string) { m.measured.failure(reason) }

var (
	poolSize      = prometheus.NewDesc("sluice_subscriber_pool_size", "Addresses or prefixes that a pool can give.", []string{"pool", "vrf"}, nil)
	poolUsed      = prometheus.NewDesc("sluice_subscriber_pool_used", "Addresses or prefixes of a pool that subscribers have.", []string{"pool", "vrf"}, nil)
	poolExhausted = prometheus.NewDesc("sluice_subscriber_pool_exhausted_total", "Times that a pool had no address left.", []string{"pool", "vrf"}, nil)
)

// poolCollector measures pools.
type poolCollector struct{ m *manager }

// Describe implements prometheus.Collector.
func (c poolCollector) Describe(to chan<- *prometheus.Desc) {
	to <- poolSize
	to <- poolUsed
	to <- poolExhausted
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(to chan<- prometheus.Metric) {
	for _, p := range c.m.poolUses() {
		to <- prometheus.MustNewConstMetric(poolSize, prometheus.GaugeValue, float64(p.size), p.name, p.vrf)
		to <- prometheus.MustNewConstMetric(poolUsed, prometheus.GaugeValue, float64(p.used), p.name, p.vrf)
		to <- prometheus.MustNewConstMetric(poolExhausted, prometheus.CounterValue, float64(p.exhausted), p.name, p.vrf)
	}
}
