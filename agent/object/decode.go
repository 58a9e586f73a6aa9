// SPDX-License-Identifier: Apache-2.0

// YAML into objects: a stream of documents, each an object or a JSON array of objects. All errors are reported
// together. The input may be hostile: its size, its depth and the expansion of its aliases are bounded.
package object

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"
)

const (
	// A document of this size is a few hundred thousand ACL rules.
	documentLimit = 64 << 20
	// Deeper than anything that a kind can hold.
	depthLimit = 64
	// The number of nodes that aliases may add.
	aliasLimit = 100_000
)

// Written is an object with where it was written.
type Written struct {
	*Object
	File string
	// Of its document's first line that is not empty.
	Line int

	text  []byte
	first int // the line that text begins on
}

// Decode reads objects from YAML or JSON. It returns those that are acceptable by themselves, and Errors for all the others. The
// file's name is for errors.
func (r *Registry) Decode(in io.Reader, file string) ([]*Written, error) {
	var all []*Written
	var errs Errors
	room := 64 << 10
	if short, known := in.(interface{ Len() int }); known {
		room = min(room, short.Len()) // one of many messages, say
	}
	documents := scanner{in: bufio.NewReaderSize(in, room)}
	for {
		text, line, err := documents.next()
		if err == io.EOF {
			return all, errs.Or()
		}
		if err != nil {
			errs = append(errs, &Error{File: file, Line: line, Problem: err.Error()})
			return all, errs
		}
		for text, line := range elements(text, line) {
			w, problems := r.decodeDocument(text, file, line)
			if w != nil && len(problems) == 0 {
				all = append(all, w)
			}
			errs = append(errs, problems...)
			if len(errs) >= MaxMistakes {
				errs = append(errs[:MaxMistakes:MaxMistakes], &Error{File: file, Problem: "too many mistakes; the rest was not read"})
				return all, errs
			}
		}
	}
}

const aliasToNothing = "an alias to nothing"

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *Registry) decodeDocument(text []byte, file string, first int) (*Written, Errors) {
	d := decoder{registry: r, file: file, first: first, room: aliasLimit + len(text)}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		line, message := first, err.Error()
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			message = message[len(m[0]):]
			if n, err := strconv.Atoi(m[1]); err == nil {
				line += n - 1
			}
		}
		if strings.HasPrefix(message, "unknown anchor") {
			// The alias may be a secret that begins with *.
			message = aliasToNothing
		}
		return nil, Errors{{File: file, Line: line, Problem: "not YAML: " + message, Accepted: acceptedYAML(text, message)}}
	}
	if len(document.Content) == 0 {
		return nil, nil // nothing but comments
	}
	o := d.object(document.Content[0])
	d.finish(o)
	if o == nil || len(d.errs) > 0 {
		return nil, d.errs
	}
	return &Written{Object: o, File: file, Line: first + document.Content[0].Line - 1, text: text, first: first}, nil
}

// acceptedYAML returns the accepted form where the parser's message is unclear.
func acceptedYAML(text []byte, message string) string {
	switch {
	case strings.Contains(message, "cannot start any token") && indentedByTab.Match(text):
		return "spaces, not tabs, in front of a line"
	case strings.Contains(message, "did not find expected key"), strings.Contains(message, "did not find expected '-'"),
		strings.Contains(message, "mapping values are not allowed"):
		return "the fields of one mapping, or the elements of one list, each on a line and all beginning in the same column"
	case strings.Contains(message, "did not find expected ',' or"):
		return "a } for each { and a ] for each ["
	case message == aliasToNothing:
		return "an anchor before its aliases; quotes around text that begins with *"
	case strings.Contains(message, "UTF-8"), strings.Contains(message, "control characters"):
		return "text in UTF-8"
	}
	return ""
}

var indentedByTab = regexp.MustCompile(`(?m)^ *\t`)

// entry is where a field is written.
type entry struct {
	line int
	// The value; nil if there is none, or more than one.
	value *yaml.Node
}

// decoder reads one document.
type decoder struct {
	registry *Registry
	file     string
	first    int // line of the document's beginning
	key      Key
	errs     Errors
	unread   map[string]bool // fields that could not be read
	meant    map[string]bool // fields that mistyped names probably mean
	written  map[string]entry
	room     int
	broke    bool
	// Fields that are set to empty; and the depth of lists and messages that are owned as a whole.
	empty  []string
	inside int
}

func (d *decoder) fail(n *yaml.Node, field, problem, found, accepted string) {
	if d.unread == nil {
		d.unread = map[string]bool{}
	}
	d.unread[field] = true
	d.report(n, field, problem, found, accepted)
}

// report is fail for a field that was read all the same.
func (d *decoder) report(n *yaml.Node, field, problem, found, accepted string) {
	if len(d.errs) < MaxMistakes {
		d.errs = append(d.errs, &Error{
			File: d.file, Line: d.line(n), Object: d.key, Field: field, Problem: problem, Found: found, Accepted: accepted,
		})
	}
}

func (d *decoder) line(n *yaml.Node) int { return d.first + n.Line - 1 }

// finish checks rules beyond the structure, gives each error its line, and sorts them.
func (d *decoder) finish(o *Object) {
	for _, e := range d.errs {
		e.Object = d.key
	}
	defer func() { slices.SortStableFunc(d.errs, func(a, b *Error) int { return a.Line - b.Line }) }()
	if o == nil {
		return
	}
	slices.Sort(o.Empty)
	c := newChecker(d.registry)
	// Other owners may have the fields that are left out.
	c.part = true
	alone := c.fields(o)
	for _, e := range alone {
		// An unreadable field is not missing, and the fields below it are unknown.
		if d.isUnread(e.Field) || d.meant[e.Field] && d.written[e.Field].line == 0 {
			continue
		}
		d.complete(e)
		d.errs = append(d.errs, e)
	}
	if len(alone) > 0 {
		return
	}
	for _, e := range c.together(o) {
		// A conflict with an unreadable field may disappear when that field is right.
		if d.isUnread(e.Field) || d.hasUnread(parentOf(e.Field)) {
			continue
		}
		d.complete(e)
		d.errs = append(d.errs, e)
	}
}

// complete adds the place and the found text to an error.
func (d *decoder) complete(e *Error) {
	e.File, e.Line = d.file, d.lineOf(e.Field)
	value := d.written[e.Field].value
	if value == nil {
		return
	}
	// To the message, zero and the empty string are the same as nothing.
	if e.Problem == Missing {
		e.Problem = "out of range"
		if value.Value == "" {
			e.Problem = "empty"
		}
		e.Found = describe(value)
	}
	if e.Found != "" {
		e.Found = describe(value)
	}
}

// hasUnread reports whether something below a field could not be read.
func (d *decoder) hasUnread(field string) bool {
	for unread := range d.unread {
		if unread == "apiVersion" || unread == "metadata" || strings.HasPrefix(unread, "metadata.") {
			continue
		}
		if field == "" || strings.HasPrefix(unread, field+".") || strings.HasPrefix(unread, field+"[") {
			return true
		}
	}
	return false
}

func (d *decoder) isUnread(field string) bool {
	for ; field != ""; field = parentOf(field) {
		if d.unread[field] {
			return true
		}
	}
	return false
}

func parentOf(field string) string {
	return field[:max(strings.LastIndexByte(field, '.'), strings.LastIndexByte(field, '['), 0)]
}

// lineOf is the line of a field, or of its parent.
func (d *decoder) lineOf(field string) int {
	for {
		if at, known := d.written[field]; known {
			return at.line
		}
		if field == "" {
			return d.first
		}
		field = parentOf(field)
	}
}

// LineOf returns the line of a field, or of its parent. Fields are named as in Error.
func (w *Written) LineOf(r *Registry, field string) int {
	if d := w.again(r); d != nil {
		return d.lineOf(field)
	}
	return w.Line
}

// again parses the text once more, for the lines of all fields.
func (w *Written) again(r *Registry) *decoder {
	var document yaml.Node
	if yaml.Unmarshal(w.text, &document) != nil || len(document.Content) == 0 {
		return nil
	}
	d := &decoder{registry: r, file: w.File, first: w.first, room: aliasLimit + len(w.text)}
	d.object(document.Content[0])
	return d
}

// Whole returns the errors of objects that have no other owners. Decode has reported the errors that do not depend on
// other owners.
func (r *Registry) Whole(written []*Written) Errors {
	var all Errors
	for _, w := range written {
		all = append(all, r.Check(w.Object)...)
	}
	r.Locate(written, all)
	return all
}

// Locate adds file, line and found text to errors of objects that were read from a file.
func (r *Registry) Locate(written []*Written, errs Errors) {
	byKey := make(map[Key]*Written, len(written))
	for _, w := range written {
		byKey[w.Key()] = w
	}
	for _, e := range errs {
		w := byKey[e.Object]
		if w == nil || e.File != "" {
			continue
		}
		e.File, e.Line = w.File, w.Line
		if d := w.again(r); d != nil {
			d.complete(e)
		}
	}
}

// follow returns the target of an alias. Each visited node reduces the budget, because aliases expand a short
// document to a long one.
func (d *decoder) follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias // never an alias itself
	}
	if d.room--; d.room >= 0 {
		return n
	}
	if !d.broke {
		d.broke = true
		d.fail(n, "", "aliases make this document too large", "", fmt.Sprintf("at most %d values by way of aliases", aliasLimit))
	}
	return nil
}

// pairs calls yield for every key of a mapping, and reports duplicate keys.
func (d *decoder) pairs(n *yaml.Node, path string, yield func(name string, key, value *yaml.Node)) {
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := d.follow(n.Content[i])
		if key == nil || d.broke {
			return
		}
		if key.Kind != yaml.ScalarNode {
			d.fail(key, strings.TrimSuffix(path, "."), "the name of a field is not a word", describe(key), "")
			continue
		}
		if key.Tag == "!!merge" {
			d.fail(key, strings.TrimSuffix(path, "."), "merge keys are not supported", "<<", "fields written out, or an alias to a whole value")
			continue
		}
		if seen[key.Value] {
			d.report(key, path+key.Value, "duplicate field", "", "each field once")
			continue
		}
		seen[key.Value] = true
		yield(key.Value, n.Content[i], n.Content[i+1])
	}
}

func (d *decoder) object(n *yaml.Node) *Object {
	d.written = map[string]entry{"": {line: d.line(n)}}
	if n = d.follow(n); n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "", "not an object", describe(n), "a mapping with apiVersion, kind, metadata and spec; or a JSON array of such")
		return nil
	}
	parts := map[string]*yaml.Node{}
	d.pairs(n, "", func(name string, key, value *yaml.Node) {
		switch name {
		case "apiVersion", "kind", "metadata", "spec":
			parts[name] = value
			d.written[name] = entry{line: d.line(key)}
		case "status":
			// The agent writes it when it shows an object, and ignores it when the object is applied again.
		default:
			d.unknown(key, name, "", []string{"apiVersion", "kind", "metadata", "spec"})
		}
	})
	o := &Object{}
	if version, ok := d.word(n, parts["apiVersion"], "apiVersion", APIVersion); ok && version != APIVersion {
		d.fail(parts["apiVersion"], "apiVersion", "not a version that is known", Quote(version), APIVersion)
	}
	var names []string
	for _, k := range d.registry.Kinds() {
		names = append(names, k.Name)
	}
	kind, ok := d.word(n, parts["kind"], "kind", strings.Join(names, ", "))
	var k *Kind
	if ok {
		if k = d.registry.kind(kind); k == nil {
			problem := "there is no such kind"
			if near := d.registry.nearestKind(kind); near != nil {
				problem += "; did you mean " + near.Name + "?"
			}
			d.fail(parts["kind"], "kind", problem, Quote(kind), strings.Join(names, ", "))
		} else {
			o.Kind, d.key.Kind = k.Name, k.Name
		}
	}
	d.metadata(n, parts["metadata"], o)
	if k == nil {
		return nil
	}
	m := k.Message.New()
	o.Spec = m.Interface()
	if spec := parts["spec"]; spec != nil {
		if spec = d.follow(spec); spec != nil && !isNull(spec) {
			d.message(k.Fields, m, spec, "", 0)
			o.Empty = d.empty
		}
	}
	if d.broke {
		return nil
	}
	return o
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// word reads a string of the envelope.
func (d *decoder) word(parent, n *yaml.Node, field, accepted string) (string, bool) {
	if n == nil {
		if !d.meant[field] {
			d.fail(parent, field, Missing, "", accepted)
		}
		return "", false
	}
	if n = d.follow(n); n == nil {
		return "", false
	}
	if s, ok := stringOf(n); ok && s != "" {
		return s, true
	}
	d.fail(n, field, "not a string", describe(n), accepted)
	return "", false
}

func (d *decoder) metadata(parent, n *yaml.Node, o *Object) {
	if n == nil {
		if !d.meant["metadata"] {
			d.fail(parent, "metadata", Missing, "", "a mapping with name, and labels if there are any")
		}
		return
	}
	if n = d.follow(n); n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, "metadata", "not a mapping", describe(n), "a mapping with name, and labels if there are any")
		return
	}
	d.pairs(n, "metadata.", func(name string, key, value *yaml.Node) {
		d.written["metadata."+name] = entry{line: d.line(key)}
		switch name {
		case "name":
			if s, ok := d.word(key, value, "metadata.name", nameAccepted); ok {
				o.Name, d.key.Name = s, s
			}
		case "labels":
			value = d.follow(value)
			if value == nil || isNull(value) {
				return
			}
			if value.Kind != yaml.MappingNode {
				d.fail(value, "metadata.labels", "not a mapping", describe(value), "names and values")
				return
			}
			d.pairs(value, "metadata.labels.", func(name string, key, value *yaml.Node) {
				d.written["metadata.labels."+name] = entry{line: d.line(key)}
				value = d.follow(value)
				if value == nil {
					return
				}
				s, ok := stringOf(value)
				if !ok {
					d.fail(value, "metadata.labels."+name, "not a string", describe(value), labelAccepted)
					return
				}
				if o.Labels == nil {
					o.Labels = map[string]string{}
				}
				o.Labels[name] = s
			})
		default:
			d.unknown(key, name, "metadata.", []string{"name", "labels"})
		}
	})
}

func (d *decoder) unknown(key *yaml.Node, name, path string, known []string) {
	problem := "there is no such field"
	if near := Nearest(name, known); near != "" {
		problem += "; did you mean " + near + "?"
		if d.meant == nil {
			d.meant = map[string]bool{}
		}
		d.meant[path+near] = true
	}
	d.fail(key, path+shortened(name), problem, "", strings.Join(known, ", "))
}

// shortened is for people: hostile names may be long.
func shortened(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "..."
	}
	return name
}

func (d *decoder) message(fs *Fields, m protoreflect.Message, n *yaml.Node, path string, depth int) {
	at := strings.TrimSuffix(path, ".")
	if at == "" {
		at = "spec"
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n, at, "not a mapping", found(n, holdsSecret(fs, map[*Fields]bool{})), "a mapping with "+strings.Join(fs.Names(), ", "))
		return
	}
	if depth > depthLimit {
		d.fail(n, at, "too deep", "", fmt.Sprintf("at most %d levels", depthLimit))
		return
	}
	chosen := map[protoreflect.OneofDescriptor]*Field{}
	d.pairs(n, path, func(name string, key, value *yaml.Node) {
		f := fs.byName[name]
		if f == nil {
			d.unknown(key, name, path, fs.Names())
			return
		}
		field := path + name
		d.written[field] = entry{line: d.line(key)}
		if value = d.follow(value); value == nil || isNull(value) {
			return
		}
		if one := f.Desc.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if other := chosen[one]; other != nil {
				d.fail(key, field, "excludes "+other.Name+", which is there, too", "", "only one of "+strings.Join(namesOf(one), ", "))
				return
			}
			chosen[one] = f
		}
		if !f.Desc.IsList() {
			d.value(f, value, field, depth, func() protoreflect.Value { return m.NewField(f.Desc) }, func(v protoreflect.Value) {
				if m.Set(f.Desc, v); d.inside == 0 && !m.Has(f.Desc) {
					d.empty = append(d.empty, field)
				}
			})
			return
		}
		if value.Kind != yaml.SequenceNode {
			secret := f.Notes.Secret || f.Fields != nil && holdsSecret(f.Fields, map[*Fields]bool{})
			d.fail(value, field, "not a list", found(value, secret), "a list, each element "+f.Accepted())
			return
		}
		if d.inside == 0 && len(value.Content) == 0 {
			d.empty = append(d.empty, field)
		}
		d.inside++
		defer func() { d.inside-- }()
		list := m.Mutable(f.Desc).List()
		for i, element := range value.Content {
			each := field + "[" + strconv.Itoa(i) + "]"
			d.written[each] = entry{line: d.line(element)}
			element = d.follow(element)
			if element == nil {
				return
			}
			if isNull(element) {
				d.fail(element, each, "empty", "null", f.Accepted())
				continue
			}
			d.value(f, element, each, depth, list.NewElement, list.Append)
		}
	})
}

func namesOf(one protoreflect.OneofDescriptor) []string {
	names := make([]string, one.Fields().Len())
	for i := range names {
		names[i] = one.Fields().Get(i).JSONName()
	}
	return names
}

// found describes the found value, unless it may be a secret.
func found(n *yaml.Node, secret bool) string {
	if secret {
		return ""
	}
	return describe(n)
}

// value reads one value, which is not a list, and hands it to set if it can be read.
func (d *decoder) value(f *Field, n *yaml.Node, field string, depth int, fresh func() protoreflect.Value, set func(protoreflect.Value)) {
	if f.Fields != nil {
		v := fresh()
		if f.whole {
			d.inside++
		}
		d.message(f.Fields, v.Message(), n, field+".", depth+1)
		if f.whole {
			d.inside--
		}
		set(v)
		return
	}
	v, err := f.scalar(n)
	if err != nil {
		d.fail(n, field, err.Error(), found(n, f.Notes.Secret), f.Accepted())
		return
	}
	if !f.Notes.Secret {
		at := d.written[field]
		at.value = n
		d.written[field] = at
	}
	set(v)
}
