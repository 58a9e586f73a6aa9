package object

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// FieldChange is what is different in one field.
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

// diffLimit bounds what is told about one object: a list of a million rules may differ in each.
const diffLimit = 200

// Diff says in which fields two specs of a kind differ, at most 200 of them; those that force a replacement come first.
// Two ways to write the same are no difference.
func (k *Kind) Diff(before, after proto.Message) []FieldChange {
	var d diff
	d.message(k.Fields, before.ProtoReflect(), after.ProtoReflect(), "", false)
	return append(d.immutable, d.mutable...)
}

// Replaces says whether the change from one spec to the other cannot be made in place.
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
			d.add(f, at, f.told(a, va), f.told(b, vb), immutable)
		}
	}
}

// told is empty for a field that is left out, unless that has a name of its own.
func (f *Field) told(m protoreflect.Message, v protoreflect.Value) string {
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

// holdsImmutable says whether a message that appears or vanishes takes a value with it that cannot change in place.
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

// Column returns what `sluice get` shows for a path: elements with commas between, or how many there are if that would be long.
func (p Path) Column(spec proto.Message) string {
	found := p.Strings(spec)
	if len(found) > 3 || p.Field().Fields != nil && len(found) > 1 {
		if p.Field().Fields != nil || len(found) > 8 {
			return strconv.Itoa(len(found))
		}
	}
	return strings.Join(found, ",")
}

// DiffLabels says in which labels two objects differ.
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
