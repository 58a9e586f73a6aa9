package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) applyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "apply -f FILE|DIRECTORY|-",
		Short: "Create objects, or change them to what files say",
		Long: `Create objects, or change them to what files say. Objects that are not in the files stay as they are.

What an object needs may be applied later: it waits, and what the data plane has of it stays meanwhile. What the data plane
refuses is tried again, unless all or nothing is asked for. While the data plane is away, what is accepted is kept, and done
when it is back.

The exit status is 0 when every object is applied; 3 when all are accepted and kept, and not all are applied yet; and 1 when
nothing was accepted, the data plane refused something, or something waits for what nobody wants. With --no-wait it is 0 once
all are accepted and kept, unless something waits for what nobody wants. --wait waits for 0.

With --confirm, the change comes undone by itself unless somebody who can still reach the machine confirms it.`,
		Example: `  sluice apply -f examples/bng
  sluice apply -f sessions.yaml --all-or-nothing
  sluice apply -f examples/bng --wait 10s
  sluice apply -f core.yaml --confirm 5m && sluice confirm
  sluice apply --plan tonight.plan`,
		Args: cobra.NoArgs,
	}
	files := filesFlag(c)
	output := outputFlag(c, "table", "json", "yaml")
	var s said
	s.owned(c)
	s.confirmed(c)
	plan := c.Flags().String("plan", "", "do what this plan says, or nothing if anything that matters has changed since")
	var wait time.Duration
	spanFlag(c, &wait, "wait", 0, "wait up to this long until every object is applied, and fail if one is not")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := s.check(c); err != nil {
			return err
		}
		changes := s.changes()
		var written []*object.Written
		var err error
		if *plan != "" {
			if len(*files) > 0 || s.owner != "" || s.force {
				return errors.New("--plan says already which objects and on whose behalf: leave out -f, --owner and --force")
			}
			planned, err := readPlan(*plan)
			if err != nil {
				return err
			}
			known := planned.GetChanges()
			changes.Put, changes.Delete, changes.Owner, changes.Force, changes.Plan = known.GetPut(), known.GetDelete(), known.GetOwner(),
				known.GetForce(), planned.GetPlanned()
		} else {
			if written, err = p.read(*files); err != nil {
				return nothingApplied(err)
			}
			if changes.Put, err = intents(written); err != nil {
				return err
			}
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		applied, err := client.Apply(c.Context(), changes)
		if err != nil {
			return nothingApplied(p.refused(err, written))
		}
		if wait > 0 && !applied.GetUndone() {
			if err := p.wait(c.Context(), client, applied, wait); err != nil {
				return err
			}
		}
		p.warn(applied.GetWarnings(), written)
		waits := map[object.Key]bool{}
		for _, o := range applied.GetObjects() {
			if o.GetStatus().GetState() == api.State_PENDING && !applied.GetUndone() {
				waits[object.Key{Kind: o.GetKind(), Name: o.GetName()}] = true
			}
		}
		dangling, err := p.dangling(c.Context(), client, changes, waits, written)
		if err != nil {
			return err
		}
		return worse(p.printApplied(applied, *output, expected{written: written, waited: wait > 0, accepted: s.noWait}), dangling)
	}
	return c
}

// nothingApplied adds to mistakes in objects what came of them.
func nothingApplied(err error) error {
	if object.AllErrors(err) == nil {
		return err
	}
	return fmt.Errorf("%w\nnothing was applied: all the objects have to be acceptable", err)
}

// warn tells of what is acceptable and does not work as it is.
func (p *program) warn(warnings []*api.Problem, written []*object.Written) {
	if len(warnings) == 0 {
		return
	}
	all := problemsOf(warnings)
	p.registry.Locate(written, all)
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = e.Error()
	}
	fmt.Fprintf(p.err, "Warning:\n  %s\n", strings.Join(few(lines), "\n  "))
}

// dangling returns an error for each field of an object that waits, because the field names what nobody wants.
func (p *program) dangling(ctx context.Context, client api.AgentClient, changes *api.Changes, waits map[object.Key]bool, written []*object.Written) (error, error) {
	if len(waits) == 0 {
		return nil, nil
	}
	type named struct {
		by object.Key
		object.Reference
	}
	var all []named
	query := &api.ObjectsQuery{}
	for _, i := range changes.GetPut() {
		key := object.Key{Kind: i.GetKind(), Name: i.GetName()}
		o, err := p.registry.New(i.GetKind(), i.GetName(), nil, i.GetSpec())
		if err != nil || !waits[key] {
			continue // the agent has read it
		}
		for _, ref := range p.registry.References(o) {
			if !ref.Builtin {
				all = append(all, named{key, ref})
				if !slices.Contains(query.Kinds, ref.To.Kind) {
					query.Kinds = append(query.Kinds, ref.To.Kind)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	found, err := p.all(ctx, client, query)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	wanted := map[object.Key]bool{}
	for _, o := range found {
		if i := o.GetIntent(); o.GetStatus().GetState() != api.State_DELETING {
			names[i.GetKind()] = append(names[i.GetKind()], i.GetName())
			wanted[object.Key{Kind: i.GetKind(), Name: i.GetName()}] = true
		}
	}
	var errs object.Errors
	// Those that are only planned, too.
	for _, i := range changes.GetPut() {
		names[i.GetKind()] = append(names[i.GetKind()], i.GetName())
		wanted[object.Key{Kind: i.GetKind(), Name: i.GetName()}] = true
	}
	for _, one := range all {
		if wanted[one.To] {
			continue
		}
		e := &object.Error{Object: one.by, Field: one.Field, Problem: fmt.Sprintf("there is no %s %s", one.To.Kind, one.To.Name)}
		candidates := append(slices.Clone(names[one.To.Kind]), p.registry.Kind(one.To.Kind).Builtin...)
		if near := object.Nearest(one.To.Name, candidates); near != "" {
			e.Problem += "; did you mean " + near + "?"
		}
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return nil, nil
	}
	p.registry.Locate(written, errs)
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = e.Error()
	}
	return fmt.Errorf("%s for what nobody wants yet:\n%s", plural(len(errs), "field waits", "fields wait"), strings.Join(few(lines), "\n")), nil
}

// wait brings the statuses up to date until all are applied or the time is over.
func (p *program) wait(ctx context.Context, client api.AgentClient, applied *api.Applied, most time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Not a deadline of the call: the agent would be told, and which of the two ends it first would decide what is said.
	over := make(chan struct{})
	timer := time.AfterFunc(most, func() {
		close(over)
		cancel()
	})
	defer timer.Stop()
	missing := map[object.Key]*api.AppliedObject{}
	query := &api.ObjectsQuery{}
	kinds := map[string]bool{}
	for _, o := range applied.GetObjects() {
		if o.GetStatus().GetState() == api.State_APPLIED || o.GetStatus().GetState() == api.State_GONE {
			continue
		}
		missing[object.Key{Kind: o.GetKind(), Name: o.GetName()}] = o
		if !kinds[o.GetKind()] {
			kinds[o.GetKind()] = true
			query.Kinds = append(query.Kinds, o.GetKind())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// Nothing is told of objects that only wait for the data plane to come back.
	if err := connected(ctx, client); err != nil {
		select {
		case <-over:
			return nil
		default:
			return err
		}
	}
	stream, err := client.Watch(ctx, query)
	for err == nil && len(missing) > 0 {
		var change *api.ObjectChange
		if change, err = stream.Recv(); err != nil {
			break
		}
		i := change.GetObject().GetIntent()
		key := object.Key{Kind: i.GetKind(), Name: i.GetName()}
		if o := missing[key]; o != nil {
			o.Status = change.GetObject().GetStatus()
			if o.GetStatus().GetState() == api.State_APPLIED {
				delete(missing, key)
			}
		}
	}
	select {
	case <-over:
		return nil
	default:
		return err
	}
}

// connected returns when the agent has a data plane.
func connected(ctx context.Context, client api.AgentClient) error {
	for {
		v, err := client.GetVersion(ctx, &api.VersionQuery{})
		if err != nil || v.GetDataplane().GetConnected() {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var done = map[api.Step]string{api.Step_KEEP: "unchanged", api.Step_CREATE: "created", api.Step_UPDATE: "updated",
	api.Step_REPLACE: "replaced", api.Step_DELETE: "deleted"}

// unfinished is the error of what is accepted and kept, and not applied yet.
type unfinished struct{ why string }

func (u *unfinished) Error() string { return u.why }

// worse adds to what became of a change what is wrong besides; of what is, it is not worth telling that it is not done yet.
func worse(err, wrong error) error {
	var later *unfinished
	switch {
	case wrong == nil:
		return err
	case errors.As(err, &later):
		return wrong
	}
	return errors.Join(err, wrong)
}

// expected is what is to have come of a change.
type expected struct {
	written []*object.Written
	// It was waited for that all are applied; it is enough that they are accepted; it is enough that those are gone that were named.
	waited, accepted, deleted bool
}

// printApplied tells what happened. It returns an error if something failed, or is *unfinished.
func (p *program) printApplied(applied *api.Applied, output string, e expected) error {
	at := map[object.Key]*object.Written{}
	for _, w := range e.written {
		at[w.Key()] = w
	}
	tally := map[api.Step]int{}
	out, unready, absent := 0, 0, 0
	var failures, waiting []string
	var steps []stepJSON
	var b strings.Builder
	for _, o := range applied.GetObjects() {
		key := object.Key{Kind: o.GetKind(), Name: o.GetName()}
		s := o.GetStatus()
		where := key.String()
		if w := at[key]; w != nil {
			where = fmt.Sprintf("%s:%d: %s", w.File, w.Line, key)
		}
		steps = append(steps, stepJSON{Step: strings.ToLower(o.GetStep().String()), Kind: o.GetKind(), Name: o.GetName(),
			State: stateText(s.GetState()), Message: s.GetMessage()})
		switch s.GetState() {
		case api.State_FAILED:
			failures = append(failures, fmt.Sprintf("%s: %s", where, s.GetMessage()))
			continue
		case api.State_PENDING, api.State_DELETING, api.State_UNKNOWN:
			waiting = append(waiting, fmt.Sprintf("%s: %s", where, orElse(s.GetMessage(), "waits for its turn")))
			if !e.deleted || o.GetStep() == api.Step_DELETE {
				unready++
			}
		}
		if o.GetStep() == api.Step_REPLACE && s.GetState() != api.State_APPLIED && s.GetState() != api.State_UNKNOWN {
			fmt.Fprintf(&b, "%s taken out of the data plane\n", key)
			out++
			continue
		}
		if e.deleted && o.GetStep() == api.Step_KEEP && s.GetState() == api.State_GONE {
			absent++
			continue
		}
		tally[o.GetStep()]++
		if o.GetStep() != api.Step_KEEP {
			fmt.Fprintf(&b, "%s %s\n", key, done[o.GetStep()])
		}
	}
	if output != "table" {
		told := map[string]any{"objects": steps, "undone": applied.GetUndone(), "revision": applied.GetRevision()}
		if applied.GetConfirmBy() != 0 {
			told["confirmBy"] = moment(applied.GetConfirmBy())
		}
		if joined := applied.GetJoined(); joined != nil {
			told["joined"] = map[string]any{"owner": joined.GetOwner(), "objects": joined.GetObjects(), "besides": joined.GetBesides()}
		}
		if err := p.write(output, false, told); err != nil {
			return err
		}
	} else if !applied.GetUndone() {
		var parts []string
		for _, s := range []api.Step{api.Step_CREATE, api.Step_UPDATE, api.Step_REPLACE, api.Step_DELETE, api.Step_KEEP} {
			if tally[s] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", tally[s], done[s]))
			}
		}
		if absent > 0 {
			parts = append(parts, fmt.Sprintf("%d not there", absent))
		}
		if out > 0 {
			parts = append(parts, fmt.Sprintf("%d taken out of the data plane", out))
		}
		if len(failures) > 0 {
			parts = append(parts, fmt.Sprintf("%d failed", len(failures)))
		}
		if len(parts) > 0 {
			fmt.Fprintf(&b, "%s.\n", strings.Join(parts, ", "))
		}
		if joined := applied.GetJoined(); joined != nil {
			b.WriteString(joinedText(joined, false) + "\n")
		}
		if applied.GetConfirmBy() != 0 {
			fmt.Fprintf(&b, "Revision %d is rolled back at %s, unless it is confirmed before: sluice confirm %d\n", applied.GetRevision(),
				moment(applied.GetConfirmBy()), applied.GetRevision())
		}
		if len(waiting) > 0 && !e.waited {
			fmt.Fprintf(&b, "%s not applied yet:\n  %s\n", plural(len(waiting), "object is", "objects are"), strings.Join(few(waiting), "\n  "))
		}
		if _, err := fmt.Fprint(p.out, b.String()); err != nil {
			return err
		}
	}
	failed := len(failures) > 0
	if e.waited {
		failures = append(failures, waiting...)
	}
	switch {
	case applied.GetUndone():
		return fmt.Errorf("nothing was changed, because the data plane refused:\n%s", strings.Join(few(failures), "\n"))
	case len(failures) > 0:
		why := fmt.Sprintf("%s not as wanted:\n%s", plural(len(failures), "object is", "objects are"), strings.Join(few(failures), "\n"))
		if failed {
			return errors.New(why)
		}
		return &unfinished{why}
	case unready > 0 && !e.accepted:
		return &unfinished{fmt.Sprintf("accepted and kept; %s not done yet", plural(unready, "object is", "objects are"))}
	}
	return nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

const fewMost = 20

// few shortens a long list.
func few(lines []string) []string {
	if len(lines) <= fewMost {
		return lines
	}
	return append(lines[:fewMost:fewMost], fmt.Sprintf("... and %d more", len(lines)-fewMost))
}

// stranded is an error if others would have to leave the data plane because of deletions.
func stranded(ctx context.Context, client api.AgentClient, changes *api.Changes) error {
	planned, err := client.Plan(ctx, changes)
	if err != nil {
		return nil // the agent says the same of the change itself
	}
	var users []string
	for _, s := range planned.GetSteps() {
		named := slices.ContainsFunc(changes.Delete, func(d *api.ObjectName) bool {
			return d.GetKind() == s.GetKind() && d.GetName() == s.GetName()
		})
		if !named && s.GetWaitsFor() != "" {
			users = append(users, fmt.Sprintf("%s/%s would wait for %s", s.GetKind(), s.GetName(), s.GetWaitsFor()))
		}
	}
	if len(users) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was deleted: others need it.\n%s\nDelete these, too, or say --in-use", strings.Join(few(users), "\n"))
}

// printWanted says who wants objects that were given up and stay as they are.
func (p *program) printWanted(ctx context.Context, client api.AgentClient, applied *api.Applied) {
	stays := map[object.Key]bool{}
	query := &api.ObjectsQuery{}
	for _, o := range applied.GetObjects() {
		if o.GetStep() != api.Step_KEEP || o.GetStatus().GetState() == api.State_GONE || o.GetStatus().GetState() == api.State_DELETING {
			continue
		}
		stays[object.Key{Kind: o.GetKind(), Name: o.GetName()}] = true
		query.Kinds, query.Names = append(query.Kinds, o.GetKind()), append(query.Names, o.GetName())
	}
	if len(stays) == 0 || applied.GetUndone() {
		return
	}
	slices.Sort(query.Kinds)
	query.Kinds = slices.Compact(query.Kinds)
	by := map[string]bool{}
	err := p.pages(ctx, client, query, func(page []*api.ObjectIntent) error {
		for _, o := range page {
			for _, one := range o.GetOwners() {
				by[one.GetOwner()] = by[one.GetOwner()] || stays[keyOf(o)]
			}
		}
		return nil
	})
	maps.DeleteFunc(by, func(_ string, stays bool) bool { return !stays })
	who := strings.Join(slices.Sorted(maps.Keys(by)), " and ")
	if err != nil || who == "" {
		who = "others"
	}
	fmt.Fprintf(p.out, "%s still wanted by %s.\n", plural(len(stays), "object is", "objects are"), who)
}

func (p *program) deleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "delete KIND NAME... | -f FILE|DIRECTORY|-",
		Short: "Delete objects",
		Long: `Delete objects by name, or all those that are in files. What others need is not deleted, unless you say --in-use: they are still
wanted then, but are taken out of the data plane, and wait until it is there again.

An object that several owners want is deleted when the last of them gives it up. What an owner never wanted it cannot give up;
"sluice get all --owner NAME" shows what it wants.`,
		Example: `  sluice delete session alice bob
  sluice delete acl/web meter/gold
  sluice delete qosprofile home-100 --in-use --confirm 5m
  sluice delete -f examples/bng`,
		ValidArgsFunction: p.completeNames(-1),
	}
	files := filesFlag(c)
	output := outputFlag(c, "table", "json", "yaml")
	var s said
	s.owned(c)
	s.confirmed(c)
	inUse := c.Flags().Bool("in-use", false, "also what others need: they leave the data plane until it is there again")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if err := s.check(c); err != nil {
			return err
		}
		changes := s.changes()
		var written []*object.Written
		var err error
		switch {
		case len(arguments) > 0 && len(*files) > 0:
			return errors.New("say which objects either by name or with -f")
		case len(arguments) > 0:
			if changes.Delete, err = p.names(arguments); err != nil {
				return err
			}
			if len(changes.Delete) == 0 {
				return fmt.Errorf("say which %s: sluice delete %s NAME", arguments[0], arguments[0])
			}
		default:
			if written, err = p.read(*files); err != nil {
				return err
			}
			for _, w := range written {
				changes.Delete = append(changes.Delete, &api.ObjectName{Kind: w.Kind, Name: w.Name})
			}
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		if !*inUse {
			if err := stranded(c.Context(), client, changes); err != nil {
				return err
			}
		}
		applied, err := client.Apply(c.Context(), changes)
		if err != nil {
			return p.refused(err, written)
		}
		var missing []string
		if written == nil {
			applied.Objects = slices.DeleteFunc(applied.Objects, func(o *api.AppliedObject) bool {
				gone := o.GetStep() == api.Step_KEEP && o.GetStatus().GetState() == api.State_GONE
				if gone {
					missing = append(missing, absent(c.Context(), client, o.GetKind(), o.GetName(), len(missing) < fewMost))
				}
				return gone
			})
		}
		err = p.printApplied(applied, *output, expected{written: written, accepted: s.noWait, deleted: true})
		if *output == "table" {
			p.printWanted(c.Context(), client, applied)
		}
		if len(missing) > 0 {
			return worse(err, errors.New(strings.Join(few(missing), "\n")))
		}
		return err
	}
	return c
}
