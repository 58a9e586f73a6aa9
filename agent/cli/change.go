// SPDX-License-Identifier: Apache-2.0

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
		Short: "Create or change the objects of files",
		Long: `Create or change the objects of files. Objects that are not in the files stay as they are.

An object may refer to one that you apply later: it waits, and keeps its old form in the data plane meanwhile. The agent tries
again what the data plane refuses, except with --all-or-nothing. While the data plane is away, the agent stores accepted changes
and carries them out when the data plane is back.

The exit status is 0 when every object is applied; 3 when all are accepted and stored, and not all are applied yet; and 1 when
nothing was accepted, the data plane refused an object, or a reference is unresolved. With --no-wait it is 0 once all are
accepted and stored and no reference is unresolved. --wait waits for 0.

An object that only services of the agent use, such as a PppoeServer or an N3iwf, is applied also while an object that it refers
to does not exist, or while the service cannot serve with it. It is not ready then: "apply" prints the reason, and the exit
status is 0. With --wait, it is 3 if the object is still not ready at the end. "apply" does not wait for what is outside of the
configuration, such as a link, a peer or a server: with --wait it prints the reason, and the exit status is 0.

With --confirm, the agent undoes the change unless you confirm it in time: a change that locks you out does not stay.`,
		Example: `  sluice apply -f examples/bng
  sluice apply -f sessions.yaml --all-or-nothing
  sluice apply -f examples/bng --wait 10s
  sluice apply -f core.yaml --confirm 5m && sluice confirm
  sluice apply --plan tonight.plan`,
		Args: cobra.NoArgs,
	}
	files := filesFlag(c)
	output := outputFlag(c, "table", "json", "yaml")
	var s changeFlags
	s.owned(c)
	s.confirmed(c)
	plan := c.Flags().String("plan", "", "apply this plan, or nothing if an object that it depends on has changed since")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := s.check(c); err != nil {
			return err
		}
		changes := s.changes()
		var written []*object.Written
		var err error
		if *plan != "" {
			if len(*files) > 0 || s.owner != "" || s.force {
				return errors.New("--plan has the objects and their owner already: leave out -f, --owner and --force")
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
		if err := p.waited(c.Context(), client, applied, &s); err != nil {
			return err
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
		return worse(p.printApplied(applied, *output, expected{written: written, waited: s.wait > 0, accepted: s.noWait}), dangling)
	}
	return c
}

const (
	// How often the statuses of objects that are not ready are read.
	readyInterval = 100 * time.Millisecond
	// How long a change without --wait waits for services to judge objects.
	judgedWithin = 500 * time.Millisecond
)

// ready reads the statuses of applied objects that are not ready, until they are or the time of --wait is over: services may need a moment, and the
// objects that they need may come meanwhile. It does not wait for what is outside of the configuration.
func (p *program) ready(ctx context.Context, client api.AgentClient, applied *api.Applied, s *changeFlags, until time.Time) error {
	if s.noWait || applied.GetUndone() {
		return nil
	}
	if judged := time.Now().Add(judgedWithin); until.Before(judged) {
		until = judged
	}
	for {
		late := map[object.Key]*api.AppliedObject{}
		query := &api.ObjectsQuery{}
		for _, o := range applied.GetObjects() {
			if c := notReady(o.GetStatus()); c != nil && !c.GetExternal() {
				late[object.Key{Kind: o.GetKind(), Name: o.GetName()}] = o
				query.Kinds, query.Names = append(query.Kinds, o.GetKind()), append(query.Names, o.GetName())
			}
		}
		if len(late) == 0 || !time.Now().Before(until) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyInterval):
		}
		slices.Sort(query.Kinds)
		query.Kinds = slices.Compact(query.Kinds)
		err := p.pages(ctx, client, query, func(page []*api.ObjectIntent) error {
			for _, now := range page {
				if o := late[keyOf(now)]; o != nil {
					o.Status = now.GetStatus()
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// notReady returns the condition of an applied object that does not serve; nil: it serves.
func notReady(s *api.Status) *api.Condition {
	if s.GetState() != api.State_APPLIED {
		return nil
	}
	for _, c := range s.GetConditions() {
		if c.GetType() == "Ready" && !c.GetHolds() {
			return c
		}
	}
	return nil
}

// nothingApplied adds the consequence to errors of objects.
func nothingApplied(err error) error {
	if object.AllErrors(err) == nil {
		return err
	}
	return fmt.Errorf("%w\nnothing was applied: all the objects have to be acceptable", err)
}

// warn prints warnings: acceptable settings that do not work as they are.
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
	fmt.Fprintf(p.err, "Warning:\n  %s\n", strings.Join(listSome(lines), "\n  "))
}

// dangling returns an error for each unresolved reference of objects that wait.
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
	known := map[object.Key]bool{}
	for _, o := range found {
		if i := o.GetIntent(); o.GetStatus().GetState() != api.State_DELETING {
			names[i.GetKind()] = append(names[i.GetKind()], i.GetName())
			known[object.Key{Kind: i.GetKind(), Name: i.GetName()}] = true
		}
	}
	// Include planned objects.
	for _, i := range changes.GetPut() {
		names[i.GetKind()] = append(names[i.GetKind()], i.GetName())
		known[object.Key{Kind: i.GetKind(), Name: i.GetName()}] = true
	}
	for kind := range names {
		if k := p.registry.Kind(kind); k != nil {
			names[kind] = append(names[kind], k.Builtin...)
		}
	}
	count := 0
	var errs object.Errors
	for _, one := range all {
		if known[one.To] {
			continue
		}
		// The search for a close name and for a line is slow, so it is limited to the errors that are shown.
		if count++; count > maxListed {
			continue
		}
		e := &object.Error{Object: one.by, Field: one.Field, Problem: fmt.Sprintf("there is no %s %s", one.To.Kind, one.To.Name)}
		candidates := names[one.To.Kind]
		if candidates == nil {
			candidates = p.registry.Kind(one.To.Kind).Builtin
		}
		if near := object.Nearest(one.To.Name, candidates); near != "" {
			e.Problem += "; did you mean " + near + "?"
		}
		errs = append(errs, e)
	}
	if count == 0 {
		return nil, nil
	}
	p.registry.Locate(written, errs)
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = e.Error()
	}
	return fmt.Errorf("%s:\n%s", plural(count, "unresolved reference", "unresolved references"), strings.Join(listSomeOf(lines, count), "\n")), nil
}

// wait brings the statuses up to date until all are applied or the time is over.
func (p *program) wait(ctx context.Context, client api.AgentClient, applied *api.Applied, most time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Not a deadline of the call: the agent would get it, too, and the error would depend on which of the two ends the call first.
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
	// Objects that only wait for the data plane to come back are not listed.
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
			if state := o.GetStatus().GetState(); state == api.State_APPLIED || state == api.State_GONE {
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

// unfinished is the error of an accepted and stored change that is not applied yet.
type unfinished struct{ why string }

func (u *unfinished) Error() string { return u.why }

// worse joins the error of a change with another error; the other one hides that the change is unfinished.
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

// expected is the expected result of a change.
type expected struct {
	written []*object.Written
	// It was waited for that all are applied; it is enough that they are accepted; it is enough that those are gone that were named.
	waited, accepted, deleted bool
}

// printApplied prints the result. It returns an error if an object failed, or *unfinished.
func (p *program) printApplied(applied *api.Applied, output string, e expected) error {
	at := map[object.Key]*object.Written{}
	for _, w := range e.written {
		at[w.Key()] = w
	}
	tally := map[api.Step]int{}
	out, unready, unserving, absent := 0, 0, 0, 0
	var failures, waiting, idle []string
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
		if why := notReady(s); why != nil && !e.deleted && (e.waited || !why.GetExternal()) {
			steps[len(steps)-1].Message = fmt.Sprintf("not ready: %s: %s", why.GetReason(), why.GetMessage())
			idle = append(idle, fmt.Sprintf("%s: %s: %s", where, why.GetReason(), why.GetMessage()))
			if !why.GetExternal() {
				unserving++
			}
		}
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
		fields := map[string]any{"objects": steps, "undone": applied.GetUndone(), "revision": applied.GetRevision()}
		if applied.GetConfirmBy() != 0 {
			fields["confirmBy"] = moment(applied.GetConfirmBy())
		}
		if joined := applied.GetJoined(); joined != nil {
			fields["joined"] = map[string]any{"owner": joined.GetOwner(), "objects": joined.GetObjects(), "besides": joined.GetBesides()}
		}
		if err := p.write(output, false, fields); err != nil {
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
			parts = append(parts, fmt.Sprintf("%d missing", absent))
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
			fmt.Fprintf(&b, "%s not applied yet:\n  %s\n", plural(len(waiting), "object is", "objects are"), strings.Join(listSome(waiting), "\n  "))
		}
		if len(idle) > 0 {
			fmt.Fprintf(&b, "%s applied and not ready:\n  %s\n", plural(len(idle), "object is", "objects are"), strings.Join(listSome(idle), "\n  "))
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
		return fmt.Errorf("nothing was changed, because the data plane refused:\n%s", strings.Join(listSome(failures), "\n"))
	case len(failures) > 0:
		why := fmt.Sprintf("%s not applied:\n%s", plural(len(failures), "object is", "objects are"), strings.Join(listSome(failures), "\n"))
		if failed {
			return errors.New(why)
		}
		return &unfinished{why}
	case unready > 0 && !e.accepted:
		return &unfinished{fmt.Sprintf("accepted and stored; %s not done yet", plural(unready, "object is", "objects are"))}
	case unserving > 0 && e.waited:
		return &unfinished{fmt.Sprintf("%s applied and not ready", plural(unserving, "object is", "objects are"))}
	}
	return nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

const maxListed = 20

// listSome shortens a long list.
func listSome(lines []string) []string { return listSomeOf(lines, len(lines)) }

// listSomeOf is few for a list of which only the first lines were made.
func listSomeOf(lines []string, count int) []string {
	if count <= maxListed {
		return lines
	}
	return append(lines[:maxListed:maxListed], fmt.Sprintf("... and %d more", count-maxListed))
}

// stranded is an error if deletions would remove other objects from the data plane.
func (p *program) stranded(ctx context.Context, client api.AgentClient, changes *api.Changes) error {
	planned, err := client.Plan(ctx, changes)
	if err != nil {
		return nil // the agent reports the change itself
	}
	deleted := make(map[object.Key]bool, len(changes.Delete))
	for _, d := range changes.Delete {
		deleted[object.Key{Kind: d.GetKind(), Name: d.GetName()}] = true
	}
	var users []string
	gone := map[object.Key]bool{}
	for _, s := range planned.GetSteps() {
		key := object.Key{Kind: s.GetKind(), Name: s.GetName()}
		if s.GetWaitsFor() != "" && !deleted[key] {
			users = append(users, fmt.Sprintf("%s would wait for %s", key, s.GetWaitsFor()))
		}
		if s.GetStep() == api.Step_DELETE && deleted[key] {
			gone[key] = true
		}
	}
	more, err := p.servicesNeed(ctx, client, gone)
	if err != nil {
		return err
	}
	// First what people wrote: services delete their own objects with these.
	users = append(more, users...)
	if len(users) == 0 {
		return nil
	}
	return fmt.Errorf("nothing was deleted: other objects need it.\n%s\nDelete these, too, or use --in-use", strings.Join(listSome(users), "\n"))
}

// servicesNeed returns the objects of services that would refer to an object that is gone.
func (p *program) servicesNeed(ctx context.Context, client api.AgentClient, gone map[object.Key]bool) (users []string, err error) {
	query := &api.ObjectsQuery{}
	kinds := map[string]bool{}
	for key := range gone {
		kinds[key.Kind] = true
	}
	for _, k := range p.registry.Kinds() {
		if k.Plane == api.Plane_AGENT && slices.ContainsFunc(k.Named(), func(to *object.Kind) bool { return kinds[to.Name] }) {
			query.Kinds = append(query.Kinds, k.Name)
		}
	}
	if len(query.Kinds) == 0 {
		return nil, nil
	}
	err = p.pages(ctx, client, query, func(page []*api.ObjectIntent) error {
		for _, found := range page {
			i := found.GetIntent()
			o, err := p.registry.New(i.GetKind(), i.GetName(), nil, i.GetSpec())
			if err != nil || gone[o.Key()] || found.GetStatus().GetState() == api.State_DELETING {
				continue
			}
			for _, ref := range p.registry.References(o) {
				if gone[ref.To] {
					users = append(users, fmt.Sprintf("%s would not be ready without %s", o.Key(), ref.To))
				}
			}
		}
		return nil
	})
	return users, err
}

// printOwners prints the remaining owners of released objects.
func (p *program) printOwners(ctx context.Context, client api.AgentClient, applied *api.Applied) {
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
	fmt.Fprintf(p.out, "%s fields of %s.\n", plural(len(stays), "object still has", "objects still have"), who)
}

func (p *program) deleteCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "delete KIND NAME... | -f FILE|DIRECTORY|-",
		Short: "Delete objects",
		Long: `Delete objects by name, or all objects of files. Objects that others refer to are only deleted with --in-use:
the others then leave the data plane, and wait until the object exists again. Those that only services of the agent
use stay applied, and are not ready.

An object of several owners is deleted when the last of them gives it up. An owner can only give up its own fields;
"sluice get all --owner NAME" shows the objects that have some.`,
		Example: `  sluice delete session alice bob
  sluice delete acl/web meter/gold
  sluice delete qosprofile home-100 --in-use --confirm 5m
  sluice delete -f examples/bng`,
		ValidArgsFunction: p.completeNames(-1),
	}
	files := filesFlag(c)
	output := outputFlag(c, "table", "json", "yaml")
	var s changeFlags
	s.owned(c)
	s.confirmed(c)
	inUse := c.Flags().Bool("in-use", false, "also objects that others refer to: the others leave the data plane, or are not ready, until these exist again")
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
				return fmt.Errorf("the name is missing: sluice delete %s NAME", arguments[0])
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
			if err := p.stranded(c.Context(), client, changes); err != nil {
				return err
			}
		}
		applied, err := client.Apply(c.Context(), changes)
		if err != nil {
			return p.refused(err, written)
		}
		p.warn(applied.GetWarnings(), written)
		var missing []string
		if written == nil {
			applied.Objects = slices.DeleteFunc(applied.Objects, func(o *api.AppliedObject) bool {
				gone := o.GetStep() == api.Step_KEEP && o.GetStatus().GetState() == api.State_GONE
				if gone {
					missing = append(missing, absent(c.Context(), client, o.GetKind(), o.GetName(), len(missing) < maxListed))
				}
				return gone
			})
		}
		if err := p.carriedOut(c.Context(), client, applied, &s); err != nil {
			return err
		}
		err = p.printApplied(applied, *output, expected{written: written, waited: s.wait > 0, accepted: s.noWait, deleted: true})
		if *output == "table" {
			p.printOwners(c.Context(), client, applied)
		}
		if len(missing) > 0 {
			return worse(err, errors.New(strings.Join(listSome(missing), "\n")))
		}
		return err
	}
	return c
}
