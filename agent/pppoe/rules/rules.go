// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of PppoeServer, and of Sessions on PPPoE, that annotations cannot express.
package rules

import (
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	"sluice.dev/sluice/agent/object"
	session "sluice.dev/sluice/agent/session/rules"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.PppoeServer]{Check: checkPppoeServer, Claims: func(s *api.PppoeServer, c *object.Claimer) { circuits(s).Claim(c) },
		Apart: func(s *api.PppoeServer) *object.Shared { return circuits(s).Shared() },
		// Sessions of circuits that the server has no more end.
		Interrupts: func(before, after *api.PppoeServer) bool { return !circuits(before).Within(circuits(after)) }},
	object.Rules[*api.Session]{Check: checkAccess},
}

// circuits are those of a server. Its Punts take PPPoE there.
func circuits(s *api.PppoeServer) ether.Circuits {
	return ether.Circuits{Port: s.Port, Outer: s.OuterVlans, Inner: s.InnerVlans, Protocols: []string{"PPPoE"}}
}

// Access is the access of sessions.
var Access = session.Access{Field: "pppoeSessionId", Noun: "PPPoE session", ID: (*api.Access).GetPppoeSessionId}

func checkAccess(s *api.Session, add object.Report) {
	a := s.Access
	if a.GetLcpMagic() != 0 && a.GetPppoeSessionId() == 0 {
		add("access.lcpMagic", "LCP without PPPoE", strconv.FormatUint(uint64(a.LcpMagic), 10), "access.pppoeSessionId, too")
	}
	if a.GetLcpEchoInterval() != 0 && a.GetLcpMagic() == 0 {
		add("access.lcpEchoInterval", "Echo-Requests without a magic number", strconv.FormatUint(a.LcpEchoInterval, 10), "access.lcpMagic, too")
	}
	if a.GetPppoeSessionId() != 0 && s.GetGtpu().GetEthernet() {
		add("access.pppoeSessionId", "not used by sessions of type Ethernet", "", "no value, or no gtpu.ethernet")
	}
}

// Of AC-Name and Service-Name: so that all of them fit into one offer.
const longestTag = 64

func checkPppoeServer(s *api.PppoeServer, add object.Report) {
	ether.CheckVLANRanges(s.OuterVlans, s.InnerVlans, add)
	if len(s.AcName) > longestTag {
		add("acName", "too long", object.Quote(s.AcName), "at most 64 bytes")
	}
	for i, name := range s.ServiceNames {
		field := "serviceNames[" + strconv.Itoa(i) + "]"
		switch {
		case name == "" || len(name) > longestTag:
			add(field, "empty or too long", object.Quote(name), "1 to 64 bytes")
		case slices.Contains(s.ServiceNames[:i], name):
			add(field, "duplicate name", object.Quote(name), "each name once")
		}
	}
	for i, method := range s.Authentication {
		field := "authentication[" + strconv.Itoa(i) + "]"
		switch {
		case slices.Contains(s.Authentication[:i], method):
			add(field, "duplicate method", method.String(), "each method once")
		case method == api.PppAuthentication_LINE && len(s.Authentication) > 1:
			add(field, "not the only method", method.String(), "line alone, or other methods")
		}
	}
	for i, d := range s.PadoDelays {
		field := "padoDelays[" + strconv.Itoa(i) + "]"
		switch {
		case d.Refuse && d.Delay > 0:
			add(field+".delay", "a delay of offers that are refused", strconv.FormatUint(d.Delay, 10), "delay or refuse")
		case slices.ContainsFunc(s.PadoDelays[:i], func(other *api.PadoDelay) bool { return other.Sessions == d.Sessions }):
			add(field+".sessions", "duplicate number of sessions", strconv.Itoa(int(d.Sessions)), "each number of sessions once")
		}
	}
}
