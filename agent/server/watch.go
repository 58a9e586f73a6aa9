// Following what happens, from a cursor.
package server

import (
	"context"
	"errors"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

func (s *server) Watch(q *api.ObjectsQuery, stream api.Agent_WatchServer) error {
	ctx, cancel := s.until(stream.Context())
	defer cancel()
	w := &watcher{server: s, query: queryOf(q), from: q.GetCursor(), stream: stream, told: map[object.Key]intent.State{}}
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
	from   string
	filter *intent.Filter
	stream api.Agent_WatchServer
	// What the client believes to be there; if it went on with a cursor, that is not known.
	told    map[object.Key]intent.State
	resumed bool
}

// follow tells everything, then what changes. It never ends without an error.
func (w *watcher) follow(ctx context.Context) error {
	var err error
	if w.filter, err = intent.NewFilter(w.server.registry, w.query); err != nil {
		return err
	}
	w.query.Limit = intent.LargestPage
	cursor, err := intent.ParseCursor(w.from)
	if err != nil {
		return &intent.BadQuery{Problem: "cursor: " + err.Error()}
	}
	if !cursor.IsZero() {
		w.resumed = true
		if err := w.changes(ctx, cursor); !errors.Is(err, intent.ErrTooLate) {
			return err
		}
		w.resumed = false
		clear(w.told)
		if err := w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_AGAIN}); err != nil {
			return err
		}
	}
	if cursor, err = w.all(api.ObjectChange_EXISTS); err != nil {
		return err
	}
	if err := w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_COMPLETE, Cursor: cursor.String()}); err != nil {
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
		switch {
		case e.Dataplane != nil:
			err = w.dataplane(e)
		case e.Path != nil:
			err = w.path(e)
		default:
			err = w.one(e.Status, api.ObjectChange_CHANGED, e.Cursor)
		}
		if err != nil {
			return err
		}
	}
}

// dataplane tells that one went away or is back. What was told while it was away is told again; to a client that went on with a cursor,
// everything.
func (w *watcher) dataplane(e intent.Event) error {
	change := &api.DataplaneChange{Name: e.Dataplane.Name, Connected: e.Dataplane.Connected, Time: e.Time.UnixNano()}
	if err := w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_DATAPLANE, Dataplane: change, Cursor: e.Cursor.String()}); err != nil {
		return err
	}
	if !e.Dataplane.Connected {
		return nil
	}
	if w.resumed {
		return w.again(e.Cursor)
	}
	for k, state := range maps.Clone(w.told) {
		if state == intent.Unknown {
			st, _ := w.server.desired.Get(k)
			if err := w.one(st, api.ObjectChange_CHANGED, e.Cursor); err != nil {
				return err
			}
		}
	}
	return nil
}

// path tells that one went down, or is down no longer.
func (w *watcher) path(e intent.Event) error {
	c := e.Path
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_PATH, Cursor: e.Cursor.String(), Path: &api.PathChange{Dataplane: c.Dataplane,
		Vrf: c.VRF, LocalAddress: c.Local, RemoteAddress: c.Remote, Peer: c.Peer, State: c.State, Time: e.Time.UnixNano()}})
}

// again tells everything as if the watch began; what follows is what happened after the cursor.
func (w *watcher) again(from intent.Cursor) error {
	w.resumed = false
	clear(w.told)
	if err := w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_AGAIN}); err != nil {
		return err
	}
	if _, err := w.all(api.ObjectChange_EXISTS); err != nil {
		return err
	}
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_COMPLETE, Cursor: from.String()})
}

func (w *watcher) one(st intent.Status, change api.ObjectChange_Change, cursor intent.Cursor) error {
	if !w.filter.Matches(st) {
		// A label may say so that the object no longer has because nobody wants it any more.
		if _, told := w.told[st.Key]; st.State != intent.Deleting || !told {
			return w.ended(st, cursor)
		}
	}
	o, err := w.server.objectOf(st)
	if err != nil {
		return err
	}
	w.told[st.Key] = st.State
	return w.stream.Send(&api.ObjectChange{Change: change, Object: o, Cursor: cursor.String()})
}

func (w *watcher) ended(st intent.Status, cursor intent.Cursor) error {
	if _, told := w.told[st.Key]; !told && !(w.resumed && w.filter.Named(st.Key)) {
		return nil
	}
	delete(w.told, st.Key)
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_ENDED, Object: &api.ObjectIntent{
		Intent: &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}, Status: statusOf(st)}, Cursor: cursor.String()})
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
			if err := w.one(st, change, intent.Cursor{}); err != nil {
				return cursor, err
			}
		}
		query.After = page.Next
	}
	for k := range maps.Clone(w.told) {
		if !there[k] {
			if err := w.ended(intent.Status{Key: k, State: intent.Gone}, intent.Cursor{}); err != nil {
				return cursor, err
			}
		}
	}
	return cursor, nil
}
