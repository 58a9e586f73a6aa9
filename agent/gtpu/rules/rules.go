// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of GtpuPeer, and of Sessions whose core is GTP-U, that annotations cannot express.
package rules

import (
	"net/netip"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.GtpuPeer]{Check: checkGtpuPeer},
	object.Rules[*api.Session]{Check: checkCore, Claims: claimCore, Local: localAddresses},
}

func checkGtpuPeer(p *api.GtpuPeer, add object.Report) {
	object.CheckHost("address", p.Address, add)
	if p.NoEcho && (p.EchoInterval != 0 || p.ResponseTime != 0 || p.Requests != 0) {
		add("noEcho", "the peer gets no Echo Requests, so their times have no effect", "true", "no noEcho, or no echoInterval, responseTime and requests")
	}
}

func checkCore(s *api.Session, add object.Report) {
	g := s.GetGtpu()
	if g == nil {
		return
	}
	local, remote := g.LocalAddress, g.RemoteAddress
	object.CheckHost("gtpu.localAddress", local, add)
	object.CheckHost("gtpu.remoteAddress", remote, add)
	if object.Family(local) != object.Family(remote) {
		add("gtpu.remoteAddress", "not of the family of gtpu.localAddress", object.Quote(remote), "an "+object.Family(local)+" address")
	} else if local == remote {
		add("gtpu.remoteAddress", "the same as gtpu.localAddress", object.Quote(remote), "the address of the UPF")
	}
	for i, source := range g.AcceptedSources {
		if _, err := object.ParseNetwork(source); err == nil && object.Family(source) != object.Family(local) {
			add("gtpu.acceptedSources["+strconv.Itoa(i)+"]", "not of the family of gtpu.localAddress", object.Quote(source), "a prefix of "+object.Family(local)+" addresses")
		}
	}
	if g.Ethernet {
		checkFrames(s, add)
	}
}

// checkFrames: a session of type Ethernet has no fields of IP.
func checkFrames(s *api.Session, add object.Report) {
	for _, of := range []struct {
		field string
		there bool
	}{
		{"addresses", len(s.Addresses) > 0},
		{"access.pduSessionId", s.Access.GetPduSessionId() != 0}, {"access.proxyArp", s.Access.GetProxyArp()},
		{"policy.aclUp", s.Policy.GetAclUp() != ""}, {"policy.aclDown", s.Policy.GetAclDown() != ""},
		{"policy.mss", s.Policy.GetMss() != 0},
		{"policy.anySource", s.Policy.GetAnySource()},
	} {
		if of.there {
			add(of.field, "not used by sessions of type Ethernet", "", "no value, or no gtpu.ethernet")
		}
	}
}

func claimCore(s *api.Session, c *object.Claimer) {
	g := s.GetGtpu()
	if g == nil {
		return
	}
	local, _ := object.Canonical(api.Format_IP, g.LocalAddress)
	end := append(append(append(c.Words("VRF "), object.VRFName(g.Vrf)...), ", GTP-U at "...), local...)
	c.Take(strconv.AppendUint(append(end, ", TEID "...), uint64(g.LocalTeid), 10), "", "gtpu.localTeid", -1)
}

// localAddresses returns the address of the session's tunnel on the gateway.
func localAddresses(s *api.Session) []object.Held {
	g := s.GetGtpu()
	address, err := netip.ParseAddr(g.GetLocalAddress())
	if err != nil || address.IsLinkLocalUnicast() {
		return nil
	}
	return []object.Held{{VRF: object.VRFName(g.GetVrf()), Prefix: netip.PrefixFrom(address, address.BitLen()), Field: "gtpu.localAddress", Element: -1}}
}
