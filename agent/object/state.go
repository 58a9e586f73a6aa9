// SPDX-License-Identifier: Apache-2.0

// Operational state, as the option `state` of api/schema.proto declares it.
package object

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// State is a question about operational state, and its answer.
type State struct {
	Notes *api.OperationalState
	// The question, whose fields are filters.
	Query, Reply protoreflect.MessageType
	Filters      *Fields
	Columns      []StateColumn
}

// StateColumn is a column of a table of states.
type StateColumn struct {
	Heading string
	// From the answer; values of several share the column. Empty: Number or Spec.
	Paths [][]protoreflect.FieldDescriptor
	// The number of the row.
	Number bool
	// The path of a list of the object's spec.
	Spec string
}

// States returns all states, in the order of their paths in the REST API.
func (r *Registry) States() []*State { return r.now.Load().states }

// StateOf returns the state that a message asks for; nil: it asks for none.
func (r *Registry) StateOf(query protoreflect.FullName) *State {
	for _, s := range r.States() {
		if s.Query.Descriptor().FullName() == query {
			return s
		}
	}
	return nil
}

// StatesOf returns the states of a kind, in the order of their names.
func (r *Registry) StatesOf(kind string) (all []*State) {
	for _, s := range r.States() {
		if slices.Contains(s.Notes.GetKinds(), kind) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *State) int { return strings.Compare(a.Notes.GetName(), b.Notes.GetName()) })
	return all
}

// Element returns the state whose elements people call so; nil: none.
func (r *Registry) Element(word string) *State {
	for _, s := range r.States() {
		if s.Notes.GetElement() == word && word != "" {
			return s
		}
	}
	return nil
}

// Notes returns the annotations of a field.
func Notes(f protoreflect.FieldDescriptor) *api.Field {
	if notes, ok := proto.GetExtension(f.Options(), api.E_Field).(*api.Field); ok && notes != nil {
		return notes
	}
	return noNotes
}

// RefersTo returns the field of a message that refers to a kind; nil: it has none.
func RefersTo(d protoreflect.MessageDescriptor, kind string) protoreflect.FieldDescriptor {
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); Notes(f).Ref == kind {
			return f
		}
	}
	return nil
}

// NextPage is the field of an answer that names the page after it.
const NextPage = "next_page"

// Ask returns the question about one object. False: the state is of no single object, or nothing but the object is not enough to ask.
func (s *State) Ask(k Key) (proto.Message, bool) {
	q := s.Query.New()
	named := RefersTo(q.Descriptor(), k.Kind)
	for _, f := range s.Filters.List {
		if f.Notes.Required && f.Desc != named {
			return nil, false
		}
	}
	switch {
	case named == nil:
		return q.Interface(), s.part(k.Kind) != nil
	case named.IsList():
		q.Mutable(named).List().Append(protoreflect.ValueOfString(k.Name))
	default:
		q.Set(named, protoreflect.ValueOfString(k.Name))
	}
	return q.Interface(), true
}

// part is the field of the answer that is about objects of a kind; nil: the whole is.
func (s *State) part(kind string) protoreflect.FieldDescriptor {
	fields := s.Reply.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() != nil && (Notes(f).Ref == kind || f.IsList() && RefersTo(f.Message(), kind) != nil) {
			return f
		}
	}
	return nil
}

// Part returns the part of an answer about one object: a message, the only element of a list about it, or the whole. Nil: none.
// `single`: the answer is about this object alone, so that the field with its name is redundant.
func (s *State) Part(reply protoreflect.Message, k Key) (m protoreflect.Message, single bool) {
	f := s.part(k.Kind)
	switch {
	case f == nil:
		return reply, false
	case !f.IsList() && reply.Has(f):
		return reply.Get(f).Message(), true
	case f.IsList():
		name, all := RefersTo(f.Message(), k.Kind), reply.Get(f).List()
		for i := range all.Len() {
			one := all.Get(i).Message()
			switch {
			case one.Get(name).String() != k.Name:
			case m != nil:
				return reply, false
			default:
				m = one
			}
		}
	}
	return m, true
}

// About returns the objects that a question refers to, if it refers to one of their kind alone.
func (s *State) About(query protoreflect.Message) (all []Key) {
	for _, f := range s.Filters.List {
		v := query.Get(f.Desc)
		switch {
		case f.Ref == nil || !query.Has(f.Desc):
		case !f.Desc.IsList():
			all = append(all, f.Ref.Key(v.String()))
		case v.List().Len() == 1:
			all = append(all, f.Ref.Key(v.List().Get(0).String()))
		}
	}
	return all
}

// Rows is the list of the answer whose elements are the rows of tables; nil: the answer is one row.
func (s *State) Rows() protoreflect.FieldDescriptor {
	for _, c := range s.Columns {
		for _, path := range c.Paths {
			if path[0].IsList() {
				return path[0]
			}
		}
	}
	return nil
}

// Narrow sets a filter of a question, as people write its value.
func (s *State) Narrow(query proto.Message, name, value string) error {
	f := s.Filters.ByName(name)
	if f == nil {
		return fmt.Errorf("%q is no filter of %s; accepted: %s", name, s.Notes.GetName(), strings.Join(s.Filters.Names(), ", "))
	}
	m := query.ProtoReflect()
	switch kind := f.Desc.Kind(); {
	case f.Desc.IsList():
		m.Mutable(f.Desc).List().Append(protoreflect.ValueOfString(value))
	case kind == protoreflect.BoolKind && (value == "true" || value == "false"):
		m.Set(f.Desc, protoreflect.ValueOfBool(value == "true"))
	case kind == protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("%s: found %q; accepted: 0 to %d", name, value, uint32(1<<32-1))
		}
		m.Set(f.Desc, protoreflect.ValueOfUint32(uint32(n)))
	case kind == protoreflect.StringKind:
		m.Set(f.Desc, protoreflect.ValueOfString(value))
	default:
		return fmt.Errorf("%s: found %q; accepted: true, false", name, value)
	}
	return nil
}

// Keep removes all elements of the answer's list but those of one object.
func (s *State) Keep(reply protoreflect.Message, k Key) {
	if f := s.part(k.Kind); f != nil && f.IsList() {
		keep(reply.Mutable(f).List(), RefersTo(f.Message(), k.Kind), k.Name)
	}
}

// keep leaves the elements of a list whose field has a value.
func keep(all protoreflect.List, f protoreflect.FieldDescriptor, value string) {
	n := 0
	for i := range all.Len() {
		if one := all.Get(i); one.Message().Get(f).String() == value {
			all.Set(n, one)
			n++
		}
	}
	all.Truncate(n)
}

// Filter removes elements of the answer's lists that refer to another object than the query, for answers that ignore
// the filter.
func (s *State) Filter(query, reply protoreflect.Message) {
	for _, filter := range s.Filters.List {
		if filter.Ref == nil || filter.Desc.IsList() || !query.Has(filter.Desc) {
			continue
		}
		fields := reply.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			if !f.IsList() || f.Message() == nil {
				continue
			}
			if name := RefersTo(f.Message(), filter.Ref.Name); name != nil {
				keep(reply.Mutable(f).List(), name, query.Get(filter.Desc).String())
			}
		}
	}
}

// addStates adds the states among messages.
func (n *known) addStates(messages []protoreflect.MessageType) error {
	for _, mt := range messages {
		notes, ok := proto.GetExtension(mt.Descriptor().Options(), api.E_State).(*api.OperationalState)
		if !ok || notes == nil {
			continue
		}
		s := &State{Notes: notes, Query: mt}
		name := mt.Descriptor().FullName()
		reply := name.Parent().Append(protoreflect.Name(notes.GetReply()))
		if i := slices.IndexFunc(messages, func(m protoreflect.MessageType) bool { return m.Descriptor().FullName() == reply }); i >= 0 {
			s.Reply = messages[i]
		} else {
			return fmt.Errorf("state %s: reply: there is no message %s", name, reply)
		}
		for _, kind := range notes.GetKinds() {
			if n.byName[kind] == nil {
				return fmt.Errorf("state %s: there is no kind %q", name, kind)
			}
		}
		if path.Clean("/"+notes.GetPath()) != "/"+notes.GetPath() || notes.GetPath() == "" || notes.GetName() == "" || notes.GetId() == "" {
			return fmt.Errorf("state %s: it needs a name, an id, and a path such as \"counters/ports\"", name)
		}
		if slices.ContainsFunc(n.states, func(t *State) bool { return t.Notes.GetPath() == notes.GetPath() || t.Notes.GetId() == notes.GetId() }) {
			return fmt.Errorf("state %s: another state has the path %s or the id %s", name, notes.GetPath(), notes.GetId())
		}
		var err error
		if s.Filters, err = n.messageFields(mt.Descriptor()); err != nil {
			return fmt.Errorf("state %s: %w", name, err)
		}
		for _, text := range notes.GetColumns() {
			c, err := s.column(text)
			if err != nil {
				return fmt.Errorf("state %s: columns: %w", name, err)
			}
			s.Columns = append(s.Columns, c)
		}
		if err := n.nameSchemas(s.Reply.Descriptor()); err != nil {
			return fmt.Errorf("state %s: reply: %w", name, err)
		}
		n.states = append(n.states, s)
	}
	slices.SortFunc(n.states, func(a, b *State) int { return strings.Compare(a.Notes.GetPath(), b.Notes.GetPath()) })
	return nil
}

// nameSchemas notes the names of an answer's schemas.
func (n *known) nameSchemas(d protoreflect.MessageDescriptor) error {
	switch other := n.schemas[d.Name()]; {
	case !ofContract(d) || other == d.FullName():
		return nil
	case other != "":
		return fmt.Errorf("%s: another message has that name", d.Name())
	}
	n.nameSchema(d)
	for i := range d.Fields().Len() {
		if below := d.Fields().Get(i).Message(); below != nil {
			if err := n.nameSchemas(below); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *known) nameSchema(d protoreflect.MessageDescriptor) {
	if ofContract(d) {
		n.schemas[d.Name()] = d.FullName()
	}
}

func (s *State) column(text string) (c StateColumn, err error) {
	heading, path, headed := strings.Cut(text, ":")
	if !headed {
		heading, path = Heading(text[strings.LastIndexByte(text, '.')+1:]), text
	}
	c.Heading = heading
	if path == "#" {
		c.Number = true
		return c, nil
	}
	if spec, is := strings.CutPrefix(path, "spec."); is {
		c.Spec = spec
		return c, nil
	}
	for _, one := range strings.Split(path, "+") {
		var fields []protoreflect.FieldDescriptor
		d := s.Reply.Descriptor()
		for _, step := range strings.Split(one, ".") {
			if d == nil {
				return c, fmt.Errorf("%s: there is nothing below", text)
			}
			f := d.Fields().ByJSONName(step)
			if f == nil {
				return c, fmt.Errorf("%s: %s has no field %q", text, d.Name(), step)
			}
			fields, d = append(fields, f), f.Message()
		}
		c.Paths = append(c.Paths, fields)
	}
	return c, nil
}

// Heading makes a heading of a field: "outerVlan" is "OUTER-VLAN", "gtpu.remoteAddress" is "GTPU-REMOTE-ADDRESS".
func Heading(field string) string {
	var b strings.Builder
	for _, r := range field {
		switch {
		case r == '.':
			b.WriteByte('-')
		case r >= 'A' && r <= 'Z':
			b.WriteByte('-')
			b.WriteRune(r)
		default:
			b.WriteString(strings.ToUpper(string(r)))
		}
	}
	return b.String()
}
