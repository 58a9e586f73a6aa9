// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Sessions on 5WE (RFC 8822) that annotations cannot express.
package rules

import (
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	session "sluice.dev/sluice/agent/session/rules"
)

// Rules are the rules of the concept.
var Rules = []object.KindRules{
	object.Rules[*api.Session]{Check: checkAccess},
}

// Access is the access of sessions.
var Access = session.Access{Field: "fiveWeSessionId", Noun: "5WE session", ID: (*api.Access).GetFiveWeSessionId}

func checkAccess(s *api.Session, add object.Report) {
	id := s.Access.GetFiveWeSessionId()
	if id == 0 {
		return
	}
	if s.Access.GetPppoeSessionId() != 0 {
		add("access.fiveWeSessionId", "a session of 5WE and of PPPoE", strconv.FormatUint(uint64(id), 10), "one of the two")
	}
	if s.GetGtpu().GetEthernet() && s.Access.GetMac() == "" {
		add("access.mac", "a session of type Ethernet on 5WE does not learn it", "", "the subscriber's Ethernet address")
	}
}
