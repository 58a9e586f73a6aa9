// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/reconcile"
)

// metric is one whose values are read at the time of a scrape.
type metric struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("sluice_"+name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("sluice_"+name, help, labels, nil), prometheus.CounterValue}
}

// collector reads all counters at each scrape. Labels are names of kinds, states, nodes, reasons, ports, data planes
// and northbounds, which have few values. No names of objects except ports are labels.
type collector struct {
	environment northbound.Environment
	failures    map[string]*atomic.Uint64

	build, revision, unconfirmed, overdue, notUndone, objects, operations, lists, different, drifted metric
	delay                                                                                            metric

	northboundConnected, northboundReceived, northboundErrors, northboundChanges, northboundRefused, northboundHeld metric

	connected, connections, inSync, info, workers, failed metric

	states []stateMetrics
}

func newCollector(e northbound.Environment) *collector {
	c := &collector{
		environment: e, failures: map[string]*atomic.Uint64{}, states: metricsOf(e.Registry),

		build:       gauge("build_info", "Always 1; the agent's release is the label.", "release"),
		revision:    gauge("revision", "Number of the latest revision of the configuration."),
		unconfirmed: gauge("unconfirmed_revisions", "Revisions that are undone unless they are confirmed in time."),
		overdue:     gauge("overdue_revisions", "Revisions that should have been undone, and are not, or only in part."),
		notUndone:   gauge("not_undone_objects", "Objects that others stand in the way of undoing, of all revisions that are overdue."),
		objects:     gauge("objects", "Objects of the configuration or not yet deleted, by kind and state.", "dataplane", "kind", "state"),
		operations:  counter("operations_total", "Operations on single objects in data planes, by result.", "dataplane", "action", "result"),
		delay:       metric{description: prometheus.NewDesc("sluice_apply_delay_seconds", "Time from a change of an object to its completion in the data plane.", []string{"dataplane"}, nil)},
		lists:       counter("lists_total", "Resyncs: times that all objects of a data plane were listed and compared.", "dataplane"),
		drifted:     counter("drifted_objects_total", "Objects that another client changed in the data plane, and that the agent repaired.", "dataplane"),
		different:   counter("different_objects_total", "Objects that differed from the desired state in a resync.", "dataplane"),

		northboundConnected: gauge("northbound_connected", "Whether a northbound has the connection that it needs, if it needs one.", "northbound"),
		northboundReceived:  counter("northbound_received_total", "Messages, requests, files or values that came in by a northbound.", "northbound"),
		northboundErrors:    counter("northbound_errors_total", "Errors of a northbound's connection, and of messages that it received.", "northbound"),
		northboundChanges:   counter("northbound_changes_total", "Objects that a northbound created, changed or deleted.", "northbound"),
		northboundRefused:   counter("northbound_refused_total", "Changes of a northbound that were refused or failed.", "northbound"),

		northboundHeld: gauge("northbound_held_objects", "Objects that stay although the northbound's store was emptied.", "northbound"),

		connected:   gauge("dataplane_connected", "Whether the agent is connected to the data plane.", "dataplane"),
		connections: counter("dataplane_connections_total", "Connections made to the data plane.", "dataplane"),
		inSync:      gauge("dataplane_in_sync", "Whether the agent knows the whole state of the data plane.", "dataplane"),
		info:        gauge("dataplane_info", "Always 1 while connected; the releases of the data plane and of DPDK are labels.", "dataplane", "release", "dpdk"),
		workers:     gauge("dataplane_workers", "Threads that forward packets.", "dataplane"),
		failed:      counter("dataplane_unanswered_total", "Times that a connected data plane did not answer what a scrape asked.", "dataplane"),
	}
	for name := range e.Agent.Dataplanes {
		c.failures[name] = &atomic.Uint64{}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range []metric{
		c.build, c.revision, c.unconfirmed, c.overdue, c.notUndone, c.objects, c.operations, c.delay, c.lists, c.different, c.drifted, c.northboundConnected, c.northboundReceived,
		c.northboundErrors, c.northboundChanges, c.northboundRefused, c.northboundHeld, c.connected, c.connections, c.inSync, c.info, c.workers, c.failed,
	} {
		out <- m.description
	}
	describe(c.states, out)
}

// scrape receives the metrics of one scrape.
type scrape chan<- prometheus.Metric

func (s scrape) add(m metric, value float64, labels ...string) {
	for i, l := range labels {
		// A label that is not UTF-8 would spoil the whole scrape.
		labels[i] = strings.ToValidUTF8(l, "?")
	}
	s <- prometheus.MustNewConstMetric(m.description, m.kind, value, labels...)
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := scrape(out)
	s.add(c.build, 1, c.environment.Agent.Release)
	c.reconciler(s)
	for name, counters := range c.environment.Agent.Northbounds {
		n := counters.Read()
		s.add(c.northboundConnected, truth(n.Connection != northbound.Disconnected), name)
		s.add(c.northboundReceived, float64(n.Received), name)
		s.add(c.northboundErrors, float64(n.Failed), name)
		s.add(c.northboundChanges, float64(n.Changes), name)
		s.add(c.northboundRefused, float64(n.Refused), name)
		s.add(c.northboundHeld, float64(n.Held), name)
	}
	for name, client := range c.environment.Agent.Dataplanes {
		c.dataplane(s, name, client)
	}
}

func (c *collector) reconciler(s scrape) {
	s.add(c.revision, float64(c.environment.Intent.Revision()))
	var waits, overdue, left int
	for _, u := range c.environment.Intent.Unconfirmed() {
		if !u.Overdue {
			waits++
			continue
		}
		overdue++
		left += len(u.Left)
	}
	s.add(c.unconfirmed, float64(waits))
	s.add(c.overdue, float64(overdue))
	s.add(c.notUndone, float64(left))
	for plane, m := range c.environment.Intent.Measure() {
		for kind, states := range m.Objects {
			for state, n := range states {
				s.add(c.objects, float64(n), plane, kind, strings.ToLower(state.String()))
			}
		}
		for action, results := range m.Operations {
			s.add(c.operations, float64(results.Done), plane, action.String(), "done")
			s.add(c.operations, float64(results.Refused), plane, action.String(), "refused")
			s.add(c.operations, float64(results.Unknown), plane, action.String(), "unknown")
		}
		s.add(c.lists, float64(m.Lists), plane)
		s.add(c.different, float64(m.Different), plane)
		s.add(c.drifted, float64(m.Drifted), plane)
		s.histogram(c.delay, m.Delays, plane)
		s.add(c.inSync, truth(m.InSync), plane)
	}
}

func (s scrape) histogram(m metric, h reconcile.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.AtMost))
	for d, n := range h.AtMost {
		buckets[d.Seconds()] = n
	}
	s <- prometheus.MustNewConstHistogram(m.description, h.Count, h.Sum.Seconds(), buckets, labels...)
}

func (c *collector) dataplane(s scrape, name string, client *dataplane.Client) {
	link := client.Link()
	s.add(c.connected, truth(link.GetConnected()), name)
	s.add(c.connections, float64(client.Connections()), name)
	if g := link.GetGreeting(); g != nil {
		s.add(c.info, 1, name, g.GetRelease(), g.GetDpdk())
		s.add(c.workers, float64(g.GetWorkers()), name)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		failed := func(err error) {
			// The rest of the answer counts all the same.
			if err != nil {
				c.failures[name].Add(1)
			}
		}
		for _, st := range c.states {
			failed(st.add(ctx, s, name, client))
		}
	}
	s.add(c.failed, float64(c.failures[name].Load()), name)
}

var _ prometheus.Collector = (*collector)(nil)
