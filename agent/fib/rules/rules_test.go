// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"a route to loopback addresses", "Route", "{prefix: 127.1.0.0/16, nextHops: [{address: 192.0.2.1}]}",
			"prefix: nothing is forwarded to it: it is loopback (RFC 1122): found \"127.1.0.0/16\"; accepted: another prefix; or action blackhole or prohibit"},
		{"a route to link-local addresses", "Route", "{prefix: 'fe80::/64', nextHops: [{address: '2001:db8::1'}]}", "prefix: nothing is forwarded to it: it is link-local (RFC 4291)"},
		{"a route to mapped addresses", "Route", "{prefix: '::ffff:0:0/96', nextHops: [{address: '2001:db8::1'}]}", "prefix: an IPv4 prefix written as IPv6"},
		{"a blackhole for loopback addresses", "Route", "{prefix: 127.0.0.0/8, action: blackhole}", ""},
		{"a default route", "Route", "{prefix: 0.0.0.0/0, nextHops: [{address: 192.0.2.1}]}", ""},
		{"a route to nowhere", "Route", "{prefix: 0.0.0.0/0}", "nextHops: missing"},
		{"a next hop that leads nowhere", "Route", "{prefix: 0.0.0.0/0, nextHops: [{weight: 1}]}", "nextHops[0]: leads nowhere"},
		{"a route by a group", "Route", "{prefix: 0.0.0.0/0, nextHopGroup: g}", ""},
		{"a route by a group and by next hops", "Route", "{prefix: 0.0.0.0/0, nextHopGroup: g, nextHops: [{address: 192.0.2.1}]}", "nextHopGroup: the route has next hops of its own, too"},
		{"a black hole with a group", "Route", "{prefix: 0.0.0.0/0, action: blackhole, nextHopGroup: g}", "nextHopGroup: no effect"},
		{"a group", "NextHopGroup", "{nextHops: [{interface: i}, {address: '2001:db8::1', weight: 2}]}", ""},
		{"a group without next hops", "NextHopGroup", "{}", "nextHops: "},
		{"a group of two families", "NextHopGroup", "{nextHops: [{address: 192.0.2.1}, {address: '2001:db8::1'}]}", "nextHops[1].address: not of the others' family"},
		{"a group that leads nowhere", "NextHopGroup", "{nextHops: [{weight: 1}]}", "nextHops[0]: leads nowhere"},
		{"a next hop of another family", "Route", "{prefix: 0.0.0.0/0, nextHops: [{interface: i}, {address: '2001:db8::1'}]}", "nextHops[1].address: not of the prefix's family"},
		{"a black hole with next hops", "Route", "{prefix: 0.0.0.0/0, action: blackhole, nextHops: [{interface: i}]}", "nextHops: no effect"},
	})
}

func TestANextHopOfAnotherTypeNeedsNoAddress(t *testing.T) {
	// NextHop as it is with one more type.
	file := protodesc.ToFileDescriptorProto((&api.NextHop{}).ProtoReflect().Descriptor().ParentFile())
	name := "labels.proto"
	file.Name = &name
	for _, m := range file.MessageType {
		if m.GetName() == "NextHop" {
			label, number, kind := "labels", int32(1000), descriptorpb.FieldDescriptorProto_TYPE_STRING
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: &label, Number: &number, Type: &kind})
		}
	}
	made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	hop := dynamicpb.NewMessage(made.Messages().ByName("NextHop"))
	hop.Set(hop.Descriptor().Fields().ByName("weight"), protoreflect.ValueOfUint32(3))
	if hasType(hop) {
		t.Error("a weight alone is a type of next hop")
	}
	hop.Set(hop.Descriptor().Fields().ByName("labels"), protoreflect.ValueOfString("16"))
	if !hasType(hop) {
		t.Error("the field of a type is not seen")
	}
}
