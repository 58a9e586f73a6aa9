// Is one object acceptable by itself? Everything that annotations say, then what the kind's own rules say.
package object

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// rules are what a kind needs beyond its annotations. Each function may be nil.
type rules struct {
	check  func(spec proto.Message, report report)
	claims func(spec proto.Message, c *claimer)
	// Networks that are somebody's, in which there may be no address of ours; and addresses of ours.
	holds, owns func(spec proto.Message) []held
	// What it has only a part of, and networks that have nothing in common with those of the others who have a part of that.
	apart func(spec proto.Message) (of string, networks []held)
}

// report tells of a mistake in a field.
type report func(field, problem, found, accepted string)

// rulesOf is the table of kinds that have rules of their own.
var rulesOf = map[protoreflect.FullName]rules{
	"sluice.v1.Acl":         {check: checkAcl},
	"sluice.v1.FlowProfile": {check: checkFlowProfile},
	"sluice.v1.GtpuPeer":    {check: checkGtpuPeer},
	"sluice.v1.Interface":   {check: checkInterface, claims: claimInterface, owns: ownInterface},
	"sluice.v1.Meter":       {check: checkMeter},
	"sluice.v1.Port":        {claims: claimPort},
	"sluice.v1.QosGroup":    {check: checkQosGroup},
	"sluice.v1.QosProfile":  {check: checkQosProfile},
	"sluice.v1.Route":       {check: checkRoute, claims: claimRoute},
	"sluice.v1.Session":     {check: checkSession, claims: claimSession, holds: holdSession, apart: apartSession},
}

// Check says what is wrong with an object by itself. Errors have no file and line.
func (r *Registry) Check(o *Object) Errors {
	return newChecker(r).check(o)
}

// CheckSaid is Check for what one owner says of an object: what it does not say may be said by another.
func (r *Registry) CheckSaid(o *Object) Errors {
	c := newChecker(r)
	c.part = true
	return c.check(o)
}

// checker checks one object after another.
type checker struct {
	registry *Registry
	object   Key
	errs     Errors
	// Where the field stands that is looked at: it becomes text only if there is something to tell.
	trail []place
	// addPart is add for what may be said by others.
	add, addPart report
	// What it names, but for builtin objects, each once.
	needs []Key

	// What is checked need not be all that is said of the object; lacks: it is not all.
	part, lacks bool
	// Said of the object as a whole to be empty.
	empty []string
	// How many fields are around that are owned as a whole.
	inside int
}

type place struct {
	field *Field
	// Of a list; less than 0: the field itself.
	index int
}

func newChecker(r *Registry) *checker {
	c := &checker{registry: r, trail: make([]place, 0, 8)}
	c.add = func(field, problem, found, accepted string) {
		if len(c.errs) < MistakesMost {
			c.errs = append(c.errs, &Error{Object: c.object, Field: field, Problem: problem, Found: found, Accepted: accepted})
		}
	}
	c.addPart = func(field, problem, found, accepted string) {
		// With what others say it may be right, unless it is about what belongs together anyway.
		if r.byName[c.object.Kind].Fields.isWhole(field) {
			c.add(field, problem, found, accepted)
		} else {
			c.lacks = true
		}
	}
	return c
}

// missing is the problem of a field that is needed and not there.
const missing = "missing"

func (c *checker) check(o *Object) Errors {
	if errs := c.fields(o); len(errs) > 0 {
		return errs
	}
	return c.together(o)
}

// kept is check for an object that is packed, unless it is of no kind of ours.
func (c *checker) kept(o *Object, kept *Kept) Errors {
	if kept == nil {
		return c.check(o)
	}
	if errs := c.packedFields(o, kept.Spec()); len(errs) > 0 {
		return errs
	}
	return c.together(o)
}

// fields is packedFields for an object that is not packed.
func (c *checker) fields(o *Object) Errors {
	var spec []byte
	if k := c.registry.byName[o.Kind]; k != nil && k.describes(o.Spec) {
		var err error
		if spec, err = Pack(o.Spec); err != nil {
			return Errors{{Object: o.Key(), Problem: err.Error()}}
		}
	}
	return c.packedFields(o, string(spec))
}

// packedFields checks each field by what its annotation says. The spec is what Pack makes of the object's.
func (c *checker) packedFields(o *Object, spec string) Errors {
	c.object, c.errs, c.lacks, c.empty, c.needs = o.Key(), nil, false, o.Empty, c.needs[:0]
	k := c.registry.byName[o.Kind]
	if k == nil {
		_, err := c.registry.Lookup(o.Kind)
		problem := "there is no such kind"
		if err != nil {
			problem = err.Error()
		}
		c.add("kind", problem, quote(o.Kind), "")
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
			c.add(shortened(field), "there is no such field that can be said to be empty", "", strings.Join(k.Fields.Names(), ", "))
		case m != nil && m.Has(f.Desc):
			c.add(field, "said to be empty, and is not", f.text(m.Get(f.Desc)), "one of both")
		case i > 0 && o.Empty[i-1] >= field:
			c.add(field, "said to be empty twice, or not in order", "", "each once, in alphabetical order")
		}
	}
}

// together checks by the kind's own rules what annotations cannot say, of an object whose fields are acceptable.
func (c *checker) together(o *Object) Errors {
	c.object, c.errs = o.Key(), nil
	k := c.registry.byName[o.Kind]
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

// CheckName tells what is wrong with an object's name, if anything is. No object can have such a name.
func CheckName(k Key) *Error {
	switch {
	case k.Name == "":
		return &Error{Object: k, Field: "metadata.name", Problem: missing, Accepted: nameAccepted}
	case !validName(k.Name):
		return &Error{Field: "metadata.name", Problem: "not a name", Found: quote(k.Name), Accepted: nameAccepted}
	}
	return nil
}

func checkMetadata(name string, labels map[string]string, add report) {
	if e := CheckName(Key{Name: name}); e != nil {
		add(e.Field, e.Problem, e.Found, e.Accepted)
	}
	if len(labels) == 0 {
		return
	}
	var few [8]string
	for _, key := range sortedKeys(labels, few[:0]) {
		if !validLabelKey(key) {
			add("metadata.labels", "not the key of a label", quote(key), labelAccepted)
		} else if value := labels[key]; !validLabelValue(value) {
			add("metadata.labels."+key, "not the value of a label", quote(value), labelAccepted)
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

func (c *checker) tell(problem, found, accepted string) { c.add(c.at(), problem, found, accepted) }

// message checks what is said, in the order of the fields' numbers.
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
		c.tell("has fields that this version does not know", "", strings.Join(fs.Names(), ", "))
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
		c.tell(missing, "", "a mapping with "+strings.Join(f.Fields.Names(), ", "))
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
			c.tell("empty", `""`, f.Accepted())
		default:
			c.scalar(f, f.value(r))
		}
	}
	for more = true; more && f.in(r); r, more = p.next() {
		if !f.each(r, element) {
			c.tell("cannot be read", "", f.Accepted())
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
		c.tell("wrong number of elements", strconv.Itoa(n), accepted)
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
				c.tell(missing, "", f.Accepted())
			}
			return
		}
		if f.Ref != nil {
			if !validName(s) {
				c.tell("not the name of "+an(f.Ref.Name), show(quote(s)), nameAccepted)
			}
			c.needs = f.appendNeed(c.needs, s)
			return
		}
		if err := acceptable(f.Notes.Format, s); err != nil {
			c.tell(err.Error(), show(quote(s)), f.Accepted())
		}
	case protoreflect.EnumKind:
		if f.Desc.Enum().Values().ByNumber(v.Enum()) == nil {
			c.tell("unknown value", strconv.Itoa(int(v.Enum())), f.Accepted())
		}
	case protoreflect.BoolKind:
	default:
		negative, n := numberOf(f.kind, v)
		if n == 0 && f.Notes.Required {
			c.tell(missing, "", f.Accepted())
			return
		}
		if n == 0 && f.Notes.Zero != "" {
			return
		}
		if !f.inRange(negative, n) {
			c.tell("out of range", show(signed(negative, n)), f.Accepted())
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

// Accepted says what a person may write into the field, or into each element of it if it is a list.
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
		text = formatAccepted(f.Notes.Format)
	default:
		least, most := f.Bounds()
		if f.Notes.Unit == api.Unit_NONE {
			text = fmt.Sprintf("%d to %d", least, most)
		} else {
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
func (f *Field) text(v protoreflect.Value) string { return f.written(v, formatUnit) }

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

// flow writes a message on one line: "{address: 192.0.2.1, weight: 2}". A word is there although it is what leaving it out means.
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
