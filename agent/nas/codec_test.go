// SPDX-License-Identifier: Apache-2.0

package nas

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

func examples(t testing.TB) [][]byte {
	text, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for line := range strings.Lines(string(text)) {
		_, octets, _ := strings.Cut(strings.TrimSpace(line), " ")
		message, err := hex.DecodeString(octets)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, message)
	}
	return all
}

func TestMessagesOfEveryTypeAreDecodedAndEncodedToTheSameOctets(t *testing.T) {
	types := map[reflect.Type]bool{}
	for _, octets := range examples(t) {
		message, err := Decode(octets)
		if err != nil {
			t.Errorf("%x: %v", octets, err)
			continue
		}
		types[reflect.TypeOf(message).Elem()] = true
		again, err := Encode(message)
		if err != nil || !bytes.Equal(again, octets) {
			t.Errorf("%T: %v\n%x\n%x", message, err, octets, again)
		}
	}
	for of := range messageTypes {
		if !types[of] {
			t.Errorf("%s has no example", of.Name())
		}
	}
}

// survives checks that a message that can be decoded is the same after it was encoded and decoded again.
func survives(t *testing.T, octets []byte) {
	message, err := Decode(octets)
	if err != nil {
		return
	}
	again, err := Encode(message)
	if err != nil {
		t.Fatalf("%x: %v", octets, err)
	}
	second, err := Decode(again)
	if err != nil || !reflect.DeepEqual(message, second) {
		t.Fatalf("%x: %v\n%+v\n%+v", octets, err, message, second)
	}
}

func TestTruncatedAndFlippedMessagesAreDecodedOrRefused(t *testing.T) {
	for _, octets := range examples(t) {
		for length := range octets {
			survives(t, octets[:length])
		}
		for bit := range 8 * len(octets) {
			flipped := bytes.Clone(octets)
			flipped[bit/8] ^= 1 << (bit % 8)
			survives(t, flipped)
		}
	}
}

func TestAnyOctetIsAcceptedAsTheIdentifierOfAnOptionalIE(t *testing.T) {
	request, err := Encode(&RegistrationRequest{FiveGSID: []byte{0}})
	if err != nil {
		t.Fatal(err)
	}
	for identifier := range 256 {
		survives(t, append(bytes.Clone(request), byte(identifier), 0, 1, 1, 1))
	}
}

func TestAnUnknownIEThatMustBeComprehendedRefusesTheMessage(t *testing.T) {
	status := []byte{MobilityManagement, 0, 100, 111}
	if _, err := Decode(append(bytes.Clone(status), 0x0b, 0)); !errors.Is(err, ErrMandatory) {
		t.Error(err)
	}
	if _, err := Decode(append(bytes.Clone(status), 0x5b, 1, 1)); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, octets := range examples(f) {
		f.Add(octets)
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		survives(t, octets)
		_, _ = GUTIOf(octets)
		_, _ = PDUAddressOf(octets)
		_, _ = AMBROf(octets)
	})
}

func TestElementsHaveTheOctetsOfTheSpecification(t *testing.T) {
	for plmn, octets := range map[PLMN]string{"00101": "00f110", "310410": "130014"} {
		got, err := plmn.Octets()
		back, err2 := PLMNOf(got)
		if err != nil || err2 != nil || hex.EncodeToString(got) != octets || back != plmn {
			t.Errorf("%s: %x %v %v %v", plmn, got, back, err, err2)
		}
	}
	guti := GUTI{"00101", 0x010041, 0xdeadbeef}
	octets, err := guti.Octets()
	if err != nil || hex.EncodeToString(octets) != "f200f110010041deadbeef" {
		t.Errorf("%x %v", octets, err)
	}
	if back, err := GUTIOf(octets); err != nil || back != guti {
		t.Error(back, err)
	}
	if line := SUCIOfLine("line", "5gc.mnc001.mcc001.3gppnetwork.org", false); line[0] != 0x31 ||
		string(line[1:]) != "type3.rid0.schid0.useridline@5gc.mnc001.mcc001.3gppnetwork.org" {
		t.Errorf("%q", line)
	}
	address, err := PDUAddressOf([]byte{3, 1, 2, 3, 4, 5, 6, 7, 8, 10, 0, 0, 9})
	if err != nil || address.IPv4 != netip.MustParseAddr("10.0.0.9") || address.InterfaceIdentifier[7] != 8 {
		t.Error(address, err)
	}
	if name, err := DNN("internet.example"); err != nil || string(name) != "\x08internet\x07example" {
		t.Errorf("%q %v", name, err)
	}
	// 100 Mbit/s down in units of 1 Mbit/s, 5,000 times 4 kbit/s up.
	if ambr, err := AMBROf([]byte{6, 0, 100, 2, 0x13, 0x88}); err != nil || ambr != (AMBR{100_000_000, 20_000_000}) {
		t.Error(ambr, err)
	}
}
