// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestAPortalNeedsAURLThatBrowsersTake(t *testing.T) {
	for url, accepted := range map[string]bool{
		"http://portal.example.net/": true,
		"https://[2001:db8::1]:8443/in?u={url}&m={mac}&n={username}&s={session}&a={address}": true,
		"portal.example.net":                                    false,
		"ftp://portal.example.net/":                             false,
		"http:///x":                                             false,
		"http://portal.example.net/?x={place}":                  false,
		"http://portal.example.net/{mac}":                       false,
		"http://portal.example.net/\r\nSet-Cookie:":             false,
		"http://portal.example.net/ö":                           false,
		"http://portal.example.net/" + strings.Repeat("x", 300): false,
	} {
		r, err := object.NewRegistry(Rules)
		if err != nil {
			t.Fatal(err)
		}
		errs := r.Check(&object.Object{Kind: "Portal", Name: "garden", Spec: &api.Portal{Url: url, Allowed: []string{"192.0.2.80/32"}}})
		if (len(errs) == 0) != accepted || !accepted && errs[0].Field != "url" {
			t.Errorf("%s: %v", url, errs)
		}
	}
}
