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

// Event is a change of how it stands with an object, or with a data plane.
type Event struct {
	// To go on from after it.
	Cursor Cursor
	Time   time.Time
	Status Status
	// In place of a Status: what was Applied in it is Unknown, or is not any more, though no event says so of each object.
	Dataplane *DataplaneChange
	// In place of a Status: sessions whose tunnels use it are Ready, or not, though no event says so of each.
	Path *PathChange
}

// PathChange is that a path to a user plane function went down, or is down no longer.
type PathChange struct {
	Dataplane string
	// Where from and where to, and the name of the GtpuPeer, if there is one.
	VRF, Local, Remote, Peer string
	// "down", or what it is now: "up", or "gone" when no tunnel uses it any more.
	State string
}

// JSON is how northbounds tell of it.
func (c *PathChange) JSON(at time.Time, cursor Cursor) ([]byte, error) {
	return json.Marshal(struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Name       string    `json:"name"`
		State      string    `json:"state"`
		Dataplane  string    `json:"dataplane"`
		VRF        string    `json:"vrf"`
		Local      string    `json:"localAddress"`
		Remote     string    `json:"remoteAddress"`
		Peer       string    `json:"peer,omitempty"`
		Time       time.Time `json:"time"`
		Cursor     string    `json:"cursor,omitempty"`
	}{object.APIVersion, PathKind, c.Remote, c.State, c.Dataplane, c.VRF, c.Local, c.Remote, c.Peer, at.UTC(), cursor.String()})
}

// PathChanged tells whoever follows events.
func (d *Desired) PathChanged(c *PathChange) { d.log.publish(logged{rare: &rare{path: c}}) }

// PathKind stands where an event of a path has the kind of its object. No object is of that kind.
const PathKind = "GtpuPath"

// DataplaneChange is that a data plane is there, and what it has is known; or that it is away.
type DataplaneChange struct {
	Name      string
	Connected bool
}

// JSON is how northbounds tell of it; listed: it is no event, but how it stood.
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

// DataplaneKind stands where an event has the kind of its object. No object is of that kind.
const DataplaneKind = "Dataplane"

// eventLog keeps the latest events in a ring.
type eventLog struct {
	mu   sync.Mutex
	id   uint64
	ring []logged
	most int
	// How many events there were ever.
	count uint64
	// Closed when there is another event; nil: nobody waits.
	more chan struct{}
}

// logged is an event as it is kept: there are very many.
type logged struct {
	// Nanoseconds since the epoch of Unix.
	time, since int64
	observed    uint64
	wanted      *reconcile.Version
	message     string
	// Nil if all is said without.
	rare   *rare
	state  State
	reason reconcile.Reason
}

// rare is what few events have: the key of what nobody wants, or what is no status of an object.
type rare struct {
	key   object.Key
	plane *DataplaneChange
	path  *PathChange
}

func logStatus(s reconcile.Status) logged {
	e := logged{observed: s.Observed, wanted: s.Wanted, message: s.Message, state: s.State, reason: s.Reason}
	if !s.Since.IsZero() {
		e.since = s.Since.UnixNano()
	}
	if s.Wanted == nil {
		e.rare = &rare{key: s.Key}
	}
	return e
}

func (e *logged) status() reconcile.Status {
	s := reconcile.Status{State: e.state, Reason: e.reason, Message: e.message, Wanted: e.wanted, Observed: e.observed}
	if e.wanted != nil {
		s.Key = e.wanted.Key()
	} else {
		s.Key = e.rare.key
	}
	if e.since != 0 {
		s.Since = time.Unix(0, e.since)
	}
	return s
}

func newEventLog(most int) *eventLog { return &eventLog{id: rand.Uint64() | 1, most: most} }

// publish never blocks.
func (l *eventLog) publish(e logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.time = time.Now().UnixNano()
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

// after returns what follows a cursor, or what to wait for.
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
}

// Events implements Interface.
func (d *Desired) Events(from Cursor) (*Events, error) {
	if from.IsZero() {
		from = d.log.end()
	}
	if _, _, err := d.log.after(from); err != nil {
		return nil, err
	}
	return &Events{d, from}, nil
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
			event := Event{Cursor: e.cursor, Time: time.Unix(0, next.time)}
			if next.rare != nil {
				event.Dataplane, event.Path = next.rare.plane, next.rare.path
			}
			if event.Dataplane == nil && event.Path == nil {
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
