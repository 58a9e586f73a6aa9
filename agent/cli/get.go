// SPDX-License-Identifier: Apache-2.0

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
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/port"
)

func (p *program) getCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "get KIND[,KIND...] [NAME...] | KIND/NAME... | all",
		Short: "Show objects in a table, or as JSON or YAML",
		Long: `Show objects and their state: "applied" when the data plane has them as configured, "pending" while they wait, "failed" when the
data plane refused them (the agent tries again), "deleting" while the data plane still has a deleted object, and "unknown" when
they were applied before the data plane went away. Name a kind by its name, its plural or its short form.

Objects that always exist, such as VRF default, are "built-in". They are shown with their kind, and with "all" only if --builtin
is given.

YAML and JSON can be changed and applied again. In YAML, rates, sizes and times have units (100M, 64KB, 10ms); in JSON they are
plain numbers of bit/s, bytes and nanoseconds.

JSONPath templates work as with kubectl: for one name they pick fields of the JSON of the object, else of {"items": [...]}.
"-o name" writes KIND/NAME, the form that other commands accept.`,
		Example: `  sluice get sessions
  sluice get ports,interfaces -o wide
  sluice get session alice bob -o yaml
  sluice get session/alice acl/web
  sluice get sessions -l city=bonn,tier!=test
  sluice get sessions --field-selector access.outerVlan=100,vrf=red
  sluice get all --field-selector status.state!=applied
  sluice get session --address 100.64.0.7
  sluice get session --circuit access:100.7 -o yaml
  sluice get route --lookup 192.0.2.9 --vrf red   # where packets go
  sluice get ports --state                        # counters
  sluice get session alice --state=queues -o json
  sluice get all -o json | jq '.[] | select(.status.state != "applied")'
  sluice get session alice -o jsonpath='{.spec.access.mac}'
  sluice get sessions -o jsonpath='{range .items[*]}{.metadata.name} {.spec.addresses[0]}{"\n"}{end}'
  sluice get sessions -l city=bonn -o name | xargs sluice delete
  sluice get sessions -w             # also while the agent is started again`,
		ValidArgsFunction: p.completeNames(-1),
		Args:              cobra.MinimumNArgs(1),
	}
	output := outputFlag(c, "table", "wide", "json", "yaml", "name", jsonPathFormat)
	selector := c.Flags().StringP("selector", "l", "", "only objects with these labels: a=b, a!=b, a, !a; commas between")
	fields := c.Flags().String("field-selector", "", "only objects with these values in fields: a.b=c, a!=c; commas between")
	watch := c.Flags().BoolP("watch", "w", false, "go on and show every change")
	owners := c.Flags().Bool("owners", false, "with -o yaml or json: the owner of each field, in status.owners")
	builtin := c.Flags().Bool("builtin", false, "with all: also objects that are always there")
	owner := c.Flags().String("owner", "", "only objects with fields of this owner")
	find := p.findingFlags(c)
	state := c.Flags().String("state", "", "show the operational state of a kind or an object, such as counters; several kinds of state have names")
	c.Flags().Lookup("state").NoOptDefVal = anyState
	c.RunE = func(c *cobra.Command, arguments []string) error {
		query := &api.ObjectsQuery{Selector: *selector, FieldSelector: *fields, Owner: *owner, OwnedFields: *owners}
		if *owners && (*watch || *output != "yaml" && *output != "json") {
			return errors.New("--owners is for -o yaml or -o json, without -w")
		}
		if *state != "" && (*watch || *output == "name" || *owner != "" || *builtin) {
			return errors.New("--state goes with -o table, wide, json, yaml or jsonpath, without -w, --owner and --builtin")
		}
		for _, flag := range lookUpFlags {
			if f := c.Flags().Lookup(flag); f.Changed && f.Value.String() == "" {
				return fmt.Errorf("--%s: empty", flag)
			}
		}
		named, err := p.namedObjects(query, arguments)
		if err != nil {
			return err
		}
		if *builtin {
			if len(query.GetKinds()) > 0 {
				return errors.New("--builtin is for `sluice get all`: with a kind, they are shown")
			}
			for _, k := range p.everyKind() {
				query.Kinds = append(query.Kinds, k.Name)
			}
			slices.Sort(query.Kinds)
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		if *state != "" {
			return p.getState(c.Context(), client, query, *state, *output)
		}
		if find.route != "" {
			return p.lookUpRoute(c.Context(), client, find, query, *output)
		}
		found, err := find.sessions(c.Context(), client, query)
		if err != nil {
			return err
		}
		if !found {
			l := &listing{program: p, query: query, output: *output}
			query.Names = []string{""}
			return worse(l.end(), fmt.Errorf("no session has %s", find.what()))
		}
		if *watch {
			return p.watch(c.Context(), client, query, named, *output)
		}
		l := &listing{program: p, query: query, keys: named, output: *output, named: map[object.Key]bool{}}
		if err := p.each(c.Context(), client, query, l.show); err != nil {
			return err
		}
		if err := l.end(); err != nil {
			return err
		}
		return p.missing(c.Context(), client, query, named, l.named)
	}
	return c
}

// namedObjects adds to a query the objects that the arguments name. It returns them if each is of a kind of its own, as in "session/alice acl/web".
func (p *program) namedObjects(query *api.ObjectsQuery, arguments []string) (map[object.Key]bool, error) {
	if slices.ContainsFunc(arguments, func(a string) bool { return strings.Contains(a, "/") }) {
		names, err := p.names(arguments)
		if err != nil {
			return nil, err
		}
		keys := map[object.Key]bool{}
		for _, n := range names {
			keys[object.Key{Kind: n.GetKind(), Name: n.GetName()}] = true
			query.Kinds, query.Names = append(query.Kinds, n.GetKind()), append(query.Names, n.GetName())
		}
		query.Kinds, query.Names = unique(query.Kinds), unique(query.Names)
		return keys, nil
	}
	query.Names = arguments[1:]
	if strings.EqualFold(arguments[0], "all") {
		return nil, nil
	}
	for _, word := range strings.Split(arguments[0], ",") {
		kind, err := p.registry.Lookup(word)
		if err != nil {
			return nil, p.stateInstead(word, err)
		}
		query.Kinds = append(query.Kinds, kind.Name)
	}
	return nil, nil
}

// stateInstead is the error of a word that is no kind, but has a command of its own: "subscribers" are listed by "sluice subscriber list".
func (p *program) stateInstead(word string, err error) error {
	for _, st := range p.registry.States() {
		command := st.Notes.GetCommand()
		noun, _, _ := strings.Cut(command, " ")
		if noun != "get" && strings.EqualFold(strings.TrimSuffix(noun, "s"), strings.TrimSuffix(word, "s")) {
			return fmt.Errorf("there is no kind %q; use: sluice %s", word, command)
		}
	}
	return err
}

// unique removes duplicates, and keeps the order.
func unique(all []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

// each calls show with every object, in the order of their kinds and names, as pages come; and with the builtin objects that were asked for,
// by their kind or by name, and that are not in the configuration.
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

// pageSize is how many objects, and how many names, one request asks for.
const pageSize = 1000

// pages gets every page in the order of kinds and names, and keeps none.
func (p *program) pages(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, show func([]*api.ObjectIntent) error) error {
	if len(query.GetNames()) <= pageSize {
		return p.somePages(ctx, client, proto.CloneOf(query), show)
	}
	// Each page would carry all the names again.
	kinds, names := slices.Clone(query.GetKinds()), slices.Clone(query.GetNames())
	if len(kinds) == 0 {
		for _, k := range p.everyKind() {
			kinds = append(kinds, k.Name)
		}
	}
	slices.Sort(kinds)
	slices.Sort(names)
	for _, kind := range slices.Compact(kinds) {
		for some := range slices.Chunk(slices.Compact(names), pageSize) {
			part := proto.CloneOf(query)
			part.Kinds, part.Names = []string{kind}, some
			if err := p.somePages(ctx, client, part, show); err != nil {
				return err
			}
		}
	}
	return nil
}

// somePages is pages for a query that one request holds.
func (p *program) somePages(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, show func([]*api.ObjectIntent) error) error {
	query.Limit = pageSize
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

// builtinOwner is shown as the owner of builtin objects.
const builtinOwner = "builtin"

// builtin is an object that always exists, as long as the configuration does not have it; nil: it is none.
func (p *program) builtin(kind, name string) *api.ObjectIntent {
	k := p.registry.Kind(kind)
	if k == nil || !k.IsBuiltin(name) {
		return nil
	}
	return &api.ObjectIntent{Intent: &api.Intent{Kind: kind, Name: name}, Status: &api.Status{State: api.State_APPLIED}, Owner: builtinOwner}
}

// builtins are the builtin objects that are asked for, in order.
func (p *program) builtins(query *api.ObjectsQuery) []*api.ObjectIntent {
	if query.GetSelector() != "" || query.GetFieldSelector() != "" || query.GetOwner() != "" {
		return nil // they have neither labels nor owners
	}
	var all []*api.ObjectIntent
	names := setOf(query.GetNames())
	for _, kind := range query.GetKinds() {
		for _, name := range p.registry.Kind(kind).Builtin {
			if len(names) == 0 || names[name] {
				all = append(all, p.builtin(kind, name))
			}
		}
	}
	slices.SortFunc(all, func(a, b *api.ObjectIntent) int { return keyOf(a).Compare(keyOf(b)) })
	return slices.CompactFunc(all, func(a, b *api.ObjectIntent) bool { return keyOf(a) == keyOf(b) })
}

func setOf[T comparable](all []T) map[T]bool {
	set := make(map[T]bool, len(all))
	for _, one := range all {
		set[one] = true
	}
	return set
}

// absent reports that no object has a name, and a similar name if the agent is to be asked for one.
func absent(ctx context.Context, client api.AgentClient, kind, name string, ask bool) string {
	if ask {
		if _, err := client.Describe(ctx, &api.ObjectName{Kind: kind, Name: name}); status.Code(err) == codes.NotFound {
			return status.Convert(err).Message()
		}
	}
	return fmt.Sprintf("there is no %s %s", kind, name)
}

// missing complains about names that nothing has. Keys: as from namedObjects.
func (p *program) missing(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, keys, found map[object.Key]bool) error {
	if keys != nil {
		var missing []string
		for _, k := range slices.SortedFunc(maps.Keys(keys), object.Key.Compare) {
			if !found[k] {
				missing = append(missing, absent(ctx, client, k.Kind, k.Name, len(missing) < maxListed)+conditionText(query))
			}
		}
		if len(missing) == 0 {
			return nil
		}
		return errors.New(strings.Join(listSome(missing), "\n"))
	}
	names := make(map[string]bool, len(found))
	for k := range found {
		names[k.Name] = true
	}
	var missing []string
	for _, name := range query.GetNames() {
		if !names[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if len(missing) == 1 && len(query.GetKinds()) == 1 && conditionText(query) == "" {
		return errors.New(absent(ctx, client, query.GetKinds()[0], missing[0], true))
	}
	kinds := "object"
	if len(query.GetKinds()) > 0 {
		kinds = strings.Join(query.GetKinds(), " or ")
	}
	return fmt.Errorf("there is no %s %s%s", kinds, strings.Join(listSome(missing), ", "), conditionText(query))
}

// conditionText describes the conditions of a query, without its kinds and names.
func conditionText(query *api.ObjectsQuery) string {
	conditionText := ""
	if query.GetSelector() != "" {
		conditionText = " with such labels"
	}
	if query.GetFieldSelector() != "" {
		conditionText += " with " + query.GetFieldSelector()
	}
	if query.GetOwner() != "" {
		conditionText += " with fields of " + query.GetOwner()
	}
	return conditionText
}

// listing writes objects. Of JSON and YAML, each is written when it comes; a table is as wide as its widest cell.
type listing struct {
	*program
	query *api.ObjectsQuery
	// As from namedObjects.
	keys   map[object.Key]bool
	output string
	count  int
	// The named objects that were found.
	named map[object.Key]bool
	// Of a table.
	found []*api.ObjectIntent
	// Of a JSONPath template.
	items [][]byte
}

func (l *listing) show(o *api.ObjectIntent) error {
	if l.keys != nil && !l.keys[keyOf(o)] {
		return nil
	}
	if len(l.query.GetNames()) > 0 {
		l.named[keyOf(o)] = true
	}
	l.count++
	switch {
	case l.output == "table" || l.output == "wide":
		l.found = append(l.found, o)
		return nil
	case l.output == "name":
		_, err := fmt.Fprintf(l.out, "%s/%s\n", strings.ToLower(o.GetIntent().GetKind()), o.GetIntent().GetName())
		return err
	case strings.HasPrefix(l.output, jsonPathIs):
		n, err := l.node(o, false)
		if err == nil {
			l.items = append(l.items, object.JSON(n))
		}
		return err
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
	case strings.HasPrefix(l.output, jsonPathIs):
		return l.picked()
	case l.count > 0 && l.found == nil:
		return nil // each was written when it came
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
		fmt.Fprintf(l.err, "No %s%s.\n", what, conditionText(l.query))
	}
	return nil
}

// picked writes the result of a JSONPath template: of the object if the request names one, else of all.
func (l *listing) picked() error {
	template := strings.TrimPrefix(l.output, jsonPathIs)
	one := len(l.query.GetNames()) == 1 && len(l.query.GetKinds()) == 1
	switch {
	case one && len(l.items) == 1:
		return l.writeJSONPath(template, l.items[0])
	case one:
		return nil // that it does not exist is an error of its own
	}
	return l.writeJSONPath(template, slices.Concat([]byte(`{"items":[`), bytes.Join(l.items, []byte(",")), []byte("]}")))
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
		why := output == "wide" || slices.ContainsFunc(objects, func(o *api.ObjectIntent) bool { return reasonOf(o.GetStatus()) != "" })
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
		heading := object.Heading(path.Text[strings.LastIndexByte(path.Text, '.')+1:])
		if slices.Contains(t.heading, heading) {
			heading = object.Heading(path.Text)
		}
		t.heading = append(t.heading, heading)
	}
	if kind.Name == "Port" {
		t.heading = append(t.heading, "LINK")
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

func (p *program) row(kind *object.Kind, o *api.ObjectIntent, wide, why bool) ([]string, error) {
	i := o.GetIntent()
	known, err := p.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the agent sent an object that this program cannot decode: %w", err)
	}
	row := []string{i.GetName()}
	for _, path := range kind.Columns {
		row = append(row, orDash(path.Column(known.Spec)))
	}
	if kind.Name == "Port" {
		row = append(row, linkOf(o.GetStatus()))
	}
	state := stateText(o.GetStatus().GetState())
	if o.GetOwner() == builtinOwner {
		state = "built-in"
	}
	row = append(row, state)
	if wide {
		row = append(row, p.since(o.GetStatus()), orDash(o.GetOwner()), orDash(labelsText(i.GetLabels())))
	}
	if why {
		row = append(row, reasonOf(o.GetStatus()))
	}
	return row, nil
}

// reasonOf returns the reason why an object is not applied or does not serve.
func reasonOf(s *api.Status) string {
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

// linkOf is the state of a port's link in the port's status.
func linkOf(s *api.Status) string {
	for _, c := range s.GetConditions() {
		switch {
		case c.GetType() != "Ready":
		case c.GetHolds():
			return "up"
		case c.GetReason() == port.LinkDown:
			return "down"
		}
	}
	return "-"
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
