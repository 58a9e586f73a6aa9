// SPDX-License-Identifier: Apache-2.0

package qosflow

import (
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ngap"
)

func TestQueuesKeepWhatIsGuaranteed(t *testing.T) {
	marks := Marks([]*api.FiveQiMark{{FiveQi: 7, Dscp: "af22", Class: 3}})
	flows := map[uint8]Flow{9: {QFI: 9, FiveQI: 9}, 7: {QFI: 7, FiveQI: 7}}
	if Queues(flows, marks, 1_000_000, false) != nil {
		t.Error("queues without a guaranteed rate")
	}
	flows[1] = Flow{QFI: 1, FiveQI: 1, GuaranteedUp: 300_000, MaximumUp: 500_000, GuaranteedDown: 400_000}
	flows[2] = Flow{QFI: 2, FiveQI: 1, GuaranteedUp: 100_000, MaximumUp: 100_000, GuaranteedDown: 100_000, MaximumDown: 200_000}
	up, down := Queues(flows, marks, 1_000_000, true), Queues(flows, marks, 1_000_000, false)
	voice, rest := up.Classes[5], up.Classes[0]
	if voice.CommittedRate != 400_000 || voice.PeakRate != 600_000 || rest.CommittedRate != 0 || rest.PeakRate != 1_000_000 || voice.Priority >= rest.Priority {
		t.Errorf("%v %v", voice, rest)
	}
	// A flow may always use what is guaranteed.
	if voice = down.Classes[5]; voice.CommittedRate != 500_000 || voice.PeakRate != 600_000 {
		t.Error(voice)
	}
	if up.CommittedRate != 400_000 || up.PeakRate != 1_600_000 {
		t.Error(up)
	}
}

func TestAFlowIsReadFromItsParameters(t *testing.T) {
	five := ngap.FiveQI(66)
	f := Of(3, &ngap.QosFlowLevelQosParameters{QosCharacteristics: ngap.QosCharacteristics{Dynamic5QI: &ngap.Dynamic5QIDescriptor{FiveQI: &five}},
		GBRQosInformation: &ngap.GBRQosInformation{MaximumFlowBitRateUL: 2, GuaranteedFlowBitRateUL: 3}})
	if f.QFI != 3 || f.FiveQI != 66 || !f.Guaranteed() || f.Most(true) != 3 || f.Most(false) != 0 {
		t.Errorf("%+v", f)
	}
	if f = Of(9, &ngap.QosFlowLevelQosParameters{}); f.FiveQI != 9 || f.Guaranteed() {
		t.Errorf("%+v", f)
	}
}

// A core that sends a negative rate takes no limit away.
func TestANegativeRateLimits(t *testing.T) {
	for rate, want := range map[ngap.BitRate]uint64{-5: 8000, -1: 8000, 0: 0, 1_000_000: 1_000_000, 5_000_000_000_000: 4_000_000_000_000} {
		if got := Bounded(Rate(rate)); got != want {
			t.Errorf("%d: %d, not %d", rate, got, want)
		}
	}
}
