// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

const (
	// So many packets of one service wait for a data plane that does not read; more are dropped and counted.
	sendDepth = 16384
	// How long a service that ends waits for packets that are not sent.
	sendEnd = time.Second
)

var errSendQueueFull = errors.New("the data plane does not read: the queue of packets to it is full")

// Sender sends packets through data planes. Each data plane has a queue of its own: one that does not read delays neither callers nor other data planes.
type Sender struct {
	queues map[string]*sendQueue
	// Packets that were not sent: the data plane was away, or did not read.
	lost atomic.Uint64
}

// packetWriter is what a Sender uses of a dataplane.Client.
type packetWriter interface {
	Link() *api.DataplaneLink
	PacketsOut([]*api.PacketOut) error
}

// sendQueue is the packets for one data plane. A goroutine writes them while there are some.
type sendQueue struct {
	to   packetWriter
	lost *atomic.Uint64

	mu      sync.Mutex
	batches [][]*api.PacketOut
	waiting int // packets
	// Closed when the goroutine has written all; nil: there is no goroutine.
	done chan struct{}
}

func newSender(clients map[string]*dataplane.Client) *Sender {
	s := &Sender{queues: map[string]*sendQueue{}}
	for name, client := range clients {
		s.add(name, client)
	}
	return s
}

func (s *Sender) add(plane string, to packetWriter) {
	s.queues[plane] = &sendQueue{to: to, lost: &s.lost}
}

// Send sends packets, in their order, and keeps them. It does not wait for the data plane: one that it cannot send is counted there as a drop. An error
// means that none is sent.
func (s *Sender) Send(plane string, packets ...*api.PacketOut) error {
	q := s.queues[plane]
	if q == nil {
		return fmt.Errorf("there is no data plane %q", plane)
	}
	err := q.put(packets)
	if err != nil {
		s.lost.Add(uint64(len(packets)))
	}
	return err
}

func (q *sendQueue) put(packets []*api.PacketOut) error {
	if link := q.to.Link(); !link.GetConnected() {
		return fmt.Errorf("the data plane is away: %s", link.GetError())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting > 0 && q.waiting+len(packets) > sendDepth {
		return errSendQueueFull
	}
	q.batches = append(q.batches, packets)
	q.waiting += len(packets)
	if q.done == nil {
		q.done = make(chan struct{})
		go q.write(q.done)
	}
	return nil
}

// write writes batches until there are none. Packets count as waiting until they are written.
func (q *sendQueue) write(done chan struct{}) {
	defer close(done)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.batches) > 0 {
		batch := q.batches[0]
		q.batches[0] = nil
		q.batches = q.batches[1:]
		q.mu.Unlock()
		if err := q.to.PacketsOut(batch); err != nil {
			q.lost.Add(uint64(len(batch)))
		}
		q.mu.Lock()
		q.waiting -= len(batch)
	}
	q.batches, q.done = nil, nil
}

// end waits until the packets are written, but not for long: the goroutine of a data plane that does not read ends with the connection.
func (s *Sender) end() {
	late := time.After(sendEnd)
	for _, q := range s.queues {
		q.mu.Lock()
		done := q.done
		q.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-late:
			return
		}
	}
}
