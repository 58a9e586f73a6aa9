// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"
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

// objects reads "Kind name {spec}" lines.
func objects(t testing.TB, lines ...string) []Change {
	t.Helper()
	var changes []Change
	for _, line := range lines {
		part := strings.SplitN(line, " ", 3)
		if part[0] == "delete" {
			kind, name, _ := strings.Cut(part[1], "/")
			changes = append(changes, Remove(Key{kind, name}))
			continue
		}
		written, err := decode(t, fmt.Sprintf("{apiVersion: sluice.dev/v1, kind: %s, metadata: {name: %s}, spec: %s}", part[0], part[1], part[2]))
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, Put(written[0].Object))
	}
	return changes
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format       api.Format
		good, wrong  []string
		written, one string
	}{
		{api.Format_IP, []string{"0.0.0.0", "::"}, []string{"1.2.3", "1.2.3.4/32", "fe80::1%eth0", "::ffff:1.2.3.4", "01.2.3.4"}, "2001:DB8:0:0::1", "2001:db8::1"},
		{api.Format_PREFIX, []string{"0.0.0.0/0", "::/0"}, []string{"1.2.3.4", "1.2.3.4/33", "1.2.3.4/24", "1.2.3.0/024"}, "2001:DB8:0::/48", "2001:db8::/48"},
		{api.Format_IP_PREFIX, []string{"192.0.2.1/24", "2001:db8::1/64"}, []string{"0.0.0.0/0", "224.0.0.1/4", "192.0.2.1"}, "2001:DB8::1/64", "2001:db8::1/64"},
		{api.Format_MAC, []string{"02:00:00:00:00:01"}, []string{"02-00-00-00-00-01", "0200.0000.0001", "01:00:5e:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00:01:02:03"}, "02:00:00:00:00:AB", "02:00:00:00:00:ab"},
		{api.Format_PORT_RANGE, []string{"0", "65535", "0-65535"}, []string{"65536", "2-1", "-1", "1-", "08", "+1", "a"}, "1-2", "1-2"},
		{api.Format_VLAN_RANGE, []string{"1", "4094", "1-4094", "7-7"}, []string{"0", "4095", "1-4095", "0-9", "2-1", "1-", "08", "a"}, "100-199", "100-199"},
		{api.Format_IP_PROTOCOL, []string{"0", "255"}, []string{"256", "ospf", ""}, "UDP", "17"},
		{api.Format_DSCP, []string{"63", "va", "cs0", "af43"}, []string{"64", "af14", "af51", "cs8", "cs", "-1"}, "EF", "46"},
		{api.Format_TCP_FLAGS, []string{"syn", "!fin,cwr"}, []string{"syn,", "syn,!syn", "xyz", "!"}, "!ACK, syn", "syn,!ack"},
		{api.Format_ICMP_TYPE, []string{"0", "255/255"}, []string{"256", "1/", "/1", "1/2/3"}, "3/4", "3/4"},
		{api.Format_NAMESPACE, []string{"routing", "site-1:routing-of-many-letters"}, []string{"a/b", "a b", "..", strings.Repeat("n", 201)}, "x", "x"},
		{api.Format_LINUX_NAME, []string{"wan0", "123456789012345"}, []string{"1234567890123456", "a/b", "a b", "..", "a:b"}, "x", "x"},
		{api.Format_TEXT, []string{"ünï"}, []string{"a\nb", "\x00", "\xff", strings.Repeat("x", 1025)}, "x", "x"},
	} {
		t.Run(c.format.String(), func(t *testing.T) {
			if got, err := Canonical(c.format, c.written); err != nil || got != c.one {
				t.Errorf("%q is %q, error %v", c.written, got, err)
			}
			for _, s := range append(c.good, c.one) {
				if _, err := Canonical(c.format, s); err != nil {
					t.Errorf("%q is refused: %v", s, err)
				}
			}
			for _, s := range c.wrong {
				if got, err := Canonical(c.format, s); err == nil {
					t.Errorf("%q is accepted as %q", s, got)
				}
			}
		})
	}
}

func TestNumbersWithUnits(t *testing.T) {
	for _, c := range []struct {
		unit    api.Unit
		written string
		want    uint64
		again   string
	}{
		{api.Unit_BITS_PER_SECOND, "100M", 100_000_000, "100M"},
		{api.Unit_BITS_PER_SECOND, "1.5 Gbit/s", 1_500_000_000, "1500M"},
		{api.Unit_BITS_PER_SECOND, "8000", 8000, "8K"},
		{api.Unit_BITS_PER_SECOND, "9bps", 9, "9"},
		{api.Unit_BYTES, "64KB", 64_000, "64KB"},
		{api.Unit_BYTES, "64KiB", 65536, "64KiB"},
		{api.Unit_BYTES, "128KB", 128_000, "128KB"},
		{api.Unit_BYTES, "125 KiB", 128_000, "128KB"},
		{api.Unit_BYTES, "64MiB", 64 << 20, "64MiB"},
		{api.Unit_BYTES, "1500B", 1500, "1500"},
		{api.Unit_BYTES, "9K", 9000, "9000"},
		{api.Unit_NANOSECONDS, "1.5ms", 1_500_000, "1500us"},
		{api.Unit_NANOSECONDS, "10µs", 10_000, "10us"},
		{api.Unit_NANOSECONDS, "1h", 3600e9, "3600s"},
		{api.Unit_NANOSECONDS, "1000001", 1_000_001, "1000001"},
		{api.Unit_NONE, "18446744073709551615", 1<<64 - 1, "18446744073709551615"},
	} {
		n, err := parseNumber(c.unit, c.written)
		if err != nil || n != c.want {
			t.Errorf("%q is %d, error %v", c.written, n, err)
		}
		again := FormatNumber(c.unit, n)
		if back, err := parseNumber(c.unit, again); err != nil || back != n {
			t.Errorf("%d is written %q", n, again)
		}
		if again != c.again {
			t.Errorf("%d is written %q, not %q", n, again, c.again)
		}
	}
	for _, s := range []string{"", "M", "1.0001", "1e3", "010", "0x10", "1,5", "18446744073709551616", "99999999999T", "1.5", "..", "1.", ".5", "+1", "1 2", "64KB"} {
		if n, err := parseNumber(api.Unit_BITS_PER_SECOND, s); err == nil {
			t.Errorf("%q is accepted as %d", s, n)
		}
	}
}

func FuzzANumberWithItsUnitIsReadAgain(f *testing.F) {
	for _, n := range []uint64{0, 1, 999, 1000, 1024, 9999, 10_000, 10_240, 1_024_000, 1 << 40, 1e12, 1<<64 - 1} {
		f.Add(n, uint64(1))
		f.Add(n%1e6, uint64(1e6))
	}
	f.Fuzz(func(t *testing.T, n, times uint64) {
		n *= times
		for _, u := range []api.Unit{api.Unit_NONE, api.Unit_BITS_PER_SECOND, api.Unit_BYTES, api.Unit_NANOSECONDS} {
			for _, text := range []string{FormatNumber(u, n), FormatUnit(u, n)} {
				if again, err := parseNumber(u, text); err != nil || again != n {
					t.Errorf("%d %s is written %q, read as %d, %v", n, u, text, again, err)
				}
			}
		}
	})
}

func TestNumbersWithUnitsForPeopleAreReadAgain(t *testing.T) {
	for _, c := range []struct {
		unit   api.Unit
		number uint64
		want   string
	}{
		{api.Unit_BITS_PER_SECOND, 100e6, "100 Mbit/s"}, {api.Unit_BITS_PER_SECOND, 64e3, "64 kbit/s"}, {api.Unit_BITS_PER_SECOND, 7, "7 bit/s"},
		{api.Unit_BYTES, 64 << 10, "64 KiB"}, {api.Unit_BYTES, 1501, "1501 B"}, {api.Unit_BYTES, 3e6, "3 MB"},
		{api.Unit_NANOSECONDS, 10e6, "10 ms"}, {api.Unit_NANOSECONDS, 1, "1 ns"}, {api.Unit_NANOSECONDS, 0, "0 ns"},
	} {
		text := FormatUnit(c.unit, c.number)
		if n, err := parseNumber(c.unit, text); text != c.want || n != c.number || err != nil {
			t.Errorf("%d: %q, read as %d, %v; want %q", c.number, text, n, err, c.want)
		}
	}
}

func TestTheTextOfADifferenceIsReadAsTheSameValue(t *testing.T) {
	for _, c := range []struct{ kind, before, after, shown string }{
		{"Meter", "{committedRate: 8000, committedBurst: 1500}", "{committedRate: 100M, committedBurstTime: 1500us}",
			"committedRate: 8 kbit/s -> 100 Mbit/s; committedBurst: 1500 B -> ; committedBurstTime:  -> 1500 us"},
		{"QosProfile", "{classes: [{name: a}]}", "{classes: [{name: a, peakRate: 1M, codel: {target: 1ms}, dropPolicy: codel}]}",
			"classes[0].peakRate:  -> 1 Mbit/s; classes[0].dropPolicy: tail -> codel; classes[0].codel:  -> {target: 1 ms}"},
		{"Session", "{access: {port: p}}", "{access: {port: p}, policy: {mss: 1300}}", "policy:  -> {mss: 1300 B}"},
	} {
		k := registry(t).Kind(c.kind)
		spec := func(text string) proto.Message { return objects(t, c.kind+" x "+text)[0].Object.Spec }
		before, after := spec(c.before), spec(c.after)
		var shown []string
		for _, d := range k.Diff(before, after) {
			shown = append(shown, d.Field+": "+d.Before+" -> "+d.After)
		}
		if got := strings.Join(shown, "; "); got != c.shown {
			t.Errorf("got %s\nnot %s", got, c.shown)
		}
		// As the whole of it is shown.
		if again := spec(flow(k.Fields, after.ProtoReflect())); !proto.Equal(again, after) {
			t.Errorf("%s is read as %v", flow(k.Fields, after.ProtoReflect()), again)
		}
	}
}

func TestDifferences(t *testing.T) {
	spec := func(text string) proto.Message { return objects(t, "Session s "+text)[0].Object.Spec }
	k := registry(t).Kind("Session")
	const tunnel = "{localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1"
	for _, c := range []struct {
		sentence, before, after string
		want                    []FieldChange
	}{
		{"the same in other words", "{access: {port: p, mac: '02:00:00:00:00:0a'}, vrf: default}", "{access: {port: p, mac: '02:00:00:00:00:0A'}}", nil},
		{"what forces a replacement comes first", "{access: {port: p}, vrf: a, gtpu: " + tunnel + "}}", "{access: {port: q}, gtpu: " + tunnel + ", ethernet: true}}",
			[]FieldChange{{Field: "gtpu.ethernet", After: "true", Immutable: true}, {Field: "access.port", Before: "p", After: "q"}, {Field: "vrf", Before: "a"}}},
		{"what appears and vanishes", "{access: {port: p}, policy: {mss: 1400}}", "{access: {port: p}, addresses: [10.0.0.0/8]}",
			[]FieldChange{{Field: "addresses", After: "10.0.0.0/8"}, {Field: "policy", Before: "{mss: 1400 B}"}}},
	} {
		if got := k.Diff(spec(c.before), spec(c.after)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.sentence, got, c.want)
		}
	}
}

// An unregistered kind with features that the contract's kinds lack: a choice, signed numbers, secrets, lists of
// names.
func invented(t testing.TB) *Registry {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, notes *api.Field) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: &descriptorpb.FieldOptions{},
		}
		proto.SetExtension(f.Options, api.E_Field, notes)
		return f
	}
	str, i32 := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_SINT32
	friends := field("friends", 1, str, &api.Field{Ref: "Thing", Min: 1})
	friends.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	first, second := field("first_way", 2, str, &api.Field{Format: api.Format_IP}), field("second_way", 3, str, &api.Field{})
	first.OneofIndex, second.OneofIndex = proto.Int32(0), proto.Int32(0)
	message := &descriptorpb.DescriptorProto{
		Name: proto.String("Thing"), Options: &descriptorpb.MessageOptions{},
		Field: []*descriptorpb.FieldDescriptorProto{
			friends, first, second, field("level", 4, i32, &api.Field{Min: -5, Max: 5}), field("password", 5, str, &api.Field{Secret: true, Format: api.Format_MAC}),
		},
		OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("way")}},
	}
	proto.SetExtension(message.Options, api.E_Kind, &api.Kind{Plural: "things", Unique: []string{"friends.*", "level"}})
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("thing.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{message},
		Dependency: []string{"schema.proto"},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	var types protoregistry.Types
	if err := types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().ByName(protoreflect.Name("Thing")))); err != nil {
		t.Fatal(err)
	}
	r, err := Discover(&types)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnyKindWorksByItsAnnotationsAlone(t *testing.T) {
	r := invented(t)
	read := func(spec string) ([]*Written, error) {
		return r.Decode(strings.NewReader("{apiVersion: sluice.dev/v1, kind: Thing, metadata: {name: x}, spec: "+spec+"}"), "")
	}
	_, err := read("{friends: [], firstWay: 1.2.3.4, secondWay: b, level: -6, password: hunter2}")
	want := []string{
		"line 1: Thing/x: secondWay: excludes firstWay, which is there, too; accepted: only one of firstWay, secondWay",
		"line 1: Thing/x: friends: wrong number of elements: found 0; accepted: at least 1",
		"line 1: Thing/x: level: out of range: found -6; accepted: -5 to 5",
		"line 1: Thing/x: password: not an Ethernet address; accepted: a unicast Ethernet address: six pairs of hexadecimal digits with colons between",
	}
	if got := strings.Split(fmt.Sprint(err), "\n"); !slices.Equal(got, want) {
		t.Errorf("errors\n%q\nnot\n%q", got, want)
	}
	written, err := read("{friends: [a, b], level: -5, password: 02:00:00:00:00:01}")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, r, written)
	o := written[0].Object
	if refs := r.References(o); len(refs) != 2 || refs[1] != (Reference{"friends[1]", Key{"Thing", "b"}, false}) {
		t.Errorf("references %v", refs)
	}
	if claims := r.Claims(o); len(claims) != 2 || claims[0].What != "Thing friends.* a, level -5" {
		t.Errorf("claims %v", claims)
	}
	if text, _ := r.JSON(r.Redacted(o)); strings.Contains(string(text), "02:00") || !strings.Contains(string(text), "friends") {
		t.Errorf("redacted: %s", text)
	}
}

func TestHoldersOfPartsAreFound(t *testing.T) {
	h := NewHoldings(strings.Compare)
	a, b, all := Mark{what: 1, part: 1}, Mark{what: 1, part: 2}, Mark{what: 1}
	holder := func(claimant string, m Mark, want string) {
		t.Helper()
		if got, taken := h.Holder(claimant, m); taken != (want != "") || taken && got != want {
			t.Errorf("%s finds %q %v, not %q", claimant, got, taken, want)
		}
	}
	holder("x", a, "")
	holder("x", all, "")
	h.Take("x", a)
	holder("x", a, "")
	holder("y", a, "x")
	holder("y", b, "")
	holder("y", all, "x")
	h.Take("y", b)
	holder("z", all, "x")
	holder("x", all, "y")
	holder("x", b, "y")
	h.Release("y", a) // which is not its own
	holder("y", a, "x")
	h.Release("x", a)
	holder("z", all, "y")
	holder("x", a, "")
	h.Release("y", b)
	holder("z", all, "")
	h.Take("z", all)
	holder("x", a, "z")
}

func TestAColumnShowsReadableValues(t *testing.T) {
	r := registry(t)
	for _, c := range []struct{ kind, column, spec, want string }{
		{"Acl", "rules", "{rules: [{source: 10.0.0.0/8}]}", "1"},
		{"Acl", "rules", "{rules: [{action: permit}, {source: 10.0.0.0/8}]}", "2"},
		{"Acl", "rules", "{otherwise: permit}", ""},
		{"Route", "nextHops", "{prefix: 10.0.0.0/8, nextHops: [{address: 192.0.2.1, interface: core, weight: 3}]}", "192.0.2.1"},
		{"Route", "nextHops", "{prefix: 10.0.0.0/8, nextHops: [{address: 192.0.2.1}, {interface: core}]}", "192.0.2.1,core"},
		{"Route", "vrf", "{prefix: 10.0.0.0/8, action: blackhole}", "default"},
		{"Route", "vrf", "{prefix: 10.0.0.0/8, action: blackhole, vrf: red}", "red"},
		{"QosProfile", "classes", "{classes: [{name: data}, {name: voice}]}", "data,voice"},
		{"Meter", "committedRate", "{committedRate: 100M, committedBurst: 64KB}", "100 Mbit/s"},
		{"Port", "mtu", "{device: net_null0}", ""},
	} {
		var path Path
		for _, p := range r.Kind(c.kind).Columns {
			if p.Text == c.column {
				path = p
			}
		}
		if got := path.Column(objects(t, c.kind+" a "+c.spec)[0].Object.Spec); got != c.want {
			t.Errorf("%s of %s %s is shown as %q, want %q", c.column, c.kind, c.spec, got, c.want)
		}
	}
}
