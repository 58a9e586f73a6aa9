// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
)

func TestAnEmptyListIsReported(t *testing.T) {
	s := newSite(t)
	for arguments, want := range map[string]string{
		"all":                      "No objects.\n",
		"all -o yaml":              "No objects.\n",
		"all --owner lab":          "No objects with fields of lab.\n",
		"sessions":                 "No sessions.\n",
		"sessions -o wide":         "No sessions.\n",
		"sessions -o yaml":         "No sessions.\n",
		"sessions -l city=bonn":    "No sessions with such labels.\n",
		"ports,interfaces":         "No ports, no interfaces.\n",
		"ports,interfaces -o yaml": "No ports, no interfaces.\n",
	} {
		out, errs, code := s.try("", append([]string{"get"}, strings.Fields(arguments)...)...)
		if out != "" || errs != want || code != 0 {
			t.Errorf("get %s: exit code %d\n%s%s", arguments, code, out, errs)
		}
	}
	for _, which := range []string{"all", "sessions"} {
		if out, errs, code := s.try("", "get", which, "-o", "json"); out != "[]\n" || errs != "" || code != 0 {
			t.Errorf("get %s -o json: exit code %d\n%s%s", which, code, out, errs)
		}
	}
}

// paged is an agent whose pages are counted, and whose messages hold only so many objects.
type paged struct {
	api.AgentClient
	pages, most int
}

func (p *paged) Get(ctx context.Context, q *api.ObjectsQuery, options ...grpc.CallOption) (*api.IntentPage, error) {
	if int(q.GetLimit()) > p.most {
		return nil, status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max")
	}
	p.pages++
	return p.AgentClient.Get(ctx, q, options...)
}

func TestVeryManyObjectsAreWrittenAsTheirPagesCome(t *testing.T) {
	s := newSite(t)
	p := &program{agent: s.address()}
	var err error
	if p.registry, err = concepts.NewRegistry(); err != nil {
		t.Fatal(err)
	}
	client, err := p.client()
	if err != nil {
		t.Fatal(err)
	}
	defer p.connection.Close()
	const many = 2500
	changes := &api.Changes{}
	for i := range many {
		changes.Put = append(changes.Put, &api.Intent{Kind: "Vrf", Name: fmt.Sprintf("v%05d", i)})
	}
	if _, err := client.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	var output []struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal([]byte(s.ok("get", "all", "-o", "json")), &output); err != nil {
		t.Fatal(err)
	}
	if len(output) != many || output[0].Metadata.Name != "v00000" || output[many-1].Metadata.Name != fmt.Sprintf("v%05d", many-1) {
		t.Errorf("%d objects", len(output))
	}
	// No more than one page is held, also if a message holds few objects.
	for output, c := range map[string]struct{ most, page int }{"json": {many, 1000}, "yaml": {100, 62}} {
		agent := &paged{AgentClient: client, most: c.most}
		p.out = &printable{to: io.Discard}
		l := &listing{program: p, output: output, query: &api.ObjectsQuery{Kinds: []string{"Vrf"}}}
		err := p.each(t.Context(), agent, l.query, func(o *api.ObjectIntent) error {
			if held := agent.pages*c.page - l.count; held > c.page+1 {
				return fmt.Errorf("%d objects are held", held)
			}
			return l.show(o)
		})
		if err != nil || l.count != many+1 || len(l.found) != 0 {
			t.Errorf("%s: %d objects, %v", output, l.count, err)
		}
	}
}

func TestObjectsAreShownByKindAndName(t *testing.T) {
	s := newSite(t)
	s.written()
	if out := s.ok("get", "session/alice"); !strings.Contains(out, "alice") || strings.Contains(out, "bob") {
		t.Errorf("%s", out)
	}
	// Port core is not asked for, nor is an interface called access.
	out := s.ok("get", "if/core", "po/access", "session/alice", "bob")
	if !strings.Contains(out, "INTERFACES") || strings.Count(out, "net_null") != 1 || !strings.Contains(out, "alice") || !strings.Contains(out, "bob") {
		t.Errorf("%s", out)
	}
	out, errs, code := s.try("", "get", "session/alice", "acl/wev", "po/alice", "-o", "json")
	if code != 1 || errs != "sluice: there is no Acl wev; did you mean web?\n        there is no Port alice\n" || strings.Count(out, `"apiVersion"`) != 1 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if errs := s.fails("", "get", "sesion/alice"); !strings.Contains(errs, "sesion") {
		t.Error(errs)
	}
	end, reader := s.background("get", "session/alice", "po/core", "-w")
	lines := bufio.NewScanner(reader)
	for _, want := range []string{"NAME", "Port/core", "NAME", "Session/alice"} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Errorf("a watch shows %s, want %s", lines.Text(), want)
		}
	}
	end()
}

func TestBuiltinObjectsAreMarked(t *testing.T) {
	s := newSite(t)
	s.written()
	if out := s.ok("get", "all"); strings.Contains(out, "VRFS") {
		t.Errorf("%s", out)
	}
	for _, arguments := range [][]string{{"get", "vrfs"}, {"get", "vrf/default"}, {"get", "all", "--builtin"}} {
		if out := s.ok(arguments...); !strings.Contains(out, "default   -             built-in\n") {
			t.Errorf("%s: %s", arguments, out)
		}
	}
	if errs := s.fails("", "get", "vrfs", "--builtin"); !strings.Contains(errs, "with a kind, they are shown") {
		t.Error(errs)
	}
}

func TestTablesNameThePartsOfObjects(t *testing.T) {
	s := newSite(t)
	s.partly(`apiVersion: sluice.dev/v1
kind: QosProfile
metadata: {name: home}
spec: {peakRate: 100M, classes: [{name: data}, {name: voice}]}
---
apiVersion: sluice.dev/v1
kind: Route
metadata: {name: out}
spec: {prefix: 0.0.0.0/0, nextHops: [{address: 192.0.2.254, interface: core}, {address: 192.0.2.253, weight: 2}]}
---
apiVersion: sluice.dev/v1
kind: Acl
metadata: {name: one}
spec: {rules: [{action: permit}]}
`, "apply", "-f", "-", "--no-wait")
	for kind, want := range map[string]string{
		"qos-profiles": "COMMITTED-RATE   PEAK-RATE    WEIGHT   CLASSES      STATE\nhome   -                100 Mbit/s   -        data,voice   ",
		"routes":       "NEXT-HOPS                 NEXT-HOP-GROUP   STATE     WHY\nout    default   0.0.0.0/0   forward   192.0.2.254,192.0.2.253   -                pending",
		"acls":         "one    1       deny",
	} {
		if out := s.ok("get", kind); !strings.Contains(out, want) {
			t.Errorf("%s: %s", kind, out)
		}
	}
}

func TestNamesAreWrittenAsOtherCommandsTakeThem(t *testing.T) {
	s := newSite(t)
	s.written()
	names := s.ok("get", "sessions,acls", "-o", "name")
	if names != "acl/web\nsession/alice\nsession/bob\n" {
		t.Error(names)
	}
	if out := s.ok(append([]string{"get", "-o", "name"}, strings.Fields(names)...)...); out != names {
		t.Error(out)
	}
	if errs := s.fails("", "get", "sessions", "-o", "name", "-w"); !strings.Contains(errs, "-w goes with") {
		t.Error(errs)
	}
}

func TestAJSONPathTemplatePicksFields(t *testing.T) {
	s := newSite(t)
	s.written()
	for template, want := range map[string]string{
		"{.metadata.name} {.spec.access.innerVlan}": "alice 7\n",
		"spec.access.port":                          "access\n",
		"{.spec.none}":                              "",
		"{.spec.access}":                            "",
	} {
		out := s.ok("get", "session", "alice", "-o", "jsonpath="+template)
		if template == "{.spec.access}" {
			var access struct{ Port string }
			if err := json.Unmarshal([]byte(out), &access); err != nil || access.Port != "access" {
				t.Errorf("%s: %s", template, out)
			}
		} else if out != want {
			t.Errorf("%s: %s", template, out)
		}
	}
	for template, want := range map[string]string{
		`{range .items[*]}{.metadata.name}{"\n"}{end}`:          "alice\nbob\n",
		`{.items[?(@.spec.access.innerVlan==7)].metadata.name}`: "alice\n",
		`{.items[?(@.spec.access.innerVlan>7)].metadata.name}`:  "bob\n",
		`{.items[?(@.status.state=="applied")].metadata.name}`:  "alice bob\n",
	} {
		if out := s.ok("get", "sessions", "-o", "jsonpath="+template); out != want {
			t.Errorf("%s: %s", template, out)
		}
	}
	if out := s.ok("describe", "session", "alice", "-o", "jsonpath={.needs[*].name}"); !strings.Contains(out, "access") {
		t.Error(out)
	}
	if errs := s.fails("", "get", "session", "nobody", "-o", "jsonpath={.spec}"); !strings.Contains(errs, "there is no Session nobody") {
		t.Error(errs)
	}
	if errs := s.fails("", "get", "sessions", "-o", "jsonpath={.spec"); !strings.Contains(errs, "accepted: a template such as {.metadata.name}") {
		t.Error(errs)
	}
}

func TestObjectsAreSelectedByTheirFields(t *testing.T) {
	s := newSite(t)
	s.written()
	for selector, want := range map[string]string{
		"access.innerVlan=7":                     "alice",
		"spec.access.innerVlan=7":                "alice",
		"access.innerVlan!=7":                    "bob",
		"access.port=access":                     "alice bob",
		"access.port=access,access.innerVlan!=7": "bob",
		"vrf=default":                            "alice bob",
		"vrf!=default":                           "",
		"metadata.name=bob":                      "bob",
		"status.state=applied":                   "alice bob",
		"status.state!=applied":                  "",
		"policy.mss=":                            "alice bob",
	} {
		out, errs, code := s.try("", "get", "sessions", "-o", "name", "--field-selector", selector)
		if got := strings.Join(strings.Fields(strings.ReplaceAll(out, "session/", "")), " "); got != want || code != 0 {
			t.Errorf("%s: exit code %d: %s%s", selector, code, out, errs)
		}
	}
	for selector, want := range map[string]string{
		"access.outerVlam=7":    `field selector: Session.access has no field "outerVlam"; did you mean outerVlan?`,
		"access=300":            "field selector: Session.access has fields of its own; accepted: one of them, such as access.port",
		"access.outerVlan=much": `field selector: Session.access.outerVlan: not a number; found "much"; accepted: `,
		"access.outerVlan":      `"access.outerVlan" is not a condition; accepted: FIELD=VALUE, FIELD!=VALUE`,
		"status.state=done":     `status.state: found "done"; accepted: pending, applied`,
	} {
		if errs := s.fails("", "get", "sessions", "--field-selector", selector); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", selector, errs)
		}
	}
	if out := s.ok("get", "all", "-o", "name", "--field-selector", "access.port=access"); out != "session/alice\nsession/bob\n" {
		t.Error(out)
	}
	if errs := s.fails("", "get", "all", "--field-selector", "acces.port=access"); !strings.Contains(errs, `Session has no field "acces"; did you mean access?`) {
		t.Error(errs)
	}
	if _, errs, _ := s.try("", "get", "sessions", "--field-selector", "vrf=red"); errs != "No sessions with vrf=red.\n" {
		t.Error(errs)
	}
}
