// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestASessionIsFoundByAddressCircuitAndMAC(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Count(&api.SessionNames{Sessions: []string{"bob"}})
	for arguments, want := range map[string]*api.SessionSearch{
		"--address 100.64.0.8":                 {Address: "100.64.0.8"},
		"--address 2001:db8::1 --vrf red":      {Address: "2001:db8::1", Vrf: "red"},
		"--mac 02:01:00:00:00:09":              {Mac: "02:01:00:00:00:09"},
		"--circuit access":                     {Port: "access"},
		"--circuit access:100":                 {Port: "access", OuterVlan: 100},
		"--circuit access:100.8 -l city=koeln": {Port: "access", OuterVlan: 100, InnerVlan: 8},
	} {
		if out := s.ok(append([]string{"get", "session", "-o", "name"}, strings.Fields(arguments)...)...); out != "session/bob\n" {
			t.Errorf("%s: %s", arguments, out)
		}
		if q, _ := s.plane.Asked("SessionSearch").(*api.SessionSearch); q.String() != want.String() {
			t.Errorf("%s: %s", arguments, q)
		}
	}
	s.plane.Count(&api.SessionNames{})
	out, errs, code := s.try("", "get", "sessions", "--address", "100.64.0.99", "-o", "json")
	if out != "[]\n" || code != 1 || errs != "sluice: no session has address 100.64.0.99 in VRF default; --vrf selects another one\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	for arguments, want := range map[string]string{
		"get sessions --address=":                               "--address: empty",
		"get sessions --state -o name":                          "--state goes with",
		"get sessions --state -w":                               "--state goes with",
		"get ports --mac 02:01:00:00:00:09":                     "are for `sluice get sessions`, without names",
		"get session alice --mac 02:01:00:00:00:09":             "are for `sluice get sessions`, without names",
		"get sessions --circuit access:100.x":                   `--circuit "access:100.x": accepted: PORT, PORT:OUTER or PORT:OUTER.INNER`,
		"get sessions --vrf red":                                "--vrf goes with --address or --lookup",
		"get sessions --mac 02:01:00:00:00:09 --circuit access": "none of the others can be",
	} {
		if errs := s.fails("", strings.Fields(arguments)...); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", arguments, errs)
		}
	}
}

func TestALookUpOfARouteShowsWherePacketsGo(t *testing.T) {
	s := newSite(t)
	s.plane.Count(&api.RouteLookUp{Vrf: "red", Prefix: "192.0.2.0/24", Action: "forward", NextHops: []*api.LookedUpHop{
		{Address: "198.51.100.2", Interface: "core", Mac: "02:00:00:00:01:02", State: "reachable", Share: 750},
		{Address: "198.51.100.3", Interface: "core", State: "incomplete", Share: 250},
	}})
	golden(t, "lookup-route", s.ok("get", "route", "--lookup", "192.0.2.9", "--vrf", "red"))
	if q, _ := s.plane.Asked("RouteLookUpQuery").(*api.RouteLookUpQuery); q.GetAddress() != "192.0.2.9" || q.GetVrf() != "red" {
		t.Error(q)
	}
	if out := s.ok("get", "route", "--lookup", "192.0.2.9", "-o", "jsonpath={.nextHops[*].state}"); out != "reachable incomplete\n" {
		t.Error(out)
	}
	s.plane.Count(&api.RouteLookUp{Vrf: "default", Prefix: "192.0.2.0/24", Action: "drop", Drop: "blackhole"})
	if out := s.ok("get", "route", "--lookup", "192.0.2.9"); !strings.Contains(out, "blackhole") {
		t.Error(out)
	}
	if errs := s.fails("", "get", "sessions", "--lookup", "192.0.2.9"); !strings.Contains(errs, "--lookup is for `sluice get routes`") {
		t.Error(errs)
	}
}

func TestTheHitsOfEachRuleAreDescribedIfTheListCountsThem(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Count(&api.AclHits{Uncounted: true})
	if out := s.ok("describe", "acl", "web"); strings.Contains(out, "Hits") {
		t.Error(out)
	}
	s.plane.Count(&api.AclHits{Rules: []uint64{1234567}, Otherwise: 8})
	out := s.ok("describe", "acl", "web")
	if !strings.Contains(out, "\nHits\n  RULE   PACKETS   SPEC\n     1   1234567   {action: permit, protocol: tcp, destinationPorts: 443}\n  otherwise   8\n") {
		t.Error(out)
	}
	if out := s.ok("describe", "acl", "web", "-o", "jsonpath={.hits.rules[0]} {.hits.otherwise}"); out != "1234567 8\n" {
		t.Error(out)
	}
	if out := s.ok("get", "acl", "web", "--state"); out != "RULE   PACKETS   SPEC\n   1   1234567   {action: permit, protocol: tcp, destinationPorts: 443}\notherwise   8\n" {
		t.Error(out)
	}
}
