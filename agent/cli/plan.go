// SPDX-License-Identifier: Apache-2.0

// The effects of a change.
package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func (p *program) planCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan -f FILE|DIRECTORY|-",
		Short: "Show what apply would change",
		Long: `Show what apply would do, in order, and change nothing.

  + create    ~ update in place    -/+ replace: delete and create again    - delete, or take out of the data plane

The plan also shows what pending objects wait for, and the steps that cost packets: a brief interruption passes by itself, an
outage lasts until the configuration changes. --out writes the plan to a file: "sluice apply --plan FILE" applies exactly this
plan, or nothing if an object that it depends on has changed since.`,
		Example: `  sluice plan -f examples/bng
  sluice plan -f examples/bng --out tonight.plan && sluice apply --plan tonight.plan
  sluice get acl web -o yaml | sed s/443/8443/ | sluice plan -f -`,
		Args: cobra.NoArgs,
	}
	files := filesFlag(c)
	output := outputFlag(c, "table", "json", "yaml")
	var s changeFlags
	s.owned(c)
	out := c.Flags().String("out", "", "write the plan to this file, too (it holds the objects; only its owner can read it)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		written, err := p.read(*files)
		if err != nil {
			return err
		}
		changes := s.changes()
		if changes.Put, err = intents(written); err != nil {
			return err
		}
		client, err := p.client()
		if err != nil {
			return err
		}
		planned, err := client.Plan(c.Context(), changes)
		if err != nil {
			return p.refused(err, written)
		}
		p.warn(planned.GetWarnings(), written)
		planned.Warnings = nil
		waits := map[object.Key]bool{}
		for _, s := range planned.GetSteps() {
			if s.GetWaitsFor() != "" {
				waits[object.Key{Kind: s.GetKind(), Name: s.GetName()}] = true
			}
		}
		// Objects that services alone use do not wait. They would not be ready.
		for _, i := range changes.GetPut() {
			if k := p.registry.Kind(i.GetKind()); k != nil && k.Plane == api.Plane_AGENT {
				waits[object.Key{Kind: i.GetKind(), Name: i.GetName()}] = true
			}
		}
		if dangling, err := p.dangling(c.Context(), client, changes, waits, written); err != nil {
			return err
		} else if dangling != nil {
			fmt.Fprintf(p.err, "Warning:\n  %s\n", strings.ReplaceAll(dangling.Error(), "\n", "\n  "))
		}
		if *out != "" {
			if err := writePlan(*out, &api.PlanFile{Planned: planned, Changes: changes}); err != nil {
				return err
			}
		}
		if *output != "table" {
			if joined := planned.GetJoined(); joined != nil {
				fmt.Fprintln(p.err, joinedText(joined, true))
			}
			if away := planned.GetDataplaneAway(); away != "" {
				fmt.Fprintln(p.err, awayText(away))
			}
			return p.write(*output, false, planJSON(planned))
		}
		return p.printPlan(planned)
	}
	return c
}

type stepJSON struct {
	Step    string      `json:"step"`
	Kind    string      `json:"kind"`
	Name    string      `json:"name"`
	Fields  []fieldJSON `json:"fields,omitempty"`
	Why     string      `json:"why,omitempty"`
	Waits   string      `json:"waitsFor,omitempty"`
	Impact  string      `json:"impact,omitempty"`
	State   string      `json:"state,omitempty"`
	Message string      `json:"message,omitempty"`
}

type fieldJSON struct {
	Field  string `json:"field"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

func planJSON(planned *api.Planned) []stepJSON {
	all := []stepJSON{}
	for _, s := range planned.GetSteps() {
		step := stepJSON{Step: strings.ToLower(s.GetStep().String()), Kind: s.GetKind(), Name: s.GetName(),
			Why: s.GetWhy(), Waits: s.GetWaitsFor(), Impact: impacts[s.GetImpact()]}
		for _, f := range s.GetFields() {
			step.Fields = append(step.Fields, fieldJSON{f.GetField(), f.GetBefore(), f.GetAfter()})
		}
		all = append(all, step)
	}
	return all
}

var impacts = map[api.Impact]string{api.Impact_BRIEF_INTERRUPTION: "brief interruption", api.Impact_OUTAGE: "outage"}

var marks = map[api.Step]string{api.Step_CREATE: "  +", api.Step_UPDATE: "  ~", api.Step_REPLACE: "-/+", api.Step_DELETE: "  -"}

func (p *program) printPlan(planned *api.Planned) error {
	var b strings.Builder
	tally := map[api.Step]int{}
	out, waiting := 0, 0
	for _, s := range planned.GetSteps() {
		mark := marks[s.GetStep()]
		switch {
		case s.GetWaitsFor() == "":
			tally[s.GetStep()]++
		case s.GetStep() == api.Step_REPLACE:
			out++
			mark = marks[api.Step_DELETE]
		default:
			tally[s.GetStep()]++
			waiting++
		}
		if s.GetStep() == api.Step_KEEP {
			continue
		}
		fmt.Fprintf(&b, "%s %s %s", mark, s.GetKind(), s.GetName())
		notes := []string{}
		for _, note := range []string{reason(s), impacts[s.GetImpact()]} {
			if note != "" {
				notes = append(notes, note)
			}
		}
		if len(notes) > 0 {
			fmt.Fprintf(&b, "   (%s)", strings.Join(notes, "; "))
		}
		b.WriteString("\n")
		printFields(&b, s.GetFields())
	}
	if len(planned.GetSteps()) == tally[api.Step_KEEP] {
		b.WriteString("Nothing to change.\n")
	} else {
		fmt.Fprintf(&b, "\nPlan: %d to create, %d to update, %d to replace, %d to delete",
			tally[api.Step_CREATE], tally[api.Step_UPDATE], tally[api.Step_REPLACE], tally[api.Step_DELETE])
		if out > 0 {
			fmt.Fprintf(&b, ", %d taken out of the data plane", out)
		}
		if waiting > 0 {
			fmt.Fprintf(&b, "; %d of these will wait", waiting)
		}
		b.WriteString(".\n")
	}
	if joined := planned.GetJoined(); joined != nil {
		b.WriteString(joinedText(joined, true) + "\n")
	}
	if away := planned.GetDataplaneAway(); away != "" {
		b.WriteString(awayText(away) + "\n")
	}
	_, err := fmt.Fprint(p.out, b.String())
	return err
}

func awayText(why string) string {
	return fmt.Sprintf("The data plane is away (%s): the plan uses its last known state, and the agent carries it out when the data plane is back.", why)
}

// joinedText names the other owners of objects that the change joins.
func joinedText(j *api.Joined, planned bool) string {
	objects := plural(int(j.GetObjects()), "object now has", "objects now have")
	if planned {
		objects = plural(int(j.GetObjects()), "object", "objects") + " would have"
	}
	return fmt.Sprintf("%s fields of %s, besides %s.", objects, j.GetOwner(), strings.Join(j.GetBesides(), " and "))
}

func printFields(b *strings.Builder, fields []*api.FieldChange) {
	for _, f := range fields {
		switch {
		case f.GetBefore() == "":
			fmt.Fprintf(b, "      %s: %s\n", f.GetField(), f.GetAfter())
		case f.GetAfter() == "":
			fmt.Fprintf(b, "      %s: %s -> (left out)\n", f.GetField(), f.GetBefore())
		default:
			fmt.Fprintf(b, "      %s: %s -> %s\n", f.GetField(), f.GetBefore(), f.GetAfter())
		}
	}
}

// reason is the reason of a step, and the object that it waits for.
func reason(s *api.PlannedStep) string {
	switch {
	case s.GetWaitsFor() == "":
		return s.GetWhy()
	case s.GetStep() == api.Step_REPLACE:
		return "taken out of the data plane: waits for " + s.GetWaitsFor()
	case s.GetStep() == api.Step_UPDATE:
		return "will wait for " + s.GetWaitsFor() + "; " + s.GetWhy()
	}
	return "will wait for " + s.GetWaitsFor()
}
