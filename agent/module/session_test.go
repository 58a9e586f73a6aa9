// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestPacketsForAModuleThatDoesNotReadAreDroppedAndCounted(t *testing.T) {
	a := newSession(&module{}, &api.ModuleHello{Punts: []string{"local"}}, nil)
	dropped := 0
	a.e.Dropped = func(packets int) { dropped += packets }
	const more = 100
	for i := range packetsLimit + more {
		a.Receive([]service.Packet{{Dataplane: "default", Reason: "local", Frame: fmt.Append(nil, i)}, {Dataplane: "default", Reason: "dhcp4"}})
	}
	if dropped != more {
		t.Errorf("%d were dropped", dropped)
	}
	drops, got := uint64(0), 0
	for one := a.next(); one != nil; one = a.next() {
		drops += one.GetPackets().GetDropped()
		for _, p := range one.GetPackets().GetPackets() {
			if string(p.GetFrame()) != fmt.Sprint(got) || p.GetReason() != "local" {
				t.Fatalf("packet %d is %v", got, p)
			}
			got++
		}
	}
	if got != packetsLimit || drops != more || a.packetCount != 0 || a.packetBytes != 0 {
		t.Errorf("%d packets, %d told as dropped, %d still counted", got, drops, a.packetCount)
	}
	long := make([]byte, 9000)
	for range packetsLimit {
		a.Receive([]service.Packet{{Dataplane: "default", Reason: "local", Frame: long}})
	}
	if a.packetBytes > packetBytesLimit || a.packetBytes < packetBytesLimit-len(long) {
		t.Errorf("%d bytes wait", a.packetBytes)
	}
}

func TestAnObjectThatChangesOftenIsSentOnceInItsLastState(t *testing.T) {
	a := newSession(&module{}, &api.ModuleHello{}, nil)
	a.e.Registry = registry(t)
	for i := range 1000 {
		for _, name := range []string{"one", "two"} {
			a.Follow(service.Change{Key: object.Key{Kind: "Vrf", Name: name}, Object: &object.Object{Kind: "Vrf", Name: name, Spec: &api.Vrf{Description: fmt.Sprint(i)}}})
		}
	}
	a.Follow(service.Change{Key: object.Key{Kind: "Vrf", Name: "two"}})
	a.Synced()
	f := a.next().GetFollowed()
	if len(f.GetObjects()) != 2 || string(f.GetObjects()[0].GetIntent().GetSpec()) != "\n\x03999" || !f.GetObjects()[1].GetDeleted() || !f.GetSynced() {
		t.Errorf("told %v", f)
	}
	if one := a.next(); one != nil {
		t.Errorf("then %v", one)
	}
}
