// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Meter that annotations cannot express.
package rules

import (
	"fmt"
	"math/bits"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.Meter]{Check: checkMeter, Warn: warnMeter},
}

// checkMeter: RFC 2697 section 2, RFC 2698 section 2, RFC 4115 section 2.1: which parameters there are, and that a bucket which is filled
// can hold something.
func checkMeter(m *api.Meter, add object.Report) {
	burst := func(name string, bytes, time uint64) {
		if bytes != 0 && time != 0 {
			add(name+"Time", "duplicate burst", object.FormatNumber(api.Unit_NANOSECONDS, time), name+" or "+name+"Time, not both")
		}
	}
	burst("committedBurst", m.CommittedBurst, m.CommittedBurstTime)
	burst("excessBurst", m.ExcessBurst, m.ExcessBurstTime)
	need := func(field string, value uint64, accepted string) {
		if value == 0 {
			add(field, "missing", "", accepted)
		}
	}
	unused := func(field string, value uint64) {
		if value != 0 {
			add(field, "not used by this algorithm", strconv.FormatUint(value, 10), "no value")
		}
	}
	committed, excess := m.CommittedBurst|m.CommittedBurstTime, m.ExcessBurst|m.ExcessBurstTime
	switch m.Algorithm {
	case api.MeterAlgorithm_SRTCM:
		need("committedRate", m.CommittedRate, "the committed information rate, which srtcm needs")
		need("committedBurst", committed, "committedBurst or committedBurstTime, which srtcm needs")
		unused("peakRate", m.PeakRate)
		unused("excessRate", m.ExcessRate)
	case api.MeterAlgorithm_TRTCM:
		need("committedRate", m.CommittedRate, "the committed information rate, which trtcm needs")
		need("committedBurst", committed, "committedBurst or committedBurstTime, which trtcm needs")
		need("peakRate", m.PeakRate, "the peak information rate, which trtcm needs")
		need("excessBurst", excess, "excessBurst or excessBurstTime (the peak burst), which trtcm needs")
		if m.PeakRate != 0 && m.PeakRate < m.CommittedRate {
			add("peakRate", "less than committedRate", object.FormatNumber(api.Unit_BITS_PER_SECOND, m.PeakRate),
				"at least "+object.FormatNumber(api.Unit_BITS_PER_SECOND, m.CommittedRate))
		}
		unused("excessRate", m.ExcessRate)
	case api.MeterAlgorithm_RFC4115:
		if m.CommittedRate == 0 && m.ExcessRate == 0 {
			add("committedRate", "missing", "", "committedRate, excessRate or both, which rfc4115 needs")
		}
		if m.CommittedRate != 0 {
			need("committedBurst", committed, "committedBurst or committedBurstTime beside committedRate")
		}
		if m.ExcessRate != 0 {
			need("excessBurst", excess, "excessBurst or excessBurstTime beside excessRate")
		}
		unused("peakRate", m.PeakRate)
	}
	if longest, of := longestPacket(m); of != nil && longest < minPacket {
		add(of.Field, fmt.Sprintf("no packet of %d bytes ever passes", minPacket), of.Found, of.Accepted)
	}
	if m.Flows != 0 && m.Scope != api.MeterScope_FLOW {
		add("flows", "no effect without scope flow", strconv.FormatUint(uint64(m.Flows), 10), "no value, or scope flow")
	}
	for _, colour := range []struct {
		name   string
		action *api.MeterAction
	}{{"yellow", m.Yellow}, {"red", m.Red}} {
		remarks := colour.action.GetVerdict() == api.MeterVerdict_REMARK
		switch {
		case remarks && colour.action.Dscp == "":
			add(colour.name+".dscp", "missing", "", "the DSCP to set: "+object.FormatAccepted(api.Format_DSCP))
		case !remarks && colour.action.GetDscp() != "":
			add(colour.name+".dscp", "no effect without verdict remark", object.Quote(colour.action.Dscp), "no value, or verdict remark")
		}
	}
}

// warnMeter reports meters that never pass a packet of the usual MTU.
func warnMeter(m *api.Meter, warn object.Report) {
	if longest, of := longestPacket(m); of != nil && longest < usualPacket {
		warn(of.Field, fmt.Sprintf("no packet of more than %d bytes ever passes, and most links take %d", longest, usualPacket), of.Found, of.Accepted)
	}
}

const (
	// Of IP: the payload of the shortest Ethernet frame with its overhead.
	minPacket = 64
	// usualPacket is how long packets get on most links, in bytes of IP (RFC 894).
	usualPacket = 1500
)

// longestPacket returns the length of the longest IP packet that a meter ever passes, and an error with the field that
// bounds it, its value, and a value that is enough for usual packets. Nil: no bound, or no field sets it.
func longestPacket(m *api.Meter) (longest uint64, of *object.Error) {
	if m.Red != nil && m.Red.Verdict != api.MeterVerdict_DROP {
		return 0, nil
	}
	committed := bucket{"committedBurst", m.CommittedBurst, m.CommittedBurstTime, m.CommittedRate}
	excess := bucket{"excessBurst", m.ExcessBurst, m.ExcessBurstTime, m.CommittedRate}
	least := committed
	switch m.Algorithm {
	case api.MeterAlgorithm_TRTCM:
		// Green and yellow are within the peak burst, both.
		excess.rate = m.PeakRate
		least = excess
		if m.Yellow.GetVerdict() == api.MeterVerdict_DROP && committed.holds() < excess.holds() {
			least = committed
		}
	case api.MeterAlgorithm_RFC4115:
		excess.rate = m.ExcessRate
		fallthrough
	default:
		if m.Yellow.GetVerdict() != api.MeterVerdict_DROP && excess.holds() > committed.holds() {
			least = excess
		}
	}
	if least.rate == 0 || least.bytes|least.time == 0 {
		return 0, nil
	}
	of = &object.Error{Field: least.field, Found: object.FormatUnit(api.Unit_BYTES, least.bytes), Accepted: fmt.Sprintf("the longest packet or more, such as %dB", usualPacket)}
	if least.time != 0 {
		const ms = 1e6
		of.Field += "Time"
		of.Found = object.FormatUnit(api.Unit_NANOSECONDS, least.time)
		enough := (usualPacket*8e9 + least.rate*ms - 1) / (least.rate * ms) * ms
		of.Accepted = fmt.Sprintf("the time of the longest packet or more, such as %s for %d bytes", object.FormatNumber(api.Unit_NANOSECONDS, enough), usualPacket)
	}
	return least.holds(), of
}

// bucket is a bucket of a meter; a bucket without a rate stays empty.
type bucket struct {
	field             string
	bytes, time, rate uint64
}

// holds is in bytes.
func (b *bucket) holds() uint64 {
	if b.rate == 0 || b.time == 0 {
		return b.bytes * min(b.rate, 1)
	}
	const nanobytes = 8e9
	over, low := bits.Mul64(b.rate, b.time)
	if over >= nanobytes {
		return 1<<64 - 1
	}
	bytes, _ := bits.Div64(over, low, nanobytes)
	return bytes
}
