// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

const (
	// Each path has an address as a label, so only this number of paths have a metric each.
	maxPathMetrics = 1000
	// For the answers of all data planes: a scrape has 10 s.
	scrapePatience = 8 * time.Second
)

// collector has the metrics of the paths in connected data planes.
type collector struct {
	paths, up, requests, failures, restarts *prometheus.Desc

	mu      sync.Mutex
	clients map[string]*dataplane.Client
}

func newCollector() *collector {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_gtpu_"+name, help, labels, nil)
	}
	return &collector{clients: map[string]*dataplane.Client{},
		paths:    gauge("paths", "GTP-U paths to user plane functions, by state.", "dataplane", "state"),
		up:       gauge("path_up", "Whether the GTP-U path answers, of up to 1,000 that ever did.", "dataplane", "vrf", "local", "remote"),
		requests: gauge("echo_requests", "Echo requests that were sent on the paths that there are now.", "dataplane"),
		failures: gauge("path_failures", "Times that the paths that there are now had no answer.", "dataplane"),
		restarts: gauge("peer_restarts", "Times that peers on the paths that there are now counted another start.", "dataplane"),
	}
}

// connected adds a data plane until the returned function is called.
func (c *collector) connected(name string, client *dataplane.Client) (away func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients[name] = client
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.clients, name)
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.paths, c.up, c.requests, c.failures, c.restarts} {
		out <- d
	}
}

// Collect implements prometheus.Collector. A data plane that does not answer has no metrics.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	clients := make(map[string]*dataplane.Client, len(c.clients))
	for name, client := range c.clients {
		clients[name] = client
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	for name, client := range clients {
		c.plane(ctx, out, name, client)
	}
}

func (c *collector) plane(ctx context.Context, out chan<- prometheus.Metric, plane string, client *dataplane.Client) {
	add := func(d *prometheus.Desc, value float64, labels ...string) {
		for i, l := range labels {
			// A label that is not UTF-8 would spoil the whole scrape.
			labels[i] = strings.ToValidUTF8(l, "?")
		}
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	states := map[string]int{"unknown": 0, "unanswered": 0, "up": 0, Down: 0}
	type ends struct{ vrf, local, remote string }
	added := map[ends]bool{}
	var requests, failures, restarts uint64
	for query := (&api.GtpuPathsQuery{Limit: pathsPage}); ; {
		page, err := dataplane.Ask[*api.GtpuPaths](ctx, client, query)
		if err != nil {
			return
		}
		for _, p := range page.GetPaths() {
			states[p.GetState()]++
			requests += p.GetRequests()
			failures += p.GetFailures()
			restarts += p.GetRestarts()
			e := ends{p.GetVrf(), p.GetLocalAddress(), p.GetRemoteAddress()}
			up := 0.
			if p.GetState() == "up" {
				up = 1
			}
			if (up == 1 || p.GetState() == Down) && len(added) < maxPathMetrics && !added[e] {
				added[e] = true
				add(c.up, up, plane, e.vrf, e.local, e.remote)
			}
		}
		if page.GetNextPage() == "" || page.GetNextPage() == query.GetPage() {
			break
		}
		query.Page = page.GetNextPage()
	}
	for state, n := range states {
		add(c.paths, float64(n), plane, state)
	}
	add(c.requests, float64(requests), plane)
	add(c.failures, float64(failures), plane)
	add(c.restarts, float64(restarts), plane)
}
