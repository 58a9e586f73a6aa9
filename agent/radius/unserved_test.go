// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestAProfileThatNeedsRadiusIsNotReadyWithoutAPolicyAndItsServers(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	server, policy := &api.RadiusServer{Address: "127.0.0.1", Secret: "testing123"}, &api.RadiusPolicy{Authentication: choices, Accounting: choices}
	a := startAgent(t, t.TempDir(), server, policy, nil)
	profiles := map[string]*api.SubscriberProfile{
		"home":  {Authentication: []string{"radius"}, Accounting: []string{"radius"}},
		"count": {Authentication: []string{"none"}, Accounting: []string{"radius"}},
		"own":   {Authentication: []string{"local"}},
	}
	for name, p := range profiles {
		a.Follow(service.Change{Key: object.Key{Kind: "SubscriberProfile", Name: name}, Object: &object.Object{Kind: "SubscriberProfile", Name: name, Spec: p}})
	}
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	notReady := func(name string) intent.NotReady {
		stored, err := registry.NewStored(object.Key{Kind: "SubscriberProfile", Name: name}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.NotReady("", stored)
	}
	check := func(when string, want map[string][2]string) {
		t.Helper()
		for name := range profiles {
			why := notReady(name)
			if got := [2]string{why.Reason, why.Message}; got != want[name] {
				t.Errorf("%s, %s: %q", when, name, got)
			}
		}
	}
	none := map[string][2]string{
		"home":  {"NoRadiusPolicy", "no RadiusPolicy serves the profile, which needs RADIUS for authentication and accounting"},
		"count": {"NoRadiusPolicy", "no RadiusPolicy serves the profile, which needs RADIUS for accounting"},
	}
	check("at first", nil)
	a.set("RadiusPolicy", "home", (*api.RadiusPolicy)(nil))
	check("without the last policy", none)
	a.set("RadiusPolicy", "home", &api.RadiusPolicy{Authentication: choices, Profiles: []string{"home", "count"}})
	check("without accounting", map[string][2]string{
		"home":  {"NoRadiusServer", "RadiusPolicy/home serves the profile, and has no RadiusServer for accounting"},
		"count": {"NoRadiusServer", "RadiusPolicy/home serves the profile, and has no RadiusServer for accounting"},
	})
	a.set("RadiusPolicy", "home", policy)
	check("with the policy again", nil)
	a.Follow(service.Change{Key: object.Key{Kind: "RadiusServer", Name: "home"}})
	check("without the server", map[string][2]string{
		"home":  {"NoRadiusServer", "RadiusPolicy/home serves the profile, and has no RadiusServer for authentication and accounting"},
		"count": {"NoRadiusServer", "RadiusPolicy/home serves the profile, and has no RadiusServer for accounting"},
	})
	a.set("RadiusServer", "home", server)
	a.set("RadiusPolicy", "home", (*api.RadiusPolicy)(nil))
	// An object that needs no RADIUS any more, or is gone, is ready.
	for _, name := range []string{"home", "count"} {
		a.Follow(service.Change{Key: object.Key{Kind: "SubscriberProfile", Name: name}})
	}
	check("without profiles", nil)
}

func TestAPolicyThatServesNoProfileIsNotReady(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	all := &api.RadiusPolicy{Authentication: choices}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", Secret: "testing123"}, all, nil)
	check := func(when string, want map[string]string) {
		t.Helper()
		for _, name := range []string{"biz", "home"} {
			if why := a.notReady("RadiusPolicy", name); why.Message != want[name] || (why.Reason == "ServesNoProfile") != (want[name] != "") {
				t.Errorf("%s, %s: %v", when, name, why)
			}
		}
	}
	check("alone", nil)
	a.set("RadiusPolicy", "biz", all)
	check("beside another one", map[string]string{"home": "it serves no profile: RadiusPolicy/biz comes first by name, and has no profiles either"})
	a.set("RadiusPolicy", "biz", &api.RadiusPolicy{Authentication: choices, Profiles: []string{"p"}})
	check("beside one with a profile", nil)
	a.set("RadiusPolicy", "home", &api.RadiusPolicy{Authentication: choices, Profiles: []string{"p"}})
	check("with the same profile", map[string]string{"home": "it serves no profile: RadiusPolicy/biz comes first by name, and serves its profiles"})
	a.set("RadiusPolicy", "biz", (*api.RadiusPolicy)(nil))
	check("alone again", nil)
}
