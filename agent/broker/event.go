// How it stands with objects, told to whoever listens at the broker.
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
	// Who wants it, and since which revision.
	Owner    string `json:"owner,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	// Which of its changes is wanted, and which the data plane has.
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
			e.Conditions = append(e.Conditions, condition{c.Type, c.Holds, c.Reason, c.Message, timeOf(c.Time)})
		}
	}
	body, err := json.Marshal(e)
	return Published{Key: s.Key, Body: body, Gone: s.State == intent.Gone}, err
}

// publishedDataplane tells that a data plane is there, or away.
func publishedDataplane(c *intent.DataplaneChange, at time.Time, cursor intent.Cursor, listed bool) (Published, error) {
	body, err := c.JSON(at, cursor, listed)
	return Published{Key: object.Key{Kind: intent.DataplaneKind, Name: c.Name}, Body: body}, err
}

// errAgain: what was listed while a data plane was away is another now.
var errAgain = errors.New("everything has to be listed again")

// teller publishes events. Where it was is kept as long as the log of events is, which is as long as the program runs; what it told
// of is kept for good, so that nobody goes on believing in what has gone meanwhile.
type teller struct {
	*engine
	// Behind the latest that was published; zero: everything has to be listed.
	cursor intent.Cursor
	told   map[object.Key]struct{}
	// Something was listed as Unknown.
	unknown bool
}

func newTeller(n *engine) *teller { return &teller{engine: n} }

func (t *teller) tell(ctx context.Context, h *health) error {
	out, err := t.driver.Outlet(ctx)
	if out == nil || err != nil {
		return err
	}
	defer out.Close()
	defer h.opened().Stop()
	if t.told == nil {
		if t.told, err = t.memory.told(); err != nil {
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
		if !errors.Is(err, intent.ErrTooLate) && !errors.Is(err, errAgain) {
			return err
		}
		t.cursor = intent.Cursor{}
	}
}

// list publishes how it stands with everything.
func (t *teller) list(ctx context.Context, out Outlet) error {
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
	for k := range t.told {
		if _, is := there[k]; !is {
			gone = append(gone, intent.Status{Key: k, State: intent.Gone, Reason: "NotWanted"})
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
func (t *teller) dataplanes(ctx context.Context, out Outlet, cursor intent.Cursor) error {
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

func (t *teller) publish(ctx context.Context, out Outlet, all []intent.Status, cursor intent.Cursor) error {
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

// send publishes events, and remembers whom they tell of: before, so that none is forgotten of which somebody may know.
func (t *teller) send(ctx context.Context, out Outlet, events []Published) error {
	if len(events) == 0 {
		return nil
	}
	gone := map[object.Key]bool{}
	var fresh, over []object.Key
	for _, e := range events {
		if e.Key.Kind == intent.DataplaneKind || e.Key.Kind == intent.PathKind {
			continue
		}
		if _, told := t.told[e.Key]; !told {
			t.told[e.Key] = struct{}{}
			fresh = append(fresh, e.Key)
		}
		gone[e.Key] = e.Gone
	}
	for k, is := range gone {
		if is {
			over = append(over, k)
		}
	}
	if err := t.memory.tell(fresh, nil); err != nil {
		for _, k := range fresh {
			delete(t.told, k)
		}
		return err
	}
	if err := out.Publish(ctx, events); err != nil {
		return err
	}
	if err := t.memory.tell(nil, over); err != nil {
		return err
	}
	for _, k := range over {
		delete(t.told, k)
	}
	return nil
}

// follow publishes what happens after the cursor. It never ends without an error.
func (t *teller) follow(ctx context.Context, out Outlet, h *health) error {
	events, err := t.Intent.Events(t.cursor)
	if err != nil {
		return err
	}
	// What is there at once.
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
			case e.Path != nil:
				p.Key = object.Key{Kind: intent.PathKind, Name: e.Path.Remote}
				p.Body, problem = e.Path.JSON(e.Time, e.Cursor)
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
		h.well()
		if again {
			return errAgain
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}
