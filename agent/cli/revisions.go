// SPDX-License-Identifier: Apache-2.0

// The history of revisions, and rollback.
package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
)

func (p *program) historyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "history [REVISION]",
		Short: "Show who changed which objects, when and why",
		Long: `Show the revisions of the configuration, the latest first, with the changes of each; or, for one revision, every object and its
change. "sluice diff" compares two revisions, and "sluice rollback" goes back to one. For a change with --confirm, the list shows
whether it waits, was confirmed or was undone. Sessions that protocols bring up and take down are not part of the history.`,
		Example: `  sluice history
  sluice history 17
  sluice history --limit 5 -o json`,
		Args: cobra.MaximumNArgs(1),
	}
	output := outputFlag(c, "table", "json", "yaml")
	limit := c.Flags().Uint32("limit", 20, "the largest number of revisions")
	before := c.Flags().Uint64("before", 0, "only those before this revision")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		if *limit == 0 || *limit > 1000 {
			return fmt.Errorf("--limit %d: accepted: 1 to 1000", *limit)
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		if len(arguments) > 0 {
			if c.Flags().Changed("limit") || c.Flags().Changed("before") {
				return errors.New("use either a revision or --limit and --before")
			}
			return p.oneRevision(c.Context(), client, arguments[0], *output)
		}
		history, err := client.GetHistory(c.Context(), &api.HistoryQuery{Before: *before, Limit: *limit})
		if err != nil {
			return err
		}
		if *output != "table" {
			return p.write(*output, false, historyJSON(history))
		}
		if len(history.GetRevisions()) == 0 {
			fmt.Fprintln(p.err, "There are no revisions.")
			return nil
		}
		t := table{heading: []string{">REVISION", "TIME", "OWNER", "WHO", ">OBJECTS", "CHANGES", "WHY"}}
		for _, r := range history.GetRevisions() {
			t.add(strconv.FormatUint(r.GetNumber(), 10), moment(r.GetTime()), r.GetOwner(), orDash(r.GetWho()),
				strconv.FormatUint(uint64(r.GetChanges()), 10), orDash(p.changesOf(r)), orDash(summaryOf(r)))
		}
		return t.write(p.out)
	}
	return c
}

// changesOf counts the objects that a revision changed by kind: "1 port, 2 sessions created; 1 acl deleted". The agent names the first.
func (p *program) changesOf(r *api.Revision) string {
	counts := map[api.Step]map[string]int{}
	for _, o := range r.GetObjects() {
		if counts[o.GetStep()] == nil {
			counts[o.GetStep()] = map[string]int{}
		}
		counts[o.GetStep()][o.GetKind()]++
	}
	var parts []string
	for _, step := range []api.Step{api.Step_CREATE, api.Step_UPDATE, api.Step_REPLACE, api.Step_DELETE, api.Step_KEEP} {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(counts[step])) {
			many := strings.ToLower(kind)
			if k := p.registry.Kind(kind); k != nil {
				many = k.Plural
			}
			kinds = append(kinds, plural(counts[step][kind], singular(many), many))
		}
		if len(kinds) > 0 {
			parts = append(parts, strings.Join(kinds, ", ")+" "+changed(step))
		}
	}
	if more := int(r.GetChanges()) - len(r.GetObjects()); more > 0 && len(parts) > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// singular is one of a kind's plural: "ipsec-policy" of "ipsec-policies".
func singular(many string) string {
	if stem, is := strings.CutSuffix(many, "ies"); is {
		return stem + "y"
	}
	return strings.TrimSuffix(many, "s")
}

// changed is a revision's change of an object.
func changed(s api.Step) string {
	if s == api.Step_KEEP {
		return "given to another owner"
	}
	return done[s]
}

// oneRevision shows a revision and every object that it changed.
func (p *program) oneRevision(ctx context.Context, client api.AgentClient, argument, output string) error {
	number, err := revisionOf(argument)
	if err != nil {
		return err
	}
	history := &api.History{}
	if number > 0 && number < math.MaxUint64 {
		if history, err = client.GetHistory(ctx, &api.HistoryQuery{Before: number + 1, Limit: 1}); err != nil {
			return err
		}
	}
	if len(history.GetRevisions()) == 0 || history.GetRevisions()[0].GetNumber() != number {
		return fmt.Errorf("there is no revision %d; `sluice history` shows which there are", number)
	}
	r := history.GetRevisions()[0]
	if int(r.GetChanges()) > len(r.GetObjects()) {
		// The agent names only the first objects. The comparison names all of them while the revision before is
		// stored.
		found, err := client.Compare(ctx, &api.Comparison{From: number - 1, To: number})
		if err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		if len(found.GetObjects()) > len(r.GetObjects()) {
			r.Objects = nil
			for _, d := range found.GetObjects() {
				r.Objects = append(r.Objects, &api.ChangedObject{Step: d.GetStep(), Kind: d.GetKind(), Name: d.GetName()})
			}
		}
	}
	if output != "table" {
		return p.write(output, false, historyJSON(history)[0])
	}
	if _, err := fmt.Fprintf(p.out, "Revision %d\n  time     %s\n  owner    %s\n  who      %s\n  why      %s\n  objects  %d\n\n", number, moment(r.GetTime()), r.GetOwner(),
		orDash(r.GetWho()), orDash(line(summaryOf(r))), r.GetChanges()); err != nil {
		return err
	}
	t := table{indent: "  ", heading: []string{"CHANGE", "OBJECT"}}
	for _, o := range r.GetObjects() {
		t.add(changed(o.GetStep()), o.GetKind()+"/"+o.GetName())
	}
	if more := int(r.GetChanges()) - len(r.GetObjects()); more > 0 {
		t.add("...", fmt.Sprintf("and %d more", more))
	}
	return t.write(p.out)
}

// summaryOf summarizes a revision.
func summaryOf(r *api.Revision) string {
	var parts []string
	if r.GetWhy() != "" {
		parts = append(parts, r.GetWhy())
	}
	if r.GetRollbackTo() != 0 && !strings.Contains(r.GetWhy(), "undone") {
		parts = append(parts, fmt.Sprintf("back to revision %d", r.GetRollbackTo()))
	}
	if standing := standingOf(r); standing != "" {
		parts = append(parts, standing)
	}
	return strings.Join(parts, "; ")
}

// standingOf is the state of a revision that needed confirmation or was undone.
func standingOf(r *api.Revision) string {
	by := fmt.Sprintf(" by revision %d", r.GetUndoneBy())
	switch {
	case r.GetUndoneBy() != 0 && !r.GetUndoneInPart():
		return "undone" + by
	case r.GetOverdue() && r.GetUndoneInPart():
		return "undone in part" + by + ", the rest is tried again"
	case r.GetOverdue():
		return "could not be undone; the agent tries again"
	case r.GetWaits():
		return "waits to be confirmed until " + moment(r.GetConfirmBy())
	case r.GetUndoneInPart():
		return "undone in part" + by + ", the rest was confirmed"
	case r.GetConfirmBy() != 0:
		return "confirmed"
	}
	return ""
}

// standing is standingOf in a word, for programs.
func standing(r *api.Revision) string {
	switch {
	case r.GetUndoneBy() != 0 && !r.GetUndoneInPart():
		return "undone"
	case r.GetOverdue():
		return "overdue"
	case r.GetWaits():
		return "waiting"
	case r.GetConfirmBy() != 0 || r.GetUndoneInPart():
		return "confirmed"
	}
	return ""
}

func moment(nanoseconds int64) string { return time.Unix(0, nanoseconds).UTC().Format(time.RFC3339) }

type revisionJSON struct {
	Revision uint64 `json:"revision"`
	Time     string `json:"time"`
	Owner    string `json:"owner"`
	Who      string `json:"who,omitempty"`
	Why      string `json:"why,omitempty"`
	Objects  uint32 `json:"objects"`
	// Of `history`, the first of them.
	Changed      []changedJSON `json:"changed,omitempty"`
	AllOrNothing bool          `json:"allOrNothing,omitempty"`
	RollbackTo   uint64        `json:"rollbackTo,omitempty"`
	ConfirmBy    string        `json:"confirmBy,omitempty"`
	Standing     string        `json:"standing,omitempty"`
	UndoneBy     uint64        `json:"undoneBy,omitempty"`
}

type changedJSON struct {
	Step string `json:"step"`
	Kind string `json:"kind"`
	Name string `json:"name"`
}

func historyJSON(history *api.History) []revisionJSON {
	all := []revisionJSON{}
	for _, r := range history.GetRevisions() {
		one := revisionJSON{Revision: r.GetNumber(), Time: moment(r.GetTime()), Owner: r.GetOwner(), Who: r.GetWho(), Why: r.GetWhy(),
			Objects: r.GetChanges(), AllOrNothing: r.GetAllOrNothing(), RollbackTo: r.GetRollbackTo(),
			Standing: standing(r), UndoneBy: r.GetUndoneBy()}
		for _, o := range r.GetObjects() {
			one.Changed = append(one.Changed, changedJSON{strings.ToLower(o.GetStep().String()), o.GetKind(), o.GetName()})
		}
		if r.GetConfirmBy() != 0 {
			one.ConfirmBy = moment(r.GetConfirmBy())
		}
		all = append(all, one)
	}
	return all
}

func (p *program) diffCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "diff [REVISION [REVISION]]",
		Short: "Show the changes of a revision, or between two",
		Long: `Without a revision: the changes of the latest one. With one: the changes since. With two: their difference;
revision 0 is the empty configuration.`,
		Example: `  sluice diff
  sluice diff 17
  sluice diff 17 21 -o json`,
		Args: cobra.MaximumNArgs(2),
	}
	output := outputFlag(c, "table", "json", "yaml")
	c.RunE = func(c *cobra.Command, arguments []string) error {
		client, err := p.client()
		if err != nil {
			return err
		}
		request := &api.Comparison{}
		for i, argument := range arguments {
			revision, err := revisionOf(argument)
			if err != nil {
				return err
			}
			if i == 0 {
				request.From = revision
			} else if request.To = revision; revision == 0 {
				return fmt.Errorf("revision 0 is the empty configuration: write it first")
			}
		}
		if len(arguments) == 0 {
			latest, err := client.GetHistory(c.Context(), &api.HistoryQuery{Limit: 1})
			if err != nil {
				return err
			}
			for _, r := range latest.GetRevisions() {
				request.From, request.To = r.GetNumber()-1, r.GetNumber()
			}
		}
		found, err := client.Compare(c.Context(), request)
		if err != nil {
			return err
		}
		if *output != "table" {
			return p.write(*output, false, differencesJSON(found))
		}
		return p.printDifferences(found)
	}
	return c
}

func revisionOf(argument string) (uint64, error) {
	revision, err := strconv.ParseUint(argument, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not the number of a revision; `sluice history` lists them", argument)
	}
	return revision, nil
}

type differenceJSON struct {
	Step        string      `json:"step"`
	Kind        string      `json:"kind"`
	Name        string      `json:"name"`
	OwnerBefore string      `json:"ownerBefore,omitempty"`
	OwnerAfter  string      `json:"ownerAfter,omitempty"`
	Fields      []fieldJSON `json:"fields,omitempty"`
}

func differencesJSON(found *api.Differences) []differenceJSON {
	all := []differenceJSON{}
	for _, d := range found.GetObjects() {
		one := differenceJSON{Step: strings.ToLower(d.GetStep().String()), Kind: d.GetKind(), Name: d.GetName(),
			OwnerBefore: d.GetOwnerBefore(), OwnerAfter: d.GetOwnerAfter()}
		for _, f := range d.GetFields() {
			one.Fields = append(one.Fields, fieldJSON{f.GetField(), f.GetBefore(), f.GetAfter()})
		}
		all = append(all, one)
	}
	return all
}

func (p *program) printDifferences(found *api.Differences) error {
	var b strings.Builder
	for _, d := range found.GetObjects() {
		mark := marks[d.GetStep()]
		if mark == "" || d.GetStep() == api.Step_REPLACE {
			// The impact does not matter here.
			mark = marks[api.Step_UPDATE]
		}
		fmt.Fprintf(&b, "%s %s %s", mark, d.GetKind(), d.GetName())
		if d.GetOwnerBefore() != d.GetOwnerAfter() && d.GetOwnerBefore() != "" && d.GetOwnerAfter() != "" {
			fmt.Fprintf(&b, "   (%s's now, before %s's)", d.GetOwnerAfter(), d.GetOwnerBefore())
		}
		b.WriteString("\n")
		printFields(&b, d.GetFields())
	}
	if len(found.GetObjects()) == 0 {
		b.WriteString("No difference.\n")
	}
	_, err := fmt.Fprint(p.out, b.String())
	return err
}

func (p *program) rollbackCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollback REVISION",
		Short: "Restore the configuration of a revision",
		Long: `Restore the configuration of a revision. The rollback is a new revision, and can be rolled back, too. Sessions that protocols
brought up stay. "sluice diff REVISION" shows the changes since that revision.`,
		Example: `  sluice rollback 17
  sluice rollback 17 --all-or-nothing --confirm 5m --why 'customers without IPv6'`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(c, "table", "json", "yaml")
	var s changeFlags
	s.confirmed(c)
	c.RunE = func(c *cobra.Command, arguments []string) error {
		revision, err := revisionOf(arguments[0])
		if err == nil {
			err = s.check(c)
		}
		if err != nil {
			return err
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		applied, err := client.Rollback(c.Context(), &api.RollbackRequest{Revision: revision, AllOrNothing: s.all, Why: s.why, ConfirmWithin: int64(s.confirm),
			NoWait: s.noWait})
		if err != nil {
			return p.problems(err, nil)
		}
		if err := p.waited(c.Context(), client, applied, &s); err != nil {
			return err
		}
		return p.printApplied(applied, *output, expected{waited: s.wait > 0, accepted: s.noWait})
	}
	return c
}

func (p *program) confirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm [REVISION]",
		Short: "Confirm a change that was applied with --confirm",
		Long:  `Confirm a change that was applied with --confirm: the agent no longer rolls it back.`,
		Example: `  sluice apply -f examples/bng --confirm 5m
  sluice confirm`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			request := &api.Confirmation{}
			if len(arguments) > 0 {
				revision, err := revisionOf(arguments[0])
				if err != nil {
					return err
				}
				request.Revision = revision
			}
			client, err := p.client()
			if err != nil {
				return err
			}
			confirmed, err := client.Confirm(c.Context(), request)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "Revision %d is confirmed.\n", confirmed.GetRevision())
			return nil
		},
	}
}
