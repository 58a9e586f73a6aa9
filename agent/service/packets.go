// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

const (
	// So many packets of one data plane wait for a service; more are dropped and counted.
	packetDepth   = 4096
	packetBatch   = 256
	watchInterval = time.Second
)

// Frame is a whole Ethernet frame to leave by a port.
func Frame(port string, frame []byte) *api.PacketOut {
	return &api.PacketOut{Way: &api.PacketOut_Port{Port: port}, Packet: frame}
}

// Untagged is an Ethernet frame to leave by an interface, which adds its VLAN tags.
func Untagged(iface string, frame []byte) *api.PacketOut {
	return &api.PacketOut{Way: &api.PacketOut_Interface{Interface: iface}, Packet: frame}
}

// ToSession is an IP packet for a subscriber, to leave in the encapsulation of the session's access.
func ToSession(session string, packet []byte) *api.PacketOut {
	return &api.PacketOut{Way: &api.PacketOut_Session{Session: session}, Packet: packet}
}

// Routed is an IP packet of our own, which a VRF routes.
func Routed(vrf string, packet []byte) *api.PacketOut {
	return &api.PacketOut{Way: &api.PacketOut_Vrf{Vrf: vrf}, Packet: packet}
}

// receiver brings the packets of one data plane to the services that ask for them. There is one Watch for all of them: a data plane gives a
// packet to one watcher only.
type receiver struct {
	plane  string
	client *dataplane.Client
	log    *slog.Logger
	// By reason: each service that asks for it gets the packet.
	inboxes map[string][]*inbox
	// Reasons that the data plane does not know.
	unknown map[string]bool
	// The Watch, and its reasons; nil: there is none.
	stream  *dataplane.Stream
	watched []string
}

// inbox queues the packets of one data plane for one service.
type inbox struct {
	service *running

	mu      sync.Mutex
	waiting []Packet
	// There may be some.
	ready chan struct{}
}

func newInbox(s *running) *inbox { return &inbox{service: s, ready: make(chan struct{}, 1)} }

// receive runs while the connection lasts. boxes are the inboxes of all services with packets.
func (r *receiver) receive(ctx context.Context, h *Host, boxes []*inbox) {
	defer func() {
		if r.stream != nil {
			r.stream.Close()
		}
	}()
	for ctx.Err() == nil {
		// A life that begins or ends after this line ends the wait below.
		changed := h.lives()
		r.inboxes = map[string][]*inbox{}
		for _, box := range boxes {
			for _, reason := range box.service.reasons() {
				r.inboxes[reason] = append(r.inboxes[reason], box)
			}
		}
		err := r.watch(ctx)
		if err == nil {
			err = r.pass(ctx, changed)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		r.log.Warn("packets cannot be received; trying again", "dataplane", r.plane, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
}

// watch asks the data plane for the packets of all reasons that it knows. The Watch before ends after the new one has begun, so that no
// packet is missed.
func (r *receiver) watch(ctx context.Context) error {
	for _, reason := range slices.Sorted(maps.Keys(r.unknown)) {
		if r.inboxes[reason] == nil {
			delete(r.unknown, reason) // reported again when a service asks for it again
		}
	}
	reasons := r.known()
	if r.stream != nil && slices.Equal(reasons, r.watched) {
		return nil
	}
	var next *dataplane.Stream
	if len(reasons) > 0 {
		var err error
		next, err = r.client.Punts(ctx, reasons)
		if errors.Is(err, syscall.ENOENT) {
			if err := r.examine(ctx, reasons); err != nil {
				return err
			}
			if left := r.known(); len(left) < len(reasons) {
				return r.watch(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	before := r.stream
	r.stream, r.watched = next, reasons
	return r.drain(ctx, before)
}

// known returns the reasons that services ask for, without those that the data plane does not know, in order.
func (r *receiver) known() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.inboxes)), func(reason string) bool { return r.unknown[reason] })
}

// examine finds the reasons that the data plane does not know: it refuses a Watch that has one of them.
func (r *receiver) examine(ctx context.Context, reasons []string) error {
	for _, reason := range reasons {
		alone, err := r.client.Punts(ctx, []string{reason})
		if errors.Is(err, syscall.ENOENT) {
			r.unknown[reason] = true
			r.log.Warn("the data plane does not know a reason for packets; services do not get these packets", "dataplane", r.plane, "reason", reason)
			continue
		}
		if err == nil {
			err = r.drain(ctx, alone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drain ends a Watch, and delivers the packets that it still has.
func (r *receiver) drain(ctx context.Context, stream *dataplane.Stream) error {
	if stream == nil {
		return nil
	}
	stream.Close()
	for {
		switch packets, err := stream.Packets(ctx); {
		case err == nil:
			r.deliver(packets)
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return nil
		}
	}
}

// pass delivers packets until the channel is closed.
func (r *receiver) pass(ctx context.Context, changed <-chan struct{}) error {
	if r.stream == nil {
		select {
		case <-ctx.Done():
		case <-changed:
		}
		return nil
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-waiting.Done():
		case <-changed:
			cancel()
		}
	}()
	for {
		packets, err := r.stream.Packets(waiting)
		r.deliver(packets)
		if waiting.Err() != nil {
			return nil
		}
		if err != nil {
			r.stream = nil
			return err
		}
	}
}

// deliver queues packets, each for each service that asks for its reason.
func (r *receiver) deliver(packets []dataplane.Punted) {
	for len(packets) > 0 {
		// Packets that come together mostly have one reason.
		same := 1
		for same < len(packets) && packets[same].Reason == packets[0].Reason {
			same++
		}
		for _, box := range r.inboxes[packets[0].Reason] {
			box.put(r.plane, packets[:same])
		}
		packets = packets[same:]
	}
}

// put queues packets. Those beyond the bound are dropped and counted.
func (b *inbox) put(plane string, packets []dataplane.Punted) {
	b.mu.Lock()
	fit := packets[:min(len(packets), packetDepth-len(b.waiting))]
	for i := range fit {
		p := &fit[i]
		b.waiting = append(b.waiting, Packet{plane, p.Reason, p.Port, p.Interface, p.Session, p.Frame})
	}
	b.mu.Unlock()
	if more := len(packets) - len(fit); more > 0 {
		b.service.dropped.Add(uint64(more))
	}
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// deliver passes queued packets to a service, in batches, until the context ends.
func (b *inbox) deliver(ctx context.Context) {
	var room []Packet
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.ready:
		}
		b.mu.Lock()
		batch := b.waiting
		b.waiting = room[:0]
		b.mu.Unlock()
		for some := range slices.Chunk(batch, packetBatch) {
			if ctx.Err() != nil {
				return
			}
			b.service.receive(some)
		}
		clear(batch)
		room = batch
	}
}

// reasonsOf returns the reasons that definitions ask for, each once, in order.
func reasonsOf(all []*running) []string {
	var reasons []string
	for _, s := range all {
		reasons = append(reasons, s.Punts...)
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}
