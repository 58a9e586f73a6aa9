// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

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

func TestTwentyConflictsAreNamedAndTheRestIsCounted(t *testing.T) {
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
	if output, _ := a.body["errors"].([]any); len(output) != 20 || !strings.Contains(a.text, "and 24 more") ||
		!strings.Contains(a.text, `"problem":"belongs to api (theirs), and rest sets another value (mine)","found":"mine"`) {
		t.Errorf("%s", a.text)
	}
}

func TestARequestLeavesTheLayersOfOtherOwners(t *testing.T) {
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
