// SPDX-License-Identifier: Apache-2.0

// The chain of revisions.
package server

import (
	"context"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
)

const (
	usualHistory   = 100
	longestHistory = 1000
)

func (s *server) GetHistory(_ context.Context, q *api.HistoryQuery) (*api.History, error) {
	limit := int(min(q.GetLimit(), longestHistory))
	if limit == 0 {
		limit = usualHistory
	}
	found, err := s.desired.History(q.GetBefore(), limit)
	if err != nil {
		return nil, refusal(err)
	}
	history := &api.History{}
	for _, r := range found {
		var objects []*api.ChangedObject
		for _, o := range r.Objects {
			objects = append(objects, &api.ChangedObject{Step: stepOf(o.Step), Kind: o.Kind, Name: o.Name})
		}
		history.Revisions = append(history.Revisions, &api.Revision{Objects: objects, Number: r.Number, Time: nanoseconds(r.Time), Owner: r.Source.Owner,
			Who: r.Source.Who, Why: r.Source.Why, AllOrNothing: r.Mode == intent.AllOrNothing, Changes: uint32(r.Changes),
			RollbackTo: r.RollbackTo, ConfirmBy: nanoseconds(r.ConfirmBy), Waits: r.Standing.Waits, Overdue: r.Standing.Overdue,
			UndoneBy: r.Standing.UndoneBy, UndoneInPart: r.Standing.InPart})
	}
	return history, nil
}

func (s *server) Compare(_ context.Context, c *api.Comparison) (*api.Differences, error) {
	found, err := s.desired.Diff(c.GetFrom(), c.GetTo())
	if err != nil {
		return nil, refusal(err)
	}
	details := &api.Differences{}
	for _, d := range found {
		details.Objects = append(details.Objects, &api.Difference{Step: stepOf(d.Step), Kind: d.Key.Kind, Name: d.Key.Name,
			Fields: fieldChanges(d.Fields), OwnerBefore: d.OwnerBefore, OwnerAfter: d.OwnerAfter})
	}
	return details, nil
}

// Revision 0 is the empty configuration. A request without a number does not mean it.
var errNothing = &intent.BadQuery{Problem: "revision: 0 is the empty configuration; accepted: a revision's number (to empty the configuration, delete its objects)"}

func (s *server) Rollback(ctx context.Context, r *api.RollbackRequest) (*api.Applied, error) {
	if err := checkTexts("", r.GetWhy()); err != nil {
		return nil, s.refuse("rollback", source(ctx, "", ""), nil, err)
	}
	if r.GetRevision() == 0 {
		return nil, s.refuse("rollback", source(ctx, "", r.GetWhy()), nil, errNothing)
	}
	within, err := confirmWithin(r.GetConfirmWithin())
	if err != nil {
		return nil, s.refuse("rollback", source(ctx, "", r.GetWhy()), nil, err)
	}
	outcome, err := s.desired.Rollback(ctx, source(ctx, "", r.GetWhy()), r.GetRevision(),
		intent.Options{Mode: mode(r.GetAllOrNothing(), r.GetNoWait()), ConfirmWithin: within})
	if err != nil {
		return nil, refusal(err)
	}
	return appliedOf(outcome), nil
}

func (s *server) Confirm(ctx context.Context, c *api.Confirmation) (*api.Confirmed, error) {
	confirmed := &api.Confirmed{Revision: c.GetRevision()}
	if waiting := s.desired.Unconfirmed(); confirmed.Revision == 0 && len(waiting) > 0 {
		confirmed.Revision = waiting[0].Revision
	}
	if err := s.desired.Confirm(source(ctx, "", ""), confirmed.Revision); err != nil {
		return nil, refusal(err)
	}
	return confirmed, nil
}
