// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/northbound"
)

func TestASectionIsChecked(t *testing.T) {
	http := []string{"http://127.0.0.1:2379"}
	for _, test := range []struct {
		section Section
		problem string
	}{
		{Section{Endpoints: http, Prefix: "/a/", StatusPrefix: "/b/"}, ""},
		{Section{Prefix: "/a/", StatusPrefix: "/b/"}, "endpoints: "},
		{Section{Endpoints: []string{"127.0.0.1:2379"}, Prefix: "/a/", StatusPrefix: "/b/"}, "endpoints: "},
		{Section{Endpoints: http, TLS: &northbound.TLS{}, Prefix: "/a/", StatusPrefix: "/b/"}, "https"},
		{Section{Endpoints: http, StatusPrefix: "/b/"}, "prefix"},
		{Section{Endpoints: http, Prefix: "/a/", StatusPrefix: "/a/s/"}, "statusPrefix: "},
		{Section{Endpoints: http, Prefix: "/a/", StatusPrefix: "/b/", Username: "u"}, "passwordFile"},
	} {
		err := test.section.Check()
		if test.problem == "" && err != nil || test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%+v: %v; want %q", test.section, err, test.problem)
		}
	}
}
