package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) getCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "get KIND[,KIND...]|all [NAME...]",
		Short: "Show objects in a table, or as JSON or YAML",
		Long: `Show objects and how it stands with them: "applied" when the data plane has them as wanted, "pending" while they wait, "failed"
when the data plane refused them (they are tried again), "deleting" while it still has what nobody wants, and "unknown" when
they were applied and the data plane is away since. A kind is called by its name, its plural or its short form.

YAML and JSON can be changed and applied again. In YAML, rates, sizes and times are as people write them (100M, 64KB, 10ms);
in JSON they are plain numbers of bit/s, bytes and nanoseconds.`,
		Example: `  sluice get sessions
  sluice get ports,interfaces -o wide
  sluice get session alice bob -o yaml
  sluice get sessions -l city=bonn,tier!=test
  sluice get all -o json | jq '.[] | select(.status.state != "applied")'
  sluice get sessions -w             # also while the agent is started again`,
		ValidArgsFunction: p.completeNames(-1),
		Args:              cobra.MinimumNArgs(1),
	}
	output := outputFlag(c, "table", "wide", "json", "yaml")
	selector := c.Flags().StringP("selector", "l", "", "only objects with these labels: a=b, a!=b, a, !a; commas between")
	watch := c.Flags().BoolP("watch", "w", false, "go on and show every change")
	owners := c.Flags().Bool("owners", false, "with -o yaml or json: which owner says what of which field, in status.owners")
	owner := c.Flags().String("owner", "", "only objects that this owner says something of")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		query := &api.ObjectsQuery{Names: arguments[1:], Selector: *selector, Owner: *owner, OwnedFields: *owners}
		if *owners && (*watch || *output != "yaml" && *output != "json") {
			return errors.New("--owners is for -o yaml or -o json, without -w")
		}
		if !strings.EqualFold(arguments[0], "all") {
			for _, word := range strings.Split(arguments[0], ",") {
				kind, err := p.registry.Lookup(word)
				if err != nil {
					return err
				}
				query.Kinds = append(query.Kinds, kind.Name)
			}
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		if *watch {
			return p.watch(c.Context(), client, query, *output)
		}
		l := &listing{program: p, query: query, output: *output, named: map[string]bool{}}
		if err := p.each(c.Context(), client, query, l.show); err != nil {
			return err
		}
		if err := l.end(); err != nil {
			return err
		}
		return p.missing(c.Context(), client, query, l.named)
	}
	return c
}

// each calls show with every object, in the order of their kinds and names, as pages come; and with the builtin objects that were asked for,
// by their kind or by name, and that nobody wrote down.
func (p *program) each(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, show func(*api.ObjectIntent) error) error {
	builtins := p.builtins(query)
	err := p.pages(ctx, client, query, func(page []*api.ObjectIntent) error {
		for _, o := range page {
			for len(builtins) > 0 && keyOf(builtins[0]).Compare(keyOf(o)) <= 0 {
				if keyOf(builtins[0]) != keyOf(o) {
					if err := show(builtins[0]); err != nil {
						return err
					}
				}
				builtins = builtins[1:]
			}
			if err := show(o); err != nil {
				return err
			}
		}
		return nil
	})
	for _, o := range builtins {
		if err == nil {
			err = show(o)
		}
	}
	return err
}

func keyOf(o *api.ObjectIntent) object.Key {
	return object.Key{Kind: o.GetIntent().GetKind(), Name: o.GetIntent().GetName()}
}

// pages gets every page, of which none is kept.
func (p *program) pages(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, show func([]*api.ObjectIntent) error) error {
	query.Limit = 1000
	return everyPage(func(page string) (string, error) {
		query.Page = page
		some, err := client.Get(ctx, query)
		for status.Code(err) == codes.ResourceExhausted && query.Limit > 1 {
			// Objects so large that one message does not hold that many.
			query.Limit /= 2
			some, err = client.Get(ctx, query)
		}
		if err != nil {
			return "", err
		}
		return some.GetNextPage(), show(some.GetObjects())
	})
}

// all gets every page.
func (p *program) all(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery) ([]*api.ObjectIntent, error) {
	var found []*api.ObjectIntent
	err := p.pages(ctx, client, query, func(page []*api.ObjectIntent) error {
		found = append(found, page...)
		return nil
	})
	return found, err
}

// builtin is an object that is always there, as long as nobody wrote it down; nil: it is none.
func (p *program) builtin(kind, name string) *api.ObjectIntent {
	k := p.registry.Kind(kind)
	if k == nil || !k.IsBuiltin(name) {
		return nil
	}
	return &api.ObjectIntent{Intent: &api.Intent{Kind: kind, Name: name}, Status: &api.Status{State: api.State_APPLIED}, Owner: "builtin"}
}

// builtins are the builtin objects that are asked for, in order.
func (p *program) builtins(query *api.ObjectsQuery) []*api.ObjectIntent {
	if query.GetSelector() != "" || query.GetOwner() != "" {
		return nil // they have no labels, and are nobody's
	}
	var all []*api.ObjectIntent
	for _, kind := range query.GetKinds() {
		for _, name := range p.registry.Kind(kind).Builtin {
			if len(query.GetNames()) == 0 || slices.Contains(query.GetNames(), name) {
				all = append(all, p.builtin(kind, name))
			}
		}
	}
	slices.SortFunc(all, func(a, b *api.ObjectIntent) int { return keyOf(a).Compare(keyOf(b)) })
	return slices.CompactFunc(all, func(a, b *api.ObjectIntent) bool { return keyOf(a) == keyOf(b) })
}

// absent says that nothing has a name and, if the agent is to be asked for it, what has one much like it.
func absent(ctx context.Context, client api.AgentClient, kind, name string, ask bool) string {
	if ask {
		if _, err := client.Describe(ctx, &api.ObjectName{Kind: kind, Name: name}); status.Code(err) == codes.NotFound {
			return status.Convert(err).Message()
		}
	}
	return fmt.Sprintf("there is no %s %s", kind, name)
}

// missing complains about names that nothing has.
func (p *program) missing(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, found map[string]bool) error {
	var missing []string
	for _, name := range query.GetNames() {
		if !found[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if len(missing) == 1 && len(query.GetKinds()) == 1 && query.GetSelector() == "" && query.GetOwner() == "" {
		return errors.New(absent(ctx, client, query.GetKinds()[0], missing[0], true))
	}
	kinds := "object"
	if len(query.GetKinds()) > 0 {
		kinds = strings.Join(query.GetKinds(), " or ")
	}
	return fmt.Errorf("there is no %s %s%s", kinds, strings.Join(missing, ", "), such(query))
}

// such says which objects are asked for, beside their kinds and names.
func such(query *api.ObjectsQuery) string {
	such := ""
	if query.GetSelector() != "" {
		such = " with such labels"
	}
	if query.GetOwner() != "" {
		such += " of which " + query.GetOwner() + " says something"
	}
	return such
}

// listing writes objects. Of JSON and YAML, each is written when it comes; a table is as wide as its widest cell.
type listing struct {
	*program
	query  *api.ObjectsQuery
	output string
	count  int
	// Which of the names that were asked for something has.
	named map[string]bool
	// Of a table.
	found []*api.ObjectIntent
}

func (l *listing) show(o *api.ObjectIntent) error {
	if len(l.query.GetNames()) > 0 {
		l.named[o.GetIntent().GetName()] = true
	}
	l.count++
	if l.output != "json" && l.output != "yaml" {
		l.found = append(l.found, o)
		return nil
	}
	n, err := l.node(o, l.output == "yaml")
	if err != nil {
		return err
	}
	if l.output == "json" {
		const indent = "  "
		b := bytes.NewBufferString(",\n" + indent)
		if l.count == 1 {
			b = bytes.NewBufferString("[\n" + indent)
		}
		if err := json.Indent(b, object.JSON(n), indent, indent); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		_, err := l.out.Write(b.Bytes())
		return err
	}
	if l.count > 1 {
		if _, err := io.WriteString(l.out, "---\n"); err != nil {
			return err
		}
	}
	return l.writeYAML(n)
}

// end is called when everything was shown.
func (l *listing) end() error {
	switch {
	case l.output == "json" && l.count == 0:
		_, err := io.WriteString(l.out, "[]\n")
		return err
	case l.output == "json":
		_, err := io.WriteString(l.out, "\n]\n")
		return err
	case l.count > 0:
		return l.table(l.found, l.query.GetKinds(), l.output)
	case len(l.query.GetNames()) == 0:
		what := "objects"
		if kinds := l.query.GetKinds(); len(kinds) > 0 {
			words := make([]string, len(kinds))
			for i, name := range kinds {
				words[i] = l.registry.Kind(name).Plural
			}
			what = strings.Join(words, ", no ")
		}
		fmt.Fprintf(l.err, "No %s%s.\n", what, such(l.query))
	}
	return nil
}

// table has one part for each kind, if there are several.
func (p *program) table(found []*api.ObjectIntent, kinds []string, output string) error {
	byKind := map[string][]*api.ObjectIntent{}
	for _, o := range found {
		byKind[o.GetIntent().GetKind()] = append(byKind[o.GetIntent().GetKind()], o)
	}
	order := kinds
	if len(order) == 0 {
		order = slices.Sorted(maps.Keys(byKind))
	}
	several := len(order) > 1
	for i, name := range order {
		kind := p.registry.Kind(name)
		objects := byKind[name]
		if kind == nil || len(objects) == 0 {
			continue
		}
		if several {
			if i > 0 && p.shown {
				fmt.Fprintln(p.out)
			}
			p.shown = true
			fmt.Fprintf(p.out, "%s\n", strings.ToUpper(kind.Plural))
		}
		why := output == "wide" || slices.ContainsFunc(objects, func(o *api.ObjectIntent) bool { return whyOf(o.GetStatus()) != "" })
		t := p.objectTable(kind, output == "wide", why)
		for _, o := range objects {
			row, err := p.row(kind, o, output == "wide", why)
			if err != nil {
				return err
			}
			t.add(row...)
		}
		if err := t.write(p.out); err != nil {
			return err
		}
	}
	return nil
}

// objectTable has the columns that the kind's annotation in the contract asks for.
func (p *program) objectTable(kind *object.Kind, wide, why bool) *table {
	t := &table{heading: []string{"NAME"}}
	for _, path := range kind.Columns {
		heading := headingOf(path.Text[strings.LastIndexByte(path.Text, '.')+1:])
		if slices.Contains(t.heading, heading) {
			heading = headingOf(path.Text)
		}
		t.heading = append(t.heading, heading)
	}
	t.heading = append(t.heading, "STATE")
	if wide {
		t.heading = append(t.heading, "SINCE", "OWNER", "LABELS")
	}
	if why {
		t.heading = append(t.heading, "WHY")
	}
	return t
}

// headingOf: "outerVlan" is "OUTER-VLAN", "gtpu.remoteAddress" is "GTPU-REMOTE-ADDRESS".
func headingOf(field string) string {
	var b strings.Builder
	for _, r := range field {
		switch {
		case r == '.':
			b.WriteByte('-')
		case r >= 'A' && r <= 'Z':
			b.WriteByte('-')
			b.WriteRune(r)
		default:
			b.WriteString(strings.ToUpper(string(r)))
		}
	}
	return b.String()
}

func (p *program) row(kind *object.Kind, o *api.ObjectIntent, wide, why bool) ([]string, error) {
	i := o.GetIntent()
	known, err := p.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the agent told of an object that this program cannot read: %w", err)
	}
	row := []string{i.GetName()}
	for _, path := range kind.Columns {
		row = append(row, orDash(path.Column(known.Spec)))
	}
	row = append(row, stateText(o.GetStatus().GetState()))
	if wide {
		row = append(row, p.since(o.GetStatus()), orDash(o.GetOwner()), orDash(labelsText(i.GetLabels())))
	}
	if why {
		row = append(row, whyOf(o.GetStatus()))
	}
	return row, nil
}

// whyOf says why an object is not applied; or, if it is, why it does not serve all the same.
func whyOf(s *api.Status) string {
	if s.GetMessage() != "" {
		return s.GetMessage()
	}
	for _, c := range s.GetConditions() {
		if c.GetType() == "Ready" && !c.GetHolds() && c.GetMessage() != "" {
			return "not ready: " + c.GetMessage()
		}
	}
	return ""
}

func (p *program) since(s *api.Status) string {
	if s.GetSince() == 0 {
		return "-"
	}
	return age(p.now().Sub(time.Unix(0, s.GetSince())))
}

func labelsText(labels map[string]string) string {
	var all []string
	for _, l := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, l+"="+labels[l])
	}
	return strings.Join(all, ",")
}
