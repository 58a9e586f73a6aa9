// SPDX-License-Identifier: Apache-2.0

// Package objecttest has kinds that the contract does not have (yet), for tests.
package objecttest

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func field(name string, number int32, notes *api.Field) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{
		Name: &name, Number: &number, Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: &descriptorpb.FieldOptions{},
	}
	proto.SetExtension(f.Options, api.E_Field, notes)
	return f
}

// Secretive returns a registry of the contract's kinds and one more that the data plane understands: Peer {address, password, login {user,
// key}, old}, where password, key and the list old are secret.
func Secretive(t testing.TB) *object.Registry {
	t.Helper()
	login := &descriptorpb.DescriptorProto{Name: proto.String("Login"), Field: []*descriptorpb.FieldDescriptorProto{
		field("user", 1, &api.Field{}), field("key", 2, &api.Field{Secret: true})}}
	below := field("login", 3, &api.Field{})
	below.Type, below.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".test.Login")
	old := field("old", 4, &api.Field{Secret: true})
	old.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	peer := &descriptorpb.DescriptorProto{Name: proto.String("Peer"), Options: &descriptorpb.MessageOptions{}, Field: []*descriptorpb.FieldDescriptorProto{
		field("address", 1, &api.Field{}), field("password", 2, &api.Field{Secret: true}), below, old}}
	proto.SetExtension(peer.Options, api.E_Kind, &api.Kind{Plural: "peers", Plane: api.Plane_DATAPLANE})
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("peer.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{login, peer}, Dependency: []string{"schema.proto"},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	var types protoregistry.Types
	for _, name := range []protoreflect.Name{"Login", "Peer"} {
		if err := types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().ByName(name))); err != nil {
			t.Fatal(err)
		}
	}
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		if proto.HasExtension(m.Descriptor().Options(), api.E_Kind) {
			err = types.RegisterMessage(m)
		}
		return err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := object.Discover(&types)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Object reads one object from YAML.
func Object(t testing.TB, r *object.Registry, kind, name, spec string) *object.Object {
	t.Helper()
	text := "{apiVersion: " + object.APIVersion + ", kind: " + kind + ", metadata: {name: " + name + "}, spec: " + spec + "}"
	written, err := r.Decode(strings.NewReader(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return written[0].Object
}

// Case is a spec of a kind, and the beginning of its first error; empty: the spec is acceptable.
type Case = struct{ Sentence, Kind, Spec, Problem string }

// Check checks specs by their annotations and by rules.
func Check(t *testing.T, rules []object.KindRules, cases []Case) {
	t.Helper()
	r, err := object.NewRegistry(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Sentence, func(t *testing.T) {
			written, err := r.Decode(strings.NewReader("{apiVersion: "+object.APIVersion+", kind: "+c.Kind+", metadata: {name: x}, spec: "+c.Spec+"}"), "")
			if err == nil {
				err = r.Whole(written).Or()
			}
			if c.Problem == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if errs := object.AllErrors(err); len(errs) == 0 || !strings.HasPrefix(errs[0].Sentence(), c.Problem) {
				t.Errorf("error %v\nnot %s", err, c.Problem)
			}
		})
	}
}

// Warned checks the warnings of objects without mistakes: Case.Problem is the beginning of the first one, "field: problem"; empty: there is none.
func Warned(t *testing.T, rules []object.KindRules, cases []Case) {
	t.Helper()
	r, err := object.NewRegistry(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Sentence, func(t *testing.T) {
			written, err := r.Decode(strings.NewReader("{apiVersion: "+object.APIVersion+", kind: "+c.Kind+", metadata: {name: x}, spec: "+c.Spec+"}"), "")
			if err == nil {
				err = r.Whole(written).Or()
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			r.Warn(written[0].Object, func(field, problem, _, _ string) { got = append(got, field+": "+problem) })
			if c.Problem == "" && len(got) > 0 || c.Problem != "" && (len(got) == 0 || !strings.HasPrefix(got[0], c.Problem)) {
				t.Errorf("warnings %q\nnot %s", got, c.Problem)
			}
		})
	}
}
