// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
)

// rates are aggregate maximum bit rates, bit/s; 0: none.
type rates struct{ up, down uint64 }

func (r rates) none() bool { return r == rates{} }

func (r rates) plus(o rates) rates  { return rates{r.up + o.up, r.down + o.down} }
func (r rates) minus(o rates) rates { return rates{r.up - o.up, r.down - o.down} }

// guaranteed is the sum of the GFBRs of flows.
func guaranteed(flows map[uint8]qosflow.Flow) (sum rates) {
	for _, f := range flows {
		sum = sum.plus(rates{f.GuaranteedUp, f.GuaranteedDown})
	}
	return sum
}

// dscps are the numbers of names.
var dscps = map[string]int{"cs0": 0, "cs1": 8, "af11": 10, "af12": 12, "af13": 14, "cs2": 16, "af21": 18, "af22": 20, "af23": 22, "cs3": 24, "af31": 26, "af32": 28, "af33": 30,
	"cs4": 32, "af41": 34, "af42": 36, "af43": 38, "cs5": 40, "va": 44, "ef": 46, "cs6": 48, "cs7": 56}

// dscpOf is the number of a DSCP; -1: packets keep their own.
func dscpOf(name string) int {
	if number, known := dscps[name]; known {
		return number
	}
	if number, err := strconv.ParseUint(name, 10, 6); err == nil {
		return int(number)
	}
	return -1
}

// group is the QoS flows of a child SA.
type group struct {
	qfis      []uint8
	isDefault bool
	dscp      int
}

// groups divides QoS flows among child SAs: the default one, and one for each 5QI that has child SAs of its own.
func groups(own []uint32, marks map[uint32]qosflow.Mark, flows map[uint8]qosflow.Flow) []group {
	apart := map[uint32]*group{}
	all := group{isDefault: true, dscp: -1}
	for _, qfi := range sortedIDs(flows) {
		f := flows[qfi]
		if !slices.Contains(own, f.FiveQI) {
			all.qfis = append(all.qfis, qfi)
			continue
		}
		if apart[f.FiveQI] == nil {
			apart[f.FiveQI] = &group{dscp: dscpOf(marks[f.FiveQI].DSCP)}
		}
		apart[f.FiveQI].qfis = append(apart[f.FiveQI].qfis, qfi)
	}
	made := []group{all}
	for _, fiveQI := range slices.Sorted(maps.Keys(apart)) {
		made = append(made, *apart[fiveQI])
	}
	return made
}

func sortedIDs[T any](of map[uint8]T) []uint8 {
	return slices.SortedFunc(maps.Keys(of), cmp.Compare[uint8])
}

// ---- The rates and queues of a PDU session.

// take uses an object that sessions share, for the Session that is next applied. Its name is that of equal specs, unless it is given.
type take func(kind, name string, spec proto.Message) string

func (r rates) ambr() nas.AMBR { return nas.AMBR{Up: r.up, Down: r.down} }

// together tells whether the UE's rate limits its PDU sessions together.
func (u *ue) together() (up, down bool) {
	var all []nas.AMBR
	for _, p := range u.sessions {
		all = append(all, p.ambr.ambr())
	}
	return qosflow.Together(u.ambr.ambr(), all)
}

// enforce limits rates. Queues keep guaranteed rates, where the operator configures groups for them.
func (p *pduSession) enforce(policy *api.Policy, use take) {
	u, spec, marks := p.u, p.u.in.spec, p.u.in.marks
	p.togetherUp, p.togetherDown = u.together()
	l := qosflow.Limit(&qosflow.Aggregates{Session: p.ambr.ambr(), Subscriber: u.ambr.ambr(), TogetherUp: p.togetherUp, TogetherDown: p.togetherDown,
		SessionID: p.name(), SubscriberID: u.name, Name: u.s.shared.Name}, p.flows)
	// Queues are for packets.
	if spec.QosGroup != "" && !p.frames {
		if queues := qosflow.Queues(p.flows, marks, l.Aggregate.Down, false); queues != nil {
			policy.QosProfile, policy.QosGroup = use("QosProfile", "", queues), spec.QosGroup
		}
	}
	if spec.QosGroupUp != "" && !p.frames {
		if queues := qosflow.Queues(p.flows, marks, l.Aggregate.Up, true); queues != nil {
			policy.QosProfileUp, policy.QosGroupUp = use("QosProfile", "", queues), spec.QosGroupUp
		}
	}
	for _, m := range l.Meters {
		use("Meter", m.Name, m.Spec)
	}
	if l.Up != 0 {
		policy.MeterUp = use("Meter", "", qosflow.MeterOf(l.Up))
	}
	if l.Down != 0 {
		policy.MeterDown = use("Meter", "", qosflow.MeterOf(l.Down))
	}
	policy.FlowProfile = use("FlowProfile", "", qosflow.Profile(nil, p.flows, marks, &l))
}

// fits says whether the groups can guarantee so much altogether.
func (in *instance) fits(sum rates) bool {
	within := func(group string, rate uint64) bool {
		most := in.s.groups[group].GetCommittedRate()
		return most == 0 || rate <= most
	}
	return within(in.spec.QosGroupUp, sum.up) && within(in.spec.QosGroup, sum.down)
}

// admit adds flows to those of a session, but for flows whose guaranteed bit rate does not fit beside what other sessions have: those are refused
// (TS 23.501 section 5.7.1.2).
func (p *pduSession) admit(flows map[uint8]qosflow.Flow, more []qosflow.Flow) (refused []ngap.QosFlowWithCauseItem) {
	others := p.u.in.reserved.minus(p.reserved)
	for _, f := range more {
		before, had := flows[f.QFI]
		flows[f.QFI] = f
		if !f.Guaranteed() || p.u.in.fits(others.plus(guaranteed(flows))) {
			continue
		}
		if delete(flows, f.QFI); had {
			flows[f.QFI] = before
		}
		cause := ngap.CauseRadioNetworkRadioResourcesNotAvailable
		refused = append(refused, ngap.QosFlowWithCauseItem{QosFlowIdentifier: ngap.QosFlowIdentifier(f.QFI), Cause: ngap.Cause{RadioNetwork: &cause}})
	}
	return refused
}

// reserve counts what is guaranteed to the session's flows.
func (p *pduSession) reserve() {
	now := rates{}
	if !p.removed {
		now = guaranteed(p.flows)
	}
	*p.u.in.reserved = p.u.in.reserved.minus(p.reserved).plus(now)
	p.reserved = now
}

func (p *pduSession) setRates(r *ngap.PDUSessionAggregateMaximumBitRate) {
	if r != nil {
		p.ambr = rates{qosflow.Rate(r.PDUSessionAggregateMaximumBitRateUL), qosflow.Rate(r.PDUSessionAggregateMaximumBitRateDL)}
	}
}

// setRates takes the UE's aggregate rates. Sessions that have a user plane get them.
func (u *ue) setRates(r *ngap.UEAggregateMaximumBitRate) {
	if r == nil {
		return
	}
	now := rates{qosflow.Rate(r.UEAggregateMaximumBitRateUL), qosflow.Rate(r.UEAggregateMaximumBitRateDL)}
	if u.ambr == now {
		return
	}
	u.ambr = now
	for _, id := range sortedIDs(u.sessions) {
		if p := u.sessions[id]; p.made {
			p.apply(p.complain)
		}
	}
}

// share applies to the PDU sessions, but one that is applied anyway, that the UE's rate is shared from now on, or is not.
func (u *ue) share(but *pduSession) {
	up, down := u.together()
	for _, id := range sortedIDs(u.sessions) {
		if p := u.sessions[id]; p != but && p.made && (p.togetherUp != up || p.togetherDown != down) {
			p.apply(p.complain)
		}
	}
}

// complain logs what a change failed of that nothing waits for.
func (p *pduSession) complain(err error) {
	if err != nil && !p.removed {
		p.u.s.Log.Error("a PDU session keeps its old rates", "name", p.name(), "error", err)
	}
}
