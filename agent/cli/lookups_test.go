// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestCiphersAreShownByEngine(t *testing.T) {
	got := ciphersText([]lookUpJSON{{Name: "aes-cbc-sha1", Way: "ipsec-mb"}, {Name: "aes-gcm", Way: "openssl", Asked: true},
		{Name: "null-sha1", Way: "ipsec-mb"}})
	if want := "ipsec-mb for aes-cbc-sha1, null-sha1; openssl for aes-gcm (as asked)"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}
