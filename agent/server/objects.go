package server

import (
	"context"
	"errors"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
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

// source is whoever asks.
func source() intent.Source { return intent.Source{Owner: Owner} }

func options(c *api.Changes) intent.Options {
	o := intent.Options{}
	if c.GetAllOrNothing() {
		o.Mode = intent.AllOrNothing
	}
	return o
}

func (s *server) Plan(_ context.Context, c *api.Changes) (*api.Planned, error) {
	changes, err := s.changes(c)
	if err != nil {
		return nil, refusal(err)
	}
	plan, err := s.desired.Plan(source(), changes, intent.Options{})
	if err != nil {
		return nil, refusal(err)
	}
	planned := &api.Planned{}
	for _, p := range plan.Steps {
		planned.Steps = append(planned.Steps, &api.PlannedStep{Step: stepOf(p.Step), Kind: p.Key.Kind, Name: p.Key.Name,
			Fields: fieldChanges(p.Fields), Why: p.Why, WaitsFor: p.WaitsFor})
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

func (s *server) Apply(ctx context.Context, c *api.Changes) (*api.Applied, error) {
	changes, err := s.changes(c)
	if err != nil {
		return nil, refusal(err)
	}
	outcome, err := s.desired.Apply(ctx, source(), changes, options(c))
	if err != nil {
		return nil, refusal(err)
	}
	applied := &api.Applied{Undone: outcome.Undone}
	for _, o := range outcome.Objects {
		applied.Objects = append(applied.Objects, &api.AppliedObject{Step: stepOf(o.Step), Kind: o.Status.Key.Kind,
			Name: o.Status.Key.Name, Status: statusOf(o.Status)})
	}
	return applied, nil
}

// Each conversion of a type of package intent into the contract's is here.

func stepOf(s intent.Step) api.Step {
	return map[intent.Step]api.Step{intent.Keep: api.Step_KEEP, intent.Create: api.Step_CREATE, intent.Update: api.Step_UPDATE,
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
	}
	return api.State_PENDING
}

func statusOf(s intent.Status) *api.Status {
	told := &api.Status{State: stateOf(s.State), Message: s.Message}
	if !s.Since.IsZero() {
		told.Since = s.Since.UnixNano()
	}
	return told
}

func (s *server) objectOf(st intent.Status) (*api.ObjectIntent, error) {
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

func queryOf(q *api.ObjectsQuery) intent.Query {
	return intent.Query{Kinds: q.GetKinds(), Names: q.GetNames(), Selector: q.GetSelector(), Limit: int(min(q.GetLimit(), intent.LargestPage)),
		After: q.GetPage()}
}

func (s *server) Get(_ context.Context, q *api.ObjectsQuery) (*api.IntentPage, error) {
	found, err := s.desired.List(queryOf(q))
	if err != nil {
		return nil, refusal(err)
	}
	page := &api.IntentPage{NextPage: found.Next}
	for _, st := range found.Objects {
		o, err := s.objectOf(st)
		if err != nil {
			return nil, err
		}
		page.Objects = append(page.Objects, o)
	}
	return page, nil
}

func (s *server) Describe(_ context.Context, n *api.ObjectName) (*api.Description, error) {
	k := object.Key{Kind: n.GetKind(), Name: n.GetName()}
	st, there := s.desired.Get(k)
	if kind := s.registry.Kind(k.Kind); kind == nil || !there || st.Object == nil && kind.IsBuiltin(k.Name) {
		return nil, status.Errorf(codes.NotFound, "there is no %s %s", k.Kind, k.Name)
	}
	o, err := s.objectOf(st)
	if err != nil {
		return nil, err
	}
	d := &api.Description{Object: o}
	relation := func(r intent.Relation) *api.Relation {
		return &api.Relation{Kind: r.Status.Key.Kind, Name: r.Status.Key.Name, Field: r.Field, Status: statusOf(r.Status)}
	}
	for _, r := range s.desired.Needs(k) {
		d.Needs = append(d.Needs, relation(r))
	}
	for _, r := range s.desired.NeededBy(k) {
		d.NeededBy = append(d.NeededBy, relation(r))
	}
	return d, nil
}

func (s *server) Watch(q *api.ObjectsQuery, stream api.Agent_WatchServer) error {
	ctx, cancel := s.until(stream.Context())
	defer cancel()
	w := &watcher{server: s, query: queryOf(q), stream: stream, told: map[object.Key]bool{}}
	err := w.follow(ctx)
	if s.ending.Err() != nil {
		return status.Error(codes.Unavailable, "the agent is ending")
	}
	return refusal(err)
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
	query  intent.Query
	filter *intent.Filter
	stream api.Agent_WatchServer
	// What the client believes to be there.
	told map[object.Key]bool
}

// follow tells everything, then what changes. It never ends without an error.
func (w *watcher) follow(ctx context.Context) error {
	var err error
	if w.filter, err = intent.NewFilter(w.server.registry, w.query); err != nil {
		return err
	}
	w.query.Limit = intent.LargestPage
	cursor, err := w.all(api.ObjectChange_EXISTS)
	if err != nil {
		return err
	}
	if err := w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_COMPLETE}); err != nil {
		return err
	}
	for {
		if err := w.changes(ctx, cursor); !errors.Is(err, intent.ErrTooLate) {
			return err
		}
		if cursor, err = w.all(api.ObjectChange_CHANGED); err != nil {
			return err
		}
	}
}

// changes tells what happens after the cursor. It never ends without an error.
func (w *watcher) changes(ctx context.Context, from intent.Cursor) error {
	events, err := w.server.desired.Events(from)
	if err != nil {
		return err
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		if err := w.one(e.Status, api.ObjectChange_CHANGED); err != nil {
			return err
		}
	}
}

func (w *watcher) one(st intent.Status, change api.ObjectChange_Change) error {
	if !w.filter.Matches(st) {
		// A label may say so that the object no longer has because nobody wants it any more.
		if st.State != intent.Deleting || !w.told[st.Key] {
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

func (w *watcher) ended(st intent.Status) error {
	if !w.told[st.Key] {
		return nil
	}
	delete(w.told, st.Key)
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_ENDED, Object: &api.ObjectIntent{
		Intent: &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}, Status: statusOf(st)}})
}

// all tells everything, and what of that which was told is not there any more. It returns from where to go on.
func (w *watcher) all(change api.ObjectChange_Change) (intent.Cursor, error) {
	there := map[object.Key]bool{}
	var cursor intent.Cursor
	query := w.query
	for more := true; more; more = query.After != "" {
		page, err := w.server.desired.List(query)
		if err != nil {
			return cursor, err
		}
		if cursor.IsZero() {
			cursor = page.Cursor
		}
		for _, st := range page.Objects {
			there[st.Key] = true
			if err := w.one(st, change); err != nil {
				return cursor, err
			}
		}
		query.After = page.Next
	}
	for k := range maps.Clone(w.told) {
		if !there[k] {
			if err := w.ended(intent.Status{Key: k, State: intent.Gone}); err != nil {
				return cursor, err
			}
		}
	}
	return cursor, nil
}

func (s *server) GetVersion(context.Context, *api.VersionQuery) (*api.Version, error) {
	counts := map[string]uint32{}
	for state, n := range s.desired.Count() {
		counts[strings.ToLower(stateOf(state).String())] = uint32(n)
	}
	return &api.Version{Release: s.config.Release, Dataplane: s.dataplane.Link(), Objects: counts}, nil
}
