// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice.dev/sluice/agent/api"
)

// layered parses layers of one object, "spec" or "labels | spec". A layer need not be a whole object.
func layered(t testing.TB, kind string, texts ...string) []*StoredObject {
	t.Helper()
	r := registry(t)
	var all []*StoredObject
	for _, text := range texts {
		labels, spec, both := strings.Cut(text, " | ")
		if !both {
			labels, spec = "{}", text
		}
		written, err := r.Decode(strings.NewReader(fmt.Sprintf("{apiVersion: sluice.dev/v1, kind: %s, metadata: {name: x, labels: %s}, spec: %s}", kind, labels, spec)), "")
		if err != nil {
			t.Fatal(err)
		}
		x, err := r.ExamineLayers([]Change{Put(written[0].Object)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x.Objects[0])
	}
	return all
}

// counted is the merged object, in lines: "policy.mss: 1300".
func counted(k *StoredObject) string {
	var lines []string
	for _, s := range Layers([]*StoredObject{k})[0] {
		lines = append(lines, s.Field+": "+s.Value)
	}
	return strings.Join(lines, "\n")
}

func TestTheFirstLayerWithAFieldCounts(t *testing.T) {
	access := "access: {port: p, outerVlan: 7}"
	for _, c := range []struct {
		sentence, kind string
		layers         []string
		want           string
	}{
		{"fields of different owners are one object", "Session", []string{"{policy: {mss: 1300}}", "{" + access + ", policy: {aclUp: web}}"},
			"access: {port: p, outerVlan: 7}\npolicy.aclUp: web\npolicy.mss: 1300 B"},
		{"the first value counts", "Session", []string{"{policy: {mss: 1300}}", "{" + access + ", policy: {mss: 1400}}"},
			"access: {port: p, outerVlan: 7}\npolicy.mss: 1300 B"},
		{"what belongs together is taken from one", "Session", []string{"{access: {port: q}}", "{" + access + "}"}, "access: {port: q}"},
		{"a list is taken as a whole", "Route", []string{"{nextHops: [{interface: a}]}", "{prefix: 0.0.0.0/0, nextHops: [{interface: b}, {interface: c}]}"},
			"prefix: 0.0.0.0/0\nnextHops: [{interface: a}]"},
		{"addresses are those of all", "Interface", []string{"{addresses: [192.0.2.9/24, '2001:DB8::1/64']}", "{mtu: 1500, addresses: ['2001:db8:0::1/64', 192.0.2.10/24]}"},
			"addresses: 192.0.2.10/24, 192.0.2.9/24, 2001:db8::1/64\nmtu: 1500 B"},
		{"the addresses of one stay in their order", "Interface", []string{"{mtu: 1500}", "{addresses: [192.0.2.9/24, 10.0.0.1/24]}"},
			"addresses: 192.0.2.9/24, 10.0.0.1/24\nmtu: 1500 B"},
		{"false counts where it is said", "Session", []string{"{policy: {anySource: false}}", "{" + access + ", policy: {anySource: true}}"}, "access: {port: p, outerVlan: 7}"},
		{"and not where it is not", "Session", []string{"{policy: {mss: 1300}}", "{" + access + ", policy: {anySource: true}}"},
			"access: {port: p, outerVlan: 7}\npolicy.mss: 1300 B\npolicy.anySource: true"},
		{"so does a word that is what leaving it out means", "Acl", []string{"{otherwise: deny}", "{otherwise: permit}"}, ""},
		{"and a list that is empty", "Acl", []string{"{rules: []}", "{rules: [{action: permit}], otherwise: permit}"}, "otherwise: permit"},
		{"labels have owners, too", "Vrf", []string{"{city: bonn} | {}", "{city: ulm, tier: a} | {description: d}"},
			"description: d\nmetadata.labels.city: bonn\nmetadata.labels.tier: a"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			merged, err := Merge(layered(t, c.kind, c.layers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := counted(merged); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if len(merged.Empty()) > 0 {
				t.Errorf("says %q to be empty", merged.Empty())
			}
		})
	}
}

func TestContradictionsOfTwoLayers(t *testing.T) {
	for _, c := range []struct{ sentence, kind, mine, theirs, want string }{
		{"different fields", "Session", "{policy: {mss: 1300}}", "{policy: {aclUp: a}}", ""},
		{"the same value", "Session", "{policy: {mss: 1300}}", "{policy: {mss: 1300, aclUp: a}}", ""},
		{"the same in another way", "Session", "{access: {port: p, mac: '02:00:00:00:00:0A'}}", "{access: {port: p, mac: '02:00:00:00:00:0a'}}", ""},
		{"another value", "Session", "{policy: {mss: 1300}}", "{policy: {mss: 1400}}", "policy.mss 1300 B, not 1400 B"},
		{"a part of what belongs together", "Session", "{access: {port: p, outerVlan: 8}}", "{access: {port: p, outerVlan: 9}}", "access.outerVlan 8, not 9"},
		{"a rule of a list", "Acl", "{rules: [{protocol: tcp}, {protocol: udp}]}", "{rules: [{protocol: tcp}, {protocol: icmp}]}", "rules[1].protocol udp, not icmp"},
		{"addresses", "Interface", "{addresses: [192.0.2.1/24]}", "{addresses: [192.0.2.2/24]}", ""},
		{"nothing, and a value", "Session", "{policy: {anySource: false}}", "{policy: {anySource: true}}", "policy.anySource false, not true"},
		{"a list, and none", "Acl", "{rules: [{protocol: udp}]}", "{rules: []}", "rules [{action: deny, protocol: udp}], not []"},
		{"a label", "Vrf", "{city: ulm} | {}", "{city: bonn} | {}", "metadata.labels.city ulm, not bonn"},
		{"an empty label", "Vrf", "{city: ''} | {}", "{city: bonn} | {}", "metadata.labels.city \"\", not bonn"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			both := layered(t, c.kind, c.mine, c.theirs)
			var all []string
			for _, one := range both[0].Contradicts(both[1]) {
				all = append(all, one.Field+" "+one.Mine+", not "+one.Theirs)
			}
			if got := strings.Join(all, "; "); got != c.want {
				t.Errorf("got %q, not %q", got, c.want)
			}
		})
	}
}

func TestExplicitZerosAreStoredAndNoDifference(t *testing.T) {
	layers := layered(t, "Session", "{city: bonn} | {access: {port: p, proxyArp: false}, policy: {anySource: false, mss: 0}, addresses: []}",
		"{city: bonn} | {access: {port: p}, policy: {}}", "{access: {port: p}, policy: {}}")
	if got := strings.Join(layers[0].Empty(), " "); got != "addresses policy.anySource policy.mss" {
		t.Errorf("says %s to be empty", got)
	}
	if !layers[0].Equal(layers[1]) || layers[0].SameLayer(layers[1]) || layers[0].Equal(layers[2]) {
		t.Error("it is no difference, or all is the same")
	}
	if got, is := layers[0].Label("city"); got != "bonn" || !is || layers[0].Spec() != layers[1].Spec() {
		t.Errorf("city %q, spec %q", got, layers[0].Spec())
	}
	n, err := registry(t).LayerNode(layers[0].Object())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(JSON(Member(n, "spec"))), `{"access":{"port":"p"},"addresses":[],"policy":{"mss":0,"anySource":false}}`; got != want {
		t.Errorf("written as %s, not %s", got, want)
	}
	for _, c := range []struct {
		empty   []string
		problem string
	}{
		{[]string{"policy.mss", "policy.anySource"}, "policy.anySource: duplicate empty field, or not in order"},
		{[]string{"access.outerVlan"}, "access.outerVlan: there is no such field that can be empty"},
		{[]string{"policy"}, "policy: there is no such field that can be empty"},
		{[]string{"nothing"}, "nothing: there is no such field that can be empty"},
		{[]string{"vrf"}, "vrf: listed as empty, but has a value: found a"},
	} {
		o := layered(t, "Session", "{access: {port: p}, vrf: a}")[0].Object()
		o.Empty = c.empty
		if errs := registry(t).CheckLayer(o); len(errs) != 1 || !strings.HasPrefix(errs[0].Sentence(), c.problem) {
			t.Errorf("%q: %v", c.empty, errs)
		}
	}
}

// exclusive is a registry of the kind Thing {oneof core {Inner {left, right} inner, string word}}, whose inner is not owned as a whole.
func exclusive(t *testing.T) *Registry {
	t.Helper()
	text := func(name string, number int32) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	inner := text("inner", 1)
	inner.Type, inner.TypeName, inner.OneofIndex = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String(".test.Inner"), proto.Int32(0)
	word := text("word", 2)
	word.OneofIndex = proto.Int32(0)
	thing := &descriptorpb.DescriptorProto{Name: proto.String("Thing"), Options: &descriptorpb.MessageOptions{},
		Field: []*descriptorpb.FieldDescriptorProto{inner, word}, OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("core")}}}
	proto.SetExtension(thing.Options, api.E_Kind, &api.Kind{Plural: "things"})
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("thing.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{thing, {Name: proto.String("Inner"), Field: []*descriptorpb.FieldDescriptorProto{text("left", 1), text("right", 2)}}},
		Dependency:  []string{"schema.proto"}}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	var types protoregistry.Types
	for _, name := range []protoreflect.Name{"Thing", "Inner"} {
		if err := types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().ByName(name))); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Discover(&types)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestObjectsWithoutANameAreNotStored(t *testing.T) {
	r := registry(t)
	for _, c := range []struct {
		labels  map[string]string
		empty   []string
		problem string
	}{
		{map[string]string{"": "x"}, nil, `Vrf/a: metadata.labels: a label without a key: found "x"; accepted: ` + labelAccepted},
		{map[string]string{"": "", "b": "y"}, nil, `Vrf/a: metadata.labels: a label without a key: found ""; accepted: ` + labelAccepted},
		{nil, []string{""}, "Vrf/a: the list of empty fields has one without a name; accepted: fields of the kind"},
		{map[string]string{"b": ""}, []string{"description"}, "<nil>"},
	} {
		k, err := r.NewStored(Key{"Vrf", "a"}, c.labels, c.empty, nil)
		if fmt.Sprint(err) != c.problem {
			t.Errorf("error %v\nnot   %s", err, c.problem)
		}
		if err == nil && (!maps.Equal(k.Labels(), c.labels) || !slices.Equal(k.Empty(), c.empty)) {
			t.Errorf("labels %v, empty %v", k.Labels(), k.Empty())
		}
	}
}

func TestLabelsAreBoundedAsInKubernetes(t *testing.T) {
	r := registry(t)
	long := strings.Repeat("x", 63)
	several := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("l%d", i)] = "v"
		}
		return all
	}
	for _, c := range []struct {
		labels map[string]string
		well   bool
	}{
		{map[string]string{long: long}, true},
		{map[string]string{long + "x": ""}, false},
		{map[string]string{"a": long + "x"}, false},
		{map[string]string{strings.Repeat("p", 253) + "/" + long: ""}, true},
		{map[string]string{strings.Repeat("p", 254) + "/a": ""}, false},
		{map[string]string{"example.org/" + long + "x": ""}, false},
		{map[string]string{"example.org/": ""}, false},
		{several(MaxLabels), true},
		{several(MaxLabels + 1), false},
		{several(100_000), false},
	} {
		o, err := r.New("Vrf", "a", c.labels, nil)
		if err != nil {
			t.Fatal(err)
		}
		mistakes := r.CheckLayer(o)
		if (len(mistakes) == 0) != c.well || len(mistakes) > 1 || len(mistakes) == 1 && !strings.HasPrefix(mistakes[0].Field, "metadata.labels") {
			t.Errorf("%d labels: %v", len(c.labels), mistakes)
		}
	}
	// The merged object is bounded, too.
	mine, theirs := several(MaxLabels), map[string]string{"another": "v"}
	var layers []*StoredObject
	for _, labels := range []map[string]string{mine, theirs} {
		if _, err := r.NewStored(Key{"vrf", "a"}, labels, nil, nil); err == nil {
			t.Error("a kind by another word")
		}
		k, err := r.NewStored(Key{"Vrf", "a"}, labels, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, k)
	}
	together, err := Merge(layers)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.ExamineStored([]*StoredObject{together}); err == nil || !strings.Contains(err.Error(), "too many labels: found 257; accepted: at most 256") {
		t.Errorf("error %v", err)
	}
}

func TestFieldsThatExcludeEachOtherAreTakenFromOne(t *testing.T) {
	r := exclusive(t)
	for _, c := range []struct{ mine, theirs, want, differ string }{
		{"{inner: {left: a}}", "{inner: {right: b}}", "inner.left: a\ninner.right: b", ""},
		{"{inner: {left: a}}", "{inner: {left: c, right: b}}", "inner.left: a\ninner.right: b", "inner.left a, not c"},
		{"{inner: {left: a}}", "{word: b}", "inner.left: a", "inner {left: a}, not word: b"},
		{"{word: b}", "{inner: {left: a}}", "word: b", "word b, not inner: {left: a}"},
		{"{}", "{inner: {}}", "", ""},
		{"{word: a}", "{word: b}", "word: a", "word a, not b"},
	} {
		var both []*StoredObject
		for _, text := range []string{c.mine, c.theirs} {
			written, err := r.Decode(strings.NewReader("{apiVersion: sluice.dev/v1, kind: Thing, metadata: {name: x}, spec: "+text+"}"), "")
			if err != nil {
				t.Fatal(err)
			}
			x, err := r.ExamineLayers([]Change{Put(written[0].Object)})
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, x.Objects[0])
		}
		merged, err := Merge(both)
		if err != nil {
			t.Fatal(err)
		}
		if got := counted(merged); got != c.want {
			t.Errorf("%s over %s is\n%s\nnot\n%s", c.mine, c.theirs, got, c.want)
		}
		var differ []string
		for _, one := range both[0].Contradicts(both[1]) {
			differ = append(differ, one.Field+" "+one.Mine+", not "+one.Theirs)
		}
		if got := strings.Join(differ, "; "); got != c.differ {
			t.Errorf("%s against %s differs in %q, not %q", c.mine, c.theirs, got, c.differ)
		}
	}
}

// Numbers choose the values of each field; the model is a map from field to value.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{1, 2, 0, 1, 2, 0, 1, 2, 0}, []byte{2, 1, 0, 0, 1, 2, 2, 1, 1}, []byte{0, 0, 1, 1, 1, 1, 1, 1, 1})
	f.Add([]byte{0, 0, 0, 0, 0, 3, 3, 3, 3}, []byte{}, []byte{3, 3, 3, 3, 1, 1, 1, 1, 1})
	fields := []struct {
		name   string
		values []string // after nothing
	}{
		{"access", []string{"{port: p, outerVlan: 7}", "{port: q, mac: 02:00:00:00:00:01}"}},
		{"vrf", []string{"red", "blue", `""`}},
		{"gtpu", []string{"{localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 2}", "{localAddress: 192.0.2.3, localTeid: 1, remoteAddress: 192.0.2.4, remoteTeid: 2}"}},
		{"policy.aclUp", []string{"a", "b", `""`}},
		{"policy.mss", []string{"1300 B", "1400 B", "0 B"}},
		{"policy.anySource", []string{"true", "false"}},
		{"metadata.labels.city", []string{"bonn", "ulm"}},
		{"addresses", []string{"192.0.2.1/32", "192.0.2.1/32, 2001:db8::/64"}},
	}
	empties := []string{`""`, "0 B", "false"}
	f.Fuzz(func(t *testing.T, one, two, three []byte) {
		var texts []string
		var chosenFields []map[string]string
		for _, chosen := range [][]byte{one, two, three} {
			text := map[string]string{}
			for i, field := range fields {
				if i < len(chosen) && int(chosen[i])%(len(field.values)+1) > 0 {
					text[field.name] = field.values[int(chosen[i])%(len(field.values)+1)-1]
				}
			}
			chosenFields = append(chosenFields, text)
			var labels, policy, spec []string
			for _, name := range slices.Sorted(maps.Keys(text)) {
				switch group, last, _ := strings.Cut(name, "."); {
				case group == "metadata":
					labels = append(labels, "city: "+text[name])
				case group == "policy":
					policy = append(policy, last+": "+text[name])
				case name == "addresses":
					spec = append(spec, "addresses: ["+text[name]+"]")
				default:
					spec = append(spec, name+": "+text[name])
				}
			}
			if len(policy) > 0 {
				spec = append(spec, "policy: {"+strings.Join(policy, ", ")+"}")
			}
			texts = append(texts, "{"+strings.Join(labels, ", ")+"} | {"+strings.Join(spec, ", ")+"}")
		}
		layers := layered(t, "Session", texts...)
		merged, err := Merge(layers)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		addresses := map[string]bool{}
		for _, text := range slices.Backward(chosenFields) {
			for name, value := range text {
				want[name] = value
				if name == "addresses" {
					for _, a := range strings.Split(value, ", ") {
						addresses[a] = true
					}
				}
			}
		}
		if len(addresses) > 0 {
			want["addresses"] = strings.Join(slices.Sorted(maps.Keys(addresses)), ", ")
		}
		maps.DeleteFunc(want, func(_, value string) bool { return slices.Contains(empties, value) })
		got := map[string]string{}
		for _, s := range Layers([]*StoredObject{merged})[0] {
			got[s.Field] = s.Value
		}
		if !maps.Equal(got, want) {
			t.Fatalf("of\n%s\ncame\n%v\nnot\n%v", strings.Join(texts, "\n"), got, want)
		}
		// The fields that count are those of the merged object, and overridden fields differ from it.
		for i, all := range Layers(layers) {
			for _, s := range all {
				if s.Field == "addresses" {
					continue
				}
				value, there := want[s.Field]
				if !there && slices.Contains(empties, s.Value) {
					value = s.Value
				}
				if (s.Value == value) == s.Overridden {
					t.Fatalf("layer %d of\n%s\nsays %+v, and %q counts", i, strings.Join(texts, "\n"), s, value)
				}
			}
		}
		// To say it all again is no contradiction, and to merge twice is to merge once.
		again, err := Merge([]*StoredObject{merged, layers[0], layers[1], layers[2]})
		if err != nil || !again.Equal(merged) {
			t.Fatalf("merged again: %v\n%s\nnot\n%s", err, counted(again), counted(merged))
		}
	})
}
