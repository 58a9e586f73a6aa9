// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// locked is written to and read at the same time.
type locked struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestSecretsAreInNoAnswerEventLogOrAudit(t *testing.T) {
	const first, second, third = "correct-horse", "battery-staple", "tr0ub4dor"
	registry, plane, log := objecttest.Secretive(t), reconciletest.Willing{}, &locked{}
	s := newSiteOf(t, registry, plane, slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var output strings.Builder
	ask := func(status int, method, path, body string, headers ...string) string {
		t.Helper()
		a := s.want(status, s.ask(method, path, body, headers...))
		output.WriteString(a.text + "\n")
		return a.text
	}
	peer := func(password string) string {
		return `{"spec":{"address":"192.0.2.1","password":"` + password + `","login":{"user":"me","key":"` + third + `"},"old":["` + third + `"]}}`
	}
	whole := func(password string) string {
		return strings.Replace(peer(password), "{", `{"apiVersion":"sluice.dev/v1","kind":"Peer","metadata":{"name":"p"},`, 1)
	}
	cursor, _ := s.ask("GET", "/v1/peers", "").body["cursor"].(string)
	ask(201, "PUT", "/v1/peers/p", peer(first))
	if text := ask(200, "POST", "/v1/plan", `{"put":[`+whole(second)+`]}`); !strings.Contains(text, `"field":"password","before":"(secret)","after":"(secret)"`) {
		t.Errorf("%s", text)
	}
	ask(200, "POST", "/v1/apply", `{"put":[`+whole(second)+`]}`)
	ask(200, "PATCH", "/v1/peers/p", `{"spec":{"password":"`+first+`"}}`)
	ask(200, "PATCH", "/v1/peers/p", `{"spec":{"address":"192.0.2.2"}}`)
	if sent := string(plane[object.Key{Kind: "Peer", Name: "p"}]); !strings.Contains(sent, first) || !strings.Contains(sent, third) {
		t.Errorf("the data plane has %q", sent)
	}
	for _, path := range []string{"/v1/peers/p", "/v1/peers/p?owners=true", "/v1/peers", "/v1/peers?fields=spec", "/v1/peers?owners=true", "/v1/history", "/v1/diff?from=0", "/v1/diff?from=1", "/openapi.json"} {
		ask(200, "GET", path, "")
	}
	// Another owner's value is a conflict, which names the owner.
	theirs := objecttest.Object(t, registry, "Peer", "q", "{password: "+second+"}")
	if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(theirs)}, intent.Options{}); err != nil {
		t.Fatal(err)
	}
	ask(409, "PUT", "/v1/peers/q", peer(first))
	for _, spec := range []string{`{"password":["` + first + `"]}`, `{"login":"` + first + `"}`, `{"old":"` + first + `"}`, `{"password":"` + first + `\u0007"}`} {
		ask(422, "PUT", "/v1/peers/p", `{"spec":`+spec+`}`)
		ask(422, "PATCH", "/v1/peers/p", `{"spec":`+spec+`}`)
	}
	ask(400, "PUT", "/v1/peers/p", `{"spec":{"password":`+first+`}}`)
	ask(400, "PUT", "/v1/peers/p?mode=x", peer(first))
	ask(200, "POST", "/v1/history/1/rollback", "")

	for r := s.follow("kinds=Peer&cursor=" + cursor); ; {
		e, more := r.next()
		if !more {
			t.Fatal("the stream ended")
		}
		output.WriteString(e.data + "\n")
		if strings.Contains(e.data, "192.0.2.2") {
			break
		}
	}
	audit, err := os.ReadFile(s.written)
	if err != nil {
		t.Fatal(err)
	}
	output.WriteString(log.String() + string(audit))
	for _, want := range []string{"192.0.2.2", `"outcome":"refused"`, `"level":"INFO"`} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s is not told at all:\n%s", want, &output)
		}
	}
	for _, secret := range []string{first, second, third} {
		if i := strings.Index(output.String(), secret); i >= 0 {
			t.Errorf("%s was told: %s", secret, output.String()[max(0, i-300):i+100])
		}
	}
}
