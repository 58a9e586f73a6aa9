// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func packetReply(id uint64, in *api.PacketIn) *api.Reply {
	return &api.Reply{Id: id, Answer: &api.Reply_Event{Event: &api.Event{Event: &api.Event_PacketIn{PacketIn: in}}}}
}

func TestAPacketIsReadAsTheLibraryReadsIt(t *testing.T) {
	random, known := rand.New(rand.NewPCG(1, 2)), words{}
	agree := func(packed []byte) (mine bool) {
		t.Helper()
		id, p, is := unpackPunted(packed, known)
		var m api.Reply
		err := proto.Unmarshal(packed, &m)
		got := packetReply(id, &api.PacketIn{Reason: p.Reason, Port: p.Port, Interface: p.Interface, Session: p.Session, Frame: p.Frame})
		if is && (err != nil || !proto.Equal(got, &m)) {
			t.Errorf("%x is %v, and the library says %v, %v", packed, got, &m, err)
		}
		return is
	}
	for _, reply := range []*api.Reply{
		packetReply(1, &api.PacketIn{Reason: "pppoe-discovery", Port: "access", Frame: make([]byte, 64)}),
		packetReply(1<<40, &api.PacketIn{Reason: "ppp-control", Port: "access", Session: "pppoe-1", Interface: "core", Frame: []byte{1}}),
		packetReply(7, &api.PacketIn{}),
	} {
		packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		if !agree(packed) {
			t.Errorf("%v is left to the library", reply)
		}
		for i := range packed {
			agree(packed[:i])
		}
		for range 20_000 {
			changed := append([]byte(nil), packed...)
			for range 1 + random.IntN(2) {
				changed[random.IntN(len(changed))] = byte(random.Uint32())
			}
			agree(changed)
		}
	}
	for _, reply := range []*api.Reply{
		{Id: 1, Last: true}, {Id: 1, Result: &api.Result{Code: 2}}, {Id: 1, Answer: &api.Reply_Event{Event: &api.Event{Event: &api.Event_Lost{Lost: 3}}}},
		{Answer: packetReply(1, &api.PacketIn{}).Answer},
	} {
		packed, err := proto.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		if agree(packed) {
			t.Errorf("%v is read as a packet", reply)
		}
	}
	for i := range 10 * mostWords {
		known.of(fmt.Append(nil, "port-", i))
	}
	if len(known) > mostWords {
		t.Errorf("%d texts are kept", len(known))
	}
}

func BenchmarkPunted(b *testing.B) {
	packed, err := proto.Marshal(packetReply(9, &api.PacketIn{Reason: "ppp-control", Port: "access", Session: "pppoe-18c8f0e1a2b3c4d5e6f", Frame: make([]byte, 64)}))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(packed, &api.Reply{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	known := words{}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, is := unpackPunted(packed, known); !is {
				b.Fatal("it is not read")
			}
		}
	})
}
