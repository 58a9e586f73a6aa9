// SPDX-License-Identifier: Apache-2.0

// Package service is the framework of protocols. A protocol is a package with a Definition, registered by one line in
// cmd/sluice. The agent runs it and gives it an Environment: the objects of the kinds that it follows, with their
// secrets; packets in and out; volatile objects and durable records to write; conditions of objects; a log and
// metrics.
//
// A service outlives data planes, and its objects outlive the agent: the data plane keeps them, stamped with the service's name, until
// the service calls Objects.Complete.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Definition is a service as it is registered.
type Definition struct {
	// Lower-case letters, digits and hyphens. The name is the owner of the objects that the service produces.
	Name string
	// Kinds of objects that the service follows, in the order in which they are listed at the start.
	Kinds []string
	// Reasons for which packets go to the service: PacketIn.reason in api/dataplane.proto. Several services may ask for the same reason;
	// each gets the packets, and none may change a Frame.
	Punts []string
	// New makes the service. It must not block.
	New func(Environment) (Service, error)
	// Where the service runs if it does not run in the agent; nil: it does.
	Process Process
	// RPCs for clients of the agent, beside questions about operational state (Provide).
	RPCs []RPC
	// Commands returns commands for the command line, beside those of operational state. Nil: there are none.
	Commands func(command.Line) []*cobra.Command
	// Sessions are the service's sessions for commands about any sessions: trace, capture and top. Nil: it has none.
	Sessions *command.Sessions
}

// Process is another process that runs a service. A run of the service begins when the process attaches, and ends
// when it detaches.
type Process interface {
	// Await returns when a process has attached, or with an error when the context ends.
	Await(ctx context.Context) error
	// Ended is called after each life, also if New was not called.
	Ended(err error)
	// A ReadinessReporter while no process is attached, too.
	ReadinessReporter
}

// Service is a running protocol. The other interfaces that it implements select its roles: Follower, Connector,
// Receiver, ReadinessReporter, Maker, Predictor, Warner.
type Service interface {
	// Run serves until the context ends. An error is logged, and the service is started again after a while.
	Run(ctx context.Context) error
}

// Follower is a Service that follows objects of Definition.Kinds.
type Follower interface {
	// Follow is called for each change, one at a time: first for all existing objects, then Synced, then for each
	// change. After lost events it starts again with all objects, and removes the missing ones before Synced. It is
	// not called for an object that has not changed. It must not block.
	Follow(change Change)
	Synced()
}

// Change is a change of an object that a service follows.
type Change struct {
	Key object.Key
	// Nil: the object is gone. With its secrets; it must not be changed.
	Object *object.Object
}

// Chooser is a Service that runs in a Process, and chooses in each life which kinds it follows, and for which of its Definition's Punts it
// gets packets.
type Chooser interface {
	Follows() []string
	Punts() []string
}

// Connector is a Service that talks to data planes itself.
type Connector interface {
	// Connected runs until the connection ends, and the context with it.
	Connected(ctx context.Context, plane Plane)
}

// Plane is a connection to a data plane.
type Plane struct {
	Name   string
	Client *dataplane.Client
}

// Receiver is a Service that gets packets.
type Receiver interface {
	// Receive takes packets in the order of their arrival. It is called from one goroutine for each data plane, and must not block for
	// long: while it runs, packets wait, and beyond a bound they are dropped and counted.
	Receive(packets []Packet)
}

// Packet is a packet for a protocol.
type Packet struct {
	Dataplane string
	// Why: "pppoe-discovery", "ppp-control", "dhcp4" ...
	Reason string
	// Where it came in. Interface and Session are empty if it belongs to none.
	Port, Interface, Session string
	// From the Ethernet header on, with its VLAN tags.
	Frame []byte
}

// ReadinessReporter is a Service that can report why an object does not serve although data planes have it.
type ReadinessReporter interface {
	// NotReady returns the zero value if the service knows no reason why the object does not serve. It must return
	// fast.
	NotReady(dataplane string, stored *object.StoredObject) intent.NotReady
}

// Maker is a Service that makes volatile objects for objects of Definition.Kinds.
type Maker interface {
	// MadeFor returns the configured object for which the service made a volatile one. It must return fast.
	MadeFor(k object.Key) (object.Key, bool)
}

// Predictor is a Service that knows how many sessions a change of an object of Definition.Kinds would end.
type Predictor interface {
	// Ends returns the number of sessions that end when the object becomes o; nil: when it is deleted. It must return fast.
	Ends(k object.Key, o *object.Object) int
}

// Warner is a Service that warns of other effects of a change of an object of Definition.Kinds: UEs and lines that it disconnects.
type Warner interface {
	// Warnings returns a text for each thing that ends when the object becomes o, nil when it is deleted: "disconnects 3 UEs". It must return fast.
	Warnings(k object.Key, o *object.Object) []string
}

// Environment is the agent's interface for a service.
type Environment struct {
	Name     string
	Registry *object.Registry
	Log      *slog.Logger
	// Measurements of the service. Their names begin with sluice_ and the service's name.
	Metrics prometheus.Registerer
	// Volatile objects.
	Objects *Objects
	// Records that outlive the agent.
	Records *durable.Table
	// Packets out.
	Packets *Sender
	// Offers of other services: Offer and Find.
	Exchange *Exchange
	// Dataplanes are the names of the data planes that the agent is configured with.
	Dataplanes []string
	Intent     Intent
	// Dropped counts packets for the service that it did not take.
	Dropped func(packets int)
}

var nameFormat = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// Check returns all errors of definitions.
func Check(registry *object.Registry, all []Definition) error {
	names, served, flags := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range all {
		switch {
		case !nameFormat.MatchString(d.Name):
			return fmt.Errorf("service %q: its name must be lower-case letters, digits and hyphens, at most 63", d.Name)
		case names[d.Name]:
			return fmt.Errorf("duplicate service %s", d.Name)
		case d.New == nil:
			return fmt.Errorf("service %s has no New", d.Name)
		}
		names[d.Name] = true
		if s := d.Sessions; s != nil {
			if flags[s.Flag] {
				return fmt.Errorf("service %s: another service has the flag --%s for its sessions", d.Name, s.Flag)
			}
			flags[s.Flag] = true
		}
		for _, r := range d.RPCs {
			if err := r.check(); err != nil {
				return fmt.Errorf("service %s: %w", d.Name, err)
			}
			if served[r.Desc.ServiceName] {
				return fmt.Errorf("service %s: duplicate gRPC service %s", d.Name, r.Desc.ServiceName)
			}
			served[r.Desc.ServiceName] = true
		}
		for _, kind := range d.Kinds {
			if registry.Kind(kind) == nil {
				return fmt.Errorf("service %s follows %s, and there is no such kind", d.Name, kind)
			}
		}
	}
	return nil
}
