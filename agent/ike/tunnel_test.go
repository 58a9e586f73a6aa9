// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestATunnelNeedsAnSAOfEachDirectionThatHasNotEnded(t *testing.T) {
	const ended = " that has not ended: a hard lifetime is over, or the sequence numbers are used up"
	for _, c := range []struct {
		all, inbound, outbound, ended uint32
		reason                        string
	}{
		{2, 1, 1, 0, ""},
		{3, 1, 1, 1, ""},
		{0, 0, 0, 0, "no inbound and no outbound SecurityAssociation"},
		{1, 1, 0, 0, "no outbound SecurityAssociation"},
		{2, 0, 2, 0, "no inbound SecurityAssociation"},
		{2, 1, 0, 1, "no outbound SecurityAssociation" + ended},
		{2, 0, 0, 2, "no inbound and no outbound SecurityAssociation" + ended},
		// A data plane of an earlier release.
		{2, 0, 0, 0, ""},
	} {
		s := &api.IpsecTunnelState{SecurityAssociations: c.all, UsableInbound: c.inbound, UsableOutbound: c.outbound, Ended: c.ended}
		if reason := missing(s); reason != c.reason {
			t.Errorf("%+v: %q", c, reason)
		}
	}
}
