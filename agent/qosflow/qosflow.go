// SPDX-License-Identifier: Apache-2.0

// Package qosflow is the QoS flows of PDU sessions (TS 23.501 section 5.7): their parameters from NGAP, how packets of each 5QI are marked and queued,
// the meters that limit their rates, and the queues that keep guaranteed bit rates. The AGF and the N3IWF use it.
package qosflow

import (
	"maps"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ngap"
)

// Mark is how packets of a 5QI are marked and queued.
type Mark struct {
	// Of the outer header.
	DSCP string
	// Traffic class, where packets are shaped; 802.1p towards the subscriber.
	Class, Priority uint32
}

// defaults follow the resource types and default priority levels of TS 23.501 table 5.7.4-1, with the code points of RFC 4594: delay critical and
// conversational first, interactive and streaming after them, best effort last.
var defaults = map[uint32]Mark{
	// Guaranteed bit rate.
	1: {"ef", 5, 5}, 2: {"af41", 4, 4}, 3: {"af42", 4, 4}, 4: {"af31", 3, 3}, 65: {"ef", 6, 5}, 66: {"ef", 5, 5}, 67: {"af41", 4, 4},
	71: {"af31", 3, 3}, 72: {"af31", 3, 3}, 73: {"af32", 3, 3}, 74: {"af32", 3, 3}, 76: {"af33", 3, 3},
	// No guaranteed bit rate.
	5: {"cs5", 6, 6}, 6: {"af21", 2, 2}, 7: {"af22", 2, 2}, 8: {"af11", 1, 1}, 9: {"cs0", 0, 0}, 10: {"cs1", 0, 1},
	69: {"cs5", 6, 6}, 70: {"af21", 2, 2}, 79: {"af22", 2, 2}, 80: {"af23", 2, 2},
	// Delay critical, guaranteed bit rate.
	82: {"ef", 7, 5}, 83: {"ef", 7, 5}, 84: {"ef", 7, 5}, 85: {"ef", 7, 5}, 86: {"ef", 7, 5}, 87: {"ef", 7, 5}, 88: {"ef", 7, 5}, 89: {"ef", 7, 5}, 90: {"ef", 7, 5},
}

// Marks are the default marks by 5QI, with what an operator configures in place of them. It must not be changed.
func Marks(changes []*api.FiveQiMark) map[uint32]Mark {
	if len(changes) == 0 {
		return defaults
	}
	marks := maps.Clone(defaults)
	for _, c := range changes {
		marks[c.FiveQi] = Mark{c.Dscp, c.Class, c.Priority}
	}
	return marks
}

// Flow is a QoS flow as NGAP describes it (TS 38.413 section 9.3.1.12).
type Flow struct {
	QFI    uint8
	FiveQI uint32
	// Bit/s; 0: none.
	GuaranteedUp, GuaranteedDown, MaximumUp, MaximumDown uint64
	Reflective                                           bool
}

// Of reads the parameters of a flow.
func Of(qfi ngap.QosFlowIdentifier, p *ngap.QosFlowLevelQosParameters) Flow {
	f := Flow{QFI: uint8(qfi), FiveQI: 9}
	switch c := &p.QosCharacteristics; {
	case c.NonDynamic5QI != nil:
		f.FiveQI = uint32(c.NonDynamic5QI.FiveQI)
	case c.Dynamic5QI != nil && c.Dynamic5QI.FiveQI != nil:
		f.FiveQI = uint32(*c.Dynamic5QI.FiveQI)
	}
	if g := p.GBRQosInformation; g != nil {
		f.GuaranteedUp, f.GuaranteedDown = Rate(g.GuaranteedFlowBitRateUL), Rate(g.GuaranteedFlowBitRateDL)
		f.MaximumUp, f.MaximumDown = Rate(g.MaximumFlowBitRateUL), Rate(g.MaximumFlowBitRateDL)
	}
	f.Reflective = p.ReflectiveQosAttribute != nil
	return f
}

// Guaranteed: the flow has a guaranteed bit rate, and does not count among aggregate rates (TS 23.501 section 5.7.1.8).
func (f *Flow) Guaranteed() bool {
	return f.GuaranteedUp|f.GuaranteedDown|f.MaximumUp|f.MaximumDown != 0
}

// Sorted are flows in the order of their QFIs.
func Sorted(flows map[uint8]Flow) []Flow {
	all := slices.Collect(maps.Values(flows))
	slices.SortFunc(all, func(a, b Flow) int { return int(a.QFI) - int(b.QFI) })
	return all
}

// Most is the MFBR of the flow, bit/s. A flow may always use what is guaranteed.
func (f *Flow) Most(up bool) uint64 {
	if up {
		return max(f.MaximumUp, f.GuaranteedUp)
	}
	return max(f.MaximumDown, f.GuaranteedDown)
}

// Queues are the QosProfile of one direction: a class for each traffic class that has a guaranteed bit rate, and one for the rest. nil: no
// flow has one. rate is the session's AMBR, which flows with a guaranteed bit rate do not use up (TS 23.501 section 5.7.1.8).
func Queues(flows map[uint8]Flow, marks map[uint32]Mark, rate uint64, up bool) *api.QosProfile {
	type share struct{ guaranteed, most uint64 }
	classes := map[uint32]share{}
	for _, f := range flows {
		if !f.Guaranteed() {
			continue
		}
		guaranteed := f.GuaranteedDown
		if up {
			guaranteed = f.GuaranteedUp
		}
		one := classes[marks[f.FiveQI].Class]
		classes[marks[f.FiveQI].Class] = share{one.guaranteed + guaranteed, one.most + f.Most(up)}
	}
	if len(classes) == 0 {
		return nil
	}
	// The data plane numbers classes in their order, as a FlowProfile does.
	last := slices.Max(slices.Collect(maps.Keys(classes)))
	for _, f := range flows {
		last = max(last, marks[f.FiveQI].Class)
	}
	profile := &api.QosProfile{}
	for class := range last + 1 {
		one := &api.QosClass{Name: "class" + strconv.Itoa(int(class)), Priority: 7 - min(class, 7)}
		if s, guaranteed := classes[class]; guaranteed {
			one.CommittedRate, one.PeakRate = Bounded(s.guaranteed), Bounded(s.most)
			profile.CommittedRate += one.CommittedRate
			profile.PeakRate += one.PeakRate
		} else if rate != 0 {
			one.PeakRate = Bounded(rate)
		}
		profile.Classes = append(profile.Classes, one)
	}
	if profile.PeakRate += rate; rate == 0 {
		profile.PeakRate = 0
	}
	profile.PeakRate, profile.CommittedRate = Bounded(profile.PeakRate), Bounded(profile.CommittedRate)
	return profile
}

// Rate is a rate of NGAP, which may lie outside of its bounds. A negative one limits to the least.
func Rate(r ngap.BitRate) uint64 {
	if r < 0 {
		return 1
	}
	return uint64(r)
}

// Bounded is a rate within the bounds of api/hqos.proto; 0 stays 0.
func Bounded(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return min(max(rate, 8000), 4_000_000_000_000)
}
