// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/intent"
)

// stream is an open stream of events.
type stream struct {
	*site
	reply *http.Response
	lines *bufio.Scanner
}

type sentEvent struct{ id, event, data string }

// follow opens a stream of events, which ends with the test: with parameters, and headers as of ask.
func (s *site) follow(query string, headers ...string) *stream {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), "GET", s.url+"/v1/events?"+query, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[access.Read])
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { reply.Body.Close() })
	if reply.StatusCode != 200 || reply.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("%d %v", reply.StatusCode, reply.Header)
	}
	return &stream{s, reply, bufio.NewScanner(reply.Body)}
}

// next returns the next event; false: the stream ended.
func (r *stream) next() (e sentEvent, more bool) {
	for r.lines.Scan() {
		switch name, value, _ := strings.Cut(r.lines.Text(), ": "); {
		case name == "id":
			e.id = value
		case name == "event":
			e.event = value
		case name == "data":
			e.data = value
		case name == "" && e.data != "":
			return e, true
		}
	}
	return e, false
}

func (s *site) connected() {
	s.Helper()
	for range 1000 {
		if s.desired.Measure()["default"].Connected {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatal("the data plane is not connected")
}

func TestEventsGoOnWhereAReaderWas(t *testing.T) {
	s := newSite(t)
	list := s.want(200, s.ask("GET", "/v1/vrfs", ""))
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	s.want(201, s.ask("PUT", "/v1/meters/m", `{"spec":{"algorithm":"srtcm","committedRate":"100M","committedBurst":"64KB"}}`))
	s.want(201, s.ask("PUT", "/v1/vrfs/blue", "{}"))
	// read returns the first events that are about applied objects.
	read := func(count int, r *stream) (names, ids []string) {
		for len(names) < count {
			e, more := r.next()
			if !more {
				t.Fatalf("the stream ended after %v", names)
			}
			var v view
			if err := json.Unmarshal([]byte(e.data), &v); err != nil {
				t.Fatalf("%s: %v", e.data, err)
			}
			if v.Status.State == "applied" {
				names, ids = append(names, v.Metadata.Name), append(ids, e.id)
			}
		}
		return names, ids
	}
	cursor, _ := list.body["cursor"].(string)
	names, ids := read(2, s.follow("kinds=Vrf&cursor="+cursor))
	if fmt.Sprint(names) != "[red blue]" {
		t.Fatalf("%v", names)
	}
	if names, _ := read(1, s.follow("kinds=Vrf", "Last-Event-ID: "+ids[0])); fmt.Sprint(names) != "[blue]" {
		t.Errorf("%v", names)
	}
}

func TestLossOfADataPlaneIsAnEventForAnyFilterOfKinds(t *testing.T) {
	s := newSite(t)
	s.connected()
	r := s.follow("kinds=Vrf")
	s.desired.Detach()
	e, more := r.next()
	if !more {
		t.Fatal("nothing was told")
	}
	var answered struct{ Kind, Name, State, Cursor string }
	if err := json.Unmarshal([]byte(e.data), &answered); err != nil || e.event != "dataplane" || answered.Kind != "Dataplane" || answered.Name != "default" ||
		answered.State != "away" || answered.Cursor == "" {
		t.Errorf("%+v (%v)", e, err)
	}
}

func TestUnchangedObjectsAreReportedAgainWhenADataPlaneIsBack(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	s.connected()
	r := s.follow("kinds=Vrf")
	s.desired.Detach()
	s.attach()
	var events []string
	for len(events) < 3 {
		e, more := r.next()
		if !more {
			break
		}
		events = append(events, e.event)
	}
	if want := []string{"dataplane", "dataplane", "object"}; !slices.Equal(events, want) {
		t.Errorf("%v; want %v", events, want)
	}
}

func TestStreamsEndWithTheAgent(t *testing.T) {
	s := newSite(t)
	r := s.follow("kinds=Vrf")
	s.end()
	for more := true; more; {
		_, more = r.next()
	}
	if err := r.lines.Err(); err != nil {
		t.Error(err)
	}
}

func TestEventsOfServicesAreSentForAnyFilterOfKinds(t *testing.T) {
	s := newSite(t)
	r := s.follow("kinds=Vrf")
	s.desired.Report(&intent.ServiceEvent{Type: "toy", Kind: "Toy", Name: "car", State: "wound", Fields: []intent.EventField{{Name: "turns", Value: "7"}, {Name: "owner"}}})
	e, more := r.next()
	if !more {
		t.Fatal("there was no event")
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(e.data), &got); err != nil || e.event != "toy" || e.id == "" || got["kind"] != "Toy" || got["name"] != "car" || got["state"] != "wound" ||
		got["turns"] != "7" || got["time"] == "" || got["cursor"] != e.id {
		t.Errorf("%+v (%v)", e, err)
	}
	if _, there := got["owner"]; there {
		t.Errorf("a field without a value: %s", e.data)
	}
}
