// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"a single rate meter", "Meter", "{committedRate: 1M, committedBurst: 10KB}", ""},
		{"a single rate meter without rate", "Meter", "{committedBurst: 10KB}", "committedRate: missing"},
		{"a single rate meter without burst", "Meter", "{committedRate: 1M, excessBurst: 1KB}", "committedBurst: missing"},
		{"a meter of flows", "Meter", "{committedRate: 1M, committedBurst: 10KB, scope: flow, flows: 4096}", ""},
		{"flows of a session's meter", "Meter", "{committedRate: 1M, committedBurst: 10KB, flows: 4096}", "flows: no effect without scope flow"},
		{"too few flows", "Meter", "{committedRate: 1M, committedBurst: 10KB, scope: flow, flows: 5}", "flows: out of range"},
		{"a burst in both ways", "Meter", "{committedRate: 1M, committedBurst: 10KB, committedBurstTime: 1ms}", "committedBurstTime: duplicate burst"},
		{"a peak below the committed rate", "Meter", "{algorithm: trtcm, committedRate: 2M, committedBurst: 1KB, peakRate: 1M, excessBurst: 1KB}", "peakRate: less than committedRate"},
		{"a two rate meter without peak", "Meter", "{algorithm: trtcm, committedRate: 2M, committedBurst: 1KB, excessBurst: 1KB}", "peakRate: missing"},
		{"only an excess rate", "Meter", "{algorithm: rfc4115, excessRate: 2M, excessBurst: 1KB}", ""},
		{"no rate at all", "Meter", "{algorithm: rfc4115}", "committedRate: missing"},
		{"a rate below the least", "Meter", "{committedRate: 7999, committedBurst: 10KB}", "committedRate: out of range"},
		{"remarking to nothing", "Meter", "{committedRate: 1M, committedBurst: 10KB, red: {verdict: remark}}", "red.dscp: missing"},
		{"a bucket for no packet", "Meter", "{committedRate: 1M, committedBurst: 63B}", "committedBurst: no packet of 64 bytes ever passes: found \"63B\"; accepted: the longest packet or more, such as 1500B"},
		{"a bucket for small packets", "Meter", "{committedRate: 1M, committedBurst: 64B}", ""},
		{"a time for no packet", "Meter", "{committedRate: 8K, committedBurstTime: 63ms}", "committedBurstTime: no packet of 64 bytes ever passes: found \"63ms\"; accepted: the time of the longest packet or more, such as 1500ms for 1500 bytes"},
		{"a bucket for no packet, and red passes", "Meter", "{committedRate: 1M, committedBurst: 63B, red: {verdict: pass}}", ""},
	})
}

func TestTheLongestPacketThatAMeterLetsPass(t *testing.T) {
	pass, drop := &api.MeterAction{}, &api.MeterAction{Verdict: api.MeterVerdict_DROP}
	const two, one, other = api.MeterAlgorithm_TRTCM, api.MeterAlgorithm_SRTCM, api.MeterAlgorithm_RFC4115
	for _, c := range []struct {
		sentence string
		meter    *api.Meter
		field    string
		longest  uint64
	}{
		{"one bucket", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000}, "committedBurst", 1000},
		{"yellow ones are longer", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, ExcessBurst: 1500}, "excessBurst", 1500},
		{"yellow is dropped", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, ExcessBurst: 1500, Yellow: drop}, "committedBurst", 1000},
		{"red passes", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, Red: pass}, "", 0},
		{"red is dropped", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, Red: drop}, "committedBurst", 1000},
		{"a peak burst bounds all", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 9000, PeakRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"what exceeds a small committed burst is yellow", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 100, PeakRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"and dropped", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 100, PeakRate: 8000, ExcessBurst: 700, Yellow: drop}, "committedBurst", 100},
		{"only an excess rate", &api.Meter{Algorithm: other, ExcessRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"a bucket that nothing flows into", &api.Meter{Algorithm: other, ExcessRate: 8000, ExcessBurst: 700, CommittedBurst: 9000}, "excessBurst", 700},
		{"a burst as a time", &api.Meter{Algorithm: one, CommittedRate: 8e6, CommittedBurstTime: 1e6}, "committedBurstTime", 1000},
		{"of the peak rate", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 9000, PeakRate: 8e6, ExcessBurstTime: 1e6}, "excessBurstTime", 1000},
		{"a long time of a high rate", &api.Meter{Algorithm: one, CommittedRate: 4e12, CommittedBurstTime: 1e10}, "committedBurstTime", 5e12},
		{"a burst without its rate, which another may say", &api.Meter{Algorithm: one, CommittedBurst: 10}, "", 0},
		{"a rate without its burst", &api.Meter{Algorithm: one, CommittedRate: 8000}, "", 0},
	} {
		field := ""
		longest, of := longestPacket(c.meter)
		if of != nil {
			field = of.Field
		}
		if longest != c.longest || field != c.field {
			t.Errorf("%s: %d bytes, because of %q; want %d, %q", c.sentence, longest, field, c.longest, c.field)
		}
	}
}
