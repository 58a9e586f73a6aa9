// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Event is a change of the status of an object, of a data plane, or of what a service reports.
type Event struct {
	// To go on from after it.
	Cursor Cursor
	Time   time.Time
	Status Status
	// In place of a Status: the data plane went away or is back, and its Applied objects are Unknown or no longer so.
	// There is no event for each object.
	Dataplane *DataplaneChange
	// In place of a Status: a service reports a change that is about no object.
	Service *ServiceEvent
}

// ServiceEvent is a change that a service reports. It is about no object, or about many: a path went down, and there is no event for each session
// that uses it. It must not be changed after it was reported.
type ServiceEvent struct {
	// A word for what changed: "path". Streams have it as the type of the event.
	Type string
	// The subject that changed, and its new state. No object is of this kind.
	Kind, Name, State string
	// Fields of the service's own, in the order of their appearance. Those without a value are left out.
	Fields []EventField
	// A sentence for people without its end, which is the time: "The path from 192.0.2.1 to 192.0.2.2 is up".
	Text string
}

// EventField is a field of a ServiceEvent. Its name is as JSON has it.
type EventField struct{ Name, Value string }

// JSON is the change as northbounds report it.
func (e *ServiceEvent) JSON(at time.Time, cursor Cursor) ([]byte, error) {
	all := append([]EventField{{"apiVersion", object.APIVersion}, {"kind", e.Kind}, {"name", e.Name}, {"state", e.State}}, e.Fields...)
	all = append(all, EventField{"time", at.UTC().Format(time.RFC3339Nano)}, EventField{"cursor", cursor.String()})
	text := []byte("{")
	for _, f := range all {
		if f.Value == "" {
			continue
		}
		field, err := json.Marshal(map[string]string{f.Name: f.Value})
		if err != nil {
			return nil, err
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(text, field[1:len(field)-1]...)
	}
	return append(text, '}'), nil
}

// Report publishes an event of a service.
func (d *Desired) Report(e *ServiceEvent) { d.log.publish(logged{rare: &rare{service: e}}) }

// Touched publishes an event with the object's status: its readiness has changed.
func (d *Desired) Touched(k object.Key) {
	if s := d.sites.get(k); s.State != Gone {
		d.log.publish(logStatus(s))
	}
}

// DataplaneChange: a data plane is connected and in sync, or it is away.
type DataplaneChange struct {
	Name      string
	Connected bool
}

// JSON is the change as northbounds report it. listed: it is the present state, not an event.
func (c *DataplaneChange) JSON(at time.Time, cursor Cursor, listed bool) ([]byte, error) {
	state := "away"
	if c.Connected {
		state = "connected"
	}
	return json.Marshal(struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Name       string    `json:"name"`
		State      string    `json:"state"`
		Time       time.Time `json:"time"`
		Cursor     string    `json:"cursor,omitempty"`
		Listed     bool      `json:"listed,omitempty"`
	}{object.APIVersion, DataplaneKind, c.Name, state, at.UTC(), cursor.String(), listed})
}

// DataplaneKind is the kind in events of data planes. No object is of that kind.
const DataplaneKind = "Dataplane"

// eventLog keeps the latest events in a ring.
type eventLog struct {
	mu   sync.Mutex
	id   uint64
	ring []logged
	most int
	// How many events there were ever.
	count uint64
	// Closed at the next event; nil: no caller waits.
	more chan struct{}
}

// logged is an event as it is stored: there are very many.
type logged struct {
	// Nanoseconds since the epoch of Unix.
	time, since int64
	observed    uint64
	version     *reconcile.Version
	message     string
	// Nil for most events.
	rare   *rare
	state  State
	reason reconcile.Reason
}

// rare has the parts that few events have: the key of an object that the configuration does not have, or an event without an object.
type rare struct {
	key     object.Key
	plane   *DataplaneChange
	service *ServiceEvent
}

func logStatus(s reconcile.Status) logged {
	e := logged{observed: s.Observed, version: s.Desired, message: s.Message, state: s.State, reason: s.Reason}
	if !s.Since.IsZero() {
		e.since = s.Since.UnixNano()
	}
	if s.Desired == nil {
		e.rare = &rare{key: s.Key}
	}
	return e
}

func (e *logged) status() reconcile.Status {
	s := reconcile.Status{State: e.state, Reason: e.reason, Message: e.message, Desired: e.version, Observed: e.observed}
	if e.version != nil {
		s.Key = e.version.Key()
	} else {
		s.Key = e.rare.key
	}
	if e.since != 0 {
		s.Since = time.Unix(0, e.since)
	}
	return s
}

// kind returns the kind of the object that an event is about.
func (e *logged) kind() string {
	if e.version != nil {
		return e.version.KindName()
	}
	return e.rare.key.Kind
}

func newEventLog(most int) *eventLog { return &eventLog{id: rand.Uint64() | 1, most: most} }

// publish never blocks. An event without a time is of now.
func (l *eventLog) publish(e logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.time == 0 {
		e.time = time.Now().UnixNano()
	}
	if len(l.ring) < l.most {
		if len(l.ring) == cap(l.ring) {
			l.ring = append(make([]logged, 0, min(l.most, max(256, 8*len(l.ring)))), l.ring...)
		}
		l.ring = append(l.ring, e)
	} else {
		l.ring[l.count%uint64(l.most)] = e
	}
	l.count++
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// end is the cursor behind the latest event.
func (l *eventLog) end() Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Cursor{l.id, l.count}
}

// after returns the event after a cursor, or a channel to wait for it.
func (l *eventLog) after(c Cursor) (logged, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.log != l.id || c.number > l.count || c.number+uint64(len(l.ring)) < l.count:
		return logged{}, nil, ErrTooLate
	case c.number < l.count:
		return l.ring[c.number%uint64(l.most)], nil, nil
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return logged{}, l.more, nil
}

// Events reads the log. It is for one goroutine.
type Events struct {
	desired *Desired
	cursor  Cursor
	kinds   func(kind string) bool
}

// Only restricts Next to events of objects of these kinds. Skipped events cost next to nothing.
func (e *Events) Only(kinds func(kind string) bool) { e.kinds = kinds }

// Events implements Interface.
func (d *Desired) Events(from Cursor) (*Events, error) {
	if from.IsZero() {
		from = d.log.end()
	}
	if _, _, err := d.log.after(from); err != nil {
		return nil, err
	}
	return &Events{desired: d, cursor: from}, nil
}

// Next waits for an event. ErrTooLate: the reader was too slow, or the log began anew.
func (e *Events) Next(ctx context.Context) (Event, error) {
	for {
		next, more, err := e.desired.log.after(e.cursor)
		if err != nil {
			return Event{}, err
		}
		if more == nil {
			e.cursor.number++
			if e.kinds != nil && (next.rare != nil && next.rare.key.Kind == "" || !e.kinds(next.kind())) {
				continue
			}
			event := Event{Cursor: e.cursor, Time: time.Unix(0, next.time)}
			if next.rare != nil {
				event.Dataplane, event.Service = next.rare.plane, next.rare.service
			}
			if event.Dataplane == nil && event.Service == nil {
				event.Status = e.desired.statusOf(next.status())
			}
			return event, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Cursor is behind the latest event that Next returned.
func (e *Events) Cursor() Cursor { return e.cursor }
