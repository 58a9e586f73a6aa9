// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// scene is an agent with a data plane and a broker, all in memory except for the northbound's database.
type scene struct {
	*testing.T
	*carrier
	registry *object.Registry
	desired  *intent.Desired
	memory   string
	logger   *slog.Logger
	// Of its northbound, and of all.
	hush, stop func()
}

func newScene(t *testing.T) *scene {
	t.Helper()
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return newSceneOf(t, r, slog.DiscardHandler)
}

// newSceneOf is newScene with kinds and a log handler.
func newSceneOf(t *testing.T, r *object.Registry, log slog.Handler) *scene {
	t.Helper()
	s := &scene{T: t, carrier: newCarrier(), registry: r, memory: filepath.Join(t.TempDir(), "memory.db"), logger: slog.New(log)}
	s.agent()
	t.Cleanup(func() { s.stop() })
	return s
}

// agent starts an agent without desired state.
func (s *scene) agent() {
	s.Helper()
	desired, err := intent.New(intent.Config{Registry: s.registry, Log: s.logger, Reconciler: reconcile.Options{MinBackoff: time.Millisecond}})
	if err != nil {
		s.Fatal(err)
	}
	s.desired = desired
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		desired.Run(ctx)
	}()
	desired.Attach(ctx, reconciletest.NewPlane(s.registry))
	s.hush = s.northbound()
	s.stop = func() {
		s.hush()
		cancel()
		running.Wait()
	}
}

// northbound starts a northbound, and returns the function that stops it.
func (s *scene) northbound() func() {
	s.Helper()
	m, err := openMemory(s.memory, time.Now())
	if err != nil {
		s.Fatal(err)
	}
	n := &engine{Environment: northbound.Environment{Name: "broker", Intent: s.desired, Registry: s.registry, Log: s.logger},
		driver: s.carrier, memory: m, min: time.Microsecond, max: time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		n.run(ctx)
	}()
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := m.close(); err != nil {
			s.Error(err)
		}
	})
}

func (s *scene) sent(all ...*Message) {
	s.Helper()
	s.send(all...)
	until(s.T, "all acknowledged", s.allAcknowledged)
}

// rate is that of a meter; "": there is none.
func (s *scene) rate(name string) string {
	st, there := s.desired.Get(object.Key{Kind: "Meter", Name: name})
	if !there || st.Object == nil {
		return ""
	}
	path, err := s.registry.Kind("Meter").Path("committedRate")
	if err != nil {
		s.Fatal(err)
	}
	return strings.Join(path.Strings(st.Object.Spec), "")
}

func (s *scene) hasRates(want map[string]string) {
	s.Helper()
	for name, rate := range want {
		if got := s.rate(name); got != rate {
			s.Errorf("meter %s has rate %q, not %q", name, got, rate)
		}
	}
}

func document(kind, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "sluice.dev/v1", "kind": %q, "metadata": {"name": %q}, "spec": %s}`, kind, name, spec)
}

func meter(name, rate string) string {
	return document("Meter", name, `{"algorithm": "srtcm", "committedRate": "`+rate+`", "committedBurst": "64KB"}`)
}

func session(name string, vlan int) string {
	return document("Session", name, fmt.Sprintf(`{"access": {"port": "p", "outerVlan": %d}, "addresses": ["100.64.0.%d/32"]}`, vlan, name[len(name)-1]))
}

func message(body string, headers ...string) *Message {
	m := &Message{Body: []byte(body)}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Headers = append(m.Headers, Header{headers[i], headers[i+1]})
	}
	return m
}

func tombstone(key string) *Message { return &Message{Key: key, Tombstone: true} }

func TestMessagesChangeDesiredState(t *testing.T) {
	for _, c := range []struct {
		sentence string
		messages []*Message
		rates    map[string]string
	}{
		{"an object is created", []*Message{message(meter("a", "1M"))}, map[string]string{"a": "1M"}},
		{"the last message about an object counts", []*Message{message(meter("a", "1M")), message(meter("a", "2M"))}, map[string]string{"a": "2M"}},
		{"YAML is understood, and several documents", []*Message{message(
			"# two\n---\napiVersion: sluice.dev/v1\nkind: Meter\nmetadata: {name: a}\nspec: {algorithm: srtcm, committedRate: 1M, committedBurst: 64KB}\n---\n" + meter("b", "2M"))},
			map[string]string{"a": "1M", "b": "2M"}},
		{"an object is deleted by its name", []*Message{message(meter("a", "1M")), message("kind: Meter\nmetadata: {name: a}", "operation", "delete")},
			map[string]string{"a": ""}},
		{"several are deleted, with whatever else is said of them", []*Message{message(meter("a", "1M")), message(meter("b", "1M")),
			message(meter("a", "nonsense")+"\n---\n"+meter("b", "1M"), "operation", "delete")}, map[string]string{"a": "", "b": ""}},
		{"a message without a body deletes what its key names", []*Message{message(meter("a", "1M")), tombstone("Meter/a")}, map[string]string{"a": ""}},
		{"to delete what is not there is well", []*Message{tombstone("Meter/a"), message(meter("b", "1M"))}, map[string]string{"a": "", "b": "1M"}},
		{"what was deleted can come again", []*Message{message(meter("a", "1M")), tombstone("Meter/a"), message(meter("a", "2M"))},
			map[string]string{"a": "2M"}},
		{"an older revision does not win", []*Message{message(meter("a", "2M"), "revision", "2"), message(meter("a", "1M"), "revision", "1")},
			map[string]string{"a": "2M"}},
		{"an older revision does not bring back what was deleted", []*Message{message(meter("a", "1M"), "revision", "1"),
			message("kind: Meter\nmetadata: {name: a}", "operation", "delete", "revision", "3"), message(meter("a", "2M"), "revision", "2")},
			map[string]string{"a": ""}},
		{"the same revision again changes nothing", []*Message{message(meter("a", "2M"), "revision", "2"), message(meter("a", "2M"), "revision", "2")},
			map[string]string{"a": "2M"}},
		{"of a message, only what is newer counts", []*Message{message(meter("a", "2M"), "revision", "2"),
			message(meter("a", "1M")+"\n---\n"+meter("b", "1M"), "revision", "1")}, map[string]string{"a": "2M", "b": "1M"}},
	} {
		for _, most := range []int{1, 2, 100} {
			t.Run(fmt.Sprintf("%s, by %d", c.sentence, most), func(t *testing.T) {
				s := newScene(t)
				s.by(most)
				s.sent(c.messages...)
				s.hasRates(c.rates)
				if len(s.dead) > 0 {
					t.Errorf("dead: %+v", s.dead[0].Reason)
				}
				// All of it again, as after a crash before anything was acknowledged.
				s.back(0)
				until(t, "all acknowledged again", s.allAcknowledged)
				s.hasRates(c.rates)
			})
		}
	}
}

func TestAnOlderMessageThatComesAgainChangesNothing(t *testing.T) {
	s := newScene(t)
	s.by(1)
	older, newer := message(meter("a", "1M")), message(meter("a", "2M"))
	older.Stream, newer.Stream = "intent/0", "intent/0"
	s.sent(older, newer)
	revision := s.desired.Revision()
	s.stop()
	s.back(0)
	s.agent()
	until(t, "all acknowledged again", s.allAcknowledged)
	// The new agent has no other configuration, so it shows which messages were applied.
	s.hasRates(map[string]string{"a": "2M"})
	if got := s.desired.Revision(); got != 1 || revision != 2 {
		t.Errorf("%d revisions from both messages, then %d from those that came again", revision, got)
	}
}

const anyName = "at most 253 letters, digits and . _ : @ -, beginning and ending with a letter or digit"

func TestABadMessageIsADeadLetterAndDisturbsNoOther(t *testing.T) {
	well := map[string]string{"first": "1M", "last": "2M"}
	for _, c := range []struct {
		sentence string
		before   []*Message
		bad      *Message
		want     Reason
	}{
		{"a value out of range", nil, message(document("Vrf", "a", `{}`) + "\n---\n" + strings.Replace(session("s", 1), "1}", "5000}", 1)),
			Reason{Object: "Session/s", Field: "access.outerVlan", Found: "5000", Accepted: "0 to 4094; 0: untagged"}},
		{"no YAML", nil, message("{{{"), Reason{}},
		{"binary", nil, message("\x00\xff\xfe"), Reason{Accepted: "text in UTF-8"}},
		{"nothing", nil, message(""), Reason{Accepted: "documents with apiVersion, kind, metadata and spec"}},
		{"an object twice", nil, message(meter("a", "1M") + "\n---\n" + meter("a", "2M")), Reason{Object: "Meter/a", Accepted: "each object once"}},
		{"an operation that is none", nil, message(meter("a", "1M"), "operation", "turn"),
			Reason{Field: "operation", Found: "turn", Accepted: "put, delete"}},
		{"a revision that is none", nil, message(meter("a", "1M"), "revision", "-1"),
			Reason{Field: "revision", Found: "-1", Accepted: "a number from 1"}},
		{"a key that is none", nil, tombstone("alice"), Reason{Field: "key", Found: `"alice"`, Accepted: "KIND/NAME"}},
		{"the deletion of a kind that is none", nil, message("kind: Teapot\nmetadata: {name: a}", "operation", "delete"),
			Reason{Field: "kind", Found: "Teapot"}},
		{"the deletion of what can have no such name, with a body", nil, message("kind: Vrf\nmetadata: {name: "+strings.Repeat("x", 40000)+"}", "operation", "delete"),
			Reason{Field: "metadata.name", Found: `"` + strings.Repeat("x", 80) + `..."`, Accepted: anyName}},
		{"the deletion of what can have no such name, without", nil, tombstone("Vrf/" + strings.Repeat("x", 40000)),
			Reason{Field: "key", Found: `"Vrf/` + strings.Repeat("x", headerLimit-4) + `..."`, Accepted: "KIND/NAME"}},
		{"a VLAN that another has", []*Message{message(session("holder", 7))}, message(session("s", 7)), Reason{Object: "Session/s", Field: "access"}},
		{"an object of another owner", nil, message(meter("theirs", "3M")),
			Reason{Object: "Meter/theirs", Field: "committedRate", Found: "3 Mbit/s", Owner: "broker", Holder: "api", Accepted: "the value of api, to leave the field out, or to take over (force)"}},
		{"the deletion of an object of another owner", nil, tombstone("Meter/theirs"),
			Reason{Object: "Meter/theirs", Owner: "broker", Holder: "api", Accepted: "deletion by its owner, api"}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t)
			theirs, err := s.registry.Decode(strings.NewReader(meter("theirs", "1M")), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.desired.Apply(context.Background(), intent.Source{Owner: "api"}, []object.Change{object.Put(theirs[0].Object)}, intent.Options{}); err != nil {
				t.Fatal(err)
			}
			if len(c.before) > 0 {
				s.sent(c.before...)
			}
			s.sent(message(meter("first", "1M")), c.bad, message(meter("last", "2M")))
			s.hasRates(well)
			s.hasRates(map[string]string{"theirs": "1M", "a": ""})
			if len(s.dead) != 1 {
				t.Fatalf("%d dead letters", len(s.dead))
			}
			d := s.dead[0]
			if d.Message.Position != fmt.Sprintf("intent/0@%d", len(c.before)+1) || d.Reason.Error == "" {
				t.Errorf("position %q, error %q", d.Message.Position, d.Reason.Error)
			}
			d.Reason.Error = ""
			if d.Reason != c.want {
				t.Errorf("found %+v\nwant  %+v", d.Reason, c.want)
			}
		})
	}
}

func TestADeadLetterHasItsHeadersAndTheReason(t *testing.T) {
	d := Dead{&Message{Position: "intent/0@17", Headers: []Header{{"revision", "3"}, {"error", "of an earlier try"}}},
		Reason{Error: "wrong", Object: "Meter/a", Field: "committedRate"}}
	want := []Header{{"revision", "3"}, {"error", "wrong"}, {"object", "Meter/a"}, {"field", "committedRate"}, {"position", "intent/0@17"}}
	if got := d.Headers(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestInvalidMessagesAreFoundWhicheverObjectTheErrorNames(t *testing.T) {
	s := newScene(t)
	var all []*Message
	for i := range 100 {
		text := fmt.Sprintf(`{"access": {"port": "p", "outerVlan": %d}, "addresses": ["100.64.0.%d/32"]}`, 1+i%50, i)
		all = append(all, message(document("Session", fmt.Sprintf("s%d", i), text)))
	}
	s.sent(all...)
	if len(s.dead) != 50 {
		t.Errorf("%d dead letters", len(s.dead))
	}
	for i := range 50 {
		if _, there := s.desired.Get(object.Key{Kind: "Session", Name: fmt.Sprintf("s%d", i)}); !there {
			t.Errorf("s%d, which was first, is not there", i)
		}
	}
}

func TestManyMessagesAreOneRevision(t *testing.T) {
	s := newScene(t)
	var all []*Message
	for i := range 2_000 {
		all = append(all, message(meter(fmt.Sprintf("m%d", i), "1M")))
	}
	s.sent(all...)
	if r := s.desired.Revision(); r != 1 {
		t.Errorf("%d revisions", r)
	}
	s.hasRates(map[string]string{"m0": "1M", "m1999": "1M"})
}

func TestNothingIsLostWhenTheConnectionIs(t *testing.T) {
	s := newScene(t)
	r := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	s.Lock()
	s.most = 3
	s.fault = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(3) == 0 {
			return errLost
		}
		return nil
	}
	s.Unlock()
	want := map[string]string{}
	for i := range 100 {
		name, rate := fmt.Sprintf("m%d", i%20), fmt.Sprintf("%dM", i+1)
		m := message(meter(name, rate))
		m.Stream = "intent/0"
		s.send(m)
		want[name] = rate
	}
	s.send(message("{{{"))
	until(t, "all acknowledged", s.allAcknowledged)
	s.hasRates(want)
	s.Lock()
	dead, opened := len(s.dead), s.opened
	s.Unlock()
	if dead == 0 || opened < 2 {
		t.Errorf("%d dead letters, %d connections", dead, opened)
	}
	until(t, "the last state of each is told", func() bool {
		s.Lock()
		defer s.Unlock()
		states := lastStates(t, s.events)
		for name := range want {
			if states["Meter/"+name] != "applied" {
				return false
			}
		}
		return true
	})
}

func lastStates(t *testing.T, events []Published) map[string]string {
	t.Helper()
	last := map[string]string{}
	for _, p := range events {
		var e struct{ APIVersion, Kind, Name, State, Cursor, Time string }
		if err := json.Unmarshal(p.Body, &e); err != nil {
			t.Fatal(err)
		}
		if k := (object.Key{Kind: e.Kind, Name: e.Name}); k != p.Key || e.APIVersion != object.APIVersion || e.Cursor == "" || e.Time == "" {
			t.Errorf("%s: %s", p.Key, p.Body)
		}
		last[p.Key.String()] = e.State
		if p.Gone != (e.State == "gone") {
			t.Errorf("gone is %v: %s", p.Gone, p.Body)
		}
	}
	return last
}

func (s *scene) tells(key, state string) {
	s.Helper()
	until(s.T, key+" is told to be "+state, func() bool {
		s.Lock()
		defer s.Unlock()
		return lastStates(s.T, s.events)[key] == state
	})
}

func TestTheStatusOfObjectsIsPublished(t *testing.T) {
	s := newScene(t)
	s.sent(message(meter("a", "1M")), message(session("s", 1)))
	s.tells("Meter/a", "applied")
	s.tells("Session/s", "pending")
	s.sent(tombstone("Meter/a"))
	s.tells("Meter/a", "gone")
}

func TestLossAndReturnOfADataPlaneArePublishedWithTheObjectsThatWereUnknown(t *testing.T) {
	s := newScene(t)
	plane := reconciletest.NewPlane(s.registry)
	ctx, away := context.WithCancel(t.Context())
	s.desired.Attach(ctx, plane)
	s.sent(message(meter("a", "1M")))
	s.tells("Meter/a", "applied")
	s.tells("Dataplane/default", "connected")
	s.Lock()
	before := len(s.events)
	s.Unlock()
	away()
	s.tells("Dataplane/default", "away")
	s.Lock()
	if more := s.events[before:]; len(more) != 1 {
		t.Errorf("told %d events", len(more))
	}
	s.Unlock()
	// A northbound that starts now sees the state Unknown.
	s.hush()
	s.hush = s.northbound()
	s.tells("Meter/a", "unknown")
	s.desired.Attach(t.Context(), plane)
	s.tells("Dataplane/default", "connected")
	s.tells("Meter/a", "applied")
}

func TestObjectsDeletedWhileTheNorthboundWasStoppedArePublishedAsGone(t *testing.T) {
	s := newScene(t)
	s.sent(message(meter("a", "1M")), message(meter("b", "1M")))
	s.tells("Meter/a", "applied")
	s.tells("Meter/b", "applied")
	s.stop()
	s.Lock()
	s.log, s.read, s.acked, s.events = nil, 0, 0, nil
	s.Unlock()
	// This agent has no configuration, as if the objects were deleted.
	s.agent()
	s.tells("Meter/a", "gone")
	s.tells("Meter/b", "gone")
	s.stop()
	s.Lock()
	m := len(s.events)
	s.Unlock()
	s.agent()
	s.sent(message(meter("c", "1M")))
	s.tells("Meter/c", "applied")
	s.Lock()
	defer s.Unlock()
	if _, again := lastStates(t, s.events[m:])["Meter/a"]; again {
		t.Error("told twice to be gone")
	}
}

func TestMemoryRemovesObjectsThatWereDeletedLongAgo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.db")
	begin := time.Unix(1_000_000, 0)
	m, err := openMemory(path, begin)
	if err != nil {
		t.Fatal(err)
	}
	k, kept := object.Key{Kind: "Meter", Name: "a"}, object.Key{Kind: "Meter", Name: "b"}
	last := map[object.Key]lastChange{k: {change: object.Remove(k), order: Order{Revision: 3}},
		kept: {change: object.Put(&object.Object{Kind: "Meter", Name: "b"}), order: Order{Revision: 4, Stream: "x", Number: 5}}}
	if err := m.storeOrders(last, begin); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		later time.Duration
		want  int
	}{{time.Hour, 2}, {forgetAfter + sweepEvery, 1}} {
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
		if m, err = openMemory(path, begin.Add(c.later)); err != nil {
			t.Fatal(err)
		}
		known, err := m.loadOrders([]*parsedMessage{{changes: []object.Change{object.Remove(k), object.Remove(kept)}}})
		if err != nil || len(known) != c.want || known[kept] != (Order{Revision: 4, Stream: "x", Number: 5}) {
			t.Errorf("after %v: %v, %v", c.later, known, err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzMessagesAreReadWithoutPanic(f *testing.F) {
	r, err := concepts.NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	for _, operation := range []string{"", "delete", "put", "x"} {
		f.Add(meter("a", "1M"), operation, "1", "Meter/a", false)
	}
	f.Add("- &a [*a, *a]", "delete", "", "", true)
	f.Fuzz(func(t *testing.T, body, operation, revision, key string, empty bool) {
		l := read(r, &Message{Body: []byte(body), Key: key, Tombstone: empty, Headers: []Header{{"operation", operation}, {"revision", revision}}})
		if (l.dead == nil) != (len(l.changes) > 0) && l.dead == nil {
			t.Error("neither accepted nor refused")
		}
		if l.dead != nil && l.dead.Error == "" {
			t.Error("refused without a reason")
		}
	})
}

func TestEventsOfServicesArePublishedAndNotRemembered(t *testing.T) {
	s := newScene(t)
	s.sent(message(meter("a", "1M")))
	s.tells("Meter/a", "applied")
	s.desired.Report(&intent.ServiceEvent{Type: "toy", Kind: "Toy", Name: "car", State: "wound"})
	s.tells("Toy/car", "wound")
	// An object that was reported and does not exist any more is gone. An event is no object.
	s.hush()
	s.Lock()
	before := len(s.events)
	s.Unlock()
	s.hush = s.northbound()
	s.sent(message(meter("b", "1M")))
	s.tells("Meter/b", "applied")
	s.Lock()
	defer s.Unlock()
	if _, again := lastStates(t, s.events[before:])["Toy/car"]; again {
		t.Error("an event of a service is published as an object that is gone")
	}
}
