package object

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Kept is an object as it is kept: a tenth of the memory that its messages and maps take, and hardly a pointer for the garbage collector
// to follow. It is never changed after it was examined.
type Kept struct {
	kind *Kind
	// Each word of it behind its length: the name; fields that are said to be empty, if there are any, between two empty words; labels,
	// sorted. From `spec` on, the spec as Pack makes it; from `found` on, what follows from all that (found.go).
	text        string
	spec, found uint32
}

// Keep makes a Kept of an object that was packed already. It is not examined, but that each label has a key and each field a name.
func (r *Registry) Keep(k Key, labels map[string]string, empty []string, spec []byte) (*Kept, error) {
	kind := r.byName[k.Kind]
	if kind == nil {
		_, err := r.Lookup(k.Kind)
		return nil, err
	}
	if value, there := labels[""]; there {
		return nil, &Error{Object: k, Field: "metadata.labels", Problem: "a label without a key", Found: quote(value), Accepted: labelAccepted}
	}
	if slices.Contains(empty, "") {
		return nil, &Error{Object: k, Problem: "a field without a name is said to be empty", Accepted: "fields of the kind"}
	}
	return newKept(make([]byte, 0, 256), kind, k.Name, labels, empty, spec), nil
}

// newKept uses the room that it is given.
func newKept(room []byte, kind *Kind, name string, labels map[string]string, empty []string, spec []byte) *Kept {
	room = appendWord(room, name)
	if len(empty) > 0 {
		room = appendWord(room, "")
		for _, field := range empty {
			room = appendWord(room, field)
		}
		room = appendWord(room, "")
	}
	if len(labels) > 0 {
		var few [8]string
		for _, label := range sortedKeys(labels, few[:0]) {
			room = appendWord(appendWord(room, label), labels[label])
		}
	}
	k := &Kept{kind: kind, spec: uint32(len(room)), found: uint32(len(room) + len(spec))}
	k.text = string(append(room, spec...))
	return k
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
func (k *Kept) Key() Key { return Key{k.kind.Name, k.name()} }

func (k *Kept) name() string {
	name, _ := cutWord(k.text)
	return name
}

// Spec returns the spec as Pack makes it.
func (k *Kept) Spec() string { return k.text[k.spec:k.found] }

// Empty returns the fields that are said to be empty, nil if there are none.
func (k *Kept) Empty() []string {
	empty, _ := k.said()
	var fields []string
	for empty != "" {
		var field string
		field, empty = cutWord(empty)
		fields = append(fields, field)
	}
	return fields
}

// said returns which fields are said to be empty, and the labels.
func (k *Kept) said() (empty, labels string) {
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
func (k *Kept) Labels() map[string]string {
	_, rest := k.said()
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

// cutWord is what appendWord put first, and the rest.
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
	_, rest := k.said()
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
func (k *Kept) Object() *Object {
	return &Object{Kind: k.kind.Name, Name: k.name(), Labels: k.Labels(), Spec: k.message(), Empty: k.Empty()}
}

// message returns the spec. What was packed can be unpacked; what Keep was given and could not be, Examine refused.
func (k *Kept) message() proto.Message { return k.unpack([]byte(k.Spec())) }

func (k *Kept) unpack(spec []byte) proto.Message {
	m := k.kind.Message.New().Interface()
	_ = proto.Unmarshal(spec, m)
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
	_, mine := k.said()
	_, theirs := other.said()
	return k.kind.Name == other.kind.Name && k.name() == other.name() && mine == theirs && k.Spec() == other.Spec()
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
	return k.kind.Name == other.kind.Name && k.spec == other.spec && k.text[:k.found] == other.text[:other.found]
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
	return k.kind.Diff(k.differing(other))
}

// differing returns of two specs of a kind what one says otherwise than the other.
func (k *Kept) differing(other *Kept) (mine, theirs proto.Message) {
	a, b := differing(inOrder(k.Spec()), inOrder(other.Spec()))
	return k.unpack(a), k.unpack(b)
}

// Replaces says whether the change from one to the other cannot be made in place.
func (k *Kept) Replaces(other *Kept) bool {
	return k.Spec() != other.Spec() && k.kind.Replaces(k.differing(other))
}

// kept makes a Kept of an object that was checked, in room that may be used again.
func (r *Registry) kept(o *Object, room []byte) (*Kept, []byte, error) {
	spec, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(room[:0], o.Spec)
	if err != nil {
		return nil, room, err
	}
	at := len(spec)
	return newKept(spec[at:], r.byName[o.Kind], o.Name, o.Labels, o.Empty, spec[:at]), spec, nil
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
	kept.explore(o, appendNeeds(nil, kept.kind.Fields, o.Spec.ProtoReflect()), &claimer{})
	return kept, nil
}

// ExamineKept examines what was kept and not examined since, as the objects of a file are.
func (r *Registry) ExamineKept(all []*Kept) error {
	return examineInParts(len(all), func(from, to int) (errs Errors) {
		c := newChecker(r)
		var claims claimer
		for i := from; i < to && len(errs) < MistakesMost; i++ {
			k := all[i]
			o := &Object{Kind: k.kind.Name, Name: k.name(), Labels: k.Labels(), Empty: k.Empty(), Spec: k.kind.Message.New().Interface()}
			if err := proto.Unmarshal([]byte(k.Spec()), o.Spec); err != nil {
				errs = append(errs, &Error{Object: k.Key(), Problem: "the spec cannot be read: " + err.Error()})
			} else if wrong := c.kept(o, k); len(wrong) > 0 {
				errs = append(errs, wrong...)
			} else {
				k.explore(o, c.needs, &claims)
			}
		}
		return errs
	}).Or()
}

// String keeps what it says out of logs.
func (k *Kept) String() string { return k.Key().String() }
