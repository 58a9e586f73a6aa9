package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
)

func (p *program) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one object with its status, what it needs, and its counters",
		Long: `Show one object: what it says, how it stands with it and why, what it needs and what needs it, and, for ports, interfaces
and sessions, their counters and drops.`,
		Example: `  sluice describe session alice
  sluice describe if/core`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeNames(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			names, err := p.names(arguments)
			if err != nil {
				return err
			}
			if len(names) != 1 {
				return fmt.Errorf("say which: sluice describe %s NAME", arguments[0])
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
			return p.describe(c.Context(), client, d)
		},
	}
}

func (p *program) describe(ctx context.Context, client api.AgentClient, d *api.Description) error {
	o := d.GetObject()
	i, s := o.GetIntent(), o.GetStatus()
	known, err := p.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return fmt.Errorf("the agent told of an object that this program cannot read: %w", err)
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
	if s.GetMessage() != "" {
		fmt.Fprintf(&b, "  why       %s\n", s.GetMessage())
	}
	fmt.Fprintf(&b, "  owner     %s\n  labels    %s\n", orDash(o.GetOwner()), orDash(labelsText(i.GetLabels())))
	for _, other := range o.GetOwners()[min(1, len(o.GetOwners())):] {
		fmt.Fprintf(&b, "  also      %s says something of it since revision %d, with priority %d\n", other.GetOwner(), other.GetRevision(), other.GetPriority())
	}
	if s.GetGeneration() != 0 {
		fmt.Fprintf(&b, "  version   %d since revision %d; the data plane has %s\n", s.GetGeneration(), s.GetRevision(), observed(s))
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
	if err := p.describeCounters(ctx, client, &b, i.GetKind(), i.GetName()); err != nil {
		fmt.Fprintf(&b, "\nCounters\n  not known: %s\n", p.explain(err))
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

// describeCounters knows the kinds that the data plane counts for.
func (p *program) describeCounters(ctx context.Context, client api.AgentClient, b *strings.Builder, kind, name string) error {
	t := table{indent: "  ", heading: []string{"", ">PACKETS", ">BYTES"}}
	var drops *api.DropCountersQuery
	about := ""
	switch kind {
	case "Session":
		list, err := client.GetSessionCounters(ctx, &api.SessionCountersQuery{Sessions: []string{name}})
		if err != nil {
			return err
		}
		for _, c := range list.GetSessions() {
			t.add("up", count(c.GetUpPackets()), bytesText(c.GetUpBytes()))
			t.add("down", count(c.GetDownPackets()), bytesText(c.GetDownBytes()))
			t.add("dropped", count(c.GetDrops()), "")
			if c.GetMac() != "" {
				about = "subscriber at " + c.GetMac()
			}
		}
		drops = &api.DropCountersQuery{Session: name}
	case "Interface":
		list, err := client.GetInterfaceCounters(ctx, &api.InterfaceCountersQuery{})
		if err != nil {
			return err
		}
		for _, c := range list.GetInterfaces() {
			if c.GetInterface() == name {
				t.add("received", count(c.GetRxPackets()), bytesText(c.GetRxBytes()))
				t.add("sent", count(c.GetTxPackets()), bytesText(c.GetTxBytes()))
			}
		}
		drops = &api.DropCountersQuery{Interface: name}
	case "Port":
		list, err := client.GetPortCounters(ctx, &api.PortCountersQuery{})
		if err != nil {
			return err
		}
		for _, c := range list.GetPorts() {
			if c.GetPort() != name {
				continue
			}
			t.add("received", count(c.GetRxPackets()), bytesText(c.GetRxBytes()))
			t.add("sent", count(c.GetTxPackets()), bytesText(c.GetTxBytes()))
			t.add("missed by the device", count(c.GetRxMissed()), "")
			t.add("received damaged", count(c.GetRxErrors()), "")
			t.add("no buffer", count(c.GetRxNoBuffer()), "")
			t.add("not sent", count(c.GetTxErrors()), "")
			about = "link " + linkText(c) + ", at " + orDash(c.GetMac())
		}
	default:
		return nil
	}
	if len(t.rows) == 0 {
		return nil
	}
	b.WriteString("\nCounters\n")
	if about != "" {
		fmt.Fprintf(b, "  %s\n", about)
	}
	if err := t.write(b); err != nil {
		return err
	}
	if drops == nil {
		return nil
	}
	list, err := client.GetDropCounters(ctx, drops)
	if err != nil || len(list.GetDrops()) == 0 {
		return err
	}
	b.WriteString("\nDrops\n")
	return dropTable("  ", list).write(b)
}

func linkText(c *api.PortCounters) string {
	if c.GetLinkUp() {
		return "up"
	}
	return "down"
}
