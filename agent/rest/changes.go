// SPDX-License-Identifier: Apache-2.0

// Many objects at once, and the chain of revisions.
package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

func (q *request) options() (intent.Options, error) {
	o := intent.Options{Mode: modes[q.values["mode"]], Force: q.values["force"] == "true", Complete: q.values["complete"] == "true"}
	if text := q.values["confirmWithin"]; text != "" {
		var err error
		if o.ConfirmWithin, err = time.ParseDuration(text); err != nil {
			return o, badRequest("confirmWithin", "not a time", text, "at most 168h")
		}
	}
	return o, nil
}

// change carries out changes. The status is 200, or 202 if data planes were too slow.
func (q *request) change(changes []object.Change, expect map[object.Key]uint64) (*intent.Outcome, int, error) {
	options, err := q.options()
	if err != nil {
		return nil, 0, q.refused(err)
	}
	options.Expect = expect
	outcome, err := q.environment.Intent.Apply(q.ctx, q.source(), changes, options)
	return finished(outcome, err)
}

func finished(outcome *intent.Outcome, err error) (*intent.Outcome, int, error) {
	switch {
	case outcome == nil:
		return nil, 0, err
	case outcome.Undone:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, 0, err
		}
		p := &problem{status: http.StatusUnprocessableEntity, kind: "refused", detail: "the data plane refused a part of the change; the configuration before it is restored"}
		for _, f := range outcome.Failures[:min(len(outcome.Failures), maxMistakes)] {
			p.errors = append(p.errors, mistake{Object: f.Key.String(), Problem: f.Message})
		}
		if len(p.errors) == 0 {
			p.status, p.kind, p.detail = http.StatusGatewayTimeout, "late", "the data plane did not answer in time; the configuration before the change is restored"
		}
		return nil, 0, p
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return outcome, http.StatusAccepted, nil
	case err != nil:
		return nil, 0, err
	}
	return outcome, http.StatusOK, nil
}

// changes are the changes of a request, and all their errors.
type changes struct {
	*request
	all      []object.Change
	expect   map[object.Key]uint64
	mistakes []mistake
	seen     map[string]bool
}

// sent reads the changes. It reports all mistakes at once.
func (q *request) sent() ([]object.Change, map[object.Key]uint64, error) {
	text, err := q.text()
	if err != nil {
		return nil, nil, err
	}
	c := changes{request: q, seen: map[string]bool{}}
	if err := object.MembersOfJSON(text, c.take); err != nil {
		var p *problem
		if errors.As(err, &p) || q.ctx.Err() != nil {
			return nil, nil, err
		}
		return nil, nil, badRequest("", err.Error(), "", "JSON")
	}
	if len(c.mistakes) > 0 {
		m := c.mistakes[0]
		e := object.Error{Field: m.Field, Problem: m.Problem, Found: m.Found, Accepted: m.Accepted}
		return nil, nil, invalid(c.mistakes, m.Object+": "+e.Sentence())
	}
	return c.all, c.expect, nil
}

// take is the callback of object.MembersOfJSON.
func (c *changes) take(name string, at int, n *yaml.Node) error {
	switch {
	case at >= 0 && len(c.mistakes) >= maxMistakes:
		return c.ctx.Err()
	case at >= 0 && name == "put":
		o, errs := c.environment.Registry.Object(n)
		if len(errs) > 0 {
			c.mistakes = append(c.mistakes, mistakesOf(errs, &at)...)
		} else {
			c.all = append(c.all, object.Put(o))
		}
		return c.ctx.Err()
	case at >= 0:
		return c.named(name, at, n)
	case name == "" && n != nil && !object.IsMapping(n):
		return badRequest("", "not changes", "", "an object with put, delete and expect")
	case c.seen[name]:
		return badRequest(name, "duplicate field", "", "each field once")
	case name != "put" && name != "delete" && name != "expect":
		return badRequest(name[:min(len(name), 80)], "there is no such field", "", "put, delete, expect")
	case n != nil:
		return badRequest(name, "not a list", "", "a list")
	}
	c.seen[name] = true
	return nil
}

// named reads a reference to an object.
func (c *changes) named(member string, at int, n *yaml.Node) error {
	k, revision, err := c.reference(fmt.Sprintf("%s[%d]", member, at), n, member == "expect")
	switch {
	case err != nil:
		return err
	case member == "delete":
		c.all = append(c.all, object.Remove(k))
	case c.expect == nil:
		c.expect = map[object.Key]uint64{k: revision}
	default:
		c.expect[k] = revision
	}
	return nil
}

// reference reads a reference to an object, with or without a revision.
func (q *request) reference(field string, n *yaml.Node, revised bool) (object.Key, uint64, error) {
	var k object.Key
	var revision uint64
	accepted := "an object with kind and name"
	if revised {
		accepted += " and revision"
	}
	if !object.IsMapping(n) {
		return k, 0, badRequest(field, "not an object", "", accepted)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		var err error
		switch {
		case name == "kind" && value.Tag == "!!str" && k.Kind == "":
			k.Kind = value.Value
		case name == "name" && value.Tag == "!!str" && k.Name == "":
			k.Name = value.Value
		case name == "revision" && revised && (value.Tag == "!!int" || value.Tag == "!!float"):
			// To JSON Schema, 7.0 is a whole number.
			revision, err = strconv.ParseUint(strings.TrimSuffix(value.Value, ".0"), 10, 63)
			revised = false
		default:
			err = errors.New("not acceptable")
		}
		if err != nil {
			return k, 0, badRequest(field+"."+name[:min(len(name), 80)], "not acceptable", "", accepted)
		}
	}
	if q.environment.Registry.Kind(k.Kind) == nil {
		return k, 0, badRequest(field+".kind", "there is no such kind", strconv.Quote(k.Kind[:min(len(k.Kind), 80)]), "")
	}
	if !nameShape.MatchString(k.Name) || len(k.Name) > 253 || revised {
		return k, 0, badRequest(field, "missing, or not a name", "", accepted)
	}
	return k, revision, nil
}

type appliedView struct {
	Revision  uint64      `json:"revision"`
	ConfirmBy string      `json:"confirmBy,omitempty"`
	Objects   []doneView  `json:"objects"`
	Joined    *joinedView `json:"joined,omitempty"`
}

// joinedView is of objects of other owners in which an owner gets fields.
type joinedView struct {
	Owner   string   `json:"owner"`
	Objects int      `json:"objects"`
	Besides []string `json:"besides"`
}

func joinedOf(j intent.Joined) *joinedView {
	if j.Objects == 0 {
		return nil
	}
	return &joinedView{j.Owner, j.Objects, j.Besides}
}

type doneView struct {
	Step   string     `json:"step"`
	Kind   string     `json:"kind"`
	Name   string     `json:"name"`
	Status statusView `json:"status"`
}

func appliedOf(outcome *intent.Outcome) *appliedView {
	v := &appliedView{Revision: outcome.Revision, ConfirmBy: moment(outcome.ConfirmBy), Objects: []doneView{}, Joined: joinedOf(outcome.Joined)}
	for _, o := range outcome.Objects {
		v.Objects = append(v.Objects, doneView{o.Step.String(), o.Status.Key.Kind, o.Status.Key.Name, statusOf(o.Status)})
	}
	return v
}

func (q *request) apply() error {
	changes, expect, err := q.sent()
	if err != nil {
		return q.refused(err)
	}
	outcome, status, err := q.change(changes, expect)
	if err != nil {
		return err
	}
	return q.json(status, appliedOf(outcome))
}

type fieldView struct {
	Field     string `json:"field"`
	Before    string `json:"before,omitempty"`
	After     string `json:"after,omitempty"`
	Immutable bool   `json:"immutable,omitempty"`
}

func fieldsOf(changes []object.FieldChange) []fieldView {
	var all []fieldView
	for _, c := range changes {
		all = append(all, fieldView{c.Field, c.Before, c.After, c.Immutable})
	}
	return all
}

func (q *request) plan() error {
	changes, expect, err := q.sent()
	if err != nil {
		return err
	}
	options, err := q.options()
	if err != nil {
		return err
	}
	options.Expect = expect
	plan, err := q.environment.Intent.Plan(q.source(), changes, options)
	if err != nil {
		return err
	}
	type stepView struct {
		Step     string      `json:"step"`
		Kind     string      `json:"kind"`
		Name     string      `json:"name"`
		Fields   []fieldView `json:"fields,omitempty"`
		Why      string      `json:"why,omitempty"`
		WaitsFor string      `json:"waitsFor,omitempty"`
		Impact   string      `json:"impact"`
	}
	steps := []stepView{}
	for _, s := range plan.Steps {
		steps = append(steps, stepView{s.Step.String(), s.Key.Kind, s.Key.Name, fieldsOf(s.Fields), s.Why, s.WaitsFor, s.Impact.String()})
	}
	return q.json(http.StatusOK, struct {
		Revision uint64      `json:"revision"`
		Impact   string      `json:"impact"`
		Steps    []stepView  `json:"steps"`
		Joined   *joinedView `json:"joined,omitempty"`
	}{plan.Revision, plan.Impact.String(), steps, joinedOf(plan.Joined)})
}

func (q *request) history() error {
	limit := int(q.number("limit"))
	if limit == 0 {
		limit = 100
	}
	found, err := q.environment.Intent.History(q.number("before"), limit)
	if err != nil {
		return err
	}
	type changedView struct {
		Step string `json:"step"`
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	type revisionView struct {
		Number  uint64 `json:"number"`
		Time    string `json:"time"`
		Owner   string `json:"owner"`
		Who     string `json:"who,omitempty"`
		Why     string `json:"why,omitempty"`
		Changes int    `json:"changes"`
		// The first of them.
		Objects    []changedView `json:"objects,omitempty"`
		RollbackTo uint64        `json:"rollbackTo,omitempty"`
		ConfirmBy  string        `json:"confirmBy,omitempty"`
		Standing   string        `json:"standing,omitempty"`
		UndoneBy   uint64        `json:"undoneBy,omitempty"`
	}
	revisions := []revisionView{}
	for _, r := range found {
		var objects []changedView
		for _, o := range r.Objects {
			objects = append(objects, changedView{o.Step.String(), o.Kind, o.Name})
		}
		revisions = append(revisions, revisionView{r.Number, moment(r.Time), r.Source.Owner, r.Source.Who, r.Source.Why, r.Changes, objects, r.RollbackTo, moment(r.ConfirmBy),
			standing(r), r.Standing.UndoneBy})
	}
	return q.json(http.StatusOK, map[string]any{"revisions": revisions})
}

// States of a revision that needed confirmation or was undone.
const (
	undone    = "undone"
	overdue   = "overdue"
	waiting   = "waiting"
	confirmed = "confirmed"
)

var standings = [...]string{undone, overdue, waiting, confirmed}

// standing is one of these; empty for others.
func standing(r intent.Revision) string {
	switch {
	case r.Standing.UndoneBy != 0 && !r.Standing.InPart:
		return undone
	case r.Standing.Overdue:
		return overdue
	case r.Standing.Waits:
		return waiting
	case !r.ConfirmBy.IsZero() || r.Standing.InPart:
		return confirmed
	}
	return ""
}

func (q *request) diff() error {
	found, err := q.environment.Intent.Diff(q.number("from"), q.number("to"))
	if err != nil {
		return err
	}
	type differenceView struct {
		Step        string      `json:"step"`
		Kind        string      `json:"kind"`
		Name        string      `json:"name"`
		Fields      []fieldView `json:"fields,omitempty"`
		OwnerBefore string      `json:"ownerBefore,omitempty"`
		OwnerAfter  string      `json:"ownerAfter,omitempty"`
	}
	objects := []differenceView{}
	for _, d := range found {
		objects = append(objects, differenceView{d.Step.String(), d.Key.Kind, d.Key.Name, fieldsOf(d.Fields), d.OwnerBefore, d.OwnerAfter})
	}
	return q.json(http.StatusOK, map[string]any{"objects": objects})
}

func (q *request) rollback() error {
	options, err := q.options()
	if err != nil {
		return q.refused(err)
	}
	outcome, status, err := finished(q.environment.Intent.Rollback(q.ctx, q.source(), q.number("revision"), options))
	if err != nil {
		return err
	}
	return q.json(status, appliedOf(outcome))
}

func (q *request) confirm() error {
	if err := q.environment.Intent.Confirm(q.source(), q.number("revision")); err != nil {
		return err
	}
	q.out.WriteHeader(http.StatusNoContent)
	return nil
}

func (q *request) status() error {
	counts := map[string]int{}
	for state, n := range q.environment.Intent.Count() {
		counts[stateWord(state)] = n
	}
	return q.json(http.StatusOK, map[string]any{"revision": q.environment.Intent.Revision(), "objects": counts})
}
