// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"bytes"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ngap"
)

func TestAReportHasWhatWasCarriedSinceTheOneBefore(t *testing.T) {
	begin := time.Unix(1_000_000_000, 0)
	u := usage{since: begin}
	if !u.read(1, volume{1, 100, 2, 200}) || u.read(1, volume{1, 100, 2, 200}) {
		t.Error("old counters count as new ones")
	}
	item := u.report(ngap.RATTypeNrUnlicensed, begin.Add(time.Second)).PDUSessionUsageReport.PDUSessionTimedReportList[0]
	if item.UsageCountUL != 100 || item.UsageCountDL != 200 {
		t.Error(item)
	}
	// RFC 5905 section 6: seconds since 1900.
	if !bytes.Equal(item.StartTimeStamp, []byte{0xbf, 0x45, 0x48, 0x80}) || !bytes.Equal(item.EndTimeStamp, []byte{0xbf, 0x45, 0x48, 0x81}) {
		t.Errorf("%x %x", item.StartTimeStamp, item.EndTimeStamp)
	}
	// Another data plane counts from 0.
	u.read(3, volume{3, 300, 2, 200})
	// A reading that began earlier ends later.
	u.read(2, volume{2, 150, 2, 200})
	u.read(4, volume{1, 50, 0, 0})
	item = u.report(ngap.RATTypeNrUnlicensed, begin.Add(3*time.Second)).PDUSessionUsageReport.PDUSessionTimedReportList[0]
	if item.UsageCountUL != 250 || item.UsageCountDL != 0 || u.total() != (volume{4, 350, 2, 200}) {
		t.Error(item, u.total())
	}
	if !bytes.Equal(item.StartTimeStamp, []byte{0xbf, 0x45, 0x48, 0x81}) {
		t.Errorf("%x", item.StartTimeStamp)
	}
}

func TestUEsAreInTheOrderOfTheirNumbers(t *testing.T) {
	if byName("n3iwf-a-9", "n3iwf-a-10") >= 0 || byName("n3iwf-b-1", "n3iwf-a-10") <= 0 || byName("n3iwf-a-7", "n3iwf-a-7") != 0 {
		t.Error("UE 10 comes before UE 9")
	}
}
