// SPDX-License-Identifier: Apache-2.0

// Package northbound is the interface of all ways into the agent. A northbound applies changes to desired state
// (intent.Interface) in an owner's name, and reports their results to its clients. One model, one validation, one
// behaviour: a northbound decodes and carries, and decides nothing.
//
// Each has a package of its own: those that hold a set of documents under keys (a directory, etcd, Redis) are drivers of package
// keyed, those that carry messages (Kafka, RabbitMQ) are drivers of package broker.
package northbound

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Environment is the agent's interface for a northbound.
type Environment struct {
	// The name in the configuration, which is the owner of the northbound's objects.
	Name string
	// Each change is written down in the audit log already.
	Intent   intent.Interface
	Registry *object.Registry
	Log      *slog.Logger
	// For requests that are refused before they become a change. It may be nil.
	Audit *audit.Log
	// The northbound's counters.
	Counters *Counters
	// State of the agent beside intent, for northbounds that report it.
	Agent Agent
}

// Agent is the agent that a northbound is a part of.
type Agent struct {
	Release string
	// The service of the Unix socket, with this northbound's counters. A remote request's context holds its caller
	// (package access).
	Service api.AgentServer
	// gRPC services of the agent's services, to be registered without an implementation.
	RPCs []service.RPC
	// By name.
	Dataplanes map[string]*dataplane.Client
	// Measurements of services; nil: there are none.
	Services    prometheus.Gatherer
	Northbounds map[string]*Counters
}

// Northbound is one way in.
type Northbound interface {
	// Run serves until the context ends. It survives the loss of its connections: it logs a lost connection and
	// connects again. An error is permanent, and ends the agent.
	Run(ctx context.Context, e Environment) error
}

// Section is a northbound's part of the configuration: a struct with yaml tags.
type Section interface {
	// Check returns an error that begins with the field: "directory: is missing".
	Check() error
	Open() Northbound
}
