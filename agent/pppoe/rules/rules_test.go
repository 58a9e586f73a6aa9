// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestMistakesOfPppoeServersNameTheirField(t *testing.T) {
	registry, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*api.PppoeServer){
		"":                       func(*api.PppoeServer) {},
		"innerVlans":             func(s *api.PppoeServer) { s.InnerVlans = []string{"7"} },
		"profile":                func(s *api.PppoeServer) { s.Profile = "" },
		"acName":                 func(s *api.PppoeServer) { s.AcName = strings.Repeat("x", 65) },
		"serviceNames[0]":        func(s *api.PppoeServer) { s.ServiceNames = []string{""} },
		"serviceNames[1]":        func(s *api.PppoeServer) { s.ServiceNames = []string{"a", "a"} },
		"mru":                    func(s *api.PppoeServer) { s.Mru = 100 },
		"authentication[1]":      func(s *api.PppoeServer) { s.Authentication = []api.PppAuthentication{1, 1} },
		"authentication[0]":      func(s *api.PppoeServer) { s.Authentication = []api.PppAuthentication{3, 1} },
		"padoDelays[0].delay":    func(s *api.PppoeServer) { s.PadoDelays = []*api.PadoDelay{{Refuse: true, Delay: 5}} },
		"padoDelays[1].sessions": func(s *api.PppoeServer) { s.PadoDelays = []*api.PadoDelay{{Delay: 5}, {Refuse: true}} },
	} {
		spec := &api.PppoeServer{Port: "access", Profile: "home"}
		change(spec)
		errs := registry.Check(&object.Object{Kind: "PppoeServer", Name: "it", Spec: spec})
		switch {
		case field == "" && len(errs) > 0:
			t.Errorf("%v: %v", spec, errs)
		case field != "" && (len(errs) != 1 || errs[0].Field != field):
			t.Errorf("%v: %v, and not %s alone", spec, errs, field)
		}
	}
}

func TestOnlyPPPoESessionsHaveALCPMagic(t *testing.T) {
	registry, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	for id, mistakes := range map[uint32]int{0: 1, 7: 0} {
		spec := &api.Session{Access: &api.Access{Port: "access", OuterVlan: 100, PppoeSessionId: id, LcpMagic: 5}, Addresses: []string{"100.64.0.7/32"}}
		if errs := registry.Check(&object.Object{Kind: "Session", Name: "it", Spec: spec}); len(errs) != mistakes || mistakes == 1 && errs[0].Field != "access.lcpMagic" {
			t.Errorf("PPPoE session %d: %v", id, errs)
		}
	}
}
