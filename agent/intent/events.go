package intent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"sluice.dev/sluice/agent/reconcile"
)

// Event is a change of how it stands with an object.
type Event struct {
	// To go on from after it.
	Cursor Cursor
	Time   time.Time
	Status Status
}

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

type logged struct {
	time   int64
	status reconcile.Status
}

func newEventLog(most int) *eventLog { return &eventLog{id: rand.Uint64() | 1, most: most} }

// publish never blocks.
func (l *eventLog) publish(s reconcile.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := logged{time.Now().UnixNano(), s}
	if len(l.ring) < l.most {
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
			return Event{e.cursor, time.Unix(0, next.time), e.desired.statusOf(next.status)}, nil
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
