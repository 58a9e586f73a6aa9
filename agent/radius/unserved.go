// SPDX-License-Identifier: Apache-2.0

// SubscriberProfiles whose back end is RADIUS, and which no RadiusPolicy or no server serves, and policies that serve none: they are not ready.
package radius

import (
	"slices"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// reportUnserved sets why profiles have no RADIUS, or that they have it. s.mu is held.
func (s *radius) reportUnserved() {
	for name := range s.profiles {
		s.reportProfile(name)
	}
	s.reportIdle()
}

// reportIdle sets that policies serve no profile, because others serve all that they would. s.mu is held.
func (s *radius) reportIdle() {
	idle := map[string]string{}
	for _, p := range s.policies {
		names := p.spec.Profiles
		if len(names) == 0 {
			// policyOf a name that no policy has.
			names = []string{""}
		}
		if !slices.ContainsFunc(names, func(name string) bool { return s.policyOf(name) == p }) {
			idle[p.name] = s.policyOf(names[0]).name
		}
	}
	for name := range s.idlePolicies {
		if idle[name] == "" {
			delete(s.idlePolicies, name)
			s.hinderPolicy(name, "profiles", "", "")
		}
	}
	for name, other := range idle {
		why := "it serves no profile: RadiusPolicy/" + other + " comes first by name, and serves its profiles"
		if len(s.policyNamed(name).spec.Profiles) == 0 {
			why = "it serves no profile: RadiusPolicy/" + other + " comes first by name, and has no profiles either"
		}
		if !s.idlePolicies[name] {
			s.Log.Warn("a policy serves no profile", "object", "RadiusPolicy "+name, "why", why)
		}
		s.idlePolicies[name] = true
		s.hinderPolicy(name, "profiles", "ServesNoProfile", why)
	}
}

func (s *radius) reportProfile(name string) {
	reason, message := s.unserved(name, s.profiles[name])
	k := object.Key{Kind: "SubscriberProfile", Name: name}
	if !s.SetNotReady(k, backEnd, reason, message) {
		return
	}
	if reason != "" {
		s.Log.Warn("a profile has no RADIUS", "object", k.Kind+" "+k.Name, "why", message)
	} else {
		s.Log.Info("a profile has RADIUS again, or needs none", "object", k.Kind+" "+k.Name)
	}
	if s.Intent != nil {
		s.Intent.Touched(k)
	}
}

// unserved is the reason why a profile has no RADIUS for what it needs; "": it has all. nil: there is no such profile. s.mu is held.
func (s *radius) unserved(name string, spec *api.SubscriberProfile) (reason, message string) {
	of := s.policyOf(name)
	var without []string
	for _, need := range []struct {
		what  string
		names []string
		has   bool
	}{
		{"authentication", spec.GetAuthentication(), of != nil && len(of.authentication) > 0},
		{"authorization", spec.GetAuthorization(), of != nil && len(of.authentication) > 0},
		{"accounting", spec.GetAccounting(), of != nil && len(of.accounting) > 0},
	} {
		if slices.Contains(need.names, backEnd) && !need.has {
			without = append(without, need.what)
		}
	}
	needs := strings.Join(without, " and ")
	switch {
	case needs == "":
		return "", ""
	case of == nil:
		return "NoRadiusPolicy", "no RadiusPolicy serves the profile, which needs RADIUS for " + needs
	}
	return "NoRadiusServer", "RadiusPolicy/" + of.name + " serves the profile, and has no RadiusServer for " + needs
}
