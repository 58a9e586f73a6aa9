// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// fakeWriter is a data plane that reads while its channel has room.
type fakeWriter struct {
	away bool
	got  chan *api.PacketOut
}

func (f *fakeWriter) Link() *api.DataplaneLink { return &api.DataplaneLink{Connected: !f.away} }

func (f *fakeWriter) PacketsOut(packets []*api.PacketOut) error {
	for _, p := range packets {
		f.got <- p
	}
	return nil
}

func TestADataPlaneThatDoesNotReadDelaysNobody(t *testing.T) {
	s := &Sender{queues: map[string]*sendQueue{}}
	frozen, good := &fakeWriter{got: make(chan *api.PacketOut)}, &fakeWriter{got: make(chan *api.PacketOut, 1)}
	s.add("frozen", frozen)
	s.add("good", good)
	s.add("away", &fakeWriter{away: true})
	packet := func(i int) *api.PacketOut { return Frame("access", []byte{byte(i >> 8), byte(i)}) }
	for i := range sendDepth {
		if err := s.Send("frozen", packet(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := s.Send("frozen", packet(0), packet(1)); !errors.Is(err, errSendQueueFull) || s.lost.Load() != 2 {
		t.Errorf("error %v, %d lost", err, s.lost.Load())
	}
	if err := s.Send("good", packet(7)); err != nil {
		t.Error(err)
	}
	if p := <-good.got; p.Packet[1] != 7 {
		t.Error(p)
	}
	for _, plane := range []string{"away", "unknown"} {
		if err := s.Send(plane, packet(0)); err == nil {
			t.Errorf("a packet is sent through the data plane %q", plane)
		}
	}
	// The data plane reads again: packets are in their order.
	for i := range sendDepth {
		if p := <-frozen.got; p.Packet[0] != byte(i>>8) || p.Packet[1] != byte(i) {
			t.Fatalf("packet %d: %v", i, p.Packet)
		}
	}
	s.end()
	if err := s.Send("frozen", packet(1)); err != nil {
		t.Error(err)
	}
	<-frozen.got
	s.end()
}
