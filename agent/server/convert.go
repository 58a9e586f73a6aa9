// SPDX-License-Identifier: Apache-2.0

// Types of package intent as the contract's.
package server

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

func stepOf(s intent.Step) api.Step {
	return [...]api.Step{intent.Keep: api.Step_KEEP, intent.Create: api.Step_CREATE, intent.Update: api.Step_UPDATE,
		intent.Replace: api.Step_REPLACE, intent.Delete: api.Step_DELETE}[s]
}

func stateOf(s intent.State) api.State {
	switch s {
	case intent.Applied:
		return api.State_APPLIED
	case intent.Failed:
		return api.State_FAILED
	case intent.Deleting:
		return api.State_DELETING
	case intent.Gone:
		return api.State_GONE
	case intent.Unknown:
		return api.State_UNKNOWN
	}
	return api.State_PENDING
}

func statusOf(s intent.Status) *api.Status {
	out := &api.Status{}
	fillStatus(out, s, new([conditionCount]api.Condition))
	return out
}

// conditionCount is how many there are of each object.
const conditionCount = 3

// fillStatus uses the room that it is given: of many objects, that is made at once.
func fillStatus(out *api.Status, s intent.Status, room *[conditionCount]api.Condition) {
	out.State, out.Message, out.Since, out.Revision = stateOf(s.State), s.Message, nanoseconds(s.Since), s.Revision
	out.Generation, out.ObservedGeneration = s.Generation, s.Observed
	out.Conditions = make([]*api.Condition, conditionCount)
	for i, c := range s.Conditions() {
		one := &room[i]
		one.Unknown, one.External = c.Unknown, c.External
		one.Type, one.Holds, one.Reason, one.Message, one.Time = c.Type, c.Holds, c.Reason, c.Message, nanoseconds(c.Time)
		out.Conditions[i] = one
	}
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (s *server) objectOf(st intent.Status) (*api.ObjectIntent, error) {
	i := &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}
	if st.Object != nil {
		spec, err := object.Pack(st.Object.Spec)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "%s: %v", st.Key, err)
		}
		i.Labels, i.Spec, i.Empty = st.Object.Labels, spec, st.Object.Empty
	}
	out := &api.ObjectIntent{Intent: i, Status: statusOf(st), Owner: st.Owner}
	for _, o := range st.Owners {
		one := &api.Ownership{Owner: o.Owner, Priority: int32(o.Priority), Revision: o.Revision}
		for _, f := range o.Fields {
			one.Fields = append(one.Fields, &api.OwnedField{Field: f.Field, Value: f.Value, Overridden: f.Overridden})
		}
		out.Owners = append(out.Owners, one)
	}
	return out, nil
}

func fieldChanges(changes []object.FieldChange) []*api.FieldChange {
	var all []*api.FieldChange
	for _, c := range changes {
		all = append(all, &api.FieldChange{Field: c.Field, Before: c.Before, After: c.After, Immutable: c.Immutable})
	}
	return all
}

func impactOf(i intent.Impact) api.Impact {
	switch i {
	case reconcile.Outage:
		return api.Impact_OUTAGE
	case reconcile.BriefInterruption:
		return api.Impact_BRIEF_INTERRUPTION
	}
	return api.Impact_NO_IMPACT
}

var impacts = map[api.Impact]intent.Impact{api.Impact_OUTAGE: reconcile.Outage, api.Impact_BRIEF_INTERRUPTION: reconcile.BriefInterruption}

var steps = map[api.Step]intent.Step{api.Step_CREATE: intent.Create, api.Step_UPDATE: intent.Update, api.Step_REPLACE: intent.Replace,
	api.Step_DELETE: intent.Delete}

var actions = map[reconcile.Action]api.Step{reconcile.Create: api.Step_CREATE, reconcile.Update: api.Step_UPDATE, reconcile.Delete: api.Step_DELETE}

func joinedOf(j intent.Joined) *api.Joined {
	if j.Objects == 0 {
		return nil
	}
	return &api.Joined{Owner: j.Owner, Objects: uint32(j.Objects), Besides: j.Besides}
}

func plannedOf(plan *intent.Plan) *api.Planned {
	planned := &api.Planned{Impact: impactOf(plan.Impact), Revision: plan.Revision, Joined: joinedOf(plan.Joined)}
	for _, p := range plan.Steps {
		planned.Steps = append(planned.Steps, &api.PlannedStep{Step: stepOf(p.Step), Kind: p.Key.Kind, Name: p.Key.Name,
			Fields: fieldChanges(p.Fields), Why: p.Why, WaitsFor: p.WaitsFor, Impact: impactOf(p.Impact)})
	}
	for _, o := range plan.Operations {
		planned.Operations = append(planned.Operations, &api.Operation{Action: actions[o.Action], Kind: o.Key.Kind, Name: o.Key.Name,
			Why: o.Reason, Impact: impactOf(o.Impact), Replacing: o.Replacing, Dataplane: o.Dataplane})
	}
	for _, b := range plan.Basis {
		planned.Basis = append(planned.Basis, &api.Basis{Kind: b.Key.Kind, Name: b.Key.Name, Revision: b.Revision, Observed: b.Observed, Said: b.Digest})
	}
	return planned
}

// planFrom returns the parts of a plan that decide whether it is still valid.
func planFrom(planned *api.Planned) *intent.Plan {
	plan := &intent.Plan{Revision: planned.GetRevision(), Impact: impacts[planned.GetImpact()]}
	for _, s := range planned.GetSteps() {
		step := intent.PlannedStep{Step: steps[s.GetStep()], Key: object.Key{Kind: s.GetKind(), Name: s.GetName()}, Why: s.GetWhy(),
			WaitsFor: s.GetWaitsFor(), Impact: impacts[s.GetImpact()]}
		for _, f := range s.GetFields() {
			step.Fields = append(step.Fields, object.FieldChange{Field: f.GetField(), Before: f.GetBefore(), After: f.GetAfter(), Immutable: f.GetImmutable()})
		}
		plan.Steps = append(plan.Steps, step)
	}
	for _, o := range planned.GetOperations() {
		op := intent.Operation{Key: object.Key{Kind: o.GetKind(), Name: o.GetName()}, Replacing: o.GetReplacing(), Dataplane: o.GetDataplane(),
			Impact: impacts[o.GetImpact()]}
		for action, step := range actions {
			if step == o.GetAction() {
				op.Action = action
			}
		}
		plan.Operations = append(plan.Operations, op)
	}
	for _, b := range planned.GetBasis() {
		plan.Basis = append(plan.Basis, intent.Basis{Key: object.Key{Kind: b.GetKind(), Name: b.GetName()}, Revision: b.GetRevision(),
			Observed: b.GetObserved(), Digest: b.GetSaid()})
	}
	return plan
}

func appliedOf(outcome *intent.Outcome) *api.Applied {
	applied := &api.Applied{Undone: outcome.Undone, Revision: outcome.Revision, ConfirmBy: nanoseconds(outcome.ConfirmBy),
		Joined: joinedOf(outcome.Joined)}
	applied.Objects = make([]*api.AppliedObject, len(outcome.Objects))
	object.InParts(len(outcome.Objects), func(from, to int) {
		for from < to {
			end := min(to, from+256)
			rooms := make([]struct {
				object     api.AppliedObject
				status     api.Status
				conditions [conditionCount]api.Condition
			}, end-from)
			for i, o := range outcome.Objects[from:end] {
				room := &rooms[i]
				out := &room.object
				fillStatus(&room.status, o.Status, &room.conditions)
				out.Step, out.Kind, out.Name, out.Status = stepOf(o.Step), o.Status.Key.Kind, o.Status.Key.Name, &room.status
				applied.Objects[from+i] = out
			}
			from = end
		}
	})
	return applied
}
