// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"testing"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// looked is an Intent of which states are looked at.
type looked struct {
	Intent
	states  map[object.Key]intent.Status
	touched int
}

func (l *looked) Get(k object.Key) (intent.Status, bool) {
	st, there := l.states[k]
	return st, there
}
func (l *looked) Touched(object.Key) { l.touched++ }

func TestAnObjectDoesNotServeWhileAProducedObjectIsRefused(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	server, punt := object.Key{Kind: "PppoeServer", Name: "lines"}, object.Key{Kind: "Punt", Name: "pppoe-lines"}
	stored, err := registry.NewStored(server, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var h NotReadyReasons
	l := &looked{states: map[object.Key]intent.Status{}}
	is := func(reason string, touched int) {
		t.Helper()
		h.look(l)
		if got := h.NotReady("", stored); got.Reason != reason || (got.Message == "") != (reason == "") || l.touched != touched {
			t.Errorf("%+v, touched %d times", got, l.touched)
		}
	}
	is("", 0)
	h.Needs(server, punt, errors.New("another Punt has these circuits"))
	is("PuntRefused", 1)
	is("PuntRefused", 1)
	l.states[punt] = intent.Status{State: intent.Failed, Message: "no room"}
	is("PuntRefused", 2)
	// It is tried again, and taken.
	l.states[punt] = intent.Status{State: intent.Applied}
	is("", 3)
	l.states[punt] = intent.Status{State: intent.Failed, Message: "no room"}
	is("PuntRefused", 4)
	l.states[punt] = intent.Status{State: intent.Failed, Message: "Punt pppoe-lines: Punt mine takes pppoe-discovery"}
	is("PuntRefused", 5)
	if got := h.NotReady("", stored).Message; got != "Punt/pppoe-lines is refused: Punt mine takes pppoe-discovery" {
		t.Errorf("message %q", got)
	}
	l.states[punt] = intent.Status{State: intent.Failed, Message: "no room"}
	is("PuntRefused", 6)
	h.NeedsNoLonger(punt)
	is("", 6)
	h.SetNotReady(server, "b", "Two", "two")
	h.SetNotReady(server, "a", "One", "one")
	is("One", 6)
	h.SetNotReady(server, "c", "One", "three")
	if got := h.NotReady("", stored).Message; got != "one; three" {
		t.Errorf("message %q", got)
	}
	h.SetNotReady(server, "c", "", "")
	h.SetNotReady(server, "a", "", "")
	is("Two", 6)
}
