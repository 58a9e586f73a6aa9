package object

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Kept is an object as it is kept: a tenth of the memory that its messages and maps take. It is never changed after it was examined.
type Kept struct {
	// What it names, but for builtin objects, each once; and what it takes for itself. Both are known once it was examined.
	Needs []Key
	Marks []Mark

	kind *Kind
	name string
	// Each text behind its length: fields that are said to be empty, if there are any, between two empty texts; labels, sorted. From
	// `spec` on, the spec as Pack makes it.
	data     string
	spec     uint32
	examined bool
	// It holds networks in which there may be no address of ours.
	wide bool
	// It has a part of something, and networks that others with a part of that may not have.
	apart bool
}

// Keep makes a Kept of an object that was packed already. It is not examined.
func (r *Registry) Keep(k Key, labels map[string]string, empty []string, spec []byte) (*Kept, error) {
	kind := r.byName[k.Kind]
	if kind == nil {
		_, err := r.Lookup(k.Kind)
		return nil, err
	}
	kept := &Kept{kind: kind, name: k.Name}
	kept.fill(make([]byte, 0, 256), labels, empty, spec)
	return kept, nil
}

// fill uses the room that it is given.
func (k *Kept) fill(room []byte, labels map[string]string, empty []string, spec []byte) {
	if len(empty) > 0 {
		room = appendText(room, "")
		for _, field := range empty {
			room = appendText(room, field)
		}
		room = appendText(room, "")
	}
	if len(labels) > 0 {
		var few [8]string
		for _, label := range sortedKeys(labels, few[:0]) {
			room = appendText(appendText(room, label), labels[label])
		}
	}
	k.spec = uint32(len(room))
	k.data = string(append(room, spec...))
}

// sortedKeys uses the room that it is given.
func sortedKeys(labels map[string]string, room []string) []string {
	for label := range labels {
		room = append(room, label)
	}
	slices.Sort(room)
	return room
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Examined says whether it is known what it needs and claims.
func (k *Kept) Examined() bool { return k.examined }

// Key returns the object's name.
func (k *Kept) Key() Key { return Key{k.kind.Name, k.name} }

// Spec returns the spec as Pack makes it.
func (k *Kept) Spec() string { return k.data[k.spec:] }

// Empty returns the fields that are said to be empty, nil if there are none.
func (k *Kept) Empty() []string {
	empty, _ := k.texts()
	var fields []string
	for empty != "" {
		var field string
		field, empty = cutText(empty)
		fields = append(fields, field)
	}
	return fields
}

// texts returns what is said to be empty, and from where the rest begins.
func (k *Kept) texts() (empty string, at int) {
	if k.spec == 0 || k.data[0] != 0 {
		return "", 0
	}
	rest := k.data[1:k.spec]
	for {
		field, more := cutText(rest)
		rest = more
		if field == "" {
			at = int(k.spec) - len(rest)
			return k.data[1 : at-1], at
		}
	}
}

// Labels returns the labels, nil if there are none.
func (k *Kept) Labels() map[string]string {
	_, at := k.texts()
	rest := k.data[at:k.spec]
	var labels map[string]string
	for rest != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		var label string
		label, rest = cutText(rest)
		labels[label], rest = cutText(rest)
	}
	return labels
}

// cutText is what appendText put first, and the rest.
func cutText(s string) (text, rest string) {
	length, n := uvarint(s)
	return s[n : n+int(length)], s[n+int(length):]
}

// uvarint is binary.Uvarint of a string that AppendUvarint made.
func uvarint(s string) (v uint64, n int) {
	for shift := 0; ; shift += 7 {
		b := s[n]
		n++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, n
		}
	}
}

// Secret says whether the kind has fields that are secret.
func (k *Kept) Secret() bool { return k.kind.secret }

// Shown returns the object without what is secret. It is made anew each time.
func (k *Kept) Shown() *Object {
	o := k.Object()
	if k.kind.secret {
		redact(k.kind.Fields, o.Spec.ProtoReflect())
	}
	return o
}

// Label returns the value of a label, and whether there is one.
func (k *Kept) Label(label string) (string, bool) {
	_, at := k.texts()
	for rest := k.data[at:k.spec]; rest != ""; {
		var name, value string
		name, rest = cutText(rest)
		value, rest = cutText(rest)
		if name == label {
			return value, true
		}
	}
	return "", false
}

// Object returns the object, with its secrets. It is made anew each time.
func (k *Kept) Object() *Object {
	return &Object{Kind: k.kind.Name, Name: k.name, Labels: k.Labels(), Spec: k.message(), Empty: k.Empty()}
}

// message returns the spec. What was packed can be unpacked; what Keep was given and could not be, Examine refused.
func (k *Kept) message() proto.Message {
	m := k.kind.Message.New().Interface()
	_ = proto.Unmarshal([]byte(k.Spec()), m)
	return m
}

// Equal says whether two objects are the same, whatever is said to be empty instead of left out. Either may be nil.
func (k *Kept) Equal(other *Kept) bool {
	if k == nil || other == nil {
		return k == other
	}
	if k == other || k.same(other) {
		return true
	}
	_, a := k.texts()
	_, b := other.texts()
	return a+b > 0 && k.kind.Name == other.kind.Name && k.name == other.name && int(k.spec)-a == int(other.spec)-b && k.data[a:] == other.data[b:]
}

// Says is Equal, and the same is said to be empty, too.
func (k *Kept) Says(other *Kept) bool {
	return k == other || k != nil && other != nil && k.same(other)
}

// Restates is Says, but for words that are what leaving them out means: these are shown although nobody said them, so that they are said
// when what was shown is said again.
func (k *Kept) Restates(other *Kept) bool {
	if !k.Equal(other) {
		return false
	}
	word := func(field string) bool {
		f, _ := k.kind.Fields.owned(field, nil)
		return f != nil && f.kind == protoreflect.EnumKind && !f.list
	}
	return slices.Equal(slices.DeleteFunc(k.Empty(), word), slices.DeleteFunc(other.Empty(), word))
}

func (k *Kept) same(other *Kept) bool {
	return k.kind.Name == other.kind.Name && k.name == other.name && k.spec == other.spec && k.data == other.data
}

// Diff says in which fields two objects of a kind differ, as Kind.Diff, and then in which labels. Either may be nil.
func (k *Kept) Diff(other *Kept) []FieldChange {
	switch {
	case k == nil && other == nil:
		return nil
	case k == nil:
		return append(other.kind.Diff(other.kind.Message.New().Interface(), other.message()), DiffLabels(nil, other.Labels())...)
	case other == nil:
		return append(k.kind.Diff(k.message(), k.kind.Message.New().Interface()), DiffLabels(k.Labels(), nil)...)
	}
	return append(k.DiffSpec(other), DiffLabels(k.Labels(), other.Labels())...)
}

// DiffSpec leaves labels out.
func (k *Kept) DiffSpec(other *Kept) []FieldChange {
	if k.Spec() == other.Spec() {
		return nil
	}
	return k.kind.Diff(k.message(), other.message())
}

// Replaces says whether the change from one to the other cannot be made in place.
func (k *Kept) Replaces(other *Kept) bool {
	return k.Spec() != other.Spec() && k.kind.Replaces(k.message(), other.message())
}

// kept makes a Kept of an object that was checked, in room that may be used again.
func (r *Registry) kept(o *Object, room []byte) (*Kept, []byte, error) {
	k := &Kept{kind: r.byName[o.Kind], name: o.Name}
	spec, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(room[:0], o.Spec)
	if err != nil {
		return nil, room, err
	}
	at := len(spec)
	k.fill(spec[at:], o.Labels, o.Empty, spec[:at])
	return k, spec, nil
}

// Explore returns an object that need not be acceptable as it is kept, with what it needs and claims. It must be readable.
func (r *Registry) Explore(k Key, spec []byte) (*Kept, error) {
	o, err := r.New(k.Kind, k.Name, nil, spec)
	if err != nil {
		return nil, err
	}
	kept, err := r.Keep(k, nil, nil, spec)
	if err != nil {
		return nil, err
	}
	r.explore(kept, o, appendNeeds(nil, kept.kind.Fields, o.Spec.ProtoReflect()), nil, &claimer{})
	return kept, nil
}

// explore takes note of what it needs, and finds out what it claims. Needs that are the same as some before share their memory.
func (r *Registry) explore(kept *Kept, o *Object, needs, before []Key, c *claimer) []Key {
	if len(needs) > 0 {
		if !slices.Equal(needs, before) {
			before = slices.Clone(needs)
		}
		kept.Needs = before
	}
	c.marks, c.wide, c.apart = c.marks[:0], false, false
	if kept.kind.claim(o.Spec, c); len(c.marks) > 0 {
		kept.Marks = slices.Clone(c.marks)
	}
	kept.wide, kept.apart = c.wide, c.apart
	kept.examined = true
	return before
}

// ExamineKept examines what was kept and not examined since, as the objects of a file are.
func (r *Registry) ExamineKept(all []*Kept) error {
	return examineInParts(len(all), func(from, to int) (errs Errors) {
		c := newChecker(r)
		var needs []Key
		var claims claimer
		for i := from; i < to && len(errs) < MistakesMost; i++ {
			k := all[i]
			o := &Object{Kind: k.kind.Name, Name: k.name, Labels: k.Labels(), Empty: k.Empty(), Spec: k.kind.Message.New().Interface()}
			if err := proto.Unmarshal([]byte(k.Spec()), o.Spec); err != nil {
				errs = append(errs, &Error{Object: k.Key(), Problem: "the spec cannot be read: " + err.Error()})
			} else if wrong := c.kept(o, k); len(wrong) > 0 {
				errs = append(errs, wrong...)
			} else {
				needs = r.explore(k, o, c.needs, needs, &claims)
			}
		}
		return errs
	}).Or()
}

// String keeps what it says out of logs.
func (k *Kept) String() string { return k.Key().String() }
