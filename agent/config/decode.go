// SPDX-License-Identifier: Apache-2.0

// YAML into the structs of the configuration. All errors are reported together, like those of objects: line, field,
// found, accepted.
package config

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/object"
)

// decoder remembers where each field is written.
type decoder struct {
	errs  object.Errors
	lines map[string]int
}

func (d *decoder) fail(line int, field, problem, found, accepted string) {
	d.errs = append(d.errs, &object.Error{Line: line, Field: field, Problem: problem, Found: found, Accepted: accepted})
}

// failAt is fail with a field: at its line, or at the line of its parent.
func (d *decoder) failAt(field, problem, found, accepted string) {
	d.fail(d.lineOf(field), field, problem, found, accepted)
}

func (d *decoder) lineOf(field string) int {
	for path := field; ; {
		if line := d.lines[path]; line > 0 {
			return line
		}
		cut := max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['))
		if cut < 0 {
			return 0
		}
		path = path[:cut]
	}
}

// choice reports a word that is not accepted.
func (d *decoder) choice(field, word string, of ...string) {
	if slices.Contains(of, word) {
		return
	}
	problem := "unknown word"
	if near := object.Nearest(word, of); near != "" {
		problem += "; did you mean " + near + "?"
	}
	d.failAt(field, problem, strconv.Quote(word), strings.Join(of, ", "))
}

// fieldsOf are the fields of a struct and of its embedded structs, by their name in YAML.
func fieldsOf(t reflect.Type) (names []string, at map[string][]int) {
	at = map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" || options == "inline" || name == "" {
			continue
		}
		names, at[name] = append(names, name), f.Index
	}
	return names, at
}

// accepted describes the accepted values of a type.
func accepted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a time such as 10s"
	case t.Kind() == reflect.Pointer:
		return accepted(t.Elem())
	case t.Kind() == reflect.Struct:
		names, _ := fieldsOf(t)
		return "a mapping with " + strings.Join(names, ", ")
	case t.Kind() == reflect.Map:
		return "a mapping of names to " + strings.TrimPrefix(strings.TrimPrefix(accepted(t.Elem()), "a "), "an ") + "s"
	case t.Kind() == reflect.Slice:
		return "a list, each element " + accepted(t.Elem())
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return "a whole number"
	}
	return "a string"
}

func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!str" {
		return strconv.Quote(n.Value)
	}
	return n.Value
}

// resolve follows an alias. A cycle of aliases ends at the depth of the structs, none of which contains its own type.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// pairs calls yield for each key of a mapping once.
func (d *decoder) pairs(n *yaml.Node, path string, yield func(key, value *yaml.Node, field string)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field := key.Value
		if path != "" {
			field = path + "." + key.Value
		}
		if key.Kind != yaml.ScalarNode {
			d.fail(key.Line, path, "the name of a field is not a word", "", "")
			continue
		}
		if seen[key.Value] {
			d.fail(key.Line, field, "duplicate field", "", "each field once")
			continue
		}
		seen[key.Value], d.lines[field] = true, key.Line
		yield(key, resolve(n.Content[i+1]), field)
	}
}

// value reads a node into v. Null keeps the default.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	n = resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		if v.Kind() == reflect.Pointer && v.IsNil() {
			v.Set(reflect.New(v.Type().Elem())) // there, though empty
		}
		return
	}
	wrong := func() { d.fail(n.Line, path, "not the right type", found(n), accepted(v.Type())) }
	switch t := v.Type(); {
	case t.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		d.value(n, v.Elem(), path)
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		d.fields(n, v, path)
	case t.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		v.Set(reflect.MakeMap(t))
		d.pairs(n, path, func(key, value *yaml.Node, field string) {
			one := reflect.New(t.Elem()).Elem()
			d.value(value, one, field)
			v.SetMapIndex(reflect.ValueOf(key.Value), one)
		})
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(t, len(n.Content), len(n.Content)))
		for i, element := range n.Content {
			at := path + "[" + strconv.Itoa(i) + "]"
			d.lines[at] = element.Line
			d.value(element, v.Index(i), at)
		}
	case n.Kind != yaml.ScalarNode:
		wrong()
	case t == reflect.TypeFor[time.Duration]():
		duration, err := time.ParseDuration(n.Value)
		if err != nil {
			wrong()
		}
		v.SetInt(int64(duration))
	case t.Kind() == reflect.String && n.Tag == "!!str", t.Kind() == reflect.Bool && n.Tag == "!!bool",
		(t.Kind() == reflect.Int || t.Kind() == reflect.Int64) && n.Tag == "!!int":
		if n.Decode(v.Addr().Interface()) != nil {
			wrong()
		}
	default:
		wrong()
	}
}

// fields reads a mapping into a struct; its caller reads those that are skipped.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, path string, skip ...string) {
	names, at := fieldsOf(v.Type())
	names = append(slices.Clone(skip), names...)
	d.pairs(n, path, func(key, value *yaml.Node, field string) {
		index, known := at[key.Value]
		switch {
		case slices.Contains(skip, key.Value):
		case known:
			d.value(value, v.FieldByIndex(index), field)
		default:
			problem := "there is no such field"
			if near := object.Nearest(key.Value, names); near != "" {
				problem += "; did you mean " + near + "?"
			}
			d.fail(key.Line, field, problem, "", strings.Join(names, ", "))
		}
	})
}

// result returns all errors, in the order of lines.
func (d *decoder) result() error {
	slices.SortStableFunc(d.errs, func(a, b *object.Error) int { return cmp.Compare(a.Line, b.Line) })
	return d.errs.Or()
}

// section reports an error of a section.
func (d *decoder) section(path string, err error) {
	var e *object.Error
	switch {
	case !errors.As(err, &e):
		d.failAt(path, err.Error(), "", "")
	case strings.Contains(e.Field, ", "):
		// It is of several fields.
		d.failAt(path, e.Field+": "+e.Problem, e.Found, e.Accepted)
	default:
		d.failAt(path+"."+e.Field, e.Problem, e.Found, e.Accepted)
	}
}
