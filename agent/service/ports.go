// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// The interval of checks whether a service needs an unknown port.
const portsInterval = time.Second

// Ports reports the Ethernet addresses of ports to a service, which needs them to send frames. Several goroutines may
// call its methods.
type Ports struct {
	log   *slog.Logger
	wake  map[string]chan struct{}
	needs func(dataplane string) bool
	set   func(dataplane, port string, mac [6]byte)
}

// FollowPorts returns Ports. needs reports whether the service lacks ports of a data plane. set passes a port to the
// service.
func FollowPorts(e Environment, needs func(dataplane string) bool, set func(dataplane, port string, mac [6]byte)) *Ports {
	p := &Ports{log: e.Log, wake: map[string]chan struct{}{}, needs: needs, set: set}
	for _, name := range e.Dataplanes {
		p.wake[name] = make(chan struct{}, 1)
	}
	return p
}

// Look has the ports of all data planes read soon.
func (p *Ports) Look() {
	for _, wake := range p.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Connected reads ports until the connection ends. A Connector calls it.
func (p *Ports) Connected(ctx context.Context, plane Plane) {
	clock := time.NewTicker(portsInterval)
	defer clock.Stop()
	for {
		if err := p.read(ctx, plane); err != nil && ctx.Err() == nil {
			p.log.Warn("the MACs of ports cannot be read; trying again", "dataplane", plane.Name, "error", err)
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-p.wake[plane.Name]:
				waiting = false
			case <-clock.C:
				waiting = !p.needs(plane.Name)
			}
		}
	}
}

func (p *Ports) read(ctx context.Context, plane Plane) error {
	all, err := dataplane.Ask[*api.PortCountersList](ctx, plane.Client, &api.PortCountersQuery{})
	if err != nil {
		return err
	}
	for _, one := range all.GetPorts() {
		if mac, err := net.ParseMAC(one.GetMac()); err == nil && len(mac) == 6 {
			p.set(plane.Name, one.GetPort(), [6]byte(mac))
		}
	}
	return nil
}
