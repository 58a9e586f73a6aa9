// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"context"
	"sync"

	"sluice.dev/sluice/agent/durable"
)

// sender sends the messages of the service in order, each after the records that it follows from are on disk: a process that restores these
// records knows all messages that peers have received.
type sender struct {
	mu      sync.Mutex
	waiting []outgoing
	queued  chan struct{}
}

// outgoing is sent once the records are written, also if the disk refuses them.
type outgoing struct {
	records durable.Pending
	send    func()
}

func newSender() *sender { return &sender{queued: make(chan struct{}, 1)} }

func (s *sender) post(records durable.Pending, send func()) {
	s.mu.Lock()
	s.waiting = append(s.waiting, outgoing{records, send})
	s.mu.Unlock()
	select {
	case s.queued <- struct{}{}:
	default:
	}
}

// run sends until the context ends.
func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.queued:
		}
		s.mu.Lock()
		all := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		for _, o := range all {
			_ = o.records.Wait()
			o.send()
		}
	}
}
