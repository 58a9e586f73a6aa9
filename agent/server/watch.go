// SPDX-License-Identifier: Apache-2.0

// Streams of events from a cursor.
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
	w := &watcher{server: s, query: queryOf(q), from: q.GetCursor(), stream: stream, reported: map[object.Key]intent.State{}}
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
	// The states that the client knows; nil after it resumed with a cursor.
	reported map[object.Key]intent.State
	resumed  bool
}

// follow sends all objects, then changes. It never ends without an error.
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
		clear(w.reported)
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

// changes sends the events after the cursor. It never ends without an error.
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
		case e.Service != nil:
			err = w.service(e)
		default:
			err = w.one(e.Status, api.ObjectChange_CHANGED, e.Cursor)
		}
		if err != nil {
			return err
		}
	}
}

// dataplane reports that a data plane went away or is back. It reports again the states from the time of its absence,
// and all states to a client that resumed with a cursor.
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
	for k, state := range maps.Clone(w.reported) {
		if state == intent.Unknown {
			st, _ := w.server.desired.Get(k)
			if err := w.one(st, api.ObjectChange_CHANGED, e.Cursor); err != nil {
				return err
			}
		}
	}
	return nil
}

// service sends an event of a service.
func (w *watcher) service(e intent.Event) error {
	s := e.Service
	event := &api.ServiceEvent{Type: s.Type, Kind: s.Kind, Name: s.Name, State: s.State, Text: s.Text, Time: e.Time.UnixNano()}
	for _, f := range s.Fields {
		event.Fields = append(event.Fields, &api.EventField{Name: f.Name, Value: f.Value})
	}
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_SERVICE, Cursor: e.Cursor.String(), Service: event})
}

// again sends all objects as at the start of a watch, then the events after the cursor.
func (w *watcher) again(from intent.Cursor) error {
	w.resumed = false
	clear(w.reported)
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
		// The object may have matched by a label that it no longer has, because it is deleted.
		if _, reported := w.reported[st.Key]; st.State != intent.Deleting || !reported {
			return w.ended(st, cursor)
		}
	}
	o, err := w.server.objectOf(st)
	if err != nil {
		return err
	}
	w.reported[st.Key] = st.State
	return w.stream.Send(&api.ObjectChange{Change: change, Object: o, Cursor: cursor.String()})
}

func (w *watcher) ended(st intent.Status, cursor intent.Cursor) error {
	if _, reported := w.reported[st.Key]; !reported && !(w.resumed && w.filter.Named(st.Key)) {
		return nil
	}
	delete(w.reported, st.Key)
	return w.stream.Send(&api.ObjectChange{Change: api.ObjectChange_ENDED, Object: &api.ObjectIntent{
		Intent: &api.Intent{Kind: st.Key.Kind, Name: st.Key.Name}, Status: statusOf(st)}, Cursor: cursor.String()})
}

// all sends all objects, and the deletion of objects that were sent before. It returns the cursor to continue from.
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
	for k := range maps.Clone(w.reported) {
		if !there[k] {
			if err := w.ended(intent.Status{Key: k, State: intent.Gone}, intent.Cursor{}); err != nil {
				return cursor, err
			}
		}
	}
	return cursor, nil
}
