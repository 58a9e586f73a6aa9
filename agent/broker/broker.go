// SPDX-License-Identifier: Apache-2.0

// Package broker is the part that all message brokers share. A driver (packages kafka, rabbitmq) receives,
// acknowledges and publishes; this package does everything else.
//
// In: each message holds documents as `sluice apply` reads them, or names objects to delete. A message is
// acknowledged after its changes are stored, so that each message arrives at least once. A message that arrives twice
// changes nothing. A change that is older than the stored one is left out (see Order). A message is applied as a
// whole or not at all: an invalid one goes to the dead letters with the reason, and affects no other.
//
// Out: the status of each object, as JSON. The latest status of each object is published at least once, also across
// restarts.
package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Driver connects to a broker. Its connections are used by one goroutine each.
type Driver interface {
	Intake(ctx context.Context) (Intake, error)
	// Outlet is nil if there is nothing to publish to.
	Outlet(ctx context.Context) (Outlet, error)
}

// Intake is a connection that receives messages. After any error it is closed and opened again, and the broker
// redelivers unacknowledged messages.
type Intake interface {
	// Receive waits for messages, and returns all that have arrived, in order.
	Receive(ctx context.Context) ([]*Message, error)
	// DeadLetter returns once the broker keeps them.
	DeadLetter(ctx context.Context, dead []Dead) error
	// Acknowledge is about all that the latest Receive returned.
	Acknowledge(ctx context.Context) error
	Close()
}

// Outlet is where events go. After any error it is closed, and opened again.
type Outlet interface {
	// Publish returns once the broker keeps them.
	Publish(ctx context.Context, events []Published) error
	Close()
}

// Message is a message of a broker.
type Message struct {
	// Where it is, for people: "intent/0@17".
	Position string
	Key      string
	Body     []byte
	// The message has no body: in a compacted topic, the object of its key is deleted.
	Tombstone bool
	Headers   []Header
	// In a stream, a lower number was sent first. Messages of the empty stream have no order.
	Stream string
	Number uint64
	// The driver's own.
	Carried any
}

// Header of a message.
type Header struct{ Name, Value string }

// Dead is a message that cannot be accepted, and why.
type Dead struct {
	Message *Message
	Reason  Reason
}

// Published is an event as it is published.
type Published struct {
	Key object.Key
	// JSON.
	Body []byte
	// The object is no longer there: a compacted topic may forget it.
	Gone bool
	// The key is not that of an object: an event of a data plane or of a service.
	noObject bool
}

// Settings are the fields that all drivers' configurations share.
type Settings struct {
	// File that remembers which message was the latest about each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string
}

// The default directory of the memory.
const memoryDirectory = "/var/lib/sluice"

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// A connection that lasts so long counts as healthy, even without messages.
	settleTime = time.Second
	// Of each batch.
	loggedDeadLetters = 10
)

// Purposes of connections.
const (
	forMessages = "messages"
	forEvents   = "events"
)

type engine struct {
	northbound.Environment
	driver   Driver
	memory   *memory
	min, max time.Duration
}

// Run serves until ctx ends. An error is permanent.
func Run(ctx context.Context, e northbound.Environment, d Driver, s Settings) error {
	if s.Memory == "" {
		s.Memory = filepath.Join(memoryDirectory, e.Name+".messages.db")
	}
	m, err := openMemory(s.Memory, time.Now())
	for wait := minBackoff; errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT); wait = min(2*wait, maxBackoff) {
		// Messages wait at the broker meanwhile; all else goes on.
		if wait == minBackoff {
			e.Log.Error("the disk is full; no messages are taken until there is room", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		m, err = openMemory(s.Memory, time.Now())
	}
	if err != nil {
		return err
	}
	n := &engine{Environment: e, driver: d, memory: m, min: minBackoff, max: maxBackoff}
	n.run(ctx)
	return m.close()
}

func (n *engine) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Add(2)
	go func() {
		defer both.Done()
		n.repeat(ctx, forMessages, n.receive)
	}()
	go func() {
		defer both.Done()
		n.repeat(ctx, forEvents, newPublisher(n).run)
	}()
	both.Wait()
}

// health is how it goes with one connection.
type health struct {
	engine *engine
	what   string
	// Messages come by it: the northbound is connected when it is.
	intake bool

	mu   sync.Mutex
	wait time.Duration
	lost bool
}

// recovered is called when the broker serves.
func (h *health) recovered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost {
		h.engine.Log.Info("the broker answers again", "why", h.what)
	}
	h.wait, h.lost = h.engine.min, false
	if h.intake {
		h.engine.Counters.Connected(true)
	}
}

// failing returns the time to wait. It doubles with each failure.
func (h *health) failing(err error) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.lost {
		h.engine.Log.Warn("the broker does not answer; trying again", "why", h.what, "error", err)
	} else {
		h.engine.Log.Debug("the broker does not answer", "why", h.what, "error", err, "again", h.wait)
	}
	h.engine.Counters.Failed()
	if h.intake {
		h.engine.Counters.Connected(false)
	}
	wait := h.wait/2 + rand.N(h.wait/2+1)
	h.wait, h.lost = min(2*h.wait, h.engine.max), true
	return wait
}

// opened takes a connection for healthy after a while; the caller stops the timer when the connection ends.
func (h *health) opened() *time.Timer { return time.AfterFunc(settleTime, h.recovered) }

// repeat calls do until it returns nil or ctx ends.
func (n *engine) repeat(ctx context.Context, what string, do func(ctx context.Context, h *health) error) {
	h := &health{engine: n, what: what, intake: what == forMessages, wait: n.min}
	for {
		err := do(ctx, h)
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.failing(err)):
		}
	}
}

var errNothing = errors.New("a driver returned no messages")

// receive opens the intake and serves it until something is wrong.
func (n *engine) receive(ctx context.Context, h *health) error {
	in, err := n.driver.Intake(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	defer h.opened().Stop()
	for {
		messages, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return errNothing
		}
		h.recovered()
		n.Counters.Received(len(messages))
		dead, err := n.take(ctx, messages)
		if err != nil {
			return err
		}
		if len(dead) > 0 {
			if err := in.DeadLetter(ctx, dead); err != nil {
				return err
			}
			for i, d := range dead {
				n.Counters.Failed()
				if i < loggedDeadLetters {
					kind, name, _ := strings.Cut(d.Reason.Object, "/")
					n.Log.Warn("a message cannot be accepted", "position", d.Message.Position, "kind", kind, "name", name, "error", d.Reason.Error)
				}
			}
			if more := len(dead) - loggedDeadLetters; more > 0 {
				n.Log.Warn("more messages cannot be accepted", "messages", more)
			}
		}
		if err := in.Acknowledge(ctx); err != nil {
			return err
		}
	}
}
