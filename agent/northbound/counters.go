// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"context"
	"sync/atomic"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Counters are the counters of one northbound. Its changes are counted without its help. All methods may be called at
// any time, also of nil.
type Counters struct {
	link                               atomic.Int32
	received, failed, changes, refused atomic.Uint64
	held                               atomic.Int64
}

// Connection is the state of a northbound's connection.
type Connection int32

const (
	// Connectionless: it talks to nothing that could be away.
	Connectionless Connection = iota
	Connected
	Disconnected
)

// Counted is a copy of Counters.
type Counted struct {
	Connection Connection
	// Messages, requests, files or values that arrived; and errors in them or of the connection.
	Received, Failed uint64
	// Objects that it applied or deleted; and refused requests.
	Changes, Refused uint64
	// Held objects, which the source has lost.
	Held int
}

// Connected sets the state of the connection.
func (c *Counters) Connected(yes bool) {
	if c == nil {
		return
	}
	if yes {
		c.link.Store(int32(Connected))
	} else {
		c.link.Store(int32(Disconnected))
	}
}

// Received takes note of messages, requests, files or values that came in.
func (c *Counters) Received(n int) {
	if c != nil && n > 0 {
		c.received.Add(uint64(n))
	}
}

// Failed counts an error: a lost connection, or an unreadable message. Refusals of Intent are counted without it.
func (c *Counters) Failed() {
	if c != nil {
		c.failed.Add(1)
	}
}

// Held sets the number of held objects, which the source has lost.
func (c *Counters) Held(objects int) {
	if c != nil {
		c.held.Store(int64(objects))
	}
}

// Read returns the counters.
func (c *Counters) Read() Counted {
	if c == nil {
		return Counted{}
	}
	return Counted{Connection: Connection(c.link.Load()), Received: c.received.Load(), Failed: c.failed.Load(),
		Changes: c.changes.Load(), Refused: c.refused.Load(), Held: int(c.held.Load())}
}

// Counting returns an Interface that counts the changes that pass through it.
func Counting(i intent.Interface, c *Counters) intent.Interface { return &counting{i, c} }

type counting struct {
	intent.Interface
	counters *Counters
}

func (c *counting) Apply(ctx context.Context, source intent.Source, changes []object.Change, options intent.Options) (*intent.Outcome, error) {
	out, err := c.Interface.Apply(ctx, source, changes, options)
	if err != nil {
		c.counters.refused.Add(1)
	} else {
		c.counters.changes.Add(uint64(len(changes)))
	}
	return out, err
}

func (c *counting) Rollback(ctx context.Context, source intent.Source, revision uint64, options intent.Options) (*intent.Outcome, error) {
	out, err := c.Interface.Rollback(ctx, source, revision, options)
	if err != nil {
		c.counters.refused.Add(1)
	} else {
		c.counters.changes.Add(uint64(len(out.Objects)))
	}
	return out, err
}
