package object

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// checkMeter: RFC 2697 section 2, RFC 2698 section 2, RFC 4115 section 2.1: which parameters there are, and that a bucket which is filled
// can hold something.
func checkMeter(spec proto.Message, add report) {
	m, ok := spec.(*api.Meter)
	if !ok {
		return
	}
	burst := func(name string, bytes, time uint64) {
		if bytes != 0 && time != 0 {
			add(name+"Time", "the burst is there twice", FormatNumber(api.Unit_NANOSECONDS, time), name+" or "+name+"Time, not both")
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
			add(field, "not used by this algorithm", strconv.FormatUint(value, 10), "to leave it out")
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
			add("peakRate", "less than committedRate", FormatNumber(api.Unit_BITS_PER_SECOND, m.PeakRate),
				"at least "+FormatNumber(api.Unit_BITS_PER_SECOND, m.CommittedRate))
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
	if m.Flows != 0 && m.Scope != api.MeterScope_FLOW {
		add("flows", "of no use without scope flow", strconv.FormatUint(uint64(m.Flows), 10), "to leave it out, or scope flow")
	}
	for _, colour := range []struct {
		name   string
		action *api.MeterAction
	}{{"yellow", m.Yellow}, {"red", m.Red}} {
		remarks := colour.action.GetVerdict() == api.MeterVerdict_REMARK
		switch {
		case remarks && colour.action.Dscp == "":
			add(colour.name+".dscp", "missing", "", "the DSCP to set: "+formatAccepted(api.Format_DSCP))
		case !remarks && colour.action.GetDscp() != "":
			add(colour.name+".dscp", "of no use without verdict remark", quote(colour.action.Dscp), "to leave it out, or verdict remark")
		}
	}
}
