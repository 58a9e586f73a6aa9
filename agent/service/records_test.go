// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/durable/durabletest"
	"sluice.dev/sluice/agent/intent"
)

func TestADiskThatRefusesRecordsIsReported(t *testing.T) {
	directory, grow := durabletest.SmallDisk(t)
	records, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	table, err := records.Table("leases")
	if err != nil {
		t.Fatal(err)
	}
	measured := prometheus.NewRegistry()
	states := make(chan string, 10)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchRecords(ctx, Config{Records: records, Metrics: measured, Log: slog.New(slog.DiscardHandler)},
			func(e *intent.ServiceEvent) { states <- e.Kind + " " + e.State })
	}()
	defer func() { end(); <-done }()
	want := func(state string) {
		t.Helper()
		select {
		case got := <-states:
			if got != state {
				t.Fatalf("%s, and not %s", got, state)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("not %s after 20 seconds; %d bytes wait", state, records.Waiting())
		}
	}
	for i := range 100 {
		table.Put(durable.Record{Key: fmt.Sprint(i), Value: make([]byte, 1<<10)})
	}
	want("DurableLog refused")
	if all, err := measured.Gather(); err != nil || len(all) != 1 || all[0].GetName() != "sluice_records_waiting_bytes" || all[0].GetMetric()[0].GetGauge().GetValue() == 0 {
		t.Error(all, err)
	}
	grow()
	want("DurableLog written")
}
