// SPDX-License-Identifier: Apache-2.0

// References between objects, and their states.
package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) graphCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "graph [KIND | KIND/NAME]...",
		Short: "Show references between objects, and pending or failed objects",
		Long: `Show the references between objects, as text, as an SVG picture, or in the language of Graphviz. With arguments: only these
objects, and their references in both directions. Objects of a kind with the same references, to which no object refers, are
shown as one, unless --every is given.`,
		Example: `  sluice graph
  sluice graph session/alice
  sluice graph ports -o svg > ports.svg
  sluice graph -o dot | dot -Tpdf > graph.pdf`,
		ValidArgsFunction: p.completeNames(-1),
	}
	c.AddCommand(p.graphDataplaneCommand())
	output := outputFlag(c, "text", "dot", "svg")
	every := c.Flags().Bool("every", false, "show each object by itself, also if there are many")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		client, err := p.client()
		if err != nil {
			return err
		}
		found, err := p.all(c.Context(), client, &api.ObjectsQuery{})
		if err != nil {
			return err
		}
		g, err := p.graphOf(found)
		if err != nil {
			return err
		}
		if len(arguments) > 0 {
			if err := g.keep(p.registry, arguments); err != nil {
				return err
			}
		}
		if !*every {
			g.fold()
		}
		if len(g.nodes) == 0 {
			fmt.Fprintln(p.err, "No objects.")
		}
		var text string
		switch *output {
		case "dot":
			text = g.dot()
		case "svg":
			if most := 3000; len(g.nodes) > most {
				return fmt.Errorf("%d objects are too many for a picture; name some: sluice graph KIND/NAME", len(g.nodes))
			}
			text = g.svg()
		default:
			text = g.text()
		}
		_, err = fmt.Fprint(p.out, text)
		return err
	}
	return c
}

// graph holds objects and their references.
type graph struct {
	nodes map[object.Key]*node
}

type node struct {
	key            object.Key
	state, message string
	needs, users   []*node
	// The number of folded objects.
	more int
	// Where a picture has it.
	layer    int
	x, y     int
	position float64
}

// In addition to the states of objects.
const notThere = "not there"

func (n *node) label() string {
	if n.more > 0 {
		return fmt.Sprintf("%s %s and %d more", n.key.Kind, n.key.Name, n.more)
	}
	return n.key.Kind + " " + n.key.Name
}

func (p *program) graphOf(found []*api.ObjectIntent) (*graph, error) {
	g := &graph{nodes: make(map[object.Key]*node, len(found))}
	for _, o := range found {
		k := object.Key{Kind: o.GetIntent().GetKind(), Name: o.GetIntent().GetName()}
		g.nodes[k] = &node{key: k, state: stateText(o.GetStatus().GetState()), message: o.GetStatus().GetMessage()}
	}
	for _, o := range found {
		i := o.GetIntent()
		known, err := p.registry.New(i.GetKind(), i.GetName(), nil, i.GetSpec())
		if err != nil {
			return nil, fmt.Errorf("the agent sent an object that this program cannot decode: %w", err)
		}
		n := g.nodes[known.Key()]
		for _, ref := range p.registry.References(known) {
			if ref.Builtin {
				continue
			}
			to := g.nodes[ref.To]
			if to == nil {
				to = &node{key: ref.To, state: notThere}
				g.nodes[ref.To] = to
			}
			if !slices.Contains(n.needs, to) {
				n.needs = append(n.needs, to)
				to.users = append(to.users, n)
			}
		}
	}
	return g, nil
}

// keep removes all but the named objects, the objects that they need, and the objects that need them.
func (g *graph) keep(registry *object.Registry, arguments []string) error {
	needed, using := map[*node]bool{}, map[*node]bool{}
	var below, above func(n *node)
	below = func(n *node) {
		if !needed[n] {
			needed[n] = true
			for _, other := range n.needs {
				below(other)
			}
		}
	}
	above = func(n *node) {
		if !using[n] {
			using[n] = true
			for _, user := range n.users {
				above(user)
			}
		}
	}
	kinds, named := map[string]bool{}, map[*node]bool{}
	for _, argument := range arguments {
		word, name, one := strings.Cut(argument, "/")
		kind, err := registry.Lookup(word)
		if err != nil {
			return err
		}
		if !one {
			kinds[kind.Name] = true
			continue
		}
		n := g.nodes[object.Key{Kind: kind.Name, Name: name}]
		if n == nil {
			return fmt.Errorf("there is no %s %s", kind.Name, name)
		}
		named[n] = true
	}
	for _, n := range g.nodes {
		if kinds[n.key.Kind] {
			named[n] = true
		}
	}
	for n := range named {
		above(n)
		below(n)
	}
	g.drop(func(n *node) bool { return !needed[n] && !using[n] })
	return nil
}

func (g *graph) drop(which func(*node) bool) {
	gone := map[*node]bool{}
	for k, n := range g.nodes {
		if which(n) {
			gone[n] = true
			delete(g.nodes, k)
		}
	}
	for _, n := range g.nodes {
		n.needs = slices.DeleteFunc(n.needs, func(other *node) bool { return gone[other] })
		n.users = slices.DeleteFunc(n.users, func(other *node) bool { return gone[other] })
	}
}

// No fewer than this are folded into one.
const foldFrom = 6

// fold joins objects of one kind without users that need the same objects and have the same state.
func (g *graph) fold() {
	alike := map[string][]*node{}
	for _, n := range g.sorted() {
		if len(n.users) > 0 {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s\x00%s\x00%s", n.key.Kind, n.state, n.message)
		for _, k := range keysOf(n.needs) {
			b.WriteString("\x00" + k.String())
		}
		alike[b.String()] = append(alike[b.String()], n)
	}
	folded := map[*node]bool{}
	for _, all := range alike {
		if len(all) >= foldFrom {
			all[0].more = len(all) - 1
			for _, n := range all[1:] {
				folded[n] = true
			}
		}
	}
	g.drop(func(n *node) bool { return folded[n] })
}

func keysOf(nodes []*node) []object.Key {
	keys := make([]object.Key, len(nodes))
	for i, n := range nodes {
		keys[i] = n.key
	}
	slices.SortFunc(keys, object.Key.Compare)
	return keys
}

func (g *graph) sorted() []*node {
	return slices.SortedFunc(maps.Values(g.nodes), func(a, b *node) int { return a.key.Compare(b.key) })
}

// text is a tree for each object without users: below it, the objects that it needs.
func (g *graph) text() string {
	var b strings.Builder
	written := map[*node]bool{}
	var write func(n *node, first, rest string)
	write = func(n *node, first, rest string) {
		fmt.Fprintf(&b, "%s%s", first, n.label())
		if n.state != stateText(api.State_APPLIED) {
			b.WriteString("   " + strings.ToUpper(n.state))
			if n.message != "" {
				b.WriteString(": " + n.message)
			}
		}
		if written[n] && len(n.needs) > 0 {
			b.WriteString("   (as above)\n")
			return
		}
		written[n] = true
		b.WriteString("\n")
		for i, needed := range n.needs {
			if i < len(n.needs)-1 {
				write(needed, rest+"├─ ", rest+"│  ")
			} else {
				write(needed, rest+"└─ ", rest+"   ")
			}
		}
	}
	for _, n := range g.sorted() {
		if len(n.users) == 0 {
			write(n, "", "")
		}
	}
	return b.String()
}

// Of each state: of the line around an object, and of the ground in it.
var colors = map[string][2]string{
	stateText(api.State_APPLIED): {"#2e7d32", "#e8f5e9"}, stateText(api.State_PENDING): {"#b26a00", "#fff8e1"},
	stateText(api.State_UNKNOWN): {"#b26a00", "#fff8e1"},
	stateText(api.State_FAILED):  {"#c62828", "#ffebee"}, stateText(api.State_DELETING): {"#616161", "#eeeeee"}, notThere: {"#616161", "#ffffff"},
}

func (g *graph) dot() string {
	var b strings.Builder
	b.WriteString("digraph sluice {\n  rankdir=BT;\n  node [shape=box, style=\"filled,rounded\", fontname=\"sans-serif\"];\n")
	for _, n := range g.sorted() {
		c := colors[n.state]
		label := n.label()
		if n.state != stateText(api.State_APPLIED) {
			label += "\n" + n.state
		}
		fmt.Fprintf(&b, "  %s [label=%s, color=%q, fillcolor=%q, tooltip=%s];\n", quoted(n.key.String()), quoted(label), c[0], c[1], quoted(n.message))
	}
	for _, n := range g.sorted() {
		for _, needed := range n.needs {
			fmt.Fprintf(&b, "  %s -> %s;\n", quoted(n.key.String()), quoted(needed.key.String()))
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// quoted is a string as Graphviz reads it.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// layers puts objects without users on top, and each object below all that need it. Neighbors in a layer are ordered
// to minimize crossings: each is near the middle of the objects that it is linked to.
func (g *graph) layers() [][]*node {
	var depth func(n *node) int
	known := map[*node]bool{}
	depth = func(n *node) int {
		if known[n] {
			return n.layer
		}
		known[n] = true // before its users: a circle must not be endless
		for _, user := range n.users {
			n.layer = max(n.layer, depth(user)+1)
		}
		return n.layer
	}
	var layers [][]*node
	for _, n := range g.sorted() {
		at := depth(n)
		for len(layers) <= at {
			layers = append(layers, nil)
		}
		layers[at] = append(layers[at], n)
	}
	place := func(layer []*node) {
		for i, n := range layer {
			n.position = (float64(i) + 0.5) / float64(len(layer))
		}
	}
	for _, layer := range layers {
		place(layer)
	}
	for range 8 {
		for _, layer := range layers {
			for _, n := range layer {
				if joined := slices.Concat(n.needs, n.users); len(joined) > 0 {
					sum := 0.0
					for _, other := range joined {
						sum += other.position
					}
					n.position = sum / float64(len(joined))
				}
			}
			slices.SortStableFunc(layer, func(a, b *node) int { return cmp.Compare(a.position, b.position) })
			place(layer)
		}
	}
	return layers
}
