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
	"sluice.dev/sluice/agent/object"
)

func (p *program) describeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "describe KIND NAME",
		Short: "Show one object with its status, what it needs, and its counters",
		Long: `Show one object: what it says, how it stands with it and why, what it needs and what needs it, and, for ports, interfaces
and sessions, their counters and drops.`,
		Example: `  sluice describe session alice
  sluice describe if/core
  sluice describe session alice -o json | jq .counters.up.packets`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeNames(1),
	}
	output := outputFlag(c, "table", "json", "yaml")
	c.RunE = func(c *cobra.Command, arguments []string) error {
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
		if p.at == "" && len(d.GetDataplanes()) == 1 {
			// Nobody needs to say where an object is that is in one alone.
			p.at = d.GetDataplanes()[0]
		}
		if *output != "table" {
			return p.describeAs(c.Context(), client, d, *output)
		}
		return p.describe(c.Context(), client, d)
	}
	return c
}

// describeAs writes the object as get does, and beside it what describe adds.
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
	counted, err := p.counted(ctx, client, d.GetObject().GetIntent().GetKind(), d.GetObject().GetIntent().GetName())
	switch {
	case err != nil:
		n.Content = append(n.Content, object.Mapping("countersUnknown", text(p.explain(err))).Content...)
	case counted != nil:
		counters := &yaml.Node{Kind: yaml.MappingNode}
		for _, c := range counted.counters {
			one := object.Mapping("packets", integer(c.packets))
			if c.inBytes {
				one = object.Mapping("packets", integer(c.packets), "bytes", integer(c.bytes))
			}
			counters.Content = append(counters.Content, object.Mapping(c.name, one).Content...)
		}
		n.Content = append(n.Content, object.Mapping("counters", counters).Content...)
		if len(counted.queues) > 0 {
			queues := &yaml.Node{Kind: yaml.SequenceNode}
			for _, q := range counted.queues {
				queues.Content = append(queues.Content, object.Mapping("way", text(way(q)), "class", text(q.GetClass()),
					"sent", integer(q.GetSentPackets()), "dropped", integer(q.GetDroppedPackets()), "queued", integer(uint64(q.GetQueuedPackets()))))
			}
			n.Content = append(n.Content, object.Mapping("queues", queues).Content...)
		}
		if counted.drops != nil {
			drops := &yaml.Node{Kind: yaml.MappingNode}
			for _, drop := range counted.drops.GetDrops() {
				drops.Content = append(drops.Content, object.Mapping(drop.GetReason(), integer(drop.GetPackets())).Content...)
			}
			n.Content = append(n.Content, object.Mapping("drops", drops).Content...)
		}
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
	if why := whyOf(s); why != "" {
		fmt.Fprintf(&b, "  why       %s\n", why)
	}
	fmt.Fprintf(&b, "  owner     %s\n  labels    %s\n", orDash(ownersText(o)), orDash(labelsText(i.GetLabels())))
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

// counted is what the data plane counts for an object.
type counted struct {
	about    string
	counters []counter
	// Of a session that has them.
	queues []*api.QueueCounters
	// Nil: drops are not counted for the kind.
	drops *api.DropCountersList
}

type counter struct {
	// As a program calls it, and a person.
	name, words    string
	packets, bytes uint64
	// Bytes are counted, too.
	inBytes bool
}

// counted knows the kinds that the data plane counts for; nil: it does not, or does not know the object.
func (p *program) counted(ctx context.Context, client api.AgentClient, kind, name string) (*counted, error) {
	var found counted
	var drops *api.DropCountersQuery
	both := func(name, words string, packets, bytes uint64) {
		found.counters = append(found.counters, counter{name, words, packets, bytes, true})
	}
	only := func(name, words string, packets uint64) {
		found.counters = append(found.counters, counter{name: name, words: words, packets: packets})
	}
	switch kind {
	case "Session":
		list, err := client.GetSessionCounters(ctx, &api.SessionCountersQuery{Sessions: []string{name}})
		if err != nil {
			return nil, err
		}
		for _, c := range list.GetSessions() {
			both("up", "up", c.GetUpPackets(), c.GetUpBytes())
			both("down", "down", c.GetDownPackets(), c.GetDownBytes())
			only("dropped", "dropped", c.GetDrops())
			if c.GetMac() != "" {
				found.about = "subscriber at " + c.GetMac()
			}
		}
		drops = &api.DropCountersQuery{Session: name}
		if len(found.counters) > 0 {
			queues, err := client.GetQueueCounters(ctx, &api.QueueCountersQuery{Session: name})
			if err != nil {
				return nil, err
			}
			found.queues = queues.GetQueues()
		}
	case "QosScheduler":
		list, err := client.GetSchedulerCounters(ctx, &api.SchedulerCountersQuery{})
		if err != nil {
			return nil, err
		}
		for _, c := range list.GetSchedulers() {
			if c.GetScheduler() != name {
				continue
			}
			both("sent", "sent", c.GetSentPackets(), c.GetSentBytes())
			only("queued", "queued now", uint64(c.GetQueuedPackets()))
			only("queueFull", "dropped, queue full", c.GetFullPackets())
			only("wred", "dropped by WRED", c.GetWredPackets())
			only("codel", "dropped by CoDel", c.GetCodelPackets())
			only("flushed", "dropped, session gone", c.GetFlushedPackets())
		}
	case "QosGroup":
		list, err := client.GetSchedulerCounters(ctx, &api.SchedulerCountersQuery{Group: name})
		if status.Code(err) == codes.InvalidArgument { // the data plane does not have it
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if c := list.GetGroup(); c != nil {
			both("sent", "sent", c.GetSentPackets(), c.GetSentBytes())
			both("dropped", "dropped", c.GetDroppedPackets(), c.GetDroppedBytes())
		}
	case "Interface":
		list, err := client.GetInterfaceCounters(ctx, &api.InterfaceCountersQuery{})
		if err != nil {
			return nil, err
		}
		for _, c := range list.GetInterfaces() {
			if c.GetInterface() == name {
				both("received", "received", c.GetRxPackets(), c.GetRxBytes())
				both("sent", "sent", c.GetTxPackets(), c.GetTxBytes())
			}
		}
		drops = &api.DropCountersQuery{Interface: name}
	case "Port":
		list, err := client.GetPortCounters(ctx, &api.PortCountersQuery{})
		if err != nil {
			return nil, err
		}
		for _, c := range list.GetPorts() {
			if c.GetPort() != name {
				continue
			}
			both("received", "received", c.GetRxPackets(), c.GetRxBytes())
			both("sent", "sent", c.GetTxPackets(), c.GetTxBytes())
			only("missed", "missed by the device", c.GetRxMissed())
			only("damaged", "received damaged", c.GetRxErrors())
			only("noBuffer", "no buffer", c.GetRxNoBuffer())
			only("notSent", "not sent", c.GetTxErrors())
			found.about = "link " + linkText(c) + ", at " + orDash(c.GetMac())
		}
	}
	if len(found.counters) == 0 {
		return nil, nil
	}
	if drops == nil {
		return &found, nil
	}
	var err error
	if found.drops, err = client.GetDropCounters(ctx, drops); err != nil {
		return nil, err
	}
	sortDrops(found.drops)
	return &found, nil
}

func (p *program) describeCounters(ctx context.Context, client api.AgentClient, b *strings.Builder, kind, name string) error {
	counted, err := p.counted(ctx, client, kind, name)
	if err != nil || counted == nil {
		return err
	}
	b.WriteString("\nCounters\n")
	if counted.about != "" {
		fmt.Fprintf(b, "  %s\n", counted.about)
	}
	t := table{indent: "  ", heading: []string{"", ">PACKETS", ">BYTES"}}
	for _, c := range counted.counters {
		bytes := ""
		if c.inBytes {
			bytes = exact(c.bytes)
		}
		t.add(c.words, exact(c.packets), bytes)
	}
	if err := t.write(b); err != nil {
		return err
	}
	if len(counted.queues) > 0 {
		b.WriteString("\nQueues\n")
		t := table{indent: "  ", heading: []string{"WAY", "CLASS", ">SENT", ">DROPPED", ">QUEUED"}}
		for _, q := range counted.queues {
			t.add(way(q), q.GetClass(), exact(q.GetSentPackets()), exact(q.GetDroppedPackets()), exact(uint64(q.GetQueuedPackets())))
		}
		if err := t.write(b); err != nil {
			return err
		}
	}
	if len(counted.drops.GetDrops()) == 0 {
		return nil
	}
	b.WriteString("\nDrops\n")
	return dropTable("  ", counted.drops).write(b)
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

// describeOwners shows which owner says what of which field, if there are several.
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

func way(q *api.QueueCounters) string {
	if q.GetUp() {
		return "up"
	}
	return "down"
}

func linkText(c *api.PortCounters) string {
	if c.GetLinkUp() {
		return "up"
	}
	return "down"
}
