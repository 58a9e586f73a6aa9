// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"net/netip"
	"testing"
)

func TestARouteInformationOptionHasAsMuchOfThePrefixAsItNeeds(t *testing.T) {
	for prefix, want := range map[string][]byte{
		"::/0":                   {24, 1, 0, 0, 0, 0, 7, 8},
		"2001:db8:5::/48":        {24, 2, 48, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 5, 0, 0},
		"2001:db8:5:6::/64":      {24, 2, 64, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 5, 0, 6},
		"2001:db8:5:6:8000::/65": {24, 3, 65, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 5, 0, 6, 0x80, 0, 0, 0, 0, 0, 0, 0},
		"2001:db8::7/128":        {24, 3, 128, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7},
	} {
		if got := AppendRoutes(nil, []netip.Prefix{netip.MustParsePrefix(prefix)}, 1800); !bytes.Equal(got, want) {
			t.Errorf("%s: %x", prefix, got)
		}
	}
}
