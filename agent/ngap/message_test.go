// SPDX-License-Identifier: Apache-2.0

package ngap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/per"
)

// examples are messages of every type that another implementation encoded: name and octets.
func examples(t testing.TB) map[string][]byte {
	text, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, octets, _ := strings.Cut(strings.TrimSpace(line), " ")
		if all[name], err = hex.DecodeString(octets); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestMessagesOfEveryTypeAreDecodedAndEncodedToTheSameOctets(t *testing.T) {
	all := examples(t)
	for of := range messageTypes {
		octets, ok := all[of.Name()]
		if !ok {
			t.Errorf("%s has no example", of.Name())
			continue
		}
		pdu, err := Decode(octets)
		if err != nil {
			t.Errorf("%s: %v", of.Name(), err)
			continue
		}
		again, err := Encode(pdu.Value)
		if err != nil || !bytes.Equal(again, octets) || pdu.Name() != of.Name() || len(pdu.Faults) > 0 {
			t.Errorf("%s: %v, %v\n%x\n%x", pdu.Name(), err, pdu.Faults, octets, again)
		}
	}
}

func TestTruncatedMessagesAreRefused(t *testing.T) {
	for name, octets := range examples(t) {
		for length := range octets {
			if _, err := Decode(octets[:length]); err == nil {
				t.Fatalf("%s: %d of %d octets are taken", name, length, len(octets))
			}
		}
	}
}

func TestMessagesWithAFlippedBitAreDecodedOrRefused(t *testing.T) {
	for _, octets := range examples(t) {
		for bit := range len(octets) * 8 {
			flipped := bytes.Clone(octets)
			flipped[bit/8] ^= 0x80 >> (bit % 8)
			if pdu, err := Decode(flipped); err == nil {
				again(t, pdu)
			}
		}
	}
}

// again checks that a decoded message can be encoded, and that the result decodes to the same message.
func again(t *testing.T, pdu *PDU) {
	for _, fault := range pdu.Faults {
		// A mandatory IE may be missing.
		if fault.Kind != per.Misplaced {
			return
		}
	}
	octets, err := Encode(pdu.Value)
	if err != nil {
		t.Fatalf("%s: %v", pdu.Name(), err)
	}
	second, err := Decode(octets)
	if err != nil || len(second.Faults) > 0 {
		t.Fatalf("%s: %v %v\n%x", pdu.Name(), err, second, octets)
	}
	if !reflect.DeepEqual(pdu.Value, second.Value) {
		t.Fatalf("%s differs after it was encoded again: %x", pdu.Name(), octets)
	}
}

func FuzzDecode(f *testing.F) {
	for _, octets := range examples(f) {
		f.Add(octets)
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		if pdu, err := Decode(octets); err == nil {
			again(t, pdu)
		}
	})
}

func FuzzTransfer(f *testing.F) {
	for index := range contained {
		f.Add(index, []byte{0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, index int, octets []byte) {
		if index < 0 || index >= len(contained) {
			return
		}
		value := reflect.New(contained[index]).Interface()
		if faults, err := DecodeTransfer(octets, value); err == nil && len(faults) == 0 {
			if _, err := EncodeTransfer(value); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// ie is a protocol IE as it is on the wire.
func ie(id uint16, criticality per.Criticality, value ...byte) []byte {
	return append([]byte{byte(id >> 8), byte(id), byte(criticality) << 6, byte(len(value))}, value...)
}

func overloadStart(ies ...[]byte) []byte {
	value := append([]byte{0, 0, byte(len(ies))}, bytes.Join(ies, nil)...)
	return per.EncodePDU(0, ProcedureOverloadStart, per.Ignore, value)
}

func TestIEsThatAMessageShouldNotHaveAreNamedWithTheirCriticality(t *testing.T) {
	reduction := ie(IDAMFTrafficLoadReductionIndication, per.Ignore, 0x28)
	for _, test := range []struct {
		name   string
		octets []byte
		faults []per.Fault
	}{
		{"well formed", overloadStart(reduction), nil},
		{"unknown, reject", overloadStart(reduction, ie(60000, per.Reject, 1)), []per.Fault{{ID: 60000, Criticality: per.Reject, Kind: per.NotUnderstood}}},
		{"unknown, notify", overloadStart(ie(60000, per.Notify, 1), reduction), []per.Fault{{ID: 60000, Criticality: per.Notify, Kind: per.NotUnderstood}}},
		{"known, of another message", overloadStart(ie(IDGUAMI, per.Ignore)), []per.Fault{{ID: IDGUAMI, Criticality: per.Ignore, Kind: per.NotUnderstood}}},
		{"twice", overloadStart(reduction, reduction), []per.Fault{{ID: IDAMFTrafficLoadReductionIndication, Criticality: per.Ignore, Kind: per.Misplaced}}},
		{"wrong order", overloadStart(reduction, ie(IDAMFOverloadResponse, per.Reject, 0x00)),
			[]per.Fault{{ID: IDAMFOverloadResponse, Criticality: per.Reject, Kind: per.Misplaced}}},
	} {
		pdu, err := Decode(test.octets)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if !reflect.DeepEqual(pdu.Faults, test.faults) {
			t.Errorf("%s: %v", test.name, pdu.Faults)
		}
	}
}

func TestAMandatoryIEThatIsMissingIsNamed(t *testing.T) {
	pdu, err := Decode(per.EncodePDU(0, ProcedureDownlinkNASTransport, per.Ignore, []byte{0, 0, 0}))
	if err != nil {
		t.Fatal(err)
	}
	missing := []per.Fault{{ID: IDAMFUENGAPID, Kind: per.Missing}, {ID: IDRANUENGAPID, Kind: per.Missing}, {ID: IDNASPDU, Kind: per.Missing}}
	if !reflect.DeepEqual(pdu.Faults, missing) {
		t.Error(pdu.Faults)
	}
}

func TestAValueOfALaterReleaseIsNotComprehended(t *testing.T) {
	// Overload action 63 beyond the root of the enumeration.
	pdu, err := Decode(overloadStart(ie(IDAMFOverloadResponse, per.Reject, 0x5f, 0x80)))
	if err != nil || !reflect.DeepEqual(pdu.Faults, []per.Fault{{ID: IDAMFOverloadResponse, Criticality: per.Reject, Kind: per.NotUnderstood}}) {
		t.Error(pdu, err)
	}
}

func TestAnUnknownProcedureIsReportedWithItsCriticality(t *testing.T) {
	_, err := Decode(per.EncodePDU(0, 200, per.Notify, []byte{0}))
	var failure *ProcedureError
	if !errors.As(err, &failure) || failure.Known || failure.Procedure != 200 || failure.Criticality != Notify {
		t.Error(err)
	}
	// NG setup has no fourth message, and overload start no answer.
	_, err = Decode(per.EncodePDU(1, ProcedureOverloadStart, per.Ignore, []byte{0}))
	if !errors.As(err, &failure) || !errors.Is(err, ErrUnknownProcedure) {
		t.Error(err)
	}
}

func TestAMessageWithAValueOutsideItsConstraintIsNotEncoded(t *testing.T) {
	_, err := Encode(&DownlinkNASTransport{AMFUENGAPID: 1 << 40, NASPDU: []byte{1}})
	if !errors.Is(err, per.ErrValue) || !strings.Contains(err.Error(), "AMFUENGAPID") {
		t.Error(err)
	}
	if _, err := Encode(&NGSetupRequest{}); !errors.Is(err, per.ErrValue) {
		t.Error(err)
	}
}

func TestLongOctetStringsAreFragmented(t *testing.T) {
	for _, length := range []int{127, 128, 16383, 16384, 40000, 65000} {
		octets, err := Encode(&DownlinkNASTransport{AMFUENGAPID: 1, RANUENGAPID: 2, NASPDU: bytes.Repeat([]byte{7}, length)})
		if err != nil {
			t.Fatal(err)
		}
		pdu, err := Decode(octets)
		if err != nil || len(pdu.Value.(*DownlinkNASTransport).NASPDU) != length {
			t.Errorf("%d: %v", length, err)
		}
	}
}

func TestLongListsAreFragmented(t *testing.T) {
	for _, count := range []int{16383, 16384, 16385, 30000, 32768, 32769} {
		reset := &NGReset{}
		unspecified := CauseMiscUnspecified
		reset.Cause.Misc = &unspecified
		for i := range count {
			item := UEAssociatedLogicalNGConnectionItem{}
			// More of them do not fit into a message.
			if i < 30000 || i == count-1 {
				id := RANUENGAPID(i % 250)
				item.RANUENGAPID = &id
			}
			reset.ResetType.PartOfNGInterface = append(reset.ResetType.PartOfNGInterface, item)
		}
		octets, err := Encode(reset)
		if err != nil {
			t.Fatal(err)
		}
		pdu, err := Decode(octets)
		if err != nil {
			t.Fatal(count, err)
		}
		got := pdu.Value.(*NGReset).ResetType.PartOfNGInterface
		if len(got) != count || *got[count-1].RANUENGAPID != RANUENGAPID((count-1)%250) {
			t.Errorf("%d of %d", len(got), count)
		}
		for length := len(octets) - 1; length > 0 && count == 16385; length -= 1 + length/10 {
			if _, err := Decode(octets[:length]); err == nil {
				t.Errorf("%d elements: %d of %d octets", count, length, len(octets))
			}
		}
	}
	reset := &NGReset{}
	reset.ResetType.PartOfNGInterface = make([]UEAssociatedLogicalNGConnectionItem, 65537)
	if _, err := Encode(reset); !errors.Is(err, per.ErrValue) {
		t.Error(err)
	}
}
