// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) describeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one object with its status, references and counters",
		Long: `Show one object: its fields, its state with the reason, its references in both directions, and its operational state, such as
counters and drops.`,
		Example: `  sluice describe session alice
  sluice describe if/core
  sluice describe session alice -o json | jq .counters.upPackets`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeNames(1),
	}
	output := outputFlag(c, "table", "json", "yaml", jsonPathFormat)
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if st := p.registry.Element(strings.ToLower(arguments[0])); st != nil {
			return p.describeElement(c.Context(), st, arguments, *output)
		}
		names, err := p.names(arguments)
		if err != nil {
			return err
		}
		if len(names) != 1 {
			return fmt.Errorf("the name is missing: sluice describe %s NAME", arguments[0])
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		d, err := client.Describe(c.Context(), names[0])
		if builtin := p.builtin(names[0].GetKind(), names[0].GetName()); builtin != nil && status.Code(err) == codes.NotFound {
			d, err = &api.Description{Object: builtin}, nil
		}
		if err != nil {
			return err
		}
		if p.at == "" && len(d.GetDataplanes()) == 1 {
			// With one data plane, the place of an object is known.
			p.at = d.GetDataplanes()[0]
		}
		if *output != "table" {
			return p.describeAs(c.Context(), client, d, *output)
		}
		return p.describe(c.Context(), client, d)
	}
	return c
}

// describeElement shows an element of a state that is no object, by its name.
func (p *program) describeElement(ctx context.Context, st *object.State, arguments []string, output string) error {
	element := st.Notes.GetElement()
	if len(arguments) < 2 {
		return fmt.Errorf("the name is missing: sluice describe %s NAME", element)
	}
	query := st.Query.New().Interface()
	if err := st.Narrow(query, "name", arguments[1]); err != nil {
		return err
	}
	client, err := p.client()
	if err != nil {
		return err
	}
	reply, err := readAll(ctx, client, st, query)
	if err != nil {
		return err
	}
	rows := st.Rows()
	if rows == nil || reply.Get(rows).List().Len() == 0 {
		return fmt.Errorf("there is no %s %s; see `sluice %s`", element, arguments[1], st.Notes.GetCommand())
	}
	if output == "table" {
		output = "yaml"
	}
	row := reply.Get(rows).List().Get(0).Message()
	return p.write(output, false, json.RawMessage(object.JSON(stateNode(row, without(row)...))))
}

// without returns the lists and times that an element does not have.
func without(m protoreflect.Message) (all []protoreflect.FieldDescriptor) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !m.Has(f) && (f.IsList() || object.Notes(f).GetUnit() == api.Unit_UNIX_NANOSECONDS) {
			all = append(all, f)
		}
	}
	return all
}

// describeAs writes the object as get does, and adds describe's fields.
func (p *program) describeAs(ctx context.Context, client api.AgentClient, d *api.Description, output string) error {
	n, err := p.node(d.GetObject(), output == "yaml")
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name      string
		relations []*api.Relation
	}{{"needs", d.GetNeeds()}, {"neededBy", d.GetNeededBy()}} {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range part.relations {
			list.Content = append(list.Content, object.Mapping("kind", text(r.GetKind()), "name", text(r.GetName()), "field", text(r.GetField()),
				"state", text(stateText(r.GetStatus().GetState()))))
		}
		n.Content = append(n.Content, object.Mapping(part.name, list).Content...)
	}
	states, err := p.statesOf(ctx, client, keyOf(d.GetObject()))
	if err != nil {
		n.Content = append(n.Content, object.Mapping("countersUnknown", text(p.explain(err))).Content...)
	}
	for _, s := range states {
		n.Content = append(n.Content, s.fields()...)
	}
	if template, is := strings.CutPrefix(output, jsonPathIs); is {
		return p.writeJSONPath(template, object.JSON(n))
	}
	if output == "json" {
		return p.writeJSON(false, object.JSON(n))
	}
	return p.writeYAML(n)
}

func (p *program) describe(ctx context.Context, client api.AgentClient, d *api.Description) error {
	o := d.GetObject()
	i, s := o.GetIntent(), o.GetStatus()
	known, err := p.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return fmt.Errorf("the agent sent an object that this program cannot decode: %w", err)
	}
	n, err := p.registry.Spec(known)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", i.GetKind(), i.GetName())
	fmt.Fprintf(&b, "  state     %s", stateText(s.GetState()))
	if s.GetSince() != 0 {
		fmt.Fprintf(&b, " for %s, since %s", p.since(s), time.Unix(0, s.GetSince()).UTC().Format(time.RFC3339))
	}
	b.WriteString("\n")
	if why := reasonOf(s); why != "" {
		fmt.Fprintf(&b, "  why       %s\n", why)
	}
	fmt.Fprintf(&b, "  owner     %s\n  labels    %s\n", orDash(ownersText(o)), orDash(labelsText(i.GetLabels())))
	if s.GetGeneration() != 0 {
		has := "has"
		if s.GetState() == api.State_UNKNOWN {
			has = "had"
		}
		who := fmt.Sprintf("the data plane %s %s", has, observed(s))
		if k := p.registry.Kind(i.GetKind()); k != nil && k.Plane == api.Plane_AGENT {
			who = "services of the agent use it, and no data plane has it"
		}
		fmt.Fprintf(&b, "  version   %d since revision %d; %s\n", s.GetGeneration(), s.GetRevision(), who)
	}
	if len(s.GetConditions()) > 0 {
		b.WriteString("\nConditions\n")
		t := table{indent: "  ", heading: []string{"TYPE", "HOLDS", "REASON", "SINCE", "WHY"}}
		for _, c := range s.GetConditions() {
			since := "-"
			if c.GetTime() != 0 {
				since = moment(c.GetTime())
			}
			t.add(c.GetType(), strings.ToLower(holds(c)), c.GetReason(), since, c.GetMessage())
		}
		if err := t.write(&b); err != nil {
			return err
		}
	}
	if err := describeOwners(o.GetOwners(), &b); err != nil {
		return err
	}
	if len(n.Content) > 0 {
		var spec strings.Builder
		e := yaml.NewEncoder(&spec)
		e.SetIndent(2)
		if err := e.Encode(n); err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		b.WriteString("\nSpec\n  " + strings.ReplaceAll(strings.TrimSpace(spec.String()), "\n", "\n  ") + "\n")
	}
	for _, part := range []struct {
		title     string
		relations []*api.Relation
	}{{"Needs", d.GetNeeds()}, {"Needed by", d.GetNeededBy()}} {
		if len(part.relations) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", part.title)
		t := table{indent: "  ", heading: []string{"OBJECT", "FIELD", "STATE", "WHY"}}
		for at, r := range part.relations {
			const most = 20
			if at == most {
				t.add(fmt.Sprintf("... and %d more", len(part.relations)-most), "", "", "")
				break
			}
			state := stateText(r.GetStatus().GetState())
			if r.GetStatus().GetState() == api.State_GONE {
				state = "not there"
			}
			t.add(r.GetKind()+"/"+r.GetName(), r.GetField(), state, r.GetStatus().GetMessage())
		}
		if err := t.write(&b); err != nil {
			return err
		}
	}
	if err := p.describeStates(ctx, client, &b, known); err != nil {
		fmt.Fprintf(&b, "\nCounters\n  unknown: %s\n", p.explain(err))
	}
	_, err = io.WriteString(p.out, b.String())
	return err
}

func observed(s *api.Status) string {
	switch s.GetObservedGeneration() {
	case 0:
		return "none of ours"
	case s.GetGeneration():
		return "it"
	}
	return fmt.Sprintf("version %d", s.GetObservedGeneration())
}

func ownersText(o *api.ObjectIntent) string {
	if len(o.GetOwners()) < 2 {
		return o.GetOwner()
	}
	names := make([]string, len(o.GetOwners()))
	for i, one := range o.GetOwners() {
		names[i] = one.GetOwner()
	}
	return strings.Join(names, ", ")
}

// describeOwners shows the fields of each owner, if there are several.
func describeOwners(owners []*api.Ownership, b *strings.Builder) error {
	if len(owners) < 2 {
		return nil
	}
	b.WriteString("\nOwners\n")
	t := table{indent: "  ", heading: []string{"FIELD", "VALUE", "OWNER", "PRIORITY", "REVISION", "COUNTS"}}
	for _, o := range owners {
		for _, f := range o.GetFields() {
			counts := "yes"
			if f.GetOverridden() {
				counts = "no"
			}
			t.add(f.GetField(), f.GetValue(), o.GetOwner(), fmt.Sprint(o.GetPriority()), fmt.Sprint(o.GetRevision()), counts)
		}
	}
	return t.write(b)
}
