package object

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"sluice.dev/sluice/agent/api"
)

// Registry holds the kinds of the contract. It does not change after it was made, and may be shared.
type Registry struct {
	kinds  []*Kind // by name
	byName map[string]*Kind
	words  map[string]*Kind // name, plural and short form, in lower case
}

// Kind is a kind of object, as its message and its annotations describe it.
type Kind struct {
	Name string
	// How the command line calls many, and a short form that may be empty.
	Plural, Short string
	Plane         api.Plane
	// Names of objects that are always there.
	Builtin []string
	// Paths of the fields that make up what no two objects may share, and of those that `sluice get` shows.
	Unique, Columns []Path
	Message         protoreflect.MessageType
	// The message's fields with their annotations.
	Fields *Fields
	// Its place among the kinds: an object may need, without naming it, another of a lower rank, but none of a higher.
	Rank int

	// To delete one interrupts nobody by itself.
	Passive bool

	secret, looping bool
	rules           rules
	// All kinds, by rank.
	ordered []*Kind
}

// Key returns the key of an object of this kind.
func (k *Kind) Key(name string) Key { return Key{k.Name, name} }

// IsBuiltin says whether an object of this kind is always there.
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

// NewRegistry returns the kinds of the contract that this program was built with.
func NewRegistry() (*Registry, error) {
	return Discover(protoregistry.GlobalTypes)
}

// Discover finds the kinds among the types, and checks that what their annotations say makes sense.
func Discover(types *protoregistry.Types) (*Registry, error) {
	r := &Registry{byName: map[string]*Kind{}, words: map[string]*Kind{}}
	var err error
	types.RangeMessages(func(mt protoreflect.MessageType) bool {
		notes, ok := proto.GetExtension(mt.Descriptor().Options(), api.E_Kind).(*api.Kind)
		if !ok || notes == nil {
			return true
		}
		k := &Kind{
			Name: string(mt.Descriptor().Name()), Plural: notes.Plural, Short: notes.Short, Plane: notes.Plane,
			Builtin: notes.Builtin, Message: mt, Passive: notes.Passive,
		}
		if twin := r.byName[k.Name]; twin != nil {
			err = fmt.Errorf("kind %s: both %s and %s are called that", k.Name, mt.Descriptor().FullName(), twin.Message.Descriptor().FullName())
			return false
		}
		k.rules = rulesOf[mt.Descriptor().FullName()]
		r.byName[k.Name] = k
		r.kinds = append(r.kinds, k)
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(r.kinds, func(a, b *Kind) int { return strings.Compare(a.Name, b.Name) })
	known := map[protoreflect.FullName]*Fields{}
	for _, k := range r.kinds {
		for _, word := range []string{k.Name, k.Plural, k.Short, strings.ReplaceAll(k.Plural, "-", "")} {
			word = strings.ToLower(word)
			if other := r.words[word]; other != nil && other != k {
				return nil, fmt.Errorf("kind %s: %q already means %s", k.Name, word, other.Name)
			}
			if word != "" {
				r.words[word] = k
			}
		}
		if k.Fields, err = r.fields(k.Message.Descriptor(), known); err != nil {
			return nil, fmt.Errorf("kind %s: %w", k.Name, err)
		}
	}
	// Messages may hold themselves, so what a field holds is known only after all of them are.
	for changed := true; changed; {
		changed = false
		for _, fs := range known {
			for _, f := range fs.List {
				if !fs.refs && (f.Ref != nil || f.Fields != nil && f.Fields.refs) {
					fs.refs, changed = true, true
				}
			}
		}
	}
	for _, k := range r.kinds {
		k.secret = holdsSecret(k.Fields, map[*Fields]bool{})
		notes := proto.GetExtension(k.Message.Descriptor().Options(), api.E_Kind).(*api.Kind)
		for _, text := range notes.Unique {
			p, err := k.Path(text)
			if err != nil {
				return nil, fmt.Errorf("kind %s: unique: %w", k.Name, err)
			}
			if p.Field().Notes.Secret {
				return nil, fmt.Errorf("kind %s: unique: %s is secret, and who has it already would be told", k.Name, text)
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
	r.order()
	return r, nil
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

func (r *Registry) fields(d protoreflect.MessageDescriptor, known map[protoreflect.FullName]*Fields) (*Fields, error) {
	if fs := known[d.FullName()]; fs != nil {
		return fs, nil
	}
	fs := &Fields{Message: d, byName: map[string]*Field{}}
	known[d.FullName()] = fs
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := &Field{Name: fd.JSONName(), Desc: fd, Notes: noNotes}
		if notes, ok := proto.GetExtension(fd.Options(), api.E_Field).(*api.Field); ok && notes != nil {
			f.Notes = notes
		}
		if f.Notes.Ref != "" {
			if f.Ref = r.byName[f.Notes.Ref]; f.Ref == nil {
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
			below, err := r.fields(fd.Message(), known)
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

// Optional says whether the field may be left out, or be 0.
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
func (r *Registry) Kinds() []*Kind { return r.kinds }

// Kind returns a kind by its exact name, or nil.
func (r *Registry) Kind(name string) *Kind { return r.byName[name] }

// Lookup finds a kind by what a person calls it: its name, its plural or its short form, in any case.
func (r *Registry) Lookup(word string) (*Kind, error) {
	if k := r.words[strings.ToLower(word)]; k != nil {
		return k, nil
	}
	names := make([]string, len(r.kinds))
	for i, k := range r.kinds {
		names[i] = k.Name
	}
	if near := r.nearestKind(word); near != nil {
		return nil, fmt.Errorf("there is no kind %q; did you mean %s?", word, near.Name)
	}
	return nil, fmt.Errorf("there is no kind %q; there are %s", word, strings.Join(names, ", "))
}

func (r *Registry) nearestKind(word string) *Kind {
	words := make([]string, 0, len(r.words))
	for w := range r.words {
		words = append(words, w)
	}
	slices.Sort(words)
	return r.words[Nearest(strings.ToLower(word), words)]
}

// New unpacks a spec. The object is not checked.
func (r *Registry) New(kind, name string, labels map[string]string, spec []byte) (*Object, error) {
	k := r.byName[kind]
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

// Field returns the field that the path ends at.
func (p Path) Field() *Field { return p.steps[len(p.steps)-1].field }

// Strings returns what stands at the path, as short as a person would write it: one for each element of a list, none for what is
// left out.
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
