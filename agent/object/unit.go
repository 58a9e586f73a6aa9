// SPDX-License-Identifier: Apache-2.0

// Numbers with a unit, as people write them: "100M" bit/s, "64KB", "10ms".
package object

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
)

type suffix struct {
	text  string
	times uint64
}

// suffixes of units. The first of each size is written; the others are also accepted. Powers of 1000 come first.
var suffixes = map[api.Unit][]suffix{
	api.Unit_BITS_PER_SECOND: {{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"k", 1e3}, {"", 1}},
	api.Unit_BYTES: {
		{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"kB", 1e3},
		{"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"k", 1e3}, {"B", 1}, {"", 1},
	},
	api.Unit_NANOSECONDS: {{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"", 1}},
}

func suffixesOf(u api.Unit) []suffix {
	if all, has := suffixes[u]; has {
		return all
	}
	return unitless
}

var unitless = []suffix{{"", 1}}

// unitAccepted describes the accepted spellings of a number with the unit, for errors and for the documentation.
func unitAccepted(u api.Unit) string {
	switch u {
	case api.Unit_BITS_PER_SECOND:
		return "bit/s, or with a suffix K, M, G or T (powers of 1000)"
	case api.Unit_BYTES:
		return "bytes, or with a suffix KB, MB, GB (powers of 1000), KiB, MiB or GiB (powers of 1024)"
	case api.Unit_NANOSECONDS:
		return "nanoseconds, or with a suffix ns, us, ms, s, m or h"
	}
	return "a whole number"
}

// parseNumber reads a number that is not negative, with one of the unit's suffixes.
func parseNumber(u api.Unit, s string) (uint64, error) {
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	tail := strings.TrimSpace(s[len(digits):])
	if u == api.Unit_BITS_PER_SECOND {
		for _, end := range []string{"bit/s", "bps"} {
			if rest, found := strings.CutSuffix(tail, end); found {
				tail = rest
				break
			}
		}
	}
	times := uint64(0)
	for _, one := range suffixesOf(u) {
		if one.text == tail {
			times = one.times
			break
		}
	}
	if times == 0 && u == api.Unit_BITS_PER_SECOND && digits != "" && strings.HasSuffix(tail, "B") {
		return 0, fmt.Errorf("bytes, where bits a second are meant")
	}
	if times == 0 || digits == "" {
		return 0, fmt.Errorf("not a number")
	}
	whole, fraction, hasFraction := strings.Cut(digits, ".")
	if len(digits) > 40 || !allDigits(whole) || hasFraction && !allDigits(fraction) {
		return 0, fmt.Errorf("not a decimal number")
	}
	if len(whole) > 1 && whole[0] == '0' {
		return 0, fmt.Errorf("not clear whether this is an octal number")
	}
	value, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, fmt.Errorf("not a number")
	}
	value.Mul(value, new(big.Rat).SetInt(new(big.Int).SetUint64(times)))
	if !value.IsInt() {
		return 0, fmt.Errorf("not a whole number")
	}
	if !value.Num().IsUint64() {
		return 0, fmt.Errorf("out of range")
	}
	return value.Num().Uint64(), nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// FormatNumber writes a number as a person would: "100M", "64KiB", "10ms". parseNumber reads just that number again.
func FormatNumber(u api.Unit, n uint64) string {
	n, suffix := shortest(u, n)
	return strconv.FormatUint(n, 10) + suffix
}

// FormatUnit writes it with its unit, for people: "100 Mbit/s", "64 KiB", "10 ms". parseNumber reads that, too.
func FormatUnit(u api.Unit, n uint64) string {
	n, suffix := shortest(u, n)
	switch {
	case u == api.Unit_BITS_PER_SECOND:
		if suffix == "K" {
			suffix = "k"
		}
		suffix += "bit/s"
	case u == api.Unit_BYTES && suffix == "":
		suffix = "B"
	case u == api.Unit_NANOSECONDS && suffix == "":
		suffix = "ns"
	}
	return strings.TrimSpace(strconv.FormatUint(n, 10) + " " + suffix)
}

// Fewer bytes are the size of a frame, which is not counted in thousands.
const fewestDigits = 10_000

// shortest returns a number as a count of the unit that leaves it whole with the fewest digits.
func shortest(u api.Unit, n uint64) (uint64, string) {
	if n == 0 || u == api.Unit_BYTES && n < fewestDigits {
		return n, ""
	}
	best := suffix{"", 1}
	for _, one := range suffixesOf(u) {
		if n%one.times == 0 && digits(n/one.times) < digits(n/best.times) && (u != api.Unit_NANOSECONDS || one.times <= 1e9) {
			best = one
		}
	}
	return n / best.times, best.text
}

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }
