// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

var errLost = errors.New("connection lost")

// carrier is a broker in memory: a topic with one partition, its dead letters, and events.
type carrier struct {
	sync.Mutex
	log   []*Message
	acked int
	// Where the open intake is.
	read   int
	dead   []Dead
	events []Published
	// How many it delivers at once.
	most int
	// Called before each of "intake", "receive", "dead", "ack", "outlet", "publish".
	fault func(what string) error
	more  chan struct{}
	// How often the intake was opened.
	opened int
}

func newCarrier() *carrier {
	return &carrier{most: 10_000, more: make(chan struct{}), fault: func(string) error { return nil }}
}

// send queues messages, as a remote producer does.
func (c *carrier) send(all ...*Message) {
	c.Lock()
	defer c.Unlock()
	for _, m := range all {
		one := *m
		one.Number = uint64(len(c.log))
		one.Position = fmt.Sprintf("intent/0@%d", one.Number)
		c.log = append(c.log, &one)
	}
	close(c.more)
	c.more = make(chan struct{})
}

// by limits the number of messages per delivery.
func (c *carrier) by(most int) {
	c.Lock()
	defer c.Unlock()
	c.most = most
}

// back makes messages come again, as after a crash before they were acknowledged.
func (c *carrier) back(to int) {
	c.Lock()
	defer c.Unlock()
	c.acked, c.read = to, to
	close(c.more)
	c.more = make(chan struct{})
}

func (c *carrier) fails(what string) error {
	c.Lock()
	fault := c.fault
	c.Unlock()
	return fault(what)
}

func (c *carrier) Intake(context.Context) (Intake, error) {
	if err := c.fails("intake"); err != nil {
		return nil, err
	}
	c.Lock()
	defer c.Unlock()
	c.read = c.acked
	c.opened++
	return carried{c}, nil
}

func (c *carrier) Outlet(context.Context) (Outlet, error) {
	if err := c.fails("outlet"); err != nil {
		return nil, err
	}
	return carried{c}, nil
}

type carried struct{ *carrier }

func (c carried) Close() {}

func (c carried) Receive(ctx context.Context) ([]*Message, error) {
	if err := c.fails("receive"); err != nil {
		return nil, err
	}
	for {
		c.Lock()
		more, n := c.more, min(len(c.log)-c.read, c.most)
		batch := slices.Clone(c.log[c.read : c.read+n])
		c.read += n
		c.Unlock()
		if n > 0 {
			return batch, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c carried) DeadLetter(_ context.Context, dead []Dead) error {
	if err := c.fails("dead"); err != nil {
		return err
	}
	c.Lock()
	defer c.Unlock()
	c.dead = append(c.dead, dead...)
	return nil
}

func (c carried) Acknowledge(context.Context) error {
	if err := c.fails("ack"); err != nil {
		return err
	}
	c.Lock()
	defer c.Unlock()
	c.acked = c.read
	return nil
}

func (c carried) Publish(_ context.Context, events []Published) error {
	if err := c.fails("publish"); err != nil {
		return err
	}
	c.Lock()
	defer c.Unlock()
	c.events = append(c.events, events...)
	return nil
}

func (c *carrier) allAcknowledged() bool {
	c.Lock()
	defer c.Unlock()
	return c.acked == len(c.log)
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
