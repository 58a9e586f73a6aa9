// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// agree reports whether a packed api.Objects is read as the library reads it.
func agree(t *testing.T, packed []byte) (readable bool) {
	t.Helper()
	var m api.Objects
	listed, next, err := cutPage(nil, string(packed))
	if wrong := proto.Unmarshal(packed, &m); wrong != nil || err != nil {
		// A text that the library looks into, such as a group, is none here.
		if wrong != nil && err == nil && !strings.Contains(wrong.Error(), "group") {
			t.Errorf("%x is read, and the library says %v", packed, wrong)
		}
		return false
	}
	if next != m.NextPage || len(listed) != len(m.Objects) {
		t.Fatalf("%x: %d objects and page %q, not %d and %q", packed, len(listed), next, len(m.Objects), m.NextPage)
	}
	for i, o := range listed {
		if o != (Packed{m.Objects[i].Kind, m.Objects[i].Name, string(m.Objects[i].Spec), m.Objects[i].Owner}) {
			t.Errorf("%x: object %d is %q, not %v", packed, i, o, m.Objects[i])
		}
	}
	return true
}

func TestAPageIsReadAsTheLibraryReadsIt(t *testing.T) {
	page := &api.Objects{NextPage: "Session s-2", Objects: []*api.Object{
		{Kind: "Port", Name: "access", Spec: []byte{0xff, 0}}, {Kind: "Session", Name: strings.Repeat("s", 200), Spec: make([]byte, 300), Owner: "pppoe"},
		{}, {Kind: "Session", Name: "s-1", Owner: "ipoe"},
	}}
	packed, err := proto.Marshal(page)
	if err != nil {
		t.Fatal(err)
	}
	// Fields of later releases are skipped.
	packed = protowire.AppendVarint(protowire.AppendTag(packed, 99, protowire.VarintType), 1<<40)
	packed = protowire.AppendFixed64(protowire.AppendTag(packed, 98, protowire.Fixed64Type), 7)
	packed = protowire.AppendString(protowire.AppendTag(packed, 97, protowire.BytesType), "later")
	if !agree(t, packed) {
		t.Error("a page cannot be read")
	}
	for i := range packed {
		agree(t, packed[:i])
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		changed := append([]byte(nil), packed...)
		for range 1 + random.IntN(3) {
			changed[random.IntN(len(changed))] = byte(random.Uint32())
		}
		agree(t, changed)
	}
}

func TestObjectsAreCutOutOfTheReplyToAListingAlone(t *testing.T) {
	reply := &api.Reply{Id: 7, Last: true, Result: &api.Result{}, Answer: &api.Reply_Objects{Objects: &api.Objects{NextPage: "next"}}}
	packed, err := proto.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	read := func(c *conn, packed []byte) *api.Reply {
		t.Helper()
		var m api.Reply
		if err := proto.Unmarshal(c.cut(packed), &m); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	mine, other := &call{objects: new(string)}, &call{}
	c := &conn{calls: map[uint64]*call{7: mine, 8: other}}
	if got := read(c, packed); !proto.Equal(got, reply) {
		t.Errorf("without a listing, %v is %v", reply, got)
	}
	c.cutting.Add(1)
	got := read(c, packed)
	if got.Id != 7 || !got.Last || got.GetObjects() == nil || got.GetObjects().NextPage != "" || got.GetAnswer() == nil {
		t.Errorf("the rest is %v", got)
	}
	if _, next, err := cutPage(nil, *mine.objects); err != nil || next != "next" {
		t.Errorf("page %q, %v", next, err)
	}
	for _, id := range []uint64{8, 9} {
		reply.Id = id
		if packed, err = proto.Marshal(reply); err != nil {
			t.Fatal(err)
		}
		if got := read(c, packed); !proto.Equal(got, reply) {
			t.Errorf("of another call, %v is %v", reply, got)
		}
	}
	for i := range packed {
		c.cut(packed[:i])
	}
}
