package object

import (
	"fmt"
	"math/bits"
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
	if longest, of := MeterPasses(m); of != nil && longest < leastPacket {
		add(of.Field, fmt.Sprintf("no packet of %d bytes ever passes", leastPacket), of.Found, of.Accepted)
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

const (
	// Of IP. The shortest frames of Ethernet have that much, with what is around the packet.
	leastPacket = 64
	// UsualPacket is how long packets get on most links, in bytes of IP (RFC 894).
	UsualPacket = 1500
)

// MeterPasses returns how many bytes of IP the longest packet has that a meter ever lets pass, and which field bounds that: as an error that
// has the field, what it says and what would be enough for usual packets. Nil: nothing bounds it, or what does is not said.
func MeterPasses(m *api.Meter) (longest uint64, of *Error) {
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
	of = &Error{Field: least.field, Found: formatUnit(api.Unit_BYTES, least.bytes), Accepted: fmt.Sprintf("the longest packet or more, such as %dB", UsualPacket)}
	if least.time != 0 {
		const ms = 1e6
		of.Field += "Time"
		of.Found = formatUnit(api.Unit_NANOSECONDS, least.time)
		enough := (UsualPacket*8e9 + least.rate*ms - 1) / (least.rate * ms) * ms
		of.Accepted = fmt.Sprintf("the time of the longest packet or more, such as %s for %d bytes", FormatNumber(api.Unit_NANOSECONDS, enough), UsualPacket)
	}
	return least.holds(), of
}

// bucket is a meter's; one that nothing flows into stays empty.
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
