// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/qosflow"
)

func TestNotificationsAreAsTheSpecificationHasThem(t *testing.T) {
	for _, one := range []struct {
		got []byte
		hex string
	}{
		{qosInfo(5, []uint8{1, 9}, true, -1).Data, "050502010902"},
		{qosInfo(5, []uint8{1}, false, 46).Data, "05050101012e"},
		{portNotify(20000).Data, "4e20"},
		{backOffNotifies(time.Minute)[1].Data, "017e"},
		{backOffNotifies(20 * time.Minute)[1].Data, "01b4"},
		{backOffNotifies(1000 * time.Hour)[1].Data, "015f"},
	} {
		if got := hex.EncodeToString(one.got); got != one.hex {
			t.Errorf("%s instead of %s", got, one.hex)
		}
	}
}

func TestEnvelopesAreCutFromAStream(t *testing.T) {
	stream := append(append(envelope([]byte("one")), envelope([]byte("second"))...), envelope(bytes.Repeat([]byte("x"), 3000))...)
	for size := 1; size < 50; size++ {
		var e envelopes
		var got [][]byte
		for at := 0; at < len(stream); at += size {
			m, err := e.take(stream[at:min(at+size, len(stream))])
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m...)
		}
		if len(got) != 3 || string(got[0]) != "one" || string(got[1]) != "second" || len(got[2]) != 3000 || e.waiting != nil {
			t.Fatalf("pieces of %d: %d messages", size, len(got))
		}
	}
	var e envelopes
	if _, err := e.take([]byte{0, 0, 0}); !errors.Is(err, errEnvelope) {
		t.Error(err)
	}
}

func TestQoSFlowsAreDividedAmongChildSAs(t *testing.T) {
	table := qosflow.Marks([]*api.FiveQiMark{{FiveQi: 1, Dscp: "46"}, {FiveQi: 7, Dscp: "af22"}})
	flows := map[uint8]qosflow.Flow{9: {QFI: 9, FiveQI: 9}, 7: {QFI: 7, FiveQI: 7}, 1: {QFI: 1, FiveQI: 1, MaximumUp: 1}, 2: {QFI: 2, FiveQI: 1, MaximumUp: 1}}
	got := groups([]uint32{1, 65}, table, flows)
	if len(got) != 2 || !got[0].isDefault || !slices.Equal(got[0].qfis, []uint8{7, 9}) || got[0].dscp != -1 {
		t.Errorf("%+v", got)
	}
	if got[1].isDefault || !slices.Equal(got[1].qfis, []uint8{1, 2}) || got[1].dscp != 46 {
		t.Errorf("%+v", got)
	}
	var marks []string
	for _, f := range qosflow.Profile(nil, flows, table, &qosflow.Limits{}).Flows {
		marks = append(marks, f.Dscp)
	}
	if !slices.Equal(marks, []string{"46", "46", "af22", "cs0"}) {
		t.Errorf("%q", marks)
	}
}

func FuzzEnvelopes(f *testing.F) {
	f.Add(envelope([]byte("one")), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		var e envelopes
		taken := 0
		for at := 0; at < len(stream); at += int(size) + 1 {
			messages, err := e.take(stream[at:min(at+int(size)+1, len(stream))])
			for _, m := range messages {
				taken += 2 + len(m)
			}
			if err != nil {
				return
			}
		}
		if taken+len(e.waiting) != len(stream) {
			t.Errorf("%d of %d bytes", taken+len(e.waiting), len(stream))
		}
	})
}
