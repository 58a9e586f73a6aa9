// Package northbound is what every way into the agent is: it puts changes into what is wanted (intent.Interface) in an owner's name,
// and tells its side what became of them. One model, one validation, one behaviour: a northbound decodes and carries, and decides
// nothing.
//
// Each has a package of its own: those that hold a set of documents under keys (a directory, etcd, Redis) are drivers of package
// keyed, those that carry messages (Kafka, RabbitMQ) are drivers of package broker.
package northbound

import (
	"context"
	"log/slog"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Environment is what a northbound is given.
type Environment struct {
	// Its name in the configuration, which is the owner of what it puts in.
	Name string
	// Each change is written down in the audit log already.
	Intent   intent.Interface
	Registry *object.Registry
	Log      *slog.Logger
	// For what was refused before it became a change. It may be nil.
	Audit *audit.Log
	// What it counts of itself.
	Counters *Counters
	// What there is beside intent, for northbounds that tell about it.
	Agent Agent
}

// Agent is the agent that a northbound is a part of.
type Agent struct {
	Release string
	// What is served on the Unix socket, with this northbound's counters. A request's context says who asks, if it came from elsewhere
	// (package access).
	Service api.AgentServer
	// By name.
	Dataplanes  map[string]*dataplane.Client
	Northbounds map[string]*Counters
}

// Northbound is one way in.
type Northbound interface {
	// Run serves until the context ends. It outlives whatever it talks to: a lost connection is told in the log and made again. An error
	// means that it can never work, and ends the agent.
	Run(ctx context.Context, e Environment) error
}

// Section is a northbound's part of the configuration: a struct with yaml tags.
type Section interface {
	// Check says what is wrong, with the name of the field first: "directory: is missing".
	Check() error
	Open() Northbound
}
