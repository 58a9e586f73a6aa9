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

// What stands between us and the client may close a connection on which nothing happens.
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
	wanted := intent.Query{}
	if kinds := q.values["kinds"]; kinds != "" {
		wanted.Kinds = strings.Split(kinds, ",")
	}
	filter, err := intent.NewFilter(q.environment.Registry, wanted)
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
	// An event without data is not told, but its id counts.
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
			err = q.tellDataplane(e, wanted)
		case e.Path != nil:
			err = q.tellPath(e)
		case filter.Named(e.Status.Key):
			err = q.tell(e.Status, e.Cursor.String())
		}
		if err != nil {
			return q.gone(err)
		}
	}
}

// tell tells how it stands with an object. Without a cursor, a client that is cut off goes on from before.
func (q *request) tell(st intent.Status, cursor string) error {
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

// tellDataplane is told whatever kinds are wanted: what is known of their objects is another. When it is back, they are told as they are
// now, so that nobody needs to list them; the id comes behind them, so that who is cut off meanwhile is told all of it again.
func (q *request) tellDataplane(e intent.Event, wanted intent.Query) error {
	text, err := e.Dataplane.JSON(e.Time, e.Cursor, false)
	if err != nil {
		return err
	}
	if err := q.send(fmt.Sprintf("event: dataplane\ndata: %s\n\n", text)); err != nil {
		return err
	}
	wanted.Limit = 1000
	for e.Dataplane.Connected {
		page, err := q.environment.Intent.List(wanted)
		if err != nil {
			return err
		}
		for _, st := range page.Objects {
			if slices.Contains(q.environment.Intent.Places(st.Key), e.Dataplane.Name) {
				if err := q.tell(st, ""); err != nil {
					return err
				}
			}
		}
		if wanted.After = page.Next; wanted.After == "" {
			break
		}
	}
	return q.send(fmt.Sprintf("id: %s\n\n", e.Cursor))
}

// tellPath is told whatever kinds are wanted, too.
func (q *request) tellPath(e intent.Event) error {
	text, err := e.Path.JSON(e.Time, e.Cursor)
	if err != nil {
		return err
	}
	return q.send(fmt.Sprintf("id: %s\nevent: path\ndata: %s\n\n", e.Cursor, text))
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
