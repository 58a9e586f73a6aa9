// What every command that changes something lets people say about the change.
package cli

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// said are the flags of a change.
type said struct {
	owner, why string
	all, force bool
	noWait     bool
	confirm    time.Duration
}

// owned adds who says it.
func (s *said) owned(c *cobra.Command) {
	c.Flags().StringVar(&s.owner, "owner", "", "on whose behalf: an owner changes only what it wants itself (default \"api\")")
	c.Flags().BoolVar(&s.force, "force", false, "take over what another owner says differently")
}

// confirmed adds what makes a change come undone, and why it is made.
func (s *said) confirmed(c *cobra.Command) {
	c.Flags().BoolVar(&s.all, "all-or-nothing", false, "undo everything if the data plane refuses anything")
	c.Flags().BoolVar(&s.noWait, "no-wait", false, "do not wait for data planes: it is done once it is accepted and kept")
	c.MarkFlagsMutuallyExclusive("no-wait", "all-or-nothing")
	spanFlag(c, &s.confirm, "confirm", 0, "roll back by itself after this time, unless 'sluice confirm' comes before")
	c.Flags().StringVar(&s.why, "why", "", "for the history: why")
}

func (s *said) changes() *api.Changes {
	return &api.Changes{Owner: s.owner, Why: s.why, AllOrNothing: s.all, NoWait: s.noWait, Force: s.force, ConfirmWithin: int64(s.confirm)}
}

func (s *said) check(c *cobra.Command) error {
	if c.Flags().Changed("confirm") && s.confirm < time.Second {
		return fmt.Errorf("--confirm %s: want a time of at least 1s, such as 5m", s.confirm)
	}
	return nil
}

// refused explains an error of the agent for a change.
func (p *program) refused(err error, written []*object.Written) error {
	switch status.Code(err) {
	case codes.FailedPrecondition:
		return fmt.Errorf("%s.\n%s", status.Convert(err).Message(), mendOf(err))
	case codes.Aborted:
		return fmt.Errorf("nothing was changed: the plan does not hold any more.\n%s", status.Convert(err).Message())
	}
	return p.problems(err, written)
}

// mendOf says what can be done about a conflict. What others want is not deleted by force.
func mendOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		told, ok := detail.(*api.Problems)
		if ok && slices.ContainsFunc(told.GetProblems(), func(p *api.Problem) bool { return p.GetField() == "" }) {
			return "Say with --owner on whose behalf you speak"
		}
	}
	return "Take over with --force, or say with --owner on whose behalf you speak"
}

// writePlan writes a plan for its owner alone: it holds whole objects.
func writePlan(path string, plan *api.PlanFile) error {
	text, err := protojson.MarshalOptions{Multiline: true}.Marshal(plan)
	if err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, 0o600)
}

func readPlan(path string) (*api.PlanFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	plan := &api.PlanFile{}
	if err := protojson.Unmarshal(text, plan); err != nil || plan.GetPlanned() == nil || plan.GetChanges() == nil {
		return nil, fmt.Errorf("%s: this is no plan; `sluice plan --out` writes one", path)
	}
	return plan, nil
}
