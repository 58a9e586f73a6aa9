// SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"

	"sluice.dev/sluice/agent/service"
)

// Definition is the service that follows the links of ports.
var Definition = service.Definition{
	Name: "port",
	New: func(e service.Environment) (service.Service, error) {
		return &follower{NewLinks(), e}, nil
	},
}

type follower struct {
	*Links
	environment service.Environment
}

// Run implements service.Service.
func (f *follower) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Connected implements service.Connector.
func (f *follower) Connected(ctx context.Context, plane service.Plane) {
	f.Follow(ctx, service.Followed{Name: plane.Name, Client: plane.Client, Intent: f.environment.Intent,
		Log: f.environment.Log.With("dataplane", plane.Name)})
}
