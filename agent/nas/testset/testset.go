// SPDX-License-Identifier: Apache-2.0

// Package testset reads test sets of 3GPP's confidentiality and integrity algorithms, for tests.
package testset

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Vector is a line of the test sets.
type Vector struct {
	Key            [16]byte
	Count, Fresh   uint32
	Downlink       bool
	Bits           int
	Data, Expected []byte
}

func octets(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Of returns the vectors of a kind, from testdata/vectors.txt of the package under test.
func Of(t *testing.T, kind string) (all []Vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] != kind {
			continue
		}
		v := Vector{Key: [16]byte(octets(t, f[1])), Expected: octets(t, f[len(f)-1])}
		if kind == "keystream" {
			v.Data = octets(t, f[2])
		} else {
			count, _ := strconv.ParseUint(f[2], 10, 32)
			fresh, _ := strconv.ParseUint(f[3], 10, 32)
			v.Count, v.Fresh, v.Downlink = uint32(count), uint32(fresh), f[4] == "1"
			v.Bits, _ = strconv.Atoi(f[5])
			v.Data = octets(t, f[6])
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		t.Fatal("no test sets of ", kind)
	}
	return all
}
