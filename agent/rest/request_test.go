// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
)

func TestARequestThatMakesNoSenseIsRefused(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		status             int
		method, path, body string
		headers            []string
	}{
		{404, "GET", "/v1/prots", "", nil},
		{404, "GET", "/v1/ports/", "", nil},
		{404, "GET", "/v1/ports/a%2Fb", "", nil},
		{404, "GET", "/v1//ports", "", nil},
		{404, "GET", "/v1/ports/..", "", nil},
		{405, "POST", "/v1/ports", "{}", nil},
		{405, "DELETE", "/v1/apply", "", nil},
		{405, "TRACE", "/v1/ports", "", nil},
		{400, "GET", "/v1/ports?limit=0", "", nil},
		{400, "GET", "/v1/ports?limit=10001", "", nil},
		{400, "GET", "/v1/ports?limit=1&limit=2", "", nil},
		{400, "GET", "/v1/ports?colour=red", "", nil},
		{400, "GET", "/v1/ports?selector=a,,b", "", nil},
		{400, "GET", "/v1/ports?page=x", "", nil},
		{400, "GET", "/v1/ports?fields=a..b", "", nil},
		{400, "GET", "/v1/ports?%zz", "", nil},
		{400, "PUT", "/v1/ports/a?mode=maybe", "{}", nil},
		{400, "PUT", "/v1/ports/a?confirmWithin=999h", `{"spec":{"device":"net_null0"}}`, nil},
		{400, "PUT", "/v1/ports/a", "{", nil},
		{400, "PUT", "/v1/ports/a", "[]", nil},
		{400, "PUT", "/v1/ports/a", "", []string{"Content-Type: application/json"}},
		{415, "PUT", "/v1/ports/a", "{}", []string{"Content-Type: text/plain"}},
		{415, "PUT", "/v1/ports/a", "{}", []string{"Content-Encoding: gzip"}},
		{415, "PATCH", "/v1/ports/a", "{}", []string{"Content-Type: application/json"}},
		{422, "PUT", "/v1/ports/a", "{}", nil},
		{422, "PUT", "/v1/ports/a", `{"spec":{"device":"net_null0"},"kind":"Vrf"}`, nil},
		{422, "PUT", "/v1/ports/a", `{"spec":{"device":"net_null0"},"metadata":{"name":"b"}}`, nil},
		{422, "PUT", "/v1/ports/a", `{"spec":{"device":"net_null0"},"metadata":[]}`, nil},
		{400, "POST", "/v1/apply", `{"puts":[]}`, nil},
		{400, "POST", "/v1/apply", `{"put":{}}`, nil},
		{400, "POST", "/v1/apply", `{"put":[],"put":[]}`, nil},
		{400, "POST", "/v1/apply", `{"delete":[{"kind":"Prot","name":"x"}]}`, nil},
		{400, "POST", "/v1/apply", `{"delete":[{"kind":"Port","name":"x","revision":1}]}`, nil},
		{400, "POST", "/v1/apply", `{"expect":[{"kind":"Port","name":"x"}]}`, nil},
		{422, "POST", "/v1/apply", `{"put":[null]}`, nil},
		{422, "POST", "/v1/apply", `{"delete":[{"kind":"Port","name":"x"},{"kind":"Port","name":"x"}]}`, nil},
		{404, "POST", "/v1/history/0/rollback", "", nil},
		{400, "GET", "/v1/events?cursor=x", "", nil},
		{400, "GET", "/v1/events?kinds=Prot", "", nil},
		{410, "GET", "/v1/events?cursor=1-1", "", nil},
	} {
		a := s.ask(test.method, test.path, test.body, test.headers...)
		if a.status != test.status {
			t.Errorf("%s %s %s: %d, not %d: %s", test.method, test.path, test.body, a.status, test.status, a.text)
		}
		if a.status == 405 && a.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", test.method, test.path)
		}
	}
	if n := s.desired.Revision(); n != 0 {
		t.Errorf("revision %d", n)
	}
}

func TestADuplicateObjectIsRefusedWithTheMend(t *testing.T) {
	s := newSite(t)
	const red = `{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"red"}}`
	for _, body := range []string{`{"put":[` + red + `,` + red + `]}`, `{"put":[` + red + `],"delete":[{"kind":"Vrf","name":"red"}]}`} {
		for _, path := range []string{"/v1/plan", "/v1/apply"} {
			want := `"errors":[{"object":"Vrf/red","problem":"duplicate object","accepted":"each object once"}]`
			if a := s.want(422, s.ask("POST", path, body)); !strings.Contains(a.text, want) {
				t.Errorf("%s: %s", body, a.text)
			}
		}
	}
}

func TestARoleLimitsTheRequests(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	body := map[string]string{"PUT": "{}", "PATCH": "{}", "POST": "{}"}
	for _, op := range s.server.contract.Load().operations {
		if op.id == "events" {
			continue
		}
		path := strings.NewReplacer("{name}", "red", "{revision}", "1").Replace(op.path)
		for role, token := range s.tokens {
			a := s.ask(op.method, path, body[op.method], "Authorization: Bearer "+token)
			if (a.status == 403) != (role < op.role) || a.status == 401 {
				t.Errorf("%s %s as %s: %d", op.method, path, role, a.status)
			}
		}
		for _, header := range []string{"Authorization: ", "Authorization: Bearer sluice_x"} {
			if a := s.ask(op.method, path, body[op.method], header); (a.status == 401) != (op.role > access.NoRole) || a.status == 401 && a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %q: %d", op.method, path, header, a.status)
			}
		}
	}
	text, err := os.ReadFile(s.written)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"action":"apply","owner":"rest","who":"a-read"`, `"outcome":"forbidden"`, `"action":"rollback","owner":"rest","who":"a-operate"`, `"from":"127.0.0.1:`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
	for _, token := range s.tokens {
		if strings.Contains(string(text), token) {
			t.Error("a token was written down")
		}
	}
}

func TestRequestsAndMistakenRequestsAreCounted(t *testing.T) {
	s := newSite(t)
	s.want(200, s.ask("GET", "/health", ""))
	s.want(200, s.ask("GET", "/", ""))
	s.want(200, s.ask("GET", "/v1/vrfs", ""))
	s.want(404, s.ask("GET", "/v1/vrfs/none", ""))
	s.want(400, s.ask("GET", "/v1/vrfs?limit=none", ""))
	s.want(401, s.ask("GET", "/v1/vrfs", "", "Authorization: Bearer x"))
	s.want(422, s.ask("PUT", "/v1/vrfs/red", `{"spec": {"colour": "red"}}`, "Content-Type: application/json"))
	if n := s.server.environment.Counters.Read(); n.Received != 5 || n.Failed != 3 {
		t.Errorf("%+v", n)
	}
}

func TestABodyThatIsTooLongIsNotRead(t *testing.T) {
	s := newSite(t)
	long := append([]byte(`{"put":["`), bytes.Repeat([]byte("x"), largestBody)...)
	s.want(413, s.ask("POST", "/v1/apply", string(long)))
}

func TestTheNumberOfReportedErrorsIsBounded(t *testing.T) {
	s := newSite(t)
	// Twice: finished requests delay none.
	for range 2 {
		a := s.want(422, s.ask("POST", "/v1/plan", `{"put":[0`+strings.Repeat(",0", 2*maxMistakes)+strings.Repeat(" ", longBody)+`]}`))
		if errors, _ := a.body["errors"].([]any); len(errors) != maxMistakes {
			t.Errorf("%d mistakes", len(errors))
		}
	}
}

func TestBytesInProgressOfACallerAreBounded(t *testing.T) {
	s := &server{held: map[string]int{}}
	first, second := &request{server: s, caller: access.Caller{Name: "one"}}, &request{server: s, caller: access.Caller{Name: "one"}}
	other := &request{server: s, caller: access.Caller{Name: "other"}}
	body := func(q *request, size int) error {
		_, err := io.Copy(io.Discard, &counting{q, io.LimitReader(zeros{}, int64(size))})
		return err
	}
	if err := errors.Join(body(first, largestBody), body(second, largestBody), body(other, largestBody)); err != nil {
		t.Error(err)
	}
	if err := body(second, 1); err == nil || problemOf(err).status != 429 {
		t.Error("more:", err)
	}
	first.releaseBytes()
	second.releaseBytes()
	if err := body(&request{server: s, caller: access.Caller{Name: "one"}}, largestBody); err != nil {
		t.Error("when there are answers:", err)
	}
	other.releaseBytes()
	if len(s.held) != 1 {
		t.Error(s.held)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAMistakeOfOursIsAnAnswerToo(t *testing.T) {
	s := newSite(t)
	for _, op := range s.server.contract.Load().operations {
		if op.id == "health" {
			op.serve = func(*request) error { panic("a mistake") }
		}
	}
	s.want(500, s.ask("GET", "/health", ""))
}

func FuzzARequestIsAnswered(f *testing.F) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		f.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		f.Fatal(err)
	}
	token, line, err := access.NewToken("fuzz", access.Admin)
	if err != nil {
		f.Fatal(err)
	}
	file := filepath.Join(f.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		f.Fatal(err)
	}
	guard, err := access.Section{Tokens: file}.Open("rest", slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	s, err := newServer(northbound.Environment{Name: "rest", Intent: desired, Registry: registry, Log: slog.New(slog.DiscardHandler)}, guard, context.Background())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("PUT", "/v1/vrfs/a", "mode=no-wait", `{"spec":{"description":"x"}}`)
	f.Add("POST", "/v1/apply", "mode=no-wait&complete=true", `{"put":[],"delete":[{"kind":"Vrf","name":"x"}],"expect":[]}`)
	f.Add("PATCH", "/v1/vrfs/a", "mode=no-wait&confirmWithin=1h", `{"spec":null}`)
	f.Add("GET", "/v1/sessions", "selector=a&fields=spec.access&limit=1&page=Session/x", ``)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if strings.Contains(path, "events") {
			return
		}
		r := httptest.NewRequest("GET", "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.URL.RawPath, r.URL.RawQuery = method, path, "", query
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", jsonMedia)
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", mergeMedia)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != 503 {
			t.Errorf("%s %s?%s %s: %d %s", method, path, query, body, w.Code, w.Body)
		}
	})
}

func TestAPathIsOfTheFirstOperationThatHasIt(t *testing.T) {
	first, second := &operation{method: "GET", path: "/v1/events"}, &operation{method: "GET", path: "/v1/events"}
	h, _ := muxOf([]*operation{first, second}).Handler(httptest.NewRequest("GET", "/v1/events", nil))
	if h != first {
		t.Errorf("%v", h)
	}
}
