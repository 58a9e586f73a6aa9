// The chain of revisions: who changed what, and back again.
package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

func (p *program) historyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "history",
		Short: "Show who changed what is wanted, when and why",
		Long: `Show the revisions of what is wanted, the latest first. Each is there whole: "sluice diff" compares two, and
"sluice rollback" goes back to one. Of one that was applied with --confirm it says whether it waits, was confirmed or was undone.
Sessions that protocols bring up and take down are no part of it.`,
		Example: `  sluice history
  sluice history --limit 5 -o json`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c, "table", "json", "yaml")
	limit := c.Flags().Uint32("limit", 20, "at most so many")
	before := c.Flags().Uint64("before", 0, "only those before this revision")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *limit == 0 || *limit > 1000 {
			return fmt.Errorf("--limit %d: want 1 to 1000", *limit)
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		history, err := client.GetHistory(c.Context(), &api.HistoryQuery{Before: *before, Limit: *limit})
		if err != nil {
			return err
		}
		if *output != "table" {
			return p.write(*output, false, historyJSON(history))
		}
		if len(history.GetRevisions()) == 0 {
			fmt.Fprintln(p.err, "Nothing was changed yet.")
			return nil
		}
		t := table{heading: []string{">REVISION", "TIME", "OWNER", "WHO", ">OBJECTS", "WHAT"}}
		for _, r := range history.GetRevisions() {
			t.add(strconv.FormatUint(r.GetNumber(), 10), moment(r.GetTime()), r.GetOwner(), orDash(r.GetWho()),
				strconv.FormatUint(uint64(r.GetChanges()), 10), orDash(whatOf(r)))
		}
		return t.write(p.out)
	}
	return c
}

// whatOf says what a revision is about.
func whatOf(r *api.Revision) string {
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

// standingOf says what became of a revision that had to be confirmed or was undone.
func standingOf(r *api.Revision) string {
	by := fmt.Sprintf(" by revision %d", r.GetUndoneBy())
	switch {
	case r.GetUndoneBy() != 0 && !r.GetUndoneInPart():
		return "undone" + by
	case r.GetOverdue() && r.GetUndoneInPart():
		return "undone in part" + by + ", the rest is tried again"
	case r.GetOverdue():
		return "is to be undone, which is tried again"
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
	Revision     uint64 `json:"revision"`
	Time         string `json:"time"`
	Owner        string `json:"owner"`
	Who          string `json:"who,omitempty"`
	Why          string `json:"why,omitempty"`
	Objects      uint32 `json:"objects"`
	AllOrNothing bool   `json:"allOrNothing,omitempty"`
	RollbackTo   uint64 `json:"rollbackTo,omitempty"`
	ConfirmBy    string `json:"confirmBy,omitempty"`
	Standing     string `json:"standing,omitempty"`
	UndoneBy     uint64 `json:"undoneBy,omitempty"`
}

func historyJSON(history *api.History) []revisionJSON {
	all := []revisionJSON{}
	for _, r := range history.GetRevisions() {
		one := revisionJSON{Revision: r.GetNumber(), Time: moment(r.GetTime()), Owner: r.GetOwner(), Who: r.GetWho(), Why: r.GetWhy(),
			Objects: r.GetChanges(), AllOrNothing: r.GetAllOrNothing(), RollbackTo: r.GetRollbackTo(),
			Standing: standing(r), UndoneBy: r.GetUndoneBy()}
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
		Short: "Show what a revision changed, or how two differ",
		Long: `Without a revision: what the latest one changed. With one: what has changed since. With two: how they differ;
revision 0 is before anything was wanted.`,
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
		asked := &api.Comparison{}
		for i, argument := range arguments {
			revision, err := revisionOf(argument)
			if err != nil {
				return err
			}
			if i == 0 {
				asked.From = revision
			} else if asked.To = revision; revision == 0 {
				return fmt.Errorf("revision 0 is before anything was wanted: say it first")
			}
		}
		if len(arguments) == 0 {
			latest, err := client.GetHistory(c.Context(), &api.HistoryQuery{Limit: 1})
			if err != nil {
				return err
			}
			for _, r := range latest.GetRevisions() {
				asked.From, asked.To = r.GetNumber()-1, r.GetNumber()
			}
		}
		found, err := client.Compare(c.Context(), asked)
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
		return 0, fmt.Errorf("%q is no revision: want its number, as in `sluice history`", argument)
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
			// What it costs to get there is no matter here.
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
		Short: "Want again what was wanted at a revision",
		Long: `Want again what was wanted at a revision, and nothing else. That is a new revision: rolling back can be rolled back.
Sessions that protocols brought up stay. "sluice diff REVISION" shows beforehand what has changed since.`,
		Example: `  sluice rollback 17
  sluice rollback 17 --all-or-nothing --confirm 5m --why 'customers without IPv6'`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(c, "table", "json", "yaml")
	var s said
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
		return p.printApplied(applied, *output, expected{accepted: s.noWait})
	}
	return c
}

func (p *program) confirmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confirm [REVISION]",
		Short: "Let a change stand that was applied with --confirm",
		Long:  `Let a change stand that was applied with --confirm: it is not rolled back by itself any more.`,
		Example: `  sluice apply -f examples/bng --confirm 5m
  sluice confirm`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			asked := &api.Confirmation{}
			if len(arguments) > 0 {
				revision, err := revisionOf(arguments[0])
				if err != nil {
					return err
				}
				asked.Revision = revision
			}
			client, err := p.client()
			if err != nil {
				return err
			}
			confirmed, err := client.Confirm(c.Context(), asked)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "Revision %d is confirmed.\n", confirmed.GetRevision())
			for _, r := range confirmed.GetWaiting() {
				fmt.Fprintf(p.out, "Revision %d still waits to be confirmed: sluice confirm %d\n", r, r)
			}
			return nil
		},
	}
}
