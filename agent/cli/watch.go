// SPDX-License-Identifier: Apache-2.0

// Following objects until the user ends it.
package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// watch shows the present objects and then every change. If the agent ends meanwhile, it continues with the next
// agent at the same cursor. Keys: as from namedObjects.
func (p *program) watch(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery, keys map[object.Key]bool, output string) error {
	if output == "yaml" || output == "name" || strings.HasPrefix(output, jsonPathIs) {
		return fmt.Errorf("-w goes with -o table, wide or json")
	}
	w := &watcher{program: p, keys: keys, output: output, several: len(query.GetKinds()) != 1, tables: map[string]*table{}, shown: map[object.Key]*api.ObjectIntent{}}
	for begun := false; ; begun = true {
		err := w.follow(ctx, client, query)
		switch {
		case ctx.Err() != nil:
			return nil
		case status.Code(err) != codes.Unavailable || !begun && !w.complete:
			return err
		}
		if !w.lost {
			fmt.Fprintln(p.err, "The agent does not answer; the watch continues when it does.")
			w.lost = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// watcher holds the state of a watch.
type watcher struct {
	*program
	// Of no others; nil: of all.
	keys    map[object.Key]bool
	output  string
	several bool
	tables  map[string]*table
	shown   map[object.Key]*api.ObjectIntent
	// All objects have been sent once.
	complete bool
	// The user knows that the agent does not answer.
	lost bool
	// While all objects are sent again: the ones sent so far.
	again map[object.Key]bool
}

// follow never ends without an error.
func (w *watcher) follow(ctx context.Context, client api.AgentClient, query *api.ObjectsQuery) error {
	stream, err := client.Watch(ctx, query)
	if err != nil {
		return err
	}
	for {
		change, err := stream.Recv()
		if err != nil {
			return err
		}
		if w.lost {
			fmt.Fprintln(w.err, "The agent answers again.")
			w.lost = false
		}
		if err := w.show(change); err != nil {
			return err
		}
		if change.GetCursor() != "" {
			query.Cursor = change.GetCursor()
		}
	}
}

// show writes a change, unless it was shown already.
func (w *watcher) show(change *api.ObjectChange) error {
	o := change.GetObject()
	k := object.Key{Kind: o.GetIntent().GetKind(), Name: o.GetIntent().GetName()}
	switch change.GetChange() {
	case api.ObjectChange_AGAIN:
		w.again = map[object.Key]bool{}
		return nil
	case api.ObjectChange_DATAPLANE:
		return w.dataplane(change.GetDataplane())
	case api.ObjectChange_SERVICE:
		return w.service(change.GetService())
	case api.ObjectChange_COMPLETE:
		again := w.again
		w.again, w.complete = nil, true
		if again != nil {
			for _, k := range slices.SortedFunc(maps.Keys(w.shown), object.Key.Compare) {
				if again[k] {
					continue
				}
				gone := &api.ObjectIntent{Intent: &api.Intent{Kind: k.Kind, Name: k.Name}, Status: &api.Status{State: api.State_GONE}}
				if err := w.one(k, gone, api.ObjectChange_ENDED); err != nil {
					return err
				}
			}
		}
		return w.flush()
	case api.ObjectChange_ENDED:
		if w.shown[k] == nil {
			return nil
		}
	default:
		if w.keys != nil && !w.keys[k] {
			return nil
		}
		if w.again != nil {
			w.again[k] = true
			if proto.Equal(shownPart(w.shown[k]), shownPart(o)) {
				return nil
			}
			return w.one(k, o, api.ObjectChange_CHANGED)
		}
	}
	return w.one(k, o, change.GetChange())
}

// dataplane writes a line: a data plane went away or is back.
func (w *watcher) dataplane(d *api.DataplaneChange) error {
	at := time.Unix(0, d.GetTime())
	var err error
	switch {
	case w.output == "json":
		var line []byte
		if line, err = (&intent.DataplaneChange{Name: d.GetName(), Connected: d.GetConnected()}).JSON(at, intent.Cursor{}, false); err == nil {
			_, err = fmt.Fprintf(w.out, `{"change":"dataplane","object":%s}`+"\n", line)
		}
	case d.GetConnected():
		_, err = fmt.Fprintf(w.out, "The data plane %s is back since %s; the state of its objects is known.\n", d.GetName(), at.UTC().Format(time.RFC3339))
	default:
		_, err = fmt.Fprintf(w.out, "The data plane %s is away since %s; the state of its objects is unknown.\n", d.GetName(), at.UTC().Format(time.RFC3339))
	}
	return err
}

// service writes a line: a service reports a change, such as a path that went down.
func (w *watcher) service(e *api.ServiceEvent) error {
	at := time.Unix(0, e.GetTime())
	if w.output != "json" {
		_, err := fmt.Fprintf(w.out, "%s since %s.\n", e.GetText(), at.UTC().Format(time.RFC3339))
		return err
	}
	event := &intent.ServiceEvent{Kind: e.GetKind(), Name: e.GetName(), State: e.GetState()}
	for _, f := range e.GetFields() {
		event.Fields = append(event.Fields, intent.EventField{Name: f.GetName(), Value: f.GetValue()})
	}
	line, err := event.JSON(at, intent.Cursor{})
	if err == nil {
		_, err = fmt.Fprintf(w.out, `{"change":%q,"object":%s}`+"\n", e.GetType(), line)
	}
	return err
}

// shownPart is the part of an object whose change is shown: not the time of its state.
func shownPart(o *api.ObjectIntent) *api.ObjectIntent {
	if o == nil {
		return nil
	}
	return &api.ObjectIntent{Intent: o.GetIntent(), Owner: o.GetOwner(),
		Status: &api.Status{State: o.GetStatus().GetState(), Message: reasonOf(o.GetStatus()), Generation: o.GetStatus().GetGeneration()}}
}

func (w *watcher) one(k object.Key, o *api.ObjectIntent, change api.ObjectChange_Change) error {
	if w.shown[k] = o; change == api.ObjectChange_ENDED {
		delete(w.shown, k)
	}
	if w.output == "json" {
		n, err := w.node(o, false)
		if err != nil {
			return err
		}
		line := append(fmt.Appendf(nil, `{"change":%q,"object":`, strings.ToLower(change.String())), object.JSON(n)...)
		_, err = w.out.Write(append(line, '}', '\n'))
		return err
	}
	kind := w.registry.Kind(k.Kind)
	if kind == nil {
		return nil
	}
	t := w.tables[kind.Name]
	if t == nil {
		t = w.objectTable(kind, w.output == "wide", true)
		w.tables[kind.Name] = t
	}
	row, err := w.row(kind, o, w.output == "wide", true)
	if err != nil {
		return err
	}
	if w.several {
		row[0] = kind.Name + "/" + row[0]
	}
	if t.add(row...); w.complete {
		return w.flush()
	}
	return nil
}

func (w *watcher) flush() error {
	if w.output == "json" {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(w.tables)) {
		if len(w.tables[kind].rows) > 0 {
			if err := w.tables[kind].write(w.out); err != nil {
				return err
			}
		}
	}
	return nil
}
