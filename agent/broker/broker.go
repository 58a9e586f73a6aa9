// Package broker is the northbound that carries messages, whoever carries them: a driver (packages kafka, rabbitmq) receives,
// acknowledges and publishes, and everything else is here.
//
// In: each message holds documents as `sluice apply` reads them, or names what is no longer wanted. It is acknowledged once what it
// wants is kept, so that it arrives at least once; a message that arrives twice changes nothing, and an older one than what is known
// of an object is left out (see Order). A message is taken whole or not at all: a bad one goes to the dead letters with the reason,
// and disturbs no other.
//
// Out: how it stands with each object, as JSON. Each object's latest state gets out at least once, whatever ends in between.
package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Driver connects to a broker. Its connections are used by one goroutine each.
type Driver interface {
	Intake(ctx context.Context) (Intake, error)
	// Outlet is nil if nothing is to be published.
	Outlet(ctx context.Context) (Outlet, error)
}

// Intake is where messages come from. After any error it is closed, and opened again; what was not acknowledged comes again.
type Intake interface {
	// Receive waits for messages, and returns those that are there, in order of arrival.
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

// Message is what a broker carries.
type Message struct {
	// Where it is, for people: "intent/0@17".
	Position string
	Key      string
	Body     []byte
	// It has no body at all, which in a compacted topic means that what the key names is gone.
	Tombstone bool
	Headers   []Header
	// Of messages in the same stream, the one with the lower number was sent first. An empty stream says nothing.
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
}

// Settings are what the drivers' configurations have in common.
type Settings struct {
	// File that remembers which message was the latest about each object; DIRECTORY/NAME.db if empty.
	Memory string
}

// Where memory is if nothing else is said.
const memoryDirectory = "/var/lib/sluice"

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

type engine struct {
	northbound.Environment
	driver   Driver
	memory   *memory
	min, max time.Duration
}

// Run serves until ctx ends. Its error means that it can never work.
func Run(ctx context.Context, e northbound.Environment, d Driver, s Settings) error {
	if s.Memory == "" {
		s.Memory = filepath.Join(memoryDirectory, e.Name+".db")
	}
	m, err := openMemory(s.Memory, time.Now())
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
		n.again(ctx, "messages", n.receive)
	}()
	go func() {
		defer both.Done()
		n.again(ctx, "events", newTeller(n).tell)
	}()
	both.Wait()
}

// again calls what must go on for ever until it returns nil or ctx ends. The time between grows as long as `working` is not called.
func (n *engine) again(ctx context.Context, what string, do func(ctx context.Context, working func()) error) {
	wait, lost := n.min, false
	working := func() {
		if lost {
			n.Log.Info("the broker answers again", "for", what)
		}
		wait, lost = n.min, false
	}
	for {
		err := do(ctx, working)
		if err == nil || ctx.Err() != nil {
			return
		}
		if !lost {
			n.Log.Warn("the broker does not answer; trying again", "for", what, "error", err)
		} else {
			n.Log.Debug("the broker does not answer", "for", what, "error", err, "again", wait)
		}
		lost = true
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait/2+1)):
		}
		wait = min(2*wait, n.max)
	}
}

var errNothing = errors.New("a driver returned no messages")

// receive opens the intake and serves it until something is wrong.
func (n *engine) receive(ctx context.Context, working func()) error {
	in, err := n.driver.Intake(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	for {
		messages, err := in.Receive(ctx)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return errNothing
		}
		working()
		dead, err := n.take(ctx, messages)
		if err != nil {
			return err
		}
		if len(dead) > 0 {
			if err := in.DeadLetter(ctx, dead); err != nil {
				return err
			}
			for _, d := range dead {
				n.Log.Warn("a message cannot be accepted", "position", d.Message.Position, "object", d.Reason.Object, "error", d.Reason.Error)
			}
		}
		if err := in.Acknowledge(ctx); err != nil {
			return err
		}
	}
}
