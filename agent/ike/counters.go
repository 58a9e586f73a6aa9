// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sluice.dev/sluice/agent/api"
)

// counters answers IkeCountersQuery with what the metrics have.
func (q query) counters(context.Context, *api.IkeCountersQuery) (*api.IkeCounters, error) {
	answer := &api.IkeCounters{}
	for _, one := range []struct {
		what string
		of   *prometheus.CounterVec
	}{{"packets", q.packets}, {"drops", q.drops}, {"failures", q.failures}} {
		var some []*api.IkeCounter
		for _, m := range collected(one.of) {
			var sample dto.Metric
			if err := m.Write(&sample); err != nil {
				return nil, fmt.Errorf("reading the counters of %s: %w", one.what, err)
			}
			some = append(some, &api.IkeCounter{What: one.what, Reason: sample.GetLabel()[0].GetValue(), Count: uint64(sample.GetCounter().GetValue())})
		}
		slices.SortFunc(some, func(a, b *api.IkeCounter) int { return cmp.Compare(a.GetReason(), b.GetReason()) })
		answer.Counters = append(answer.Counters, some...)
	}
	return answer, nil
}

// collected are the counters of a vector.
func collected(of prometheus.Collector) (all []prometheus.Metric) {
	metrics := make(chan prometheus.Metric)
	go func() {
		defer close(metrics)
		of.Collect(metrics)
	}()
	for m := range metrics {
		all = append(all, m)
	}
	return all
}
