// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func TestPacketsAreWrittenAsTheLibraryWritesThem(t *testing.T) {
	for _, packets := range [][]*api.PacketOut{{}, {
		{Way: &api.PacketOut_Port{Port: "access"}, Packet: make([]byte, 64)}, {Way: &api.PacketOut_Interface{Interface: "core"}, Packet: make([]byte, 1500)},
		{Way: &api.PacketOut_Session{Session: strings.Repeat("s", 200)}, Packet: []byte{1}}, {Way: &api.PacketOut_Vrf{}, Packet: []byte{2}},
		{Way: &api.PacketOut_Vrf{Vrf: "red"}, Packet: []byte{3}}, {Way: &api.PacketOut_Port{}}, {Packet: []byte{4}}, {},
	}} {
		got, err := packetsOut(packets)([]byte("before"), 0)
		if err != nil {
			t.Fatal(err)
		}
		want, err := appendFrame([]byte("before"), &api.Request{Operation: &api.Request_PacketsOut{PacketsOut: &api.PacketsOut{Packets: packets}}})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("wrote %x, and the library %x", got, want)
		}
	}
	if _, err := packetsOut([]*api.PacketOut{{Packet: make([]byte, MaxFrame)}})(nil, 0); err == nil {
		t.Error("a frame is longer than the longest")
	}
}

func TestARequestToChangeObjectsIsWrittenAsTheLibraryWritesIt(t *testing.T) {
	objects := []Packed{{Kind: "Vrf", Name: "red"}, {Kind: "Session", Name: strings.Repeat("s", 200), Spec: strings.Repeat("\x00\xff", 10_000), Owner: "pppoe"}, {}}
	put, remove := &api.Put{}, &api.Delete{}
	size := 0
	for i := range objects {
		o := &objects[i]
		put.Objects = append(put.Objects, &api.Object{Kind: o.Kind, Name: o.Name, Spec: []byte(o.Spec), Owner: o.Owner})
		if size += o.bytes() + 1; o.bytes() >= 0x4000 {
			size += 3
		} else if o.bytes() >= 0x80 {
			size += 2
		} else {
			size++
		}
	}
	same := func(request *api.Request, frame framer) {
		t.Helper()
		got, err := frame([]byte("before"), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		request.Id = 1 << 40
		want, err := appendFrame([]byte("before"), request)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("wrote %x, and the library %x", got, want)
		}
	}
	same(&api.Request{Operation: &api.Request_Put{Put: put}}, changing(requestPut, objects, size))
	for i := range objects {
		objects[i] = Packed{Kind: objects[i].Kind, Name: objects[i].Name}
		remove.Names = append(remove.Names, &api.ObjectName{Kind: objects[i].Kind, Name: objects[i].Name})
	}
	size = 0
	for _, n := range remove.Names {
		size += proto.Size(&api.Delete{Names: []*api.ObjectName{n}})
	}
	same(&api.Request{Operation: &api.Request_Delete{Delete: remove}}, changing(requestDelete, objects, size))
	if _, err := changing(requestPut, []Packed{{Spec: strings.Repeat("x", MaxFrame)}}, MaxFrame+5)(nil, 1); err == nil {
		t.Error("a frame is longer than the longest")
	}
}

func TestResultsAreReadAsTheLibraryReadsThem(t *testing.T) {
	reply := &api.Reply{Id: 7, Last: true, Answer: &api.Reply_Results{Results: &api.Results{Generation: 1 << 40, Results: []*api.Result{
		{}, {Code: -17, Message: "Vrf/red: exists", Field: "spec"}, {Final: []byte{0xff, 0}}, {}}}}}
	packed, err := proto.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{calls: map[uint64]*call{}}
	c.cutting.Add(1)
	agree := func(packed []byte) (readable bool) {
		t.Helper()
		var whole, rest api.Reply
		if err := proto.Unmarshal(packed, &whole); err != nil {
			return false
		}
		mine := &call{results: new([]Result)}
		c.calls = map[uint64]*call{whole.Id: mine}
		if err := proto.Unmarshal(c.cut(packed), &rest); err != nil {
			t.Errorf("%x: the rest cannot be read: %v", packed, err)
			return true
		}
		for _, r := range *mine.results {
			one := &api.Result{Code: r.Code, Message: r.Message, Final: r.Final}
			if rest.GetResults() == nil {
				t.Fatalf("%x: results without an answer", packed)
			}
			rest.GetResults().Results = append(rest.GetResults().Results, one)
		}
		// The field belongs to whole requests only, and fields of later releases do not matter.
		for _, m := range []*api.Reply{&whole, &rest} {
			for _, r := range m.GetResults().GetResults() {
				r.Field = ""
				r.ProtoReflect().SetUnknown(nil)
			}
		}
		if !proto.Equal(&whole, &rest) {
			t.Errorf("%x is read as %v, and the library reads %v", packed, &rest, &whole)
		}
		return true
	}
	if !agree(packed) || len(*c.calls[7].results) != 4 {
		t.Error("a reply cannot be read")
	}
	for i := range packed {
		agree(packed[:i])
		c.cut(packed[:i])
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		changed := bytes.Clone(packed)
		for range 1 + random.IntN(3) {
			changed[random.IntN(len(changed))] = byte(random.Uint32())
		}
		agree(changed)
	}
}
