// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// outputFlag adds -o with these formats, of which the first is the default.
func outputFlag(c *cobra.Command, formats ...string) *string {
	o := &choice{value: formats[0], of: formats}
	c.Flags().VarP(o, "output", "o", "format: "+strings.Join(formats, ", "))
	complete(c, "output", func(*cobra.Command, string) []string {
		words := slices.Clone(formats)
		if last := len(words) - 1; words[last] == jsonPathFormat {
			words[last] = jsonPathIs
		}
		return words
	})
	return &o.value
}

const (
	// jsonPathFormat, as the last format of a command, lets people pick fields. The flag's value begins with jsonPathIs.
	jsonPathFormat = jsonPathIs + "TEMPLATE"
	jsonPathIs     = "jsonpath="
)

// A choice is a flag that takes one of a few words.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "WORD" }
func (c *choice) Set(word string) error {
	if template, is := strings.CutPrefix(word, jsonPathIs); is && slices.Contains(c.of, jsonPathFormat) {
		if _, err := jsonPath(template); err != nil {
			return err
		}
		c.value = word
		return nil
	}
	if !slices.Contains(c.of, word) {
		return fmt.Errorf("accepted: %s", strings.Join(c.of, ", "))
	}
	c.value = word
	return nil
}

// A span is a flag that takes a time: a number and its unit.
type span struct{ value *time.Duration }

// spanFlag adds a flag that takes a time.
func spanFlag(c *cobra.Command, into *time.Duration, name string, usual time.Duration, usage string) {
	*into = usual
	c.Flags().Var(span{into}, name, usage)
}

func (s span) Type() string { return "duration" }

// String is empty for zero, so that help shows no default.
func (s span) String() string {
	if s.value == nil || *s.value == 0 {
		return ""
	}
	return s.value.String()
}

func (s span) Set(word string) error {
	d, err := time.ParseDuration(word)
	if err != nil {
		return errors.New("accepted: a number and its unit, such as 5m, 90s or 1h")
	}
	*s.value = d
	return nil
}

// write writes any value that JSON can hold as JSON (indented; a line of its own if compact), as YAML, or its fields by a JSONPath template.
func (p *program) write(format string, compact bool, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("writing %s: %w", format, err)
	}
	if format == "yaml" {
		// JSON is YAML; reading it as nodes keeps the order of fields.
		var n yaml.Node
		if err := yaml.Unmarshal(b.Bytes(), &n); err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		blockStyle(&n)
		return p.writeYAML(&n)
	}
	if template, is := strings.CutPrefix(format, jsonPathIs); is {
		return p.writeJSONPath(template, b.Bytes())
	}
	return p.writeJSON(compact, b.Bytes())
}

func (p *program) writeJSON(compact bool, text []byte) error {
	text = bytes.TrimSpace(text)
	if !compact {
		var b bytes.Buffer
		if err := json.Indent(&b, text, "", "  "); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		text = b.Bytes()
	}
	_, err := p.out.Write(append(text, '\n'))
	return err
}

func (p *program) writeYAML(n *yaml.Node) error {
	e := yaml.NewEncoder(p.out)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	return e.Close()
}

// blockStyle takes out JSON's braces and quotes.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// node returns an object with its status, as YAML nodes for people or for programs. When it is applied again, its status is ignored.
func (p *program) node(o *api.ObjectIntent, people bool) (*yaml.Node, error) {
	i := o.GetIntent()
	known, err := p.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the agent sent an object that this program cannot decode: %w", err)
	}
	known.Empty = i.GetEmpty()
	n, err := p.registry.Node(known, people)
	if err != nil {
		return nil, err
	}
	pairs := []any{"state", text(stateText(o.GetStatus().GetState()))}
	if m := o.GetStatus().GetMessage(); m != "" {
		pairs = append(pairs, "message", text(m))
	}
	if since := o.GetStatus().GetSince(); since != 0 {
		pairs = append(pairs, "since", text(time.Unix(0, since).UTC().Format(time.RFC3339)))
	}
	if o.GetOwner() != "" {
		pairs = append(pairs, "owner", text(o.GetOwner()))
	}
	if all := o.GetOwners(); len(all) > 1 || len(all) == 1 && len(all[0].GetFields()) > 0 {
		pairs = append(pairs, "owners", ownersNode(all))
	}
	if s := o.GetStatus(); s.GetGeneration() != 0 {
		pairs = append(pairs, "generation", integer(s.GetGeneration()), "observedGeneration", integer(s.GetObservedGeneration()),
			"revision", integer(s.GetRevision()))
	}
	if all := o.GetStatus().GetConditions(); len(all) > 0 {
		conditions := &yaml.Node{Kind: yaml.SequenceNode}
		for _, c := range all {
			one := []any{"type", text(c.GetType()), "status", text(holds(c)), "reason", text(c.GetReason())}
			if c.GetMessage() != "" {
				one = append(one, "message", text(c.GetMessage()))
			}
			if c.GetTime() != 0 {
				one = append(one, "lastTransitionTime", text(moment(c.GetTime())))
			}
			conditions.Content = append(conditions.Content, object.Mapping(one...))
		}
		pairs = append(pairs, "conditions", conditions)
	}
	n.Content = append(n.Content, object.Mapping("status", object.Mapping(pairs...)).Content...)
	return n, nil
}

func ownersNode(all []*api.Ownership) *yaml.Node {
	owners := &yaml.Node{Kind: yaml.SequenceNode}
	for _, o := range all {
		one := object.Mapping("owner", text(o.GetOwner()), "priority", integer(o.GetPriority()), "revision", integer(o.GetRevision()))
		if len(o.GetFields()) > 0 {
			fields := &yaml.Node{Kind: yaml.SequenceNode}
			for _, f := range o.GetFields() {
				pairs := []any{"field", text(f.GetField()), "value", text(f.GetValue())}
				if f.GetOverridden() {
					pairs = append(pairs, "overridden", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
				}
				fields.Content = append(fields.Content, object.Mapping(pairs...))
			}
			one.Content = append(one.Content, object.Mapping("fields", fields).Content...)
		}
		owners.Content = append(owners.Content, one)
	}
	return owners
}

// holds is a condition's status as Kubernetes writes it.
func holds(c *api.Condition) string {
	if c.GetHolds() {
		return "True"
	}
	if c.GetUnknown() {
		return "Unknown"
	}
	return "False"
}

func integer[N int32 | uint64](n N) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(n)}
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func stateText(s api.State) string { return strings.ToLower(s.String()) }
