// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
)

// listener is a service that passes its packets on.
type listener struct {
	got   chan Packet
	punts []string
}

func (l listener) Follows() []string { return nil }

func (l listener) Punts() []string { return l.punts }

func (l listener) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (l listener) Receive(packets []Packet) {
	for _, p := range packets {
		l.got <- p
	}
}

func TestEachServiceThatAsksForAReasonGetsItsPackets(t *testing.T) {
	fake := dataplanetest.New(t)
	host := New([]Definition{{Name: "one", Punts: []string{"local"}}, {Name: "two", Punts: []string{"dhcp4", "local"}}})
	host.config.Log = slog.New(slog.DiscardHandler)
	var services []listener
	for _, s := range host.services {
		l := listener{got: make(chan Packet, 8)}
		s.service, s.life = l, t.Context()
		services = append(services, l)
	}
	receive(t, fake, host)
	watched(t, fake, "dhcp4", "local")
	fake.Emit(&api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: "local", Frame: []byte("both")}}}, false)
	fake.Emit(&api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: "dhcp4", Frame: []byte("second")}}}, false)
	if p := <-services[0].got; string(p.Frame) != "both" {
		t.Errorf("the first service got %q", p.Frame)
	}
	for _, want := range []string{"both", "second"} {
		if p := <-services[1].got; string(p.Frame) != want {
			t.Errorf("the second service got %q", p.Frame)
		}
	}
}

// receive connects the host's services to a data plane, for packets.
func receive(t *testing.T, fake *dataplanetest.Fake, host *Host) {
	t.Helper()
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	client := dataplane.New(dataplane.Config{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler),
		Connected: func(ctx context.Context, c *dataplane.Client, _ *api.Greeting) {
			go host.Connected(ctx, Plane{Name: "default", Client: c}, true)
		}})
	close(host.ready)
	go client.Run(t.Context())
}

// watched waits until the data plane has one Watch, for these reasons.
func watched(t *testing.T, fake *dataplanetest.Fake, reasons ...string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		open := fake.Streams()
		if len(open) == 0 && len(reasons) == 0 || len(open) == 1 && slices.Equal(open[0].GetWatch().GetPunts(), reasons) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never one Watch for %v, but %v", reasons, open)
		}
	}
}

// process is a Process that tests attach by hand.
type process struct{ Process }

func packet(reason, frame string) *api.Event {
	return &api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: reason, Frame: []byte(frame)}}}
}

func TestModulesAndServicesThatAskForAReasonAllGetItsPackets(t *testing.T) {
	fake := dataplanetest.New(t)
	host := New([]Definition{{Name: "agent", Punts: []string{"dhcp4"}}, {Name: "one", Punts: []string{"dhcp4", "local"}, Process: process{}},
		{Name: "two", Punts: []string{"ike", "local"}, Process: process{}}})
	host.config.Log = slog.New(slog.DiscardHandler)
	in := func(i int, punts ...string) listener {
		l := listener{make(chan Packet, 8), punts}
		host.services[i].is(l, t.Context())
		return l
	}
	expect := func(l listener, who, frame string) {
		t.Helper()
		select {
		case p := <-l.got:
			if string(p.Frame) != frame {
				t.Errorf("%s got %q, not %q", who, p.Frame, frame)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s never got %q", who, frame)
		}
	}
	agent := in(0)
	receive(t, fake, host)
	watched(t, fake, "dhcp4")
	one := in(1, "dhcp4", "local")
	watched(t, fake, "dhcp4", "local")
	two := in(2, "local")
	fake.Emit(packet("dhcp4", "request"), false)
	expect(agent, "the agent", "request")
	expect(one, "the first module", "request")
	fake.Emit(packet("local", "for both"), false)
	expect(one, "the first module", "for both")
	expect(two, "the second module", "for both")

	host.services[2].is(nil, t.Context())
	two = in(2, "ike")
	watched(t, fake, "dhcp4", "ike", "local")
	fake.Emit(packet("local", "for one"), false)
	fake.Emit(packet("ike", "for the other"), false)
	expect(one, "the first module", "for one")
	expect(two, "the second module", "for the other")

	host.services[1].is(nil, t.Context())
	watched(t, fake, "dhcp4", "ike")
	host.services[2].is(nil, t.Context())
	watched(t, fake, "dhcp4")
	fake.Emit(packet("dhcp4", "the next"), false)
	expect(agent, "the agent", "the next")
}

func TestAReasonThatADataPlaneDoesNotKnowCostsNoOtherPackets(t *testing.T) {
	fake := dataplanetest.New(t)
	fake.Forget("ike", "newer")
	host := New([]Definition{{Name: "one", Punts: []string{"dhcp4", "newer"}}, {Name: "two", Punts: []string{"ike"}, Process: process{}}})
	host.config.Log = slog.New(slog.DiscardHandler)
	l := listener{got: make(chan Packet, 8)}
	host.services[0].is(l, t.Context())
	receive(t, fake, host)
	watched(t, fake, "dhcp4")
	host.services[1].is(listener{make(chan Packet), []string{"ike"}}, t.Context())
	watched(t, fake, "dhcp4")
	fake.Emit(packet("dhcp4", "request"), false)
	if p := <-l.got; string(p.Frame) != "request" {
		t.Errorf("the service got %q", p.Frame)
	}
}
