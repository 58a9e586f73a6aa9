// Package metrics tells Prometheus how it stands with the agent and its data planes, and whoever starts and balances services
// whether the agent lives and is ready. What it tells does not grow with the number of sessions.
package metrics

import (
	"errors"
	"fmt"
	"net"

	"sluice.dev/sluice/agent/northbound"
)

// Section is the configuration of a northbound of type "metrics".
type Section struct {
	// HOST:PORT to serve /metrics, /healthz and /readyz at. Without a host: at every address.
	Listen string `yaml:"listen"`
}

// New returns a Section to be filled in.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.Listen == "" {
		return errors.New("listen: is missing; accepted: HOST:PORT")
	}
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return fmt.Errorf("listen: found %q; accepted: HOST:PORT", s.Listen)
	}
	return nil
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return &service{listen: s.Listen} }
