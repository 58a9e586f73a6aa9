// SPDX-License-Identifier: Apache-2.0

package qosflow

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
)

func limit(session string, own, subscriber nas.AMBR, together bool, flows map[uint8]Flow) Limits {
	return Limit(&Aggregates{Session: own, Subscriber: subscriber, TogetherUp: together, TogetherDown: together, SessionID: session, SubscriberID: "line",
		Name: func(spec proto.Message, owner string) string { return fmt.Sprintf("%q %v", owner, spec) }}, flows)
}

func TestASessionHasAMeterAndItsFlowsHaveOnesWhereTheyNeedThem(t *testing.T) {
	plain := map[uint8]Flow{5: {QFI: 5, FiveQI: 9}}
	voice := map[uint8]Flow{5: {QFI: 5, FiveQI: 9}, 1: {QFI: 1, FiveQI: 1, GuaranteedUp: 300, GuaranteedDown: 400, MaximumUp: 100_000}}
	for _, test := range []struct {
		session, ambr nas.AMBR
		together      bool
		flows         map[uint8]Flow
		up, down      uint64
		meters        int
		voice, rest   int
	}{
		{flows: plain},
		{session: nas.AMBR{Up: 10, Down: 20}, flows: plain, up: 10, down: 20},
		{session: nas.AMBR{Up: 10, Down: 20}, ambr: nas.AMBR{Up: 15, Down: 15}, flows: plain, up: 10, down: 15},
		{ambr: nas.AMBR{Up: 15}, flows: plain, up: 15},
		{session: nas.AMBR{Up: 10}, ambr: nas.AMBR{Up: 15, Down: 15}, together: true, flows: plain, meters: 3, rest: 2},
		{session: nas.AMBR{Up: 10, Down: 20}, flows: voice, meters: 4, voice: 1, rest: 1},
		{session: nas.AMBR{Up: 10, Down: 20}, ambr: nas.AMBR{Up: 15, Down: 15}, together: true, flows: voice, meters: 6, voice: 1, rest: 2},
	} {
		l := limit("one", test.session, test.ambr, test.together, test.flows)
		if l.Up != test.up || l.Down != test.down || len(l.Meters) != test.meters {
			t.Errorf("%+v: %+v", test, l)
		}
		if up, _ := l.Of(5); len(up) != test.rest {
			t.Errorf("%+v: the flow has %v", test, up)
		}
		if up, down := l.Of(1); test.voice > 0 && (len(up) != 1 || len(down) != 1) {
			t.Errorf("%+v: the flow with a guaranteed bit rate has %v %v", test, up, down)
		}
		for _, m := range l.Meters {
			if m.Spec.Scope != api.MeterScope_GLOBAL || m.Name == "" {
				t.Errorf("%+v: %+v", test, m)
			}
		}
	}
	// Other sessions have other meters, but for the subscriber's.
	ambr := nas.AMBR{Up: 15, Down: 15}
	one, other := limit("one", ambr, ambr, true, plain), limit("other", ambr, ambr, true, plain)
	if one.otherUp[0] == other.otherUp[0] || one.otherUp[1] != other.otherUp[1] || one.otherUp[1] == one.otherDown[1] {
		t.Errorf("%v %v", one, other)
	}
}

func TestAFlowWithoutAMaximumInADirectionIsWithinTheAggregateRatesThere(t *testing.T) {
	flows := map[uint8]Flow{9: {QFI: 9, FiveQI: 9}, 1: {QFI: 1, FiveQI: 1, GuaranteedUp: 3, MaximumUp: 2}}
	l := limit("one", nas.AMBR{Up: 1_000_000, Down: 2_000_000}, nas.AMBR{}, false, flows)
	up, down := l.Of(1)
	if len(l.Meters) != 2 || len(up) != 1 || up[0] == l.otherUp[0] || down != nil || l.Down != 2_000_000 {
		t.Errorf("%v %v %+v", up, down, l)
	}
	flows[2] = Flow{QFI: 2, FiveQI: 1, MaximumDown: 100_000}
	l = limit("one", nas.AMBR{Up: 1_000_000, Down: 2_000_000}, nas.AMBR{}, false, flows)
	if _, down = l.Of(1); !slices.Equal(down, l.otherDown) || len(down) != 1 {
		t.Error(down)
	}
}

func TestTheSubscribersRateIsSharedWhereSessionsMayExceedIt(t *testing.T) {
	for _, test := range []struct {
		subscriber uint64
		sessions   []uint64
		together   bool
	}{{0, []uint64{5, 6}, false}, {10, []uint64{20}, false}, {10, []uint64{4, 6}, false}, {10, []uint64{4, 7}, true}, {10, []uint64{4, 0}, true},
		{10, []uint64{1 << 63, 1 << 63}, true}} {
		var sessions []nas.AMBR
		for _, rate := range test.sessions {
			sessions = append(sessions, nas.AMBR{Up: rate, Down: 1})
		}
		if up, down := Together(nas.AMBR{Up: test.subscriber, Down: 10}, sessions); up != test.together || down {
			t.Errorf("%+v: %v %v", test, up, down)
		}
	}
}

func TestRulesAreOfUplinkPackets(t *testing.T) {
	both := nas.PacketFilter{Direction: nas.Bidirectional, Protocol: new(uint8)}
	down := nas.PacketFilter{Direction: nas.Downlink, Protocol: new(uint8)}
	flows := map[uint8]Flow{5: {QFI: 5, FiveQI: 9}, 1: {QFI: 1, FiveQI: 1}}
	q := nas.QoS{Rules: map[uint8]nas.QoSRule{1: {Identifier: 1, Precedence: 10, QFI: 1, Filters: []nas.PacketFilter{both, down}},
		2: {Identifier: 2, Precedence: 20, QFI: 1, Filters: []nas.PacketFilter{down}}, 3: {Identifier: 3, Precedence: 255, QFI: 5},
		4: {Identifier: 4, Precedence: 30, QFI: 7}}}
	profile := Profile(&q, flows, Marks(nil), &Limits{})
	if len(profile.Rules) != 2 || profile.Rules[0].Qfi != 1 || len(profile.Rules[0].Filters) != 1 || profile.Rules[1].Qfi != 5 {
		t.Error(profile.Rules)
	}
	if f := profile.Rules[0].Filters[0]; f.Direction != api.FilterDirection_UPLINK || f.Protocol != "0" {
		t.Error(f)
	}
	if profile = Profile(nil, flows, Marks(nil), &Limits{}); len(profile.Rules) != 0 {
		t.Error(profile.Rules)
	}
}

func TestPacketsOfNoFlowHaveTheMetersOfTheAggregateRates(t *testing.T) {
	flows := map[uint8]Flow{9: {QFI: 9, FiveQI: 9}, 1: {QFI: 1, FiveQI: 1, MaximumUp: 100_000, MaximumDown: 100_000}}
	l := limit("one", nas.AMBR{Up: 1_000_000, Down: 2_000_000}, nas.AMBR{}, false, flows)
	profile := Profile(nil, flows, Marks(nil), &l)
	voice, rest := profile.Flows[0], profile.Flows[1]
	if len(profile.OtherMetersUp) != 1 || !slices.Equal(profile.OtherMetersUp, rest.MetersUp) || slices.Equal(rest.MetersUp, voice.MetersUp) {
		t.Error(profile)
	}
	if len(profile.OtherMetersDown) != 1 || !slices.Equal(profile.OtherMetersDown, rest.MetersDown) || slices.Equal(rest.MetersDown, voice.MetersDown) {
		t.Error(profile)
	}
	// The session's own meters are of all its packets.
	delete(flows, 1)
	l = limit("one", nas.AMBR{Up: 1_000_000, Down: 2_000_000}, nas.AMBR{}, false, flows)
	if profile = Profile(nil, flows, Marks(nil), &l); profile.OtherMetersUp != nil || profile.OtherMetersDown != nil || Needed(profile, &l) {
		t.Error(profile)
	}
}

func TestASessionOfOneFlowWithoutMarksNeedsNoProfile(t *testing.T) {
	for fiveQI, needed := range map[uint32]bool{9: false, 1: true, 10: true} {
		if profile := Profile(nil, map[uint8]Flow{5: {QFI: 5, FiveQI: fiveQI}}, Marks(nil), &Limits{}); Needed(profile, &Limits{}) != needed {
			t.Error(fiveQI, profile)
		}
	}
	if profile := Profile(nil, map[uint8]Flow{5: {FiveQI: 9, QFI: 5}, 6: {FiveQI: 9, QFI: 6}}, Marks(nil), &Limits{}); !Needed(profile, &Limits{}) {
		t.Error(profile)
	}
}
