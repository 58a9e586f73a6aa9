// Layers: what several owners say of one object, and what of that counts. Each field of a message that is not in a list has owners
// of its own, unless its annotation says that it is owned as a whole or by its elements (api/schema.proto, Share); and so has each
// label. Of what several say of a field, what the first layer says counts.
package object

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

const labelPath = "metadata.labels."

// share sets what of the field has owners of its own.
func (f *Field) share() error {
	message := f.Desc.Kind() == protoreflect.MessageKind
	switch s := f.Notes.Share; {
	case s == api.Share_WHOLE && (!message || f.list):
		return fmt.Errorf("%s: only a message is shared as a whole or not", f.Desc.FullName())
	case s == api.Share_ELEMENTS && (!f.list || message):
		return fmt.Errorf("%s: only a list of single values is shared by its elements", f.Desc.FullName())
	default:
		f.whole = s == api.Share_WHOLE || s == api.Share_USUAL && (f.list || !message)
	}
	return nil
}

// owned returns the field that a path without lists leads to, and the message that holds it in a spec, nil if there is none; no field:
// the path leads nowhere, or into what is owned as a whole.
func (fs *Fields) owned(path string, m protoreflect.Message) (*Field, protoreflect.Message) {
	for {
		name, rest, more := strings.Cut(path, ".")
		f := fs.byName[name]
		if f == nil || !more {
			return f, m
		}
		if f.whole || f.Fields == nil {
			return nil, nil
		}
		if fs = f.Fields; m != nil && m.Has(f.Desc) {
			m = m.Get(f.Desc).Message()
		} else {
			m = nil
		}
		path = rest
	}
}

// Within says whether a path leads to a field, or into it.
func Within(path, field string) bool {
	rest, is := strings.CutPrefix(path, field)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isWhole says whether a path leads into something that is owned as a whole, or to an element of a list.
func (fs *Fields) isWhole(path string) bool {
	for path != "" {
		name, rest, _ := strings.Cut(path, ".")
		name, _, element := strings.Cut(name, "[")
		f := fs.byName[name]
		switch {
		case f == nil || f.Fields == nil || f.list:
			return element
		case f.whole:
			return true
		}
		fs, path = f.Fields, rest
	}
	return false
}

func oneofOf(f *Field) protoreflect.OneofDescriptor {
	if one := f.Desc.ContainingOneof(); one != nil && !one.IsSynthetic() {
		return one
	}
	return nil
}

// layer is what one owner says of a message.
type layer struct {
	message protoreflect.Message
	empty   map[string]struct{}
}

func (k *Kept) layer() layer {
	l := layer{message: k.message().ProtoReflect()}
	if fields := k.Empty(); len(fields) > 0 {
		l.empty = make(map[string]struct{}, len(fields))
		for _, f := range fields {
			l.empty[f] = struct{}{}
		}
	}
	return l
}

// Merge returns an object as it counts. Of the layers, at least one, each of the same object, the first counts most. What it returns
// is not examined, and says nothing to be empty.
func Merge(layers []*Kept) (*Kept, error) {
	spec, labels, _ := merged(layers)
	first := layers[0]
	packed, err := Pack(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", first.Key(), err)
	}
	return newKept(nil, first.kind, first.name(), labels, nil, packed), nil
}

// Empty returns the fields of which it counts that they are said to be empty, sorted. Layers are as for Merge.
func Empty(layers []*Kept) []string {
	_, _, empty := merged(layers)
	slices.Sort(empty)
	return empty
}

func merged(layers []*Kept) (message proto.Message, labels map[string]string, empty []string) {
	first := layers[0]
	spec := first.kind.Message.New()
	below := make([]layer, len(layers))
	labels = map[string]string{}
	for i, l := range layers {
		below[i] = l.layer()
		for label, value := range l.Labels() {
			if _, said := labels[label]; !said {
				labels[label] = value
			}
		}
	}
	empty = merge(first.kind.Fields, spec, below, "", nil)
	return spec.Interface(), labels, empty
}

// merge adds what is said to be empty to what it is given of that.
func merge(fs *Fields, into protoreflect.Message, layers []layer, path string, empty []string) []string {
	for _, f := range fs.List {
		of, at := layers, path+f.Name
		if one := oneofOf(f); one != nil {
			// They exclude each other: which of them it is, is said by the first who has any.
			of = slices.DeleteFunc(slices.Clone(layers), func(l layer) bool { return l.message.WhichOneof(one) == nil })
			if len(of) == 0 || of[0].message.WhichOneof(one) != f.Desc {
				continue
			}
		}
		of = slices.DeleteFunc(slices.Clone(of), func(l layer) bool {
			_, empty := l.empty[at]
			return !empty && !l.message.Has(f.Desc)
		})
		switch {
		case len(of) == 0:
		case f.whole:
			if of[0].message.Has(f.Desc) {
				into.Set(f.Desc, of[0].message.Get(f.Desc))
			} else {
				empty = append(empty, at)
			}
		case f.list:
			f.unite(into, of)
		default:
			below := make([]layer, len(of))
			for i, l := range of {
				below[i] = layer{l.message.Get(f.Desc).Message(), l.empty}
			}
			empty = merge(f.Fields, into.Mutable(f.Desc).Message(), below, at+".", empty)
		}
	}
	return empty
}

// unite puts into a list what any layer has in it: in the layer's order if it is one, else in an order that does not depend on theirs.
func (f *Field) unite(into protoreflect.Message, layers []layer) {
	type element struct {
		name  string
		value protoreflect.Value
	}
	var all []element
	seen := map[string]struct{}{}
	for _, l := range layers {
		list := l.message.Get(f.Desc).List()
		for i := range list.Len() {
			name := f.name(list.Get(i))
			if _, twice := seen[name]; twice && len(layers) > 1 {
				continue
			}
			seen[name] = struct{}{}
			all = append(all, element{name, list.Get(i)})
		}
	}
	if len(layers) > 1 {
		slices.SortStableFunc(all, func(a, b element) int { return strings.Compare(a.name, b.name) })
	}
	if len(all) == 0 {
		return
	}
	list := into.Mutable(f.Desc).List()
	for _, e := range all {
		list.Append(e.value)
	}
}

// name is the same for all ways to write a value.
func (f *Field) name(v protoreflect.Value) string {
	if f.kind == protoreflect.StringKind {
		return f.canonical(v.String())
	}
	return f.text(v)
}

// saying is what a layer says of one thing that has owners of its own.
type saying struct {
	// Where it stands. Two layers with the same path say something of the same thing.
	path, field string
	// Nil: a label.
	of *Field
	// As it is compared: of a whole message or a list its packed form.
	text string
	// Nil: a label, or what is said to be empty.
	message protoreflect.Message
	// Of a list that is shared: all that anybody says of it is in it.
	element bool
}

// sayings returns what a layer says, in the order of the contract, and then its labels.
func (k *Kept) sayings() []saying {
	var all []saying
	l := k.layer()
	collect(k.kind.Fields, l.message, l.empty, "", &all)
	labels := k.Labels()
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, saying{path: labelPath + label, field: labelPath + label, text: labels[label]})
	}
	return all
}

func collect(fs *Fields, m protoreflect.Message, empty map[string]struct{}, path string, all *[]saying) {
	for _, f := range fs.List {
		at := path + f.Name
		s := saying{path: at, field: at, of: f, message: m}
		if !m.Has(f.Desc) {
			if _, said := empty[at]; said && f.whole {
				s.message = nil
				*all = append(*all, s)
			}
			continue
		}
		if one := oneofOf(f); one != nil {
			// Whoever has one of them says that it is none of the others.
			s.path, s.text = path+string(one.Name())+"?", f.Name
			if f.whole {
				s.text += f.packed(m)
			}
			*all = append(*all, s)
			if f.whole {
				continue
			}
		}
		switch {
		case f.whole:
			s.text = f.packed(m)
			*all = append(*all, s)
		case f.list:
			list := m.Get(f.Desc).List()
			for i := range list.Len() {
				name := f.name(list.Get(i))
				*all = append(*all, saying{path: at + "[" + name + "]", field: at, of: f, text: name, element: true})
			}
		default:
			collect(f.Fields, m.Get(f.Desc).Message(), empty, at+".", all)
		}
	}
}

// packed is the same for the same value, and for the ways to write a single one.
func (f *Field) packed(m protoreflect.Message) string {
	v := m.Get(f.Desc)
	if !f.list && f.Fields == nil {
		return f.name(v)
	}
	alone := m.New()
	alone.Set(f.Desc, v)
	// What was unpacked can be packed.
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(alone.Interface())
	return string(text)
}

// shown is what is said, as a person would write it.
func (s *saying) shown() string {
	switch {
	case s.of == nil && s.text == "":
		return `""`
	case s.of == nil:
		return s.text
	case s.of.Notes.Secret:
		return "(secret)"
	case s.element:
		return s.text
	case s.message == nil && s.of.list:
		return "[]"
	case s.message == nil && s.of.kind == protoreflect.StringKind:
		return `""`
	case s.message == nil:
		return s.of.text(s.of.Desc.Default())
	case s.of.list:
		return "[" + s.of.elements(s.message.Get(s.of.Desc).List()) + "]"
	}
	return s.of.text(s.message.Get(s.of.Desc))
}

// against returns where two sayings of the same thing differ first.
func (s *saying) against(other *saying) (first FieldChange, differ bool) {
	first = FieldChange{Field: s.field, Before: other.shown(), After: s.shown()}
	switch {
	case s.text == other.text && (s.message == nil) == (other.message == nil):
		return first, false
	case s.of != other.of:
		first.Before = other.field + ": " + first.Before
	case s.message != nil && other.message != nil:
		// Where exactly, in a list or message. There are several ways to write the same.
		var d diff
		d.message(&Fields{List: []*Field{s.of}}, other.message, s.message, strings.TrimSuffix(s.field, s.of.Name), false)
		if all := append(d.mutable, d.immutable...); len(all) > 0 {
			return all[0], true
		}
		return first, false
	}
	return first, true
}

// Said is what a layer says of one field.
type Said struct {
	// Path in the spec, or "metadata.labels." and the key.
	Field string
	// As a person would write it.
	Value string
	// Another value counts.
	Overridden bool
}

// Layers returns what each layer says; of the layers of one object, the first counts most.
func Layers(layers []*Kept) [][]Said {
	all := make([][]Said, len(layers))
	counts := map[string]saying{}
	for i, l := range layers {
		for _, s := range l.sayings() {
			first, there := counts[s.path]
			if !there {
				counts[s.path], first = s, s
			}
			if s.of != nil && !s.of.whole && !s.element {
				continue // what is said is in it
			}
			_, differ := s.against(&first)
			value := s.shown()
			if last := len(all[i]) - 1; s.element && last >= 0 && all[i][last].Field == s.field {
				all[i][last].Value += ", " + value
				continue
			}
			all[i] = append(all[i], Said{s.field, value, differ})
		}
	}
	return all
}

// Contradiction is something that two layers say differently.
type Contradiction struct {
	// What has an owner of its own, and the first place in it where they differ.
	Path, Field string
	// As a person would write it.
	Mine, Theirs string
}

// Contradicts returns what another layer of the same object says differently, not what only one of them says anything of. Nil: nothing.
func (k *Kept) Contradicts(other *Kept) []Contradiction {
	if k == nil || other == nil {
		return nil
	}
	said := map[string]saying{}
	for _, s := range other.sayings() {
		said[s.path] = s
	}
	var all []Contradiction
	for _, mine := range k.sayings() {
		theirs, both := said[mine.path]
		if !both {
			continue
		}
		if first, differ := mine.against(&theirs); differ {
			all = append(all, Contradiction{mine.path, first.Field, first.After, first.Before})
		}
	}
	return all
}
