// SPDX-License-Identifier: Apache-2.0

package module

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice.dev/sluice/agent/api"
)

// Bounds of a module's descriptors.
const (
	bytesLimit    = 256 << 10
	fileLimit     = 16
	kindLimit     = 16
	messageLimit  = 64
	fieldLimit    = 64
	enumLimit     = 64
	valueLimit    = 256
	nestingLimit  = 4
	expandedLimit = 1024 // fields of a kind, with those of the messages in it
	elementsLimit = 1024 // of a list
	noteLimit     = 256  // bytes of a text in an annotation
	pathsLimit    = 16
)

// shared are the files that a module's files may import. The agent's own copies are used; the module's copies are
// ignored.
var shared = map[string]protoreflect.FileDescriptor{
	"schema.proto":                     api.File_schema_proto,
	"google/protobuf/descriptor.proto": descriptorpb.File_google_protobuf_descriptor_proto,
}

// Kinds is the kinds of a module, checked.
type Kinds struct {
	// By full name.
	Messages []protoreflect.MessageType
	// Names of kinds, in order.
	Names []string
	// Questions about operational state, in the order of the files.
	States []protoreflect.FullName

	files []*descriptorpb.FileDescriptorProto
	types map[protoreflect.FullName]protoreflect.MessageDescriptor
	enums map[protoreflect.FullName]protoreflect.EnumDescriptor
}

var (
	kindName   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	memberName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	valueName  = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
	pluralWord = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	shortWord  = regexp.MustCompile(`^[a-z][a-z0-9]{0,7}$`)
	fileName   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$`)
)

// reservedKinds are names of schemas in the OpenAPI document. reservedPlurals are paths of REST and commands that are
// not kinds.
var (
	reservedKinds = []string{"AnyObject", "Applied", "Changes", "Counts", "Differences", "Health", "History", "List", "Metadata", "MetadataInput", "Plan", "Problem",
		"Status"}
	reservedPlurals = []string{"all", "apply", "diff", "drops", "events", "graph", "health", "history", "kinds", "modules", "plan", "status", "trace", "version"}
)

// packageOf is the first part of the package names of a module's files.
func packageOf(module string) string { return strings.ReplaceAll(module, "-", "_") }

// Parse reads a packed FileDescriptorSet of a module and checks it. It accepts less than protobuf does: the agent
// derives paths, schemas and columns from a kind, and limits their size.
func Parse(module string, packed []byte) (*Kinds, error) {
	if len(packed) > bytesLimit {
		return nil, fmt.Errorf("kinds: found %d bytes; accepted: at most %d", len(packed), bytesLimit)
	}
	var set descriptorpb.FileDescriptorSet
	if err := (proto.UnmarshalOptions{RecursionLimit: 64}).Unmarshal(packed, &set); err != nil {
		return nil, fmt.Errorf("kinds: not a FileDescriptorSet: %w", err)
	}
	k := &Kinds{types: map[protoreflect.FullName]protoreflect.MessageDescriptor{}, enums: map[protoreflect.FullName]protoreflect.EnumDescriptor{}}
	whole := &descriptorpb.FileDescriptorSet{}
	for _, name := range []string{"google/protobuf/descriptor.proto", "schema.proto"} {
		whole.File = append(whole.File, protodesc.ToFileDescriptorProto(shared[name]))
	}
	for _, f := range set.File {
		if shared[f.GetName()] != nil {
			continue
		}
		if err := checkFile(module, f); err != nil {
			return nil, fmt.Errorf("kinds: file %q: %w", clipped(f.GetName()), err)
		}
		k.files, whole.File = append(k.files, f), append(whole.File, f)
	}
	if len(k.files) > fileLimit {
		return nil, fmt.Errorf("kinds: found %d files; accepted: at most %d", len(k.files), fileLimit)
	}
	if err := checkCounts(k.files); err != nil {
		return nil, fmt.Errorf("kinds: %w", err)
	}
	files, err := protodesc.NewFiles(whole)
	if err != nil {
		return nil, fmt.Errorf("kinds: %s", clipped(err.Error()))
	}
	for _, f := range k.files {
		made, err := files.FindFileByPath(f.GetName())
		if err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
		if err := k.messages(made.Messages(), true); err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
		if err := k.enumerations(made.Enums()); err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
	}
	if len(k.Names) == 0 {
		return nil, errors.New("kinds: no message has the option (sluice.v1.kind); accepted: 1 to 16 kinds")
	}
	if len(k.Names) > kindLimit {
		return nil, fmt.Errorf("kinds: found %d kinds; accepted: at most %d", len(k.Names), kindLimit)
	}
	slices.Sort(k.Names)
	slices.SortFunc(k.Messages, func(a, b protoreflect.MessageType) int {
		return strings.Compare(string(a.Descriptor().FullName()), string(b.Descriptor().FullName()))
	})
	sizes := map[protoreflect.FullName]int{}
	// Checks below go through messages in messages.
	for _, m := range k.Messages {
		if err := expanded(m.Descriptor(), sizes); err != nil {
			return nil, fmt.Errorf("kinds: %w", err)
		}
	}
	if err := k.checkStates(module); err != nil {
		return nil, fmt.Errorf("kinds: %w", err)
	}
	return k, nil
}

// clipped limits the length of hostile input in messages.
func clipped(text string) string {
	if len(text) > noteLimit {
		text = strings.ToValidUTF8(text[:noteLimit], "") + "..."
	}
	return text
}

func checkFile(module string, f *descriptorpb.FileDescriptorProto) error {
	name, first := f.GetName(), packageOf(module)
	switch {
	case !fileName.MatchString(name) || strings.Contains(name, "..") || strings.Contains(name, "//"):
		return errors.New("not a file name; accepted: at most 128 letters, digits and _ . / -")
	case strings.HasPrefix(name, "google/"):
		return errors.New("the folder google/ is reserved")
	case f.GetSyntax() != "proto3":
		return fmt.Errorf(`syntax: found %q; accepted: "proto3"`, clipped(f.GetSyntax()))
	case f.GetPackage() != first && !strings.HasPrefix(f.GetPackage(), first+"."):
		return fmt.Errorf("package: found %q; accepted: %s, or a package below it such as %s.v1", clipped(f.GetPackage()), first, first)
	case len(f.GetPackage()) > noteLimit:
		return fmt.Errorf("package: found %d bytes; accepted: at most %d", len(f.GetPackage()), noteLimit)
	case len(f.Extension) > 0:
		return errors.New("it extends messages; accepted: messages and enumerations")
	case len(f.Service) > 0:
		return errors.New("it has a service; accepted: messages and enumerations")
	case len(f.PublicDependency) > 0 || len(f.WeakDependency) > 0:
		return errors.New("it has a public or weak import; accepted: usual imports")
	}
	if _, err := protoregistry.GlobalFiles.FindFileByPath(name); err == nil {
		return errors.New("the agent has a file of that name; accepted: another name")
	}
	for _, l := range f.GetSourceCodeInfo().GetLocation() {
		for _, text := range append([]string{l.GetLeadingComments(), l.GetTrailingComments()}, l.GetLeadingDetachedComments()...) {
			if err := checkText(text, bytesLimit); err != nil {
				return fmt.Errorf("comment: %w", err)
			}
		}
	}
	return nil
}

// checkText accepts text that a person may read.
func checkText(text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("found %d bytes; accepted: at most %d", len(text), most)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
	}) {
		return errors.New("found control characters; accepted: text in UTF-8")
	}
	return nil
}

// checkCounts looks at the sizes before anything is built from the descriptors.
func checkCounts(files []*descriptorpb.FileDescriptorProto) error {
	messages, enums := 0, 0
	var count func(m *descriptorpb.DescriptorProto, depth int) error
	count = func(m *descriptorpb.DescriptorProto, depth int) error {
		messages++
		enums += len(m.EnumType)
		switch {
		case depth > nestingLimit:
			return fmt.Errorf("message %q: nested deeper than %d messages", clipped(m.GetName()), nestingLimit)
		case len(m.Field) > fieldLimit:
			return fmt.Errorf("message %q: found %d fields; accepted: at most %d", clipped(m.GetName()), len(m.Field), fieldLimit)
		case len(m.Extension) > 0 || len(m.ExtensionRange) > 0:
			return fmt.Errorf("message %q: it has extensions; accepted: fields", clipped(m.GetName()))
		case len(m.OneofDecl) > 0:
			return fmt.Errorf("message %q: it has a oneof or an optional field; accepted: fields without", clipped(m.GetName()))
		}
		for _, e := range m.EnumType {
			if len(e.Value) > valueLimit {
				return fmt.Errorf("enumeration %q: found %d values; accepted: at most %d", clipped(e.GetName()), len(e.Value), valueLimit)
			}
		}
		for _, below := range m.NestedType {
			if err := count(below, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range files {
		enums += len(f.EnumType)
		for _, e := range f.EnumType {
			if len(e.Value) > valueLimit {
				return fmt.Errorf("enumeration %q: found %d values; accepted: at most %d", clipped(e.GetName()), len(e.Value), valueLimit)
			}
		}
		for _, m := range f.MessageType {
			if err := count(m, 1); err != nil {
				return err
			}
		}
	}
	switch {
	case messages > messageLimit:
		return fmt.Errorf("found %d messages; accepted: at most %d", messages, messageLimit)
	case enums > enumLimit:
		return fmt.Errorf("found %d enumerations; accepted: at most %d", enums, enumLimit)
	}
	return nil
}

func (k *Kinds) messages(all protoreflect.MessageDescriptors, top bool) error {
	for i := range all.Len() {
		m := all.Get(i)
		if !kindName.MatchString(string(m.Name())) {
			return fmt.Errorf("message %q: accepted: a name of at most 63 letters and digits that begins with a capital", clipped(string(m.Name())))
		}
		if notes := kindOf(m); notes != nil {
			if !top {
				return fmt.Errorf("kind %s: it is inside another message; accepted: a message of the file", m.Name())
			}
			if err := checkKind(m, notes); err != nil {
				return fmt.Errorf("kind %s: %w", m.Name(), err)
			}
			k.Names = append(k.Names, string(m.Name()))
		}
		if stateOf(m) != nil {
			if !top || kindOf(m) != nil {
				return fmt.Errorf("state %s: it is a kind, or inside another message; accepted: a message of the file", m.Name())
			}
			k.States = append(k.States, m.FullName())
		}
		k.types[m.FullName()] = m
		k.Messages = append(k.Messages, dynamicpb.NewMessageType(m))
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if err := checkField(f); err != nil {
				return fmt.Errorf("%s.%s: %w", m.Name(), f.Name(), err)
			}
		}
		if err := k.enumerations(m.Enums()); err != nil {
			return err
		}
		if err := k.messages(m.Messages(), false); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kinds) enumerations(all protoreflect.EnumDescriptors) error {
	for i := range all.Len() {
		e, seen := all.Get(i), map[protoreflect.EnumNumber]bool{}
		for i := range e.Values().Len() {
			v := e.Values().Get(i)
			switch {
			case !valueName.MatchString(string(v.Name())) || len(v.Name()) > 63:
				return fmt.Errorf("%s.%s: accepted: a name of at most 63 capitals, digits and _", e.Name(), clipped(string(v.Name())))
			case v.Number() < 0 || seen[v.Number()]:
				return fmt.Errorf("%s.%s: found the number %d; accepted: a number from 0 that no other value has", e.Name(), v.Name(), v.Number())
			}
			seen[v.Number()] = true
		}
		k.enums[e.FullName()] = e
	}
	return nil
}

func checkKind(m protoreflect.MessageDescriptor, notes *api.Kind) error {
	name := string(m.Name())
	switch {
	case len(notes.ProtoReflect().GetUnknown()) > 0:
		return errors.New("it has an annotation that this agent does not know")
	case slices.Contains(reservedKinds, name), strings.HasSuffix(name, "Spec"), strings.HasSuffix(name, "Input"):
		return errors.New("the name is reserved; accepted: another name, which does not end in Spec or Input")
	case notes.Plane != api.Plane_AGENT:
		return errors.New("plane: found DATAPLANE; accepted: AGENT")
	case len(notes.Builtin) > 0:
		return errors.New("builtin: accepted: no objects that are always there")
	case !pluralWord.MatchString(notes.Plural) || len(notes.Plural) > 63:
		return fmt.Errorf("plural: found %q; accepted: at most 63 lower-case letters, digits and - between words", clipped(notes.Plural))
	case slices.Contains(reservedPlurals, notes.Plural), slices.Contains(reservedPlurals, notes.Short):
		return fmt.Errorf("plural or short: found %q, which is reserved; accepted: another word", notes.Plural)
	case notes.Short != "" && !shortWord.MatchString(notes.Short):
		return fmt.Errorf("short: found %q; accepted: at most 8 lower-case letters and digits", clipped(notes.Short))
	case len(notes.Unique) > pathsLimit || len(notes.Columns) > pathsLimit:
		return fmt.Errorf("unique and columns: accepted: at most %d fields each", pathsLimit)
	}
	for _, path := range append(slices.Clone(notes.Unique), notes.Columns...) {
		if len(path) > noteLimit {
			return fmt.Errorf("unique and columns: accepted: paths of at most %d bytes", noteLimit)
		}
	}
	return nil
}

func checkField(f protoreflect.FieldDescriptor) error {
	name := string(f.Name())
	if !memberName.MatchString(name) || len(name) > 63 {
		return errors.New("accepted: a name of at most 63 lower-case letters and digits, with _ between words")
	}
	if usual := protojsonName(name); f.JSONName() != usual {
		return fmt.Errorf("json_name: found %q; accepted: none, which is %s", clipped(f.JSONName()), usual)
	}
	number := false
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.MessageKind:
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		number = true
	default:
		return fmt.Errorf("found the type %s; accepted: bool, string, int32, int64, uint32, uint64, messages and enumerations", f.Kind())
	}
	if m := f.Message(); m != nil && (f.IsMap() || shared[m.ParentFile().Path()] != nil) {
		return errors.New("it is a map or of a type of an imported file; accepted: messages of the module")
	}
	if e := f.Enum(); e != nil && shared[e.ParentFile().Path()] != nil {
		return errors.New("it is of a type of an imported file; accepted: enumerations of the module")
	}
	if f.IsList() && f.IsPacked() != (f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.MessageKind) {
		return errors.New("it has the option packed; accepted: without")
	}
	notes, _ := proto.GetExtension(f.Options(), api.E_Field).(*api.Field)
	if notes == nil {
		notes = &api.Field{}
	}
	for _, text := range []string{notes.Zero, notes.Example, notes.Ref} {
		if err := checkText(text, noteLimit); err != nil {
			return err
		}
	}
	switch {
	case len(notes.ProtoReflect().GetUnknown()) > 0:
		return errors.New("it has an annotation that this agent does not know")
	case f.IsList() && (notes.Max < 1 || notes.Max > elementsLimit):
		return fmt.Errorf("max: found %d; accepted: 1 to %d elements", notes.Max, elementsLimit)
	case f.IsList() && (notes.Min < 0 || notes.Min > notes.Max):
		return fmt.Errorf("min: found %d; accepted: 0 to %d elements", notes.Min, notes.Max)
	case !f.IsList() && !number && (notes.Min != 0 || notes.Max != 0):
		return errors.New("min and max: accepted: of numbers and lists")
	case number && !f.IsList() && (notes.Max < 0 || notes.Max > 0 && notes.Min > notes.Max):
		return fmt.Errorf("min and max: found %d and %d; accepted: a max from min on, or 0", notes.Min, notes.Max)
	case (f.Kind() == protoreflect.Uint32Kind || f.Kind() == protoreflect.Uint64Kind) && notes.Min < 0:
		return fmt.Errorf("min: found %d; accepted: 0 or more", notes.Min)
	case number && notes.Min < -1<<53:
		return fmt.Errorf("min: found %d; accepted: -2^53 or more", notes.Min)
	case notes.Format != api.Format_TEXT && f.Kind() != protoreflect.StringKind:
		return errors.New("format: accepted: of strings")
	case notes.Format.Descriptor().Values().ByNumber(notes.Format.Number()) == nil:
		return fmt.Errorf("format: found %d, which this agent does not know", notes.Format)
	case notes.Unit.Descriptor().Values().ByNumber(notes.Unit.Number()) == nil:
		return fmt.Errorf("unit: found %d, which this agent does not know", notes.Unit)
	case notes.Unit != api.Unit_NONE && f.Kind() != protoreflect.Uint64Kind && f.Kind() != protoreflect.Uint32Kind && f.Kind() != protoreflect.Int64Kind:
		return errors.New("unit: accepted: of uint32, uint64 and int64")
	case notes.Share.Descriptor().Values().ByNumber(notes.Share.Number()) == nil:
		return fmt.Errorf("share: found %d, which this agent does not know", notes.Share)
	case notes.Ref != "" && (f.Kind() != protoreflect.StringKind || notes.Format != api.Format_TEXT):
		return errors.New("ref: accepted: of strings without a format")
	case notes.Metric != nil || notes.Label != "":
		return errors.New("metric and label: accepted: none; the agent exports no metrics of modules")
	}
	return nil
}

// protojsonName is the name of a field in JSON and YAML: lowerCamelCase.
func protojsonName(name string) string {
	var b strings.Builder
	up := false
	for _, c := range []byte(name) {
		switch {
		case c == '_':
			up = true
		case up && c >= 'a' && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
			up = false
		default:
			b.WriteByte(c)
			up = false
		}
	}
	return b.String()
}

// expanded refuses messages that hold themselves, and kinds with too many fields in all.
func expanded(m protoreflect.MessageDescriptor, sizes map[protoreflect.FullName]int) error {
	const within = -1
	if size, known := sizes[m.FullName()]; known {
		if size == within {
			return fmt.Errorf("message %s: it holds itself", m.Name())
		}
		return nil
	}
	sizes[m.FullName()] = within
	size := m.Fields().Len()
	for i := range m.Fields().Len() {
		if below := m.Fields().Get(i).Message(); below != nil {
			if err := expanded(below, sizes); err != nil {
				return err
			}
			size += sizes[below.FullName()]
		}
	}
	if size > expandedLimit {
		return fmt.Errorf("message %s: found %d fields with those of the messages in it; accepted: at most %d", m.Name(), size, expandedLimit)
	}
	sizes[m.FullName()] = size
	return nil
}

// Same reports whether two sets are equal except for comments.
func (k *Kinds) Same(other *Kinds) bool { return slices.Equal(k.shapes(), other.shapes()) }

func (k *Kinds) shapes() []string {
	all := make([]string, len(k.files))
	for i, f := range k.files {
		bare := proto.CloneOf(f)
		bare.SourceCodeInfo = nil
		text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(bare)
		all[i] = string(text)
	}
	slices.Sort(all)
	return all
}

// Continues returns nil if objects of the kinds of an earlier set are acceptable to this one.
func (k *Kinds) Continues(before *Kinds) error {
	for _, name := range before.Names {
		if !slices.Contains(k.Names, name) {
			return fmt.Errorf("kind %s: missing; accepted: all kinds that the module had before", name)
		}
	}
	for name, old := range before.types {
		m := k.types[name]
		if m == nil {
			return fmt.Errorf("message %s: missing; accepted: all messages that the module had before", name)
		}
		if was, is := kindOf(old), kindOf(m); !slices.Equal(was.GetUnique(), is.GetUnique()) {
			return fmt.Errorf("kind %s: unique: found other fields than before; accepted: the same", m.Name())
		}
		if err := continues(old, m); err != nil {
			return fmt.Errorf("message %s: %w", name, err)
		}
	}
	for name, old := range before.enums {
		e := k.enums[name]
		if e == nil {
			return fmt.Errorf("enumeration %s: missing; accepted: all enumerations that the module had before", name)
		}
		for i := range old.Values().Len() {
			v := old.Values().Get(i)
			if now := e.Values().ByNumber(v.Number()); now == nil || now.Name() != v.Name() {
				return fmt.Errorf("enumeration %s: %s = %d is missing; accepted: all values as before, and more", name, v.Name(), v.Number())
			}
		}
	}
	return nil
}

func continues(old, m protoreflect.MessageDescriptor) error {
	for i := range old.Fields().Len() {
		was := old.Fields().Get(i)
		is := m.Fields().ByNumber(was.Number())
		if is == nil || is.Name() != was.Name() || is.Kind() != was.Kind() || is.Cardinality() != was.Cardinality() || typeName(is) != typeName(was) {
			return fmt.Errorf("%s = %d: missing or of another type; accepted: all fields as before, and more", was.Name(), was.Number())
		}
		a, b := notesOf(was), notesOf(is)
		narrower := b.Required && !a.Required || b.Format != a.Format && b.Format != api.Format_TEXT || b.Ref != a.Ref || b.Min > a.Min ||
			b.Max > 0 && (a.Max == 0 || b.Max < a.Max) || a.Zero != "" && b.Zero == "" || a.Secret != b.Secret || a.Share != b.Share
		if narrower {
			return fmt.Errorf("%s: its annotation accepts less than before; accepted: the same or more", was.Name())
		}
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if n := notesOf(f); old.Fields().ByNumber(f.Number()) == nil && (n.Required || n.Min > 0 && n.Zero == "") {
			return fmt.Errorf("%s: a new field that is required; accepted: one that may be left out", f.Name())
		}
	}
	return nil
}

func typeName(f protoreflect.FieldDescriptor) protoreflect.FullName {
	switch {
	case f.Message() != nil:
		return f.Message().FullName()
	case f.Enum() != nil:
		return f.Enum().FullName()
	}
	return ""
}

func kindOf(m protoreflect.MessageDescriptor) *api.Kind {
	notes, _ := proto.GetExtension(m.Options(), api.E_Kind).(*api.Kind)
	return notes
}

func notesOf(f protoreflect.FieldDescriptor) *api.Field {
	notes, _ := proto.GetExtension(f.Options(), api.E_Field).(*api.Field)
	if notes == nil {
		return &api.Field{}
	}
	return notes
}

func stateOf(m protoreflect.MessageDescriptor) *api.OperationalState {
	notes, _ := proto.GetExtension(m.Options(), api.E_State).(*api.OperationalState)
	return notes
}
