// SPDX-License-Identifier: Apache-2.0

// Events: the status of objects, published at the broker.
package broker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Most events that are published at once.
const eventBatch = 1000

// event is an event as it is published. Nothing secret is in it, because nothing of the spec is.
type event struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// pending, applied, failed, unknown, deleting or gone; why it is not applied, in a word and in a sentence; since when.
	State   string     `json:"state"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	// The owner, and the revision of its latest change.
	Owner    string `json:"owner,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	// The number of its changes, and the change that the data plane has.
	Generation uint64      `json:"generation,omitempty"`
	Observed   uint64      `json:"observed,omitempty"`
	Conditions []condition `json:"conditions,omitempty"`
	// When this was so, and where that is in the log of events.
	Time   time.Time `json:"time"`
	Cursor string    `json:"cursor"`
	// It is no event, but how it stood when the northbound began, or was too slow for all events.
	Listed bool `json:"listed,omitempty"`
}

type condition struct {
	Type    string     `json:"type"`
	Status  bool       `json:"status"`
	Unknown bool       `json:"unknown,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Time    *time.Time `json:"time,omitempty"`
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func published(s intent.Status, at time.Time, cursor intent.Cursor, listed bool) (Published, error) {
	e := event{APIVersion: object.APIVersion, Kind: s.Key.Kind, Name: s.Key.Name, State: strings.ToLower(s.State.String()), Reason: s.Reason,
		Message: s.Message, Since: timeOf(s.Since), Owner: s.Owner, Revision: s.Revision, Generation: s.Generation, Observed: s.Observed,
		Time: at.UTC(), Cursor: cursor.String(), Listed: listed}
	if s.Object != nil {
		for _, c := range s.Conditions() {
			e.Conditions = append(e.Conditions, condition{c.Type, c.Holds, c.Unknown, c.Reason, c.Message, timeOf(c.Time)})
		}
	}
	body, err := json.Marshal(e)
	return Published{Key: s.Key, Body: body, Gone: s.State == intent.Gone}, err
}

// publishedDataplane is the event of a data plane that is connected or away.
func publishedDataplane(c *intent.DataplaneChange, at time.Time, cursor intent.Cursor, listed bool) (Published, error) {
	body, err := c.JSON(at, cursor, listed)
	return Published{Key: object.Key{Kind: intent.DataplaneKind, Name: c.Name}, Body: body, noObject: true}, err
}

// errAgain: objects that were listed while a data plane was away have changed.
var errRelist = errors.New("everything has to be listed again")

// publisher publishes events. The cursor lives as long as the log of events, that is as long as the process. The
// reported objects are stored on disk, so that the deletion of each is published even after a restart.
type publisher struct {
	*engine
	// Behind the latest that was published; zero: everything has to be listed.
	cursor   intent.Cursor
	reported map[object.Key]struct{}
	// Something was listed as Unknown.
	unknown bool
}

func newPublisher(n *engine) *publisher { return &publisher{engine: n} }

func (t *publisher) run(ctx context.Context, h *health) error {
	out, err := t.driver.Outlet(ctx)
	if out == nil || err != nil {
		return err
	}
	defer out.Close()
	defer h.opened().Stop()
	if t.reported == nil {
		if t.reported, err = t.memory.reported(); err != nil {
			return err
		}
	}
	for {
		if t.cursor.IsZero() {
			if err := t.list(ctx, out); err != nil {
				return err
			}
		}
		err := t.follow(ctx, out, h)
		if !errors.Is(err, intent.ErrTooLate) && !errors.Is(err, errRelist) {
			return err
		}
		t.cursor = intent.Cursor{}
	}
}

// list publishes the status of all objects.
func (t *publisher) list(ctx context.Context, out Outlet) error {
	var from intent.Cursor
	there := map[object.Key]struct{}{}
	q := intent.Query{Limit: eventBatch}
	t.unknown = false
	for more := true; more; more = q.After != "" {
		page, err := t.Intent.List(q)
		if err != nil {
			return err
		}
		if from.IsZero() {
			from = page.Cursor
			if err := t.dataplanes(ctx, out, from); err != nil {
				return err
			}
		}
		for _, s := range page.Objects {
			there[s.Key] = struct{}{}
			t.unknown = t.unknown || s.State == intent.Unknown
		}
		if err := t.publish(ctx, out, page.Objects, page.Cursor); err != nil {
			return err
		}
		q.After = page.Next
	}
	var gone []intent.Status
	for k := range t.reported {
		if _, is := there[k]; !is {
			gone = append(gone, intent.Status{Key: k, State: intent.Gone, Reason: "NotDesired"})
		}
	}
	for len(gone) > 0 {
		n := min(len(gone), eventBatch)
		if err := t.publish(ctx, out, gone[:n], from); err != nil {
			return err
		}
		gone = gone[n:]
	}
	t.cursor = from
	return nil
}

// dataplanes publishes which data planes are there.
func (t *publisher) dataplanes(ctx context.Context, out Outlet, cursor intent.Cursor) error {
	now := time.Now()
	var all []Published
	for name, m := range t.Intent.Measure() {
		p, err := publishedDataplane(&intent.DataplaneChange{Name: name, Connected: m.Connected}, now, cursor, true)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	return t.send(ctx, out, all)
}

func (t *publisher) publish(ctx context.Context, out Outlet, all []intent.Status, cursor intent.Cursor) error {
	now := time.Now()
	events := make([]Published, len(all))
	for i, s := range all {
		var err error
		if events[i], err = published(s, now, cursor, true); err != nil {
			return err
		}
	}
	return t.send(ctx, out, events)
}

// send publishes events. It stores the reported objects first, so that none of them is lost.
func (t *publisher) send(ctx context.Context, out Outlet, events []Published) error {
	if len(events) == 0 {
		return nil
	}
	gone := map[object.Key]bool{}
	var fresh, over []object.Key
	for _, e := range events {
		if e.noObject {
			continue
		}
		if _, reported := t.reported[e.Key]; !reported {
			t.reported[e.Key] = struct{}{}
			fresh = append(fresh, e.Key)
		}
		gone[e.Key] = e.Gone
	}
	for k, is := range gone {
		if is {
			over = append(over, k)
		}
	}
	if err := t.memory.setReported(fresh, nil); err != nil {
		for _, k := range fresh {
			delete(t.reported, k)
		}
		return err
	}
	if err := out.Publish(ctx, events); err != nil {
		return err
	}
	if err := t.memory.setReported(nil, over); err != nil {
		return err
	}
	for _, k := range over {
		delete(t.reported, k)
	}
	return nil
}

// follow publishes the events after the cursor. It ends only with an error.
func (t *publisher) follow(ctx context.Context, out Outlet, h *health) error {
	events, err := t.Intent.Events(t.cursor)
	if err != nil {
		return err
	}
	// Collect the events that are ready.
	over, cancel := context.WithCancel(ctx)
	cancel()
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		var batch []Published
		again := false
		for err == nil {
			var p Published
			var problem error
			switch {
			case e.Dataplane != nil:
				again = again || e.Dataplane.Connected && t.unknown
				p, problem = publishedDataplane(e.Dataplane, e.Time, e.Cursor, false)
			case e.Service != nil:
				p.Key, p.noObject = object.Key{Kind: e.Service.Kind, Name: e.Service.Name}, true
				p.Body, problem = e.Service.JSON(e.Time, e.Cursor)
			default:
				p, problem = published(e.Status, e.Time, e.Cursor, false)
			}
			if problem != nil {
				return problem
			}
			if batch = append(batch, p); len(batch) == eventBatch {
				break
			}
			e, err = events.Next(over)
		}
		if problem := t.send(ctx, out, batch); problem != nil {
			return problem
		}
		t.cursor = events.Cursor()
		h.recovered()
		if again {
			return errRelist
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}
