// SPDX-License-Identifier: Apache-2.0

package object

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// packedTexts returns the fields of a packed message as text; false: it has others.
func packedTexts(fs *Fields, spec string) (all []string, known bool) {
	p := packed{inOrder(spec)}
	known = true
	for r, more := p.next(); more; r, more = p.next() {
		at := slices.IndexFunc(fs.List, func(f *Field) bool { return f.in(r) })
		if at < 0 {
			known = false
			continue
		}
		f := fs.List[at]
		known = f.each(r, func(r record) {
			if f.Fields == nil {
				all = append(all, f.Name+"="+f.value(r).String())
				return
			}
			below, whole := packedTexts(f.Fields, r.text)
			all = append(all, f.Name+"{"+strings.Join(below, " ")+"}")
			known = known && whole
		}) && known
	}
	return all, known && p.rest == ""
}

// unpacked is the same of a message.
func unpacked(fs *Fields, m protoreflect.Message) (all []string) {
	for _, f := range fs.List {
		one := func(v protoreflect.Value) {
			if f.Fields == nil {
				all = append(all, f.Name+"="+v.String())
			} else {
				all = append(all, f.Name+"{"+strings.Join(unpacked(f.Fields, v.Message()), " ")+"}")
			}
		}
		switch v := m.Get(f.Desc); {
		case f.list:
			for i := range v.List().Len() {
				one(v.List().Get(i))
			}
		case m.Has(f.Desc):
			one(v)
		}
	}
	return all
}

func FuzzAPackedMessageEqualsItsUnpackedForm(f *testing.F) {
	r, err := NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	for i, m := range []proto.Message{
		&api.Session{Access: &api.Access{Port: "access", OuterVlan: 7}, Addresses: []string{"10.0.0.1/32", "2001:db8::/64"}, Policy: &api.Policy{Mss: 1400}},
		&api.Acl{Rules: []*api.AclRule{{Action: api.AclAction_PERMIT, Protocol: "tcp"}, {}}, Otherwise: api.AclAction_PERMIT},
		&api.Meter{CommittedRate: 1 << 60, CommittedBurst: 1},
	} {
		spec, err := Pack(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), spec)
	}
	f.Fuzz(func(t *testing.T, which uint8, spec []byte) {
		k := r.Kinds()[int(which)%len(r.Kinds())]
		// Any message is read to its end.
		packedTexts(k.Fields, string(spec))
		m := k.Message.New()
		if proto.Unmarshal(spec, m.Interface()) != nil {
			return
		}
		again, err := Pack(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		got, known := packedTexts(k.Fields, string(again))
		if want := unpacked(k.Fields, m); known && !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", k.Name, got, want)
		}
	})
}

func TestMessagesWithDifferentPartsDiffer(t *testing.T) {
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	access := func(vlan uint32) *api.Access { return &api.Access{Port: "access", OuterVlan: vlan} }
	specs := []proto.Message{
		&api.Session{},
		&api.Session{Access: access(1), Addresses: []string{"192.0.2.1/32", "2001:db8::/64"}, Policy: &api.Policy{Mss: 1400}},
		&api.Session{Access: access(1), Addresses: []string{"192.0.2.1/32"}, Policy: &api.Policy{Mss: 1400, AclUp: "web"}},
		&api.Session{Access: access(2), Addresses: []string{"192.0.2.1/32", "2001:db8::/64"}},
		&api.Session{Addresses: []string{"2001:db8::/64", "192.0.2.1/32"}, Policy: &api.Policy{Mss: 1400}},
	}
	k := r.Kind("Session")
	for i, a := range specs {
		for j, b := range specs {
			var stored [2]*StoredObject
			for n, spec := range []proto.Message{a, b} {
				packed, err := Pack(spec)
				if err != nil {
					t.Fatal(err)
				}
				if stored[n], err = r.NewStored(k.Key("s"), nil, nil, packed); err != nil {
					t.Fatal(err)
				}
			}
			if whole, parts := k.Diff(a, b), stored[0].DiffSpec(stored[1]); !slices.Equal(whole, parts) {
				t.Errorf("%d and %d: %v, not %v", i, j, parts, whole)
			}
			if whole, parts := k.Replaces(a, b), stored[0].Replaces(stored[1]); whole != parts {
				t.Errorf("%d and %d: %v, not %v", i, j, parts, whole)
			}
		}
	}
}
