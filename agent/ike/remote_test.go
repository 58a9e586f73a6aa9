// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// A user of EAP-TLS does not choose how its name is spelled, so that the LocalUser of that name applies.
func TestTheUsernameOfACertificateIsAsTheCertificateHasIt(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	authority := []*Authority{ca.authority(false)}
	leaf, _ := ca.issue("ecdsa", "alice.example", func(c *x509.Certificate) { c.EmailAddresses = []string{"alice@example.org"} })
	for _, c := range []struct {
		name, identity, want, problem string
		users                         []*api.LocalUser
	}{
		{name: "as it is", identity: "alice@example.org", want: "alice@example.org"},
		{name: "in other letters", identity: "ALICE@Example.org", want: "alice@example.org"},
		{name: "the DNS name", identity: "Alice.example", want: "alice.example"},
		{name: "with a sign for DNS names", identity: "@Alice.example", want: "alice.example"},
		{name: "the subject", identity: "cn=ALICE.example", want: "CN=alice.example"},
		{name: "another user", identity: "bob@example.org", problem: "is not for bob@example.org"},
		{name: "nobody", identity: "", problem: "gives no identity"},
		{name: "a LocalUser of another name of the certificate", identity: "CN=alice.example", want: "alice@example.org", users: []*api.LocalUser{{Username: "alice@example.org"}}},
		{name: "a LocalUser in other letters", identity: "alice@example.org", want: "Alice@Example.org", users: []*api.LocalUser{{Username: "Alice@Example.org"}}},
		{name: "the LocalUser of the very name", identity: "ALICE@example.org", want: "alice@example.org",
			users: []*api.LocalUser{{Username: "Alice@example.org", Disabled: true}, {Username: "alice@example.org"}}},
		{name: "disabled", identity: "alice@example.org", problem: "is disabled", users: []*api.LocalUser{{Username: "alice@example.org", Disabled: true}}},
		{name: "disabled, in other letters", identity: "ALICE@EXAMPLE.ORG", problem: "is disabled", users: []*api.LocalUser{{Username: "alice@example.org", Disabled: true}}},
		{name: "disabled, by another name", identity: "alice.example", problem: "is disabled", users: []*api.LocalUser{{Username: "alice@example.org", Disabled: true}}},
		{name: "disabled, by the subject", identity: "CN=alice.example", problem: "is disabled", users: []*api.LocalUser{{Username: "alice.example"}, {Username: "alice@example.org", Disabled: true}}},
	} {
		s := emptyServing(t)
		for i, u := range c.users {
			s.users[string(rune('a'+i))] = u
		}
		got, err := s.verifyUser(authority, netip.MustParseAddr("192.0.2.9"), [][]byte{leaf.Raw}, c.identity)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	// The bounds of certificates are those of IKE_AUTH.
	long := longCertificate(t, ca, 8192, false)
	if _, err := emptyServing(t).verifyUser(authority, netip.MustParseAddr("192.0.2.9"), [][]byte{long.Raw}, "gw.example"); err == nil || !strings.Contains(err.Error(), "8192 bits") {
		t.Errorf("a long key: %v", err)
	}
}
