// SPDX-License-Identifier: Apache-2.0

package object

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// FieldChange is a difference in one field.
type FieldChange struct {
	// Path in the spec.
	Field string
	// As a person would write it; empty: left out.
	Before, After string
	// The field cannot change in place: the object has to be deleted and created again.
	Immutable bool
	// The change in place interrupts traffic for a moment.
	Interrupts bool
}

// diffLimit bounds the differences of one object: a list of a million rules may differ in each.
const diffLimit = 200

// Diff returns the fields in which two specs of a kind differ, at most 200 of them; those that force a replacement
// come first. Two spellings of one value are equal.
func (k *Kind) Diff(before, after proto.Message) []FieldChange {
	var d diff
	d.message(k.Fields, before.ProtoReflect(), after.ProtoReflect(), "", false)
	return append(d.immutable, d.mutable...)
}

// Replaces reports whether the change from one spec to the other cannot be made in place.
func (k *Kind) Replaces(before, after proto.Message) bool {
	var d diff
	d.message(k.Fields, before.ProtoReflect(), after.ProtoReflect(), "", false)
	return len(d.immutable) > 0
}

type diff struct {
	immutable, mutable []FieldChange
}

func (d *diff) add(f *Field, field, before, after string, immutable bool) {
	c := FieldChange{field, before, after, immutable, f.Notes.Interrupts}
	if immutable && len(d.immutable) < diffLimit {
		d.immutable = append(d.immutable, c)
	} else if !immutable && len(d.immutable)+len(d.mutable) < diffLimit {
		d.mutable = append(d.mutable, c)
	}
}

func (d *diff) message(fs *Fields, a, b protoreflect.Message, path string, immutable bool) {
	for _, f := range fs.List {
		if !a.Has(f.Desc) && !b.Has(f.Desc) {
			continue
		}
		at := path + f.Name
		immutable := immutable || f.Notes.Immutable
		va, vb := a.Get(f.Desc), b.Get(f.Desc)
		switch {
		case f.Desc.IsList():
			d.list(f, va.List(), vb.List(), at, immutable)
		case f.Fields != nil:
			hasA, hasB := a.Has(f.Desc), b.Has(f.Desc)
			switch {
			case hasA && hasB:
				d.message(f.Fields, va.Message(), vb.Message(), at+".", immutable)
			case hasA:
				d.add(f, at, f.text(va), "", immutable || holdsImmutable(f.Fields, va.Message()))
			case hasB:
				d.add(f, at, "", f.text(vb), immutable || holdsImmutable(f.Fields, vb.Message()))
			}
		case !f.same(va, vb):
			d.add(f, at, f.valueText(a, va), f.valueText(b, vb), immutable)
		}
	}
}

// valueText is the text of a value; empty for an absent field, unless its zero has a name.
func (f *Field) valueText(m protoreflect.Message, v protoreflect.Value) string {
	if !m.Has(f.Desc) && f.Desc.Kind() != protoreflect.EnumKind {
		return ""
	}
	return f.text(v)
}

func (d *diff) list(f *Field, a, b protoreflect.List, at string, immutable bool) {
	if f.Fields == nil {
		same := a.Len() == b.Len()
		for i := 0; same && i < a.Len(); i++ {
			same = f.same(a.Get(i), b.Get(i))
		}
		if !same {
			d.add(f, at, f.elements(a), f.elements(b), immutable)
		}
		return
	}
	for i := range max(a.Len(), b.Len()) {
		each := at + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= b.Len():
			d.add(f, each, f.text(a.Get(i)), "", immutable)
		case i >= a.Len():
			d.add(f, each, "", f.text(b.Get(i)), immutable)
		default:
			d.message(f.Fields, a.Get(i).Message(), b.Get(i).Message(), each+".", immutable)
		}
		if len(d.immutable)+len(d.mutable) >= diffLimit && (immutable || !anyImmutable(f.Fields, 0)) {
			return
		}
	}
}

func (f *Field) elements(list protoreflect.List) string {
	if list.Len() == 0 {
		return ""
	}
	var parts []string
	for i := range min(list.Len(), 20) {
		parts = append(parts, f.text(list.Get(i)))
	}
	if list.Len() > 20 {
		parts = append(parts, "...")
	}
	return strings.Join(parts, ", ")
}

func (f *Field) same(a, b protoreflect.Value) bool {
	if f.Desc.Kind() != protoreflect.StringKind {
		return a.Equal(b)
	}
	return a.String() == b.String() || f.canonical(a.String()) == f.canonical(b.String())
}

// holdsImmutable reports whether a message that appears or vanishes takes a value with it that cannot change in place.
func holdsImmutable(fs *Fields, m protoreflect.Message) bool {
	for _, f := range fs.List {
		if m.Has(f.Desc) && (f.Notes.Immutable || f.Fields != nil && !f.Desc.IsList() && holdsImmutable(f.Fields, m.Get(f.Desc).Message())) {
			return true
		}
	}
	return false
}

func anyImmutable(fs *Fields, depth int) bool {
	for _, f := range fs.List {
		if f.Notes.Immutable || f.Fields != nil && depth < 10 && anyImmutable(f.Fields, depth+1) {
			return true
		}
	}
	return false
}

// Column returns the text of a path in `sluice get`: numbers with their units, and elements with commas between, or
// their number if the list is long. Of a message it shows the name, or else the number of messages. If a field is
// absent, it shows the builtin object of the default.
func (p Path) Column(spec proto.Message) string {
	var found []string
	named := true
	p.each(spec.ProtoReflect(), p.steps, func(f *Field, v protoreflect.Value) {
		if f.Fields == nil {
			format := FormatUnit
			switch f.Notes.GetUnit() {
			case api.Unit_BYTES:
				format = FormatNumber // sizes of packets, such as an MTU
			case api.Unit_HEXADECIMAL:
				format = func(_ api.Unit, n uint64) string { return fmt.Sprintf("%08x", n) }
			}
			found = append(found, f.written(v, format))
			return
		}
		name := nameOf(v.Message())
		named = named && name != ""
		found = append(found, name)
	})
	f := p.Field()
	switch {
	case len(found) == 0 && f.Ref != nil && f.Ref.IsBuiltin(f.Notes.GetZero()):
		return f.Notes.GetZero()
	case len(found) > 0 && !named, len(found) > 8, len(found) > 3 && f.Fields != nil:
		return strconv.Itoa(len(found))
	}
	return strings.Join(found, ",")
}

// nameOf is the display name of a part of an object; empty: it has none.
func nameOf(m protoreflect.Message) string {
	for _, name := range []protoreflect.Name{"name", "address", "interface"} {
		if f := m.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() && m.Has(f) {
			return m.Get(f).String()
		}
	}
	return ""
}

// DiffLabels returns the labels in which two objects differ.
func DiffLabels(before, after map[string]string) []FieldChange {
	var all []FieldChange
	for _, l := range slices.Sorted(maps.Keys(before)) {
		if value, stays := after[l]; !stays || value != before[l] {
			all = append(all, FieldChange{Field: "metadata.labels." + l, Before: before[l], After: value})
		}
	}
	for _, l := range slices.Sorted(maps.Keys(after)) {
		if _, there := before[l]; !there {
			all = append(all, FieldChange{Field: "metadata.labels." + l, After: after[l]})
		}
	}
	return all
}
