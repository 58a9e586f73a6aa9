package rest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestTheDocumentHasEveryOperationAndWhatItRefersTo(t *testing.T) {
	s := newSite(t)
	a := s.want(200, s.ask("GET", "/openapi.json", "", "Authorization: "))
	paths, _ := a.body["paths"].(map[string]any)
	for _, op := range s.server.operations {
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

func TestWhatThePageBeginsWithIsAccepted(t *testing.T) {
	s := newSite(t)
	s.want(200, s.ask("POST", "/v1/apply", `{"put": [{"apiVersion": "sluice.dev/v1", "kind": "Vrf", "metadata": {"name": "old"}}]}`, "Content-Type: application/json"))
	count := 0
	for _, op := range s.server.operations {
		if op.media == "" {
			continue
		}
		text, err := json.Marshal(op.example)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.Replace(op.path, "{name}", "one", 1)
		if op.method == http.MethodPatch {
			// Of what the one before it made.
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
