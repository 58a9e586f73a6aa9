// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of GreTunnel, and of Sessions on tunnels, that annotations cannot express.
package rules

import (
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.GreTunnel]{Check: checkGreTunnel, Claims: claimGreTunnel},
	object.Rules[*api.Session]{Claims: claimSession},
}

func claimSession(s *api.Session, c *object.Claimer) {
	if name := s.Access.GetGreTunnel(); name != "" {
		c.Take(append(c.Words("GreTunnel/"), name...), "packets", "access.greTunnel", -1)
	}
}

func checkGreTunnel(g *api.GreTunnel, add object.Report) {
	object.CheckHost("localAddress", g.LocalAddress, add)
	object.CheckHost("remoteAddress", g.RemoteAddress, add)
	object.CheckSameFamily("remoteAddress", g.RemoteAddress, "localAddress", g.LocalAddress, "address", add)
	rest := -1
	var tunnels []string
	var qfis []uint32
	for i, child := range g.Children {
		field := "children[" + strconv.Itoa(i) + "]"
		if slices.Contains(tunnels, child.Tunnel) {
			add(field+".tunnel", "duplicate tunnel", object.Quote(child.Tunnel), "each tunnel once")
		}
		tunnels = append(tunnels, child.Tunnel)
		if len(child.Qfis) == 0 {
			if rest >= 0 {
				add(field+".qfis", "children["+strconv.Itoa(rest)+"] has no QFIs either", "", "one child without QFIs, which has all others")
			}
			rest = i
		}
		for j, qfi := range child.Qfis {
			at := field + ".qfis[" + strconv.Itoa(j) + "]"
			if qfi > 63 {
				add(at, "no QFI", strconv.FormatUint(uint64(qfi), 10), "0 to 63")
			}
			if slices.Contains(qfis, qfi) {
				add(at, "duplicate QFI", strconv.FormatUint(uint64(qfi), 10), "each QFI once")
			}
			qfis = append(qfis, qfi)
		}
	}
}

func claimGreTunnel(g *api.GreTunnel, c *object.Claimer) {
	for i, child := range g.Children {
		c.Take(append(c.Words("IpsecTunnel/"), child.Tunnel...), "GRE packets", "children", i)
	}
}
