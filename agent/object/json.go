// SPDX-License-Identifier: Apache-2.0

// JSON into nodes, and nodes into objects, for HTTP.
package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// ParseJSON reads one JSON value (RFC 8259) as nodes such as Node makes. The input may be hostile: its depth and the
// number of its values are bounded, and the caller bounds its length. Duplicate names stay, and Object reports them.
func ParseJSON(text []byte) (*yaml.Node, error) {
	p := newJSONParser(text)
	n, err := p.value(0)
	if err != nil {
		return nil, p.bad(err)
	}
	return n, p.end()
}

// MembersOfJSON reads one JSON object whose members are lists, and calls each with every element as soon as it is
// read, so that only one of them is in memory: `at` is its place in the list. At -1 are the beginning of a list, as
// nil, and a member that is not a list. An error of `each` ends it. A value that is not an object is passed as the
// member "" at -1.
func MembersOfJSON(text []byte, each func(member string, at int, n *yaml.Node) error) error {
	p := newJSONParser(text)
	token, err := p.Token()
	if err != nil {
		return p.bad(err)
	}
	if token != json.Delim('{') {
		n, err := p.rest(token, 0)
		if err != nil {
			return p.bad(err)
		}
		if err := p.end(); err != nil {
			return err
		}
		return each("", -1, n)
	}
	for p.More() {
		name, err := p.Token()
		if err != nil {
			return p.bad(err)
		}
		// The decoder sees to it that names are strings.
		if err := p.member(name.(string), each); err != nil {
			return err
		}
	}
	if _, err := p.Token(); err != nil {
		return p.bad(err)
	}
	return p.end()
}

const (
	// Deeper than any object, and any envelope around objects.
	jsonDepth = depthLimit + 8
	// More than the largest object has. Each takes some 200 bytes.
	jsonValues = 2 << 20
)

type jsonParser struct {
	*json.Decoder
	left int
}

func newJSONParser(text []byte) *jsonParser {
	p := &jsonParser{json.NewDecoder(bytes.NewReader(text)), jsonValues}
	p.UseNumber()
	return p
}

func (p *jsonParser) bad(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return fmt.Errorf("not JSON: %w (byte %d)", err, p.InputOffset())
}

func (p *jsonParser) end() error {
	if _, err := p.Token(); err != io.EOF {
		return p.bad(errors.New("something follows the value"))
	}
	return nil
}

func (p *jsonParser) member(name string, each func(member string, at int, n *yaml.Node) error) error {
	token, err := p.Token()
	if err != nil {
		return p.bad(err)
	}
	if token != json.Delim('[') {
		n, err := p.rest(token, 1)
		if err != nil {
			return p.bad(err)
		}
		return each(name, -1, n)
	}
	if err := each(name, -1, nil); err != nil {
		return err
	}
	for at := 0; p.More(); at++ {
		p.left = jsonValues
		n, err := p.value(2)
		if err != nil {
			return p.bad(err)
		}
		if err := each(name, at, n); err != nil {
			return err
		}
	}
	if _, err := p.Token(); err != nil {
		return p.bad(err)
	}
	return nil
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	if depth > jsonDepth {
		return nil, fmt.Errorf("more than %d levels", jsonDepth)
	}
	token, err := p.Token()
	if err != nil {
		return nil, err
	}
	return p.rest(token, depth)
}

// rest reads a value after its first token.
func (p *jsonParser) rest(token json.Token, depth int) (*yaml.Node, error) {
	if p.left--; p.left < 0 {
		return nil, fmt.Errorf("more than %d values", jsonValues)
	}
	switch v := token.(type) {
	case string:
		return plain("!!str", v), nil
	case bool:
		return plain("!!bool", fmt.Sprint(v)), nil
	case nil:
		return plain("!!null", "null"), nil
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return plain("!!float", v.String()), nil
		}
		return plain("!!int", v.String()), nil
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if v == '{' {
			n = Mapping()
		}
		for p.More() {
			element, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, element)
		}
		_, err := p.Token()
		return n, err
	}
	return nil, fmt.Errorf("found %v", token)
}

// Object reads one object from nodes, as Decode reads one from text. Errors have no file and line.
func (r *Registry) Object(n *yaml.Node) (*Object, Errors) {
	d := decoder{registry: r, first: 1, room: aliasLimit + countNodes(n)}
	o := d.object(n)
	d.finish(o)
	for _, e := range d.errs {
		e.Line = 0
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return o, nil
}

func countNodes(n *yaml.Node) int {
	count := 1
	for _, c := range n.Content {
		count += countNodes(c)
	}
	return count
}

// Member returns a mapping's value of a name, or nil.
func Member(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// SetMember sets a mapping's value of a name. A nil value deletes it.
func SetMember(n *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != name {
			continue
		}
		if value == nil {
			n.Content = append(n.Content[:i:i], n.Content[i+2:]...)
		} else {
			n.Content[i+1] = value
		}
		return
	}
	if value != nil {
		n.Content = append(n.Content, text(name), value)
	}
}

// MergePatch applies a merge patch (RFC 7396 section 2) and returns the outcome. Both may be changed.
func MergePatch(target, patch *yaml.Node) *yaml.Node {
	if patch.Kind != yaml.MappingNode {
		return patch
	}
	if target == nil || target.Kind != yaml.MappingNode {
		target = Mapping()
	}
	for i := 0; i+1 < len(patch.Content); i += 2 {
		name, value := patch.Content[i].Value, patch.Content[i+1]
		if isNull(value) {
			SetMember(target, name, nil)
			continue
		}
		SetMember(target, name, MergePatch(Member(target, name), value))
	}
	return target
}

// Text returns a string as a node.
func Text(s string) *yaml.Node { return text(s) }

// IsMapping reports whether a node is a mapping.
func IsMapping(n *yaml.Node) bool { return n != nil && n.Kind == yaml.MappingNode }
