// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// eachField calls f once with each field of a message set, also of the messages in it.
func eachField(m protoreflect.Message, name string, f func(name string)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		of := fields.Get(i)
		path := name + "." + string(of.Name())
		switch {
		case of.IsList():
			m.Mutable(of).List().Append(protoreflect.ValueOfString("x"))
		case of.Message() != nil:
			eachField(m.Mutable(of).Message(), path, f)
			m.Clear(of)
			continue
		case of.Kind() == protoreflect.BoolKind:
			m.Set(of, protoreflect.ValueOfBool(true))
		case of.Kind() == protoreflect.StringKind:
			m.Set(of, protoreflect.ValueOfString("x"))
		case of.Kind() == protoreflect.Uint64Kind:
			m.Set(of, protoreflect.ValueOfUint64(7))
		default:
			m.Set(of, protoreflect.ValueOfUint32(7))
		}
		f(path)
		m.Clear(of)
	}
}

func TestEachFieldOfASessionChangesItsDigest(t *testing.T) {
	s := &api.Session{}
	before, count := map[uint64]string{digestOf(s): "none"}, 0
	eachField(s.ProtoReflect(), "session", func(name string) {
		count++
		if digestOf(s) != digestOf(proto.Clone(s).(*api.Session)) {
			t.Errorf("%s: two digests of one Session", name)
		}
		if other, there := before[digestOf(s)]; there {
			t.Errorf("%s has the digest of %s", name, other)
		}
		before[digestOf(s)] = name
	})
	if count < 40 {
		t.Errorf("only %d fields were set", count)
	}
}
