// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/intent"
)

func TestTheDocumentHasEveryOperationAndItsSchemas(t *testing.T) {
	s := newSite(t)
	a := s.want(200, s.ask("GET", "/openapi.json", "", "Authorization: "))
	paths, _ := a.body["paths"].(map[string]any)
	for _, op := range s.server.contract.Load().operations {
		path, _ := paths[op.path].(map[string]any)
		if path[strings.ToLower(op.method)] == nil {
			t.Errorf("no %s %s", op.method, op.path)
		}
	}
	components, _ := a.body["components"].(map[string]any)
	known, _ := components["schemas"].(map[string]any)
	for _, part := range strings.Split(a.text, `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if known[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
	for _, k := range s.server.environment.Registry.Kinds() {
		if known[k.Name+"Spec"] == nil {
			t.Errorf("no schema of the spec of %s", k.Name)
		}
	}
	for path, media := range map[string]string{"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css", "/icon.svg": "image/svg+xml"} {
		if a := s.want(200, s.ask("GET", path, "")); !strings.HasPrefix(a.header.Get("Content-Type"), media) || strings.Contains(strings.Replace(a.text, "http://www.w3.org/2000/svg", "", 1), "://") {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	if a := s.want(200, s.ask("HEAD", "/v1/vrfs", "")); a.text != "" {
		t.Errorf("%s", a.text)
	}
}

func TestTheDocumentHasEveryWordThatAnAnswerMaySay(t *testing.T) {
	s := newSite(t)
	a := s.want(200, s.ask("GET", "/openapi.json", "", "Authorization: "))
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Enum  []string
					Items struct {
						Properties map[string]struct{ Enum []string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(a.text), &document); err != nil {
		t.Fatal(err)
	}
	schemas := document.Components.Schemas
	check := func(what string, enum []string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !slices.Contains(enum, word) {
				t.Errorf("%s %q is not in %q", what, word, enum)
			}
		}
	}
	check("state", schemas["Status"].Properties["state"].Enum, "pending", "applied", "failed", "deleting", "gone", "unknown")
	check("impact", schemas["Plan"].Properties["impact"].Enum, "none", "brief interruption", "outage")
	check("step", schemas["Applied"].Properties["objects"].Items.Properties["step"].Enum, "keep", "create", "update", "replace", "delete")
	check("standing", schemas["History"].Properties["revisions"].Items.Properties["standing"].Enum, "undone", "overdue", "waiting", "confirmed")

	s.want(201, s.ask("PUT", "/v1/vrfs/red", `{}`))
	s.desired.Detach()
	var answered struct {
		Status struct {
			State      string
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal([]byte(s.want(200, s.ask("GET", "/v1/vrfs/red", "")).text), &answered); err != nil {
		t.Fatal(err)
	}
	if answered.Status.State != "unknown" || len(answered.Status.Conditions) != 3 || answered.Status.Conditions[1].Status != "Unknown" {
		t.Errorf("%+v", answered)
	}
	for _, c := range answered.Status.Conditions {
		condition := schemas["Status"].Properties["conditions"].Items.Properties
		check("type", condition["type"].Enum, c.Type)
		check("status", condition["status"].Enum, c.Status)
	}
}

func TestHistoryNamesTheObjectsAndTheirSteps(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", `{}`))
	s.want(200, s.ask("PUT", "/v1/vrfs/red", `{"spec":{"description":"a"}}`))
	s.want(200, s.ask("DELETE", "/v1/vrfs/red", ""))
	var many []string
	for i := range intent.MaxChanged + 5 {
		many = append(many, fmt.Sprintf(`{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"v%02d"}}`, i))
	}
	s.want(200, s.ask("POST", "/v1/apply", `{"put": [`+strings.Join(many, ",")+`]}`, "Content-Type: application/json"))
	var history struct {
		Revisions []struct {
			Changes int
			Objects []struct{ Step, Kind, Name string }
		}
	}
	if err := json.Unmarshal([]byte(s.want(200, s.ask("GET", "/v1/history", "")).text), &history); err != nil {
		t.Fatal(err)
	}
	for i, step := range []string{"create", "delete", "update", "create"} {
		r := history.Revisions[i]
		if o := r.Objects[0]; o.Step != step || o.Kind != "Vrf" || o.Name != "red" && i > 0 || len(r.Objects) != min(r.Changes, intent.MaxChanged) {
			t.Errorf("%+v", r)
		}
	}
	if r := history.Revisions[0]; r.Changes != intent.MaxChanged+5 || r.Objects[3].Name != "v03" {
		t.Errorf("%+v", r)
	}
}

func TestTheInitialRequestOfThePageIsAccepted(t *testing.T) {
	s := newSite(t)
	s.want(200, s.ask("POST", "/v1/apply", `{"put": [{"apiVersion": "sluice.dev/v1", "kind": "Vrf", "metadata": {"name": "old"}}]}`, "Content-Type: application/json"))
	count := 0
	for _, op := range s.server.contract.Load().operations {
		if op.media == "" {
			continue
		}
		text, err := json.Marshal(op.example)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.Replace(op.path, "{name}", "one", 1)
		if op.method == http.MethodPatch {
			// Of the object that the previous request made.
			s.want(200, s.ask("GET", path, ""))
		}
		if a := s.ask(op.method, path, string(text), "Content-Type: "+op.media); a.status >= 300 {
			t.Errorf("%s %s: %s: %d %s", op.method, path, text, a.status, a.text)
		}
		count++
	}
	if count < 20 {
		t.Errorf("%d operations", count)
	}
}
