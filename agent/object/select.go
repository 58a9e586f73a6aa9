// SPDX-License-Identifier: Apache-2.0

// Selection of objects by the value of a field.
package object

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
)

// Selector finds objects of a kind that have a value in a field.
type Selector struct {
	path Path
	// In the form of the field; empty: not set.
	value string
	// Leaving the field out means the same.
	unset bool
}

// Select returns a selector. The value is as in YAML, or the word for an absent field, such as "untagged". Any
// element of a list may match.
func (k *Kind) Select(field, value string) (*Selector, error) {
	path, err := k.Find(field)
	if err != nil {
		return nil, err
	}
	f := path.Field()
	s := &Selector{path: path}
	switch {
	case f.Fields != nil:
		return nil, fmt.Errorf("%s.%s has fields of its own; accepted: one of them, such as %s.%s", k.Name, field, field, f.Fields.List[0].Name)
	case f.Notes.Secret:
		return nil, fmt.Errorf("%s.%s is secret: objects cannot be selected by it", k.Name, field)
	case value == "":
		s.unset = true
		return s, nil
	}
	v, err := f.valueOf(value)
	if err != nil {
		if s.unset = f.Notes.Zero == value; s.unset {
			return s, nil
		}
		return nil, fmt.Errorf("%s.%s: %w; found %q; accepted: %s", k.Name, field, err, value, f.Accepted())
	}
	s.value = f.written(v, FormatNumber)
	if !f.list {
		s.unset = f.Notes.Zero == value || v.Equal(f.Desc.Default()) || f.Ref != nil && slices.Equal(f.Ref.Builtin, []string{value})
	}
	return s, nil
}

// valueOf reads a value, and writes addresses, networks and so on in the one way that objects have them in.
func (f *Field) valueOf(text string) (protoreflect.Value, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: text}
	switch f.Desc.Kind() {
	case protoreflect.StringKind:
		n.Tag = "!!str"
	case protoreflect.BoolKind:
		n.Tag = "!!bool"
	}
	v, err := f.scalar(n)
	if err != nil || f.Desc.Kind() != protoreflect.StringKind || f.Notes.Format == api.Format_TEXT {
		return v, err
	}
	same, err := Canonical(f.Notes.Format, v.String())
	if err != nil {
		return v, errors.New(strings.TrimSpace(err.Error()))
	}
	return protoreflect.ValueOfString(same), nil
}

// Matches reports whether an object of the kind has the value.
func (s *Selector) Matches(spec proto.Message) bool {
	found := s.path.Strings(spec)
	if len(found) == 0 {
		return s.unset
	}
	if s.value == "" {
		return false
	}
	return slices.ContainsFunc(found, func(text string) bool { return text == s.value || s.path.Field().means(text, s.value) })
}

// means reports whether a text of the field means the same address, network and so on as a canonical one.
func (f *Field) means(text, value string) bool {
	if f.kind != protoreflect.StringKind || f.Notes.Format == api.Format_TEXT || f.Notes.Secret {
		return false
	}
	found, err := Canonical(f.Notes.Format, text)
	return err == nil && found == value
}
