package reconcile

import (
	"context"
	"sync"
)

// Event is a change of an object's status.
type Event struct {
	Status Status
	// If not 0, Status says nothing: so many events are missing here, because the subscriber was slow.
	Lost int
}

// Subscription is a bounded buffer of events.
type Subscription struct {
	reconciler *Reconciler
	limit      int

	mu     sync.Mutex
	events []Event
	lost   int
	closed bool
	ready  chan struct{}
}

// Subscribe returns a buffer for so many events from now on. It must be closed.
func (r *Reconciler) Subscribe(buffer int) *Subscription {
	s := &Subscription{reconciler: r, limit: max(buffer, 2), ready: make(chan struct{}, 1)}
	r.mu.Lock()
	r.subscriptions[s] = struct{}{}
	r.mu.Unlock()
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.reconciler.mu.Lock()
	delete(s.reconciler.subscriptions, s)
	s.reconciler.mu.Unlock()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// publish never blocks.
func (s *Subscription) publish(e Event) {
	s.mu.Lock()
	// The mark for what was lost takes a place, too, and goes before what follows.
	if s.lost > 0 && len(s.events)+2 <= s.limit {
		s.events = append(s.events, Event{Lost: s.lost})
		s.lost = 0
	}
	if s.lost > 0 || len(s.events) >= s.limit {
		s.lost++
	} else {
		s.events = append(s.events, e)
	}
	s.mu.Unlock()
	s.signal()
}

// Next waits for an event. After Close it returns context.Canceled.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		switch {
		case len(s.events) > 0:
			e := s.events[0]
			s.events = s.events[1:]
			s.mu.Unlock()
			return e, nil
		case s.lost > 0:
			e := Event{Lost: s.lost}
			s.lost = 0
			s.mu.Unlock()
			return e, nil
		case s.closed:
			s.mu.Unlock()
			return Event{}, context.Canceled
		}
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}
