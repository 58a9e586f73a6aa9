// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
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
		p := &follower{Paths: New(), refusals: NewRefusals(), collector: newCollector(), environment: e,
			signals: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "sluice_gtpu_signals_total", Help: "Error indications and end markers that peers sent for tunnels of sessions.",
			}, []string{"dataplane", "signal"})}
		return p, errors.Join(e.Metrics.Register(p.signals), e.Metrics.Register(p.collector))
	},
}

// follower is the service.
type follower struct {
	*Paths
	refusals *Refusals
	// Events are in the order of the changes.
	reporting   sync.Mutex
	collector   *collector
	environment service.Environment
	signals     *prometheus.CounterVec
}

// Run implements service.Service.
func (p *follower) Run(ctx context.Context) error {
	service.Every(ctx, refusedTime/4, p.expire)
	return nil
}

// NotReady implements service.ReadinessReporter.
func (p *follower) NotReady(dataplane string, stored *object.StoredObject) intent.NotReady {
	if reason := p.Paths.NotReady(dataplane, stored); reason.Reason != "" {
		return reason
	}
	return p.refusals.NotReady(dataplane, stored)
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
		if one.Reason != errorIndication {
			continue
		}
		sent, ok := RefusedEnd(one.Frame)
		vrf, there := VRFOf(p.environment.Intent, &one)
		if !ok || !there {
			continue
		}
		end := remoteEndOf(one.Dataplane, vrf, sent)
		p.reporting.Lock()
		if p.refusals.Add(end, time.Now()) {
			p.environment.Log.Warn("a user plane function does not know a tunnel; sessions that it does not know are not ready", "dataplane", end.dataplane,
				"vrf", end.vrf, "remote", end.address.String(), "teid", end.teid)
			p.environment.Intent.Report(refusedEvent(end.remote, unknown))
		}
		p.reporting.Unlock()
	}
}

func (p *follower) expire(now time.Time) {
	p.reporting.Lock()
	defer p.reporting.Unlock()
	for _, at := range p.refusals.Expire(now) {
		p.environment.Intent.Report(refusedEvent(at, known))
	}
}
