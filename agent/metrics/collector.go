package metrics

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/reconcile"
)

// metric is one that is told with constants, at the time of a scrape.
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

// collector asks, when it is scraped, everybody who counts. Labels are names of kinds, states, nodes, reasons, ports, data planes
// and northbounds: what a configuration has few of. No object's name but a port's is ever a label; of GTP-U paths, addresses are.
type collector struct {
	environment northbound.Environment
	failures    map[string]*atomic.Uint64

	build, revision, unconfirmed, overdue, notUndone, objects, operations, lists, different, drifted metric
	delay                                                                                            metric

	northboundConnected, northboundReceived, northboundErrors, northboundChanges, northboundRefused, northboundHeld metric

	connected, connections, inSync, info, workers, tsc, failed metric

	portUp, portPackets, portBytes, portErrors metric
	nodeCalls, nodePackets, nodeCycles         metric

	sessionPackets, sessionBytes, sessionDroppedPackets, sessionDroppedBytes metric
	queuePackets, queueBytes, queueDropped, queued                           metric
	drops                                                                    metric

	paths, pathUp, pathRequests, pathFailures, pathRestarts metric
}

func newCollector(e northbound.Environment) *collector {
	c := &collector{
		environment: e, failures: map[string]*atomic.Uint64{},

		build:       gauge("build_info", "Always 1; the agent's release is the label.", "release"),
		revision:    gauge("revision", "Number of the latest revision of what is wanted."),
		unconfirmed: gauge("unconfirmed_revisions", "Revisions that are undone unless somebody confirms them in time."),
		overdue:     gauge("overdue_revisions", "Revisions that should have been undone, and are not, or only in part."),
		notUndone:   gauge("not_undone_objects", "Objects that others stand in the way of undoing, of all revisions that are overdue."),
		objects:     gauge("objects", "Objects that are wanted or not yet gone, by kind and by how it stands with them.", "dataplane", "kind", "state"),
		operations:  counter("operations_total", "What data planes were told about one object each, by what became of it.", "dataplane", "action", "result"),
		delay:       metric{description: prometheus.NewDesc("sluice_apply_delay_seconds", "From when an object was wanted, or wanted to change, to when the data plane had it so.", []string{"dataplane"}, nil)},
		lists:       counter("lists_total", "Times that everything that a data plane has was listed and compared.", "dataplane"),
		drifted:     counter("drifted_objects_total", "Times that another client of a data plane changed an object there, and it was put right.", "dataplane"),
		different:   counter("different_objects_total", "Objects that were not as they are wanted when everything was listed.", "dataplane"),

		northboundConnected: gauge("northbound_connected", "Whether a northbound has the connection that it needs, if it needs one.", "northbound"),
		northboundReceived:  counter("northbound_received_total", "Messages, requests, files or values that came in by a northbound.", "northbound"),
		northboundErrors:    counter("northbound_errors_total", "What went wrong with a northbound's connection or with what came in by it.", "northbound"),
		northboundChanges:   counter("northbound_changes_total", "Objects that a northbound put in or took out.", "northbound"),
		northboundRefused:   counter("northbound_refused_total", "Times that what a northbound put in was not acceptable, or failed.", "northbound"),

		northboundHeld: gauge("northbound_held_objects", "Objects that are kept though the northbound's store was emptied.", "northbound"),

		connected:   gauge("dataplane_connected", "Whether the agent is connected to the data plane.", "dataplane"),
		connections: counter("dataplane_connections_total", "Connections made to the data plane.", "dataplane"),
		inSync:      gauge("dataplane_in_sync", "Whether the agent knows everything that the data plane has.", "dataplane"),
		info:        gauge("dataplane_info", "Always 1 while connected; the releases of the data plane and of DPDK are labels.", "dataplane", "release", "dpdk"),
		workers:     gauge("dataplane_workers", "Threads that forward packets.", "dataplane"),
		tsc:         gauge("dataplane_tsc_hertz", "TSC cycles in a second: what nodes' cycles are counted in.", "dataplane"),
		failed:      counter("dataplane_unanswered_total", "Times that a connected data plane did not answer what a scrape asked.", "dataplane"),

		portUp:      gauge("port_up", "Whether the port's link is up.", "dataplane", "port"),
		portPackets: counter("port_packets_total", "Packets that a port received or transmitted.", "dataplane", "port", "direction"),
		portBytes:   counter("port_bytes_total", "Bytes that a port received or transmitted.", "dataplane", "port", "direction"),
		portErrors:  counter("port_errors_total", "Packets that a port's device lost, and why.", "dataplane", "port", "error"),

		nodeCalls:   counter("node_calls_total", "Bursts of packets that came to a node of the graph.", "dataplane", "node"),
		nodePackets: counter("node_packets_total", "Packets that came to a node of the graph.", "dataplane", "node"),
		nodeCycles:  counter("node_cycles_total", "TSC cycles that a node of the graph took.", "dataplane", "node"),

		sessionPackets:        counter("session_packets_total", "Packets that entered sessions, all together.", "dataplane", "direction"),
		sessionBytes:          counter("session_bytes_total", "Bytes of the IP packets that entered sessions, all together.", "dataplane", "direction"),
		sessionDroppedPackets: counter("session_dropped_packets_total", "Packets that entered sessions and were dropped afterwards.", "dataplane", "direction"),
		queuePackets:          counter("qos_packets_total", "Packets that a scheduler let go, all queues together.", "dataplane", "scheduler"),
		queueBytes:            counter("qos_bytes_total", "Bytes of the frames that a scheduler let go, all queues together.", "dataplane", "scheduler"),
		queueDropped:          counter("qos_dropped_total", "Packets that a scheduler dropped, all queues together: queue-full, wred, codel, flushed.", "dataplane", "scheduler", "reason"),
		queued:                gauge("qos_queued_packets", "Packets that wait in a scheduler.", "dataplane", "scheduler"),
		sessionDroppedBytes:   counter("session_dropped_bytes_total", "Bytes of the IP packets that entered sessions and were dropped afterwards.", "dataplane", "direction"),
		paths:                 gauge("gtpu_paths", "GTP-U paths to user plane functions, by state.", "dataplane", "state"),
		pathUp:                gauge("gtpu_path_up", "Whether the GTP-U path answers, of up to 1,000 that ever did.", "dataplane", "vrf", "local", "remote"),
		pathRequests:          gauge("gtpu_echo_requests", "Echo requests that were sent on the paths that there are now.", "dataplane"),
		pathFailures:          gauge("gtpu_path_failures", "Times that the paths that there are now had no answer.", "dataplane"),
		pathRestarts:          gauge("gtpu_peer_restarts", "Times that peers on the paths that there are now counted another start.", "dataplane"),
		drops:                 counter("dropped_packets_total", "Packets that were dropped, by reason.", "dataplane", "reason"),
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
		c.northboundErrors, c.northboundChanges, c.northboundRefused, c.northboundHeld, c.connected, c.connections, c.inSync, c.info, c.workers, c.tsc, c.failed,
		c.portUp, c.portPackets, c.portBytes, c.portErrors, c.nodeCalls, c.nodePackets, c.nodeCycles, c.sessionPackets, c.sessionBytes,
		c.sessionDroppedPackets, c.sessionDroppedBytes, c.drops, c.paths, c.pathUp, c.pathRequests, c.pathFailures, c.pathRestarts,
		c.queuePackets, c.queueBytes, c.queueDropped, c.queued,
	} {
		out <- m.description
	}
}

// scrape is one time of telling.
type scrape chan<- prometheus.Metric

func (s scrape) tell(m metric, value float64, labels ...string) {
	for i, l := range labels {
		// A label that is no UTF-8 would spoil everything that is told.
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
	s.tell(c.build, 1, c.environment.Agent.Release)
	c.reconciler(s)
	for name, counters := range c.environment.Agent.Northbounds {
		n := counters.Read()
		s.tell(c.northboundConnected, truth(n.Connection != northbound.Disconnected), name)
		s.tell(c.northboundReceived, float64(n.Received), name)
		s.tell(c.northboundErrors, float64(n.Failed), name)
		s.tell(c.northboundChanges, float64(n.Changes), name)
		s.tell(c.northboundRefused, float64(n.Refused), name)
		s.tell(c.northboundHeld, float64(n.Held), name)
	}
	for name, client := range c.environment.Agent.Dataplanes {
		c.dataplane(s, name, client)
	}
}

func (c *collector) reconciler(s scrape) {
	s.tell(c.revision, float64(c.environment.Intent.Revision()))
	var waits, overdue, left int
	for _, u := range c.environment.Intent.Unconfirmed() {
		if !u.Overdue {
			waits++
			continue
		}
		overdue++
		left += len(u.Left)
	}
	s.tell(c.unconfirmed, float64(waits))
	s.tell(c.overdue, float64(overdue))
	s.tell(c.notUndone, float64(left))
	for plane, m := range c.environment.Intent.Measure() {
		for kind, states := range m.Objects {
			for state, n := range states {
				s.tell(c.objects, float64(n), plane, kind, strings.ToLower(state.String()))
			}
		}
		for action, results := range m.Operations {
			s.tell(c.operations, float64(results.Done), plane, action.String(), "done")
			s.tell(c.operations, float64(results.Refused), plane, action.String(), "refused")
			s.tell(c.operations, float64(results.Unknown), plane, action.String(), "unknown")
		}
		s.tell(c.lists, float64(m.Lists), plane)
		s.tell(c.different, float64(m.Different), plane)
		s.tell(c.drifted, float64(m.Drifted), plane)
		s.histogram(c.delay, m.Delays, plane)
		s.tell(c.inSync, truth(m.InSync), plane)
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
	s.tell(c.connected, truth(link.GetConnected()), name)
	s.tell(c.connections, float64(client.Connections()), name)
	if g := link.GetGreeting(); g != nil {
		s.tell(c.info, 1, name, g.GetRelease(), g.GetDpdk())
		s.tell(c.workers, float64(g.GetWorkers()), name)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, ask := range []func(context.Context, scrape, string, *dataplane.Client) error{c.ports, c.nodes, c.sessions, c.schedulers, c.dropped, c.gtpuPaths} {
			// Whatever else it answers is told all the same.
			if ask(ctx, s, name, client) != nil {
				c.failures[name].Add(1)
			}
		}
	}
	s.tell(c.failed, float64(c.failures[name].Load()), name)
}

func (c *collector) ports(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	list, err := client.PortCounters(ctx, &api.PortCountersQuery{})
	told := map[string]bool{}
	for _, p := range list.GetPorts() {
		if told[p.GetPort()] {
			continue
		}
		told[p.GetPort()] = true
		s.tell(c.portUp, truth(p.GetLinkUp()), plane, p.GetPort())
		s.tell(c.portPackets, float64(p.GetRxPackets()), plane, p.GetPort(), "receive")
		s.tell(c.portPackets, float64(p.GetTxPackets()), plane, p.GetPort(), "transmit")
		s.tell(c.portBytes, float64(p.GetRxBytes()), plane, p.GetPort(), "receive")
		s.tell(c.portBytes, float64(p.GetTxBytes()), plane, p.GetPort(), "transmit")
		s.tell(c.portErrors, float64(p.GetRxMissed()), plane, p.GetPort(), "receive-missed")
		s.tell(c.portErrors, float64(p.GetRxErrors()), plane, p.GetPort(), "receive-damaged")
		s.tell(c.portErrors, float64(p.GetRxNoBuffer()), plane, p.GetPort(), "receive-no-buffer")
		s.tell(c.portErrors, float64(p.GetTxErrors()), plane, p.GetPort(), "transmit-failed")
	}
	return err
}

func (c *collector) nodes(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	list, err := client.NodeCounters(ctx, &api.NodeCountersQuery{})
	if err != nil {
		return err
	}
	s.tell(c.tsc, float64(list.GetTscHz()), plane)
	told := map[string]bool{}
	for _, n := range list.GetNodes() {
		if told[n.GetNode()] {
			continue
		}
		told[n.GetNode()] = true
		s.tell(c.nodeCalls, float64(n.GetCalls()), plane, n.GetNode())
		s.tell(c.nodePackets, float64(n.GetPackets()), plane, n.GetNode())
		s.tell(c.nodeCycles, float64(n.GetCycles()), plane, n.GetNode())
	}
	return nil
}

func (c *collector) sessions(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	t, err := client.SessionTotals(ctx)
	if err != nil {
		return err
	}
	s.tell(c.sessionPackets, float64(t.GetUpPackets()), plane, "up")
	s.tell(c.sessionPackets, float64(t.GetDownPackets()), plane, "down")
	s.tell(c.sessionBytes, float64(t.GetUpBytes()), plane, "up")
	s.tell(c.sessionBytes, float64(t.GetDownBytes()), plane, "down")
	s.tell(c.sessionDroppedPackets, float64(t.GetUpDroppedPackets()), plane, "up")
	s.tell(c.sessionDroppedPackets, float64(t.GetDownDroppedPackets()), plane, "down")
	s.tell(c.sessionDroppedBytes, float64(t.GetUpDroppedBytes()), plane, "up")
	s.tell(c.sessionDroppedBytes, float64(t.GetDownDroppedBytes()), plane, "down")
	return nil
}

func (c *collector) schedulers(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	list, err := client.SchedulerCounters(ctx, &api.SchedulerCountersQuery{})
	told := map[string]bool{}
	for _, q := range list.GetSchedulers() {
		name := q.GetScheduler()
		if told[name] {
			continue
		}
		told[name] = true
		s.tell(c.queuePackets, float64(q.GetSentPackets()), plane, name)
		s.tell(c.queueBytes, float64(q.GetSentBytes()), plane, name)
		s.tell(c.queueDropped, float64(q.GetFullPackets()), plane, name, "queue-full")
		s.tell(c.queueDropped, float64(q.GetWredPackets()), plane, name, "wred")
		s.tell(c.queueDropped, float64(q.GetCodelPackets()), plane, name, "codel")
		s.tell(c.queueDropped, float64(q.GetFlushedPackets()), plane, name, "flushed")
		s.tell(c.queued, float64(q.GetQueuedPackets()), plane, name)
	}
	return err
}

func (c *collector) dropped(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	list, err := client.DropCounters(ctx, &api.DropCountersQuery{})
	told := map[string]bool{}
	for _, d := range list.GetDrops() {
		if !told[d.GetReason()] {
			told[d.GetReason()] = true
			s.tell(c.drops, float64(d.GetPackets()), plane, d.GetReason())
		}
	}
	return err
}

// Each path has an address of somebody's as a label, so only so many are told one by one.
const pathsMost = 1000

func (c *collector) gtpuPaths(ctx context.Context, s scrape, plane string, client *dataplane.Client) error {
	states := map[string]int{"unknown": 0, "unanswered": 0, "up": 0, "down": 0}
	type ends struct{ vrf, local, remote string }
	told := map[ends]bool{}
	var requests, failures, restarts uint64
	query := &api.GtpuPathsQuery{Limit: 10000}
	for {
		page, err := client.GtpuPaths(ctx, query)
		if err != nil {
			return err
		}
		for _, p := range page.GetPaths() {
			states[p.GetState()]++
			requests += p.GetRequests()
			failures += p.GetFailures()
			restarts += p.GetRestarts()
			e := ends{p.GetVrf(), p.GetLocalAddress(), p.GetRemoteAddress()}
			if up := p.GetState() == "up"; (up || p.GetState() == "down") && len(told) < pathsMost && !told[e] {
				told[e] = true
				s.tell(c.pathUp, truth(up), plane, e.vrf, e.local, e.remote)
			}
		}
		if page.GetNextPage() == "" || page.GetNextPage() == query.GetPage() {
			break
		}
		query.Page = page.GetNextPage()
	}
	for state, n := range states {
		s.tell(c.paths, float64(n), plane, state)
	}
	s.tell(c.pathRequests, float64(requests), plane)
	s.tell(c.pathFailures, float64(failures), plane)
	s.tell(c.pathRestarts, float64(restarts), plane)
	return nil
}

var _ prometheus.Collector = (*collector)(nil)
