// SPDX-License-Identifier: Apache-2.0

// A single value, as YAML has it, into a field.
package object

import (
	"errors"
	"math"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"
)

func (f *Field) scalar(n *yaml.Node) (protoreflect.Value, error) {
	if n.Kind != yaml.ScalarNode {
		return protoreflect.Value{}, errors.New("not a single value")
	}
	kind := f.Desc.Kind()
	switch kind {
	case protoreflect.StringKind:
		s, ok := stringOf(n)
		if !ok {
			return protoreflect.Value{}, errors.New("not a string")
		}
		return protoreflect.ValueOfString(s), nil
	case protoreflect.BoolKind:
		switch {
		case n.Tag == "!!bool" && strings.EqualFold(n.Value, "true"):
			return protoreflect.ValueOfBool(true), nil
		case n.Tag == "!!bool" && strings.EqualFold(n.Value, "false"):
			return protoreflect.ValueOfBool(false), nil
		}
		return protoreflect.Value{}, errors.New("not true or false")
	case protoreflect.EnumKind:
		values := f.Desc.Enum().Values()
		for i := range values.Len() {
			if strings.EqualFold(string(values.Get(i).Name()), n.Value) {
				return protoreflect.ValueOfEnum(values.Get(i).Number()), nil
			}
		}
		if near := Nearest(n.Value, EnumNames(f.Desc.Enum())); near != "" {
			return protoreflect.Value{}, errors.New("there is no such value; did you mean " + near + "?")
		}
		return protoreflect.Value{}, errors.New("there is no such value")
	}
	text, negative := strings.CutPrefix(strings.TrimSpace(n.Value), "-")
	if n.Tag == "!!bool" || text == "" {
		return protoreflect.Value{}, errors.New("not a number")
	}
	magnitude, err := parseNumber(f.Notes.Unit, text)
	if err != nil {
		return protoreflect.Value{}, err
	}
	outside := errors.New("out of range")
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if negative || magnitude > math.MaxUint32 {
			return protoreflect.Value{}, outside
		}
		return protoreflect.ValueOfUint32(uint32(magnitude)), nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if negative {
			return protoreflect.Value{}, outside
		}
		return protoreflect.ValueOfUint64(magnitude), nil
	}
	if magnitude > math.MaxInt64 {
		return protoreflect.Value{}, outside
	}
	value := int64(magnitude)
	if negative {
		value = -value
	}
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if value < math.MinInt32 || value > math.MaxInt32 {
			return protoreflect.Value{}, outside
		}
		return protoreflect.ValueOfInt32(int32(value)), nil
	}
	return protoreflect.ValueOfInt64(value), nil
}

// stringOf takes numbers as they are written, because people write `protocol: 17` and `sourcePorts: 443`; true, null
// and dates are too often a mistake.
func stringOf(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false
	}
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!timestamp":
		return n.Value, true
	}
	return "", false
}

// describe describes the found value.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!str":
			return Quote(n.Value)
		case "!!null":
			return "nothing"
		}
		if len(n.Value) <= 80 {
			return n.Value
		}
		return Quote(n.Value)
	}
	return ""
}
