// SPDX-License-Identifier: Apache-2.0

// Package metrics serves metrics of the agent and its data planes to Prometheus, and liveness and readiness to
// process supervisors and load balancers. The number of metrics does not depend on the number of sessions.
package metrics

import (
	"net"
	"strconv"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Section is the configuration of a northbound of type "metrics". It serves /metrics, /healthz and /readyz. Without
// tokens and client certificates, every client of the address may read everything.
type Section struct {
	access.Section `yaml:",inline"`
}

// New returns a Section to be filled in.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	switch _, _, err := net.SplitHostPort(s.Listen); {
	case s.Listen == "":
		return object.Mistake("listen", "missing", "", "HOST:PORT")
	case err != nil:
		return object.Mistake("listen", "not an address to listen at", strconv.Quote(s.Listen), "HOST:PORT")
	case s.guarded():
		return s.Section.Check()
	case (s.TLS.Certificate == "") != (s.TLS.Key == ""):
		return object.Mistake("tls", "certificate and key go together", "", "both, or neither")
	}
	return nil
}

// guarded reports whether only some may read.
func (s *Section) guarded() bool { return s.Tokens != "" || s.ClientCA != "" || len(s.Roles) > 0 }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return &service{section: *s} }
