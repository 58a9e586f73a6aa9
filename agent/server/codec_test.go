// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func TestAMessageThatIsMuchLargerInMemoryIsRefused(t *testing.T) {
	many := &api.Changes{}
	for i := range 50000 {
		many.Put = append(many.Put, &api.Intent{Kind: "Vrf", Name: fmt.Sprint(i), Labels: map[string]string{"a": "b"}})
		many.Delete = append(many.Delete, &api.ObjectName{Kind: "Vrf", Name: fmt.Sprint(i)})
	}
	well, err := proto.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	few, err := proto.Marshal(&api.Changes{Put: []*api.Intent{{}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	empty := few[:2]
	codec := bounded{encoding.GetCodecV2("proto")}
	for _, c := range []struct {
		sentence string
		text     []byte
		accepted bool
	}{
		{"many objects", well, true},
		{"some empty ones", bytes.Repeat(empty, messagesFree), true},
		{"very many empty ones", bytes.Repeat(empty, 10*messagesFree), false},
		{"what is cut off", well[:len(well)-1], false},
		{"nothing that can be read", bytes.Repeat([]byte{0xff}, 10*messagesFree), false},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.text)}, &api.Changes{})
			if (err == nil) != c.accepted {
				t.Error(err)
			}
		})
	}
}
