// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

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
	// The result of GET can be PUT.
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
	stands := func(want string) {
		t.Helper()
		if a := s.want(200, s.ask("GET", "/v1/history?limit=1", "")); !strings.Contains(a.text, want) {
			t.Errorf("no %s in %s", want, a.text)
		}
	}
	stands(`"standing":"waiting"`)
	s.want(204, s.ask("POST", "/v1/history/4/confirm", ""))
	stands(`"standing":"confirmed"`)
}

func TestApplyingAnObjectOfOtherOwnersNamesThem(t *testing.T) {
	s := newSite(t)
	const green = `{"put":[{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"green"}}]}`
	o := &object.Object{Kind: "Vrf", Name: "green", Spec: &api.Vrf{}}
	if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: "lab"}, []object.Change{object.Put(o)}, intent.Options{}); err != nil {
		t.Fatal(err)
	}
	const joined = `"joined":{"owner":"rest","objects":1,"besides":["lab"]}`
	for _, path := range []string{"/v1/plan", "/v1/apply"} {
		if a := s.want(200, s.ask("POST", path, green)); !strings.Contains(a.text, joined) {
			t.Errorf("%s: %s", path, a.text)
		}
		if a := s.want(200, s.ask("POST", path, strings.ReplaceAll(green, "green", "blue"))); strings.Contains(a.text, "joined") {
			t.Errorf("%s: %s", path, a.text)
		}
	}
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

func TestExplicitZerosAreReadAndWrittenAgain(t *testing.T) {
	s := newSite(t)
	o := &object.Object{Kind: "Meter", Name: "m", Spec: &api.Meter{CommittedRate: 1e8, CommittedBurst: 64000, ExcessBurst: 5000}}
	if _, err := s.desired.Apply(t.Context(), intent.Source{Owner: "lab"}, []object.Change{object.Put(o)}, intent.Options{}); err != nil {
		t.Fatal(err)
	}
	const none = `"excessBurst":0`
	if a := s.want(200, s.ask("GET", "/v1/meters/m", "")); strings.Contains(a.text, none) {
		t.Errorf("%s", a.text)
	}
	s.want(200, s.ask("PUT", "/v1/meters/m?force=true", `{"spec":{"excessBurst":0}}`))
	got := s.want(200, s.ask("GET", "/v1/meters/m", ""))
	if !strings.Contains(got.text, none) {
		t.Errorf("%s", got.text)
	}
	// GET returns desired state: putting it again changes nothing.
	for _, path := range []string{"/v1/meters/m", "/v1/meters/m"} {
		s.want(200, s.ask("PUT", path, got.text))
		if again := s.want(200, s.ask("GET", path, "")); !strings.Contains(again.text, none) {
			t.Errorf("%s", again.text)
		}
	}
}
