// SPDX-License-Identifier: Apache-2.0

package eap5g

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TS 24.502 figures 9.3.2.2.1-1 and 9.3.2.2.3-1.
func TestRequestsAreAsTheSpecificationHasThem(t *testing.T) {
	for _, one := range []struct {
		packet []byte
		hex    string
	}{
		{Request(1, Start, nil), "0101000efe0028af000000030100"},
		{Request(7, NAS, []byte{0x7e, 0, 0x56}), "01070013fe0028af00000003020000037e0056"},
		{End(9, eap.Success), "03090004"},
	} {
		if got := hex.EncodeToString(one.packet); got != one.hex {
			t.Errorf("%s instead of %s", got, one.hex)
		}
	}
}

// GUAMI, selected PLMN, an unknown parameter, requested NSSAI and establishment cause; then a NAS message.
const response = "02010030fe0028af000000030200" + "001c" + "010600f110010041" + "020300f110" + "6301ff" + "0307" + "0101" + "0401010203" + "040104" + "0002" + "7e00"

func TestAResponseIsReadWithItsParameters(t *testing.T) {
	r, err := Parse(unhex(t, response))
	if err != nil {
		t.Fatal(err)
	}
	p := r.Parameters
	if r.Identifier != 1 || r.ID != NAS || !bytes.Equal(r.Message, []byte{0x7e, 0}) || p.PLMN != "00101" || p.Cause != ngap.RRCEstablishmentCauseMoData {
		t.Errorf("%+v", r)
	}
	if p.GUAMI == nil || p.GUAMI.PLMN != nas.PLMN("00101") || p.GUAMI.AMFID != 0x010041 {
		t.Errorf("GUAMI %+v", p.GUAMI)
	}
	if len(p.Slices) != 2 || p.Slices[0].SST != 1 || p.Slices[1].SST != 1 || hex.EncodeToString(p.Slices[1].SD) != "010203" {
		t.Errorf("slices %+v", p.Slices)
	}
	stop, err := Parse(unhex(t, "0204000efe0028af000000030400"))
	if err != nil || stop.ID != Stop {
		t.Errorf("%+v %v", stop, err)
	}
}

func TestEachTruncationOfAResponseIsRefused(t *testing.T) {
	whole := unhex(t, response)
	for n := range whole {
		cut := slices.Clone(whole[:n])
		if _, err := Parse(cut); err == nil {
			t.Errorf("%d bytes are read", n)
		}
		if n >= 4 {
			cut[2], cut[3] = byte(n>>8), byte(n)
			if _, err := Parse(cut); err == nil {
				t.Errorf("a packet that says that it has %d bytes is read", n)
			}
		}
	}
	for _, wrong := range []string{
		"0201000efe0028b0000000030100", // another vendor
		"0201000efe0028af000000040100", // another method
		"020100060310",                 // a Nak
		"0101000efe0028af000000030100", // a request
		"02010017fe0028af000000030200" + "0003" + "0101" + "00" + "0002" + "7e00", // a GUAMI of one byte
		"02010017fe0028af000000030200" + "0003" + "030100" + "0002" + "7e00",      // a slice of no length
	} {
		if _, err := Parse(unhex(t, wrong)); err == nil {
			t.Errorf("%s is read", wrong)
		}
	}
}

func FuzzEAP(f *testing.F) {
	f.Add(unhex(f, response))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err == nil && r.ID == NAS && (len(r.Message) == 0 || len(r.Parameters.Slices) > maxSlices) {
			t.Errorf("%+v", r)
		}
	})
}
