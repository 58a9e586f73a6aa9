// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"context"
	"sync"

	"sluice.dev/sluice/agent/durable"
)

// courier sends what the service has to say, in order, and nothing before the records are on the disk that it follows from: another process then
// knows of all that peers have heard of.
type courier struct {
	mu      sync.Mutex
	waiting []letter
	posted  chan struct{}
}

// letter is sent once the records are written. A disk that refuses them does not hold it up.
type letter struct {
	records durable.Pending
	send    func()
}

func newCourier() *courier { return &courier{posted: make(chan struct{}, 1)} }

func (c *courier) post(records durable.Pending, send func()) {
	c.mu.Lock()
	c.waiting = append(c.waiting, letter{records, send})
	c.mu.Unlock()
	select {
	case c.posted <- struct{}{}:
	default:
	}
}

// run sends until the context ends.
func (c *courier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.posted:
		}
		c.mu.Lock()
		all := c.waiting
		c.waiting = nil
		c.mu.Unlock()
		for _, l := range all {
			_ = l.records.Wait()
			l.send()
		}
	}
}
