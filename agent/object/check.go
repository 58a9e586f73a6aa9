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
	"sluice.v1.Session":     {check: checkSession, claims: claimSession, holds: holdSession},
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
	add   report

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
		if len(c.errs) < errorLimit {
			c.errs = append(c.errs, &Error{Object: c.object, Field: field, Problem: problem, Found: found, Accepted: accepted})
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

// fields checks each field by what its annotation says.
func (c *checker) fields(o *Object) Errors {
	c.object, c.errs, c.lacks, c.empty = o.Key(), nil, false, o.Empty
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
	c.message(k.Fields, o.Spec.ProtoReflect())
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
	add := c.add
	if c.part {
		add = func(field, problem, found, accepted string) {
			// With what others say it may be right, unless it is about what belongs together anyway.
			if k.Fields.isWhole(field) {
				c.add(field, problem, found, accepted)
			} else {
				c.lacks = true
			}
		}
	}
	k.rules.check(o.Spec, add)
	return c.errs
}

func checkMetadata(name string, labels map[string]string, add report) {
	switch {
	case name == "":
		add("metadata.name", missing, "", nameAccepted)
	case !validName(name):
		add("metadata.name", "not a name", quote(name), nameAccepted)
	}
	if len(labels) == 0 {
		return
	}
	keys := make([]string, 0, len(labels))
	for key := range labels {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
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

func (c *checker) message(fs *Fields, m protoreflect.Message) {
	if len(m.GetUnknown()) > 0 {
		c.tell("has fields that this version does not know", "", strings.Join(fs.Names(), ", "))
	}
	for _, f := range fs.List {
		if f.optional && !m.Has(f.Desc) {
			continue
		}
		c.trail = append(c.trail, place{f, -1})
		if c.part && c.inside == 0 && !m.Has(f.Desc) && !slices.Contains(c.empty, c.at()) {
			c.lacks = true
		} else {
			c.field(f, m)
		}
		c.trail = c.trail[:len(c.trail)-1]
	}
}

func (c *checker) field(f *Field, m protoreflect.Message) {
	switch {
	case f.list:
		list := m.Get(f.Desc).List()
		c.length(f, list.Len())
		c.inside++
		for i := range list.Len() {
			c.trail[len(c.trail)-1].index = i
			if v := list.Get(i); f.Fields != nil {
				c.message(f.Fields, v.Message())
			} else if f.kind == protoreflect.StringKind && v.String() == "" {
				c.tell("empty", `""`, f.Accepted())
			} else {
				c.scalar(f, v)
			}
		}
		c.inside--
	case f.Fields != nil:
		if m.Has(f.Desc) && f.whole {
			c.inside++
			c.message(f.Fields, m.Get(f.Desc).Message())
			c.inside--
		} else if m.Has(f.Desc) {
			c.message(f.Fields, m.Get(f.Desc).Message())
		} else if f.Notes.Required {
			c.tell(missing, "", "a mapping with "+strings.Join(f.Fields.Names(), ", "))
		}
	default:
		c.scalar(f, m.Get(f.Desc))
	}
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

// text is a value as a person would write it.
func (f *Field) text(v protoreflect.Value) string {
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
	return FormatNumber(f.Notes.Unit, n)
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
