package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/example"
	"sluice.dev/sluice/agent/object"
)

// descriptors are those of this program, which have no comments.
func descriptors(t *testing.T) []byte {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	files := api.File_session_proto.Imports()
	set.File = append(set.File, protodesc.ToFileDescriptorProto(files.Get(0).FileDescriptor.Imports().Get(0).FileDescriptor))
	set.File = append(set.File, protodesc.ToFileDescriptorProto(api.File_schema_proto))
	set.File = append(set.File,
		protodesc.ToFileDescriptorProto(api.File_acl_proto), protodesc.ToFileDescriptorProto(api.File_flow_proto),
		protodesc.ToFileDescriptorProto(api.File_gtpu_proto), protodesc.ToFileDescriptorProto(api.File_interface_proto),
		protodesc.ToFileDescriptorProto(api.File_ip_proto), protodesc.ToFileDescriptorProto(api.File_meter_proto),
		protodesc.ToFileDescriptorProto(api.File_hqos_proto),
		protodesc.ToFileDescriptorProto(api.File_port_proto), protodesc.ToFileDescriptorProto(api.File_session_proto),
	)
	packed, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func TestEveryKindAndFieldIsInTheReference(t *testing.T) {
	page, err := reference(descriptors(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Kinds() {
		_, section, found := strings.Cut(string(page), "\n## "+k.Name+"\n")
		if !found {
			t.Errorf("%s is missing", k.Name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, f := range k.Fields.List {
			if !strings.Contains(section, "| `"+f.Name+"` |") && !strings.Contains(section, "| `"+f.Name+"[]` |") {
				t.Errorf("%s.%s is missing", k.Name, f.Name)
			}
		}
	}
	for _, row := range []string{
		"| `access.outerVlan` | 0 to 4094 | untagged |  |",
		"| `gtpu.ethernet` | true or false | `false` | *Fixed.* |",
		"| `committedBurstTime` | time, 0 to 10s; `10ms` | 0 |  |",
		"| `nextHops[].interface` | the name of an Interface | the one whose network holds the address | *Needs* this [Interface](#interface). |",
	} {
		if !strings.Contains(string(page), row) {
			t.Errorf("there is no row %s", row)
		}
	}
}

func TestTheExamplesAreAcceptableTogether(t *testing.T) {
	r, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	written, err := example.Objects(r)
	if err != nil {
		t.Fatal(err)
	}
	var changes []object.Change
	for _, w := range written {
		changes = append(changes, object.Put(w.Object))
	}
	if _, err := object.NewSet(r).Apply(changes); err != nil {
		t.Fatal(err)
	}
}
