// SPDX-License-Identifier: Apache-2.0

package nas

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func packed(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRulesAreCreatedChangedAndDeleted(t *testing.T) {
	var q QoS
	first := packed(t, "01 0006 31 31 01 01 ff 05 02 0015 21 32 10 10 c6336400ffffff00 30 11 51 13c413c5 10 01")
	cut := bytes.Clone(first)
	cut[11]--
	if err := q.ApplyRules(cut); !errors.Is(err, ErrQoSSyntax) {
		t.Error(err)
	}
	q = QoS{}
	if err := q.ApplyRules(first); err != nil {
		t.Fatal(err)
	}
	all := q.Sorted()
	if len(all) != 2 || !all[1].Default || all[1].QFI != 5 || all[0].QFI != 1 || all[0].Precedence != 16 {
		t.Fatalf("%+v", all)
	}
	f := all[0].Filters[0]
	if f.Identifier != 2 || f.Direction != Bidirectional || f.Remote != netip.MustParsePrefix("198.51.100.0/24") || *f.Protocol != 17 || *f.RemotePorts != [2]uint16{5060, 5061} {
		t.Errorf("%+v", f)
	}
	for _, step := range []struct {
		octets  string
		filters []uint8
		err     error
	}{
		// Add filter 3, replace with filter 4, delete it, change precedence and QFI alone.
		{"02 0005 61 23 02 30 06", []uint8{2, 3}, nil},
		{"02 0005 81 24 02 30 06", []uint8{4}, nil},
		{"02 0002 a1 04", nil, nil},
		{"02 0003 c0 11 02", nil, nil},
		// The default rule stays, and two rules have the same precedence.
		{"01 0001 40", nil, ErrQoSSemantic},
		{"03 0003 20 11 01", nil, ErrQoSSemantic},
		{"04 0003 c0 12 01", nil, ErrQoSSemantic},
		{"02 0005 81 24 02 99 06", nil, ErrQoSSyntax},
		{"02 0003 e0 12 01", nil, ErrQoSSyntax},
	} {
		next := q.Clone()
		err := next.ApplyRules(packed(t, step.octets))
		if !errors.Is(err, step.err) {
			t.Errorf("%s: %v, not %v", step.octets, err, step.err)
		}
		if err != nil {
			continue
		}
		q = next
		var got []uint8
		for _, f := range q.Rules[2].Filters {
			got = append(got, f.Identifier)
		}
		if !slices.Equal(got, step.filters) {
			t.Errorf("%s: filters %v, not %v", step.octets, got, step.filters)
		}
	}
	if r := q.Rules[2]; r.Precedence != 17 || r.QFI != 2 {
		t.Errorf("%+v", r)
	}
	if err := q.ApplyRules(packed(t, "02 0001 40")); err != nil || len(q.Rules) != 1 {
		t.Error(err, q.Rules)
	}
}

func TestFlowsAreCreatedChangedAndDeleted(t *testing.T) {
	var q QoS
	// QFI 1: 5QI 1, guaranteed 128 kbit/s up, maximum 1 Mbit/s down.
	if err := q.ApplyFlows(packed(t, "01 20 43 01 01 01 02 03 01 0080 05 03 06 0001 05 20 41 01 01 09")); err != nil {
		t.Fatal(err)
	}
	if q.Flows[1] != (QoSFlow{QFI: 1, FiveQI: 1, GuaranteedUp: 128_000, MaximumDn: 1_000_000}) || q.Flows[5].FiveQI != 9 {
		t.Errorf("%+v", q.Flows)
	}
	if err := q.ApplyFlows(packed(t, "01 60 41 05 03 06 0002 05 40 00")); err != nil || len(q.Flows) != 1 || q.Flows[1].MaximumDn != 2_000_000 || q.Flows[1].FiveQI != 1 {
		t.Errorf("%v %+v", err, q.Flows)
	}
	for octets, expected := range map[string]error{"07 60 41 01 01 09": ErrQoSSemantic, "07 e0 00": ErrQoSSyntax, "07 20 41 01 02 09": ErrQoSSyntax, "07 20": ErrQoSSyntax} {
		if err := q.ApplyFlows(packed(t, octets)); !errors.Is(err, expected) {
			t.Errorf("%s: %v, not %v", octets, err, expected)
		}
	}
}

func TestTruncatedAndFlippedRulesNeverPanic(t *testing.T) {
	octets := packed(t, "01 0006 31 31 01 01 ff 05 02 0015 21 32 10 10 c6336400ffffff00 30 11 51 13c413c5 10 01")
	try := func(b []byte) {
		var q QoS
		_ = q.ApplyRules(b)
		_ = q.ApplyFlows(b)
		OptionsOf(b)
	}
	for length := range octets {
		try(octets[:length])
	}
	for bit := range 8 * len(octets) {
		flipped := bytes.Clone(octets)
		flipped[bit/8] ^= 1 << (bit % 8)
		try(flipped)
	}
}

func TestOptionsAndTimersAreRead(t *testing.T) {
	o := OptionsOf(packed(t, "80 000d 04 c0000235 0003 10 20010db8000000000000000000000053 0010 02 0578 0005 01 00 000d 03 010203"))
	if len(o.DNS) != 2 || o.DNS[0] != netip.MustParseAddr("192.0.2.53") || o.DNS[1] != netip.MustParseAddr("2001:db8::53") || o.MTU != 1400 {
		t.Errorf("%+v", o)
	}
	for b, expected := range map[byte]time.Duration{0x05: 10 * time.Second, 0x29: 9 * time.Minute, 0x49: 54 * time.Minute, 0xe0: 0} {
		if got := Timer2([]byte{b}); got != expected {
			t.Errorf("timer 2 %#x: %v", b, got)
		}
	}
	for b, expected := range map[byte]time.Duration{0x01: 10 * time.Minute, 0x65: 10 * time.Second, 0xa2: 2 * time.Minute, 0xe1: 0} {
		if got := Timer3([]byte{b}); got != expected {
			t.Errorf("timer 3 %#x: %v", b, got)
		}
	}
	status := StatusOf(1, 9)
	if !HasSession(status, 1) || HasSession(status, 2) || !HasSession(status, 9) || !HasSession(nil, 3) {
		t.Errorf("%x", status)
	}
}
