// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

func TestSessionsAreFoundByTheWordsOfTheirRecordsUntilTheirStop(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{CallingStationId: "{circuit-id}"}, "bng-1")
	table := memory{}
	s := newSessions(table)
	account := func(kind subscriber.RecordKind, id, name string, vlan uint16) {
		table.Put(s.account(p, "", &subscriber.Record{Kind: kind, Request: subscriber.Request{ID: id, Credentials: subscriber.Credentials{Username: name},
			Line: subscriber.Line{Circuit: subscriber.Circuit{Port: "access", OuterVLAN: vlan}, CircuitID: []byte("line")}}})...)
	}
	for i := range 4 {
		account(subscriber.Start, fmt.Sprint("s-", i), []string{"alice", "bob"}[i%2], uint16(100+i))
	}
	find := func(d demand) (ids []string, ok bool) {
		all, refusal := s.find(&d)
		ids = recorded(all)
		return ids, refusal == causeNone
	}
	for range 2 {
		if ids, ok := find(demand{username: []byte("alice")}); !ok || !slices.Equal(ids, []string{"s-0", "s-2"}) {
			t.Error("by name", ids)
		}
		if ids, ok := find(demand{username: []byte("alice"), nasPortID: []byte("access:102.0")}); !ok || !slices.Equal(ids, []string{"s-2"}) {
			t.Error("by name and port", ids)
		}
		if ids, ok := find(demand{calling: []byte("line")}); !ok || len(ids) != 4 {
			t.Error("by station", ids)
		}
		if ids, _ := find(demand{username: []byte("bob"), nasPortID: []byte("access:102.0")}); ids != nil {
			t.Error("words of two sessions", ids)
		}
		if _, ok := find(demand{nasPortID: []byte("nowhere")}); ok {
			t.Error("an unknown port")
		}
		for name, count := range map[string]int{"alice": 3, "carol": 1} {
			// Sessions without accounting: the Manager may know them.
			all, refusal := s.find(&demand{username: []byte(name)})
			if refusal != causeNone || len(all) != count || !slices.Contains(all, subscriber.Match{Username: name}) {
				t.Errorf("%s: %+v", name, all)
			}
		}
		// The records have the name, and the Manager has the MAC.
		all, refusal := s.find(&demand{username: []byte("alice"), calling: []byte("02:00:00:00:00:01")})
		if refusal != causeNone || len(all) != 3 || !slices.Contains(all, subscriber.Match{ID: "s-0", CallingStationID: "02:00:00:00:00:01"}) ||
			!slices.Contains(all, subscriber.Match{Username: "alice", CallingStationID: "02:00:00:00:00:01"}) {
			t.Errorf("%+v", all)
		}
		// After a restart of the agent.
		s = newSessions(table)
	}
	for i := range 4 {
		account(subscriber.Stop, fmt.Sprint("s-", i), "", 0)
	}
	if len(s.byID)+len(s.first)+len(s.more)+len(table) != 0 {
		t.Error("sessions are known after their Stop", s, table)
	}
}

// recorded returns the sessions whose records have all words.
func recorded(all []subscriber.Match) (ids []string) {
	for _, m := range all {
		if m.ID != "" && m.Username == "" && m.CallingStationID == "" {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestARequestForMoreSessionsThanOneMayChangeIsRefused(t *testing.T) {
	s := newSessions(memory{})
	for i := range subscriber.MaxSelected {
		s.set(fmt.Sprint(i), words{username: "all", nasPortID: fmt.Sprint(i)})
	}
	if ids, refusal := s.find(&demand{username: []byte("all")}); len(recorded(ids)) != subscriber.MaxSelected || refusal != causeNone {
		t.Errorf("%d sessions, Error-Cause %d", len(ids), refusal)
	}
	s.set("another", words{username: "all", nasPortID: "another"})
	if ids, refusal := s.find(&demand{username: []byte("all")}); ids != nil || refusal != causeMultiple {
		t.Errorf("%d sessions, Error-Cause %d", len(ids), refusal)
	}
	if ids, refusal := s.find(&demand{username: []byte("all"), nasPortID: []byte("another")}); len(recorded(ids)) != 1 || refusal != causeNone {
		t.Errorf("%d sessions, Error-Cause %d", len(ids), refusal)
	}
}

func TestASessionIsFoundByNASPortAndCalledStationID(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{CalledStationId: "{service}"}, "bng-1")
	table := memory{}
	s := newSessions(table)
	for i := range uint16(3) {
		table.Put(s.account(p, "", &subscriber.Record{Kind: subscriber.Start, Request: subscriber.Request{ID: fmt.Sprint("s-", i), Protocol: "pppoe", PPPoESessionID: 7 + i,
			Service: []string{"gold", "silver"}[i%2], Credentials: subscriber.Credentials{Username: "alice"}}})...)
	}
	byID := func(id string, d demand) demand {
		d.match.ID = id
		return d
	}
	for range 2 {
		for i, c := range []struct {
			of   demand
			want []string
		}{
			{demand{nasPort: "8"}, []string{"s-1"}}, {demand{called: "gold"}, []string{"s-0", "s-2"}}, {demand{nasPort: "9", called: "gold"}, []string{"s-2"}},
			{demand{nasPort: "8", called: "gold"}, nil}, {demand{nasPort: "1"}, nil}, {demand{username: []byte("alice"), nasPort: "7"}, []string{"s-0"}},
			{byID("s-2", demand{called: "gold"}), []string{"s-2"}}, {byID("s-1", demand{called: "gold"}), nil}, {byID("s-9", demand{nasPort: "9"}), nil},
		} {
			all, refusal := s.find(&c.of)
			ids := recorded(all)
			if !slices.Equal(ids, c.want) || (refusal == causeNone) != (c.want != nil) {
				t.Errorf("%d: %q, Error-Cause %d", i, ids, refusal)
			}
		}
		// After a restart of the agent.
		s = newSessions(table)
	}
	// An earlier version stored three words.
	if w, ok := decodeWords([]byte("\x01u\x01p\x01c")); !ok || w != (words{username: "u", nasPortID: "p", calling: "c"}) {
		t.Error(w, ok)
	}
}

func TestAWordThatManySessionsShareNarrowsAChoiceAndIsRefusedAlone(t *testing.T) {
	s := newSessions(memory{})
	for i := range 2 * subscriber.MaxSelected {
		s.set(fmt.Sprint(i), words{username: fmt.Sprint("u", i), nasPort: "100", called: "gold"})
	}
	if all, refusal := s.find(&demand{called: "gold", nasPort: "100"}); all != nil || refusal != causeMultiple {
		t.Error(len(all), refusal)
	}
	// The last one, too, whichever order they have.
	for _, i := range []int{0, 2*subscriber.MaxSelected - 1} {
		all, refusal := s.find(&demand{called: "gold", nasPort: "100", username: []byte(fmt.Sprint("u", i))})
		if ids := recorded(all); refusal != causeNone || !slices.Equal(ids, []string{fmt.Sprint(i)}) {
			t.Error(i, ids, refusal)
		}
	}
	// The Manager may know one of them by another name: none is left out.
	if all, refusal := s.find(&demand{nasPort: "100", username: []byte("alias")}); refusal != causeNone || len(all) != 2*subscriber.MaxSelected {
		t.Error(len(all), refusal)
	}
	for i := range 2 * subscriber.MaxSelected {
		s.end(fmt.Sprint(i))
	}
	if len(s.byID)+len(s.first)+len(s.more) != 0 {
		t.Error("sessions are known after their end")
	}
}
