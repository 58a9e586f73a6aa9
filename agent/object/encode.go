// SPDX-License-Identifier: Apache-2.0

// Objects into YAML and JSON, for Decode. YAML has numbers with units and JSON plain ones; enums are in lower case;
// absent fields stay absent.
package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
)

// YAML writes objects as a stream of documents.
func (r *Registry) YAML(w io.Writer, objects ...*Object) error {
	for i, o := range objects {
		if i > 0 {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		n, err := r.Node(o, true)
		if err != nil {
			return err
		}
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(n); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
		if err := e.Close(); err != nil {
			return fmt.Errorf("%s: %w", o.Key(), err)
		}
	}
	return nil
}

// JSON returns an object as JSON.
func (r *Registry) JSON(o *Object) ([]byte, error) {
	n, err := r.Node(o, false)
	if err != nil {
		return nil, err
	}
	return JSON(n), nil
}

// Node returns an object as YAML nodes, to which a caller may add fields. people: numbers have units ("100M").
func (r *Registry) Node(o *Object, people bool) (*yaml.Node, error) {
	k := r.kind(o.Kind)
	if k == nil || o.Spec == nil {
		return nil, fmt.Errorf("%s: there is no such kind", o.Key())
	}
	write := plainNumber
	if people {
		write = unitNumber(FormatNumber)
	}
	return envelope(o, messageNode(k.Fields, o.Spec.ProtoReflect(), write, o.Empty, "")), nil
}

// LayerNode returns an owner's layer of an object as YAML nodes: without absent fields, and with explicit zeros.
func (r *Registry) LayerNode(o *Object) (*yaml.Node, error) {
	k := r.kind(o.Kind)
	if k == nil || o.Spec == nil {
		return nil, fmt.Errorf("%s: there is no such kind", o.Key())
	}
	return envelope(o, saidNode(k.Fields, o.Spec.ProtoReflect(), o.Empty, "")), nil
}

func envelope(o *Object, spec *yaml.Node) *yaml.Node {
	metadata := Mapping("name", text(o.Name))
	if len(o.Labels) > 0 {
		labels := Mapping()
		keys := make([]string, 0, len(o.Labels))
		for key := range o.Labels {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			labels.Content = append(labels.Content, text(key), text(o.Labels[key]))
		}
		metadata.Content = append(metadata.Content, text("labels"), labels)
	}
	return Mapping("apiVersion", text(APIVersion), "kind", text(o.Kind), "metadata", metadata, "spec", spec)
}

// Spec returns an object's spec as YAML nodes for people: numbers have their units in full. Decode reads that, too.
func (r *Registry) Spec(o *Object) (*yaml.Node, error) {
	k := r.kind(o.Kind)
	if k == nil || !k.describes(o.Spec) {
		return nil, fmt.Errorf("%s: there is no such kind", o.Key())
	}
	return messageNode(k.Fields, o.Spec.ProtoReflect(), unitNumber(FormatUnit), nil, ""), nil
}

// unitNumber writes numbers that have a unit in a form of their own.
func unitNumber(form func(api.Unit, uint64) string) number {
	return func(f *Field, negative bool, n uint64) *yaml.Node {
		if !negative && f.Notes.Unit != api.Unit_NONE {
			if s := form(f.Notes.Unit, n); !allDigits(s) {
				return text(s)
			}
		}
		return plainNumber(f, negative, n)
	}
}

func plainNumber(_ *Field, negative bool, n uint64) *yaml.Node {
	return plain("!!int", signed(negative, n))
}

// Mapping returns a mapping from names and *yaml.Node values in turns.
func Mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		value, _ := pairs[i+1].(*yaml.Node)
		n.Content = append(n.Content, text(name), value)
	}
	return n
}

// oldYAML is text that readers of YAML 1.1 take for something else: a boolean, or a number to base 60.
var oldYAML = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|~|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?[0-9][0-9_]*)$`)

func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if oldYAML.MatchString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func plain(tag, s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s}
}

// number writes a number of a field's.
type number func(f *Field, negative bool, magnitude uint64) *yaml.Node

func messageNode(fs *Fields, m protoreflect.Message, write number, empty []string, path string) *yaml.Node {
	n := Mapping()
	for _, f := range fs.List {
		at, v := path+f.Name, m.Get(f.Desc)
		explicit := !f.Notes.Secret && slices.Contains(empty, at)
		switch {
		case f.Desc.IsList():
			if v.List().Len() > 0 || explicit {
				n.Content = append(n.Content, text(f.Name), listNode(f, v.List(), write))
			}
		case m.Has(f.Desc) && f.Desc.Kind() == protoreflect.MessageKind && !f.whole:
			n.Content = append(n.Content, text(f.Name), messageNode(f.Fields, v.Message(), write, empty, at+"."))
		case m.Has(f.Desc) || explicit || f.Desc.Kind() == protoreflect.EnumKind && f.Desc.ContainingOneof() == nil:
			n.Content = append(n.Content, text(f.Name), valueNode(f, v, write))
		}
	}
	return n
}

func listNode(f *Field, list protoreflect.List, write number) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for i := range list.Len() {
		n.Content = append(n.Content, valueNode(f, list.Get(i), write))
	}
	return n
}

// saidNode has the fields that are set, and no others.
func saidNode(fs *Fields, m protoreflect.Message, empty []string, path string) *yaml.Node {
	n := Mapping()
	for _, f := range fs.List {
		at, v := path+f.Name, m.Get(f.Desc)
		switch {
		case !m.Has(f.Desc) && !slices.Contains(empty, at):
		case f.list:
			n.Content = append(n.Content, text(f.Name), listNode(f, v.List(), plainNumber))
		case f.whole:
			n.Content = append(n.Content, text(f.Name), valueNode(f, v, plainNumber))
		default:
			n.Content = append(n.Content, text(f.Name), saidNode(f.Fields, v.Message(), empty, at+"."))
		}
	}
	return n
}

func valueNode(f *Field, v protoreflect.Value, write number) *yaml.Node {
	switch f.Desc.Kind() {
	case protoreflect.MessageKind:
		return messageNode(f.Fields, v.Message(), write, nil, "")
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BoolKind:
		return plain("!!bool", strconv.FormatBool(v.Bool()))
	case protoreflect.EnumKind:
		if d := f.Desc.Enum().Values().ByNumber(v.Enum()); d != nil {
			return text(strings.ToLower(string(d.Name())))
		}
		return plain("!!int", strconv.Itoa(int(v.Enum())))
	}
	negative, n := numberOf(f.Desc.Kind(), v)
	return write(f, negative, n)
}

// JSON writes nodes as Node and Mapping make them.
func JSON(n *yaml.Node) []byte {
	var b bytes.Buffer
	writeJSON(&b, n)
	return b.Bytes()
}

func writeJSON(b *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, n.Content[i])
			b.WriteByte(':')
			writeJSON(b, n.Content[i+1])
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, c)
		}
		b.WriteByte(']')
	default:
		if n.Tag == "!!int" || n.Tag == "!!bool" {
			b.WriteString(n.Value)
			return
		}
		quoted, _ := json.Marshal(n.Value) // a string always can be
		b.Write(quoted)
	}
}
