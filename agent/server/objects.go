package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// changes unpacks what a client wants. Everything that is wrong is told at once.
func (s *server) changes(c *api.Changes) ([]object.Change, error) {
	var all []object.Change
	var mistakes object.Errors
	for _, i := range c.GetPut() {
		o, err := s.registry.New(i.GetKind(), i.GetName(), i.GetLabels(), i.GetSpec())
		if err != nil {
			mistakes = append(mistakes, &object.Error{Object: object.Key{Kind: i.GetKind(), Name: i.GetName()}, Problem: err.Error()})
			continue
		}
		mistakes = append(mistakes, s.registry.Check(o)...)
		all = append(all, object.Put(o))
	}
	for _, n := range c.GetDelete() {
		if s.registry.Kind(n.GetKind()) == nil {
			mistakes = append(mistakes, &object.Error{Object: object.Key{Kind: n.GetKind(), Name: n.GetName()}, Problem: "there is no such kind"})
			continue
		}
		all = append(all, object.Remove(object.Key{Kind: n.GetKind(), Name: n.GetName()}))
	}
	return all, mistakes.Or()
}

func (s *server) Plan(_ context.Context, c *api.Changes) (*api.Planned, error) {
	changes, err := s.changes(c)
	if err != nil {
		return nil, refusal(err)
	}
	operations, unfinished, err := s.reconciler.Plan(Owner, changes)
	if err != nil {
		return nil, refusal(err)
	}
	planned := &api.Planned{}
	relabelled := s.relabelled(changes)
	replaced := map[object.Key]*api.PlannedStep{}
	waits := map[object.Key]string{}
	for _, o := range unfinished {
		waits[o.Key] = o.WaitsFor
	}
	for _, o := range operations {
		step := &api.PlannedStep{Kind: o.Key.Kind, Name: o.Key.Name, Fields: fieldChanges(o.Fields)}
		switch {
		case o.Action == reconcile.Delete && o.Replacing:
			// It is told when it is created again, with what made that necessary.
			step.Step, step.Why, step.WaitsFor = api.Step_REPLACE, o.Reason, waits[o.Key]
			replaced[o.Key] = step
			if step.WaitsFor == "" {
				continue
			}
		case o.Action == reconcile.Create && replaced[o.Key] != nil:
			step = replaced[o.Key]
		case o.Action == reconcile.Create:
			step.Step = api.Step_CREATE
		case o.Action == reconcile.Update:
			step.Step = api.Step_UPDATE
		default:
			step.Step = api.Step_DELETE
		}
		if step.Step == api.Step_UPDATE || step.Step == api.Step_REPLACE {
			step.Fields = append(step.Fields, relabelled[o.Key]...)
			delete(relabelled, o.Key)
		}
		planned.Steps = append(planned.Steps, step)
	}
	for _, o := range unfinished {
		if replaced[o.Key] != nil {
			continue
		}
		step := &api.PlannedStep{Step: api.Step_UPDATE, Kind: o.Key.Kind, Name: o.Key.Name, Fields: fieldChanges(o.Fields), WaitsFor: o.WaitsFor}
		switch o.Action {
		case reconcile.Create:
			step.Step = api.Step_CREATE
		case reconcile.Delete:
			step.Step = api.Step_DELETE
		default:
			step.Why = o.Reason
		}
		step.Fields = append(step.Fields, relabelled[o.Key]...)
		delete(relabelled, o.Key)
		planned.Steps = append(planned.Steps, step)
	}
	// Labels alone are no work for the data plane, but a change all the same.
	for _, k := range slices.SortedFunc(maps.Keys(relabelled), object.Key.Compare) {
		planned.Steps = append(planned.Steps, &api.PlannedStep{Step: api.Step_UPDATE, Kind: k.Kind, Name: k.Name, Fields: relabelled[k]})
	}
	return planned, nil
}

func fieldChanges(changes []object.FieldChange) []*api.FieldChange {
	var all []*api.FieldChange
	for _, c := range changes {
		all = append(all, &api.FieldChange{Field: c.Field, Before: c.Before, After: c.After, Immutable: c.Immutable})
	}
	return all
}

// relabelled returns the labels that change of objects that are there.
func (s *server) relabelled(changes []object.Change) map[object.Key][]*api.FieldChange {
	all := map[object.Key][]*api.FieldChange{}
	for _, c := range changes {
		now, _ := s.reconciler.Get(c.Key)
		if c.Object == nil || now.Object == nil {
			continue
		}
		before, after := now.Object.Labels, c.Object.Labels
		labels := maps.Clone(before)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, after)
		for _, l := range slices.Sorted(maps.Keys(labels)) {
			if before[l] != after[l] {
				all[c.Key] = append(all[c.Key], &api.FieldChange{Field: "metadata.labels." + l, Before: before[l], After: after[l]})
			}
		}
	}
	return all
}

func (s *server) Apply(ctx context.Context, c *api.Changes) (*api.Applied, error) {
	changes, err := s.changes(c)
	if err != nil {
		return nil, refusal(err)
	}
	steps := make([]api.Step, len(changes))
	for i, change := range changes {
		steps[i] = s.step(change)
	}
	mode := reconcile.BestEffort
	if c.GetAllOrNothing() {
		mode = reconcile.AllOrNothing
	}
	outcome, err := s.reconciler.Apply(ctx, Owner, changes, mode)
	if err != nil {
		return nil, refusal(err)
	}
	failures := map[object.Key]string{}
	for _, f := range outcome.Failures {
		failures[f.Key] = f.Message
	}
	applied := &api.Applied{Undone: outcome.Undone}
	named, rebuilt, done := map[object.Key]bool{}, map[object.Key]bool{}, map[object.Key]api.Step{}
	for _, o := range outcome.Operations {
		rebuilt[o.Key] = rebuilt[o.Key] || o.Action == reconcile.Delete
		switch {
		case rebuilt[o.Key]:
			done[o.Key] = api.Step_REPLACE
		case o.Action == reconcile.Create:
			done[o.Key] = api.Step_CREATE
		case done[o.Key] == api.Step_KEEP:
			done[o.Key] = api.Step_UPDATE
		}
	}
	for i, st := range outcome.Objects {
		named[st.Key] = true
		switch {
		case st.Object == nil:
		case rebuilt[st.Key], done[st.Key] == api.Step_CREATE:
			steps[i] = done[st.Key]
		case steps[i] == api.Step_REPLACE:
			// The data plane did not have it before, or still does.
			steps[i] = api.Step_UPDATE
		}
		applied.Objects = append(applied.Objects, appliedObject(steps[i], st, failures, outcome.Undone))
	}
	// What was not named, but had to go because of what was, and perhaps came again.
	for _, o := range outcome.Operations {
		if named[o.Key] || outcome.Undone && failures[o.Key] == "" {
			continue
		}
		named[o.Key] = true
		if st, there := s.reconciler.Get(o.Key); there {
			applied.Objects = append(applied.Objects, appliedObject(done[o.Key], st, failures, outcome.Undone))
		}
	}
	return applied, nil
}

func appliedObject(step api.Step, st reconcile.Status, failures map[object.Key]string, undone bool) *api.AppliedObject {
	o := &api.AppliedObject{Step: step, Kind: st.Key.Kind, Name: st.Key.Name, Status: statusOf(st)}
	// It may be under way again already, and what was tried first is what counts.
	if message, failed := failures[st.Key]; failed && (undone || st.State != reconcile.Applied && st.State != reconcile.Gone) {
		o.Status.State, o.Status.Message = api.State_FAILED, message
	}
	return o
}

// step says what a change does to what is wanted now.
func (s *server) step(c object.Change) api.Step {
	now, _ := s.reconciler.Get(c.Key)
	switch {
	case c.Object == nil && now.Object == nil:
		return api.Step_KEEP
	case c.Object == nil:
		return api.Step_DELETE
	case now.Object == nil:
		return api.Step_CREATE
	case c.Object.Equal(now.Object):
		return api.Step_KEEP
	case s.registry.Kind(c.Key.Kind).Replaces(now.Object.Spec, c.Object.Spec):
		return api.Step_REPLACE
	}
	return api.Step_UPDATE
}

// Each conversion of a reconciler's type into the contract's is here.

func stateOf(s reconcile.State) api.State {
	switch s {
	case reconcile.Applied:
		return api.State_APPLIED
	case reconcile.Failed:
		return api.State_FAILED
	case reconcile.Deleting:
		return api.State_DELETING
	case reconcile.Gone:
		return api.State_GONE
	}
	return api.State_PENDING
}

func statusOf(s reconcile.Status) *api.Status {
	told := &api.Status{State: stateOf(s.State), Message: s.Message}
	if !s.Since.IsZero() {
		told.Since = s.Since.UnixNano()
	}
	return told
}

func (s *server) objectOf(st reconcile.Status) (*api.ObjectIntent, error) {
	i := &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}
	if st.Object != nil {
		spec, err := object.Pack(s.registry.Redacted(st.Object).Spec)
		if err != nil {
			return nil, status.Errorf(codes.Internal, "%s: %v", st.Key, err)
		}
		i.Labels, i.Spec = st.Object.Labels, spec
	}
	return &api.ObjectIntent{Intent: i, Status: statusOf(st), Owner: st.Owner}, nil
}

const (
	defaultPage = 1000
	largestPage = 10_000
)

func (s *server) Get(_ context.Context, q *api.ObjectsQuery) (*api.IntentPage, error) {
	f, err := newFilter(s.registry, q)
	if err != nil {
		return nil, err
	}
	limit := int(min(q.GetLimit(), largestPage))
	if limit == 0 {
		limit = defaultPage
	}
	var after object.Key
	if q.GetPage() != "" {
		kind, name, ok := strings.Cut(q.GetPage(), "/")
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "page: %q was not given out by this agent", q.GetPage())
		}
		after = object.Key{Kind: kind, Name: name}
	}
	found, next := s.reconciler.List(after, limit, f.accepts)
	page := &api.IntentPage{}
	for _, st := range found {
		o, err := s.objectOf(st)
		if err != nil {
			return nil, err
		}
		page.Objects = append(page.Objects, o)
	}
	if next != (object.Key{}) {
		page.NextPage = next.String()
	}
	return page, nil
}

func (s *server) Describe(_ context.Context, n *api.ObjectName) (*api.Description, error) {
	k := object.Key{Kind: n.GetKind(), Name: n.GetName()}
	st, there := s.reconciler.Get(k)
	if kind := s.registry.Kind(k.Kind); kind == nil || !there || st.Object == nil && kind.IsBuiltin(k.Name) {
		return nil, status.Errorf(codes.NotFound, "there is no %s %s", k.Kind, k.Name)
	}
	o, err := s.objectOf(st)
	if err != nil {
		return nil, err
	}
	d := &api.Description{Object: o}
	relation := func(r reconcile.Relation) *api.Relation {
		return &api.Relation{Kind: r.Status.Key.Kind, Name: r.Status.Key.Name, Field: r.Field, Status: statusOf(r.Status)}
	}
	if st.Object != nil {
		for _, r := range s.reconciler.Needs(st.Object) {
			d.Needs = append(d.Needs, relation(r))
		}
	}
	for _, r := range s.reconciler.NeededBy(k) {
		d.NeededBy = append(d.NeededBy, relation(r))
	}
	return d, nil
}

// Changes that a watcher may be behind by.
const watchBuffer = 16 << 10

func (s *server) Watch(q *api.ObjectsQuery, stream api.Agent_WatchServer) error {
	f, err := newFilter(s.registry, q)
	if err != nil {
		return err
	}
	subscription := s.reconciler.Subscribe(watchBuffer)
	defer subscription.Close()
	ctx, cancel := s.until(stream.Context())
	defer cancel()
	w := &watcher{server: s, filter: f, stream: stream, told: map[object.Key]bool{}}
	if err := w.all(api.ObjectChange_EXISTS); err != nil {
		return err
	}
	if err := stream.Send(&api.ObjectChange{Change: api.ObjectChange_COMPLETE}); err != nil {
		return err
	}
	for {
		e, err := subscription.Next(ctx)
		switch {
		case err != nil && s.ending.Err() != nil:
			return status.Error(codes.Unavailable, "the agent is ending")
		case err != nil:
			return refusal(err)
		case e.Lost > 0:
			err = w.all(api.ObjectChange_CHANGED)
		default:
			err = w.one(e.Status, api.ObjectChange_CHANGED)
		}
		if err != nil {
			return err
		}
	}
}

// until returns a context that ends with the agent, too.
func (s *server) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ending, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

type watcher struct {
	server *server
	filter *filter
	stream api.Agent_WatchServer
	// What the client believes to be there.
	told map[object.Key]bool
}

func (w *watcher) one(st reconcile.Status, change api.ObjectChange_Change) error {
	if !w.filter.accepts(st) {
		// A label may say so that the object no longer has because nobody wants it any more.
		if st.State != reconcile.Deleting || !w.told[st.Key] {
			return w.ended(st)
		}
	}
	o, err := w.server.objectOf(st)
	if err != nil {
		return err
	}
	w.told[st.Key] = true
	return w.stream.Send(&api.ObjectChange{Change: change, Object: o})
}

func (w *watcher) ended(st reconcile.Status) error {
	if !w.told[st.Key] {
		return nil
	}
	delete(w.told, st.Key)
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_ENDED, Object: &api.ObjectIntent{
		Intent: &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}, Status: statusOf(st)}})
}

// all tells everything, and what of that which was told is not there any more.
func (w *watcher) all(change api.ObjectChange_Change) error {
	there := map[object.Key]bool{}
	for after, more := (object.Key{}), true; more; {
		found, next := w.server.reconciler.List(after, largestPage, w.filter.accepts)
		for _, st := range found {
			there[st.Key] = true
			if err := w.one(st, change); err != nil {
				return err
			}
		}
		after, more = next, next != object.Key{}
	}
	for k := range maps.Clone(w.told) {
		if !there[k] {
			if err := w.ended(reconcile.Status{Key: k, State: reconcile.Gone}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *server) GetVersion(context.Context, *api.VersionQuery) (*api.Version, error) {
	counts := map[string]uint32{}
	for state, n := range s.reconciler.Count() {
		counts[strings.ToLower(stateOf(state).String())] = uint32(n)
	}
	return &api.Version{Release: s.config.Release, Dataplane: s.dataplane.Link(), Objects: counts}, nil
}
