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
	"strings"
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
	// File that remembers which message was the latest about each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string
}

// Where memory is if nothing else is said.
const memoryDirectory = "/var/lib/sluice"

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	// A connection that lasts so long is well, although nothing came.
	settleTime = time.Second
	// Of each batch.
	loggedLetters = 10
)

// What connections are for.
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

// Run serves until ctx ends. Its error means that it can never work.
func Run(ctx context.Context, e northbound.Environment, d Driver, s Settings) error {
	if s.Memory == "" {
		s.Memory = filepath.Join(memoryDirectory, e.Name+".messages.db")
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
		n.again(ctx, forMessages, n.receive)
	}()
	go func() {
		defer both.Done()
		n.again(ctx, forEvents, newTeller(n).tell)
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

// well is called when the broker serves.
func (h *health) well() {
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

// ill says how long to wait, which grows as long as nothing is well.
func (h *health) ill(err error) time.Duration {
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

// opened takes a connection for well that lasts; whoever calls it stops that when it ends.
func (h *health) opened() *time.Timer { return time.AfterFunc(settleTime, h.well) }

// again calls what must go on for ever until it returns nil or ctx ends.
func (n *engine) again(ctx context.Context, what string, do func(ctx context.Context, h *health) error) {
	h := &health{engine: n, what: what, intake: what == forMessages, wait: n.min}
	for {
		err := do(ctx, h)
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.ill(err)):
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
		h.well()
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
				if i < loggedLetters {
					kind, name, _ := strings.Cut(d.Reason.Object, "/")
					n.Log.Warn("a message cannot be accepted", "position", d.Message.Position, "kind", kind, "name", name, "error", d.Reason.Error)
				}
			}
			if more := len(dead) - loggedLetters; more > 0 {
				n.Log.Warn("more messages cannot be accepted", "messages", more)
			}
		}
		if err := in.Acknowledge(ctx); err != nil {
			return err
		}
	}
}
