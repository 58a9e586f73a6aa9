// SPDX-License-Identifier: Apache-2.0

// Package deadline keeps things by the time at which each is due.
package deadline

import (
	"container/heap"
	"iter"
	"slices"
	"time"
)

// Timer is when a thing is due, and its place in a Queue. A type of which pointers go into a Queue embeds it. Its zero value is in no Queue.
type Timer struct {
	at time.Time
	// From 1 on; 0: it is in no Queue.
	place int
}

// Deadline returns when the thing is due; the zero time: it is in no Queue.
func (t *Timer) Deadline() time.Time { return t.at }

func (t *Timer) timer() *Timer { return t }

// Item is a pointer to a type that embeds Timer.
type Item interface {
	timer() *Timer
}

// Queue has Items by their deadlines. A thing is in one Queue at most, once. The zero value is an empty Queue. A Queue is not for several
// goroutines at a time.
type Queue[T Item] struct {
	items items[T]
}

// Set puts an Item at its deadline, or moves it there. The zero time removes it.
func (q *Queue[T]) Set(item T, at time.Time) {
	t := item.timer()
	if at.IsZero() {
		q.Remove(item)
		return
	}
	t.at = at
	if t.place == 0 {
		heap.Push(&q.items, item)
	} else {
		heap.Fix(&q.items, t.place-1)
	}
}

// Remove takes an Item out. It does nothing if the Item is not in.
func (q *Queue[T]) Remove(item T) {
	if t := item.timer(); t.place != 0 {
		heap.Remove(&q.items, t.place-1)
	}
}

// Due returns the Item with the earliest deadline, if that is not after now. The Item stays in.
func (q *Queue[T]) Due(now time.Time) (item T, due bool) {
	if len(q.items) > 0 && !q.items[0].timer().at.After(now) {
		return q.items[0], true
	}
	return item, false
}

// Next returns the earliest deadline; the zero time: the Queue is empty.
func (q *Queue[T]) Next() time.Time {
	if len(q.items) == 0 {
		return time.Time{}
	}
	return q.items[0].timer().at
}

// Clear takes all Items out.
func (q *Queue[T]) Clear() {
	for _, one := range q.items {
		*one.timer() = Timer{}
	}
	q.items = nil
}

// Len returns how many Items there are.
func (q *Queue[T]) Len() int { return len(q.items) }

// All returns the Items that are in when it is called, in no particular order. The Queue may change meanwhile.
func (q *Queue[T]) All() iter.Seq[T] { return slices.Values(slices.Clone(q.items)) }

// items are a heap.
type items[T Item] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].timer().at.Before(s[j].timer().at) }
func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].timer().place, s[j].timer().place = i+1, j+1
}

// Push implements heap.Interface.
func (s *items[T]) Push(x any) {
	item := x.(T)
	*s = append(*s, item)
	item.timer().place = len(*s)
}

// Pop implements heap.Interface.
func (s *items[T]) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	clear((*s)[last:])
	*s = (*s)[:last]
	*item.timer() = Timer{}
	return item
}
