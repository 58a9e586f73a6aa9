// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

func TestASequenceNumberIsAcceptedOnceAlsoOfAnEarlierRegistration(t *testing.T) {
	c := &api.CoreSubscriber{Line: "line-7", Imsi: "001010000000001", Key: "00112233445566778899aabbccddeeff", Opc: "62e75b8d6fa5bf46ec87a9276f9df54d"}
	s := &agf{credentials: map[string]*api.CoreSubscriber{"one": c}, credentialOf: map[string]string{"line-7": "one"}, sequences: map[string]uint64{}, of: map[*Line]*registration{}, lines: map[string]*registration{}, holds: map[string]hold{}}
	settings := func() Settings {
		set, err := s.settings("line-7", [6]byte{}, &api.Agf{}, &api.AccessNode{Plmn: "00101"})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := settings()
	set.Subscription.Restore(96)
	one := &registration{Line: NewLine(set, nil), key: "line-7"}
	s.of[one.Line], s.lines[one.key] = one, one
	s.Over(one.Line, nil, 0)
	if got := settings().Subscription.Greatest(); got != 96 {
		t.Errorf("the next registration begins with %d", got)
	}
	// Another card.
	c.Key = "ff112233445566778899aabbccddeeff"
	if got := settings().Subscription.Greatest(); got != 0 {
		t.Errorf("another card begins with %d", got)
	}
}

func TestTheAgfOfALineIsThatOfItsProfileOrTheFirstOne(t *testing.T) {
	s := &agf{nodes: map[string]*api.AccessNode{"bonn": {Plmn: "00101"}, "wifi": {Plmn: "00101", N3IwfId: 9}},
		agfs:  map[string]*api.Agf{"c": {Node: "bonn"}, "b": {Node: "bonn"}, "a": {Node: "wifi"}, "d": {Node: "cologne"}, "e": {Node: "bonn"}},
		named: map[string]string{"offices": "e", "wrong": "a", "gone": "f", "away": "d"}}
	for profile, want := range map[string]string{"homes": "b", "offices": "e"} {
		if name, of, node := s.agfOf(profile); name != want || of != s.agfs[want] || node != s.nodes["bonn"] {
			t.Errorf("%s: %s, %v, %v", profile, name, of, node)
		}
	}
	for _, profile := range []string{"wrong", "gone", "away"} {
		if name, of, node := s.agfOf(profile); name != s.named[profile] || of != nil || node != nil {
			t.Errorf("%s: %s, %v, %v", profile, name, of, node)
		}
	}
	s.agfs = map[string]*api.Agf{"a": {Node: "wifi"}}
	if name, of, _ := s.agfOf("homes"); name != "" || of != nil {
		t.Errorf("%s, %v", name, of)
	}
}

func TestALineOfARecordWithoutAnAgfHasTheOneOfItsAccessNode(t *testing.T) {
	s := &agf{nodes: map[string]*api.AccessNode{"bonn": {Plmn: "00101"}, "cologne": {Plmn: "00101"}},
		agfs:  map[string]*api.Agf{"a": {Node: "bonn"}, "b": {Node: "cologne", HfcNode: "cmts-7"}},
		lines: map[string]*registration{}, of: map[*Line]*registration{}, members: map[string]*member{}, sequences: map[string]uint64{}}
	source, _ := up(t)
	r := source.record()
	r.Node, r.Sessions = "cologne", nil
	if err := s.takeUp(&r); err != nil {
		t.Fatal(err)
	}
	if one := s.lines["line-7"]; one == nil || one.agf != "b" || one.settings.HFCNode != "cmts-7" {
		t.Errorf("%+v", one)
	}
}

func TestACoreSubscriberIsFoundByItsLine(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	put := func(name, line string) {
		var o *object.Object
		if line != "" {
			o = &object.Object{Kind: "CoreSubscriber", Name: name, Spec: &api.CoreSubscriber{Line: line}}
		}
		s.Follow(service.Change{Key: object.Key{Kind: "CoreSubscriber", Name: name}, Object: o})
	}
	put("one", "line-1")
	put("two", "line-2")
	put("one", "line-3")
	if s.credentialOf["line-1"] != "" || s.credentialOf["line-2"] != "two" || s.credentialOf["line-3"] != "one" {
		t.Errorf("%v", s.credentialOf)
	}
	put("one", "")
	if len(s.credentialOf) != 1 {
		t.Errorf("%v", s.credentialOf)
	}
}

// keeping is a service whose records are in a log, and the log.
func keeping(t *testing.T, directory string) (*agf, *durable.Log) {
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	table, err := log.Table("agf")
	if err != nil {
		t.Fatal(err)
	}
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry(), Records: table, Log: slog.New(slog.DiscardHandler)})
	s.loadRecords()
	return s, log
}

func TestARefusedLineWaitsAlsoAfterARestart(t *testing.T) {
	directory := t.TempDir()
	s, log := keeping(t, directory)
	for _, name := range []string{"line-7", "line-8"} {
		one := &registration{Line: NewLine(Settings{}, nil), agf: "homes", key: name}
		one.attempts, one.doubts = 3, 2
		s.of[one.Line], s.lines[name] = one, one
		s.Over(one.Line, errors.New("the core rejects the registration"), time.Hour)
	}
	before := s.holds["line-7"]
	// The other one registers.
	second := &registration{Line: NewLine(Settings{}, nil), key: "line-8"}
	s.of[second.Line], s.lines["line-8"] = second, second
	s.Over(second.Line, nil, 0)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s, log = keeping(t, directory)
	after := s.holds["line-7"]
	if len(s.holds) != 1 || !after.until.Equal(before.until) || after.attempts != 3 || after.doubts != 2 || after.objects != before.objects || after.agf != "homes" || after.why.Error() != before.why.Error() {
		t.Errorf("%+v", s.holds)
	}
	var refused subscriber.Answer
	s.ask(&subscriber.Request{Credentials: subscriber.Credentials{Username: "line-7"}}, "homes", &api.Agf{}, &api.AccessNode{}, func(a subscriber.Answer) { refused = a })
	if !errors.Is(refused.Reject, subscriber.ErrRejected) || !strings.Contains(refused.Reject.Error(), "the core rejects the registration") {
		t.Errorf("%v", refused.Reject)
	}
	// The time is over, and nothing is left of it.
	s.holds["line-7"] = hold{until: time.Now().Add(-2 * forgetTime), why: after.why}
	s.tick()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if s, log = keeping(t, directory); len(s.holds) != 0 {
		t.Errorf("%+v", s.holds)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestALineWithoutANameIsRefusedByTheFieldToSet(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	var answer subscriber.Answer
	s.ask(&subscriber.Request{Profile: "home"}, "homes", &api.Agf{}, &api.AccessNode{}, func(a subscriber.Answer) { answer = a })
	if answer.Reject == nil || !strings.Contains(answer.Reject.Error(), "`username` in SubscriberProfile/home") || len(s.lines) != 0 {
		t.Errorf("%+v", answer)
	}
}

func TestOtherMarkingsAreOfLinesThatAreUpAndOfThoseOfBeforeARestart(t *testing.T) {
	marked := []*api.FiveQiMark{{FiveQi: 9, Class: 3, Dscp: "af11"}}
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	follow := func(markings []*api.FiveQiMark) {
		s.Follow(service.Change{Key: object.Key{Kind: "AccessNode", Name: "bonn"}, Object: &object.Object{Kind: "AccessNode", Name: "bonn", Spec: &api.AccessNode{Plmn: "00101"}}})
		s.Follow(service.Change{Key: object.Key{Kind: "Agf", Name: "homes"}, Object: &object.Object{Kind: "Agf", Name: "homes", Spec: &api.Agf{Node: "bonn", Markings: markings}}})
	}
	add := func(l *Line) *registration {
		one := &registration{Line: l, agf: "homes", key: l.settings.Line}
		s.of[l], s.lines[one.key] = one, one
		return one
	}
	b, u := up(t)
	add(b.Line)
	follow(marked)
	s.tick()
	if len(u.changed) != 1 || len(u.changed[0].Flows.GetFlows()) != 1 || u.changed[0].Flows.Flows[0].Class != 3 || u.changed[0].Flows.Flows[0].Dscp != "af11" || b.saved == 0 {
		t.Fatalf("%+v", u.changed)
	}
	// The Agf changes in another field, or for 5QIs that the line does not have.
	follow(marked)
	s.tick()
	follow(append([]*api.FiveQiMark{{FiveQi: 70, Class: 2}}, marked...))
	s.tick()
	if len(u.changed) != 1 {
		t.Errorf("%d changes", len(u.changed))
	}
	// They change while the agent does not run: its record has those of the objects of its session.
	follow(marked)
	s.tick()
	octets, err := json.Marshal(b.record())
	if err != nil {
		t.Fatal(err)
	}
	var r lineRecord
	if err := json.Unmarshal(octets, &r); err != nil {
		t.Fatal(err)
	}
	s = newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	follow(nil)
	r.AGF, r.Sessions[0].Left = "homes", true
	if err := s.takeUp(&r); err != nil {
		t.Fatal(err)
	}
	one := s.lines["line-7"]
	if !sameMarkings(one.settings.Markings, marked) || one.settings.Marks[9].Class != 3 {
		t.Fatalf("%v", one.settings.Markings)
	}
	again := &bed{t: t, now: b.now, Line: one.Line}
	v := &user{}
	one.world, one.sessions[1].events = again, v
	s.tick()
	if len(v.changed) != 1 || v.changed[0].Flows != nil || len(one.settings.Markings) != 0 {
		t.Errorf("%+v", v.changed)
	}
}

func TestAChangeOfTheAgfOrTheCredentialsEndsTheWaitOfARejectedLine(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	put := func(kind, name string, spec proto.Message) {
		s.Follow(service.Change{Key: object.Key{Kind: kind, Name: name}, Object: &object.Object{Kind: kind, Name: name, Spec: spec}})
	}
	put("Agf", "homes", &api.Agf{Node: "bonn"})
	put("CoreSubscriber", "one", &api.CoreSubscriber{Line: "line-7"})
	waits := func() bool {
		one := &registration{Line: NewLine(settings(), nil), key: "line-7", agf: "homes"}
		one.doubts = 4
		s.of[one.Line], s.lines[one.key] = one, one
		s.Over(one.Line, errors.New("illegal UE"), time.Hour)
		return s.holds["line-7"].doubts == 4
	}
	outdated := func() bool { h := s.holds["line-7"]; return s.objectsOf("line-7", h.agf) != h.objects }
	for _, change := range []func(){
		func() { put("Agf", "homes", &api.Agf{Node: "bonn", Dnn: "other"}) },
		func() { put("CoreSubscriber", "one", &api.CoreSubscriber{Line: "line-7", Imsi: "001010000000001"}) },
		func() { s.Follow(service.Change{Key: object.Key{Kind: "CoreSubscriber", Name: "one"}}) },
	} {
		if !waits() || outdated() {
			t.Fatal("no wait")
		}
		put("CoreSubscriber", "two", &api.CoreSubscriber{Line: "line-8"})
		put("Agf", "offices", &api.Agf{Node: "bonn"})
		if outdated() {
			t.Error("a change of another object ends it")
		}
		if change(); !outdated() {
			t.Error("it waits all the same")
		}
	}
}

func TestARefusedLineIsListedThoughItNeedNotWait(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	s.credentialOf["line-8"] = "one"
	s.refused("line-7", "homes", missing("homes"))
	s.refused("line-8", "homes", errors.New("CoreSubscriber/one: imsi: it is too short"))
	answer, err := s.list(t.Context(), &api.AgfLinesQuery{})
	if err != nil || len(answer.Lines) != 2 {
		t.Fatal(answer, err)
	}
	for i, want := range []string{"no Agf/homes with an AccessNode", "CoreSubscriber/one: imsi: it is too short"} {
		if l := answer.Lines[i]; l.State != refused || l.Reason != want || l.Credentials != (i == 1) {
			t.Errorf("%v", l)
		}
	}
	// A wait stays as it is.
	until := time.Now().Add(time.Hour)
	s.holds["line-7"] = hold{until: until, why: errors.New("illegal UE")}
	if s.refused("line-7", "homes", missing("homes")); s.holds["line-7"].until != until {
		t.Error(s.holds["line-7"])
	}
}

func TestAProfileOfTheCoreWithoutAnAgfIsNotReady(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	registry, err := object.NewRegistry(nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(kind, name string, spec proto.Message) *object.StoredObject {
		o := &object.Object{Kind: kind, Name: name, Spec: spec}
		s.Follow(service.Change{Key: o.Key(), Object: o})
		stored, err := registry.NewStored(o.Key(), nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	home := put("SubscriberProfile", "home", &api.SubscriberProfile{Authentication: []string{"radius"}, Authorization: []string{"core"}})
	other := put("SubscriberProfile", "other", &api.SubscriberProfile{Authentication: []string{"local"}})
	if why := s.NotReady("", home); why.Message != "authorization: core: there is no Agf with an AccessNode" {
		t.Error(why)
	}
	put("AccessNode", "bonn", &api.AccessNode{Plmn: "00101"})
	put("Agf", "homes", &api.Agf{Node: "bonn"})
	for _, of := range []*object.StoredObject{home, other} {
		if why := s.NotReady("", of); why.Reason != "" {
			t.Error(why)
		}
	}
}
