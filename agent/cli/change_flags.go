// SPDX-License-Identifier: Apache-2.0

// Flags of all commands that change the configuration.
package cli

import (
	"context"
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

// changeFlags has the flags of a change.
type changeFlags struct {
	owner, why string
	all, force bool
	noWait     bool
	confirm    time.Duration
	wait       time.Duration
}

// owned adds the flags of the owner.
func (s *changeFlags) owned(c *cobra.Command) {
	c.Flags().StringVar(&s.owner, "owner", "", "owner of the change: an owner changes only its own fields (default \"api\")")
	c.Flags().BoolVar(&s.force, "force", false, "take over fields that another owner set to other values")
}

// confirmed adds the flags for waiting, undoing, and the reason.
func (s *changeFlags) confirmed(c *cobra.Command) {
	c.Flags().BoolVar(&s.all, "all-or-nothing", false, "undo the whole change if the data plane refuses a part of it")
	c.Flags().BoolVar(&s.noWait, "no-wait", false, "do not wait for data planes: the change is done once it is accepted and stored")
	c.MarkFlagsMutuallyExclusive("no-wait", "all-or-nothing")
	spanFlag(c, &s.wait, "wait", 0, "wait up to this long until data planes have carried out the change and objects are ready, and fail if they are not")
	spanFlag(c, &s.confirm, "confirm", 0, "roll back after this time, unless 'sluice confirm' comes before")
	c.Flags().StringVar(&s.why, "why", "", "reason, for the history")
}

func (s *changeFlags) changes() *api.Changes {
	return &api.Changes{Owner: s.owner, Why: s.why, AllOrNothing: s.all, NoWait: s.noWait, Force: s.force, ConfirmWithin: int64(s.confirm)}
}

func (s *changeFlags) check(c *cobra.Command) error {
	if c.Flags().Changed("confirm") && s.confirm < time.Second {
		return fmt.Errorf("--confirm %s: accepted: at least 1s, such as 5m", s.confirm)
	}
	return nil
}

// waited waits for data planes and services for the time of --wait.
func (p *program) waited(ctx context.Context, client api.AgentClient, applied *api.Applied, s *changeFlags) error {
	until := time.Now().Add(s.wait)
	if err := p.carriedOut(ctx, client, applied, s); err != nil {
		return err
	}
	return p.ready(ctx, client, applied, s, until)
}

// carriedOut waits for data planes for the time of --wait.
func (p *program) carriedOut(ctx context.Context, client api.AgentClient, applied *api.Applied, s *changeFlags) error {
	if s.wait <= 0 || applied.GetUndone() {
		return nil
	}
	return p.wait(ctx, client, applied, s.wait)
}

// refused explains an error of the agent for a change.
func (p *program) refused(err error, written []*object.Written) error {
	switch status.Code(err) {
	case codes.FailedPrecondition:
		return fmt.Errorf("%s.\n%s", status.Convert(err).Message(), mendOf(err))
	case codes.Aborted:
		return fmt.Errorf("nothing was changed: the plan is outdated.\n%s", status.Convert(err).Message())
	}
	return p.problems(err, written)
}

// mendOf returns the ways to resolve a conflict. --force does not delete objects of other owners.
func mendOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		problems, ok := detail.(*api.Problems)
		if ok && slices.ContainsFunc(problems.GetProblems(), func(p *api.Problem) bool { return p.GetField() == "" }) {
			return "Choose the owner with --owner"
		}
	}
	return "Take over with --force, or choose the owner with --owner"
}

// writePlan writes a plan that only its owner can read: it has whole objects.
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
		return nil, fmt.Errorf("%s: this is not a plan; `sluice plan --out` writes one", path)
	}
	return plan, nil
}
