// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"
)

// every returns a message with a payload of each type.
func every() *Message {
	return &Message{Header: Header{SPIi: 1, SPIr: 2, Exchange: IKEAuth, Flags: FlagInitiator, ID: 7}, Payloads: []Payload{
		&SA{[]Proposal{
			{Number: 1, Protocol: ProtocolIKE, SPI: []byte{}, Transforms: []Transform{{Encryption, 20, 256}, {PRF, 5, 0}, {KeyExchange, 31, 0}, {AdditionalKE1, 36, 0}}},
			{Number: 2, Protocol: ProtocolESP, SPI: []byte{1, 2, 3, 4}, Transforms: []Transform{{Encryption, 12, 128}, {Integrity, 12, 0}, {Sequence, 1, 0}}}}},
		&KE{31, bytes.Repeat([]byte{9}, 32)},
		&ID{Kind: IDFQDN, Data: []byte("a.example")},
		&ID{Responder: true, Kind: IDIPv4, Data: []byte{192, 0, 2, 1}},
		&Certificate{EncodingX509, []byte{0x30, 0}},
		&Request{EncodingX509, bytes.Repeat([]byte{1}, 20)},
		&Auth{AuthSharedKey, []byte{1, 2, 3}},
		&Nonce{bytes.Repeat([]byte{3}, 32)},
		&Notify{Protocol: ProtocolESP, SPI: []byte{1, 2, 3, 4}, Kind: RekeySA, Data: []byte{}},
		&Delete{ProtocolESP, [][]byte{{1, 2, 3, 4}, {5, 6, 7, 8}}},
		&Vendor{[]byte("vendor")},
		&TS{Selectors: []Selector{{Protocol: 17, StartPort: 53, EndPort: 53, Start: netip.MustParseAddr("10.0.0.0"), End: netip.MustParseAddr("10.0.0.255")}}},
		&TS{Responder: true, Selectors: []Selector{{EndPort: 65535, Start: netip.MustParseAddr("::"), End: netip.MustParseAddr("2001:db8::ff")}}},
		&Configuration{ConfigurationRequest, []Attribute{{InternalIP4Address, []byte{}}, {InternalIP4DNS, []byte{192, 0, 2, 53}}}},
		&EAP{[]byte{1, 7, 0, 5, 1}},
		&Encrypted{First: TypeIDi, Body: bytes.Repeat([]byte{5}, 40)},
	}}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	m := every()
	// In an Encrypted payload, the next payload field is the first payload inside.
	b := m.Append(nil)
	got, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	want := every()
	want.First, want.Length = TypeSA, uint32(len(b))
	want.Payloads[len(want.Payloads)-1].(*Encrypted).First = 0
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	b := every().Append(nil)
	for n := range b {
		if _, err := Parse(b[:n]); !errors.Is(err, ErrSyntax) {
			t.Fatalf("%d bytes of %d: %v", n, len(b), err)
		}
	}
	// Truncated, with a matching header: each payload checks its own length.
	for _, p := range every().Payloads {
		if p.Type() == TypeVendor {
			continue
		}
		body := p.append(nil)
		for n := range min(len(body), 8) {
			_, _ = ParsePayloads(p.Type(), AppendPayloads(nil, []Payload{&Vendor{body[:n]}}))
		}
	}
}

func TestAHeadIsReadAsAFragment(t *testing.T) {
	h := Header{SPIi: 1, SPIr: 2, Exchange: IKEAuth, ID: 1}
	b := append(AppendHead(nil, h, TypeIDi, 1, 3, 5), 1, 2, 3, 4, 5)
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if p := m.Payloads[0].(*Encrypted); p.First != TypeIDi || p.Number != 1 || p.Total != 3 || len(p.Body) != 5 {
		t.Errorf("read %+v", p)
	}
	for name, numbers := range map[string][2]uint16{"0 of 3": {0, 3}, "4 of 3": {4, 3}, "2 of 3 with a first payload": {2, 3}} {
		bad := bytes.Clone(b)
		bad[33], bad[35] = byte(numbers[0]), byte(numbers[1])
		if _, err := Parse(bad); !errors.Is(err, ErrSyntax) {
			t.Errorf("fragment %s: %v", name, err)
		}
	}
}

func TestAnUnknownPayloadIsSkippedUnlessItIsCritical(t *testing.T) {
	b := []byte{40, 0, 0, 5, 1}
	b = append(b, AppendPayloads(nil, []Payload{&Nonce{make([]byte, 16)}})...)
	all, err := ParsePayloads(200, b)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	b[1] = 0x80
	if _, err := ParsePayloads(200, b); !errors.Is(err, CriticalError{200}) {
		t.Errorf("critical: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(every().Append(nil))
	for _, p := range every().Payloads {
		f.Add((&Message{Header: Header{Exchange: Informational}, Payloads: []Payload{p}}).Append(nil))
	}
	f.Add(append(AppendHead(nil, Header{}, TypeIDi, 1, 3, 5), 1, 2, 3, 4, 5))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		for _, p := range m.Payloads {
			if ts, is := p.(*TS); is && len(ts.Selectors) == 0 {
				return // all of them were of unknown types
			}
		}
		// A message that was read is written and read as the same, except for unknown parts.
		first := m.Append(nil)
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("%x was read, and %x is not: %v", b, first, err)
		}
		if second := again.Append(nil); !bytes.Equal(first, second) {
			t.Fatalf("%x became %x", first, second)
		}
	})
}
