// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/intent"
)

const recordsInterval = time.Second

// watchRecords reports a disk that refuses services' records, and one that takes them again: until then a kill of the agent loses what waits.
func watchRecords(ctx context.Context, config Config, report func(*intent.ServiceEvent)) {
	if config.Metrics != nil {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sluice_records_waiting_bytes", Help: "Bytes of services' records that the disk refuses, or has not taken for 5 s."},
			func() float64 { return float64(config.Records.Waiting()) })
		if err := config.Metrics.Register(gauge); err != nil {
			config.Log.Error("there is no metric of records that the disk refuses", "error", err)
		}
	}
	refused := false
	clock := time.NewTicker(recordsInterval)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		if (config.Records.Waiting() > 0) == refused {
			continue
		}
		refused = !refused
		state, text := "written", "The disk has all records of services again"
		if refused {
			state, text = "refused", "The disk refuses records of services, or does not answer; give it room: a kill of the agent loses what waits"
			config.Log.Error("the disk refuses records of services, or does not answer")
		} else {
			config.Log.Info("the disk has all records of services again")
		}
		report(&intent.ServiceEvent{Type: "records", Kind: "DurableLog", Name: "records", State: state, Text: text})
	}
}
