// SPDX-License-Identifier: Apache-2.0

// Layers: several owners' fields of one object, and the merged object. Each field of a message that is not in a list
// has owners of its own, unless its annotation makes it owned as a whole or by its elements (api/schema.proto,
// Share). So has each label. If several layers have a field, the first layer counts.
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

// share marks which parts of the field have owners of their own.
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

// owned returns the field at a path without lists, and the message that holds it in a spec, nil if there is none. No
// field: the path leads nowhere, or into a field that is owned as a whole.
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

// Within reports whether a path leads to a field, or into it.
func Within(path, field string) bool {
	rest, is := strings.CutPrefix(path, field)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// isWhole reports whether a path leads into something that is owned as a whole, or to an element of a list.
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

// layer is one owner's part of a message.
type layer struct {
	message protoreflect.Message
	empty   map[string]struct{}
}

func (k *StoredObject) layer() layer {
	l := layer{message: k.message().ProtoReflect()}
	if fields := k.Empty(); len(fields) > 0 {
		l.empty = make(map[string]struct{}, len(fields))
		for _, f := range fields {
			l.empty[f] = struct{}{}
		}
	}
	return l
}

// Merge returns the merged object. There is at least one layer, all are of the same object, and the first has the
// highest precedence. The result is not examined, and has no fields that are set to empty.
func Merge(layers []*StoredObject) (*StoredObject, error) {
	spec, labels, _ := merged(layers)
	first := layers[0]
	packed, err := Pack(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", first.Key(), err)
	}
	return newStoredObject(nil, first.kind, first.name(), labels, nil, packed), nil
}

// Empty returns the fields that count as set to empty, sorted. Layers are as for Merge.
func Empty(layers []*StoredObject) []string {
	_, _, empty := merged(layers)
	slices.Sort(empty)
	return empty
}

func merged(layers []*StoredObject) (message proto.Message, labels map[string]string, empty []string) {
	first := layers[0]
	spec := first.kind.Message.New()
	below := make([]layer, len(layers))
	labels = map[string]string{}
	for i, l := range layers {
		below[i] = l.layer()
		for label, value := range l.Labels() {
			if _, explicit := labels[label]; !explicit {
				labels[label] = value
			}
		}
	}
	empty = merge(first.kind.Fields, spec, below, "", nil)
	return spec.Interface(), labels, empty
}

// merge appends the fields that are set to empty to `empty`.
func merge(fs *Fields, into protoreflect.Message, layers []layer, path string, empty []string) []string {
	for _, f := range fs.List {
		of, at := layers, path+f.Name
		if one := oneofOf(f); one != nil {
			// A oneof: the first layer that sets any member decides which one.
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

// unite puts the elements of all layers into a list: in the layer's order if there is one layer, else in an order
// that does not depend on theirs.
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

// layerValue is a layer's value of one thing that has owners of its own.
type layerValue struct {
	// The path. Two layers with the same path have a value of the same thing.
	path, field string
	// Nil: a label.
	of *Field
	// As it is compared: of a whole message or a list its packed form.
	text string
	// Nil: a label, or an explicit zero.
	message protoreflect.Message
	// Of a shared list: it has the elements of all owners.
	element bool
}

// layerValues returns the values of a layer, in the order of the contract, and then its labels.
func (k *StoredObject) layerValues() []layerValue {
	var all []layerValue
	l := k.layer()
	collect(k.kind.Fields, l.message, l.empty, "", &all)
	labels := k.Labels()
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, layerValue{path: labelPath + label, field: labelPath + label, text: labels[label]})
	}
	return all
}

func collect(fs *Fields, m protoreflect.Message, empty map[string]struct{}, path string, all *[]layerValue) {
	for _, f := range fs.List {
		at := path + f.Name
		s := layerValue{path: at, field: at, of: f, message: m}
		if !m.Has(f.Desc) {
			if _, explicit := empty[at]; explicit && f.whole {
				s.message = nil
				*all = append(*all, s)
			}
			continue
		}
		if one := oneofOf(f); one != nil {
			// One member of a oneof excludes the others.
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
				*all = append(*all, layerValue{path: at + "[" + name + "]", field: at, of: f, text: name, element: true})
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
	// An unpacked message can always be packed.
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(alone.Interface())
	return string(text)
}

// shown is the value in the notation of YAML.
func (s *layerValue) shown() string {
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
func (s *layerValue) against(other *layerValue) (first FieldChange, differ bool) {
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

// OwnedField is one field of a layer.
type OwnedField struct {
	// Path in the spec, or "metadata.labels." and the key.
	Field string
	// As a person would write it.
	Value string
	// Another value counts.
	Overridden bool
}

// Layers returns the fields of each layer. The first of the layers has the highest precedence.
func Layers(layers []*StoredObject) [][]OwnedField {
	all := make([][]OwnedField, len(layers))
	counts := map[string]layerValue{}
	for i, l := range layers {
		for _, s := range l.layerValues() {
			first, there := counts[s.path]
			if !there {
				counts[s.path], first = s, s
			}
			if s.of != nil && !s.of.whole && !s.element {
				continue // its elements are listed
			}
			_, differ := s.against(&first)
			value := s.shown()
			if last := len(all[i]) - 1; s.element && last >= 0 && all[i][last].Field == s.field {
				all[i][last].Value += ", " + value
				continue
			}
			all[i] = append(all[i], OwnedField{s.field, value, differ})
		}
	}
	return all
}

// Contradiction is something that two layers say differently.
type Contradiction struct {
	// The path with an owner of its own, and the first differing field in it.
	Path, Field string
	// As a person would write it.
	Mine, Theirs string
}

// Contradicts returns the fields in which another layer of the same object differs, without fields that only one of
// them has. Nil: none.
func (k *StoredObject) Contradicts(other *StoredObject) []Contradiction {
	if k == nil || other == nil {
		return nil
	}
	others := map[string]layerValue{}
	for _, s := range other.layerValues() {
		others[s.path] = s
	}
	var all []Contradiction
	for _, mine := range k.layerValues() {
		theirs, both := others[mine.path]
		if !both {
			continue
		}
		if first, differ := mine.against(&theirs); differ {
			all = append(all, Contradiction{mine.path, first.Field, first.After, first.Before})
		}
	}
	return all
}
