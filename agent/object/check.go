// SPDX-License-Identifier: Apache-2.0

// Checks of one object by itself: annotations first, then the rules of its kind.
package object

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// Check returns the errors of an object by itself. They have no file and line.
func (r *Registry) Check(o *Object) Errors {
	return newChecker(r).check(o)
}

// CheckLayer is Check for the fields of one owner: another owner may have the fields that it does not have.
func (r *Registry) CheckLayer(o *Object) Errors {
	c := newChecker(r)
	c.part = true
	return c.check(o)
}

// checker checks one object after another.
type checker struct {
	registry *Registry
	// The kind of the object before: mostly the next object has it too.
	last   *Kind
	object Key
	errs   Errors
	// The path of the field under examination: it becomes text only for an error.
	trail []place
	// addPart is add for fields that other owners may have.
	add, addPart Report
	// The objects that it names, except builtin ones, each once.
	needs []Key

	// The spec may be the part of one owner; lacks: it is.
	part, lacks bool
	// Explicit zeros of the object.
	empty []string
	// How many fields are around that are owned as a whole.
	inside int
}

type place struct {
	field *Field
	// Of a list; less than 0: the field itself.
	index int
}

// kind returns a kind by its name; nil: there is none.
func (c *checker) kind(name string) *Kind {
	if c.last == nil || c.last.Name != name {
		c.last = c.registry.kind(name)
	}
	return c.last
}

func newChecker(r *Registry) *checker {
	c := &checker{registry: r, trail: make([]place, 0, 8)}
	c.add = func(field, problem, found, accepted string) {
		if len(c.errs) < MaxMistakes {
			c.errs = append(c.errs, &Error{Object: c.object, Field: field, Problem: problem, Found: found, Accepted: accepted})
		}
	}
	c.addPart = func(field, problem, found, accepted string) {
		// Other layers may complete it, unless the fields belong to one unit anyway.
		if r.kind(c.object.Kind).Fields.isWhole(field) {
			c.add(field, problem, found, accepted)
		} else {
			c.lacks = true
		}
	}
	return c
}

// Missing is the problem of a field that is needed and not there.
const Missing = "missing"

func (c *checker) check(o *Object) Errors {
	if errs := c.fields(o); len(errs) > 0 {
		return errs
	}
	return c.together(o)
}

// stored is check for an object that is packed, unless it is of no kind of ours.
func (c *checker) stored(o *Object, stored *StoredObject) Errors {
	if stored == nil {
		return c.check(o)
	}
	if errs := c.packedFields(o, stored.Spec()); len(errs) > 0 {
		return errs
	}
	return c.together(o)
}

// fields is packedFields for an object that is not packed.
func (c *checker) fields(o *Object) Errors {
	var spec []byte
	if k := c.kind(o.Kind); k != nil && k.describes(o.Spec) {
		var err error
		if spec, err = Pack(o.Spec); err != nil {
			return Errors{{Object: o.Key(), Problem: err.Error()}}
		}
	}
	return c.packedFields(o, string(spec))
}

// packedFields checks each field by its annotation. The spec is packed by Pack.
func (c *checker) packedFields(o *Object, spec string) Errors {
	c.object, c.errs, c.lacks, c.empty, c.needs = o.Key(), nil, false, o.Empty, c.needs[:0]
	k := c.kind(o.Kind)
	if k == nil {
		_, err := c.registry.Lookup(o.Kind)
		problem := "there is no such kind"
		if err != nil {
			problem = err.Error()
		}
		c.add("kind", problem, Quote(o.Kind), "")
		return c.errs
	}
	checkMetadata(o.Name, o.Labels, c.add)
	if !k.describes(o.Spec) {
		c.add("", "the spec is not a "+k.Name, "", "")
		return c.errs
	}
	c.message(k.Fields, spec)
	if len(o.Empty) > 0 {
		c.saidEmpty(k, o)
	}
	return c.errs
}

func (c *checker) saidEmpty(k *Kind, o *Object) {
	for i, field := range o.Empty {
		f, m := k.Fields.owned(field, o.Spec.ProtoReflect())
		switch {
		case f == nil || f.Fields != nil && !f.list:
			c.add(shortened(field), "there is no such field that can be empty", "", strings.Join(k.Fields.Names(), ", "))
		case m != nil && m.Has(f.Desc):
			c.add(field, "listed as empty, but has a value", f.text(m.Get(f.Desc)), "one of both")
		case i > 0 && o.Empty[i-1] >= field:
			c.add(field, "duplicate empty field, or not in order", "", "each once, in alphabetical order")
		}
	}
}

// together applies the kind's own rules to an object whose fields are acceptable.
func (c *checker) together(o *Object) Errors {
	c.object, c.errs = o.Key(), nil
	k := c.kind(o.Kind)
	if k.rules.check == nil {
		return nil
	}
	if c.part {
		k.rules.check(o.Spec, c.addPart)
	} else {
		k.rules.check(o.Spec, c.add)
	}
	return c.errs
}

// MaxSpec is the largest spec that the data plane takes, in bytes (api/dataplane.proto).
const MaxSpec = 8 << 20

// CheckName returns the mistake in an object's name, or nil. No object can have such a name.
func CheckName(k Key) *Error {
	switch {
	case k.Name == "":
		return &Error{Object: k, Field: "metadata.name", Problem: Missing, Accepted: nameAccepted}
	case !validName(k.Name):
		return &Error{Field: "metadata.name", Problem: "not a name", Found: Quote(k.Name), Accepted: nameAccepted}
	}
	return nil
}

// MaxLabels is the largest number of labels of an object, of all owners. They are read and stored with each change of it.
const MaxLabels = 256

func checkMetadata(name string, labels map[string]string, add Report) {
	if e := CheckName(Key{Name: name}); e != nil {
		add(e.Field, e.Problem, e.Found, e.Accepted)
	}
	if len(labels) == 0 {
		return
	}
	if len(labels) > MaxLabels {
		add("metadata.labels", "too many labels", strconv.Itoa(len(labels)), "at most "+strconv.Itoa(MaxLabels))
		return
	}
	var room [8]string
	for _, key := range sortedKeys(labels, room[:0]) {
		if !validLabelKey(key) {
			add("metadata.labels", "not the key of a label", Quote(key), labelAccepted)
		} else if value := labels[key]; !validLabelValue(value) {
			add("metadata.labels."+key, "not the value of a label", Quote(value), labelAccepted)
		}
	}
}

// at is the path of the field that is looked at.
func (c *checker) at() string {
	var b strings.Builder
	for i, p := range c.trail {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p.field.Name)
		if p.index >= 0 {
			b.WriteString("[" + strconv.Itoa(p.index) + "]")
		}
	}
	return b.String()
}

func (c *checker) report(problem, found, accepted string) { c.add(c.at(), problem, found, accepted) }

// message checks the fields that are set, in the order of their numbers.
func (c *checker) message(fs *Fields, spec string) {
	p := packed{inOrder(spec)}
	r, more := p.next()
	unknown := false
	for _, f := range fs.List {
		for ; more && r.field < f.number; r, more = p.next() {
			unknown = true
		}
		there := more && f.in(r)
		if !there && f.optional {
			continue
		}
		c.trail = append(c.trail, place{f, -1})
		switch {
		case !there && c.part && c.inside == 0 && !slices.Contains(c.empty, c.at()):
			c.lacks = true
		case !there:
			c.absent(f)
		case f.list:
			r, more = c.list(f, r, &p)
		case f.Fields == nil:
			c.scalar(f, f.value(r))
			r, more = p.next()
		default:
			c.below(f, r.text)
			r, more = p.next()
		}
		c.trail = c.trail[:len(c.trail)-1]
	}
	if unknown || more || p.rest != "" {
		c.report("has fields that this version does not know", "", strings.Join(fs.Names(), ", "))
	}
}

// below checks a message in a field that is not a list.
func (c *checker) below(f *Field, spec string) {
	if f.whole {
		c.inside++
		defer func() { c.inside-- }()
	}
	c.message(f.Fields, spec)
}

func (c *checker) absent(f *Field) {
	switch {
	case f.list:
		c.length(f, 0)
	case f.Fields == nil:
		c.scalar(f, f.Desc.Default())
	case f.Notes.Required:
		c.report(Missing, "", "a mapping with "+strings.Join(f.Fields.Names(), ", "))
	}
}

// list checks a list, of which the first record was taken, and returns the first behind it.
func (c *checker) list(f *Field, r record, p *packed) (behind record, more bool) {
	count := 0
	ahead := *p
	for one, more := r, true; more && f.in(one); one, more = ahead.next() {
		f.each(one, func(record) { count++ })
	}
	c.length(f, count)
	c.inside++
	defer func() { c.inside-- }()
	element := func(r record) {
		c.trail[len(c.trail)-1].index++
		switch {
		case f.Fields != nil:
			c.message(f.Fields, r.text)
		case f.kind == protoreflect.StringKind && r.text == "":
			c.report("empty", `""`, f.Accepted())
		default:
			c.scalar(f, f.value(r))
		}
	}
	for more = true; more && f.in(r); r, more = p.next() {
		if !f.each(r, element) {
			c.report("cannot be read", "", f.Accepted())
		}
	}
	return r, more
}

func (c *checker) length(f *Field, n int) {
	most, least := f.Notes.Max, f.Notes.Min
	if f.Notes.Required {
		least = max(least, 1)
	}
	if c.part && c.inside == 0 && !f.whole && int64(n) < least {
		c.lacks = true
		return
	}
	if int64(n) < least || most > 0 && int64(n) > most {
		accepted := fmt.Sprintf("at least %d", least)
		switch {
		case most > 0 && least > 0:
			accepted = fmt.Sprintf("%d to %d", least, most)
		case most > 0:
			accepted = fmt.Sprintf("at most %d", most)
		}
		c.report("wrong number of elements", strconv.Itoa(n), accepted)
	}
}

func (c *checker) scalar(f *Field, v protoreflect.Value) {
	show := func(s string) string {
		if f.Notes.Secret {
			return ""
		}
		return s
	}
	switch f.kind {
	case protoreflect.StringKind:
		s := v.String()
		if s == "" {
			if f.Notes.Required {
				c.report(Missing, "", f.Accepted())
			}
			return
		}
		if f.Ref != nil {
			if !validName(s) {
				c.report("not the name of "+an(f.Ref.Name), show(Quote(s)), nameAccepted)
			}
			c.needs = f.appendNeed(c.needs, s)
			return
		}
		if err := acceptable(f.Notes.Format, s); err != nil {
			c.report(err.Error(), show(Quote(s)), f.Accepted())
		}
	case protoreflect.EnumKind:
		if f.Desc.Enum().Values().ByNumber(v.Enum()) == nil {
			c.report("unknown value", strconv.Itoa(int(v.Enum())), f.Accepted())
		}
	case protoreflect.BoolKind:
	default:
		negative, n := numberOf(f.kind, v)
		if n == 0 && f.Notes.Required {
			c.report(Missing, "", f.Accepted())
			return
		}
		if n == 0 && f.Notes.Zero != "" {
			return
		}
		if !f.inRange(negative, n) {
			c.report("out of range", show(signed(negative, n)), f.Accepted())
		}
	}
}

func (f *Field) inRange(negative bool, n uint64) bool {
	if negative {
		return f.Notes.Min < 0 && n <= uint64(-f.Notes.Min)
	}
	if f.Notes.Max > 0 && n > uint64(f.Notes.Max) {
		return false
	}
	return f.Notes.Min <= 0 || n >= uint64(f.Notes.Min)
}

func signed(negative bool, n uint64) string {
	if negative {
		return "-" + strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10)
}

// numberOf returns a number's sign and magnitude.
func numberOf(kind protoreflect.Kind, v protoreflect.Value) (negative bool, magnitude uint64) {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return false, v.Uint()
	}
	if n := v.Int(); n < 0 {
		return true, uint64(-(n + 1)) + 1
	}
	return false, uint64(v.Int())
}

// Bounds returns the least and greatest number that the field accepts, apart from a zero with a meaning of its own.
func (f *Field) Bounds() (least int64, most uint64) {
	least, most = f.Notes.Min, uint64(f.Notes.Max)
	if most == 0 {
		switch f.Desc.Kind() {
		case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
			most = math.MaxUint32
		case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
			most = math.MaxUint64
		case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
			most = math.MaxInt32
		default:
			most = math.MaxInt64
		}
	}
	return least, most
}

// Accepted describes the accepted values of the field, or of each element of a list.
func (f *Field) Accepted() string {
	var text string
	switch {
	case f.Fields != nil:
		text = "a mapping with " + strings.Join(f.Fields.Names(), ", ")
	case f.Ref != nil:
		text = "the name of " + an(f.Ref.Name)
	case f.Desc.Kind() == protoreflect.EnumKind:
		text = strings.Join(EnumNames(f.Desc.Enum()), ", ")
	case f.Desc.Kind() == protoreflect.BoolKind:
		text = "true or false"
	case f.Desc.Kind() == protoreflect.StringKind:
		text = FormatAccepted(f.Notes.Format)
	default:
		least, most := f.Bounds()
		switch f.Notes.Unit {
		case api.Unit_NONE, api.Unit_HEXADECIMAL:
			text = fmt.Sprintf("%d to %d", least, most)
		case api.Unit_NANOSECONDS:
			text = FormatNumber(f.Notes.Unit, uint64(least)) + " to " + FormatNumber(f.Notes.Unit, most) + ", with a suffix ns, us, ms, s, m or h"
		default:
			text = fmt.Sprintf("%d to %d %s", least, most, unitAccepted(f.Notes.Unit))
		}
		if f.Notes.Zero != "" {
			if least > 0 {
				text += "; or 0"
			} else {
				text += "; 0"
			}
			text += ": " + f.Notes.Zero
		}
	}
	if f.Notes.Example != "" {
		text += ", such as " + f.Notes.Example
	}
	return text
}

func an(noun string) string {
	if strings.ContainsRune("AEIOU", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// EnumNames returns an enum's names as people write them, in the order of their numbers.
func EnumNames(e protoreflect.EnumDescriptor) []string {
	names := make([]string, e.Values().Len())
	for i := range names {
		names[i] = strings.ToLower(string(e.Values().Get(i).Name()))
	}
	return names
}

// text is a value as a person would write it, with its unit in full. Written in a file, it is read as just the same.
func (f *Field) text(v protoreflect.Value) string { return f.written(v, FormatUnit) }

// written is text with numbers in a form of their own.
func (f *Field) written(v protoreflect.Value, form func(api.Unit, uint64) string) string {
	if f.Notes.Secret {
		return "(secret)"
	}
	switch f.Desc.Kind() {
	case protoreflect.MessageKind:
		return flow(f.Fields, v.Message())
	case protoreflect.EnumKind:
		if d := f.Desc.Enum().Values().ByNumber(v.Enum()); d != nil {
			return strings.ToLower(string(d.Name()))
		}
		return strconv.Itoa(int(v.Enum()))
	case protoreflect.BoolKind:
		return strconv.FormatBool(v.Bool())
	case protoreflect.StringKind:
		return v.String()
	}
	negative, n := numberOf(f.Desc.Kind(), v)
	if negative {
		return signed(negative, n)
	}
	return form(f.Notes.Unit, n)
}

// flow writes a message on one line: "{address: 192.0.2.1, weight: 2}". It writes enum words also where they are the
// default.
func flow(fs *Fields, m protoreflect.Message) string {
	var parts []string
	for _, f := range fs.List {
		if !m.Has(f.Desc) && (f.kind != protoreflect.EnumKind || f.list || f.Desc.HasPresence()) {
			continue
		}
		v := m.Get(f.Desc)
		if !f.Desc.IsList() {
			parts = append(parts, f.Name+": "+f.text(v))
			continue
		}
		var each []string
		for i := range v.List().Len() {
			each = append(each, f.text(v.List().Get(i)))
		}
		parts = append(parts, f.Name+": ["+strings.Join(each, ", ")+"]")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
