// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"sluice.dev/sluice/agent/api"
)

// Registry holds the kinds of the contract, and those that modules add while the agent runs. A kind is never changed and never removed.
// It may be shared.
type Registry struct {
	now atomic.Pointer[known]
	// Those of the contract.
	contract *known
	// Serializes additions.
	mu sync.Mutex
	// Asked for more kinds once, when a kind is not known.
	source atomic.Pointer[func()]
}

// known is the kinds of a moment. It is not changed after it was made.
type known struct {
	kinds   []*Kind // by name
	byName  map[string]*Kind
	words   map[string]*Kind // name, plural and short form, in lower case
	ordered []*Kind          // by rank
	fields  map[protoreflect.FullName]*Fields
	states  []*State
	// The contract's messages by the names of their schemas in the OpenAPI document.
	schemas map[protoreflect.Name]protoreflect.FullName
	modules []Module
	rules   map[protoreflect.FullName]rules
}

// Module is a module with kinds of its own.
type Module struct {
	Name string
	// The packed FileDescriptorSet of its kinds.
	Descriptors []byte
}

// Kind is a kind of object, as its message and its annotations describe it.
type Kind struct {
	Name string
	// How the command line calls many, and a short form that may be empty.
	Plural, Short string
	Plane         api.Plane
	// Names of objects that are always there.
	Builtin []string
	// Paths of the fields that must be unique together, and of the columns of `sluice get`.
	Unique, Columns []Path
	Message         protoreflect.MessageType
	// The message's fields with their annotations.
	Fields *Fields
	// Its place among the kinds: an object may need, without naming it, another of a lower rank, but none of a higher.
	Rank int

	// Its deletion alone interrupts no traffic.
	Passive bool

	secret, looping bool
	rules           rules
	// All kinds, by rank.
	ordered []*Kind
}

// Key returns the key of an object of this kind.
func (k *Kind) Key(name string) Key { return Key{k.Name, name} }

// IsBuiltin reports whether an object of this kind is always there.
func (k *Kind) IsBuiltin(name string) bool { return slices.Contains(k.Builtin, name) }

func (k *Kind) describes(spec proto.Message) bool {
	return spec != nil && spec.ProtoReflect().Descriptor() == k.Message.Descriptor()
}

// Fields are the annotated fields of a message.
type Fields struct {
	Message protoreflect.MessageDescriptor
	// In the order of their numbers.
	List []*Field

	byName map[string]*Field
	// Whether a field here or below names other objects.
	refs bool
}

// Field is a field with its annotations.
type Field struct {
	// As people write it: "outerVlan".
	Name  string
	Desc  protoreflect.FieldDescriptor
	Notes *api.Field
	// Of the message that it holds; nil if it holds none.
	Fields *Fields
	// The kind that it names; nil if it names none.
	Ref *Kind

	// Of Desc, which takes longer to answer; and the wire type of a value by itself.
	number protoreflect.FieldNumber
	kind   protoreflect.Kind
	list   bool
	wire   uint8
	// It may be left out, or be 0.
	optional bool
	// One owner has all of it; else each field of the message, or each element of the list, has owners of its own.
	whole bool
}

// Path leads from a kind's message to a field in it.
type Path struct {
	Text  string
	steps []step
}

type step struct {
	field *Field
	// Of a list: every element.
	every bool
}

var noNotes = &api.Field{}

// NewRegistry returns the kinds of the contract that this program was built with, and the rules of these concepts (package concepts has all).
func NewRegistry(concepts ...[]KindRules) (*Registry, error) {
	return Discover(protoregistry.GlobalTypes, concepts...)
}

// Discover finds the kinds among the types, and checks that their annotations are consistent.
func Discover(types *protoregistry.Types, concepts ...[]KindRules) (*Registry, error) {
	var messages []protoreflect.MessageType
	types.RangeMessages(func(mt protoreflect.MessageType) bool {
		messages = append(messages, mt)
		return true
	})
	rules := map[protoreflect.FullName]rules{}
	for _, concept := range concepts {
		for _, one := range concept {
			kind, untyped := one.untyped()
			both, err := rules[kind].and(untyped)
			if err != nil {
				return nil, fmt.Errorf("rules of %s: %w", kind.Name(), err)
			}
			rules[kind] = both
		}
	}
	all, err := (&known{rules: rules}).with(messages)
	if err != nil {
		return nil, err
	}
	return newRegistry(all), nil
}

func newRegistry(contract *known) *Registry {
	r := &Registry{contract: contract}
	r.now.Store(contract)
	return r
}

// Contract returns a registry without the kinds of modules.
func (r *Registry) Contract() *Registry { return newRegistry(r.contract) }

// SchemaName is the name of a message's schema in the OpenAPI document. Messages of two modules may have the same short name.
func SchemaName(d protoreflect.MessageDescriptor) string {
	if ofContract(d) {
		return string(d.Name())
	}
	return string(d.FullName())
}

func ofContract(d protoreflect.MessageDescriptor) bool {
	return d.ParentFile().Package() == api.File_schema_proto.Package()
}

// Add adds the kinds among a module's messages. Nothing is added if an annotation makes no sense, or a kind is there already.
func (r *Registry) Add(module Module, messages []protoreflect.MessageType) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, err := r.now.Load().with(messages)
	if err != nil {
		return err
	}
	all.modules = append(all.modules, module)
	r.now.Store(all)
	return nil
}

// CheckKinds returns the errors for which Add would refuse messages.
func (r *Registry) CheckKinds(messages []protoreflect.MessageType) error {
	_, err := r.now.Load().with(messages)
	return err
}

// Modules returns the modules that added kinds. It must not be changed.
func (r *Registry) Modules() []Module { return r.now.Load().modules }

// AskFor sets a function that is called once, when a kind is not known: it may add kinds. Nil: none.
func (r *Registry) AskFor(more func()) {
	if more == nil {
		r.source.Store(nil)
		return
	}
	r.source.Store(&more)
}

// kind returns a kind by its exact name, or nil.
func (r *Registry) kind(name string) *Kind {
	if k := r.now.Load().byName[name]; k != nil || !r.ask() {
		return k
	}
	return r.now.Load().byName[name]
}

// Ask asks for more kinds, unless that was done before.
func (r *Registry) Ask() { r.ask() }

// ask reports whether there may be more kinds than before.
func (r *Registry) ask() bool {
	more := r.source.Swap(nil)
	if more != nil {
		(*more)()
	}
	return more != nil
}

// with returns these kinds, and those among the messages. Kinds that are there keep their rank: none of them can refer to a new one.
func (before *known) with(messages []protoreflect.MessageType) (*known, error) {
	n := &known{kinds: slices.Clone(before.kinds), byName: map[string]*Kind{}, words: map[string]*Kind{}, ordered: slices.Clone(before.ordered),
		fields: map[protoreflect.FullName]*Fields{}, schemas: map[protoreflect.Name]protoreflect.FullName{}, states: slices.Clone(before.states),
		modules: slices.Clone(before.modules), rules: before.rules}
	maps.Copy(n.schemas, before.schemas)
	maps.Copy(n.byName, before.byName)
	maps.Copy(n.words, before.words)
	maps.Copy(n.fields, before.fields)
	var added []*Kind
	for _, mt := range messages {
		notes, ok := proto.GetExtension(mt.Descriptor().Options(), api.E_Kind).(*api.Kind)
		if !ok || notes == nil {
			continue
		}
		k := &Kind{
			Name: string(mt.Descriptor().Name()), Plural: notes.Plural, Short: notes.Short, Plane: notes.Plane,
			Builtin: notes.Builtin, Message: mt, Passive: notes.Passive,
		}
		if twin := n.byName[k.Name]; twin != nil {
			return nil, fmt.Errorf("kind %s: both %s and %s are called that", k.Name, mt.Descriptor().FullName(), twin.Message.Descriptor().FullName())
		}
		k.rules = n.rules[mt.Descriptor().FullName()]
		n.byName[k.Name] = k
		n.kinds, added = append(n.kinds, k), append(added, k)
	}
	byName := func(a, b *Kind) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(n.kinds, byName)
	slices.SortFunc(added, byName)
	var err error
	for _, k := range added {
		for _, word := range []string{k.Name, k.Plural, k.Short, strings.ReplaceAll(k.Plural, "-", ""), hyphened(k.Name)} {
			word = strings.ToLower(word)
			if other := n.words[word]; other != nil && other != k {
				return nil, fmt.Errorf("kind %s: name, plural or short: %q already means %s; accepted: another word", k.Name, word, other.Name)
			}
			if word != "" {
				n.words[word] = k
			}
		}
		if k.Fields, err = n.messageFields(k.Message.Descriptor()); err != nil {
			return nil, fmt.Errorf("kind %s: %w", k.Name, err)
		}
	}
	if err := n.addStates(messages); err != nil {
		return nil, err
	}
	for _, k := range added {
		if other := n.schemas[protoreflect.Name(k.Name)]; other != "" && other != k.Message.Descriptor().FullName() {
			return nil, fmt.Errorf("kind %s: the message %s is called that", k.Name, other)
		}
	}
	// Messages may contain themselves, so iterate until nothing changes.
	for changed := true; changed; {
		changed = false
		for _, fs := range n.fields {
			for _, f := range fs.List {
				if !fs.refs && (f.Ref != nil || f.Fields != nil && f.Fields.refs) {
					fs.refs, changed = true, true
				}
			}
		}
	}
	for _, k := range added {
		k.secret = holdsSecret(k.Fields, map[*Fields]bool{})
		notes := proto.GetExtension(k.Message.Descriptor().Options(), api.E_Kind).(*api.Kind)
		for _, text := range notes.Unique {
			p, err := k.Path(text)
			if err != nil {
				return nil, fmt.Errorf("kind %s: unique: %w", k.Name, err)
			}
			if p.Field().Notes.Secret {
				return nil, fmt.Errorf("kind %s: unique: %s is secret, and a conflict would reveal who has it", k.Name, text)
			}
			k.Unique = append(k.Unique, p)
		}
		for _, text := range notes.Columns {
			p, err := k.Path(text)
			if err != nil {
				return nil, fmt.Errorf("kind %s: columns: %w", k.Name, err)
			}
			k.Columns = append(k.Columns, p)
		}
	}
	n.order(added)
	return n, nil
}

func holdsSecret(fs *Fields, seen map[*Fields]bool) bool {
	if seen[fs] {
		return false
	}
	seen[fs] = true
	for _, f := range fs.List {
		if f.Notes.Secret || f.Fields != nil && holdsSecret(f.Fields, seen) {
			return true
		}
	}
	return false
}

func (n *known) messageFields(d protoreflect.MessageDescriptor) (*Fields, error) {
	if fs := n.fields[d.FullName()]; fs != nil {
		return fs, nil
	}
	fs := &Fields{Message: d, byName: map[string]*Field{}}
	n.fields[d.FullName()] = fs
	n.nameSchema(d)
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &Field{Name: fd.JSONName(), Desc: fd, Notes: Notes(fd)}
		if f.Notes.Ref != "" {
			if f.Ref = n.byName[f.Notes.Ref]; f.Ref == nil {
				return nil, fmt.Errorf("%s: there is no kind %q to refer to", fd.FullName(), f.Notes.Ref)
			}
			if fd.Kind() != protoreflect.StringKind {
				return nil, fmt.Errorf("%s: a reference must be a string", fd.FullName())
			}
		}
		if fd.IsMap() {
			return nil, fmt.Errorf("%s: kinds have no maps", fd.FullName())
		}
		switch fd.Kind() {
		case protoreflect.MessageKind:
			below, err := n.messageFields(fd.Message())
			if err != nil {
				return nil, err
			}
			f.Fields = below
		case protoreflect.GroupKind, protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.BytesKind:
			return nil, fmt.Errorf("%s: kinds have no fields of type %s", fd.FullName(), fd.Kind())
		}
		f.number, f.kind, f.list, f.wire = fd.Number(), fd.Kind(), fd.IsList(), wireOf(fd.Kind())
		if err := f.share(); err != nil {
			return nil, err
		}
		switch {
		case f.Notes.Required:
		case f.list:
			f.optional = f.Notes.Min <= 0
		case f.kind == protoreflect.EnumKind:
			f.optional = fd.Enum().Values().ByNumber(0) != nil
		default:
			f.optional = f.Notes.Min <= 0 || f.Notes.Zero != ""
		}
		fs.List = append(fs.List, f)
		fs.byName[f.Name] = f
	}
	sort.Slice(fs.List, func(i, j int) bool { return fs.List[i].Desc.Number() < fs.List[j].Desc.Number() })
	return fs, nil
}

// Optional reports whether the field may be left out, or be 0.
func (f *Field) Optional() bool { return f.optional }

// ByName returns a field by the name that people write ("outerVlan"), or nil.
func (fs *Fields) ByName(name string) *Field { return fs.byName[name] }

// Names returns the fields' names, in their order.
func (fs *Fields) Names() []string {
	names := make([]string, len(fs.List))
	for i, f := range fs.List {
		names[i] = f.Name
	}
	return names
}

// Kinds returns all kinds in the order of their names. It must not be changed.
func (r *Registry) Kinds() []*Kind { return r.now.Load().kinds }

// Kind returns a kind by its exact name, or nil.
func (r *Registry) Kind(name string) *Kind { return r.kind(name) }

// minimalPart is the least number of letters of a kind's name that suggests the kind.
const minimalPart = 3

// hyphened returns "pppoe-server" for "PppoeServer".
func hyphened(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) {
			b.WriteByte('-')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Lookup finds a kind by its name, with hyphens or without, its plural or its short form, in any case.
func (r *Registry) Lookup(word string) (*Kind, error) {
	if k := r.now.Load().words[strings.ToLower(word)]; k != nil {
		return k, nil
	}
	if r.ask() {
		return r.Lookup(word)
	}
	kinds := r.Kinds()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	if near := r.nearestKind(word); near != nil {
		return nil, fmt.Errorf("there is no kind %q; did you mean %s?", word, near.Name)
	}
	// "pool" is an AddressPool; a "server" is an IpoeServer, a PppoeServer or a RadiusServer.
	if part := strings.ToLower(strings.TrimSuffix(word, "s")); len(part) >= minimalPart {
		if near := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(strings.ToLower(name), part) }); len(near) > 0 {
			return nil, fmt.Errorf("there is no kind %q; did you mean %s?", word, strings.Join(near, " or "))
		}
	}
	return nil, fmt.Errorf("there is no kind %q; there are %s", word, strings.Join(names, ", "))
}

func (r *Registry) nearestKind(word string) *Kind {
	all := r.now.Load().words
	return all[Nearest(strings.ToLower(word), slices.Sorted(maps.Keys(all)))]
}

// New unpacks a spec. The object is not checked.
func (r *Registry) New(kind, name string, labels map[string]string, spec []byte) (*Object, error) {
	k := r.kind(kind)
	if k == nil {
		_, err := r.Lookup(kind)
		if err == nil {
			err = fmt.Errorf("there is no kind %q", kind)
		}
		return nil, err
	}
	m := k.Message.New().Interface()
	if err := proto.Unmarshal(spec, m); err != nil {
		return nil, fmt.Errorf("%s: spec: %w", Key{kind, name}, err)
	}
	return &Object{Kind: kind, Name: name, Labels: labels, Spec: m}, nil
}

// Path finds the fields that a path like "access.outerVlan" or "nextHops.*.address" names.
func (k *Kind) Path(text string) (Path, error) {
	p := Path{Text: text}
	fs := k.Fields
	for _, name := range strings.Split(text, ".") {
		if last := len(p.steps) - 1; name == "*" && last >= 0 && p.steps[last].field.Desc.IsList() && !p.steps[last].every {
			p.steps[last].every = true
			continue
		}
		if fs == nil {
			return Path{}, fmt.Errorf("%q: there is nothing below %q", text, p.steps[len(p.steps)-1].field.Name)
		}
		f := fs.ByName(name)
		if f == nil {
			return Path{}, fmt.Errorf("%q: there is no field %q in %s", text, name, fs.Message.Name())
		}
		p.steps = append(p.steps, step{field: f})
		fs = f.Fields
	}
	for i, s := range p.steps {
		if i < len(p.steps)-1 && s.field.Desc.IsList() && !s.every {
			return Path{}, fmt.Errorf("%q: %q is a list; write %s.*", text, s.field.Name, s.field.Name)
		}
	}
	return p, nil
}

// UnknownField is the error of a name that is not a field.
type UnknownField struct {
	// The parent of the unknown field: "Session.access"; and its fields, none if it is not a message.
	Above  string
	Fields []string
	Name   string
	// A field with a similar name; empty: there is none.
	Near string
}

func (u *UnknownField) Error() string {
	switch {
	case len(u.Fields) == 0:
		return u.Above + " has no fields"
	case u.Near != "":
		return fmt.Sprintf("%s has no field %q; did you mean %s?", u.Above, u.Name, u.Near)
	}
	return fmt.Sprintf("%s has no field %q; accepted: %s", u.Above, u.Name, strings.Join(u.Fields, ", "))
}

// Find finds the fields that a person names, such as "access.outerVlan" or "nextHops.address": every element of a list is meant. Its error
// is an *UnknownField.
func (k *Kind) Find(text string) (Path, error) {
	p := Path{Text: text}
	fs, above := k.Fields, k.Name
	for _, name := range strings.Split(text, ".") {
		if fs == nil {
			return Path{}, &UnknownField{Above: above, Name: name}
		}
		f := fs.ByName(name)
		if f == nil {
			return Path{}, &UnknownField{Above: above, Fields: fs.Names(), Name: name, Near: Nearest(name, fs.Names())}
		}
		p.steps = append(p.steps, step{field: f, every: f.list})
		fs, above = f.Fields, above+"."+name
	}
	return p, nil
}

// Field returns the field that the path ends at.
func (p Path) Field() *Field { return p.steps[len(p.steps)-1].field }

// Strings returns the values at the path in their shortest spelling: one for each element of a list, none for absent
// fields.
func (p Path) Strings(spec proto.Message) []string {
	var found []string
	p.each(spec.ProtoReflect(), p.steps, func(f *Field, v protoreflect.Value) {
		found = append(found, f.written(v, FormatNumber))
	})
	return found
}

func (p Path) each(m protoreflect.Message, steps []step, yield func(*Field, protoreflect.Value)) {
	f := steps[0].field
	if !m.Has(f.Desc) && (len(steps) > 1 || f.Fields != nil || f.Desc.IsList() || f.Desc.Kind() != protoreflect.EnumKind) {
		return
	}
	one := func(v protoreflect.Value) {
		if len(steps) == 1 {
			yield(f, v)
			return
		}
		p.each(v.Message(), steps[1:], yield)
	}
	v := m.Get(f.Desc)
	if !f.Desc.IsList() {
		one(v)
		return
	}
	for i := range v.List().Len() {
		one(v.List().Get(i))
	}
}

// Nearest returns the candidate that a typing mistake could have made into word, or "".
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	if len(word) > 64 {
		return ""
	}
	for _, c := range candidates {
		d := distance(strings.ToLower(word), strings.ToLower(c))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove, change, or swap with the next.
func distance(a, b string) int {
	before2, before, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			now[j] = min(before[j]+1, now[j-1]+1, before[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before2[j-2]+1)
			}
		}
		before2, before, now = before, now, before2
	}
	return before[len(b)]
}
