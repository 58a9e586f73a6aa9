// SPDX-License-Identifier: Apache-2.0

package module

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

// hostFile is the file of a module dns with the kind DnsHost.
const hostFile = `
name: "dns/host.proto" package: "dns.v1" syntax: "proto3" dependency: "schema.proto"
message_type {
  name: "DnsHost"
  field { name: "domain" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { required: true } } }
  field { name: "addresses" number: 2 type: TYPE_STRING label: LABEL_REPEATED options { [sluice.v1.field] { format: IP max: 8 share: ELEMENTS } } }
  field { name: "time_to_live" number: 3 type: TYPE_UINT32 label: LABEL_OPTIONAL options { [sluice.v1.field] { max: 86400 zero: "300" } } }
  field { name: "vrf" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { ref: "Vrf" } } }
  field { name: "key" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { secret: true } } }
  field { name: "class" number: 6 type: TYPE_ENUM type_name: ".dns.v1.Class" label: LABEL_OPTIONAL }
  field { name: "mail" number: 7 type: TYPE_MESSAGE type_name: ".dns.v1.Mail" label: LABEL_REPEATED options { [sluice.v1.field] { max: 4 } } }
  options { [sluice.v1.kind] { plane: AGENT plural: "dns-hosts" short: "dh" unique: "domain" columns: "domain" columns: "addresses" } }
}
message_type { name: "Mail" field { name: "host" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
enum_type { name: "Class" value { name: "INTERNET" number: 0 } value { name: "CHAOS" number: 3 } }
`

// descriptors is the packed set of files in prototext.
func descriptors(t testing.TB, files ...string) []byte {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	for _, text := range files {
		f := &descriptorpb.FileDescriptorProto{}
		if err := prototext.Unmarshal([]byte(text), f); err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, f)
	}
	packed, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func registry(t testing.TB) *object.Registry {
	t.Helper()
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAKindOfAModuleIsAKindAsAnyOther(t *testing.T) {
	r := registry(t)
	before := r.Kind("Session").Rank
	if err := AddKinds(r, "dns", descriptors(t, hostFile)); err != nil {
		t.Fatal(err)
	}
	k, err := r.Lookup("dns-hosts")
	if err != nil || k != r.Kind("DnsHost") || r.Kind("Session").Rank != before || k.Rank <= r.Kind("Vrf").Rank {
		t.Fatal(k, err)
	}
	written, err := r.Decode(strings.NewReader(`
apiVersion: sluice.dev/v1
kind: DnsHost
metadata: {name: www}
spec: {domain: www.example, addresses: [192.0.2.7], vrf: red, class: chaos, mail: [{host: mx}]}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	examined, err := r.Examine([]object.Change{object.Put(written[0].Object)})
	if err != nil {
		t.Fatal(err)
	}
	stored := examined.Objects[0]
	if !stored.Names(object.Key{Kind: "Vrf", Name: "red"}) || !stored.Equal(stored) || stored.Claims() != 1 {
		t.Errorf("it names %v and has %d claims", stored.Named(), stored.Claims())
	}
	if text, err := r.JSON(stored.Shown()); err != nil || !strings.Contains(string(text), `"chaos"`) {
		t.Errorf("%s, %v", text, err)
	}
	_, err = r.Decode(strings.NewReader("apiVersion: sluice.dev/v1\nkind: DnsHost\nmetadata: {name: x}\nspec: {addresses: [there], timeToLive: 100000}\n"), "x.yaml")
	for _, problem := range []string{"x.yaml:4: DnsHost/x: spec.addresses[0]", "spec.timeToLive: out of range: found 100000"} {
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "x: addresses", "x: spec.addresses"), strings.TrimPrefix(problem, "spec.")) {
			t.Errorf("%v does not say %q", err, problem)
		}
	}
	if err := AddKinds(r, "dns", descriptors(t, hostFile)); err == nil {
		t.Error("a kind is added twice")
	}
}

const (
	stateNotes = `name: "answers" reply: "Answers" kinds: "DnsHost" path: "modules/dns/answers" id: "moduleDnsAnswers" summary: "s" columns: "rows.host"`
	stateQuery = `field { name: "host" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { ref: "DnsHost" } } }`
	stateRows  = `field { name: "rows" number: 1 type: TYPE_MESSAGE type_name: ".dns.v1.Row" label: LABEL_REPEATED options { [sluice.v1.field] { max: 9 } } }`
	stateRow   = `field { name: "host" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { ref: "DnsHost" } } }`
)

// stateFile is hostFile with a question about operational state.
func stateFile(change ...string) string {
	return strings.NewReplacer(change...).Replace(hostFile + `
		message_type { name: "AnswersQuery" ` + stateQuery + ` options { [sluice.v1.state] { ` + stateNotes + ` } } }
		message_type { name: "Answers" ` + stateRows + ` }
		message_type { name: "Row" ` + stateRow + ` }`)
}

// multiplied is messages that hold 60 of the next.
func multiplied(levels int) string {
	var text strings.Builder
	for level := range levels {
		fmt.Fprintf(&text, ` message_type { name: "Level%d"`, level)
		for i := range 60 {
			if level+1 < levels {
				fmt.Fprintf(&text, ` field { name: "f%d" number: %d type: TYPE_MESSAGE type_name: ".dns.v1.Level%d" label: LABEL_OPTIONAL }`, i, i+1, level+1)
			}
		}
		text.WriteString(" }")
	}
	return text.String()
}

func TestAStateOfAModuleHasItsOwnPathAndPlainMessages(t *testing.T) {
	r := registry(t)
	if err := AddKinds(r, "dns", descriptors(t, stateFile())); err != nil {
		t.Fatal(err)
	}
	if st := r.StateOf("dns.v1.AnswersQuery"); st == nil || st.Reply.Descriptor().FullName() != "dns.v1.Answers" || len(r.StatesOf("DnsHost")) != 1 {
		t.Errorf("the state is %v", st)
	}
	for about, c := range map[string]struct{ file, problem string }{
		"a path of the agent":     {stateFile("modules/dns/answers", "counters/dns"), "path"},
		"another module's path":   {stateFile("modules/dns/answers", "modules/ntp/answers"), "path"},
		"a path that climbs":      {stateFile("modules/dns/answers", "modules/dns/../x"), "path"},
		"an id of the agent":      {stateFile("moduleDnsAnswers", "listSessions"), "id"},
		"another module's id":     {stateFile("moduleDnsAnswers", "moduleNtpAnswers"), "id"},
		"a kind of the agent":     {stateFile(`kinds: "DnsHost"`, `kinds: "Session"`), "kinds: accepted"},
		"no kind":                 {stateFile(`kinds: "DnsHost"`, ``), "kinds: accepted"},
		"a command":               {stateFile(`summary: "s"`, `summary: "s" command: "apply"`), "command"},
		"no summary":              {stateFile(`summary: "s"`, ``), "summary"},
		"a reply of air":          {stateFile(`reply: "Answers"`, `reply: "Nothing"`), "reply"},
		"a reply that is a kind":  {stateFile(`reply: "Answers"`, `reply: "DnsHost"`), "reply"},
		"messages that multiply":  {stateFile(`reply: "Answers"`, `reply: "Level0"`) + multiplied(5), "accepted: at most 1024"},
		"a column of air":         {stateFile(`"rows.host"`, `"rows.nothing"`), "nothing"},
		"a filter that is signed": {stateFile(stateQuery, `field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }`), "x: accepted: filters"},
		"a signed answer":         {stateFile(stateRow, `field { name: "host" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }`), "Row.host: accepted in answers"},
		"a metric":                {stateFile(stateRow, `field { name: "host" number: 2 type: TYPE_UINT64 label: LABEL_OPTIONAL options { [sluice.v1.field] { metric { name: "up" } } } }`), "no metrics"},
		"a terminal's command":    {stateFile(`summary: "s"`, `summary: "\033[2J"`), "summary"},
	} {
		if err := AddKinds(registry(t), "dns", descriptors(t, c.file)); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", about, err)
		}
	}
	// Messages of modules and of the agent may have the same name, kinds may not.
	if err := AddKinds(registry(t), "dns", descriptors(t, stateFile(`reply: "Answers"`, `reply: "AclHits"`, `name: "Answers"`, `name: "AclHits"`))); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"AclHits", "AclRule"} {
		other := strings.NewReplacer("DnsHost", name).Replace(hostFile)
		if err := AddKinds(registry(t), "dns", descriptors(t, other)); err == nil || !strings.Contains(err.Error(), "the message sluice.v1."+name+" is called that") {
			t.Errorf("a kind with the name of a message: %v", err)
		}
	}
}

func TestADescriptorSetThatIsHostileIsRefused(t *testing.T) {
	replaced := func(old, new string) string {
		if !strings.Contains(hostFile, old) {
			t.Fatal(old)
		}
		return strings.Replace(hostFile, old, new, 1)
	}
	const end = `enum_type { name: "Class"`
	field := func(name, rest string) string {
		return replaced(`message_type { name: "Mail"`, fmt.Sprintf(`message_type { name: "Mail" field { name: %q number: 2 label: LABEL_OPTIONAL %s }`, name, rest))
	}
	deep := `message_type { name: "D1" nested_type { name: "D2" nested_type { name: "D3" nested_type { name: "D4" nested_type { name: "D5" } } } } }`
	wide := ""
	for i := range 17 {
		wide += fmt.Sprintf(` field { name: "f%d" number: %d type: TYPE_MESSAGE type_name: ".dns.v1.W" label: LABEL_OPTIONAL }`, i, i+10)
	}
	full := ""
	for i := range 64 {
		full += fmt.Sprintf(` field { name: "f%d" number: %d type: TYPE_BOOL label: LABEL_OPTIONAL }`, i, i+1)
	}
	many := ""
	for i := range 65 {
		many += fmt.Sprintf(` message_type { name: "M%d" }`, i)
	}
	for about, c := range map[string]struct{ file, problem string }{
		"another package":       {replaced(`"dns.v1"`, `"sluice.v1"`), "package"},
		"a package that begins": {replaced(`"dns.v1"`, `"dnsmasq.v1"`), "package"},
		"a file of ours":        {replaced(`"dns/host.proto"`, `"acl.proto"`), "the agent has a file"},
		"a file of Google's":    {replaced(`"dns/host.proto"`, `"google/x.proto"`), "reserved"},
		"a path that climbs":    {replaced(`"dns/host.proto"`, `"dns/../x.proto"`), "not a file name"},
		"proto2":                {replaced(`"proto3"`, `"proto2"`), "syntax"},
		"an unknown import":     {replaced(`dependency: "schema.proto"`, `dependency: "schema.proto" dependency: "acl.proto"`), "acl.proto"},
		"a built-in kind":       {strings.ReplaceAll(hostFile, "DnsHost", "Session"), "sluice.v1.Session"},
		"a built-in word":       {replaced(`"dns-hosts"`, `"sessions"`), `"sessions" already means Session`},
		"the data plane":        {replaced("plane: AGENT", "plane: DATAPLANE"), "plane"},
		"state of data planes":  {replaced(`message_type { name: "Mail"`, `message_type { name: "Mail" options { [sluice.v1.state] { dataplane: true } }`), "state Mail: dataplane"},
		"a builtin object":      {replaced("plane: AGENT", `plane: AGENT builtin: "x"`), "builtin"},
		"a reserved name":       {strings.ReplaceAll(hostFile, "DnsHost", "Status"), "reserved"},
		"a name of schemas":     {strings.ReplaceAll(hostFile, "DnsHost", "SessionSpec"), "reserved"},
		"a reserved plural":     {replaced(`"dns-hosts"`, `"history"`), "reserved"},
		"a plural with a slash": {replaced(`"dns-hosts"`, `"../apply"`), "plural"},
		"a lower-case kind":     {strings.ReplaceAll(hostFile, "DnsHost", "dnsHost"), "capital"},
		"bytes":                 {field("x", "type: TYPE_BYTES"), "type bytes"},
		"a double":              {field("x", "type: TYPE_DOUBLE"), "type double"},
		"an endless list":       {strings.Replace(field("x", "type: TYPE_BOOL"), `name: "x" number: 2 label: LABEL_OPTIONAL`, `name: "x" number: 2 label: LABEL_REPEATED`, 1), "max"},
		"a long list":           {replaced("max: 8 ", "max: 5000 "), "max"},
		"a type of ours":        {field("x", `type: TYPE_ENUM type_name: ".sluice.v1.Plane"`), "imported"},
		"a format of a number":  {field("x", `type: TYPE_UINT32 options { [sluice.v1.field] { format: IP } }`), "format"},
		"an unknown format":     {field("x", `type: TYPE_STRING options { [sluice.v1.field] { format: 99 } }`), "format"},
		"a reference to air":    {field("x", `type: TYPE_STRING options { [sluice.v1.field] { ref: "Nothing" } }`), "no kind"},
		"bounds upside down":    {field("x", `type: TYPE_UINT32 options { [sluice.v1.field] { min: 5 max: 2 } }`), "min and max"},
		"a JSON name":           {field("x", `type: TYPE_BOOL json_name: "host"`), "json_name"},
		"a terminal's command":  {field("x", `type: TYPE_BOOL options { [sluice.v1.field] { example: "\033[2J" } }`), "control characters"},
		"a field in capitals":   {field("X", "type: TYPE_BOOL"), "lower-case"},
		"itself":                {field("x", `type: TYPE_MESSAGE type_name: ".dns.v1.Mail"`), "holds itself"},
		"a oneof":               {field("x", `type: TYPE_BOOL oneof_index: 0 } oneof_decl { name: "either"`), "oneof"},
		"a service":             {replaced(end, `service { name: "S" } `+end), "service"},
		"an extension":          {replaced(end, `extension { name: "e" number: 50002 type: TYPE_STRING label: LABEL_OPTIONAL extendee: ".google.protobuf.MessageOptions" } `+end), "extends"},
		"deep messages":         {replaced(end, deep+end), "nested deeper"},
		"many messages":         {replaced(end, many+end), "messages; accepted"},
		"many fields": {replaced(end, `message_type { name: "V"`+full+` } message_type { name: "W" field { name: "v" number: 1 type: TYPE_MESSAGE type_name: ".dns.v1.V" label: LABEL_OPTIONAL } } message_type { name: "Big" `+wide+
			` options { [sluice.v1.kind] { plural: "bigs" } } } `+end), "fields with those"},
		"no kind":             {strings.Split(hostFile, "message_type {\n")[0], "no message"},
		"a column of nothing": {replaced(`columns: "domain"`, `columns: "nothing"`), "nothing"},
		"a negative value":    {replaced("number: 3 } }", "number: -3 } }"), "number"},
	} {
		err := AddKinds(registry(t), "dns", descriptors(t, c.file))
		if err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", about, err)
		}
	}
	if _, err := Parse("dns", make([]byte, bytesLimit+1)); err == nil {
		t.Error("a set that is too long is accepted")
	}
}

func TestANewDescriptorAcceptsObjectsOfTheOldOne(t *testing.T) {
	parse := func(text string) *Kinds {
		k, err := Parse("dns", descriptors(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	old := parse(hostFile)
	if !old.Same(parse(hostFile + ` source_code_info { location { path: 4 path: 0 span: 1 span: 1 span: 2 leading_comments: "A host." } }`)) {
		t.Error("a comment makes another shape")
	}
	more := strings.Replace(hostFile, `name: "Mail"`, `name: "Mail" field { name: "weight" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }`, 1)
	if err := parse(more).Continues(old); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{
		{`name: "domain" number: 1`, `name: "domain" number: 9`}, {"max: 86400", "max: 100"}, {"max: 8 ", "max: 2 "}, {"number: 3 } }", "number: 4 } }"},
		{`name: "key" number: 5 type: TYPE_STRING`, `name: "key" number: 5 type: TYPE_BOOL`}, {`{ secret: true }`, `{ required: true secret: true }`},
		{`{ secret: true }`, `{ }`}, {`unique: "domain"`, `unique: "vrf"`},
	} {
		if changed := strings.Replace(hostFile, change[0], change[1], 1); changed == hostFile {
			t.Errorf("%q is not there", change[0])
		} else if parse(changed).Continues(old) == nil {
			t.Errorf("%s continues %s", change[1], change[0])
		}
	}
}

func TestKindsAreReadWhileOthersAreAdded(t *testing.T) {
	r := registry(t)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for ended := false; !ended; {
				select {
				case <-stop:
					// Once more, with all of them.
					ended = true
				default:
				}
				for _, k := range r.Kinds() {
					if _, err := r.Lookup(k.Plural); err != nil {
						t.Error(err)
					}
				}
				if _, err := r.Decode(strings.NewReader("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: red}\n"), ""); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for i := range 8 {
		name := fmt.Sprintf("dns%d", i)
		file := strings.NewReplacer("dns", name, "DnsHost", fmt.Sprintf("DnsHost%d", i), `short: "dh"`, "").Replace(hostFile)
		if err := AddKinds(r, name, descriptors(t, file)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
	ranks := map[int]bool{}
	for _, k := range r.Kinds() {
		if ranks[k.Rank] {
			t.Errorf("%s has the rank of another kind", k.Name)
		}
		ranks[k.Rank] = true
	}
	if len(r.Modules()) != 8 || r.Kind("DnsHost7") == nil {
		t.Errorf("%d modules", len(r.Modules()))
	}
}

func FuzzADescriptorSetIsRefusedOrUsable(f *testing.F) {
	f.Add(descriptors(f, hostFile))
	f.Add(descriptors(f, hostFile, `name: "dns/second.proto" package: "dns" syntax: "proto3" dependency: "dns/host.proto"`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, packed []byte) {
		if _, err := Parse("dns", packed); err != nil {
			return
		}
		r := registry(t)
		if AddKinds(r, "dns", packed) != nil {
			return
		}
		for _, k := range r.Kinds() {
			if k.Plane != api.Plane_AGENT || !strings.HasPrefix(string(k.Message.Descriptor().FullName()), "dns.") {
				continue
			}
			o := &object.Object{Kind: k.Name, Name: "x", Spec: k.Message.New().Interface()}
			_ = r.Check(o)
			if _, err := r.JSON(o); err != nil {
				t.Error(err)
			}
			for _, f := range k.Fields.List {
				_ = f.Accepted()
			}
		}
	})
}
