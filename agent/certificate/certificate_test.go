// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"
)

// The same as in dataplane/server/api_peer_test.c.
func TestStarsInAPatternMatchWithinTheirPart(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		is            bool
	}{
		{"agent", "agent", true},
		{"agent", "Agent", true},
		{"agent", "agent2", false},
		{"agent2", "agent", false},
		{"agent-*", "agent-", true},
		{"agent-*", "agent-7", true},
		{"agent-*", "an agent-7", false},
		{"*.example.org", "a.b.example.org", true},
		{"*.example.org", "example.org", false},
		{"*.example.org", "a.example.org.evil.net", false},
		{"a*b*c", "aXbXbc", true},
		{"a*b*c", "aXbXcb", false},
		{"**", "", true},
		{"*", "anything", true},
		{"", "", true},
		{"", "a", false},
		{"spiffe://site/*/agent", "spiffe://site/west/agent", true},
		{"a?", "ab", false},
		{"[ab]", "a", false},
	} {
		if is := matches(c.pattern, c.name); is != c.is {
			t.Errorf("%q and %q: %v", c.pattern, c.name, is)
		}
	}
}

func TestACertificateIsAcceptedByAnyOfItsNamesAndARefusalNamesThem(t *testing.T) {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "meter"}, DNSNames: []string{"meter.example"}, EmailAddresses: []string{"ops@example"},
		URIs: []*url.URL{{Scheme: "spiffe", Host: "site", Path: "/meter"}}}
	for _, names := range []Names{nil, {"other", "meter"}, {"*.example"}, {"spiffe://site/*"}, {"OPS@*"}} {
		if err := names.Accept(c); err != nil {
			t.Errorf("%q: %v", names, err)
		}
	}
	const want = "no name of the certificate (meter, meter.example, spiffe://site/meter, ops@example) is accepted; accepted: agent-*, *.org"
	if err := (Names{"agent-*", "*.org"}).Accept(c); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	for _, nobody := range []*x509.Certificate{nil, {}} {
		if err := (Names{"*"}).Accept(nobody); err == nil {
			t.Errorf("%v is accepted", nobody)
		}
	}
	for _, wrong := range []Names{{""}, {"a", " b"}} {
		if wrong.Check("names") == nil {
			t.Errorf("%q is right", wrong)
		}
	}
}
