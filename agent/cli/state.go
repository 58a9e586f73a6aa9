// SPDX-License-Identifier: Apache-2.0

// Operational state: tables, JSON and commands from the annotations of the contract.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reference"
	"sluice.dev/sluice/agent/server"
)

// read asks the agent a question about operational state.
func read[R proto.Message](ctx context.Context, client api.AgentClient, query proto.Message) (R, error) {
	var none R
	reply := none.ProtoReflect().New().Interface()
	return reply.(R), readInto(ctx, client, query, reply)
}

func readInto(ctx context.Context, client api.AgentClient, query, reply proto.Message) error {
	question, err := anypb.New(query)
	if err != nil {
		return err
	}
	answer, err := client.ReadState(ctx, question)
	if err != nil {
		return err
	}
	return answer.UnmarshalTo(reply)
}

// statePage is how many elements of an answer one request asks for.
const statePage = 5000

// readAll reads all pages of an answer as one.
func readAll(ctx context.Context, client api.AgentClient, st *object.State, query proto.Message) (protoreflect.Message, error) {
	all, q, paged := st.Reply.New(), query.ProtoReflect(), st.Filters.ByName("page")
	if limit := st.Filters.ByName("limit"); limit != nil && !q.Has(limit.Desc) {
		q.Set(limit.Desc, protoreflect.ValueOfUint32(statePage))
	} else {
		paged = nil
	}
	return all, everyPage(func(page string) (string, error) {
		if paged != nil {
			q.Set(paged.Desc, protoreflect.ValueOfString(page))
		}
		some := st.Reply.New()
		if err := readInto(ctx, client, query, some.Interface()); err != nil {
			return "", err
		}
		next := ""
		if f := some.Descriptor().Fields().ByName(object.NextPage); f != nil && paged != nil {
			next = some.Get(f).String()
			some.Clear(f)
		}
		proto.Merge(all.Interface(), some.Interface())
		return next, nil
	})
}

// stateCommands adds the commands that annotations ask for.
func (p *program) stateCommands(root *cobra.Command) {
	for _, st := range p.registry.States() {
		words := strings.Fields(st.Notes.GetCommand())
		if len(words) == 0 {
			continue
		}
		parent, _, err := root.Find(words[:len(words)-1])
		if err != nil {
			continue
		}
		c := p.stateCommand(st, words[len(words)-1])
		if parent == root {
			c.GroupID = "look"
		}
		parent.AddCommand(c)
	}
}

func (p *program) stateCommand(st *object.State, name string) *cobra.Command {
	command := "  sluice " + st.Notes.GetCommand()
	c := &cobra.Command{Use: name, Short: st.Notes.GetSummary(), Args: cobra.NoArgs, Example: command + "\n" + command + " -o json"}
	output := outputFlag(c, "table", "wide", "json", "yaml", jsonPathFormat)
	// The command may name the object instead of the first filter for one.
	own := ""
	for _, f := range st.Filters.List {
		flag := strings.ToLower(object.Heading(f.Name))
		if f.Desc.IsList() || f.Name == "page" || f.Name == "dataplane" {
			continue
		}
		c.Flags().String(flag, "", "")
		if f.Desc.Kind() == protoreflect.BoolKind {
			c.Flags().Lookup(flag).NoOptDefVal = "true"
		}
		if f.Ref != nil {
			complete(c, flag, p.namesOf(f.Ref.Name))
			if own == "" && slices.Contains(st.Notes.GetKinds(), f.Ref.Name) {
				own, c.Use, c.Args = f.Name, name+" ["+strings.ToUpper(f.Name)+"]", cobra.MaximumNArgs(1)
			}
		}
	}
	// The comments of the contract are only parsed for the help text.
	c.SetHelpFunc(func(c *cobra.Command, arguments []string) {
		if comments, err := reference.New(); err == nil {
			c.Long, _ = comments.Comment(st.Query.Descriptor().FullName())
			for _, f := range st.Filters.List {
				if flag := c.Flags().Lookup(strings.ToLower(object.Heading(f.Name))); flag != nil {
					flag.Usage, _ = comments.Comment(f.Desc.FullName())
				}
			}
		}
		c.Parent().HelpFunc()(c, arguments)
	})
	c.Args = explained(c.Args)
	c.RunE = func(c *cobra.Command, arguments []string) error {
		query := st.Query.New().Interface()
		for _, name := range arguments {
			if err := st.Narrow(query, own, name); err != nil {
				return err
			}
		}
		for _, f := range st.Filters.List {
			flag := c.Flags().Lookup(strings.ToLower(object.Heading(f.Name)))
			if flag == nil || !flag.Changed {
				continue
			}
			if err := st.Narrow(query, f.Name, flag.Value.String()); err != nil {
				return err
			}
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		return p.showState(c.Context(), client, st, query, *output)
	}
	return c
}

// showState asks and shows the answer.
func (p *program) showState(ctx context.Context, client api.AgentClient, st *object.State, query proto.Message, output string) error {
	reply, err := readAll(ctx, client, st, query)
	if err != nil {
		return err
	}
	if rows := st.Rows(); rows != nil && !reply.Has(rows) {
		// It may be that an object does not exist.
		why, err := p.withoutRows(ctx, client, st, query, output == "table" || output == "wide")
		if err != nil {
			return err
		}
		if why != "" {
			_, err = fmt.Fprintln(p.err, why)
			return err
		}
	}
	return p.writeState(st, reply, nil, output)
}

// withoutRows says why there is no answer about an object: the object does not exist, or its status has the reason; empty: the question is about no object, or
// text is false. A name may be that of another kind of the state: the IkePeer of a question about an IkeConnection.
func (p *program) withoutRows(ctx context.Context, client api.AgentClient, st *object.State, query proto.Message, text bool) (string, error) {
	for _, k := range st.About(query.ProtoReflect()) {
		kinds := []string{k.Kind}
		if own := st.Notes.GetKinds(); len(own) > 0 && own[0] == k.Kind {
			kinds = own
		}
		var missing error
		for _, kind := range kinds {
			d, err := client.Describe(ctx, &api.ObjectName{Kind: kind, Name: k.Name})
			if status.Code(err) == codes.NotFound && p.builtin(kind, k.Name) == nil {
				if missing == nil {
					missing = fmt.Errorf("%s: %s", strings.ToLower(kind), status.Convert(err).Message())
				}
				continue
			}
			what, of := strings.CutPrefix(strings.TrimSuffix(st.Notes.GetNone(), "."), "No ")
			if why := reasonOf(d.GetObject().GetStatus()); err == nil && text && of && len(kinds) > 1 {
				return strings.TrimSuffix(fmt.Sprintf("%s %s has no %s: %s", kind, k.Name, what, why), ": "), nil
			}
			missing = nil
			break
		}
		if missing != nil {
			return "", missing
		}
	}
	return "", nil
}

// writeState writes an answer. spec is the spec of the answer's object, if it is about one.
func (p *program) writeState(st *object.State, reply protoreflect.Message, spec proto.Message, output string) error {
	rows := st.Rows()
	if output == "wide" {
		st, output = widened(st), "table"
	}
	if output != "table" {
		n := stateNode(reply)
		if rows != nil && onlyList(reply.Descriptor(), rows) {
			n = stateValue(rows, reply.Get(rows))
		}
		return p.write(output, false, json.RawMessage(object.JSON(n)))
	}
	if rows != nil && !reply.Has(rows) && st.Notes.GetNone() != "" {
		_, err := fmt.Fprintln(p.err, st.Notes.GetNone())
		return err
	}
	return p.stateTable(p.out, "", st, reply, spec)
}

// widened has columns for all fields of the rows, except lists and messages.
func widened(st *object.State) *object.State {
	rows := st.Rows()
	if rows == nil {
		return st
	}
	wide, shown := *st, map[protoreflect.FieldDescriptor]bool{}
	wide.Columns = slices.Clone(st.Columns)
	for _, column := range st.Columns {
		for _, path := range column.Paths {
			shown[path[len(path)-1]] = true
		}
	}
	fields := rows.Message().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !shown[f] && !f.IsList() && f.Message() == nil {
			wide.Columns = append(wide.Columns, object.StateColumn{Heading: object.Heading(f.JSONName()), Paths: [][]protoreflect.FieldDescriptor{{rows, f}}})
		}
	}
	return &wide
}

// onlyList reports whether a message is nothing but a list.
func onlyList(d protoreflect.MessageDescriptor, list protoreflect.FieldDescriptor) bool {
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); f != list && f.Name() != object.NextPage {
			return false
		}
	}
	return true
}

// stateTable writes a row for each element of the answer's list, and then the fields without a column.
func (p *program) stateTable(w io.Writer, indent string, st *object.State, reply protoreflect.Message, spec proto.Message) error {
	t, shown := &table{indent: indent}, map[protoreflect.FieldDescriptor]bool{}
	if d, ok := reply.Interface().(*api.DropCountersList); ok {
		return writeDrops(w, indent, d)
	}
	rows, written := st.Rows(), map[string][]string{}
	for _, column := range st.Columns {
		heading := column.Heading
		if column.Number || len(column.Paths) > 0 && alignRight(column.Paths[0]) {
			heading = ">" + heading
		}
		t.heading = append(t.heading, heading)
		for _, path := range column.Paths {
			shown[path[0]] = true
		}
		if column.Spec != "" && spec != nil {
			path, err := p.registry.Kind(string(spec.ProtoReflect().Descriptor().Name())).Find(column.Spec)
			if err != nil {
				return err
			}
			written[column.Spec] = path.Strings(spec)
		}
	}
	row := func(at int) {
		var cells []string
		for _, column := range st.Columns {
			cell := ""
			switch {
			case column.Number:
				cell = strconv.Itoa(at + 1)
			case column.Spec != "":
				if at < len(written[column.Spec]) {
					cell = written[column.Spec][at]
				}
			}
			for _, path := range column.Paths {
				if more := p.cell(path, protoreflect.ValueOfMessage(reply), at); cell == "" || more == "" {
					cell += more
				} else {
					cell += " " + more
				}
			}
			cells = append(cells, orDash(cell))
		}
		t.add(cells...)
	}
	switch {
	case rows == nil || !reply.Has(rows) && onlyList(reply.Descriptor(), rows):
		if rows == nil {
			row(0)
		}
	case !reply.Has(rows):
		row(-1)
	default:
		for at := range reply.Get(rows).List().Len() {
			row(at)
		}
	}
	if err := t.write(w); err != nil {
		return err
	}
	return record(w, indent, reply, func(f protoreflect.FieldDescriptor) bool { return shown[f] })
}

// alignRight reports whether a column is aligned to the right: numbers and ages.
func alignRight(path []protoreflect.FieldDescriptor) bool {
	f := path[len(path)-1]
	return isNumber(f) || object.Notes(f).GetUnit() == api.Unit_UNIX_NANOSECONDS
}

// cell follows a path to a value. A list at its beginning is taken at an element, and lists below as a whole. Times are shown as ages, and bytes short.
func (p *program) cell(path []protoreflect.FieldDescriptor, v protoreflect.Value, at int) string {
	v = v.Message().Get(path[0])
	if path[0].IsList() {
		if at < 0 || at >= v.List().Len() {
			return ""
		}
		v = v.List().Get(at)
	}
	return strings.Join(p.values(path, v), " ")
}

// values are those behind a path, whose first field has the value v.
func (p *program) values(path []protoreflect.FieldDescriptor, v protoreflect.Value) (all []string) {
	f := path[0]
	if len(path) > 1 {
		next := v.Message().Get(path[1])
		if !path[1].IsList() {
			return p.values(path[1:], next)
		}
		for i := range next.List().Len() {
			all = append(all, p.values(path[1:], next.List().Get(i))...)
		}
		return all
	}
	switch object.Notes(f).GetUnit() {
	case api.Unit_UNIX_NANOSECONDS:
		if n, _ := strconv.ParseInt(v.String(), 10, 64); n != 0 {
			d := p.now().Sub(time.Unix(0, n))
			if d <= -time.Second {
				return []string{"in " + age(-d)}
			}
			return []string{age(d)}
		}
	case api.Unit_BYTES:
		return []string{bytesText(v.Uint())}
	}
	return []string{valueText(f, v)}
}

func isNumber(f protoreflect.FieldDescriptor) bool {
	switch f.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Int32Kind, protoreflect.Int64Kind:
		return object.Notes(f).GetUnit() != api.Unit_UNIX_NANOSECONDS && object.Notes(f).GetUnit() != api.Unit_HEXADECIMAL
	}
	return false
}

// valueText is a value for people.
func valueText(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	n, _ := strconv.ParseInt(v.String(), 10, 64)
	switch unit := object.Notes(f).GetUnit(); {
	case unit == api.Unit_UNIX_NANOSECONDS && n == 0, unit == api.Unit_HEXADECIMAL && n == 0:
		return ""
	case unit == api.Unit_UNIX_NANOSECONDS:
		return moment(n)
	case unit == api.Unit_HEXADECIMAL:
		return fmt.Sprintf("%08x", n)
	case unit == api.Unit_PER_MILLE:
		return fmt.Sprintf("%.1f %%", float64(n)/10)
	case f.Kind() == protoreflect.BoolKind && v.Bool():
		return "yes"
	case f.Kind() == protoreflect.BoolKind:
		return "no"
	}
	return v.String()
}

// record writes the fields of a message that are set, and numbers, one a line; lists and messages below are left out.
func record(w io.Writer, indent string, m protoreflect.Message, skip func(protoreflect.FieldDescriptor) bool) error {
	var names, values []string
	width := 0
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if skip(f) || f.IsList() || f.Message() != nil || f.Name() == object.NextPage || !m.Has(f) && !isNumber(f) {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(object.Heading(f.JSONName()), "-", " "))
		names, values, width = append(names, name), append(values, valueText(f, m.Get(f))), max(width, len(name))
	}
	for i, name := range names {
		if _, err := fmt.Fprintf(w, "%s%-*s   %s\n", indent, width, name, line(values[i])); err != nil {
			return err
		}
	}
	return nil
}

// stateNode is a message as JSON has it: text that is empty and messages that are not there are left out.
func stateNode(m protoreflect.Message, without ...protoreflect.FieldDescriptor) *yaml.Node {
	n := object.Mapping()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		empty := !m.Has(f) && (f.Kind() == protoreflect.StringKind || f.Message() != nil) && !f.IsList()
		if empty || f.Name() == object.NextPage || slices.Contains(without, f) {
			continue
		}
		n.Content = append(n.Content, object.Mapping(f.JSONName(), stateValue(f, m.Get(f))).Content...)
	}
	return n
}

func stateValue(f protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	if f.IsList() {
		if list, ok := v.Interface().(protoreflect.List); ok {
			n := &yaml.Node{Kind: yaml.SequenceNode}
			for i := range list.Len() {
				n.Content = append(n.Content, stateValue(f, list.Get(i)))
			}
			return n
		}
	}
	switch {
	case f.Message() != nil:
		return stateNode(v.Message())
	case f.Kind() == protoreflect.BoolKind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case isNumber(f):
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: v.String()}
	}
	return text(valueText(f, v))
}

// objectState is the part of an answer about one object.
type objectState struct {
	*object.State
	message protoreflect.Message
	// The message is about this object alone; `name` is the field with its name.
	single bool
	name   protoreflect.FieldDescriptor
	// There are more than describedRows.
	more bool
}

// describedRows is how many elements of an answer `describe` shows.
const describedRows = 20

// statesOf reads the states of one object. An object that the data plane does not have has none.
func (p *program) statesOf(ctx context.Context, client api.AgentClient, k object.Key) (all []objectState, err error) {
	for _, st := range p.registry.StatesOf(k.Kind) {
		query, asks := st.Ask(k)
		if !asks {
			continue
		}
		if limit := st.Filters.ByName("limit"); limit != nil && object.RefersTo(query.ProtoReflect().Descriptor(), k.Kind) != nil {
			query.ProtoReflect().Set(limit.Desc, protoreflect.ValueOfUint32(describedRows))
		}
		reply, err := readAll(ctx, client, st, query)
		if status.Code(err) == codes.NotFound || server.Reason(status.Convert(err)) == server.NoService {
			continue
		}
		if err != nil {
			return nil, err
		}
		part, single := st.Part(reply, k)
		if part == nil || !single && st.Rows() != nil && !hasRows(reply) {
			continue
		}
		next := reply.Descriptor().Fields().ByName(object.NextPage)
		all = append(all, objectState{st, part, single, object.RefersTo(part.Descriptor(), k.Kind), next != nil && reply.Has(next)})
	}
	return all, nil
}

// hasRows reports whether a list of a message has elements.
func hasRows(m protoreflect.Message) (has bool) {
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		has = has || f.IsList()
		return !has
	})
	return has
}

// fields are the state as JSON, under its name.
func (s objectState) fields() []*yaml.Node {
	switch name := s.Notes.GetName(); {
	case s.single:
		return object.Mapping(name, stateNode(s.message, s.name)).Content
	case s.message.Descriptor().Fields().ByJSONName(name) != nil:
		return stateNode(s.message).Content
	default:
		return object.Mapping(name, stateNode(s.message)).Content
	}
}

// command shows the whole state of an object.
func (s objectState) command(k object.Key) string {
	if words := s.Notes.GetCommand(); words != "" {
		return words + " " + k.Name
	}
	return "get " + strings.ToLower(k.Kind) + " " + k.Name + " --state=" + s.Notes.GetName()
}

// describeStates writes the states of an object.
func (p *program) describeStates(ctx context.Context, client api.AgentClient, b *strings.Builder, o *object.Object) error {
	all, err := p.statesOf(ctx, client, o.Key())
	if err != nil {
		return err
	}
	for _, s := range all {
		name := s.Notes.GetName()
		fmt.Fprintf(b, "\n%s\n", strings.ToUpper(name[:1])+name[1:])
		if s.single {
			err = record(b, "  ", s.message, func(f protoreflect.FieldDescriptor) bool { return f == s.name })
		} else {
			err = p.stateTable(b, "  ", s.State, s.message, o.Spec)
		}
		if err != nil {
			return err
		}
		if s.more {
			fmt.Fprintf(b, "  These are the first. All: sluice %s\n", s.command(o.Key()))
		}
	}
	return nil
}

// getState is `get KIND --state`.
func (p *program) getState(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, which, output string) error {
	if len(query.GetKinds()) != 1 || query.GetSelector() != "" || query.GetOwner() != "" || len(query.GetNames()) > 1 {
		return errors.New("--state is for one kind, and for one name or none")
	}
	kind := query.GetKinds()[0]
	all := p.registry.StatesOf(kind)
	var names []string
	for _, st := range all {
		names = append(names, st.Notes.GetName())
	}
	switch {
	case len(all) == 0:
		return fmt.Errorf("%s has no operational state of its own; `sluice get %s` shows its status", kind, p.registry.Kind(kind).Plural)
	case which == anyState:
		which = names[0]
	}
	at := slices.Index(names, which)
	if at < 0 {
		return fmt.Errorf("--state %q: accepted: %s", which, strings.Join(names, ", "))
	}
	st, stateQuery := all[at], all[at].Query.New().Interface()
	var spec proto.Message
	k := object.Key{Kind: kind}
	if len(query.GetNames()) == 1 {
		k.Name = query.GetNames()[0]
		var asks bool
		if stateQuery, asks = st.Ask(k); !asks {
			return fmt.Errorf("--state=%s is not for a single %s; leave out the name", which, kind)
		}
		d, err := client.Describe(ctx, &api.ObjectName{Kind: kind, Name: k.Name})
		if err != nil {
			return err
		}
		o, err := p.registry.New(kind, k.Name, nil, d.GetObject().GetIntent().GetSpec())
		if err != nil {
			return err
		}
		spec = o.Spec
	}
	for _, condition := range strings.FieldsFunc(query.GetFieldSelector(), func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(condition, "=")
		if err := st.Narrow(stateQuery, name, value); err != nil {
			return err
		}
	}
	for _, f := range st.Filters.List {
		if f.Notes.Required && !stateQuery.ProtoReflect().Has(f.Desc) {
			return fmt.Errorf("--state=%s: %s is missing; name an object, or use --field-selector %s=VALUE", which, f.Name, f.Name)
		}
	}
	if k.Name == "" {
		return p.showState(ctx, client, st, stateQuery, output)
	}
	reply, err := readAll(ctx, client, st, stateQuery)
	if err != nil {
		return err
	}
	st.Keep(reply, k)
	return p.writeState(st, reply, spec, output)
}

// anyState is the value of --state without one.
const anyState = "any"
