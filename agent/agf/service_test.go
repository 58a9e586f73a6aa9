// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestASequenceNumberIsAcceptedOnceAlsoOfAnEarlierRegistration(t *testing.T) {
	c := &api.CoreSubscriber{Line: "line-7", Imsi: "001010000000001", Key: "00112233445566778899aabbccddeeff", Opc: "62e75b8d6fa5bf46ec87a9276f9df54d"}
	s := &agf{credentials: map[string]*api.CoreSubscriber{"one": c}, sequences: map[string]uint64{}, of: map[*Line]*registration{}, lines: map[string]*registration{}, holds: map[string]hold{}}
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
