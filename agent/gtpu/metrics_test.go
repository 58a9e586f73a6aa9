// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
)

// gathered returns the metrics of a collector, by name and labels: "sluice_gtpu_paths default up".
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			all[name] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestPathsOfAConnectedDataPlaneHaveMetrics(t *testing.T) {
	fake := dataplanetest.New(t)
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	client := dataplane.New(dataplane.Config{Endpoint: endpoint, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { client.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	for !client.Link().GetConnected() {
		time.Sleep(time.Millisecond)
	}
	c := newCollector()
	if all := gathered(t, c); len(all) != 0 {
		t.Errorf("without a data plane: %v", all)
	}
	away := c.connected("east", client)

	fake.Count(&api.GtpuPaths{Paths: []*api.GtpuPath{
		{Vrf: "n3", LocalAddress: ours, RemoteAddress: theirs, State: Down, Requests: 7},
		{Vrf: "n3", LocalAddress: ours, RemoteAddress: other, State: "unanswered"},
	}})
	all := gathered(t, c)
	for name, want := range map[string]float64{"sluice_gtpu_paths east down": 1, "sluice_gtpu_paths east up": 0, "sluice_gtpu_paths east unanswered": 1,
		"sluice_gtpu_path_up east 192.0.2.1 192.0.2.2 n3": 0, "sluice_gtpu_echo_requests east": 7, "sluice_gtpu_path_failures east": 0} {
		if got, there := all[name]; !there || got != want {
			t.Errorf("%s is %v (%v), not %v", name, got, there, want)
		}
	}
	if _, there := all["sluice_gtpu_path_up east 192.0.2.1 192.0.2.3 n3"]; there {
		t.Error("a path that never answered is up or down")
	}

	// Only a thousand paths have metrics of their own; all are counted.
	many := &api.GtpuPaths{}
	for i := range 3000 {
		many.Paths = append(many.Paths, &api.GtpuPath{Vrf: "n3", LocalAddress: ours, RemoteAddress: fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250), State: "up"})
	}
	fake.Count(many)
	all = gathered(t, c)
	// Of each other metric there is one, and of sluice_gtpu_paths one for each of the four states.
	if all["sluice_gtpu_paths east up"] != 3000 || len(all) != maxPathMetrics+4+3 {
		t.Errorf("%v paths are up, and there are %d metrics", all["sluice_gtpu_paths east up"], len(all))
	}
	away()
	if all := gathered(t, c); len(all) != 0 {
		t.Errorf("of a data plane that is away: %d", len(all))
	}
}
