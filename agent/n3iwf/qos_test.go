// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"errors"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/qosflow"
)

func TestAFlowWhoseGuaranteedRateDoesNotFitIsRefused(t *testing.T) {
	s := &serving{groups: map[string]*api.QosGroup{"down": {CommittedRate: 1000}, "up": {}}}
	in := &instance{s: s, spec: &api.N3Iwf{QosGroup: "down", QosGroupUp: "up"}, reserved: &rates{}}
	u := &ue{s: s, in: in, sessions: map[uint8]*pduSession{}}
	session := func() *pduSession { return &pduSession{u: u, parameters: parameters{flows: map[uint8]qosflow.Flow{}}} }
	voice := qosflow.Flow{QFI: 1, FiveQI: 1, GuaranteedDown: 600, GuaranteedUp: 5000}
	first, second := session(), session()
	if refused := first.admit(first.flows, []qosflow.Flow{{QFI: 9}, voice}); len(refused) != 0 || len(first.flows) != 2 {
		t.Error(refused)
	}
	first.reserve()
	if refused := second.admit(second.flows, []qosflow.Flow{{QFI: 9}, voice}); len(refused) != 1 || refused[0].QosFlowIdentifier != 1 || len(second.flows) != 1 {
		t.Error(refused, second.flows)
	}
	second.reserve()
	// Its own rate does not stand in its way, and what does not fit leaves the flow as it was.
	voice.GuaranteedDown = 900
	if refused := first.admit(first.flows, []qosflow.Flow{voice}); len(refused) != 0 {
		t.Error(refused)
	}
	first.reserve()
	voice.GuaranteedDown = 1100
	if refused := first.admit(first.flows, []qosflow.Flow{voice}); len(refused) != 1 || first.flows[1].GuaranteedDown != 900 || in.reserved.down != 900 {
		t.Error(refused, first.flows, in.reserved)
	}
	first.removed = true
	first.reserve()
	if !in.reserved.none() {
		t.Error(in.reserved)
	}
}

func TestASessionThatIsAppliedTwiceWithoutAChangeIsDone(t *testing.T) {
	p := &pduSession{u: &ue{s: &serving{}}, made: true, turn: 2}
	var results []error
	p.waiting = append(p.waiting, func(err error) { results = append(results, err) })
	// The first result comes after the second apply has begun. The data plane does not carry out what is as it was.
	p.settle(1, &api.Session{Vrf: "one"}, nil)
	if results != nil {
		t.Fatal(results)
	}
	p.settle(2, &api.Session{Vrf: "one"}, errNotDone)
	if len(results) != 1 || results[0] != nil {
		t.Error(results)
	}
	p.turn, p.waiting = 3, append(p.waiting, func(err error) { results = append(results, err) })
	p.settle(3, &api.Session{Vrf: "two"}, errNotDone)
	if len(results) != 2 || !errors.Is(results[1], errNotDone) {
		t.Error(results)
	}
}
