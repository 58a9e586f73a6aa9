// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
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
