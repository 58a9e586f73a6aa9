// SPDX-License-Identifier: Apache-2.0

// Server-sent events, as the HTML standard has them (section 9.2).
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice.dev/sluice/agent/intent"
)

// Proxies may close idle connections.
const heartbeat = 15 * time.Second

func (q *request) events() error {
	text := q.values["cursor"]
	if last := q.values["Last-Event-ID"]; last != "" {
		text = last
	}
	cursor, err := intent.ParseCursor(text)
	if err != nil {
		return badRequest("cursor", "not a cursor", text, "the id of an event, or the cursor of a list")
	}
	query := intent.Query{}
	if kinds := q.values["kinds"]; kinds != "" {
		query.Kinds = strings.Split(kinds, ",")
	}
	filter, err := intent.NewFilter(q.environment.Registry, query)
	if err != nil {
		return err
	}
	events, err := q.environment.Intent.Events(cursor)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(q.http.Context())
	defer cancel()
	defer context.AfterFunc(q.ending, cancel)()
	header := q.out.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	q.out.WriteHeader(http.StatusOK)
	// A client does not see an event without data, but its id counts.
	if err := q.send(fmt.Sprintf("id: %s\n\n", events.Cursor())); err != nil || q.http.Method == http.MethodHead {
		return q.gone(err)
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		e, err := events.Next(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			err = q.send(fmt.Sprintf(": nothing else happened\nid: %s\n\n", events.Cursor()))
		case errors.Is(err, intent.ErrTooLate):
			return q.gone(q.send("event: too-late\ndata: " + err.Error() + "\n\n"))
		case err != nil:
			return q.gone(err)
		case e.Dataplane != nil:
			err = q.sendDataplane(e, query)
		case e.Service != nil:
			err = q.sendService(e)
		case filter.Named(e.Status.Key):
			err = q.sendStatus(e.Status, e.Cursor.String())
		}
		if err != nil {
			return q.gone(err)
		}
	}
}

// sendStatus sends the status of an object. Without a cursor, a client that is disconnected continues from the event before.
func (q *request) sendStatus(st intent.Status, cursor string) error {
	v, err := q.viewOf(st)
	if err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if cursor != "" {
		fmt.Fprintf(&b, "id: %s\n", cursor)
	}
	fmt.Fprintf(&b, "event: object\ndata: %s\n\n", text)
	return q.send(b.String())
}

// sendDataplane sends the event to readers of any kinds: the state of their objects changes. When the data plane is back, it sends the objects
// as they are now, so that clients need not list them. The id comes behind them, so that a client that is disconnected meanwhile gets all of
// them again.
func (q *request) sendDataplane(e intent.Event, query intent.Query) error {
	text, err := e.Dataplane.JSON(e.Time, e.Cursor, false)
	if err != nil {
		return err
	}
	if err := q.send(fmt.Sprintf("event: dataplane\ndata: %s\n\n", text)); err != nil {
		return err
	}
	query.Limit = 1000
	for e.Dataplane.Connected {
		page, err := q.environment.Intent.List(query)
		if err != nil {
			return err
		}
		for _, st := range page.Objects {
			if slices.Contains(q.environment.Intent.Places(st.Key), e.Dataplane.Name) {
				if err := q.sendStatus(st, ""); err != nil {
					return err
				}
			}
		}
		if query.After = page.Next; query.After == "" {
			break
		}
	}
	return q.send(fmt.Sprintf("id: %s\n\n", e.Cursor))
}

// sendService sends an event of a service to readers of any kinds, too.
func (q *request) sendService(e intent.Event) error {
	text, err := e.Service.JSON(e.Time, e.Cursor)
	if err != nil {
		return err
	}
	return q.send(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", e.Cursor, e.Service.Type, text))
}

// send gives a client that does not read no more than its time.
func (q *request) send(text string) error {
	control := http.NewResponseController(q.out)
	if err := control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := q.out.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
