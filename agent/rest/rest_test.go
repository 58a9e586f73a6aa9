// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// site is a server with a data plane behind it.
type site struct {
	*testing.T
	url     string
	server  *server
	desired *intent.Desired
	tokens  map[access.Role]string
	written string
	// Ends the agent; and lets the data plane come back.
	end, attach func()
}

func newSite(t *testing.T) *site {
	t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return newSiteOf(t, registry, reconciletest.NewPlane(registry), slog.DiscardHandler)
}

// newSiteOf is newSite with kinds, a data plane that has them, and a log handler.
func newSiteOf(t *testing.T, registry *object.Registry, plane reconcile.Plane, to slog.Handler) *site {
	t.Helper()
	desired, err := intent.New(intent.Config{Registry: registry, Log: slog.New(to)})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, desired: desired, tokens: map[access.Role]string{}, written: filepath.Join(t.TempDir(), "audit")}
	var lines string
	for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
		token, line, err := access.NewToken("a-"+role.String(), role)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[role] = token
		lines += line + "\n"
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(to)
	guard, err := access.Section{Listen: "127.0.0.1:0", Tokens: file}.Open("rest", logger)
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(s.written, false, logger)
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		desired.Run(running)
	}()
	s.attach = func() { desired.Attach(running, plane) }
	s.attach()
	s.server, err = newServer(northbound.Environment{Name: "rest", Intent: &audit.Intent{Interface: desired, Log: log}, Registry: registry, Log: logger, Audit: log,
		Counters: &northbound.Counters{}}, guard, running)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.server)
	s.url, s.end = h.URL, cancel
	t.Cleanup(func() {
		cancel()
		h.Close()
		<-done
		log.Close()
	})
	return s
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// ask is a request of an admin, unless the headers say otherwise: "Name: value".
func (s *site) ask(method, path, body string, headers ...string) answer {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[access.Admin])
	if body != "" {
		r.Header.Set("Content-Type", jsonMedia)
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", mergeMedia)
		}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		s.Fatal(err)
	}
	a := answer{status: reply.StatusCode, header: reply.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.body)
	if reply.StatusCode >= 400 && method != http.MethodHead && (reply.Header.Get("Content-Type") != "application/problem+json" || a.body["detail"] == "" || a.body["status"] != float64(reply.StatusCode)) {
		s.Errorf("%s %s: %d is no problem: %s", method, path, reply.StatusCode, text)
	}
	return a
}

func (s *site) want(status int, a answer) answer {
	s.Helper()
	if a.status != status {
		s.Fatalf("%d, not %d: %s", a.status, status, a.text)
	}
	return a
}
