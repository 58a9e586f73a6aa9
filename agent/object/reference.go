// SPDX-License-Identifier: Apache-2.0

package object

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Reference is an object that another one names, and so needs.
type Reference struct {
	// Path in the spec of the field that names it.
	Field string
	To    Key
	// It is always there.
	Builtin bool
}

// References returns the objects that an object names, in the order of its fields. An absent field names the builtin
// object of its kind if there is one, else none.
func (r *Registry) References(o *Object) []Reference {
	k := r.kind(o.Kind)
	if k == nil || !k.Fields.refs || !k.describes(o.Spec) {
		return nil
	}
	return appendReferences(nil, k.Fields, o.Spec.ProtoReflect(), "")
}

func appendReferences(refs []Reference, fs *Fields, m protoreflect.Message, path string) []Reference {
	for _, f := range fs.List {
		switch {
		case f.Ref != nil && f.Desc.IsList():
			list := m.Get(f.Desc).List()
			for i := range list.Len() {
				name := list.Get(i).String()
				refs = append(refs, Reference{path + f.Name + "[" + strconv.Itoa(i) + "]", Key{f.Ref.Name, name}, f.Ref.IsBuiltin(name)})
			}
		case f.Ref != nil:
			if name := f.refName(m.Get(f.Desc).String()); name != "" {
				refs = append(refs, Reference{path + f.Name, Key{f.Ref.Name, name}, f.Ref.IsBuiltin(name)})
			}
		case f.Fields == nil || !f.Fields.refs || !m.Has(f.Desc):
		case f.Desc.IsList():
			list := m.Get(f.Desc).List()
			for i := range list.Len() {
				refs = appendReferences(refs, f.Fields, list.Get(i).Message(), path+f.Name+"["+strconv.Itoa(i)+"].")
			}
		default:
			refs = appendReferences(refs, f.Fields, m.Get(f.Desc).Message(), path+f.Name+".")
		}
	}
	return refs
}

// appendNeeds appends the result of References without paths, builtin objects and duplicates.
func appendNeeds(needs []Key, fs *Fields, m protoreflect.Message) []Key {
	for _, f := range fs.List {
		if f.Ref == nil && (f.Fields == nil || !f.Fields.refs) || !m.Has(f.Desc) {
			continue
		}
		v := m.Get(f.Desc)
		switch {
		case f.Ref != nil && f.list:
			for i := range v.List().Len() {
				needs = f.appendNeed(needs, v.List().Get(i).String())
			}
		case f.Ref != nil:
			needs = f.appendNeed(needs, v.String())
		case f.list:
			for i := range v.List().Len() {
				needs = appendNeeds(needs, f.Fields, v.List().Get(i).Message())
			}
		default:
			needs = appendNeeds(needs, f.Fields, v.Message())
		}
	}
	return needs
}

func (f *Field) appendNeed(needs []Key, name string) []Key {
	if f.Ref.IsBuiltin(name) {
		return needs
	}
	if to := (Key{f.Ref.Name, name}); !slices.Contains(needs, to) {
		needs = append(needs, to)
	}
	return needs
}

// refName is the name of the object that a reference's text means.
func (f *Field) refName(written string) string {
	if written == "" && len(f.Ref.Builtin) == 1 && !f.Desc.IsList() {
		return f.Ref.Builtin[0]
	}
	return written
}

// canonical is the one way to write a field's string.
func (f *Field) canonical(s string) string {
	if f.Ref != nil {
		return f.refName(s)
	}
	if s != "" {
		if c, err := Canonical(f.Notes.Format, s); err == nil {
			return c
		}
	}
	return s
}

// Redacted returns the object without secrets: itself, if it has none.
func (r *Registry) Redacted(o *Object) *Object {
	k := r.kind(o.Kind)
	if k == nil || !k.secret || o.Spec == nil {
		return o
	}
	bare := *o
	bare.Spec = proto.Clone(o.Spec)
	redact(k.Fields, bare.Spec.ProtoReflect())
	return &bare
}

func redact(fs *Fields, m protoreflect.Message) {
	for _, f := range fs.List {
		switch {
		case f.Notes.Secret:
			m.Clear(f.Desc)
		case f.Fields == nil || !m.Has(f.Desc):
		case f.Desc.IsList():
			list := m.Get(f.Desc).List()
			for i := range list.Len() {
				redact(f.Fields, list.Get(i).Message())
			}
		default:
			redact(f.Fields, m.Get(f.Desc).Message())
		}
	}
}
