// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// StoredObject is an object as it is stored: a tenth of the memory that its messages and maps take, and hardly a pointer for the garbage collector
// to follow. It is never changed after it was examined.
type StoredObject struct {
	kind *Kind
	// Words, each behind its length: the name; fields that are set to empty, if there are any, between two empty
	// words; labels, sorted. From `spec` on, the spec as Pack makes it; from `found` on, the properties (found.go).
	text        string
	spec, found uint32
}

// NewStored makes a StoredObject of a packed object. It is not examined, except that each label has a key and each field a name.
func (r *Registry) NewStored(k Key, labels map[string]string, empty []string, spec []byte) (*StoredObject, error) {
	kind := r.kind(k.Kind)
	if kind == nil {
		_, err := r.Lookup(k.Kind)
		if err == nil {
			err = fmt.Errorf("there is no kind %q", k.Kind)
		}
		return nil, err
	}
	if value, there := labels[""]; there {
		return nil, &Error{Object: k, Field: "metadata.labels", Problem: "a label without a key", Found: Quote(value), Accepted: labelAccepted}
	}
	if slices.Contains(empty, "") {
		return nil, &Error{Object: k, Problem: "the list of empty fields has one without a name", Accepted: "fields of the kind"}
	}
	return newStoredObject(make([]byte, 0, 256), kind, k.Name, labels, empty, spec), nil
}

// newStoredObject uses the room that it is given.
func newStoredObject(room []byte, kind *Kind, name string, labels map[string]string, empty []string, spec []byte) *StoredObject {
	room, at := storedText(room, name, labels, empty, spec)
	return &StoredObject{kind: kind, spec: uint32(at), found: uint32(len(room)), text: string(room)}
}

// storedText appends the text of a StoredObject, in which the spec begins at a place that it returns.
func storedText(room []byte, name string, labels map[string]string, empty []string, spec []byte) (text []byte, at int) {
	room = appendWord(room, name)
	if len(empty) > 0 {
		room = appendWord(room, "")
		for _, field := range empty {
			room = appendWord(room, field)
		}
		room = appendWord(room, "")
	}
	if len(labels) > 0 {
		var buffer [8]string
		for _, label := range sortedKeys(labels, buffer[:0]) {
			room = appendWord(appendWord(room, label), labels[label])
		}
	}
	return append(room, spec...), len(room)
}

// sortedKeys uses the room that it is given.
func sortedKeys(labels map[string]string, room []string) []string {
	for label := range labels {
		room = append(room, label)
	}
	slices.Sort(room)
	return room
}

func appendWord(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Key returns the object's name.
func (k *StoredObject) Key() Key { return Key{k.kind.Name, k.name()} }

// KindName returns the name of the object's kind.
func (k *StoredObject) KindName() string { return k.kind.Name }

func (k *StoredObject) name() string {
	name, _ := cutWord(k.text)
	return name
}

// Spec returns the spec as Pack makes it.
func (k *StoredObject) Spec() string { return k.text[k.spec:k.found] }

// Empty returns the fields with an explicit zero, nil if there are none.
func (k *StoredObject) Empty() []string {
	empty, _ := k.emptyAndLabels()
	var fields []string
	for empty != "" {
		var field string
		field, empty = cutWord(empty)
		fields = append(fields, field)
	}
	return fields
}

// emptyAndLabels returns the fields with an explicit zero, and the labels.
func (k *StoredObject) emptyAndLabels() (empty, labels string) {
	_, rest := cutWord(k.text[:k.spec])
	if rest == "" || rest[0] != 0 {
		return "", rest
	}
	all := rest[1:]
	for rest = all; ; {
		field, more := cutWord(rest)
		if field == "" {
			return all[:len(all)-len(rest)], more
		}
		rest = more
	}
}

// Labels returns the labels, nil if there are none.
func (k *StoredObject) Labels() map[string]string {
	_, rest := k.emptyAndLabels()
	var labels map[string]string
	for rest != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		var label string
		label, rest = cutWord(rest)
		labels[label], rest = cutWord(rest)
	}
	return labels
}

// cutWord returns the first word, and the rest.
func cutWord(s string) (word, rest string) {
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

// Secret reports whether the kind has fields that are secret.
func (k *StoredObject) Secret() bool { return k.kind.secret }

// Shown returns the object without secrets. Each call makes a new one.
func (k *StoredObject) Shown() *Object {
	o := k.Object()
	if k.kind.secret {
		redact(k.kind.Fields, o.Spec.ProtoReflect())
	}
	return o
}

// Label returns the value of a label, and whether there is one.
func (k *StoredObject) Label(label string) (string, bool) {
	_, rest := k.emptyAndLabels()
	for rest != "" {
		var name, value string
		name, rest = cutWord(rest)
		value, rest = cutWord(rest)
		if name == label {
			return value, true
		}
	}
	return "", false
}

// Object returns the object, with its secrets. It is made anew each time.
func (k *StoredObject) Object() *Object {
	return &Object{Kind: k.kind.Name, Name: k.name(), Labels: k.Labels(), Spec: k.message(), Empty: k.Empty()}
}

// message returns the spec. A packed spec can always be unpacked; Examine refuses the others.
func (k *StoredObject) message() proto.Message { return k.unpack([]byte(k.Spec())) }

func (k *StoredObject) unpack(spec []byte) proto.Message {
	m := k.kind.Message.New().Interface()
	_ = proto.Unmarshal(spec, m)
	return m
}

// Equal returns whether two objects are the same, without regard to explicit zeros. Either may be nil.
func (k *StoredObject) Equal(other *StoredObject) bool {
	if k == nil || other == nil {
		return k == other
	}
	if k == other || k.same(other) {
		return true
	}
	_, mine := k.emptyAndLabels()
	_, theirs := other.emptyAndLabels()
	return k.kind.Name == other.kind.Name && k.name() == other.name() && mine == theirs && k.Spec() == other.Spec()
}

// SameLayer is Equal, with the same explicit zeros.
func (k *StoredObject) SameLayer(other *StoredObject) bool {
	return k == other || k != nil && other != nil && k.same(other)
}

// SameShownLayer is SameLayer, except for words that are the default: they are shown for absent fields too, so that they become
// explicit when the shown object is applied again.
func (k *StoredObject) SameShownLayer(other *StoredObject) bool {
	if !k.Equal(other) {
		return false
	}
	word := func(field string) bool {
		f, _ := k.kind.Fields.owned(field, nil)
		return f != nil && f.kind == protoreflect.EnumKind && !f.list
	}
	return slices.Equal(slices.DeleteFunc(k.Empty(), word), slices.DeleteFunc(other.Empty(), word))
}

func (k *StoredObject) same(other *StoredObject) bool {
	return k.kind.Name == other.kind.Name && k.spec == other.spec && k.text[:k.found] == other.text[:other.found]
}

// Diff returns the fields in which two objects of a kind differ, as Kind.Diff, and then the labels. Either may be
// nil.
func (k *StoredObject) Diff(other *StoredObject) []FieldChange {
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
func (k *StoredObject) DiffSpec(other *StoredObject) []FieldChange {
	if k.Spec() == other.Spec() {
		return nil
	}
	return k.kind.Diff(k.differing(other))
}

// differing returns the fields in which two specs of a kind differ.
func (k *StoredObject) differing(other *StoredObject) (mine, theirs proto.Message) {
	a, b := differing(inOrder(k.Spec()), inOrder(other.Spec()))
	return k.unpack(a), k.unpack(b)
}

// Replaces reports whether the change from one to the other cannot be made in place.
func (k *StoredObject) Replaces(other *StoredObject) bool {
	return k.Spec() != other.Spec() && k.kind.Replaces(k.differing(other))
}

// stored makes a StoredObject of a checked object, in room that may be used again.
func (k *Kind) stored(o *Object, room []byte) (*StoredObject, []byte, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(room[:0], o.Spec)
	if err != nil {
		return nil, room, err
	}
	at := len(spec)
	return newStoredObject(spec[at:], k, o.Name, o.Labels, o.Empty, spec[:at]), spec, nil
}

// Explore returns an object, which may be unacceptable, in its stored form with its needs and claims. It must be
// readable.
func (r *Registry) Explore(k Key, spec []byte) (*StoredObject, error) {
	o, err := r.New(k.Kind, k.Name, nil, spec)
	if err != nil {
		return nil, err
	}
	stored, err := r.NewStored(k, nil, nil, spec)
	if err != nil {
		return nil, err
	}
	stored.explore(o, appendNeeds(nil, stored.kind.Fields, o.Spec.ProtoReflect()), &Claimer{})
	return stored, nil
}

// ExamineStored examines stored objects that are not examined yet, such as those of a file.
func (r *Registry) ExamineStored(all []*StoredObject) error {
	return examineInParts(len(all), func(from, to int) (errs Errors) {
		c := newChecker(r)
		var claims Claimer
		for i := from; i < to && len(errs) < MaxMistakes; i++ {
			k := all[i]
			o := &Object{Kind: k.kind.Name, Name: k.name(), Labels: k.Labels(), Empty: k.Empty(), Spec: k.kind.Message.New().Interface()}
			if err := proto.Unmarshal([]byte(k.Spec()), o.Spec); err != nil {
				errs = append(errs, &Error{Object: k.Key(), Problem: "the spec cannot be read: " + err.Error()})
			} else if wrong := c.stored(o, k); len(wrong) > 0 {
				errs = append(errs, wrong...)
			} else {
				k.explore(o, c.needs, &claims)
			}
		}
		return errs
	}).Or()
}

// String keeps the content out of logs.
func (k *StoredObject) String() string { return k.Key().String() }
