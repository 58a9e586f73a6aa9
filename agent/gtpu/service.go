// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/service"
)

const (
	errorIndication = "gtpu-error-indication"
	endMarker       = "gtpu-end-marker"
)

// Definition is the service that follows GTP-U paths and the signals of their peers.
var Definition = service.Definition{
	Name:  "gtpu",
	Punts: []string{errorIndication, endMarker},
	New: func(e service.Environment) (service.Service, error) {
		p := &follower{Paths: New(), collector: newCollector(), environment: e,
			signals: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "sluice_gtpu_signals_total", Help: "Error indications and end markers that peers sent for tunnels of sessions.",
			}, []string{"dataplane", "signal"})}
		return p, errors.Join(e.Metrics.Register(p.signals), e.Metrics.Register(p.collector))
	},
}

// follower is the service.
type follower struct {
	*Paths
	collector   *collector
	environment service.Environment
	signals     *prometheus.CounterVec
}

// Run implements service.Service.
func (p *follower) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Connected implements service.Connector.
func (p *follower) Connected(ctx context.Context, plane service.Plane) {
	defer p.collector.connected(plane.Name, plane.Client)()
	p.Follow(ctx, service.Followed{Name: plane.Name, Client: plane.Client, Intent: p.environment.Intent,
		Log: p.environment.Log.With("dataplane", plane.Name)})
}

// Receive implements service.Receiver.
func (p *follower) Receive(packets []service.Packet) {
	for _, one := range packets {
		p.signals.WithLabelValues(one.Dataplane, one.Reason).Inc()
	}
}
