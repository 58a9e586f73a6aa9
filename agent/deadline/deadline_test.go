// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type thing struct {
	Timer
	name int
}

var epoch = time.Unix(1000, 0)

func after(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestThingsAreDueInTheOrderOfTheirDeadlines(t *testing.T) {
	var q Queue[*thing]
	for _, at := range []int{5, 3, 9, 1, 7} {
		q.Set(&thing{name: at}, after(at))
	}
	if q.Next() != after(1) || q.Len() != 5 {
		t.Fatal(q.Next(), q.Len())
	}
	var names []int
	for one, due := q.Due(after(7)); due; one, due = q.Due(after(7)) {
		names = append(names, one.name)
		q.Remove(one)
		if !one.Deadline().IsZero() {
			t.Error(one.name, "has a deadline after it was removed")
		}
	}
	if !slices.Equal(names, []int{1, 3, 5, 7}) || q.Next() != after(9) {
		t.Error(names, q.Next())
	}
}

func TestADueItemStaysUntilItIsMovedOrRemoved(t *testing.T) {
	var q Queue[*thing]
	one := &thing{}
	q.Set(one, after(1))
	for range 2 {
		if got, due := q.Due(after(1)); !due || got != one {
			t.Fatal(got, due)
		}
	}
	q.Set(one, after(2))
	if _, due := q.Due(after(1)); due || one.Deadline() != after(2) {
		t.Error("moved, and still due")
	}
	q.Set(one, time.Time{})
	if q.Len() != 0 || !q.Next().IsZero() {
		t.Error("the zero time does not remove")
	}
	q.Remove(one) // twice does no harm
	if _, due := q.Due(after(100)); due {
		t.Error("due without being in")
	}
}

func TestAQueueMayChangeWhileAllAreLookedAt(t *testing.T) {
	var q Queue[*thing]
	for i := range 10 {
		q.Set(&thing{name: i}, after(i))
	}
	seen := 0
	for one := range q.All() {
		q.Remove(one)
		seen++
	}
	if seen != 10 || q.Len() != 0 {
		t.Error(seen, q.Len())
	}
}

func TestThingsOfAQueueThatWasClearedMayComeBack(t *testing.T) {
	var q Queue[*thing]
	one := &thing{}
	q.Set(one, after(1))
	q.Clear()
	if q.Len() != 0 || !one.Deadline().IsZero() {
		t.Error(q.Len(), one.Deadline())
	}
	q.Set(one, after(2))
	if q.Len() != 1 || q.Next() != after(2) {
		t.Error(q.Len(), q.Next())
	}
}

// A map is the model of a Queue.
func TestTheEarliestDeadlineIsFirstAfterAnyChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q Queue[*thing]
	things := make([]*thing, 50)
	for i := range things {
		things[i] = &thing{name: i}
	}
	model := map[*thing]time.Time{}
	for range 20_000 {
		one := things[random.IntN(len(things))]
		if random.IntN(3) == 0 {
			q.Remove(one)
			delete(model, one)
		} else {
			at := after(random.IntN(30))
			q.Set(one, at)
			model[one] = at
		}
		var earliest time.Time
		for _, at := range model {
			if earliest.IsZero() || at.Before(earliest) {
				earliest = at
			}
		}
		if q.Next() != earliest || q.Len() != len(model) || one.Deadline() != model[one] {
			t.Fatal(q.Next(), earliest, q.Len(), len(model))
		}
	}
}
