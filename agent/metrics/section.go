// Package metrics tells Prometheus how it stands with the agent and its data planes, and whoever starts and balances services
// whether the agent lives and is ready. What it tells does not grow with the number of sessions.
package metrics

import (
	"errors"
	"fmt"
	"net"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/northbound"
)

// Section is the configuration of a northbound of type "metrics". It serves /metrics, /healthz and /readyz. Where it names neither
// tokens nor certificates of clients, whoever reaches the address reads everything.
type Section struct {
	access.Section `yaml:",inline"`
}

// New returns a Section to be filled in.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	switch _, _, err := net.SplitHostPort(s.Listen); {
	case s.Listen == "":
		return errors.New("listen: is missing; accepted: HOST:PORT")
	case err != nil:
		return fmt.Errorf("listen: found %q; accepted: HOST:PORT", s.Listen)
	case s.guarded():
		return s.Section.Check()
	case (s.TLS.Certificate == "") != (s.TLS.Key == ""):
		return errors.New("tls: certificate and key need one another")
	}
	return nil
}

// guarded says whether only some may read.
func (s *Section) guarded() bool { return s.Tokens != "" || s.ClientCA != "" || len(s.Roles) > 0 }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return &service{section: *s} }
