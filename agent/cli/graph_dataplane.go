// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

func (p *program) graphDataplaneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dataplane [NODE]...",
		Short: "Show the packet graph of the data plane: where packets of each node go next",
		Long: `Show the packet graph of the data plane, as text or in the language of Graphviz: the nodes, and where the packets of each node go next.
With arguments: only these nodes. Packets of every node may also go to the node drop, which is not shown.

"next step" is the next step of a packet's chain. A route, an interface or a session chooses the chain, so any step can follow: the column
STEP marks these nodes. PACKETS counts since the start of the data plane.`,
		Example: `  sluice graph dataplane
  sluice graph dataplane ether-input ip4-input
  sluice graph dataplane -o dot | dot -Tsvg > dataplane.svg`,
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return p.nodeNames(c, ""), cobra.ShellCompDirectiveNoFileComp
		},
	}
	output := outputFlag(c, "text", "dot")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		client, err := p.client()
		if err != nil {
			return err
		}
		list, err := read[*api.NodeCountersList](c.Context(), client, &api.NodeCountersQuery{Graph: true})
		if err != nil {
			return err
		}
		nodes := list.GetNodes()
		slices.SortFunc(nodes, func(a, b *api.NodeCounters) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
		if len(arguments) > 0 {
			if nodes, err = nodesNamed(nodes, arguments); err != nil {
				return err
			}
		}
		if *output == "dot" {
			_, err = fmt.Fprint(p.out, packetGraphDot(nodes))
			return err
		}
		t := table{heading: []string{"NODE", ">PACKETS", "STEP", "NEXT"}}
		for _, n := range nodes {
			next := slices.Sorted(slices.Values(n.GetNext()))
			if n.GetTakesSteps() {
				next = append(next, "next step")
			}
			step := ""
			if n.GetIsStep() {
				step = "yes"
			}
			t.add(n.GetNode(), strconv.FormatUint(n.GetPackets(), 10), step, strings.Join(next, ", "))
		}
		return t.write(p.out)
	}
	return c
}

func nodesNamed(nodes []*api.NodeCounters, names []string) ([]*api.NodeCounters, error) {
	var some []*api.NodeCounters
	for _, name := range names {
		i := slices.IndexFunc(nodes, func(n *api.NodeCounters) bool { return n.GetNode() == name })
		if i < 0 {
			return nil, fmt.Errorf("the data plane has no node %s; sluice graph dataplane lists all", name)
		}
		some = append(some, nodes[i])
	}
	return some, nil
}

// packetGraphDot draws chains as one box that steps lead into and out of.
func packetGraphDot(nodes []*api.NodeCounters) string {
	const chain = "steps of the chain"
	var b strings.Builder
	b.WriteString("digraph dataplane {\n\tnode [shape=box, fontname=\"sans-serif\"];\n")
	fmt.Fprintf(&b, "\t%q [shape=ellipse, style=dashed];\n", chain)
	for _, n := range nodes {
		fmt.Fprintf(&b, "\t%q;\n", n.GetNode())
		for _, next := range slices.Sorted(slices.Values(n.GetNext())) {
			fmt.Fprintf(&b, "\t%q -> %q;\n", n.GetNode(), next)
		}
		if n.GetTakesSteps() {
			fmt.Fprintf(&b, "\t%q -> %q [style=dashed];\n", n.GetNode(), chain)
		}
		if n.GetIsStep() {
			fmt.Fprintf(&b, "\t%q -> %q [style=dashed];\n", chain, n.GetNode())
		}
	}
	b.WriteString("}\n")
	return b.String()
}
