package rest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
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
	registry, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry, Reconciler: reconcile.Options{}})
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
	quiet := slog.New(slog.DiscardHandler)
	guard, err := access.Section{Listen: "127.0.0.1:0", Tokens: file}.Open("rest", quiet)
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(s.written, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		desired.Run(running)
	}()
	plane := reconciletest.NewPlane(registry)
	s.attach = func() { desired.Attach(running, plane) }
	s.attach()
	s.server, err = newServer(northbound.Environment{Name: "rest", Intent: &audit.Intent{Interface: desired, Log: log}, Registry: registry, Log: quiet, Audit: log,
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

func TestAnObjectIsCreatedReadChangedAndDeleted(t *testing.T) {
	s := newSite(t)
	created := s.want(201, s.ask("PUT", "/v1/meters/home", `{"spec":{"algorithm":"srtcm","committedRate":"100M","committedBurst":"64KB"},"metadata":{"labels":{"city":"bonn"}}}`))
	if created.header.Get("Location") != "/v1/meters/home" || created.header.Get("ETag") == "" {
		t.Errorf("%v", created.header)
	}
	got := s.want(200, s.ask("GET", "/v1/meters/home", ""))
	if want := `"spec":{"algorithm":"srtcm","committedRate":100000000,"committedBurst":64000`; !strings.Contains(got.text, want) {
		t.Errorf("%s", got.text)
	}
	status, _ := got.body["status"].(map[string]any)
	if status["state"] != "applied" || status["owner"] != "rest" {
		t.Errorf("%v", status)
	}
	// What was read can be put back.
	if again := s.want(200, s.ask("PUT", "/v1/meters/home", got.text)); again.header.Get("ETag") != got.header.Get("ETag") {
		t.Errorf("%s, %s", again.header.Get("ETag"), got.header.Get("ETag"))
	}
	patched := s.want(200, s.ask("PATCH", "/v1/meters/home", `{"spec":{"committedRate":"200M"},"metadata":{"labels":{"city":null,"tier":"gold"}}}`))
	if !strings.Contains(patched.text, `"committedRate":200000000`) || !strings.Contains(patched.text, `"labels":{"tier":"gold"}`) {
		t.Errorf("%s", patched.text)
	}
	s.want(200, s.ask("DELETE", "/v1/meters/home", ""))
	for _, method := range []string{"GET", "DELETE"} {
		s.want(404, s.ask(method, "/v1/meters/home", ""))
	}
	s.want(404, s.ask("PATCH", "/v1/meters/home", `{}`))
	s.want(404, s.ask("GET", "/v1/vrfs/default", ""))
}

func TestAnEntityTagKeepsOneFromOverwritingAnothersChange(t *testing.T) {
	s := newSite(t)
	body := func(text string) string { return fmt.Sprintf(`{"spec":{"description":%q}}`, text) }
	first := s.want(201, s.ask("PUT", "/v1/vrfs/red", body("a"), "If-None-Match: *")).header.Get("ETag")
	s.want(412, s.ask("PUT", "/v1/vrfs/red", body("b"), "If-None-Match: *"))
	second := s.want(200, s.ask("PUT", "/v1/vrfs/red", body("b"), "If-Match: "+first)).header.Get("ETag")
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		text := body("c")
		if method == "DELETE" {
			text = ""
		}
		if a := s.want(412, s.ask(method, "/v1/vrfs/red", text, "If-Match: "+first)); !strings.Contains(a.text, "Vrf/red") {
			t.Errorf("%s", a.text)
		}
	}
	s.want(200, s.ask("PATCH", "/v1/vrfs/red", body("c"), `If-Match: "77", `+second))
	s.want(200, s.ask("PUT", "/v1/vrfs/red", body("d"), "If-Match: *"))
	s.want(412, s.ask("PUT", "/v1/vrfs/blue", body("d"), "If-Match: *"))
	s.want(412, s.ask("PUT", "/v1/vrfs/blue", body("d"), `If-Match: "0"`))
	s.want(412, s.ask("PUT", "/v1/vrfs/red", body("d"), `If-Match: 7`))
	s.want(412, s.ask("PUT", "/v1/vrfs/red", body("d"), `If-Match: *`, "If-None-Match: *"))
}

func TestManyChangeAtOnceOrNone(t *testing.T) {
	s := newSite(t)
	vrf := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":%q}}`, name)
	}
	plan := s.want(200, s.ask("POST", "/v1/plan", `{"put":[`+vrf("a")+`,`+vrf("b")+`]}`))
	if steps, _ := plan.body["steps"].([]any); len(steps) != 2 {
		t.Errorf("%s", plan.text)
	}
	s.want(404, s.ask("GET", "/v1/vrfs/a", ""))
	s.want(200, s.ask("POST", "/v1/apply?mode=all-or-nothing&why=a+beginning", `{"put":[`+vrf("a")+`,`+vrf("b")+`]}`))
	bad := s.want(422, s.ask("POST", "/v1/apply", `{"delete":[{"kind":"Vrf","name":"a"}],"put":[`+vrf("c")+`,{"kind":"Vrf"},{"apiVersion":"sluice.dev/v1","kind":"Route",`+
		`"metadata":{"name":"r"},"spec":{"prefix":"192.0.2.1/24"}}]}`))
	for _, want := range []string{`"index":1`, `"field":"metadata"`, `"object":"Route/r","field":"prefix"`, `"found":"\"192.0.2.1/24\""`, `"accepted":"an IPv4 or IPv6 network`} {
		if !strings.Contains(bad.text, want) {
			t.Errorf("no %s in %s", want, bad.text)
		}
	}
	s.want(200, s.ask("GET", "/v1/vrfs/a", ""))
	s.want(412, s.ask("POST", "/v1/apply", `{"expect":[{"kind":"Vrf","name":"a","revision":77}],"delete":[{"kind":"Vrf","name":"a"}]}`))
	s.want(200, s.ask("POST", "/v1/apply?complete=true", `{"put":[`+vrf("c")+`]}`))
	s.want(404, s.ask("GET", "/v1/vrfs/a", ""))
	history := s.want(200, s.ask("GET", "/v1/history?limit=10", ""))
	if !strings.Contains(history.text, `"who":"a-admin","why":"a beginning"`) {
		t.Errorf("%s", history.text)
	}
	s.want(200, s.ask("POST", "/v1/history/1/rollback", ""))
	s.want(200, s.ask("GET", "/v1/vrfs/a", ""))
	if a := s.want(200, s.ask("GET", "/v1/diff?from=1&to=2", "")); !strings.Contains(a.text, `"step":"delete","kind":"Vrf","name":"a"`) {
		t.Errorf("%s", a.text)
	}
	s.want(404, s.ask("POST", "/v1/history/99/rollback", ""))
	s.want(404, s.ask("GET", "/v1/diff?from=99", ""))
	s.want(409, s.ask("POST", "/v1/history/1/confirm", ""))
	s.want(200, s.ask("PUT", "/v1/vrfs/a?confirmWithin=5m", `{"spec":{"description":"x"}}`))
	s.want(204, s.ask("POST", "/v1/history/4/confirm", ""))
}

func TestPagesTogetherHoldEveryObjectOnce(t *testing.T) {
	s := newSite(t)
	var put []string
	for i := range 25 {
		put = append(put, fmt.Sprintf(`{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"v%02d","labels":{"odd":"%t"}}}`, i, i%2 == 1))
	}
	s.want(200, s.ask("POST", "/v1/apply", `{"put":[`+strings.Join(put, ",")+`]}`))
	for query, want := range map[string]int{"": 25, "&selector=odd%3Dtrue": 12, "&owner=nobody": 0, "&owner=rest": 25} {
		names, page := map[string]bool{}, ""
		for {
			a := s.want(200, s.ask("GET", "/v1/vrfs?limit=7"+query+page, ""))
			items, _ := a.body["items"].([]any)
			if len(items) > 7 {
				t.Errorf("a page of %d", len(items))
			}
			for _, i := range items {
				one, _ := i.(map[string]any)["metadata"].(map[string]any)
				names[fmt.Sprint(one["name"])] = true
			}
			next, _ := a.body["next"].(string)
			if next == "" {
				break
			}
			page = "&page=" + next
		}
		if len(names) != want {
			t.Errorf("%s: %d", query, len(names))
		}
	}
	a := s.want(200, s.ask("GET", "/v1/vrfs?limit=1&fields=metadata.labels,status.state", ""))
	want := `{"items":[{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"labels":{"odd":"false"},"name":"v00"},"status":{"state":"applied"}}]`
	if !strings.HasPrefix(a.text, want) {
		t.Errorf("%s; want %s", a.text, want)
	}
}

func TestAnObjectOfAnotherOwnerIsKept(t *testing.T) {
	s := newSite(t)
	registry := s.server.environment.Registry
	o, err := registry.New("Vrf", "red", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Spec = &api.Vrf{Description: "theirs"}
	if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(o)}, intent.Options{}); err != nil {
		t.Fatal(err)
	}
	// To want the same is no conflict, and takes no data plane.
	s.want(200, s.ask("PUT", "/v1/vrfs/red", `{"spec":{"description":"theirs"}}`))
	s.want(200, s.ask("DELETE", "/v1/vrfs/red", ""))
	for _, a := range []answer{s.ask("PUT", "/v1/vrfs/red", `{"spec":{"description":"x"}}`), s.ask("PATCH", "/v1/vrfs/red", `{"spec":{"description":"x"}}`),
		s.ask("DELETE", "/v1/vrfs/red", "")} {
		if s.want(409, a); !strings.Contains(a.text, `"object":"Vrf/red"`) || !strings.Contains(a.text, `"holder":"api"`) {
			t.Errorf("%s", a.text)
		}
	}
	s.want(403, s.ask("PUT", "/v1/vrfs/red?force=true", `{"spec":{"description":"x"}}`, "Authorization: Bearer "+s.tokens[access.Operate]))
	s.want(200, s.ask("PUT", "/v1/vrfs/red?force=true", `{"spec":{"description":"x"}}`))
}

func TestTwentyConflictsAreToldAndTheRestIsCounted(t *testing.T) {
	s := newSite(t)
	var theirs []object.Change
	var mine []string
	for i := range 25 {
		theirs = append(theirs, object.Put(&object.Object{Kind: "Vrf", Name: fmt.Sprintf("v%02d", i), Spec: &api.Vrf{Description: "theirs"}}))
		mine = append(mine, fmt.Sprintf(`{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"v%02d"},"spec":{"description":"mine"}}`, i))
	}
	if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: "api"}, theirs, intent.Options{Mode: intent.NoWait}); err != nil {
		t.Fatal(err)
	}
	a := s.want(409, s.ask("POST", "/v1/apply", `{"put":[`+strings.Join(mine, ",")+`]}`))
	if told, _ := a.body["errors"].([]any); len(told) != 20 || !strings.Contains(a.text, "and 24 more") ||
		!strings.Contains(a.text, `"problem":"belongs to api (theirs), and rest wants something else (mine)","found":"mine"`) {
		t.Errorf("%s", a.text)
	}
}

func TestWhatOthersSayStaysWhenARequestSaysSomethingElse(t *testing.T) {
	s := newSite(t)
	put := func(owner string, labels map[string]string, spec *api.Meter, empty ...string) {
		t.Helper()
		o := &object.Object{Kind: "Meter", Name: "m", Labels: labels, Spec: spec, Empty: empty}
		if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: owner}, []object.Change{object.Put(o)}, intent.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	put("api", map[string]string{"city": "bonn"}, &api.Meter{Algorithm: api.MeterAlgorithm_TRTCM, CommittedRate: 1e6, CommittedBurst: 1e4, PeakRate: 2e6, ExcessBurst: 1e4})
	s.want(200, s.ask("PATCH", "/v1/meters/m", `{"spec":{"colorAware":true},"metadata":{"labels":{"tier":"gold"}}}`))
	put("api", map[string]string{"city": "ulm"}, &api.Meter{Algorithm: api.MeterAlgorithm_TRTCM, CommittedRate: 1e6, CommittedBurst: 1e4, PeakRate: 3e6, ExcessBurst: 1e4})
	a := s.want(200, s.ask("PATCH", "/v1/meters/m", `{"spec":{"red":{"verdict":"pass"}}}`))
	for _, part := range []string{`"algorithm":"trtcm"`, `"peakRate":3000000`, `"colorAware":true`, `"red":{"verdict":"pass"}`, `"labels":{"city":"ulm","tier":"gold"}`} {
		if !strings.Contains(a.text, part) {
			t.Errorf("%s is not in %s", part, a.text)
		}
	}
	a = s.want(200, s.ask("PATCH", "/v1/meters/m?force=false", `{"spec":{"colorAware":null}}`))
	if strings.Contains(a.text, "colorAware") || !strings.Contains(a.text, `"owners":[{"owner":"api"`) {
		t.Errorf("%s", a.text)
	}
	a = s.want(200, s.ask("GET", "/v1/meters/m?owners=true", ""))
	if !strings.Contains(a.text, `{"field":"metadata.labels.tier","value":"gold"}`) || !strings.Contains(a.text, `{"field":"algorithm","value":"trtcm"}`) {
		t.Errorf("%s", a.text)
	}
}

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

func TestARoleSaysWhatMayBeAsked(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	body := map[string]string{"PUT": "{}", "PATCH": "{}", "POST": "{}"}
	for _, op := range s.server.operations {
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
			if a := s.ask(op.method, path, body[op.method], header); (a.status == 401) != (op.role > access.Nobody) || a.status == 401 && a.header.Get("WWW-Authenticate") == "" {
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

func TestEveryRequestIsCountedAndThoseThatSomebodyHasToMend(t *testing.T) {
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

func TestEventsGoOnWhereAReaderWas(t *testing.T) {
	s := newSite(t)
	list := s.want(200, s.ask("GET", "/v1/vrfs", ""))
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	s.want(201, s.ask("PUT", "/v1/meters/m", `{"spec":{"algorithm":"srtcm","committedRate":"100M","committedBurst":"64KB"}}`))
	s.want(201, s.ask("PUT", "/v1/vrfs/blue", "{}"))
	// read returns the first events that are about applied objects.
	read := func(count int, header, value string) (names, ids []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events?kinds=Vrf", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.tokens[access.Read])
		if header == "" {
			r.URL.RawQuery += "&cursor=" + value
		} else {
			r.Header.Set(header, value)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		if reply.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v", reply.Header)
		}
		lines, id := bufio.NewScanner(reply.Body), ""
		for len(names) < count && lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var v view
				if err := json.Unmarshal([]byte(text), &v); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if v.Status.State == "applied" {
					names, ids = append(names, v.Metadata.Name), append(ids, id)
				}
			}
		}
		return names, ids
	}
	cursor, _ := list.body["cursor"].(string)
	names, ids := read(2, "", cursor)
	if fmt.Sprint(names) != "[red blue]" {
		t.Fatalf("%v", names)
	}
	if names, _ := read(1, "Last-Event-ID", ids[0]); fmt.Sprint(names) != "[blue]" {
		t.Errorf("%v", names)
	}
}

func TestThatADataPlaneWentAwayIsAnEventWhateverKindsAreAskedFor(t *testing.T) {
	s := newSite(t)
	for range 1000 {
		if s.desired.Measure()["default"].Connected {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/events?kinds=Vrf", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[access.Read])
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	s.desired.Detach()
	lines, event := bufio.NewScanner(reply.Body), ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if name == "event" {
			event = value
		} else if name == "data" {
			var told struct{ Kind, Name, State, Cursor string }
			if err := json.Unmarshal([]byte(value), &told); err != nil || event != "dataplane" || told.Kind != "Dataplane" || told.Name != "default" ||
				told.State != "away" || told.Cursor == "" {
				t.Errorf("%s: %s (%v)", event, value, err)
			}
			return
		}
	}
	t.Error("nothing was told")
}

func TestObjectsAreToldAgainWhenADataPlaneIsBackThoughNothingHappenedToThem(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", "{}"))
	for range 1000 {
		if s.desired.Measure()["default"].Connected {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/events?kinds=Vrf", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[access.Read])
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	s.desired.Detach()
	s.attach()
	var events []string
	for lines := bufio.NewScanner(reply.Body); lines.Scan() && len(events) < 3; {
		if name, value, _ := strings.Cut(lines.Text(), ": "); name == "event" {
			events = append(events, value)
		}
	}
	if want := []string{"dataplane", "dataplane", "object"}; !slices.Equal(events, want) {
		t.Errorf("%v; want %v", events, want)
	}
}

func TestStreamsEndWithTheAgent(t *testing.T) {
	s := newSite(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens[access.Read])
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	s.end()
	if _, err := io.Copy(io.Discard, reply.Body); err != nil {
		t.Error(err)
	}
}

func TestABodyThatIsTooLongIsNotRead(t *testing.T) {
	s := newSite(t)
	long := append([]byte(`{"put":["`), bytes.Repeat([]byte("x"), largestBody)...)
	s.want(413, s.ask("POST", "/v1/apply", string(long)))
}

func TestOfVeryManyMistakesSomeAreTold(t *testing.T) {
	s := newSite(t)
	// Twice: those who are done hold up nobody.
	for range 2 {
		a := s.want(422, s.ask("POST", "/v1/plan", `{"put":[0`+strings.Repeat(",0", 2*mostMistakes)+strings.Repeat(" ", longBody)+`]}`))
		if errors, _ := a.body["errors"].([]any); len(errors) != mostMistakes {
			t.Errorf("%d mistakes", len(errors))
		}
	}
}

func TestWhatOneCallerSendsAtATimeIsBounded(t *testing.T) {
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
	first.letGo()
	second.letGo()
	if err := body(&request{server: s, caller: access.Caller{Name: "one"}}, largestBody); err != nil {
		t.Error("when there are answers:", err)
	}
	other.letGo()
	if len(s.held) != 1 {
		t.Error(s.held)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAMistakeOfOursIsAnAnswerToo(t *testing.T) {
	s := newSite(t)
	for _, op := range s.server.operations {
		if op.id == "health" {
			op.serve = func(*request) error { panic("a mistake") }
		}
	}
	s.want(500, s.ask("GET", "/health", ""))
}

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

func FuzzARequestIsAnswered(f *testing.F) {
	registry, err := object.NewRegistry()
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
