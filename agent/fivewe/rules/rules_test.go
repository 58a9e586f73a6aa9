// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"a session of frames on 5WE", "Session", "{access: {port: p, fiveWeSessionId: 1, mac: \"02:00:00:00:00:01\"}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", ""},
		{"a session of frames on 5WE without a MAC", "Session", "{access: {port: p, fiveWeSessionId: 1}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", "access.mac: a session of type Ethernet on 5WE does not learn it"},
		{"a session of 5WE and of PPPoE", "Session", "{access: {port: p, fiveWeSessionId: 1, pppoeSessionId: 2}}", "access.fiveWeSessionId: a session of 5WE and of PPPoE"},
	})
}
